//! A bid: what a scope wants of the exchange, and how long it waits for it.

use serde::{Deserialize, Serialize};

use super::offer::{MAX_GPU_MILLI, MAX_LEASE_S, check_price, price_of};
use crate::id::{BidId, TenantId, UserId};
use crate::money::Micros;
use crate::name;
use crate::refusal::Refusal;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::spec::Isolation;

/// How a bid buys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "how", deny_unknown_fields)]
pub enum BidKind {
    /// The best offers there are now, or nothing; less than was wanted where that is said to do.
    #[serde(rename = "instant")]
    Now {
        #[serde(default)]
        partial: bool,
    },
    /// Waits for offers at its price until it expires.
    Limit {
        #[cfg_attr(feature = "schema", schema(value_type = i64))]
        expires: Time,
    },
    /// The same, but what it gets is another's who bids more, after the offer's notice.
    Spot {
        #[cfg_attr(feature = "schema", schema(value_type = i64))]
        expires: Time,
    },
}

/// What somebody wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BidSpec {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub class: Box<str>,
    pub gpu_milli: u64,
    /// How long each lease is to last.
    pub duration_s: u64,
    /// At most, for a whole GPU by the hour. What is paid is what was asked.
    #[cfg_attr(feature = "schema", schema(value_type = i64))]
    pub price: Micros,
    pub kind: BidKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub region: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_isolation: Option<Isolation>,
    /// Only sellers this reliable, in thousandths.
    #[serde(default)]
    pub min_reliability_permille: u32,
}

impl BidSpec {
    pub fn check(&self, at: Time) -> Result<(), Refusal> {
        name::check(&self.class, "/class")?;
        if let Some(region) = &self.region {
            name::check(region, "/region")?;
        }
        if self.gpu_milli == 0 || self.gpu_milli > MAX_GPU_MILLI {
            return Err(Refusal::invalid(
                "/gpu_milli",
                "a bid is for at least a thousandth of a GPU, and no more than any cell has",
            ));
        }
        if self.duration_s == 0 || self.duration_s > MAX_LEASE_S {
            return Err(Refusal::invalid(
                "/duration_s",
                "a lease lasts a second to 366 days",
            ));
        }
        if self.min_reliability_permille > 1000 {
            return Err(Refusal::invalid(
                "/min_reliability_permille",
                "a seller is 0 to 1000 thousandths reliable",
            ));
        }
        if self.expires().is_some_and(|expires| expires <= at) {
            return Err(Refusal::invalid("/kind/expires", "it would have expired already"));
        }
        check_price(self.price, "/price")
    }

    pub fn expires(&self) -> Option<Time> {
        match self.kind {
            BidKind::Now { .. } => None,
            BidKind::Limit { expires } | BidKind::Spot { expires } => Some(expires),
        }
    }

    pub fn is_spot(&self) -> bool {
        matches!(self.kind, BidKind::Spot { .. })
    }

    pub fn duration_ms(&self) -> u64 {
        self.duration_s * SECOND_MS
    }

    /// What so much of it costs at most.
    pub fn most(&self, gpu_milli: u64) -> Micros {
        price_of(self.price, gpu_milli, self.duration_ms())
    }
}

/// A bid that waits. What it may cost is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bid {
    pub id: BidId,
    pub scope: ScopeId,
    pub tenant: TenantId,
    pub spec: BidSpec,
    pub made: Time,
    pub left_milli: u64,
    /// Who gave the order; rules are asked of them again when it is matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<UserId>,
}

impl Bid {
    pub fn held(&self) -> Micros {
        self.spec.most(self.left_milli)
    }
}
