//! An offer: what a tenant lets others have, and on what terms.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::window::{Span, Windows};
use crate::id::{NodeId, OfferId, TenantId, UserId};
use crate::money::Micros;
use crate::name;
use crate::refusal::Refusal;
use crate::time::{HOUR_MS, Time};
use crate::workload::spec::Isolation;

/// The dearest anybody asks or bids: a billion an hour, as in price lists.
pub const MAX_PRICE_MICROS: i64 = 1_000_000_000_000_000;
pub const MAX_GPU_MILLI: u64 = 1 << 40;
pub const MAX_LEASE_S: u64 = 366 * 86_400;
const MAX_NOTICE_S: u64 = 7 * 86_400;
const MAX_NODES: usize = 1000;
const MAX_BUYERS: usize = 1000;

/// What stands behind an offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "from", deny_unknown_fields)]
pub enum Source {
    /// Quota of the seller that lies idle.
    Quota,
    /// Nodes dedicated to the seller, each let whole.
    Nodes {
        #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
        nodes: Vec<NodeId>,
    },
}

/// What somebody offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OfferSpec {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub class: Box<str>,
    pub source: Source,
    /// In thousandths of a GPU. Of nodes: all they have of the class.
    pub gpu_milli: u64,
    /// Where it is; of nodes alone, for quota is nowhere in particular.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub region: Option<Box<str>>,
    #[serde(default = "always")]
    pub windows: Windows,
    /// For a whole GPU by the hour.
    #[cfg_attr(feature = "schema", schema(value_type = i64))]
    pub price: Micros,
    pub min_lease_s: u64,
    pub max_lease_s: u64,
    /// How long before it is wanted back that is said.
    pub notice_s: u64,
    /// Only these tenants; anybody where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<BTreeSet<String>>))]
    pub buyers: Option<BTreeSet<TenantId>>,
    /// The level it is let at.
    #[serde(default = "fenced")]
    pub isolation: Isolation,
}

fn always() -> Windows {
    Windows::Always
}

fn fenced() -> Isolation {
    Isolation::Fenced
}

impl OfferSpec {
    pub fn check(&self, at: Time) -> Result<(), Refusal> {
        name::check(&self.class, "/class")?;
        if let Some(region) = &self.region {
            name::check(region, "/region")?;
        }
        if self.gpu_milli == 0 || self.gpu_milli > MAX_GPU_MILLI {
            return Err(Refusal::invalid(
                "/gpu_milli",
                "an offer has at least a thousandth of a GPU, and no more than any cell has",
            ));
        }
        check_price(self.price, "/price")?;
        check_lengths(self.min_lease_s, self.max_lease_s, self.notice_s)?;
        if self
            .buyers
            .as_ref()
            .is_some_and(|buyers| buyers.len() > MAX_BUYERS)
        {
            return Err(Refusal::invalid(
                "/buyers",
                format!("an offer names at most {MAX_BUYERS} tenants"),
            ));
        }
        match &self.source {
            Source::Quota if self.region.is_some() => Err(Refusal::invalid(
                "/region",
                "quota is nowhere in particular; only nodes stand in a region",
            )
            .hint("leave the region out, or offer nodes")),
            Source::Nodes { nodes } if nodes.is_empty() || nodes.len() > MAX_NODES => Err(Refusal::invalid(
                "/source/nodes",
                format!("an offer has 1 to {MAX_NODES} nodes"),
            )),
            _ => self.windows.check(at),
        }
    }
}

pub(super) fn check_price(price: Micros, field: &'static str) -> Result<(), Refusal> {
    if (0..=MAX_PRICE_MICROS).contains(&price.0) {
        return Ok(());
    }
    Err(Refusal::invalid(
        field,
        "a price is zero or more, and at most a billion an hour",
    ))
}

pub(super) fn check_lengths(min_s: u64, max_s: u64, notice_s: u64) -> Result<(), Refusal> {
    if min_s == 0 || min_s > max_s || max_s > MAX_LEASE_S {
        return Err(Refusal::invalid(
            "/min_lease_s",
            "a lease lasts a second to 366 days, the shortest no longer than the longest",
        ));
    }
    if notice_s > MAX_NOTICE_S {
        return Err(Refusal::invalid("/notice_s", "notice is a week at most"));
    }
    Ok(())
}

/// What so much costs for so long at a price by the hour for a whole GPU, rounded up so that nothing is free by being small.
/// No step towards it is rounded.
pub fn price_of(price: Micros, gpu_milli: u64, ms: u64) -> Micros {
    let hour = 1000 * i128::from(HOUR_MS);
    // INVARIANT: prices, amounts and lengths are bounded where they come in, so the product stays within 128 bits.
    let exact = i128::from(price.0) * i128::from(gpu_milli) * i128::from(ms);
    Micros(i64::try_from((exact + hour - 1) / hour).unwrap_or(i64::MAX))
}

/// A live offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    pub id: OfferId,
    pub seller: TenantId,
    pub spec: OfferSpec,
    pub made: Time,
    /// When it is open, as far as was read ahead.
    pub open: Vec<Span>,
    /// What of it is leased now.
    pub leased_milli: u64,
    /// Made by the standing order for its class, on the forecast said here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Box<str>>,
    /// Who gave the order; rules are asked of them again when it is matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<UserId>,
}

impl Offer {
    pub fn left_milli(&self) -> u64 {
        self.spec.gpu_milli.saturating_sub(self.leased_milli)
    }

    /// Whether it is open for the whole of a span.
    pub fn is_open(&self, start: Time, end: Time) -> bool {
        let found = self
            .open
            .iter()
            .find(|span| span.start <= start && start < span.end);
        found.is_some_and(|span| end <= span.end)
    }

    /// When more days are to be read, or it is over.
    pub fn due(&self) -> Time {
        let end = self.open.last().map_or(self.made, |span| span.end);
        self.spec.windows.due(end)
    }

    pub fn is_over(&self, at: Time) -> bool {
        self.open.last().is_none_or(|span| span.end <= at)
    }

    pub fn sells_to(&self, tenant: TenantId) -> bool {
        self.spec
            .buyers
            .as_ref()
            .is_none_or(|buyers| buyers.contains(&tenant))
    }
}
