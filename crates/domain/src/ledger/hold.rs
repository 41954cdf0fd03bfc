//! Holds: the estimated cost of an admitted job, set aside until metered seconds settle it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::account::AccountId;
use crate::kind::{Counted, Kind};
use crate::meter::Of;
use crate::money::Micros;
use crate::tenancy::budget::Cost;

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

    /// What one member's step from `before` to `after` milliseconds costs, never more than is left.
    pub fn charge(&self, before: u64, after: u64) -> Cost {
        let (from, to) = (self.cost_of(before), self.cost_of(after));
        Cost {
            money: Micros((to.money.0 - from.money.0).min(self.left.money.0)),
            gpu_ms: (to.gpu_ms - from.gpu_ms).min(self.left.gpu_ms),
            frames: 0,
        }
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

    fn hold(hourly: i64, gpu_milli: u64, ms: u64) -> Hold {
        let mut hold = Hold {
            account: AccountId::Internal,
            left: Cost::default(),
            hourly: Micros(hourly),
            gpu_milli,
            members: 1,
            class: None,
            sku: None,
            kind: None,
        };
        hold.left = hold.cost_of(ms);
        hold
    }

    #[test]
    fn intervals_cost_what_the_whole_costs() {
        for (hourly, gpu_milli) in [(1, 1), (999_999, 333), (1_000_003, 1000), (7, 4_096_000)] {
            let mut hold = hold(hourly, gpu_milli, 7_200_000);
            let whole = hold.cost_of(5_000_001);
            let (mut money, mut gpu_ms, mut from) = (0, 0, 0);
            for to in [0, 1, 999, 1000, 60_000, 60_001, 3_599_999, 5_000_001] {
                let step = hold.charge(from, to);
                (money, gpu_ms, from) = (money + step.money.0, gpu_ms + step.gpu_ms, to);
                hold.left = Cost {
                    money: Micros(hold.left.money.0 - step.money.0),
                    gpu_ms: hold.left.gpu_ms - step.gpu_ms,
                    frames: 0,
                };
            }
            assert_eq!(
                (money, gpu_ms),
                (whole.money.0, whole.gpu_ms),
                "no rounding is lost or farmed"
            );
        }
    }

    #[test]
    fn members_charge_for_what_the_hold_has_of_them() {
        let mut hold = hold(4 * 1_000_003, 4 * 333, 0);
        hold.members = 4;
        hold.left = hold.cost_of_all(3_600_000);
        for _ in 0..hold.members {
            let steps = [(0, 7), (7, 1_800_001), (1_800_001, 3_600_000)];
            for (from, to) in steps {
                let step = hold.charge(from, to);
                hold.left.money.0 -= step.money.0;
                hold.left.gpu_ms -= step.gpu_ms;
            }
        }
        assert_eq!(hold.left, Cost::default(), "nothing over, nothing short");
    }

    #[test]
    fn a_charge_never_passes_what_is_left() {
        let hold = hold(3_600_000, 500, 10_000);
        assert_eq!(hold.charge(0, u64::MAX), hold.left);
        assert_eq!(hold.charge(5_000, 5_000), Cost::default());
    }

    #[test]
    fn the_dearest_hold_does_not_overflow() {
        let hold = hold(i64::MAX, u64::MAX, u64::MAX);
        assert_eq!(
            hold.left,
            Cost {
                money: Micros(i64::MAX),
                gpu_ms: u64::MAX,
                frames: 0
            }
        );
        assert_eq!(hold.charge(0, u64::MAX), hold.left);
    }
}
