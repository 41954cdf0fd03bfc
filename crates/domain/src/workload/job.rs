//! A job through its life: Queued → Admitted → Placed → Starting → Running → Stopping → Done.
//! Admission and placement are one decision, so no job holds quota without a place. A job over several nodes is a
//! gang: its members are placed, run and end together. A running job may be paused: it
//! keeps its node, its processes and their memory there, and gives back its GPUs, its quota and its hold.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::derive::Derivation;
use super::member::{Member, MemberEnd};
use super::spec::JobSpec;
use super::task::Tasks;
use super::trace::TraceParent;
use super::usage::Usage;
use crate::audit::JobAudit;
use crate::forecast::history::Signature;
use crate::id::{AllocationId, BookingId, JobId, UserId, VolumeId};
use crate::ledger::hold::Hold;
use crate::meter::Amounts;
use crate::money::Micros;
use crate::tenancy::budget::Cost;
use crate::time::Time;

/// Where a live job is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Queued,
    Admitted,
    Placed,
    Starting,
    Running,
    /// Asked to give its GPUs back; it has them still.
    Pausing,
    Paused,
    /// Given GPUs again; its node has yet to say that it runs.
    Resuming,
    Stopping,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Queued => "queued",
            Phase::Admitted => "admitted",
            Phase::Placed => "placed",
            Phase::Starting => "starting",
            Phase::Running => "running",
            Phase::Pausing => "pausing",
            Phase::Paused => "paused",
            Phase::Resuming => "resuming",
            Phase::Stopping => "stopping",
        }
    }
}

/// Why a job is being brought to its end, or back to the queue. All take the same way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Somebody entitled to asked for it.
    Cancelled,
    /// It ran as long as it may.
    RunTime,
    /// It used more than it was given, or tried to pass its limits by.
    OverLimit,
    /// It gives way to others, or its node went away or is taken out of service; the job returns to the queue.
    Evicted,
    /// A member of it failed, and none goes on without the others.
    MemberFailed,
}

/// Who had a job paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PauseReason {
    /// Somebody entitled to; it resumes when it is asked for again.
    Asked,
    /// Others needed its GPUs more; it resumes when there is room.
    Preempted,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "result")]
pub enum Outcome {
    /// It ended by itself with exit code 0.
    Succeeded,
    /// It ended by itself with another code, or by a signal of its own.
    Failed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Which member was the first, of a job with several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        member: Option<u32>,
    },
    /// It could not be started.
    NotStarted {
        why: String,
        /// Which member was the first, of a job with several.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        member: Option<u32>,
    },
    Cancelled,
    /// Ended at its run-time limit.
    TimedOut,
    /// Ended for using more than it was given; its log says of what.
    OverLimit,
    /// Faults that were not its own used up its attempts.
    GaveUp {
        attempts: u32,
    },
    /// Some of its pieces failed as often as they may be tried; the rest is done, unless it was to end with the first.
    TasksFailed {
        /// By their numbers.
        pieces: String,
        count: u64,
    },
}

impl Outcome {
    pub fn is_success(&self) -> bool {
        matches!(self, Outcome::Succeeded)
    }

    pub fn as_str(&self) -> &'static str {
        match self {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed { .. } => "failed",
            Outcome::NotStarted { .. } => "not_started",
            Outcome::Cancelled => "cancelled",
            Outcome::TimedOut => "timed_out",
            Outcome::OverLimit => "over_limit",
            Outcome::GaveUp { .. } => "gave_up",
            Outcome::TasksFailed { .. } => "tasks_failed",
        }
    }
}

/// What an admitted job holds at every scope above it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    pub amounts: Amounts,
    pub hold: Hold,
    /// The booking in whose window it runs, and which pays for its GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking: Option<BookingId>,
}

/// How often a job gave way to others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evictions {
    /// In its whole life.
    pub count: u32,
    /// Tries that ended so; they are no faults.
    pub restarts: u32,
    /// The latest, as many as a bound within an hour may need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last: Vec<Time>,
}

impl Evictions {
    pub const KEPT: usize = 16;

    pub(crate) fn is_none(&self) -> bool {
        *self == Evictions::default()
    }

    pub(crate) fn note(&mut self, at: Time) {
        self.count += 1;
        if self.last.len() == Self::KEPT {
            self.last.remove(0);
        }
        self.last.push(at);
    }
}

/// A live job. Finished ones leave the state for history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub owner: UserId,
    pub spec: Arc<JobSpec>,
    /// How its demand came about, where it said what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derivation: Option<Box<Derivation>>,
    /// What the names of its volumes meant when it was submitted, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeId>,
    pub submitted: Time,
    pub phase: Phase,
    /// When the phase last changed.
    pub since: Time,
    /// Which try this is, from 1.
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// Its members in this attempt, by their numbers; none while it is queued.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// The first member of this attempt that did not end well, while others are still to be stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// While it pauses: who wanted it. Gone once it is to resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseReason>,
    /// Its node could not resume it, and is not asked again before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_after: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// Charged over all attempts.
    pub charged: Cost,
    /// The same in the prices of its owner's subscriber, where that has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resold: Option<Micros>,
    /// Run time over all attempts.
    pub ran_ms: u64,
    /// Use of devices over all attempts; none where none was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "JobAudit::is_empty")]
    pub audit: JobAudit,
    /// Which jobs of its tenant it is like, as far as run times go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alike: Option<Signature>,
    #[serde(default, skip_serializing_if = "Evictions::is_none")]
    pub evictions: Evictions,
    /// When it last said that its work is safe, in whichever attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<Time>,
    /// Where in whose trace it was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
    /// Its tasks, where it is done in tasks: it then has no members, and what it ran and was charged is theirs together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Box<Tasks>>,
}

impl Job {
    /// The members that have their allocations still, with their numbers.
    pub fn living(&self) -> impl Iterator<Item = (u32, &Member)> {
        (0..).zip(&self.members).filter(|(_, member)| member.is_living())
    }

    /// The allocations it has now, one of each living member.
    pub fn allocations(&self) -> impl Iterator<Item = AllocationId> {
        self.living().map(|(_, member)| member.allocation)
    }

    /// What one member has now.
    pub fn allocation_of(&self, member: u32) -> Option<AllocationId> {
        let member = self.members.get(member as usize)?;
        member.is_living().then_some(member.allocation)
    }

    /// The only allocation of a job with one member; none for a gang, whose members are not spoken of as one.
    pub fn sole_allocation(&self) -> Option<AllocationId> {
        match self.members.as_slice() {
            [member] => member.is_living().then_some(member.allocation),
            _ => None,
        }
    }

    /// Tries that count against `max_attempts`: all but those that were evicted.
    pub fn tries(&self) -> u32 {
        self.attempt.saturating_sub(self.evictions.restarts)
    }

    /// A gang whose members are stopped because one of them was lost: a fault, though not its own.
    pub fn lost_member(&self) -> bool {
        let failed = self.failed.and_then(|number| self.members.get(number as usize));
        failed.is_some_and(|member| matches!(member.end, Some(MemberEnd::Lost { .. })))
    }

    /// Done in tasks, which have what it needs.
    pub fn is_parent(&self) -> bool {
        self.tasks.is_some()
    }

    /// The job it is a task of.
    pub fn parent(&self) -> Option<JobId> {
        self.spec.task.as_ref().map(|task| task.of)
    }

    /// It is being stopped for good, and not only to give way.
    pub fn is_leaving(&self) -> bool {
        self.phase == Phase::Stopping && self.stop != Some(StopReason::Evicted)
    }

    /// Several members, all or nothing.
    pub fn is_gang(&self) -> bool {
        self.spec.demand.nodes > 1
    }
}

/// A job that ended, as history keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DoneJob {
    pub id: JobId,
    pub owner: UserId,
    pub spec: Arc<JobSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derivation: Option<Box<Derivation>>,
    pub submitted: Time,
    pub started: Option<Time>,
    pub ended: Time,
    pub attempts: u32,
    pub outcome: Outcome,
    pub charged: Cost,
    /// What its owner's subscriber paid, where that has prices of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resold: Option<Micros>,
    pub ran_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "JobAudit::is_empty")]
    pub audit: JobAudit,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<crate::id::NodeId>,
    /// The members of its last attempt, where it had several; the two above are of the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
    /// Where in whose trace it was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
    /// What became of its pieces, where it was done in tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Box<Tasks>>,
}
