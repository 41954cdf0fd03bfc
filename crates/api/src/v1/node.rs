//! Nodes and their devices.

use serde::{Deserialize, Serialize};
use tenure_domain::id::{GpuId, NodeId, TenantId};
use tenure_domain::schedule::fleet::NodeStatus;
use tenure_domain::schedule::hardware::Hardware;
use tenure_domain::schedule::label::Labels;
use utoipa::{IntoParams, ToSchema};

use super::time::Moment;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateJoinToken {
    /// How long the token is good for.
    #[serde(default = "an_hour")]
    #[schema(minimum = 1, maximum = 2592000)]
    pub valid_s: u64,
    /// Whose the node is then: its jobs alone go there, and it may let it to others. The platform's where nobody is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

fn an_hour() -> u64 {
    3600
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NodeQuery {
    /// How many at most, 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Goes on where the page that gave this cursor ended.
    pub cursor: Option<String>,
    /// Only nodes that this tenant brought, or that are dedicated to it.
    pub tenant: Option<String>,
}

#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct NewJoinToken {
    /// For `tenure-agent run`; shown this once.
    pub token: String,
    pub expires: Moment,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    #[schema(value_type = String)]
    pub id: NodeId,
    pub name: String,
    pub status: NodeStatus,
    pub joined: Moment,
    pub cpu_milli: u32,
    pub used_cpu_milli: u32,
    pub memory_mib: u64,
    pub used_memory_mib: u64,
    /// Space set apart for volumes, and what those that are here take of it.
    #[serde(default)]
    pub volume_mib: u64,
    #[serde(default)]
    pub used_volume_mib: u64,
    pub allocations: u32,
    pub gpus: Vec<GpuView>,
    /// What an operator said of it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The tenant that brought it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub owner: Option<TenantId>,
    pub revision: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GpuView {
    #[schema(value_type = String)]
    pub id: GpuId,
    pub uuid: String,
    pub vendor: String,
    pub model: String,
    pub class: String,
    pub vram_mib: u64,
    pub used_vram_mib: u64,
    pub used_permille: u32,
    pub slices: u32,
    /// Levels it can give, and why.
    pub isolation: std::collections::BTreeMap<String, String>,
    pub present: bool,
    /// Why it gets no work until an operator releases it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<String>,
    /// When it last showed that it is what it claims, where it was asked to and did; only then it is let on the exchange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<Moment>,
    /// What its driver tells of it beyond that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
}
