//! Events as the stream gives them.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::time::Moment;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    pub seq: u64,
    pub at: Moment,
    /// Who caused it: a user id, a node id, or `system`.
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The variant's name.
    pub kind: String,
    /// Its fields.
    #[schema(value_type = Object)]
    pub data: serde_json::Value,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// Only events about this scope and below; absent means everything the caller may see.
    pub scope: Option<String>,
    /// First sequence number wanted; absent starts at the newest. `Last-Event-ID` outranks it.
    pub from: Option<u64>,
    /// Last sequence number wanted: the stream ends after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// Ends at the newest event instead of waiting for more.
    pub follow: Option<bool>,
    /// Only these kinds, comma-separated.
    pub kinds: Option<String>,
}
