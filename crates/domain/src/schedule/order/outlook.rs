//! How long a waiting job will wait: who runs and when they leave, who is ahead and for how long, played through.
//!
//! Of its own tenant's jobs the history is asked, of others' the rule and their limits alone: no tenant's history
//! informs another's. Work is bounded: where more run or wait, some stand for all. Absent: where a job fits; the band,
//! which `forecast/wait` makes of the estimate. Called by `why` and where jobs are watched.

use std::collections::BTreeSet;

use crate::forecast::hazard::Hazard;
use crate::forecast::room::{Ahead, Leaves, draw, estimate};
use crate::forecast::wait::Estimate;
use crate::id::TenantId;
use crate::schedule::evict::{across_tenants, bounds};
use crate::schedule::fleet::NodeStatus;
use crate::schedule::pass::QueueKey;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::job::Job;
use crate::workload::spec::Demand;

/// Running and waiting jobs looked at, each.
const LOOKED_AT: usize = 512;

/// Waiting jobs counted.
const COUNTED: usize = 10_000;

/// What is to be expected for a waiting job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// Waiting jobs ahead of it by class and arrival.
    pub ahead: u64,
    /// None for a job without GPUs, or where there is no room in sight.
    pub estimate: Option<Estimate>,
}

/// Looks at a waiting job's prospects; none for a job that does not wait.
pub fn outlook(state: &State, job: &Job, at: Time) -> Option<Outlook> {
    let key = QueueKey::of(job)?;
    let before = || state.queue.iter().take_while(move |other| *other < key);
    let count = before().take(COUNTED).count();
    let view = View {
        state,
        job,
        tenant: state.tree.tenant_of(ScopeId::User(job.owner)),
        rule: Hazard::default(),
        at,
    };
    let every = count.div_ceil(LOOKED_AT).max(1);
    let ahead: Vec<Ahead> = before()
        .take(count)
        .step_by(every)
        .filter_map(|QueueKey(_, id)| state.jobs.get(&id))
        .filter(|other| view.competes(other))
        .map(|other| view.ahead(other, every as u64))
        .collect();
    let demand = &job.spec.demand;
    let needed = demand.gpu_milli();
    let found = match needed {
        0 => None,
        _ => estimate(needed, free_milli(state, demand), &view.leaving(), &ahead),
    };
    Some(Outlook {
        ahead: count as u64,
        estimate: found,
    })
}

fn free_milli(state: &State, demand: &Demand) -> u64 {
    let up = state.fleet.nodes().filter(|node| node.status == NodeStatus::Up);
    let gpus = up.flat_map(|node| &node.gpus);
    let fit = gpus.filter(|gpu| {
        gpu.present && gpu.quarantine.is_none() && demand.takes(&gpu.facts.class, &gpu.facts.model)
    });
    fit.map(|gpu| 1000_u64.saturating_sub(gpu.used_permille.into()))
        .sum()
}

/// The queue and the fleet as one waiting job may see them.
struct View<'a> {
    state: &'a State,
    job: &'a Job,
    tenant: Option<TenantId>,
    rule: Hazard,
    at: Time,
}

impl View<'_> {
    /// Whether the other asks for, or has, what this one could have.
    fn competes(&self, other: &Job) -> bool {
        let (mine, theirs) = (&self.job.spec.demand, &other.spec.demand);
        let class = mine.class.is_none() || theirs.class.is_none() || mine.class == theirs.class;
        class && theirs.gpu_milli() > 0
    }

    /// For how many seconds the other will run from an age on.
    fn runs_s(&self, other: &Job, age_s: u64) -> u64 {
        let tenant = self.state.tree.tenant_of(ScopeId::User(other.owner));
        let drawn_s = match other.alike.filter(|_| tenant == self.tenant) {
            Some(alike) => self.state.history.hazard(alike).drawn_s(age_s, draw(other.id.0)),
            None => self.rule.drawn_s(age_s, draw(other.id.0)),
        };
        drawn_s.min(other.spec.run_time_s.saturating_sub(age_s))
    }

    fn ahead(&self, other: &Job, stands_for: u64) -> Ahead {
        let age_s = other.ran_ms / SECOND_MS;
        Ahead {
            gpus: other.spec.demand.gpu_milli(),
            for_s: self.runs_s(other, age_s).saturating_mul(stands_for),
        }
    }

    fn leaving(&self) -> Vec<Leaves> {
        let running = &self.state.running;
        let count: usize = running.values().map(BTreeSet::len).sum();
        let every = count.div_ceil(LOOKED_AT).max(1);
        let some = running.values().flatten().step_by(every);
        let jobs = some.filter_map(|id| self.state.jobs.get(id));
        jobs.filter(|other| self.competes(other))
            .map(|other| self.leaves(other, every as u64))
            .collect()
    }

    fn leaves(&self, other: &Job, stands_for: u64) -> Leaves {
        let age_s = other.ran_ms.max(self.at.since_ms(other.since)) / SECOND_MS;
        let limit_s = other.spec.run_time_s.saturating_sub(age_s);
        Leaves {
            gpus: other.spec.demand.gpu_milli().saturating_mul(stands_for),
            in_s: self.runs_s(other, age_s),
            at_most_s: limit_s.min(self.made_to_s(other).unwrap_or(u64::MAX)),
        }
    }

    /// In how many seconds the other may be made to leave for this one.
    fn made_to_s(&self, other: &Job) -> Option<u64> {
        let owner = ScopeId::User(other.owner);
        let own = self.state.tree.tenant_of(owner) == self.tenant || across_tenants(self.state);
        let below = other.spec.priority < self.job.spec.priority;
        if !own || !below || self.job.is_gang() {
            return None;
        }
        let bounds = bounds(self.state, owner, Some(ScopeId::User(self.job.owner)));
        if other.evictions.count >= bounds.evictions_per_job {
            return None;
        }
        let ran_ms = self.at.since_ms(other.since);
        let left_ms = bounds.guaranteed_ms.saturating_sub(ran_ms);
        Some(left_ms.div_ceil(SECOND_MS) + u64::from(other.spec.grace_s))
    }
}
