//! Whether a scope can pay: its budgets and those above, how much it may have bound at once, and how far its tenant's
//! account may go below zero.

use crate::id::TenantId;
use crate::ledger::account::AccountId;
use crate::meter::Of;
use crate::money::Micros;
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::budget::{self, Cost};
use crate::tenancy::scope::ScopeId;
use crate::time::{Period, Time};

/// Money alone: GPU time is counted where jobs use it.
pub fn cost(money: Micros) -> Cost {
    Cost {
        money,
        gpu_ms: 0,
        frames: 0,
    }
}

pub fn counted_as(class: &str) -> [Of; 2] {
    [Of::All, Of::Class(class.into())]
}

/// Refuses what cannot be paid for or counted.
pub fn fits(
    state: &State,
    scope: ScopeId,
    buyer: TenantId,
    class: &str,
    money: Micros,
    at: Time,
) -> Result<(), Refusal> {
    countable(state, money, at)?;
    within_credit(state, buyer, money)?;
    let asked = cost(money);
    let mut ofs = None;
    for above in state.tree.chain(scope) {
        let title = || state.tree.title(above.id);
        let most = above
            .policy
            .trade
            .as_ref()
            .and_then(|trade| trade.max_bound_micros);
        let bound = u64::try_from(above.leased.bound.0.saturating_add(money.0)).unwrap_or(0);
        if let Some(most) = most.filter(|most| bound > *most) {
            let (bound, most) = (
                Micros(bound as i64),
                Micros(i64::try_from(most).unwrap_or(i64::MAX)),
            );
            let title = title();
            let sentence = format!(
                "{bound} would be bound in leases and bids, above the {most} allowed by the policy of {title}"
            );
            return Err(Refusal::new(Code::PolicyExcludes, sentence)
                .field("/gpu_milli")
                .hint(format!(
                    "buy less or for a shorter time, or ask an operator of {title} to widen its policy"
                )));
        }
        if above.budgets.is_empty() {
            continue;
        }
        let ofs = ofs.get_or_insert_with(|| counted_as(class));
        if let Some(over) = budget::first_exceeded(&above.budgets, &above.spending, ofs, asked, at) {
            let title = title();
            let sentence = format!(
                "it costs {money}, more than is left of the {} budget of {title}",
                over.budget.period.as_str()
            );
            return Err(Refusal::new(Code::ExceedsBudget, sentence)
                .field("/gpu_milli")
                .hint(format!(
                    "buy less or for a shorter time, or have the budget of {title} raised"
                )));
        }
    }
    Ok(())
}

fn countable(state: &State, money: Micros, at: Time) -> Result<(), Refusal> {
    let platform = state.tree.find(ScopeId::Platform)?;
    let total = platform.spending.at(&Of::All, Period::Total, at);
    let sum = [total.spent.money, total.held.money]
        .into_iter()
        .try_fold(money, Micros::checked_add);
    if sum.is_some_and(|sum| sum.0 < i64::MAX) {
        return Ok(());
    }
    Err(
        Refusal::new(Code::ExceedsBudget, "it costs more than the ledger can count")
            .field("/gpu_milli")
            .hint("buy less or for a shorter time"),
    )
}

fn within_credit(state: &State, buyer: TenantId, money: Micros) -> Result<(), Refusal> {
    let Some(credit) = state.market.terms.credit_micros else {
        return Ok(());
    };
    let balance = state.accounts.get(AccountId::Tenant(buyer));
    let after = i128::from(balance.posted.0) - i128::from(balance.held.0) - i128::from(money.0);
    if after >= -i128::from(credit) {
        return Ok(());
    }
    let credit = Micros(i64::try_from(credit).unwrap_or(i64::MAX));
    let title = state.tree.title(ScopeId::Tenant(buyer));
    let sentence =
        format!("it costs {money}, and would bring the account of {title} below its credit of {credit}");
    Err(Refusal::new(Code::ExceedsBudget, sentence)
        .field("/gpu_milli")
        .hint("pay in first, buy less, or have the credit raised"))
}
