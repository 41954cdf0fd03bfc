//! Services: jobs that answer requests at `/v1/services/{job}/…`.

use serde::{Deserialize, Serialize};
use tenure_domain::workload::service::Replicas;
use utoipa::{IntoParams, ToSchema};

/// Lists services.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ServiceQuery {
    /// Only services of this scope and below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A service as it is now, and what was counted of it since the server leads.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ServiceView {
    /// The path below which the server passes requests on; callers use their own keys.
    pub endpoint: String,
    /// Between how many replicas.
    pub replicas: Replicas,
    /// How many there should be now.
    pub wanted: u32,
    /// How many there are, wherever each is in its life.
    pub living: u32,
    /// How many take requests.
    pub ready: u32,
    /// Requests in replicas, and those that wait for a place.
    pub in_flight: u32,
    pub waiting: u32,
    pub requests: u64,
    /// Answered to the end.
    pub answered: u64,
    /// Answered by a replica with 5xx.
    pub failed: u64,
    /// Not answered, or not to the end, though their callers stayed.
    pub lost: u64,
    /// Sent back because too many waited, or for too long.
    pub turned_away: u64,
    /// From a request's arrival until it was sent to a replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_p50_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_p99_ms: Option<f64>,
    /// From a request's arrival until the end of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_p50_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_p99_ms: Option<f64>,
    /// Requests that the journal tells of, over all leaders.
    pub journalled_requests: u64,
    /// What requests wait for while no replica is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}
