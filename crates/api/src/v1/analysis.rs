//! Analysis: what was used and what it cost, by what one asks; what lay idle; what the month will come to.

use serde::{Deserialize, Serialize};
use tenure_domain::kind::Kind;
use tenure_domain::ledger::analysis::{By, Forecast, Group};
use tenure_domain::tenancy::scope::ScopeId;
use utoipa::{IntoParams, ToSchema};

use super::time::Moment;

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AnalysisQuery {
    /// The scope's id; absent means the widest the caller may see.
    pub scope: Option<String>,
    /// What is put together: `tenant`, `subscriber`, `user`, `class`, `sku`, `kind`, `workload` (the kind with its model or scene),
    /// `isolation`, `name`, `job`, `hour`, `day`, `month`, or `label:KEY` for what jobs' labels of that key say; `kind` unless said.
    #[param(value_type = Option<String>)]
    pub by: Option<By>,
    /// From this moment on, RFC 3339; absent means the start of the month.
    pub since: Option<String>,
    /// Before this moment; absent means now.
    pub until: Option<String>,
    /// Only on this GPU class.
    pub class: Option<String>,
    /// Only of this SKU.
    pub sku: Option<String>,
    /// Only of this kind.
    pub kind: Option<Kind>,
    /// Only of this name.
    pub name: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnalysisView {
    #[schema(value_type = String)]
    pub scope: ScopeId,
    pub path: String,
    pub currency: String,
    #[schema(value_type = String)]
    pub by: By,
    pub since: Moment,
    pub until: Moment,
    pub total: Group,
    /// The dearest first; times in their order.
    pub groups: Vec<NamedGroup>,
    /// There were more groups than are shown; the total counts all.
    pub truncated: bool,
    /// Keys of labels that jobs counted here have, as `by=label:KEY` takes them; the first fifty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// A group, and what people call it where it is a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedGroup {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(flatten)]
    pub group: Group,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ForecastQuery {
    /// The scope's id; absent means the widest the caller may see.
    pub scope: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ForecastView {
    #[schema(value_type = String)]
    pub scope: ScopeId,
    pub path: String,
    pub currency: String,
    pub until: Moment,
    pub forecast: Forecast,
    /// What it rests on, in a sentence.
    pub basis: String,
}
