//! What a scope has taken of others' quota, and let to them, for a time.
//!
//! Kept apart from what an operator set, so that either changes without the other: what a scope is limited to and sure of
//! is read through `Scope::limits` and `Scope::nominal`, which put both together. Absent: who traded with whom, and for
//! how much (`market`). Changed where leases begin and end, in `state/apply/market`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::scope::Scope;
use super::share::Nominal;
use crate::meter::{Amounts, Meter, Of, Resource};
use crate::money::Micros;

/// GPUs of one class, in thousandths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sides {
    pub taken_milli: u64,
    pub let_milli: u64,
}

impl Sides {
    fn applied_to(self, milli: u64) -> u64 {
        milli
            .saturating_add(self.taken_milli)
            .saturating_sub(self.let_milli)
    }
}

/// By GPU class, and the money that purchases of this scope and below have bound.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    classes: BTreeMap<Box<str>, Sides>,
    /// In escrow for leases, and held for bids that wait.
    #[serde(default)]
    pub bound: Micros,
}

impl Leased {
    /// Nothing is taken, let or bound.
    pub fn is_empty(&self) -> bool {
        *self == Leased::default()
    }

    pub fn classes(&self) -> impl Iterator<Item = (&Box<str>, Sides)> {
        self.classes.iter().map(|(class, sides)| (class, *sides))
    }

    pub fn of(&self, class: &str) -> Sides {
        self.classes.get(class).copied().unwrap_or_default()
    }

    pub(crate) fn change(&mut self, class: &str, change: impl FnOnce(&mut Sides)) {
        let sides = self.classes.entry(class.into()).or_default();
        change(sides);
        if *sides == Sides::default() {
            self.classes.remove(class);
        }
    }
}

impl Scope {
    /// The quota as it is now: what was set, with what is taken and less what is let. Only compute is leased; device
    /// memory, slices and jobs are limited as they were.
    pub fn limits(&self) -> Cow<'_, Amounts> {
        if self.leased.classes.is_empty() || self.quota.is_empty() {
            return Cow::Borrowed(&self.quota);
        }
        let mut limits = self.quota.clone();
        let mut all = Sides::default();
        for (class, sides) in self.leased.classes() {
            all.taken_milli += sides.taken_milli;
            all.let_milli += sides.let_milli;
            shift(&mut limits, Of::Class((**class).into()), sides);
        }
        shift(&mut limits, Of::All, all);
        Cow::Owned(limits)
    }

    /// What it is sure of of a class by its own share, with what is taken and less what is let.
    pub fn nominal(&self, class: &str) -> Option<Nominal> {
        let mut nominal = *self.share.nominal.get(class)?;
        nominal.gpu_milli = self.leased.of(class).applied_to(nominal.gpu_milli);
        Some(nominal)
    }

    /// Classes of which it is sure of something, by its share or by a lease.
    pub fn sure_classes(&self) -> impl Iterator<Item = &Box<str>> {
        let taken = self.leased.classes.iter();
        let taken = taken
            .filter(|(class, sides)| sides.taken_milli > 0 && !self.share.nominal.contains_key(&***class));
        self.share.nominal.keys().chain(taken.map(|(class, _)| class))
    }

    pub fn is_sure_of(&self, class: &str) -> bool {
        self.share.nominal.contains_key(class) || self.leased.of(class).taken_milli > 0
    }
}

fn shift(limits: &mut Amounts, of: Of, sides: Sides) {
    let meter = Meter {
        resource: Resource::GpuMilli,
        of,
    };
    if let Some(limit) = limits.get(&meter) {
        limits.set(meter, sides.applied_to(limit));
    }
}
