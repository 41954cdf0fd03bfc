//! Holds: the estimated cost of an admitted job, set aside until metered seconds settle it.

use serde::{Deserialize, Serialize};

use super::account::AccountId;
use crate::meter::Of;
use crate::money::Micros;
use crate::tenancy::budget::Cost;

/// Money and GPU time set aside for one attempt of a job. `left` shrinks as intervals are charged, and what
/// remains at the end is returned; a charge never passes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub account: AccountId,
    pub left: Cost,
    /// Price of the whole allocation by the hour, fixed at admission.
    pub hourly: Micros,
    /// GPU-milliseconds per millisecond, in thousandths.
    pub gpu_milli: u64,
    /// The budget groups it counts in: everything, its class, its SKU.
    pub class: Option<Box<str>>,
    pub sku: Option<Box<str>>,
}

impl Hold {
    /// What running for `ms` costs at this hold's price.
    pub fn cost_of(&self, ms: u64) -> Cost {
        let gpu_ms = u128::from(ms) * u128::from(self.gpu_milli) / 1000;
        Cost { money: self.hourly.for_ms_at_hourly(ms), gpu_ms: u64::try_from(gpu_ms).unwrap_or(u64::MAX) }
    }

    /// What the step from `before` to `after` milliseconds costs, never more than is left.
    pub fn charge(&self, before: u64, after: u64) -> Cost {
        let (from, to) = (self.cost_of(before), self.cost_of(after));
        Cost {
            money: Micros((to.money.0 - from.money.0).min(self.left.money.0)),
            gpu_ms: (to.gpu_ms - from.gpu_ms).min(self.left.gpu_ms),
        }
    }

    pub fn counted_as(&self) -> Vec<Of> {
        let mut ofs = vec![Of::All];
        ofs.extend(self.class.clone().map(Of::Class));
        ofs.extend(self.sku.clone().map(Of::Sku));
        ofs
    }
}
