//! Budget alerts, asked on every decision's way out: charges may have brought what was spent to a threshold. What was
//! spent on bookings and frames is seen with the next charge.

use std::collections::BTreeMap;

use crate::event::{Charge, Event};
use crate::ledger::hold::Hold;
use crate::meter::Of;
use crate::state::State;
use crate::tenancy::alert::reached;
use crate::tenancy::budget::Cost;
use crate::tenancy::scope::{Scope, ScopeId};
use crate::time::Time;

/// The events, and after them the alerts that they bring about.
pub fn with_alerts(state: &State, mut events: Vec<Event>, at: Time) -> Vec<Event> {
    let mut added: BTreeMap<(ScopeId, Of), Cost> = BTreeMap::new();
    for event in &events {
        if let Event::UsageMetered { charges, .. } = event {
            charges.iter().for_each(|charge| add(state, charge, &mut added));
        }
    }
    let mut scopes: Vec<ScopeId> = added.keys().map(|(scope, _)| *scope).collect();
    scopes.dedup();
    for id in scopes {
        let Some(scope) = state.tree.get(id) else { continue };
        for budget in &scope.budgets {
            let of = budget.of();
            let more = added.get(&(id, of.clone())).copied().unwrap_or_default();
            let alerts = reached(scope, budget, &of, more, at);
            events.extend(alerts.map(|alert| Event::BudgetAlerted { scope: id, alert }));
        }
    }
    events
}

/// What a charge adds to each scope above that has alerts.
fn add(state: &State, charge: &Charge, added: &mut BTreeMap<(ScopeId, Of), Cost>) {
    let Some(job) = state.jobs.get(&charge.job) else {
        return;
    };
    let Some(admission) = &job.admission else { return };
    let resold = charge.resale.as_deref().map(|resold| resold.posting.amount);
    let watched = |scope: &&Scope| {
        scope
            .budgets
            .iter()
            .any(|budget| !budget.alerts_permille.is_empty())
    };
    for scope in state.tree.chain(ScopeId::User(job.owner)).filter(watched) {
        let cost = Hold::seen_from(scope.id, charge.cost, resold);
        for of in admission.hold.counted_as() {
            let sum = added.entry((scope.id, of)).or_default();
            sum.money.0 += cost.money.0;
            sum.gpu_ms += cost.gpu_ms;
        }
    }
}
