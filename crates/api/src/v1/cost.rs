//! What was spent, by whom and on what.

use serde::{Deserialize, Serialize};
use tenure_domain::id::JobId;
use tenure_domain::tenancy::scope::ScopeId;
use utoipa::{IntoParams, ToSchema};

use super::time::Moment;

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CostQuery {
    /// The scope whose costs are asked; absent means the widest the caller may see.
    pub scope: Option<String>,
    /// Jobs that ended at or after this moment, RFC 3339; absent means the start of the month.
    pub since: Option<String>,
    /// Jobs that ended before this moment; absent means now.
    pub until: Option<String>,
}

/// Costs of a scope: its jobs that ended in a span of time, and those that run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CostView {
    #[schema(value_type = String)]
    pub scope: ScopeId,
    pub path: String,
    pub currency: String,
    pub since: Moment,
    pub until: Moment,
    /// Charged to jobs that ended in the span and to those still running.
    pub charged_micros: i64,
    /// Set aside for what is running.
    pub held_micros: i64,
    pub gpu_seconds: u64,
    pub lines: Vec<CostLine>,
    /// There were more lines than are shown; the totals count all.
    pub truncated: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CostLine {
    #[schema(value_type = String)]
    pub job: JobId,
    pub name: String,
    pub owner_path: String,
    /// Absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Moment>,
    pub ran_ms: u64,
    pub gpu_ms: u64,
    pub charged_micros: i64,
    /// What its frames or segments cost each, where it was done in tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pieces: Option<PieceCost>,
}

/// What a job's frames or segments cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PieceCost {
    /// `frame` or `segment`.
    pub piece: String,
    /// Those that are done.
    pub done: u64,
    /// Each of them, with what tries that failed cost.
    pub each_micros: i64,
}
