//! Tasks of a job: how far they are, and which part one of them is.

use serde::{Deserialize, Serialize};
use tenure_domain::id::JobId;
use tenure_domain::workload::task::progress::EtaBasis;
use utoipa::{IntoParams, ToSchema};

use super::time::Moment;

/// How far a job of tasks is. Pieces are its frames or segments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TasksView {
    /// What a piece is: `frame` or `segment`.
    pub piece: String,
    pub total: u64,
    pub done: u64,
    /// With tasks that have a place.
    pub running: u64,
    pub waiting: u64,
    /// Tried as often as they may be.
    pub failed: u64,
    /// Those by their numbers; segments are counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_pieces: Option<String>,
    /// Runs of pieces that were to be done again because a task failed.
    pub retries: u32,
    /// How many tasks there were so far.
    pub made: u32,
    pub tasks_running: u32,
    pub tasks_waiting: u32,
    /// How many there are at once at most, and how many pieces each does.
    pub parallel: u32,
    pub per_task: u64,
    /// What a piece that is done took and cost; tries that failed are not in it, and are in the job's cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each_micros: Option<i64>,
    /// When it is likely to be done, were as many tasks to run as do now; absent where nothing tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<EtaView>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EtaView {
    pub at: Moment,
    pub basis: EtaBasis,
}

/// Which part of another job a job is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    #[schema(value_type = String)]
    pub of: JobId,
    pub number: u32,
    /// Its frames or segments by their numbers.
    pub pieces: String,
    pub count: u64,
    /// How often they failed before.
    pub tries: u32,
    /// What each cost so far.
    pub each_micros: i64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TaskQuery {
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}
