//! The order book: offers and bids of each class in the order they are served: the better price, then the earlier, then the
//! lower id. Derived from the records, so no part of a snapshot; an order costs a step in a sorted tree.
//!
//! INVARIANT: an offer stands here while something of it is left, a bid while it waits, a spot lease until it is recalled
//! or ends; `record` alone changes it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::offer::Offer;
use crate::id::{BidId, LeaseId, OfferId, TenantId};
use crate::money::Micros;
use crate::time::Time;
use crate::workload::spec::Isolation;

pub type Ask = (Micros, Time, OfferId);
pub type Wait = (Reverse<Micros>, Time, BidId);
/// The one that pays least first; of those that pay the same, the last come.
pub type Spot = (Micros, Reverse<Time>, Reverse<LeaseId>);

/// What a search asks of an offer, at its place in the book: to pass one over costs a step and no look at the offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glance {
    pub seller: TenantId,
    pub left_milli: u64,
    pub isolation: Isolation,
    pub region: Option<Box<str>>,
}

impl Glance {
    pub fn of(offer: &Offer) -> Glance {
        Glance {
            seller: offer.seller,
            left_milli: offer.left_milli(),
            isolation: offer.spec.isolation,
            region: offer.spec.region.clone(),
        }
    }
}

/// One class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lists {
    pub asks: BTreeMap<Ask, Glance>,
    pub bids: BTreeSet<Wait>,
    pub spots: BTreeSet<Spot>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Book(BTreeMap<Box<str>, Lists>);

impl Book {
    pub fn class(&self, class: &str) -> Option<&Lists> {
        self.0.get(class)
    }

    pub fn classes(&self) -> impl Iterator<Item = (&str, &Lists)> {
        self.0.iter().map(|(class, lists)| (&**class, lists))
    }

    pub(super) fn change(&mut self, class: &str, change: impl FnOnce(&mut Lists)) {
        if let Some(lists) = self.0.get_mut(class) {
            change(lists);
            if *lists == Lists::default() {
                self.0.remove(class);
            }
            return;
        }
        let mut lists = Lists::default();
        change(&mut lists);
        if lists != Lists::default() {
            self.0.insert(class.into(), lists);
        }
    }
}
