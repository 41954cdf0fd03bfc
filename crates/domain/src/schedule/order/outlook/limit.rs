//! When quotas above a job will have enough left: running jobs of the scope end and give theirs back, those of it that
//! are ahead take theirs first.
//!
//! Beyond nominal quota it is also what siblings give back of what they borrowed, or let fall idle and lend. What is used
//! by jobs that only start or stop just now is taken to be one that runs by the rule. Absent: money (`purse`).

use std::collections::BTreeSet;

use super::{LOOKED_AT, On, View};
use crate::forecast::room::{Ahead, Leaves, estimate};
use crate::forecast::wait::Estimate;
use crate::meter::{Amounts, Meter};
use crate::schedule::calendar;
use crate::schedule::order::lend::{beside, meter, use_by};
use crate::schedule::order::quota::{Stand, Use, stand};
use crate::tenancy::scope::{Scope, ScopeId};
use crate::workload::job::{Admission, Job};

/// Scopes beside one are asked for some jobs each.
const FEWEST: usize = 8;

/// Each quota, hard or nominal, that what would be admitted does not fit now.
pub(super) fn quotas(view: &View<'_>, admission: &Admission, found: &mut Vec<(On, Option<Estimate>)>) {
    let owner = ScopeId::User(view.job.owner);
    let used = |scope: &Scope| calendar::used(view.state, scope, view.job.id);
    for scope in view.state.tree.chain(owner) {
        let (limits, used) = (scope.limits(), used(scope));
        for (meter, asked) in admission.amounts.iter() {
            let (Some(limit), used) = (limits.get(meter), used.get(meter).unwrap_or(0)) else {
                continue;
            };
            if used.saturating_add(asked) <= limit {
                continue;
            }
            let missing = used.saturating_add(asked) - limit;
            let of_scope = [Part {
                scope: scope.id,
                used,
                gives: used,
            }];
            found.push((On::Quota(scope.id), comes(view, meter, asked, missing, &of_scope)));
        }
    }
    let (Some(class), asked) = (admission.hold.class.as_deref(), admission.hold.gpu_milli) else {
        return;
    };
    if asked == 0 {
        return;
    }
    let meter = meter(class);
    let used_milli = |scope: &Scope| used(scope).get(&meter).unwrap_or(0);
    for scope in view.state.tree.chain(owner) {
        let Some(of_scope) = use_by(scope, class, used_milli) else {
            continue;
        };
        let siblings = beside(view.state, scope);
        let siblings = siblings.filter_map(|other| Some((other.id, use_by(other, class, used_milli)?)));
        let (ids, uses): (Vec<ScopeId>, Vec<Use>) = siblings.unzip();
        let own = Part {
            scope: scope.id,
            used: of_scope.used_milli,
            gives: of_scope.used_milli,
        };
        let estimate = match stand(of_scope, asked, &uses) {
            Stand::Nominal | Stand::Borrows => continue,
            Stand::BorrowLimit { missing_milli } => comes(view, &meter, asked, missing_milli, &[own]),
            Stand::NotLent { missing_milli } => {
                let others = ids.into_iter().zip(&uses).map(|(scope, of)| Part {
                    scope,
                    used: of.used_milli,
                    gives: gives_milli(*of),
                });
                let parts: Vec<Part> = std::iter::once(own).chain(others).collect();
                comes(view, &meter, asked, missing_milli, &parts)
            }
        };
        found.push((On::Quota(scope.id), estimate));
    }
}

/// What a sibling may add to what is lent, were all its jobs to end: what it borrowed, and its own up to what it lends.
fn gives_milli(of: Use) -> u64 {
    let most = (of.nominal.gpu_milli).min(of.nominal.lend_milli.unwrap_or(u64::MAX));
    of.borrowed_milli() + most.saturating_sub(of.lent_milli())
}

/// A scope whose jobs' ends help, what it uses, and how much of that helps.
struct Part {
    scope: ScopeId,
    used: u64,
    gives: u64,
}

/// How long it takes until what is missing of `asked` has come back from these scopes.
fn comes(view: &View<'_>, meter: &Meter, asked: u64, missing: u64, parts: &[Part]) -> Option<Estimate> {
    let most = (LOOKED_AT / parts.len()).max(FEWEST);
    let mut leaving = Vec::new();
    for part in parts.iter().filter(|part| part.gives > 0) {
        leaving.extend(leaves(view, meter, part, most));
    }
    let scopes: BTreeSet<ScopeId> = parts.iter().map(|part| part.scope).collect();
    let (jobs, stands_for) = view.waiting_within(&scopes, LOOKED_AT);
    let of = |job: &Job| {
        let class = job.spec.demand.class.as_deref();
        let amounts: Amounts = job.spec.amounts(class, job.spec.demand.vram_total_mib());
        amounts.get(meter).unwrap_or(0)
    };
    let ahead = jobs.into_iter().map(|job| (job, of(job)));
    let ahead = ahead.filter(|(_, amount)| *amount > 0);
    let ahead: Vec<Ahead> = ahead
        .map(|(job, amount)| view.ahead_with(job, amount, stands_for))
        .collect();
    // More is missing than is asked where a limit was cut below what is used.
    let (needed, free) = (asked.max(missing), asked.saturating_sub(missing));
    estimate(needed, free, &leaving, &ahead)
}

/// What comes back from one scope and when, the soonest first, as far as it helps.
fn leaves(view: &View<'_>, meter: &Meter, part: &Part, most: usize) -> Vec<Leaves> {
    let (jobs, stands_for) = view.running_within(part.scope, most);
    let held = |job: &Job| job.admission.as_ref()?.amounts.get(meter);
    let held = jobs.into_iter().filter_map(|job| Some((job, held(job)?)));
    let mut all: Vec<Leaves> = held
        .map(|(job, amount)| view.leaves_with(job, amount.saturating_mul(stands_for)))
        .collect();
    let looked_at: u64 = all.iter().map(|one| one.gpus).sum();
    let others = part.used.saturating_sub(looked_at);
    if others > 0 {
        all.push(Leaves {
            gpus: others,
            in_s: view.rule.lasts_s(0, 0.5),
            at_most_s: u64::MAX,
        });
    }
    all.sort_by_key(|one| one.in_s.min(one.at_most_s));
    let mut left = part.gives;
    all.retain_mut(|one| {
        one.gpus = one.gpus.min(left);
        left -= one.gpus;
        one.gpus > 0
    });
    all
}
