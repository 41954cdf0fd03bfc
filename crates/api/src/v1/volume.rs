//! Volumes: space of a scope's own, in which its jobs keep files between runs.

use serde::{Deserialize, Serialize};
use tenure_domain::id::{NodeId, VolumeId};
use utoipa::{IntoParams, ToSchema};

use super::time::Moment;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// The tenant, subscriber or user it is for; absent means the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Jobs see it at `/volumes/NAME`.
    pub name: String,
    #[schema(minimum = 16, maximum = 16777216)]
    pub size_mib: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrowVolume {
    /// The new size; never less than the present one.
    #[schema(minimum = 16, maximum = 16777216)]
    pub size_mib: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct VolumeView {
    #[schema(value_type = String)]
    pub id: VolumeId,
    pub scope: String,
    pub scope_path: String,
    pub name: String,
    pub size_mib: u64,
    pub created: Moment,
    /// Where its files are, and its jobs therefore run; absent before its first use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub node: Option<NodeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Jobs that name it and have not ended.
    pub jobs: u32,
    pub revision: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VolumeQuery {
    /// Volumes of this scope and below; absent means those that the caller's jobs may name.
    pub scope: Option<String>,
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}
