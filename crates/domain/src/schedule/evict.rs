//! Room for a job that found none: the cheapest set of running jobs whose leaving really makes it fit, on one node or, for
//! a gang, over several.
//!
//! Who gives way, and how often, is said by `victim.rs` and the policies above the victim; what it costs is the work
//! lost. That the job fits is never reckoned: it is placed with the victims gone, behind all walls, and admitted with
//! their quota back. A victim whose slices can be set aside is paused and loses nothing; any other is stopped with its
//! grace and returns to the queue; a gang does so whole. The room is promised, so that nobody else takes it meanwhile.
//! Called by `pass.rs` and for submissions.

mod candidate;
mod plan;
mod spread;

pub(super) use candidate::{Candidate, Candidates, movable};
pub(super) use plan::Plan;

use candidate::candidates;

use super::calendar::{Promise, leaving};
use super::order::aged::waited_ms;
use super::pass::Ask;
use super::victim::{Bounds, Running};
use super::volume::VolumeNeeds;
use crate::event::Event;
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::job::{Evictions, Job, PauseReason, StopReason};

/// Jobs asked to give way in one decision, lowest priority and last come first, and nodes tried with them gone.
const CANDIDATES: usize = 512;
const NODES: usize = 16;
/// Jobs looked at for some that may be moved.
const LOOKED_AT: usize = 4096;
/// Evictions under way at once.
const PROMISES: usize = 64;
/// What a restart is reckoned to cost, beside the work lost; and a pause.
pub(super) const RESTART_MS: u64 = 30 * SECOND_MS;
const PAUSE_MS: u64 = SECOND_MS;
/// Beyond its grace, what a node may take to free the room.
const LEAVE_MS: u64 = 120 * SECOND_MS;

/// What protects a running job, by the policies above it: the longest time, the fewest evictions. Against somebody else's
/// job those alone count that stand above both: nobody keeps what was lent by a policy of its own.
pub fn bounds(state: &State, owner: ScopeId, evictor: Option<ScopeId>) -> Bounds {
    let above = |id| evictor.is_none_or(|evictor| state.tree.is_within(evictor, id));
    let mut bounds = Bounds::default();
    let (mut run_s, mut per_job, mut per_hour) = (None, None::<u32>, None::<u32>);
    let fewer = |one: Option<u32>, other: Option<u32>| one.into_iter().chain(other).min();
    let scopes = state.tree.chain(owner).filter(|scope| above(scope.id));
    for policy in scopes.map(|scope| &scope.policy) {
        run_s = run_s.max(policy.guaranteed_run_s);
        per_job = fewer(per_job, policy.max_evictions_per_job);
        per_hour = fewer(per_hour, policy.max_evictions_per_hour);
    }
    if let Some(run_s) = run_s {
        bounds.guaranteed_ms = run_s.saturating_mul(SECOND_MS);
    }
    bounds.evictions_per_job = per_job.unwrap_or(bounds.evictions_per_job);
    if let Some(most) = per_hour {
        bounds.evictions_per_hour = most.min(Evictions::KEPT as u32);
    }
    bounds
}

/// Whether what a job waits for is something that others could give it by leaving.
pub(super) fn is_for_room(waits: &Refusal) -> bool {
    matches!(
        waits.code,
        Code::NoCapacity
            | Code::NotShared
            | Code::QuotaInUse
            | Code::BorrowLimit
            | Code::NotLent
            | Code::VolumeUnavailable
    )
}

/// Has the cheapest set of jobs leave and promises their room to the one that asks; nothing where it would still not
/// fit, or nobody is to give way to it.
pub fn make_room(state: &State, ask: &Ask<'_>, waits: &Refusal, at: Time) -> Vec<Event> {
    if !is_for_room(waits) || too_many(state) {
        return Vec::new();
    }
    let Ok(needs) = VolumeNeeds::of(state, ask.volumes) else {
        return Vec::new();
    };
    for pausing in [true, false] {
        let candidates = candidates(state, ask, pausing, at);
        let on_one = plan::cheapest(state, ask, needs, &candidates, at);
        let best = on_one
            .into_iter()
            .chain(over_several(state, ask, needs, &candidates, at));
        if let Some(best) = best.min_by_key(Plan::cost) {
            return carry_out(ask, needs, best, at);
        }
        // A pause keeps CPU and memory; where those are lacking, only a stop helps.
        if !candidates.any_pauses() {
            break;
        }
    }
    Vec::new()
}

/// Whether as many evictions are under way as may be.
pub(super) fn too_many(state: &State) -> bool {
    state.calendar.iter().filter(|promise| promise.evicts()).count() >= PROMISES
}

/// The best plan for each node that seems worth a try, and for a gang one over several.
pub(super) fn plans<'a>(
    state: &'a State,
    ask: &'a Ask<'_>,
    needs: VolumeNeeds,
    candidates: &'a Candidates<'a>,
    at: Time,
) -> impl Iterator<Item = Plan<'a>> {
    plan::plans(state, ask, needs, candidates, at).chain(over_several(state, ask, needs, candidates, at))
}

/// The best plan for a gang over several nodes. Volumes are on one, and so is a gang that has any.
fn over_several<'a>(
    state: &'a State,
    ask: &'a Ask<'_>,
    needs: VolumeNeeds,
    candidates: &'a Candidates<'a>,
    at: Time,
) -> Option<Plan<'a>> {
    let several = ask.spec.demand.nodes > 1 && needs.is_empty();
    several
        .then(|| spread::plan(state, ask, needs, candidates, at))
        .flatten()
}

pub(super) fn carry_out(ask: &Ask<'_>, needs: VolumeNeeds, plan: Plan<'_>, at: Time) -> Vec<Event> {
    let until = plan.gone_by(at);
    let promise = Promise {
        victims: plan.victims.iter().map(|victim| victim.job.id).collect(),
        admission: Some(plan.admission),
        ..Promise::of(ask, needs, plan.places, at, until)
    };
    let leave = plan.victims.iter().map(|victim| match victim.pauses {
        true => Event::JobPausing {
            job: victim.job.id,
            reason: PauseReason::Preempted,
        },
        false => Event::JobStopping {
            job: victim.job.id,
            reason: StopReason::Evicted,
        },
    });
    std::iter::once(Event::JobPromised { promise })
        .chain(leave)
        .collect()
}

/// When these jobs have left, or a promise of their room lapses.
pub(super) fn left_by<'a>(victims: impl IntoIterator<Item = &'a Job>, at: Time) -> Time {
    let grace_s = victims.into_iter().map(|job| job.spec.grace_s).max();
    at.plus_ms(u64::from(grace_s.unwrap_or(0)) * SECOND_MS + LEAVE_MS)
}

/// Withdraws a promise whose victims are gone and whose job does not start all the same.
pub(super) fn in_vain(state: &State, promise: &Promise, waits: &Refusal) -> Vec<Event> {
    if !promise.evicts() || leaving(state, promise).next().is_some() {
        return Vec::new();
    }
    vec![Event::PromiseWithdrawn {
        job: promise.job,
        why: format!("it does not fit after all: {}", waits.sentence),
    }]
}

pub(super) fn across_tenants(state: &State) -> bool {
    let platform = state.tree.get(ScopeId::Platform);
    platform.is_some_and(|platform| platform.policy.preempt_tenants == Some(true))
}

/// Whether jobs give way to others of their class that are expected to be done much sooner.
pub(super) fn longer_gives_way(state: &State) -> bool {
    let platform = state.tree.get(ScopeId::Platform);
    platform.is_some_and(|platform| platform.policy.preempt_longer == Some(true))
}

fn is_aged(state: &State, job: &Job, at: Time) -> bool {
    waited_ms(job, at) >= state.aged_ms()
}

pub(super) fn running(job: &Job, pauses: bool, borrows: bool) -> Running {
    // What it costs and whether it is aged matters within a class alone, and is said there.
    Running {
        job: job.id,
        priority: job.spec.priority,
        gpus: job.spec.demand.gpus,
        started: job.since,
        // Who never said that it saved loses all it ran.
        safe: job.saved.map_or(job.since, |saved| saved.max(job.since)),
        suspendable: pauses,
        restart_ms: if pauses { PAUSE_MS } else { RESTART_MS },
        cost_gpu_s: 0.0,
        borrows,
        evictions: job.evictions.count,
        last_evictions: job.evictions.last.clone(),
        aged: false,
    }
}
