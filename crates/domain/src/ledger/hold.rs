//! Holds: the estimated cost of an admitted job, set aside until metered seconds settle it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::account::AccountId;
use super::clause::Clauses;
use super::rate;
use super::tariff::Resale;
use crate::kind::{Counted, Kind};
use crate::meter::Of;
use crate::money::Micros;
use crate::tenancy::budget::Cost;
use crate::tenancy::scope::ScopeId;

/// Money and GPU time set aside for one attempt of a job. `left` shrinks as intervals are charged, and what
/// remains at the end is returned; a charge never passes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub account: AccountId,
    pub left: Cost,
    /// Price of the whole job by the hour, fixed at admission.
    pub hourly: Micros,
    /// GPU-milliseconds per millisecond, in thousandths, of the whole job.
    pub gpu_milli: u64,
    /// How many allocations share it, each at the same part of the price.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub members: u32,
    /// The budget groups it counts in: everything, its class, its SKU, its kind.
    pub class: Option<Arc<str>>,
    pub sku: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// What of the price depends on when and how much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clauses: Option<Box<Clauses>>,
    /// What the owner's subscriber pays its tenant for the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resale: Option<Box<Resale>>,
}

fn one() -> u32 {
    1
}

fn is_one(members: &u32) -> bool {
    *members == 1
}

impl Hold {
    /// What one member's running for `ms` costs at this hold's price.
    pub fn cost_of(&self, ms: u64) -> Cost {
        let gpu_milli = self.gpu_milli / u64::from(self.members);
        let gpu_ms = u128::from(ms) * u128::from(gpu_milli) / 1000;
        Cost {
            money: Micros(self.hourly.0 / i64::from(self.members)).for_ms_at_hourly(ms),
            gpu_ms: u64::try_from(gpu_ms).unwrap_or(u64::MAX),
            frames: 0,
        }
    }

    /// What all members' running for `ms` costs: so many times one's, that their charges add up to it.
    pub fn cost_of_all(&self, ms: u64) -> Cost {
        let one = self.cost_of(ms);
        Cost {
            money: Micros(one.money.0.saturating_mul(self.members.into())),
            gpu_ms: one.gpu_ms.saturating_mul(self.members.into()),
            frames: 0,
        }
    }

    /// What all members' running for `ms` may cost at most: what is set aside for it.
    pub fn most_of_all(&self, ms: u64) -> Cost {
        Cost {
            money: self.most(self.hourly, self.clauses.as_deref(), ms),
            ..self.cost_of_all(ms)
        }
    }

    /// The same for one that ran `before` already, up to `after`.
    pub fn most_between(&self, before: u64, after: u64) -> Cost {
        let (from, to) = (self.cost_of_all(before), self.cost_of_all(after));
        Cost {
            money: self.most_of_all(after.saturating_sub(before)).money,
            gpu_ms: to.gpu_ms - from.gpu_ms,
            frames: 0,
        }
    }

    /// The same in the prices of the owner's subscriber, where it has its own.
    pub fn most_resold(&self, ms: u64) -> Option<Micros> {
        let resale = self.resale.as_deref()?;
        Some(self.most(resale.hourly, Some(&resale.clauses), ms))
    }

    fn most(&self, hourly: Micros, clauses: Option<&Clauses>, ms: u64) -> Micros {
        let one = rate::most(Micros(hourly.0 / i64::from(self.members)), clauses, ms);
        Micros(one.0.saturating_mul(self.members.into()))
    }

    /// GPU time of one member's step from `before` to `after` milliseconds.
    pub fn gpu_ms_between(&self, before: u64, after: u64) -> u64 {
        self.cost_of(after).gpu_ms - self.cost_of(before).gpu_ms
    }

    /// A cost as a scope counts it: a subscriber and those below in what they pay, a tenant and the platform in what
    /// the tenant pays.
    pub fn seen_from(scope: ScopeId, cost: Cost, resold: Option<Micros>) -> Cost {
        match (scope, resold) {
            (ScopeId::Subscriber(_) | ScopeId::User(_), Some(money)) => Cost { money, ..cost },
            _ => cost,
        }
    }

    /// What the owner pays by the hour, in the prices of its own level.
    pub fn own_hourly(&self) -> Micros {
        self.resale.as_deref().map_or(self.hourly, |resale| resale.hourly)
    }

    /// What is set aside, in those.
    pub fn own_left(&self) -> Micros {
        self.resale
            .as_deref()
            .map_or(self.left.money, |resale| resale.left)
    }

    /// What is set aside, as a scope counts it.
    pub fn left_at(&self, scope: ScopeId) -> Cost {
        let resold = self.resale.as_deref().map(|resale| resale.left);
        Hold::seen_from(scope, self.left, resold)
    }

    pub fn counted_as(&self) -> Vec<Of> {
        let mut ofs = Vec::with_capacity(3);
        ofs.push(Of::All);
        ofs.extend(self.class.clone().map(Of::Class));
        ofs.extend(self.sku.clone().map(Of::Sku));
        let kind = self.kind.and_then(|kind| Counted::groups(kind, None).next());
        ofs.extend(kind.map(Of::Kind));
        ofs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(hourly: i64, gpu_milli: u64, members: u32) -> Hold {
        Hold {
            account: AccountId::Internal,
            left: Cost::default(),
            hourly: Micros(hourly),
            gpu_milli,
            members,
            class: None,
            sku: None,
            kind: None,
            clauses: None,
            resale: None,
        }
    }

    #[test]
    fn gpu_time_adds_up_however_it_is_cut() {
        for (hourly, gpu_milli) in [(1, 1), (999_999, 333), (1_000_003, 1000), (7, 4_096_000)] {
            let hold = hold(hourly, gpu_milli, 1);
            let cuts = [0, 1, 999, 1000, 60_000, 60_001, 3_599_999, 5_000_001];
            let sum: u64 = cuts
                .windows(2)
                .map(|cut| hold.gpu_ms_between(cut[0], cut[1]))
                .sum();
            assert_eq!(sum, hold.cost_of(5_000_001).gpu_ms);
        }
    }

    #[test]
    fn what_is_set_aside_is_rounded_up_for_each_member() {
        let hold = hold(4 * 1_000_003, 4 * 333, 4);
        assert_eq!(hold.most_of_all(3_600_000).money, Micros(4 * 1_000_003));
        assert_eq!(
            hold.most_of_all(1).money,
            Micros(4),
            "a part of a micro, four times"
        );
        assert_eq!(
            hold.most_between(3_600_000, 7_200_000),
            hold.most_of_all(3_600_000)
        );
    }

    #[test]
    fn the_dearest_hold_does_not_overflow() {
        let most = hold(i64::MAX, u64::MAX, 1).most_of_all(u64::MAX);
        assert_eq!((most.money, most.gpu_ms), (Micros(i64::MAX), u64::MAX));
    }
}
