//! Looking through the offers: those with something left, class by class, the cheapest first.
//!
//! A search goes on after the place another ended at, so a page costs what it shows and what it passes over. Absent: who may
//! see what beyond whom an offer sells to (the server's matter).

use std::collections::BTreeMap;
use std::ops::Bound;

use super::book::{Ask, Glance};
use super::offer::Offer;
use super::record::Market;
use crate::id::TenantId;
use crate::money::Micros;
use crate::time::Time;
use crate::workload::spec::Isolation;

/// What is looked for; what is not said is not asked.
#[derive(Debug, Clone, Default)]
pub struct Search {
    pub class: Option<Box<str>>,
    pub region: Option<Box<str>>,
    pub max_price: Option<Micros>,
    pub min_reliability_permille: u32,
    pub min_milli: u64,
    pub min_isolation: Option<Isolation>,
    /// Offers that sell to this tenant, or are its own; whoever they are for where nothing is said.
    pub buyer: Option<TenantId>,
}

/// Where an offer stands in a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub class: Box<str>,
    pub ask: Ask,
}

impl Place {
    pub fn of(offer: &Offer) -> Place {
        Place {
            class: offer.spec.class.clone(),
            ask: (offer.spec.price, offer.made, offer.id),
        }
    }
}

impl Search {
    /// At most so many after a place, in order.
    pub fn find<'a>(
        &self,
        market: &'a Market,
        after: Option<&Place>,
        most: usize,
        at: Time,
    ) -> Vec<&'a Offer> {
        let mut found = Vec::new();
        let mut scores: BTreeMap<TenantId, u32> = BTreeMap::new();
        for (class, lists) in market.book().classes() {
            let passed = after.is_some_and(|after| class < &*after.class);
            if passed || self.class.as_deref().is_some_and(|wanted| wanted != class) {
                continue;
            }
            let from = match after.filter(|after| *after.class == *class) {
                Some(after) => Bound::Excluded(after.ask),
                None => Bound::Unbounded,
            };
            for ((price, _, id), glance) in lists.asks.range((from, Bound::Unbounded)) {
                if found.len() == most || self.max_price.is_some_and(|max| *price > max) {
                    break;
                }
                if !self.fits(glance) {
                    continue;
                }
                if self.min_reliability_permille > 0 {
                    let known = scores.entry(glance.seller);
                    let score = known.or_insert_with(|| market.reliability_permille(glance.seller, at));
                    if *score < self.min_reliability_permille {
                        continue;
                    }
                }
                found.extend(market.offer(*id).filter(|offer| self.is_for(offer)));
            }
        }
        found
    }

    fn fits(&self, glance: &Glance) -> bool {
        glance.left_milli >= self.min_milli
            && self
                .region
                .as_ref()
                .is_none_or(|region| glance.region.as_ref() == Some(region))
            && self.min_isolation.is_none_or(|least| glance.isolation >= least)
    }

    fn is_for(&self, offer: &Offer) -> bool {
        self.buyer
            .is_none_or(|buyer| offer.seller == buyer || offer.sells_to(buyer))
    }
}
