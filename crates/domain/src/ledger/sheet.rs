//! The price sheet: what a scope pays, all books included, and nobody else's prices. Pure; shown to whoever pays.
//!
//! Absent: what one job costs (`tariff.rs`); where the two could differ, a job's own price counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::book::{Book, Books, KindPrice};
use super::clause::{DayWindow, Tier};
use super::price::{ClassPrice, Prices};
use super::tariff::Factor;
use crate::kind::Kind;
use crate::money::{Currency, Micros};
use crate::tenancy::scope::ScopeId;
use crate::tenancy::tree::Tree;
use crate::time::Time;
use crate::workload::spec::Isolation;

/// Prices by the hour as one payer has them, and what changes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Sheet {
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "EUR"))]
    pub currency: Currency,
    pub cpu_hour_micros: i64,
    pub memory_gib_hour_micros: i64,
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, ClassPrice>))]
    pub classes: BTreeMap<Box<str>, ClassPrice>,
    /// For GPUs of a class without a price of its own.
    pub other: ClassPrice,
    /// SKUs that have a price of their own, all in.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, i64>))]
    pub skus: BTreeMap<Box<str>, i64>,
    /// By the isolation that was asked for, in thousandths of the price; 1000 where nothing is said.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u32>))]
    pub isolation: BTreeMap<Isolation, u32>,
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, KindPrice>))]
    pub kinds: BTreeMap<Kind, KindPrice>,
    /// Work of the lowest priority, in thousandths.
    pub spot_permille: u32,
    /// The zone of the times of day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub zone: Option<Box<str>>,
    pub windows: Vec<DayWindow>,
    pub tiers: Vec<Tier>,
    pub minimum_micros: i64,
}

impl Sheet {
    /// The list as it stands, without any book.
    fn listed(prices: &Prices) -> Sheet {
        Sheet {
            currency: prices.currency,
            cpu_hour_micros: prices.cpu_hour_micros,
            memory_gib_hour_micros: prices.memory_gib_hour_micros,
            classes: prices.classes.clone(),
            other: prices.other,
            skus: BTreeMap::new(),
            isolation: BTreeMap::new(),
            kinds: BTreeMap::new(),
            spot_permille: 1000,
            zone: None,
            windows: Vec::new(),
            tiers: Vec::new(),
            minimum_micros: 0,
        }
    }

    /// What a scope pays at a moment: a tenant by the platform's book, a subscriber and its users by their tenant's on
    /// top of that, where there is one.
    pub fn of(prices: &Prices, books: &Books, tree: &Tree, scope: ScopeId, at: Time) -> Sheet {
        let listed = Sheet::listed(prices);
        let Some(tenant) = tree.tenant_of(scope).map(ScopeId::Tenant) else {
            return listed;
        };
        let paid = match books.at(ScopeId::Platform, tenant, at) {
            Some(book) => listed.by(book),
            None => listed,
        };
        let mut above = tree.chain(scope).map(|scope| scope.id);
        let subscriber = above.find(|id| matches!(id, ScopeId::Subscriber(_)));
        match subscriber.and_then(|subscriber| books.at(tenant, subscriber, at)) {
            Some(book) => paid.by(book),
            None => paid,
        }
    }

    /// One level further down.
    fn by(self, book: &Book) -> Sheet {
        let markup = Factor::NONE.times(book.markup_permille);
        let marked = |micros: i64| markup.of(Micros(micros)).0;
        let marked_class = |price: ClassPrice| ClassPrice {
            gpu_hour_micros: marked(price.gpu_hour_micros),
            vram_gib_hour_micros: marked(price.vram_gib_hour_micros),
        };
        let mut classes: BTreeMap<_, _> = self
            .classes
            .into_iter()
            .map(|(class, price)| (class, marked_class(price)))
            .collect();
        classes.extend(book.classes.clone());
        let mut skus: BTreeMap<_, _> = self
            .skus
            .into_iter()
            .map(|(sku, price)| (sku, marked(price)))
            .collect();
        skus.extend(book.skus.clone());
        let mut isolation = self.isolation;
        for (&level, &permille) in &book.isolation {
            let before = isolation.get(&level).copied().unwrap_or(1000);
            isolation.insert(level, both(before, permille));
        }
        Sheet {
            currency: self.currency,
            cpu_hour_micros: marked(self.cpu_hour_micros),
            memory_gib_hour_micros: marked(self.memory_gib_hour_micros),
            classes,
            other: marked_class(self.other),
            skus,
            isolation,
            kinds: kinds(&self.kinds, book),
            spot_permille: both(self.spot_permille, book.spot_permille),
            // These are of the last level alone: what is above is paid by who is above.
            zone: book.zone.clone().filter(|_| !book.windows.is_empty()),
            windows: book.windows.clone(),
            tiers: book.tiers.clone(),
            minimum_micros: book.minimum_micros,
        }
    }

    /// As a list.
    pub fn prices(self) -> Prices {
        Prices {
            currency: self.currency,
            cpu_hour_micros: self.cpu_hour_micros,
            memory_gib_hour_micros: self.memory_gib_hour_micros,
            classes: self.classes,
            other: self.other,
        }
    }
}

/// A frame's price is that of the level that names it; factors on time go together.
fn kinds(above: &BTreeMap<Kind, KindPrice>, book: &Book) -> BTreeMap<Kind, KindPrice> {
    let factors = above.iter().filter_map(|(&kind, price)| match price {
        KindPrice::SecondPermille(permille) => Some((kind, *permille)),
        KindPrice::FrameMicros(_) => None,
    });
    let mut kinds: BTreeMap<Kind, KindPrice> = factors
        .map(|(kind, permille)| (kind, KindPrice::SecondPermille(permille)))
        .collect();
    for (&kind, &price) in &book.kinds {
        let price = match (kinds.get(&kind), price) {
            (Some(KindPrice::SecondPermille(before)), KindPrice::SecondPermille(permille)) => {
                KindPrice::SecondPermille(both(*before, permille))
            }
            _ => price,
        };
        kinds.insert(kind, price);
    }
    kinds
}

fn both(first: u32, second: u32) -> u32 {
    let product = (u64::from(first) * u64::from(second)).div_ceil(1000);
    u32::try_from(product).unwrap_or(u32::MAX)
}
