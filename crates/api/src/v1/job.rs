//! Jobs.

use serde::{Deserialize, Serialize};
use tenure_domain::id::{AllocationId, JobId, NodeId, UserId};
use tenure_domain::refusal::Refusal;
use tenure_domain::schedule::allocation::Slice;
use tenure_domain::schedule::instead::Instead;
use tenure_domain::schedule::when::{Basis, Starts, Unforeseen};
use tenure_domain::workload::derive::Derivation;
use tenure_domain::workload::job::{Outcome, StopReason};
use tenure_domain::workload::member::{MemberEnd, MemberPhase};
use tenure_domain::workload::spec::{Demand, Isolation, JobSpec};
use tenure_domain::workload::usage::Usage;
use utoipa::{IntoParams, ToSchema};

use super::service::ServiceView;
use super::task::{TaskView, TasksView};
use super::time::Moment;

/// Submits a job for oneself, or for a user one may submit for.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitJob {
    /// Whose job it is; absent means the caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    pub spec: JobSpec,
}

/// Changes the size of a running job's slices; what is absent stays as it is.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeJob {
    /// Thousandths of each GPU's compute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_permille: Option<u16>,
    /// Device memory of each slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_mib: Option<u64>,
}

/// Where a job is: the live phases, and `done`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobPhase {
    Queued,
    Admitted,
    Placed,
    Starting,
    Running,
    Pausing,
    Paused,
    Resuming,
    Stopping,
    Done,
}

impl JobPhase {
    pub fn as_str(self) -> &'static str {
        match self {
            JobPhase::Queued => "queued",
            JobPhase::Admitted => "admitted",
            JobPhase::Placed => "placed",
            JobPhase::Starting => "starting",
            JobPhase::Running => "running",
            JobPhase::Pausing => "pausing",
            JobPhase::Paused => "paused",
            JobPhase::Resuming => "resuming",
            JobPhase::Stopping => "stopping",
            JobPhase::Done => "done",
        }
    }
}

/// A job, live or done.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    #[schema(value_type = String)]
    pub id: JobId,
    #[schema(value_type = String)]
    pub owner: UserId,
    pub owner_path: String,
    pub spec: JobSpec,
    /// How its demand came about, where it said what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derivation: Option<Box<Derivation>>,
    pub phase: JobPhase,
    pub submitted: Moment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Moment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Moment>,
    pub attempt: u32,
    /// When it last said, by its `$TENURE_CHECKPOINT`, that its work is safe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<Moment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<StopReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationView>,
    /// The members of a job over several nodes, by their numbers; the allocation above is of the first that has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberView>,
    /// Why it waits; only on a queued job asked for by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    pub ran_ms: u64,
    pub charged_micros: i64,
    pub held_micros: i64,
    pub gpu_ms: u64,
    /// What it did with its devices, as far as it was metered; absent where nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Of a job that answers requests, while it lives and is asked for by itself or among services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Box<ServiceView>>,
    /// How far it is, where it is done in tasks; what it ran and cost is theirs together then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TasksView>,
    /// Which part of another job it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskView>,
    /// The trace it is told of in; only on a job asked for by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AllocationView {
    #[schema(value_type = String)]
    pub id: AllocationId,
    #[schema(value_type = String)]
    pub node: NodeId,
    pub node_name: String,
    pub slices: Vec<Slice>,
    pub isolation: Isolation,
    pub isolation_why: String,
    /// Of the whole job.
    pub hourly_micros: i64,
}

/// One member of a job over several nodes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MemberView {
    pub member: u32,
    #[schema(value_type = String)]
    pub allocation: AllocationId,
    #[schema(value_type = String)]
    pub node: NodeId,
    /// Empty where the node is gone.
    pub node_name: String,
    pub phase: MemberPhase,
    /// What it has now; nothing once it ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<Slice>,
    pub ran_ms: u64,
    /// How it ended, where it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<MemberEnd>,
}

/// Why a job waits, or why not, in one code, one sentence and what would change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    pub code: String,
    pub sentence: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl From<Refusal> for Waiting {
    fn from(refusal: Refusal) -> Waiting {
        Waiting {
            code: refusal.code.as_str().into(),
            sentence: refusal.sentence.into(),
            hint: refusal.hint.map(Into::into),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Why {
    #[schema(value_type = String)]
    pub job: JobId,
    pub phase: JobPhase,
    /// Absent when the job does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// One sentence in any case.
    pub sentence: String,
    /// When it is likely to start, or to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<StartsView>,
    /// Why nobody can say when; a job that waits has this or `starts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unforeseen: Option<UnforeseenView>,
    /// What of the job, changed, would let it start now, or sooner; each was tried on the fleet as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instead: Vec<InsteadView>,
}

/// Why no moment can be said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnforeseenView {
    pub code: Unforeseen,
    /// The same in one sentence.
    pub sentence: String,
}

impl From<Unforeseen> for UnforeseenView {
    fn from(code: Unforeseen) -> UnforeseenView {
        UnforeseenView {
            code,
            sentence: code.sentence().into(),
        }
    }
}

/// A change to the job, in words and as the option that makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InsteadView {
    pub change: String,
    /// Others would give way to it; it starts when they have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evicts: bool,
    /// When it would start; absent where that is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<StartsView>,
}

impl From<Instead> for InsteadView {
    fn from(instead: Instead) -> InsteadView {
        InsteadView {
            change: instead.change,
            evicts: instead.evicts,
            starts: instead.starts.map(Into::into),
        }
    }
}

/// When a waiting job starts, from when to when, and what that rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StartsView {
    pub from: Moment,
    pub to: Moment,
    pub basis: Basis,
}

impl From<Starts> for StartsView {
    fn from(starts: Starts) -> StartsView {
        StartsView {
            from: starts.from.into(),
            to: starts.to.into(),
            basis: starts.basis,
        }
    }
}

/// What a job would cost and whether it would be taken, without submitting it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// Would start at once.
    pub starts_now: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// Set aside at most, for all members, when it starts now.
    pub hold_micros: i64,
    pub hourly_micros: i64,
    pub currency: String,
    /// Where it would start; of several members, where the first would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// What it would ask for, where a SKU or a workload filled that in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled: Option<Filled>,
    /// How that came about, where it said what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derivation: Option<Box<Derivation>>,
    /// How it would be cut, where it is done in tasks; all else is said of the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<PlanTasks>,
}

/// How a job would be cut into tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanTasks {
    /// What a piece is: `frame` or `segment`.
    pub piece: String,
    pub total: u64,
    pub per_task: u64,
    pub parallel: u32,
    /// What all of it would cost; absent where nothing tells how long it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_micros: Option<i64>,
}

/// What of a job was filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Filled {
    pub demand: Demand,
    pub run_time_s: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct JobQuery {
    /// Jobs of this scope and below; absent means everything the caller may see.
    pub scope: Option<String>,
    /// `live` (default), `done` or `all`.
    pub show: Option<String>,
    /// Also the tasks of live jobs, each as the job it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<bool>,
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// `stdout` (default) or `stderr`.
    pub stream: Option<String>,
    /// First byte wanted.
    pub offset: Option<u64>,
    /// Only so many of the last bytes there are, and with `follow` what comes after them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
    /// Goes on until the job ends.
    pub follow: Option<bool>,
    /// Which member's, of a job over several nodes; 0 unless said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<u32>,
    /// Which task's, of a job of tasks, which has no log of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u32>,
}
