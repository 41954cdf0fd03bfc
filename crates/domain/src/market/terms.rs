//! The operator's terms for the exchange: its fee, what a broken promise costs, how GPUs are checked. A lease keeps the fee
//! and the penalty it began under. Set by `decide/market`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::money::Micros;
use crate::name;
use crate::refusal::Refusal;

const DAY_S: u64 = 86_400;
const MAX_CLASSES: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct MarketTerms {
    /// Thousandths of what a seller earns that are the platform's.
    pub fee_permille: u32,
    /// Thousandths of the price of what a recall cuts from the minimum lease, paid by the seller to the buyer.
    pub penalty_permille: u32,
    /// How far below zero purchases may bring a tenant's account, holds counted; no limit where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit_micros: Option<u64>,
    /// A node has this long to answer when one of its GPUs is checked.
    pub check_answer_s: u64,
    /// A GPU that passed is checked again between once and twice this long after.
    pub check_again_s: u64,
    /// How fast a GPU of a class is at least, in million steps a second, a step being a shift, an exclusive or, a
    /// multiplication and an addition of 32 bits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub least_speed: BTreeMap<Box<str>, u64>,
}

impl Default for MarketTerms {
    fn default() -> Self {
        MarketTerms {
            fee_permille: 50,
            penalty_permille: 500,
            credit_micros: None,
            check_answer_s: 600,
            check_again_s: 12 * 3_600,
            least_speed: BTreeMap::new(),
        }
    }
}

impl MarketTerms {
    pub fn is_default(&self) -> bool {
        *self == MarketTerms::default()
    }

    pub fn check(&self) -> Result<(), Refusal> {
        for (permille, field) in [
            (self.fee_permille, "/fee_permille"),
            (self.penalty_permille, "/penalty_permille"),
        ] {
            if permille > 1000 {
                return Err(Refusal::invalid(field, "it is 0 to 1000 thousandths"));
            }
        }
        for (seconds, field) in [
            (self.check_answer_s, "/check_answer_s"),
            (self.check_again_s, "/check_again_s"),
        ] {
            if !(10..=30 * DAY_S).contains(&seconds) {
                return Err(Refusal::invalid(field, "it is 10 seconds to 30 days"));
            }
        }
        if self.least_speed.len() > MAX_CLASSES {
            return Err(Refusal::invalid(
                "/least_speed",
                format!("at most {MAX_CLASSES} GPU classes are named"),
            ));
        }
        for class in self.least_speed.keys() {
            name::check(class, "/least_speed")?;
        }
        Ok(())
    }
}

/// So many thousandths of an amount, rounded down.
pub(super) fn permille(amount: Micros, permille: u32) -> Micros {
    let part = i128::from(amount.0) * i128::from(permille) / 1000;
    Micros(i64::try_from(part).unwrap_or(i64::MAX))
}
