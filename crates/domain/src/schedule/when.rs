//! When a waiting job will start, by what it waits for; or why nobody can say.
//!
//! A moment is stated as a band with its basis, so that nobody takes a rule for knowledge. What comes about by others'
//! ending, by a promise, by a calendar's turn or a booked window is foreseen; what somebody has to do first is not, and
//! that is said as a value too. Absent: the reason itself (`why`), and the play through (`order/outlook`). Called by `why`
//! and `instead`.

use serde::{Deserialize, Serialize};

use super::allocation::{Allocation, Slice};
use super::backfill::earliest;
use super::calendar::{Promise, ends_by, leaving};
use super::order::outlook::{On, outlook};
use super::pass::Ask;
use crate::booking::record::Window;
use crate::forecast::wait::Estimate;
use crate::id::{BookingId, GpuId, JobId, NodeId};
use crate::refusal::{Class, Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::job::{Job, Phase};

/// When a job starts, or goes on, from when to when, and by what that is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starts {
    pub from: Time,
    pub to: Time,
    pub basis: Basis,
}

/// What a stated moment rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum Basis {
    /// Others are leaving for it; the room is its own.
    Promise { leaving: u64 },
    /// Run-time limits: when this job has reached its own there is room at the latest, and nobody else gets it.
    /// It is named within its own tenant only.
    Limit {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        job: Option<JobId>,
    },
    /// Who is ahead in the queue and who runs, how long they are likely to, and how such estimates turned out.
    Rule {
        ahead: u64,
        /// How many waits of about this length were watched; by none, the band is a rule of thumb.
        #[serde(default, skip_serializing_if = "is_zero")]
        seen: u64,
        /// The share of their outcomes that the band holds, in thousandths.
        #[serde(default, skip_serializing_if = "is_zero")]
        permille: u64,
    },
    /// Running jobs give back quota of this scope as they end, or what others lend it; estimated as by the rule.
    Quota {
        scope: String,
        ahead: u64,
        #[serde(default, skip_serializing_if = "is_zero")]
        seen: u64,
        #[serde(default, skip_serializing_if = "is_zero")]
        permille: u64,
    },
    /// What is held of a budget of this scope comes back as jobs end, or its next period begins; estimated as by the rule.
    Budget {
        scope: String,
        /// It takes a new period.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        turns: bool,
        ahead: u64,
        #[serde(default, skip_serializing_if = "is_zero")]
        seen: u64,
        #[serde(default, skip_serializing_if = "is_zero")]
        permille: u64,
    },
    /// The next window of its booking begins then.
    Window,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Why no moment can be said: what the job waits for comes about by nobody's ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unforeseen {
    /// Somebody has to ask for it.
    UntilAsked,
    /// A limit or a policy has to be changed.
    UntilRaised,
    /// A node or a GPU has to join, or come back.
    UntilNodes,
    /// Its booking has to get another window.
    UntilBooked,
}

impl Unforeseen {
    pub fn as_str(self) -> &'static str {
        match self {
            Unforeseen::UntilAsked => "until_asked",
            Unforeseen::UntilRaised => "until_raised",
            Unforeseen::UntilNodes => "until_nodes",
            Unforeseen::UntilBooked => "until_booked",
        }
    }

    pub fn sentence(self) -> &'static str {
        match self {
            Unforeseen::UntilAsked => "nobody can say when: somebody has to ask for it first",
            Unforeseen::UntilRaised => {
                "nobody can say when: whoever ends, a limit or a policy has to be changed first"
            }
            Unforeseen::UntilNodes => {
                "nobody can say when: whoever ends, a node or a GPU that would do has to join or come back first"
            }
            Unforeseen::UntilBooked => "nobody can say when: its booking has no window to come",
        }
    }
}

/// When a job that waits for this reason starts.
pub(super) fn when(state: &State, job: &Job, reason: &Refusal, at: Time) -> Result<Starts, Unforeseen> {
    // Room alone does not start one that lacks something else.
    let for_room = matches!(
        reason.code,
        Code::NoCapacity | Code::NotShared | Code::Promised | Code::VolumeUnavailable
    );
    match state.calendar.of(job.id) {
        Some(promise) if job.phase == Phase::Queued && (for_room || promise.evicts()) => {
            Ok(promised(state, job, promise, at))
        }
        _ => foresee(state, job, reason, at),
    }
}

/// The same for one that nothing is promised to.
pub(super) fn foresee(state: &State, job: &Job, reason: &Refusal, at: Time) -> Result<Starts, Unforeseen> {
    match reason.code {
        Code::Paused | Code::ScopeSuspended => return Err(Unforeseen::UntilAsked),
        Code::NoNodes => return Err(Unforeseen::UntilNodes),
        Code::BookingClosed => return window(state, job, at),
        code if code.class() != Class::Waiting => return Err(Unforeseen::UntilRaised),
        _ => {}
    }
    let by_limits = match job.phase {
        Phase::Paused => None,
        _ => Some(
            earliest(state, &Ask::of(job), at)
                .ok_or(Unforeseen::UntilNodes)?
                .0,
        ),
    };
    let outlook = outlook(state, job, at).ok_or(Unforeseen::UntilNodes)?;
    let estimate = match (outlook.estimate, outlook.on, by_limits) {
        (Some(estimate), ..) => estimate,
        // Nothing is promised to it: the room that limits make goes to those ahead first.
        (None, On::Room, Some(from)) => Estimate::rough(from.since_ms(at) / SECOND_MS / 2),
        (None, On::Room, None) => return Err(Unforeseen::UntilNodes),
        (None, ..) => return Err(Unforeseen::UntilRaised),
    };
    let told = state.probes.tell(estimate, job.alike.map(Into::into), at);
    let (ahead, seen, permille) = (outlook.ahead, told.seen, told.permille);
    Ok(Starts {
        from: at.plus_ms(told.band.from_s * SECOND_MS),
        to: at.plus_ms(told.band.to_s * SECOND_MS),
        basis: match outlook.on {
            On::Room => Basis::Rule {
                ahead,
                seen,
                permille,
            },
            On::Quota(scope) => Basis::Quota {
                scope: state.tree.title(scope),
                ahead,
                seen,
                permille,
            },
            On::Budget { scope, turns } => Basis::Budget {
                scope: state.tree.title(scope),
                turns,
                ahead,
                seen,
                permille,
            },
        },
    })
}

fn promised(state: &State, job: &Job, promise: &Promise, at: Time) -> Starts {
    let gone: Vec<&Job> = leaving(state, promise).collect();
    if promise.evicts() {
        let grace_s = gone.iter().map(|job| job.spec.grace_s).max().unwrap_or(0);
        return Starts {
            from: at,
            to: at.plus_ms(u64::from(grace_s) * SECOND_MS),
            basis: Basis::Promise {
                leaving: gone.len() as u64,
            },
        };
    }
    let tenant = |id: &JobId| {
        let owner = state.jobs.get(id).map(|job| ScopeId::User(job.owner));
        owner.and_then(|owner| state.tree.tenant_of(owner))
    };
    let basis = match limiting(state, promise, at) {
        Some(last) => Basis::Limit {
            job: Some(last).filter(|last| tenant(last) == tenant(&job.id)),
        },
        None => Basis::Promise { leaving: 0 },
    };
    Starts {
        from: at,
        to: promise.from.max(at),
        basis,
    }
}

/// Whose limit makes the last of the promised room.
fn limiting(state: &State, promise: &Promise, at: Time) -> Option<JobId> {
    let on = |(node, slices): (NodeId, &'_ [Slice])| {
        let gpus: Vec<GpuId> = slices.iter().map(|slice| slice.gpu).collect();
        let has = move |allocation: &&Allocation| {
            gpus.is_empty() || allocation.slices.iter().any(|slice| gpus.contains(&slice.gpu))
        };
        state.fleet.allocations_on(node).filter(has)
    };
    let there = promise.rooms().flat_map(on);
    let before = there
        .map(|allocation| (ends_by(state, allocation, at), allocation.job))
        .filter(|(ends, _)| *ends <= promise.from);
    before.max().map(|(_, job)| job)
}

/// A job of a booking starts with the next window; in one that is open, when somebody there has to be gone.
fn window(state: &State, job: &Job, at: Time) -> Result<Starts, Unforeseen> {
    let booking = job.spec.booking.and_then(|id| state.bookings.get(id));
    let owner = ScopeId::User(job.owner);
    let booking = booking.filter(|booking| state.tree.is_within(owner, booking.scope));
    let booking = booking.ok_or(Unforeseen::UntilBooked)?;
    let coming = booking.windows.iter().filter(|window| !window.is_open());
    let next = coming.map(|window| window.start).min();
    let open = booking.windows.iter().filter(|window| window.is_open());
    let gone = open
        .filter_map(|window| first_gone(state, booking.id, window, at))
        .min();
    let (from, to) = match (next, gone) {
        (next, Some(gone)) => (at, next.map_or(gone, |next| next.min(gone))),
        (Some(next), None) => (next, next),
        (None, None) => return Err(Unforeseen::UntilBooked),
    };
    let (from, to) = (from.max(at), to.max(at));
    Ok(Starts {
        from,
        to,
        basis: Basis::Window,
    })
}

/// When the first job in an open window will have left it at the latest, if that is before its end.
fn first_gone(state: &State, booking: BookingId, window: &Window, at: Time) -> Option<Time> {
    let gpus = window.gpus.iter();
    let gpus = gpus.filter_map(|(node, gpu)| state.fleet.node(*node)?.gpu(*gpu));
    let holders = gpus.flat_map(|gpu| &gpu.holders);
    let there = holders.filter_map(|id| state.fleet.allocation(*id));
    let paid = there.filter(|allocation| {
        let job = state.jobs.get(&allocation.job);
        let paid = job.and_then(|job| job.admission.as_ref()?.booking);
        !allocation.paused && paid == Some(booking)
    });
    let ends = paid.map(|allocation| ends_by(state, allocation, at));
    ends.filter(|ends| *ends < window.end).min()
}
