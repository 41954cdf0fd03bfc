//! Who has to leave when leases end: work of the buyer beyond what is left of its quota, and all of it on nodes that go back
//! to their owner. They leave by the common way out, the last come first; a gang leaves whole.
//!
//! Where a scope borrows within nominal quotas, only what it may not borrow leaves here; what it may is taken back by who
//! lent it, when that is wanted. Absent: the end itself (`settle`). Called by `advance`.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::lease::Lease;
use crate::decide::can_pause;
use crate::event::Event;
use crate::id::JobId;
use crate::meter::{Amounts, Meter, Of, Resource};
use crate::schedule::order::lend::{siblings, use_of};
use crate::schedule::order::quota::{Stand, Use, stand};
use crate::state::State;
use crate::tenancy::scope::{Scope, ScopeId};
use crate::workload::job::{Job, PauseReason, Phase, StopReason};

/// Those who leave when all these leases, of one scope and class, end.
pub fn leaving<'a>(state: &'a State, leases: &[&Lease], told: &BTreeSet<JobId>) -> Vec<&'a Job> {
    let Some(first) = leases.first() else {
        return vec![];
    };
    let mut chosen: Vec<&Job> = Vec::new();
    for node in leases.iter().flat_map(|lease| &lease.nodes) {
        let jobs = state.fleet.allocations_on(*node);
        let jobs = jobs.filter_map(|allocation| state.jobs.get(&allocation.job));
        for job in jobs.filter(|job| state.tree.tenant_of(ScopeId::User(job.owner)) == Some(first.buyer)) {
            if !is_leaving(job, told) && !chosen.iter().any(|known| known.id == job.id) {
                chosen.push(job);
            }
        }
    }
    // What is being vacated has left the quota already.
    let whole = leases.iter().filter(|lease| !lease.vacating);
    let less_milli: u64 = whole.map(|lease| lease.gpu_milli).sum();
    let chain = state.tree.chain(first.scope);
    for scope in chain.take_while(|scope| scope.id != ScopeId::Platform) {
        let mut beyond = beyond_milli(state, scope, &first.class, less_milli);
        if beyond == 0 {
            continue;
        }
        let of_class = |job: &&Job| {
            job.admission.as_ref().and_then(|held| held.hold.class.as_deref()) == Some(&*first.class)
        };
        // A job of tasks has nothing to leave with: its tasks do.
        let jobs = state.jobs_within(scope.id).filter(|job| !job.is_parent());
        let mut jobs: Vec<&Job> = jobs.filter(of_class).collect();
        jobs.sort_by_key(|job| Reverse((job.since, job.id)));
        let (gone, staying): (Vec<&Job>, Vec<&Job>) = jobs
            .into_iter()
            .partition(|job| is_leaving(job, told) || chosen.iter().any(|known| known.id == job.id));
        beyond = beyond.saturating_sub(gone.iter().map(|job| milli(job)).sum());
        for job in staying.into_iter().filter(|job| job.spec.booking.is_none()) {
            if beyond == 0 {
                break;
            }
            beyond = beyond.saturating_sub(milli(job));
            chosen.push(job);
        }
    }
    chosen
}

fn milli(job: &Job) -> u64 {
    job.spec.demand.gpu_milli()
}

fn is_leaving(job: &Job, told: &BTreeSet<JobId>) -> bool {
    told.contains(&job.id) || matches!(job.phase, Phase::Stopping | Phase::Pausing | Phase::Paused)
}

/// By how much a scope's use would be beyond its limits with so much less taken.
fn beyond_milli(state: &State, scope: &Scope, class: &str, less_milli: u64) -> u64 {
    let limits = scope.limits();
    let over = |of: Of| over_limit(&limits, &scope.used, of, less_milli);
    let hard = over(Of::Class(class.into())).max(over(Of::All));
    let soft = use_of(scope, class).map_or(0, |mut of_scope| {
        of_scope.nominal.gpu_milli = of_scope.nominal.gpu_milli.saturating_sub(less_milli);
        let others: Vec<Use> = siblings(state, scope, class).map(|(_, other)| other).collect();
        match stand(of_scope, 0, &others) {
            Stand::Nominal | Stand::Borrows => 0,
            Stand::BorrowLimit { missing_milli } | Stand::NotLent { missing_milli } => missing_milli,
        }
    });
    hard.max(soft)
}

fn over_limit(limits: &Amounts, used: &Amounts, of: Of, less_milli: u64) -> u64 {
    let meter = Meter {
        resource: Resource::GpuMilli,
        of,
    };
    let limit = limits.get(&meter).map(|limit| limit.saturating_sub(less_milli));
    limit.map_or(0, |limit| used.get(&meter).unwrap_or(0).saturating_sub(limit))
}

/// The way out of one of them. On a node that goes back to its owner nothing is paused, for it would stay there.
pub fn goes(state: &State, job: &Job, leases: &[&Lease]) -> Event {
    let here = |node| leases.iter().any(|lease| lease.nodes.contains(&node));
    let allocation = job.sole_allocation().and_then(|id| state.fleet.allocation(id));
    let pauses = job.phase == Phase::Running
        && allocation.is_some_and(|allocation| !here(allocation.node) && can_pause(state, job, allocation));
    match pauses {
        true => Event::JobPausing {
            job: job.id,
            reason: PauseReason::Preempted,
        },
        false => Event::JobStopping {
            job: job.id,
            reason: StopReason::Evicted,
        },
    }
}
