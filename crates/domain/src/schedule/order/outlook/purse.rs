//! When budgets above a job will have enough left: what is held for running jobs of the scope comes back as far as they do
//! not use it, those of it that are ahead have theirs held first, and with a new period what was spent is forgotten.
//!
//! Absent: quotas (`limit`).

use super::{On, View};
use crate::forecast::purse::{Held, Purse, Refill, estimate};
use crate::forecast::wait::Estimate;
use crate::ledger::hold::Hold;
use crate::meter::Of;
use crate::schedule::admit::admission;
use crate::tenancy::budget::{self, Cost, OverBudget};
use crate::tenancy::scope::{Scope, ScopeId};
use crate::time::{SECOND_MS, Time};
use crate::workload::job::{Admission, Job};

/// Running jobs looked at, and of those ahead, whose cost is reckoned.
const RUNNING: usize = 512;
const AHEAD: usize = 32;

/// Periods looked ahead.
const TURNS: usize = 12;

/// What of a budget does not fit.
#[derive(Clone, Copy)]
enum Sort {
    Money,
    GpuTime,
    Frames,
}

impl Sort {
    fn of(self, cost: Cost) -> u64 {
        match self {
            Sort::Money => u64::try_from(cost.money.0).unwrap_or(0),
            Sort::GpuTime => cost.gpu_ms,
            Sort::Frames => cost.frames,
        }
    }

    /// How much of a hold an hour takes, as the scope counts it.
    fn hourly(self, hold: &Hold, scope: ScopeId) -> Option<u64> {
        match self {
            Sort::Money => {
                let resold = hold.resale.as_deref().map(|resale| resale.hourly);
                let hourly = Cost {
                    money: hold.hourly,
                    ..Cost::default()
                };
                Some(self.of(Hold::seen_from(scope, hourly, resold)))
            }
            // GPU-milliseconds a second are thousandths of a GPU.
            Sort::GpuTime => Some(hold.gpu_milli.saturating_mul(3600)),
            Sort::Frames => None,
        }
    }
}

/// Each budget that what would be admitted does not fit now.
pub(super) fn budgets(view: &View<'_>, admission: &Admission, found: &mut Vec<(On, Option<Estimate>)>) {
    let owner = ScopeId::User(view.job.owner);
    let (hold, ofs) = (&admission.hold, admission.hold.counted_as());
    for scope in view
        .state
        .tree
        .chain(owner)
        .filter(|scope| !scope.budgets.is_empty())
    {
        let cost = hold.left_at(scope.id);
        for over in budget::exceeded(&scope.budgets, &scope.spending, &ofs, cost, view.at) {
            let refill = sorts(&over).map(|(sort, limit)| {
                let purse = Purse {
                    limit,
                    spent: sort.of(over.spend.spent),
                    held: sort.of(over.spend.held),
                };
                refill(view, scope, &over, sort, purse, sort.of(cost))
            });
            let refills: Vec<_> = refill.collect();
            // It waits for all of them.
            let longest = match refills.iter().any(Option::is_none) {
                true => None,
                false => refills.into_iter().flatten().max_by_key(|one| one.estimate.s),
            };
            let on = On::Budget {
                scope: scope.id,
                turns: longest.is_some_and(|one| one.turns),
            };
            found.push((on, longest.map(|one| one.estimate)));
        }
    }
}

/// What the budget limits, and to how much.
fn sorts(over: &OverBudget) -> impl Iterator<Item = (Sort, u64)> {
    let budget = &over.budget;
    let gpu_ms = budget.gpu_seconds.map(|s| s.saturating_mul(SECOND_MS));
    [
        (Sort::Money, budget.money_micros),
        (Sort::GpuTime, gpu_ms),
        (Sort::Frames, budget.frames),
    ]
    .into_iter()
    .filter_map(|(sort, limit)| Some((sort, limit?)))
}

fn refill(
    view: &View<'_>,
    scope: &Scope,
    over: &OverBudget,
    sort: Sort,
    purse: Purse,
    needed: u64,
) -> Option<Refill> {
    let of = over.budget.of();
    let counts = |hold: &Hold| hold.counted_as().contains(&of);
    let (jobs, stands_for) = view.running_within(scope.id, RUNNING);
    let running = jobs.into_iter().filter_map(|job| {
        let hold = job.admission.as_ref().map(|admission| &admission.hold)?;
        let (in_s, at_most_s) = view.ends_s(job);
        counts(hold).then(|| Held {
            left: sort.of(hold.left_at(scope.id)).saturating_mul(stands_for),
            hourly: sort
                .hourly(hold, scope.id)
                .map(|hourly| hourly.saturating_mul(stands_for)),
            in_s,
            at_most_s,
        })
    });
    let running: Vec<Held> = running.collect();
    let (jobs, stands_for) = view.waiting_within(&[scope.id].into(), AHEAD);
    let ahead = jobs
        .into_iter()
        .filter_map(|job| ahead(view, scope, &of, sort, job, stands_for));
    let ahead: Vec<Held> = ahead.collect();
    estimate(needed, purse, &running, &ahead, &turns_s(over, view.at))
}

fn ahead(view: &View<'_>, scope: &Scope, of: &Of, sort: Sort, job: &Job, stands_for: u64) -> Option<Held> {
    let (spec, owner) = (&job.spec, ScopeId::User(job.owner));
    let class = spec.demand.class.as_deref();
    let hold = admission(
        view.state,
        owner,
        spec,
        class,
        spec.demand.vram_total_mib(),
        view.at,
    )
    .hold;
    hold.counted_as().contains(of).then(|| Held {
        left: sort.of(hold.left_at(scope.id)),
        hourly: sort.hourly(&hold, scope.id),
        in_s: view
            .runs_s(job, job.ran_ms / SECOND_MS)
            .saturating_mul(stands_for),
        at_most_s: u64::MAX,
    })
}

/// In how many seconds the budget's next periods begin.
fn turns_s(over: &OverBudget, at: Time) -> Vec<u64> {
    let period = over.budget.period;
    let turns = std::iter::successors(period.end(at), |turn| period.end(*turn));
    let turns = turns.take(TURNS);
    turns.map(|turn| turn.since_ms(at).div_ceil(SECOND_MS)).collect()
}
