//! Budgets: how much in total, of money, of GPU time and of frames, per period. What is held for running jobs counts
//! as gone until it is settled, so a budget is never passed.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::kind::{Counted, Kind};
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
    /// Counts only jobs of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money_micros: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_seconds: Option<u64>,
    /// Frames of pictures and clips: those of jobs that succeeded, and of jobs that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// Shares of the limits, in thousandths, rising: what is spent reaching one is told, once a period.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts_permille: Vec<u16>,
}

impl Budget {
    pub fn of(&self) -> Of {
        match (&self.class, &self.sku, self.whole_kind()) {
            (Some(class), ..) => Of::Class(class.as_ref().into()),
            (None, Some(sku), _) => Of::Sku(sku.as_ref().into()),
            (None, None, Some(kind)) => Of::Kind(kind),
            (None, None, None) => Of::All,
        }
    }

    fn is_of(&self, of: &Of) -> bool {
        match (&self.class, &self.sku, of) {
            (Some(class), _, Of::Class(name)) => **class == **name,
            (None, Some(sku), Of::Sku(name)) => **sku == **name,
            (None, None, Of::Kind(kind)) => self.whole_kind() == Some(*kind),
            (None, None, Of::All) => self.whole_kind().is_none(),
            _ => false,
        }
    }

    fn whole_kind(&self) -> Option<Counted> {
        self.kind.and_then(|kind| Counted::groups(kind, None).next())
    }
}

/// Money, GPU time and frames together: what a job is expected to take, or took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cost {
    pub money: Micros,
    /// GPU-milliseconds: time times compute share.
    pub gpu_ms: u64,
    /// Frames of a job count whole, when it has succeeded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frames: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
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
        if self.start >= start {
            self
        } else {
            Spend {
                start,
                spent: Cost::default(),
                held: self.held,
            }
        }
    }
}

/// Spending of one scope by period, over everything and by class and SKU. Sorted; there are few groups, and whoever
/// counts in one counts in each of its periods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spending(Vec<(Of, ByPeriod)>);

/// In the order of `Period::ALL`.
type ByPeriod = [Spend; Period::ALL.len()];

impl Spending {
    pub fn at(&self, of: &Of, period: Period, at: Time) -> Spend {
        let start = period.start(at);
        let known = self.find(of).ok().map(|place| self.0[place].1[period as usize]);
        known
            .unwrap_or(Spend {
                start,
                ..Spend::default()
            })
            .in_period(start)
    }

    fn find(&self, of: &Of) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(of))
    }

    fn of(&mut self, of: &Of, starts: [Time; Period::ALL.len()]) -> &mut ByPeriod {
        let place = self.find(of).unwrap_or_else(|place| {
            let empty = starts.map(|start| Spend {
                start,
                ..Spend::default()
            });
            self.0.insert(place, (of.clone(), empty));
            place
        });
        &mut self.0[place].1
    }

    fn change(&mut self, ofs: &[Of], at: Time, change: impl Fn(&mut Spend)) {
        let starts = Period::ALL.map(|period| period.start(at));
        for of in ofs {
            for (spend, start) in self.of(of, starts).iter_mut().zip(starts) {
                *spend = spend.in_period(start);
                change(spend);
            }
        }
    }

    pub fn hold(&mut self, ofs: &[Of], at: Time, cost: Cost) {
        self.change(ofs, at, |spend| {
            spend.held.money.0 += cost.money.0;
            spend.held.gpu_ms += cost.gpu_ms;
            spend.held.frames += cost.frames;
        });
    }

    pub fn release(&mut self, ofs: &[Of], at: Time, cost: Cost) {
        self.change(ofs, at, |spend| {
            spend.held.money.0 -= cost.money.0;
            spend.held.gpu_ms = spend
                .held
                .gpu_ms
                .checked_sub(cost.gpu_ms)
                .expect("INVARIANT: released was held");
            spend.held.frames = spend
                .held
                .frames
                .checked_sub(cost.frames)
                .expect("INVARIANT: released was held");
            assert!(spend.held.money.0 >= 0, "INVARIANT: released was held");
        });
    }

    /// Turns held into spent.
    pub fn settle(&mut self, ofs: &[Of], at: Time, cost: Cost) {
        self.release(ofs, at, cost);
        self.change(ofs, at, |spend| {
            spend.spent.money.0 += cost.money.0;
            spend.spent.gpu_ms += cost.gpu_ms;
            spend.spent.frames = spend.spent.frames.saturating_add(cost.frames);
        });
    }

    /// What is held at a scope that moves away is no longer held here.
    pub(crate) fn release_all_held_of(&mut self, moved: &Spending) {
        for (of, theirs) in &moved.0 {
            let place = self
                .find(of)
                .expect("INVARIANT: an ancestor counts all that is below it");
            for (ours, theirs) in self.0[place].1.iter_mut().zip(theirs) {
                ours.held.money.0 -= theirs.held.money.0;
                ours.held.gpu_ms -= theirs.held.gpu_ms;
                ours.held.frames -= theirs.held.frames;
            }
        }
    }

    /// What is held at a scope that arrives is held here too; what it spent elsewhere stays counted there.
    pub(crate) fn hold_all_held_of(&mut self, moved: &Spending) {
        for (of, theirs) in &moved.0 {
            let starts = theirs.map(|spend| spend.start);
            for (ours, theirs) in self.of(of, starts).iter_mut().zip(theirs) {
                ours.held.money.0 += theirs.held.money.0;
                ours.held.gpu_ms += theirs.held.gpu_ms;
                ours.held.frames += theirs.held.frames;
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Of, Period, &Spend)> {
        self.0.iter().flat_map(|(of, spends)| {
            let by_period = Period::ALL.into_iter().zip(spends);
            by_period.map(move |(period, spend)| (of, period, spend))
        })
    }
}

impl Serialize for Spending {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.iter()
                .map(|(of, period, spend)| (of.to_string(), period, spend)),
        )
    }
}

impl<'de> Deserialize<'de> for Spending {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = Vec::<(String, Period, Spend)>::deserialize(deserializer)?;
        let mut spending = Spending::default();
        for (of, period, spend) in rows {
            let of = match of.is_empty() {
                true => Of::All,
                false => Of::parse(&of).map_err(serde::de::Error::custom)?,
            };
            let starts = [spend.start; Period::ALL.len()];
            spending.of(&of, starts)[period as usize] = spend;
        }
        Ok(spending)
    }
}

/// Why a cost does not fit a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverBudget {
    pub budget: Budget,
    pub spend: Spend,
    /// Money does not fit; otherwise GPU time or frames.
    pub by_money: bool,
    /// Frames do not fit, and nothing else.
    pub by_frames: bool,
    /// Even with everything held given back it would not fit within this period.
    pub for_this_period: bool,
    /// It would not fit an untouched budget.
    pub for_ever: bool,
}

/// The first budget that `cost` does not fit on top of what is spent and held.
pub fn first_exceeded(
    budgets: &[Budget],
    spending: &Spending,
    ofs: &[Of],
    cost: Cost,
    at: Time,
) -> Option<OverBudget> {
    exceeded(budgets, spending, ofs, cost, at).next()
}

/// Every budget that `cost` does not fit on top of what is spent and held.
pub fn exceeded(
    budgets: &[Budget],
    spending: &Spending,
    ofs: &[Of],
    cost: Cost,
    at: Time,
) -> impl Iterator<Item = OverBudget> {
    let money = u64::try_from(cost.money.0).unwrap_or(0);
    budgets
        .iter()
        .filter_map(|budget| Some((budget, ofs.iter().find(|of| budget.is_of(of))?)))
        .filter_map(move |(budget, of)| {
            let spend = spending.at(of, budget.period, at);
            let money_limit = budget.money_micros.unwrap_or(u64::MAX);
            let gpu_limit = budget.gpu_seconds.map_or(u64::MAX, |s| s.saturating_mul(1000));
            let spent = u64::try_from(spend.spent.money.0).unwrap_or(0);
            let held = u64::try_from(spend.held.money.0).unwrap_or(0);
            let frames_limit = budget.frames.unwrap_or(u64::MAX);
            let time_over = |base: u64| cost.gpu_ms > 0 && base.saturating_add(cost.gpu_ms) > gpu_limit;
            let money_over = |base: u64| money > 0 && base.saturating_add(money) > money_limit;
            let frames_over = |base: u64| cost.frames > 0 && base.saturating_add(cost.frames) > frames_limit;
            let over = |money: u64, gpu_ms: u64, frames: u64| {
                money_over(money) || time_over(gpu_ms) || frames_over(frames)
            };
            let gone = (
                spent.saturating_add(held),
                spend.spent.gpu_ms.saturating_add(spend.held.gpu_ms),
                spend.spent.frames.saturating_add(spend.held.frames),
            );
            over(gone.0, gone.1, gone.2).then(|| OverBudget {
                budget: budget.clone(),
                spend,
                by_money: money_over(gone.0),
                by_frames: !money_over(gone.0) && !time_over(gone.1),
                for_this_period: over(spent, spend.spent.gpu_ms, spend.spent.frames),
                for_ever: over(0, 0, 0),
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn cost(money: i64, gpu_ms: u64) -> Cost {
        Cost {
            money: Micros(money),
            gpu_ms,
            frames: 0,
        }
    }

    fn at(text: &str) -> Time {
        Time::parse_rfc3339(text).expect("a moment")
    }

    fn money_of(period: Period, limit: u64) -> Vec<Budget> {
        vec![Budget {
            period,
            class: None,
            sku: None,
            kind: None,
            money_micros: Some(limit),
            gpu_seconds: None,
            frames: None,
            alerts_permille: Vec::new(),
        }]
    }

    #[test]
    fn a_new_period_begins_with_nothing_spent_and_all_that_is_held() {
        let ofs = [Of::All];
        let (evening, morning) = (at("2026-01-31T23:00:00Z"), at("2026-02-01T01:00:00Z"));
        let mut spending = Spending::default();
        spending.hold(&ofs, evening, cost(100, 10));
        spending.settle(&ofs, evening, cost(40, 4));
        for period in Period::ALL {
            let spend = spending.at(&Of::All, period, evening);
            assert_eq!(
                (spend.spent, spend.held),
                (cost(40, 4), cost(60, 6)),
                "{period:?}"
            );
        }
        // The 31st was a Saturday: a new day and a new month, the same week.
        for (period, spent) in [
            (Period::Day, 0),
            (Period::Week, 40),
            (Period::Month, 0),
            (Period::Total, 40),
        ] {
            let spend = spending.at(&Of::All, period, morning);
            assert_eq!(
                (spend.spent.money.0, spend.held),
                (spent, cost(60, 6)),
                "{period:?}"
            );
        }
        // What was held in the old period is spent in the new one, and what is left comes back there.
        spending.settle(&ofs, morning, cost(50, 5));
        spending.release(&ofs, morning, cost(10, 1));
        for (period, spent) in [
            (Period::Day, 50),
            (Period::Week, 90),
            (Period::Month, 50),
            (Period::Total, 90),
        ] {
            let spend = spending.at(&Of::All, period, morning);
            assert_eq!(
                (spend.spent.money.0, spend.held),
                (spent, cost(0, 0)),
                "{period:?}"
            );
        }
    }

    #[test]
    fn a_clock_that_steps_back_does_not_forget() {
        let (today, yesterday) = (at("2026-05-02T00:00:01Z"), at("2026-05-01T23:59:59Z"));
        let mut spending = Spending::default();
        spending.hold(&[Of::All], today, cost(10, 0));
        spending.settle(&[Of::All], today, cost(10, 0));
        assert_eq!(spending.at(&Of::All, Period::Day, yesterday).spent.money.0, 10);
        spending.hold(&[Of::All], yesterday, cost(5, 0));
        assert_eq!(spending.at(&Of::All, Period::Day, today).spent.money.0, 10);
    }

    #[test]
    fn held_counts_as_gone_until_it_is_settled() {
        let now = at("2026-05-02T12:00:00Z");
        let mut spending = Spending::default();
        let over = |spending: &Spending, more| {
            first_exceeded(
                &money_of(Period::Day, 100),
                spending,
                &[Of::All],
                cost(more, 0),
                now,
            )
        };
        assert_eq!(over(&spending, 100), None);
        spending.hold(&[Of::All], now, cost(70, HOUR));
        assert_eq!(over(&spending, 30), None);
        let held = over(&spending, 31).expect("more than is left");
        assert!(!held.for_this_period && !held.for_ever && held.by_money);
        spending.settle(&[Of::All], now, cost(70, HOUR));
        assert!(over(&spending, 31).is_some_and(|over| over.for_this_period && !over.for_ever));
        assert!(over(&spending, 101).is_some_and(|over| over.for_ever));
    }

    #[test]
    fn a_budget_of_another_group_does_not_matter() {
        let now = at("2026-05-02T12:00:00Z");
        let class = |name: &str| {
            vec![Budget {
                period: Period::Day,
                class: Some(name.into()),
                sku: None,
                kind: None,
                money_micros: Some(0),
                gpu_seconds: Some(1),
                frames: None,
                alerts_permille: Vec::new(),
            }]
        };
        let ofs = [Of::All, Of::Class("H100".into())];
        assert!(first_exceeded(&class("H100"), &Spending::default(), &ofs, cost(1, 0), now).is_some());
        assert!(
            first_exceeded(&class("H100"), &Spending::default(), &ofs, cost(0, 1001), now)
                .is_some_and(|over| !over.by_money)
        );
        assert_eq!(
            first_exceeded(&class("A10"), &Spending::default(), &ofs, cost(1, 5000), now),
            None
        );
    }
}
