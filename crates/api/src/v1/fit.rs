//! What a workload needs, and what of the platform would do for it.

use serde::{Deserialize, Serialize};
use tenure_domain::schedule::fit::Fit;
use tenure_domain::workload::Workload;
use tenure_domain::workload::spec::Demand;
use utoipa::ToSchema;

/// Asks what a workload needs and where it would fit; submits nothing.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AskFit {
    /// Whose job it would be; absent means the caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What the job would be called; runs of pictures without a scene are known by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub workload: Workload,
    /// What is asked for whatever the workload needs, such as a class.
    #[serde(default)]
    pub demand: Demand,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FitView {
    pub fit: Fit,
    pub currency: String,
}
