//! Price books: what one level asks of the level below it. What a scope pays itself is its sheet (`domain/ledger/sheet`).

use serde::{Deserialize, Serialize};
use tenure_domain::ledger::book::Book;
use utoipa::ToSchema;

use super::time::Moment;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPriceBook {
    /// The one tenant or subscriber it is for, by id; all of them where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buyer: Option<String>,
    /// From when on it holds, not before now; now where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Moment>,
    pub book: Book,
}

/// A book as it was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PriceBookView {
    /// Who asks these prices.
    pub seller: String,
    pub seller_path: String,
    /// Whom; absent for all of the seller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buyer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buyer_path: Option<String>,
    pub from: Moment,
    /// It holds now, and is neither to come nor followed by another.
    pub current: bool,
    pub book: Book,
    /// The edition of the tz database its zone was found in.
    pub tzdata: String,
}
