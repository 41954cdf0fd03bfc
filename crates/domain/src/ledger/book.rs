//! Price books: what one level asks of the level below it, from a moment on.
//!
//! The platform has books for its tenants, a tenant has books for its subscribers; each says only where it differs from
//! what the seller pays itself. A book begins when it is set or later, never before: what was metered stays as it was
//! rated. Absent: what a job costs (`tariff.rs`), what an interval costs (`rate.rs`), who may see which book (routes).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::clause::{Clauses, DayWindow, Tier};
use super::price::{ClassPrice, MAX_PRICE_MICROS};
use crate::kind::Kind;
use crate::refusal::Refusal;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::spec::Isolation;
use crate::zone::Zone;

/// The largest factor: a hundred times the price.
const MAX_PERMILLE: u32 = 100_000;
const MAX_WINDOWS: usize = 24;
const MAX_TIERS: usize = 16;
const MAX_NAMES: usize = 1000;

/// How work of one kind is priced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum KindPrice {
    /// Its time costs so many thousandths of the price.
    SecondPermille(u32),
    /// Each frame that was made costs this, and its time nothing.
    FrameMicros(i64),
}

/// What a seller asks. Everything is a difference to what it pays itself; factors are in thousandths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Book {
    /// On everything: 1000 is the seller's own price, 1200 a fifth more.
    #[serde(default = "same", skip_serializing_if = "is_same")]
    pub markup_permille: u32,
    /// Prices of GPU classes, instead of the seller's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, ClassPrice>))]
    pub classes: BTreeMap<Box<str>, ClassPrice>,
    /// What an hour of a SKU costs, all in, instead of its parts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, i64>))]
    pub skus: BTreeMap<Box<str>, i64>,
    /// By the isolation that was asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u32>))]
    pub isolation: BTreeMap<Isolation, u32>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, KindPrice>))]
    pub kinds: BTreeMap<Kind, KindPrice>,
    /// The zone of the times of day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "Europe/Berlin"))]
    pub zone: Option<Box<str>>,
    /// By the time of day; the first that holds counts, and outside all of them 1000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<DayWindow>,
    /// Booked windows.
    #[serde(default = "same", skip_serializing_if = "is_same")]
    pub booking_permille: u32,
    /// Work that may be made to leave for anybody: the lowest priority.
    #[serde(default = "same", skip_serializing_if = "is_same")]
    pub spot_permille: u32,
    /// By how much GPU time the buyer had in the month so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
    /// What a job that ran costs at least.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub minimum_micros: i64,
    /// The platform's part of what a tenant asks of its subscribers; of platform books alone.
    #[serde(default, skip_serializing_if = "no_fee")]
    pub fee_permille: u32,
}

fn same() -> u32 {
    1000
}

fn is_same(permille: &u32) -> bool {
    *permille == 1000
}

fn is_zero(micros: &i64) -> bool {
    *micros == 0
}

fn no_fee(permille: &u32) -> bool {
    *permille == 0
}

impl Default for Book {
    fn default() -> Book {
        Book {
            markup_permille: same(),
            classes: BTreeMap::new(),
            skus: BTreeMap::new(),
            isolation: BTreeMap::new(),
            kinds: BTreeMap::new(),
            zone: None,
            windows: Vec::new(),
            booking_permille: same(),
            spot_permille: same(),
            tiers: Vec::new(),
            minimum_micros: 0,
            fee_permille: 0,
        }
    }
}

impl Book {
    pub fn check(&self, seller: ScopeId) -> Result<(), Refusal> {
        let factor = |permille: u32, field: &'static str| match permille <= MAX_PERMILLE {
            true => Ok(()),
            false => Err(Refusal::invalid(
                field,
                "a factor is at most a hundred times the price",
            )),
        };
        let price = |micros: i64, field: &'static str| match (0..=MAX_PRICE_MICROS).contains(&micros) {
            true => Ok(()),
            false => Err(Refusal::invalid(
                field,
                "a price is zero or more, and at most a billion",
            )),
        };
        factor(self.markup_permille, "/markup_permille")?;
        factor(self.booking_permille, "/booking_permille")?;
        factor(self.spot_permille, "/spot_permille")?;
        price(self.minimum_micros, "/minimum_micros")?;
        if self.classes.len() > MAX_NAMES || self.skus.len() > MAX_NAMES {
            return Err(Refusal::invalid("/classes", "a book has at most 1000 names"));
        }
        for (class, of) in &self.classes {
            crate::name::check(class, "/classes")?;
            price(of.gpu_hour_micros, "/classes")?;
            price(of.vram_gib_hour_micros, "/classes")?;
        }
        for (sku, &micros) in &self.skus {
            crate::name::check(sku, "/skus")?;
            price(micros, "/skus")?;
        }
        for &permille in self.isolation.values() {
            factor(permille, "/isolation")?;
        }
        for of in self.kinds.values() {
            match *of {
                KindPrice::SecondPermille(permille) => factor(permille, "/kinds")?,
                KindPrice::FrameMicros(micros) => price(micros, "/kinds")?,
            }
        }
        self.check_clauses()?;
        if self.fee_permille > 1000 {
            return Err(Refusal::invalid(
                "/fee_permille",
                "a fee is at most all of it: 1000 thousandths",
            ));
        }
        if self.fee_permille > 0 && seller != ScopeId::Platform {
            return Err(Refusal::invalid(
                "/fee_permille",
                "only the platform takes a fee of what tenants ask",
            ));
        }
        Ok(())
    }

    fn check_clauses(&self) -> Result<(), Refusal> {
        if self.windows.len() > MAX_WINDOWS {
            return Err(Refusal::invalid("/windows", "a book has at most 24 times of day"));
        }
        if self.windows.iter().any(|window| window.permille > MAX_PERMILLE) {
            return Err(Refusal::invalid(
                "/windows",
                "a factor is at most a hundred times the price",
            ));
        }
        match &self.zone {
            Some(zone) => drop(Zone::bundled(zone)?),
            None if self.windows.is_empty() => {}
            None => {
                return Err(Refusal::invalid("/zone", "times of day need a zone")
                    .hint("name one, such as Europe/Berlin or UTC"));
            }
        }
        let rising = |pair: &[Tier]| pair[0].from_gpu_hours < pair[1].from_gpu_hours;
        let within = self
            .tiers
            .iter()
            .all(|tier| tier.permille <= 1000 && tier.from_gpu_hours > 0);
        if self.tiers.len() > MAX_TIERS || !within || !self.tiers.windows(2).all(rising) {
            return Err(Refusal::invalid(
                "/tiers",
                "at most 16 tiers, each from more GPU-hours on than the one before, none above the price",
            ));
        }
        Ok(())
    }

    /// What of it depends on when and how much.
    pub fn clauses(&self, kind: Kind) -> Clauses {
        let frame = match self.kinds.get(&kind) {
            Some(KindPrice::FrameMicros(micros)) => Some(crate::money::Micros(*micros)),
            _ => None,
        };
        Clauses {
            zone: self.zone.clone().filter(|_| !self.windows.is_empty()),
            windows: self.windows.clone(),
            tiers: self.tiers.clone(),
            minimum: crate::money::Micros(self.minimum_micros),
            frame,
        }
    }
}

/// A book as it was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BookEntry {
    /// Who asks the prices: the platform or a tenant.
    pub seller: ScopeId,
    /// Whom: one tenant or subscriber, or all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buyer: Option<ScopeId>,
    pub from: Time,
    pub book: Book,
    /// The edition of the tz database its zone was found in.
    pub tzdata: Box<str>,
}

/// All books that hold or will hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Books(Vec<BookEntry>);

impl Books {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The book by which `seller` asks of `buyer` at a moment: the buyer's own before the one for all.
    pub fn at(&self, seller: ScopeId, buyer: ScopeId, at: Time) -> Option<&Book> {
        let latest = |whose: Option<ScopeId>| {
            self.of(seller)
                .filter(|entry| entry.buyer == whose && entry.from <= at)
                .max_by_key(|entry| entry.from)
        };
        latest(Some(buyer))
            .or_else(|| latest(None))
            .map(|entry| &entry.book)
    }

    pub fn of(&self, seller: ScopeId) -> impl Iterator<Item = &BookEntry> {
        self.0.iter().filter(move |entry| entry.seller == seller)
    }

    /// Takes a book in; those it follows, and that hold for nothing any more at `now`, leave.
    pub(crate) fn set(&mut self, entry: BookEntry, now: Time) {
        let alike = |known: &BookEntry| known.seller == entry.seller && known.buyer == entry.buyer;
        let current = self.0.iter().filter(|known| alike(known) && known.from <= now);
        let current = current.map(|known| known.from).max();
        self.0.retain(|known| {
            !alike(known) || known.from != entry.from && current.is_none_or(|current| known.from >= current)
        });
        let place = self.0.partition_point(|known| known.from <= entry.from);
        self.0.insert(place, entry);
    }

    /// What a scope that is gone asked, and what was asked of it.
    pub(crate) fn forget(&mut self, scope: ScopeId) {
        self.0
            .retain(|entry| entry.seller != scope && entry.buyer != Some(scope));
    }
}

#[cfg(test)]
mod tests;
