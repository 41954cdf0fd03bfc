//! What those above a scope allow it to book: which classes, and for how much money and GPU time.
//!
//! How many GPUs at once is asked of `quota.rs`. Called by `plan.rs` for quotes and by whoever changes a booking.

use crate::meter::Of;
use crate::money::Micros;
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::budget::{self, Cost};
use crate::tenancy::scope::{Scope, ScopeId};
use crate::time::{Period, Time};

/// Refuses a cost that does not fit a budget above, or that cannot be counted.
pub fn fits_budgets(state: &State, scope: ScopeId, class: &str, cost: Cost, at: Time) -> Result<(), Refusal> {
    let total = state
        .tree
        .find(ScopeId::Platform)?
        .spending
        .at(&Of::All, Period::Total, at);
    let money = [total.spent.money, total.held.money];
    let money = money.into_iter().try_fold(cost.money, Micros::checked_add);
    let gpu_ms = [total.spent.gpu_ms, total.held.gpu_ms];
    let gpu_ms = gpu_ms.into_iter().try_fold(cost.gpu_ms, u64::checked_add);
    if money.is_none_or(|money| money.0 == i64::MAX) || gpu_ms.is_none() {
        return Err(
            Refusal::new(Code::ExceedsBudget, "it costs more than the ledger can count").field("/size/count"),
        );
    }
    let ofs = [Of::All, Of::Class(class.into())];
    fits_above(state, state.tree.chain(scope), &ofs, cost, at)
}

/// Refuses a cost that goes from one scope to another and does not fit a budget it was not counted in before.
pub fn fits_budgets_moved(
    state: &State,
    (from, to): (ScopeId, ScopeId),
    class: &str,
    cost: Cost,
    at: Time,
) -> Result<(), Refusal> {
    let ofs = [Of::All, Of::Class(class.into())];
    let above = state.tree.chain(to);
    let new = above.filter(|above| !state.tree.is_within(from, above.id));
    fits_above(state, new, &ofs, cost, at)
}

/// Refuses a change of what is held that does not fit a budget above, with what is due for it. A class that was not
/// held before has all of it to pay for.
pub fn fits_budgets_changed(
    state: &State,
    scope: ScopeId,
    (before, was): (Cost, &str),
    (after, is): (Cost, &str),
    due: Micros,
    at: Time,
) -> Result<(), Refusal> {
    let after = Cost {
        money: Micros(after.money.0.saturating_add(due.0)),
        ..after
    };
    fits_budgets(state, scope, was, more(before, after), at)?;
    match was == is {
        true => Ok(()),
        false => fits_above(state, state.tree.chain(scope), &[Of::Class(is.into())], after, at),
    }
}

fn fits_above<'a>(
    state: &State,
    scopes: impl Iterator<Item = &'a Scope>,
    ofs: &[Of],
    cost: Cost,
    at: Time,
) -> Result<(), Refusal> {
    for above in scopes {
        let Some(over) = budget::first_exceeded(&above.budgets, &above.spending, ofs, cost, at) else {
            continue;
        };
        let title = state.tree.title(above.id);
        let what = if over.by_money { "money" } else { "GPU time" };
        let sentence = format!(
            "all windows together cost {}, more {what} than is left of the {} budget of {title}",
            cost.money,
            over.budget.period.as_str()
        );
        return Err(Refusal::new(Code::ExceedsBudget, sentence)
            .field("/size/count")
            .hint(format!(
                "book fewer or shorter windows, or have the budget of {title} raised"
            )));
    }
    Ok(())
}

/// Refuses a class that a policy above leaves out.
pub fn allowed(state: &State, scope: ScopeId, class: &str) -> Result<(), Refusal> {
    if let Some(suspended) = state.tree.suspended_above(scope) {
        let title = state.tree.title(suspended.id);
        return Err(Refusal::new(Code::Suspended, format!("{title} is suspended")));
    }
    for above in state.tree.chain(scope) {
        if above
            .policy
            .classes
            .as_ref()
            .is_some_and(|classes| !classes.contains(class))
        {
            let title = state.tree.title(above.id);
            let sentence = format!("GPU class {class} is not allowed by the policy of {title}");
            return Err(Refusal::new(Code::PolicyExcludes, sentence).field("/class"));
        }
    }
    Ok(())
}

/// By how much one cost is above another.
fn more(before: Cost, after: Cost) -> Cost {
    Cost {
        money: Micros(after.money.0.saturating_sub(before.money.0).max(0)),
        gpu_ms: after.gpu_ms.saturating_sub(before.gpu_ms),
        frames: 0,
    }
}
