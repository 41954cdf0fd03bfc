//! Budget alerts: that so much of a budget is spent, told the first time in a period that it is.
//!
//! What was told is kept with the scope. Absent: when to ask (`ledger/alert.rs`), and stopping anything, which budgets do
//! by themselves: nothing is admitted beyond them, and no charge passes what was held.

use serde::{Deserialize, Serialize};

use super::budget::{Budget, Cost};
use super::scope::Scope;
use crate::meter::Of;
use crate::time::{Period, Time};

/// What a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    MoneyMicros,
    GpuSeconds,
    Frames,
}

/// So much of a budget is spent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    pub period: Period,
    /// The class, the SKU or the kind it counts; empty for everything.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub of: String,
    pub unit: Unit,
    /// The highest threshold that was reached, in thousandths of the limit.
    pub permille: u16,
    pub spent: u64,
    pub limit: u64,
    /// When the period began.
    pub start: Time,
}

impl Alert {
    fn is_of(&self, other: &Alert) -> bool {
        (self.period, &self.of, self.unit) == (other.period, &other.of, other.unit)
    }
}

/// What was told of a scope's budgets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Told(Vec<Alert>);

impl Told {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Alert> {
        self.0.iter()
    }

    /// Whether this much of it was told before, in the same period.
    fn knows(&self, alert: &Alert) -> bool {
        self.0
            .iter()
            .any(|told| told.is_of(alert) && told.start >= alert.start && told.permille >= alert.permille)
    }

    pub(crate) fn tell(&mut self, alert: &Alert) {
        self.0.retain(|told| !told.is_of(alert));
        self.0.push(alert.clone());
    }

    /// Budgets were set anew: what is reached of them is told again.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

/// What is reached of a budget with `more` spent, and was not told.
pub(crate) fn reached(
    scope: &Scope,
    budget: &Budget,
    of: &Of,
    more: Cost,
    at: Time,
) -> impl Iterator<Item = Alert> + use<> {
    let spend = scope.spending.at(of, budget.period, at);
    let money = spend.spent.money.0.saturating_add(more.money.0);
    let gpu_ms = spend.spent.gpu_ms.saturating_add(more.gpu_ms);
    let units = [
        (
            Unit::MoneyMicros,
            budget.money_micros,
            u64::try_from(money).unwrap_or(0),
        ),
        (Unit::GpuSeconds, budget.gpu_seconds, gpu_ms / 1000),
        (Unit::Frames, budget.frames, spend.spent.frames),
    ];
    let alerts = units.map(|(unit, limit, spent)| {
        let limit = limit?;
        let share = u128::from(spent) * 1000;
        let reached = |permille: &&u16| share >= u128::from(limit) * u128::from(**permille);
        let alert = Alert {
            period: budget.period,
            of: of.to_string(),
            unit,
            permille: *budget.alerts_permille.iter().filter(reached).max()?,
            spent,
            limit,
            start: budget.period.start(at),
        };
        (spent > 0 && !scope.told.knows(&alert)).then_some(alert)
    });
    alerts.into_iter().flatten()
}
