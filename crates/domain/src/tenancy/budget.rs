//! Budgets: how much in total, of money and of GPU time, per period. What is held for running jobs counts
//! as gone until it is settled, so a budget is never passed.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::meter::Of;
use crate::money::Micros;
use crate::time::{Period, Time};

/// A ceiling on spending of a scope and everything below it, within each period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Budget {
    pub period: Period,
    /// Counts only jobs on this GPU class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub class: Option<Box<str>>,
    /// Counts only jobs of this SKU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub sku: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money_micros: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_seconds: Option<u64>,
}

impl Budget {
    pub fn of(&self) -> Of {
        match (&self.class, &self.sku) {
            (Some(class), _) => Of::Class(class.clone()),
            (None, Some(sku)) => Of::Sku(sku.clone()),
            (None, None) => Of::All,
        }
    }
}

/// Money and GPU time together: what a job is expected to take, or took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cost {
    pub money: Micros,
    /// GPU-milliseconds: time times compute share.
    pub gpu_ms: u64,
}

/// Spent and held in one period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spend {
    pub start: Time,
    pub spent: Cost,
    pub held: Cost,
}

impl Spend {
    /// The same counter as seen at `start` of a period: spending begins anew, what is held stays held.
    pub fn in_period(self, start: Time) -> Spend {
        if self.start >= start { self } else { Spend { start, spent: Cost::default(), held: self.held } }
    }
}

/// Spending of one scope by period, over everything and by class and SKU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spending(BTreeMap<(Of, Period), Spend>);

impl Spending {
    pub fn at(&self, of: &Of, period: Period, at: Time) -> Spend {
        let start = period.start(at);
        self.0.get(&(of.clone(), period)).copied().unwrap_or(Spend { start, ..Spend::default() }).in_period(start)
    }

    fn change(&mut self, ofs: &[Of], at: Time, change: impl Fn(&mut Spend)) {
        for of in ofs {
            for period in Period::ALL {
                let start = period.start(at);
                let spend = self.0.entry((of.clone(), period)).or_insert(Spend { start, ..Spend::default() });
                *spend = spend.in_period(start);
                change(spend);
            }
        }
    }

    pub fn hold(&mut self, ofs: &[Of], at: Time, cost: Cost) {
        self.change(ofs, at, |spend| {
            spend.held.money.0 += cost.money.0;
            spend.held.gpu_ms += cost.gpu_ms;
        });
    }

    pub fn release(&mut self, ofs: &[Of], at: Time, cost: Cost) {
        self.change(ofs, at, |spend| {
            spend.held.money.0 -= cost.money.0;
            spend.held.gpu_ms = spend.held.gpu_ms.checked_sub(cost.gpu_ms).expect("INVARIANT: released was held");
            assert!(spend.held.money.0 >= 0, "INVARIANT: released was held");
        });
    }

    /// Turns held into spent.
    pub fn settle(&mut self, ofs: &[Of], at: Time, cost: Cost) {
        self.release(ofs, at, cost);
        self.change(ofs, at, |spend| {
            spend.spent.money.0 += cost.money.0;
            spend.spent.gpu_ms += cost.gpu_ms;
        });
    }

    /// What is held at a scope that moves away is no longer held here.
    pub(crate) fn release_all_held_of(&mut self, moved: &Spending) {
        for (key, theirs) in &moved.0 {
            let ours = self.0.get_mut(key).expect("INVARIANT: an ancestor counts all that is below it");
            ours.held.money.0 -= theirs.held.money.0;
            ours.held.gpu_ms -= theirs.held.gpu_ms;
        }
    }

    /// What is held at a scope that arrives is held here too; what it spent elsewhere stays counted there.
    pub(crate) fn hold_all_held_of(&mut self, moved: &Spending) {
        for (key, theirs) in &moved.0 {
            let ours = self.0.entry(key.clone()).or_insert(Spend { start: theirs.start, ..Spend::default() });
            ours.held.money.0 += theirs.held.money.0;
            ours.held.gpu_ms += theirs.held.gpu_ms;
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Of, Period, &Spend)> {
        self.0.iter().map(|((of, period), spend)| (of, *period, spend))
    }
}

impl Serialize for Spending {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(|(of, period, spend)| (of.to_string(), period, spend)))
    }
}

impl<'de> Deserialize<'de> for Spending {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = Vec::<(String, Period, Spend)>::deserialize(deserializer)?;
        let spending = rows.into_iter().map(|(of, period, spend)| {
            let of = if of.is_empty() { Ok(Of::All) } else { Of::parse(&of) };
            of.map(|of| ((of, period), spend))
        });
        spending.collect::<Result<_, _>>().map(Spending).map_err(serde::de::Error::custom)
    }
}

/// Why a cost does not fit a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverBudget {
    pub budget: Budget,
    pub spend: Spend,
    /// Even with everything held given back it would not fit within this period.
    pub for_this_period: bool,
    /// It would not fit an untouched budget.
    pub for_ever: bool,
}

/// The first budget that `cost` does not fit on top of what is spent and held.
pub fn first_exceeded(budgets: &[Budget], spending: &Spending, ofs: &[Of], cost: Cost, at: Time) -> Option<OverBudget> {
    let money = u64::try_from(cost.money.0).unwrap_or(0);
    budgets.iter().filter(|budget| ofs.contains(&budget.of())).find_map(|budget| {
        let spend = spending.at(&budget.of(), budget.period, at);
        let money_limit = budget.money_micros.unwrap_or(u64::MAX);
        let gpu_limit = budget.gpu_seconds.map_or(u64::MAX, |s| s.saturating_mul(1000));
        let spent = u64::try_from(spend.spent.money.0).unwrap_or(0);
        let held = u64::try_from(spend.held.money.0).unwrap_or(0);
        let over = |money_base: u64, gpu_base: u64| {
            (money > 0 && money_base.saturating_add(money) > money_limit)
                || (cost.gpu_ms > 0 && gpu_base.saturating_add(cost.gpu_ms) > gpu_limit)
        };
        over(spent.saturating_add(held), spend.spent.gpu_ms.saturating_add(spend.held.gpu_ms)).then(|| OverBudget {
            budget: budget.clone(),
            spend,
            for_this_period: over(spent, spend.spent.gpu_ms),
            for_ever: over(0, 0),
        })
    })
}
