//! What an interval cost, at each level that pays for it.

use serde::{Deserialize, Serialize};

use crate::id::{AllocationId, JobId};
use crate::ledger::account::Posting;
use crate::money::Micros;
use crate::tenancy::budget::Cost;
use crate::workload::usage::Usage;

/// One metered interval and what it cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    pub allocation: AllocationId,
    pub job: JobId,
    /// Run time since the allocation's start, in milliseconds: the interval is `[from_ms, to_ms)`.
    pub from_ms: u64,
    pub to_ms: u64,
    pub cost: Cost,
    pub posting: Posting,
    /// Use of devices in the interval, where it was measured; its peak is that of the allocation so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Usage>,
    /// Less than a micro that is carried on to the next interval, in units of `rate::UNIT`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crumb: u64,
    /// Of the cost: what crumbs of earlier allocations came to.
    #[serde(default, skip_serializing_if = "Micros::is_zero")]
    pub swept: Micros,
    /// Of the cost: frames that were made, and what was missing to a minimum.
    #[serde(default, skip_serializing_if = "Micros::is_zero")]
    pub extra: Micros,
    /// What the owner's subscriber pays its tenant for the same interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resale: Option<Box<Resold>>,
}

/// An interval in the prices of the owner's subscriber.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resold {
    pub posting: Posting,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crumb: u64,
    #[serde(default, skip_serializing_if = "Micros::is_zero")]
    pub swept: Micros,
    #[serde(default, skip_serializing_if = "Micros::is_zero")]
    pub extra: Micros,
    /// The platform's part, which the tenant pays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fee: Option<Posting>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
