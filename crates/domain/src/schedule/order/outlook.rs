//! How long a waiting job will wait: who runs and when they leave, who is ahead and for how long, played through.
//!
//! For room, and for each limit above the job that is used up now: quotas and what is lent (`limit`), budgets (`purse`),
//! the very GPUs a paused job had (`again`). It waits for all of them, so for the one that takes longest. Of its own
//! tenant's jobs the history is asked, of others' the rule and their limits alone: no tenant's history informs
//! another's. Work is bounded: where more run or wait, some stand for all. Absent: where a job fits; the band, which
//! `forecast/wait` makes of the estimate. Called by `when` and where jobs are watched.

mod again;
mod limit;
mod purse;

use std::collections::BTreeSet;

use super::aged::{ahead_of, kept_ms};
use crate::forecast::hazard::Hazard;
use crate::forecast::room::{Ahead, Leaves, draw, estimate, estimate_behind};
use crate::forecast::wait::Estimate;
use crate::id::TenantId;
use crate::schedule::admit::{admission, of_tasks};
use crate::schedule::evict::{across_tenants, bounds};
use crate::schedule::fleet::NodeStatus;
use crate::schedule::pass::QueueKey;
use crate::schedule::place::vram_wanted;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::job::{Admission, Job, Phase};
use crate::workload::spec::Demand;

/// Running and waiting jobs looked at, each.
const LOOKED_AT: usize = 512;

/// In a cell of so few jobs all are looked at.
const FEW: usize = 2_048;

/// Waiting jobs counted.
const COUNTED: usize = 10_000;

/// Classes looked at for a job that names none.
const CLASSES: usize = 4;

/// What a job will wait for longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Room,
    /// A quota of this scope, or what others lend it.
    Quota(ScopeId),
    /// A budget of this scope.
    Budget {
        scope: ScopeId,
        /// It takes a new period.
        turns: bool,
    },
}

/// What is to be expected for a waiting job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// Waiting jobs ahead of it by class and arrival.
    pub ahead: u64,
    pub on: On,
    /// None where what it waits for is not in sight, and where that is room for a job without GPUs.
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
    let room = match job.phase {
        Phase::Paused => again::estimate(&view),
        _ => view.room(count),
    };
    let limits = view
        .classes()
        .into_iter()
        .map(|class| view.limits(class.as_deref()));
    // On the class that is to be had first.
    let limits = limits.min_by_key(|limits| longest(limits).map(|(_, found)| order(found)));
    let longest = limits.as_deref().and_then(longest);
    let (on, estimate) = match longest {
        // What a paused job had is out of service: no limit's end helps.
        _ if job.phase == Phase::Paused && room.is_none() => (On::Room, None),
        // Room may be made by the same jobs; where it is not in sight it is not what is waited for.
        Some((on, Some(limit))) if room.is_none_or(|room| room.s <= limit.s) => (on, Some(limit)),
        Some((on, None)) => (on, None),
        _ => (On::Room, room),
    };
    Some(Outlook {
        ahead: count as u64,
        on,
        estimate,
    })
}

/// What is not in sight comes last.
fn order(found: Option<Estimate>) -> (bool, u64) {
    (found.is_none(), found.map_or(0, |found| found.s))
}

fn longest(limits: &[(On, Option<Estimate>)]) -> Option<(On, Option<Estimate>)> {
    limits.iter().max_by_key(|(_, found)| order(*found)).copied()
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

impl<'a> View<'a> {
    /// How long it waits for room alone, `count` jobs being ahead.
    fn room(&self, count: usize) -> Option<Estimate> {
        let demand = &self.job.spec.demand;
        let needed = demand.gpu_milli();
        if needed == 0 {
            return None;
        }
        let every = count.div_ceil(LOOKED_AT).max(1);
        let ahead: Vec<Ahead> = (self.before(count))
            .step_by(every)
            .filter_map(|id| self.state.jobs.get(&id))
            .filter(|other| self.competes(other))
            .map(|other| self.ahead(other, every as u64))
            .collect();
        let (free, leaving) = (free_milli(self.state, demand), self.leaving());
        let alone = estimate(needed, free, &leaving, &ahead);
        let Some((aged, kept_s)) = self.kept_for_aged() else {
            return alone;
        };
        // It starts beside the aged one or after it, or when room is kept for that no longer.
        let behind = estimate_behind(Some(aged), needed, free, &leaving, &ahead);
        let no_sooner = |s: u64| s.max(kept_s);
        let kept = alone.map(|alone| Estimate {
            s: no_sooner(alone.s),
            half_s: no_sooner(alone.half_s),
            twice_s: no_sooner(alone.twice_s),
        });
        match (behind, kept) {
            (Some(behind), Some(kept)) => Some(Estimate {
                s: behind.s.min(kept.s),
                half_s: behind.half_s.min(kept.half_s),
                twice_s: behind.twice_s.min(kept.twice_s),
            }),
            (behind, kept) => behind.or(kept),
        }
    }

    /// An aged job behind it in the queue, which goes first all the same; and for how long room is kept for that.
    fn kept_for_aged(&self) -> Option<(Ahead, u64)> {
        let aged = ahead_of(self.state, &self.job.spec, self.at)?;
        let aged = self.state.jobs.get(&aged).filter(|aged| aged.id != self.job.id)?;
        if QueueKey::of(aged)? < QueueKey::of(self.job)? {
            return None;
        }
        let kept_s = kept_ms(aged, self.state.aged_ms(), self.at).div_ceil(SECOND_MS);
        Some((self.ahead(aged, 1), kept_s))
    }

    /// Those ahead of it, `count` of them at most.
    fn before(&self, count: usize) -> impl Iterator<Item = crate::id::JobId> + use<'a> {
        let key = QueueKey::of(self.job);
        let all = self.state.queue.iter();
        let before = all.take_while(move |other| key.is_some_and(|key| *other < key));
        before.take(count).map(|key| key.1)
    }

    /// Classes it may get, of which it will take the one that is to be had first.
    fn classes(&self) -> Vec<Option<Box<str>>> {
        let demand = &self.job.spec.demand;
        match &demand.class {
            _ if demand.gpus == 0 => vec![None],
            Some(class) => vec![Some(class.clone())],
            None => {
                let index = self.state.fleet.index();
                index.classes().keys().take(CLASSES).cloned().map(Some).collect()
            }
        }
    }

    /// What would be held for it, and for the job it is a task of, on GPUs of this class.
    fn admissions(&self, class: Option<&str>) -> Vec<Admission> {
        let (spec, owner) = (&self.job.spec, ScopeId::User(self.job.owner));
        let gpu = class.and_then(|class| {
            let node = self.state.fleet.some_nodes(Some(class), 0, 1).pop()?;
            node.gpus.iter().find(|gpu| *gpu.facts.class == *class)
        });
        let each_mib = gpu.map_or(spec.demand.vram_mib, |gpu| vram_wanted(gpu, &spec.demand));
        let vram_mib = each_mib.saturating_mul(spec.demand.gpus_total());
        let mut all = vec![admission(self.state, owner, spec, class, vram_mib, self.at)];
        let parent = self.job.parent().and_then(|id| self.state.jobs.get(&id));
        let begins = parent.filter(|parent| parent.admission.is_none());
        all.extend(begins.map(|parent| of_tasks(self.state, parent)));
        all
    }

    /// The limits that are used up now on this class, and how long each takes to have enough.
    fn limits(&self, class: Option<&str>) -> Vec<(On, Option<Estimate>)> {
        let mut found = Vec::new();
        for admission in self.admissions(class) {
            limit::quotas(self, &admission, &mut found);
            purse::budgets(self, &admission, &mut found);
        }
        found
    }

    /// Some of the jobs that run, or are about to, of a scope and below, and for how many each stands.
    fn running_within(&self, scope: ScopeId, most: usize) -> (Vec<&'a Job>, u64) {
        let state = self.state;
        let of = state.tree.tenant_of(scope);
        let held = |job: &&Job| job.admission.is_some();
        let jobs: Vec<&Job> = match scope {
            _ if state.jobs.len() <= FEW => {
                let all = state.jobs.values().filter(held);
                all.filter(|job| state.tree.is_within(ScopeId::User(job.owner), scope))
                    .collect()
            }
            ScopeId::Platform | ScopeId::Tenant(_) => {
                let running = state.running.iter();
                let within = running.filter(|((tenant, _), _)| of.is_none() || *tenant == of);
                let ids = within.flat_map(|(_, ids)| ids);
                let every = ids.clone().count().div_ceil(most).max(1);
                let some = ids.step_by(every).filter_map(|id| state.jobs.get(id));
                return (some.collect(), every as u64);
            }
            _ => state.jobs_within(scope).take(COUNTED).filter(held).collect(),
        };
        let every = jobs.len().div_ceil(most).max(1);
        (jobs.into_iter().step_by(every).collect(), every as u64)
    }

    /// Some of those ahead that count in one of these scopes, and for how many each stands.
    fn waiting_within(&self, scopes: &BTreeSet<ScopeId>, most: usize) -> (Vec<&'a Job>, u64) {
        let within = |job: &&Job| {
            let mut chain = self.state.tree.chain(ScopeId::User(job.owner));
            chain.any(|above| scopes.contains(&above.id))
        };
        let jobs = self.before(COUNTED).filter_map(|id| self.state.jobs.get(&id));
        let jobs: Vec<&Job> = jobs.filter(within).collect();
        let every = jobs.len().div_ceil(most).max(1);
        (jobs.into_iter().step_by(every).collect(), every as u64)
    }

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
        self.ahead_with(other, other.spec.demand.gpu_milli(), stands_for)
    }

    fn ahead_with(&self, other: &Job, amount: u64, stands_for: u64) -> Ahead {
        let age_s = other.ran_ms / SECOND_MS;
        Ahead {
            gpus: amount,
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
        self.leaves_with(other, other.spec.demand.gpu_milli().saturating_mul(stands_for))
    }

    fn leaves_with(&self, other: &Job, amount: u64) -> Leaves {
        let (in_s, limit_s) = self.ends_s(other);
        Leaves {
            gpus: amount,
            in_s,
            at_most_s: limit_s.min(self.made_to_s(other).unwrap_or(u64::MAX)),
        }
    }

    /// In how many seconds a running job ends, as drawn, and by its limit at most.
    fn ends_s(&self, other: &Job) -> (u64, u64) {
        let age_s = other.ran_ms.max(self.at.since_ms(other.since)) / SECOND_MS;
        let limit_s = other.spec.run_time_s.saturating_sub(age_s);
        (self.runs_s(other, age_s), limit_s)
    }

    /// In how many seconds the other may be made to leave for this one.
    fn made_to_s(&self, other: &Job) -> Option<u64> {
        let owner = ScopeId::User(other.owner);
        let own = self.state.tree.tenant_of(owner) == self.tenant || across_tenants(self.state);
        let below = other.spec.priority < self.job.spec.priority;
        if !own || !below || self.job.is_gang() || self.job.phase == Phase::Paused {
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
