//! A lease: quota of one tenant that is another's from one moment to another.

use serde::{Deserialize, Serialize};

use super::offer::price_of;
use crate::id::{BidId, LeaseId, NodeId, OfferId, TenantId};
use crate::money::Micros;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};

/// Who wants it back before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecallReason {
    Seller,
    /// A bid that pays more; only of what was bought by a spot bid.
    Outbid(BidId),
}

/// Why a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseEnd {
    /// Its time was over.
    Over,
    Recalled,
    Outbid,
    /// The buyer gave it back.
    Returned,
    /// Something of the seller's broke: what was not had is not paid.
    Fault,
    /// What was let is not what it was said to be: nothing is paid.
    Lied,
}

/// A live lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub id: LeaseId,
    pub offer: OfferId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bid: Option<BidId>,
    pub seller: TenantId,
    /// Who bought it, and whose quota grew up to its tenant.
    pub scope: ScopeId,
    pub buyer: TenantId,
    pub class: Box<str>,
    pub gpu_milli: u64,
    /// Of the seller's own, let whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeId>,
    /// For a whole GPU by the hour: what was asked.
    pub price: Micros,
    pub start: Time,
    pub end: Time,
    /// The seller promised this much, and the buyer pays it.
    pub min_lease_s: u64,
    pub notice_s: u64,
    pub fee_permille: u32,
    pub penalty_permille: u32,
    /// What a spot bid would have paid at most: who pays more takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<Micros>,
    /// Paid into escrow when it began.
    pub escrow: Micros,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalled: Option<RecallReason>,
    /// Whoever runs beyond what is left was told to leave, and it is no part of the buyer's quota any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vacating: bool,
}

impl Lease {
    /// What so long of it costs.
    pub fn cost_of(&self, ms: u64) -> Micros {
        price_of(self.price, self.gpu_milli, ms)
    }

    pub fn length_ms(&self) -> u64 {
        self.end.since_ms(self.start)
    }

    /// How long it was had by then.
    pub fn had_ms(&self, at: Time) -> u64 {
        at.min(self.end).since_ms(self.start)
    }

    pub fn min_ms(&self) -> u64 {
        self.min_lease_s * SECOND_MS
    }

    pub fn gpu_ms(&self, ms: u64) -> u64 {
        let gpu_ms = u128::from(ms) * u128::from(self.gpu_milli) / 1000;
        u64::try_from(gpu_ms).unwrap_or(u64::MAX)
    }
}
