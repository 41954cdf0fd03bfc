//! What a scope's policy says of the exchange: whether it trades, with whom, where, behind what walls, at what prices and
//! with how much bound at once. Each scope may narrow. Absent: asking it (`market/allow`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::TenantId;
use crate::name;
use crate::refusal::Refusal;
use crate::workload::spec::Isolation;

const MOST: usize = 1000;

/// An absent field says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TradePolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_buy: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_sell: Option<bool>,
    /// The other tenants it trades with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<BTreeSet<String>>))]
    pub counterparties: Option<BTreeSet<TenantId>>,
    /// Regions it buys in; what stands in none is not of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<BTreeSet<String>>))]
    pub regions: Option<BTreeSet<Box<str>>>,
    /// Nothing is bought or sold below this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_isolation: Option<Isolation>,
    /// For a GPU by the hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_price_micros: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_price_micros: Option<u64>,
    /// In escrow for leases and held for bids, together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bound_micros: Option<u64>,
}

impl TradePolicy {
    pub fn check(&self) -> Result<(), Refusal> {
        let too_many = self.counterparties.as_ref().is_some_and(|all| all.len() > MOST)
            || self.regions.as_ref().is_some_and(|all| all.len() > MOST);
        if too_many {
            return Err(Refusal::invalid(
                "/trade",
                format!("a policy names at most {MOST} tenants and regions"),
            ));
        }
        for region in self.regions.iter().flatten() {
            name::check(region, "/trade/regions")?;
        }
        if let (Some(min), Some(max)) = (self.min_price_micros, self.max_price_micros)
            && min > max
        {
            return Err(Refusal::invalid(
                "/trade/min_price_micros",
                "no price would be within the band",
            ));
        }
        Ok(())
    }
}
