//! Budgets as bars: what is gone of each, in its own unit. The overview shows those above the reader, the money page those
//! of the scope it is about.

use tenure_api::v1::limit::{BudgetView, BudgetsView};
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::time::Period;

use super::html::{Html, inert};
use super::session::Session;
use super::show;

/// A bar with its name and its figures.
pub(super) struct Bar {
    pub name: Html,
    pub bar: Html,
    pub figure: String,
}

/// The budgets of scopes, as far as the reader may see them.
pub(super) async fn of(session: &Session, scopes: &[ScopeId]) -> Vec<BudgetsView> {
    let mut views = Vec::new();
    for scope in scopes {
        let asked = session
            .desk
            .get::<BudgetsView>(&format!("/v1/scopes/{scope}/budgets"))
            .await;
        views.extend(asked.ok());
    }
    views
}

pub(super) fn bars(views: &[BudgetsView]) -> Vec<Bar> {
    let bars = views
        .iter()
        .flat_map(|view| view.budgets.iter().map(|budget| bar(budget, &view.currency)));
    bars.collect()
}

/// What is gone of a budget and how much there is, in its own unit.
fn share(view: &BudgetView) -> Option<(u64, u64)> {
    let budget = &view.budget;
    let spent = |spent: i64| u64::try_from(spent).unwrap_or(0);
    if let Some(of) = budget.money_micros {
        return Some((spent(view.spent_micros.saturating_add(view.held_micros)), of));
    }
    if let Some(of) = budget.gpu_seconds {
        return Some((view.spent_gpu_seconds + view.held_gpu_seconds, of));
    }
    budget.frames.map(|of| (view.spent_frames + view.held_frames, of))
}

/// Nine tenths of it are gone.
pub(super) fn is_nearly_gone(view: &BudgetView) -> bool {
    share(view).is_some_and(|(used, of)| used.saturating_mul(10) >= of.saturating_mul(9))
}

pub(super) fn name_of(view: &BudgetView) -> String {
    let budget = &view.budget;
    let what = match (budget.money_micros, budget.gpu_seconds) {
        (Some(_), _) => "budget",
        (None, Some(_)) => "GPU time",
        (None, None) => "frames",
    };
    let of = budget.class.as_deref().or(budget.sku.as_deref());
    let period = match budget.period {
        Period::Day => "daily",
        Period::Week => "weekly",
        Period::Month => "monthly",
        Period::Total => "total",
    };
    match of {
        Some(of) => format!("{period} {what} for {}", inert(of)),
        None => format!("{period} {what}"),
    }
}

fn bar(view: &BudgetView, currency: &str) -> Bar {
    let (used, of) = share(view).unwrap_or((0, 0));
    let budget = &view.budget;
    let figure = match (budget.money_micros, budget.gpu_seconds) {
        (Some(_), _) => format!(
            "{} of {}",
            show::money(used as i64, ""),
            show::money(of as i64, currency)
        ),
        (None, Some(_)) => format!("{} of {}", show::gpu_time(used * 1000), show::gpu_time(of * 1000)),
        (None, None) => format!("{} of {}", show::count(used), show::count(of)),
    };
    Bar {
        name: show::name(&name_of(view)),
        bar: show::bar(used, of),
        figure,
    }
}
