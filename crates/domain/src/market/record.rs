//! Everything of the exchange that is live, with what is derived from it.
//!
//! INVARIANT: the book and the calendars are what the records say; whatever changes a record goes through these methods.
//! Absent: decisions, and whose quota a lease changes (`state/apply/market`).

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::auto::Auto;
use super::bid::Bid;
use super::book::{Book, Glance};
use super::check::GpuCheck;
use super::index::PriceIndex;
use super::lease::Lease;
use super::offer::{Offer, Source};
use super::reliability::Reliability;
use super::terms::MarketTerms;
use crate::id::{BidId, GpuId, LeaseId, NodeId, OfferId, TenantId};
use crate::money::Micros;
use crate::time::Time;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Rows", into = "Rows")]
pub struct Market {
    pub terms: MarketTerms,
    offers: BTreeMap<OfferId, Offer>,
    bids: BTreeMap<BidId, Bid>,
    leases: BTreeMap<LeaseId, Lease>,
    autos: BTreeMap<(TenantId, Box<str>), Auto>,
    pub(crate) checks: BTreeMap<GpuId, GpuCheck>,
    pub(crate) sellers: BTreeMap<TenantId, Reliability>,
    pub(crate) prices: PriceIndex,
    /// What buyers spent that went to sellers, ever.
    pub(crate) paid_out: Micros,
    book: Book,
    by_seller: BTreeMap<TenantId, BTreeSet<OfferId>>,
    /// When something is to be done about an offer.
    dues: BTreeSet<(Time, OfferId)>,
    ends: BTreeSet<(Time, LeaseId)>,
    expiries: BTreeSet<(Time, BidId)>,
    /// What each seller has on offer and not leased, of its quota, by class.
    offered: BTreeMap<(TenantId, Box<str>), u64>,
    /// Nodes on offer or let, and by which of them.
    nodes: BTreeMap<NodeId, (Option<OfferId>, Option<LeaseId>)>,
}

/// What a snapshot has.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Rows {
    terms: MarketTerms,
    offers: Vec<Offer>,
    bids: Vec<Bid>,
    leases: Vec<Lease>,
    autos: Vec<Auto>,
    checks: BTreeMap<GpuId, GpuCheck>,
    sellers: BTreeMap<TenantId, Reliability>,
    prices: PriceIndex,
    paid_out: Micros,
}

impl From<Rows> for Market {
    fn from(rows: Rows) -> Market {
        let mut market = Market {
            terms: rows.terms,
            checks: rows.checks,
            sellers: rows.sellers,
            prices: rows.prices,
            paid_out: rows.paid_out,
            ..Market::default()
        };
        rows.offers
            .into_iter()
            .for_each(|offer| market.insert_offer(offer));
        rows.bids.into_iter().for_each(|bid| market.insert_bid(bid));
        rows.leases
            .into_iter()
            .for_each(|lease| market.insert_lease(lease));
        rows.autos.into_iter().for_each(|auto| market.set_auto(auto));
        market
    }
}

impl From<Market> for Rows {
    fn from(market: Market) -> Rows {
        Rows {
            terms: market.terms,
            offers: market.offers.into_values().collect(),
            bids: market.bids.into_values().collect(),
            leases: market.leases.into_values().collect(),
            autos: market.autos.into_values().collect(),
            checks: market.checks,
            sellers: market.sellers,
            prices: market.prices,
            paid_out: market.paid_out,
        }
    }
}

impl Market {
    pub fn is_empty(&self) -> bool {
        *self == Market::default()
    }

    pub fn book(&self) -> &Book {
        &self.book
    }

    pub fn offer(&self, id: OfferId) -> Option<&Offer> {
        self.offers.get(&id)
    }

    pub fn offers(&self) -> impl Iterator<Item = &Offer> {
        self.offers.values()
    }

    pub fn offers_of(&self, seller: TenantId) -> impl ExactSizeIterator<Item = OfferId> {
        static NONE: BTreeSet<OfferId> = BTreeSet::new();
        self.by_seller.get(&seller).unwrap_or(&NONE).iter().copied()
    }

    /// Offers of which more days are to be read, or that are over, by this moment.
    pub fn due_by(&self, at: Time) -> impl Iterator<Item = &Offer> {
        let due = self.dues.iter().take_while(move |(due, _)| *due <= at);
        due.filter_map(|(_, id)| self.offers.get(id))
    }

    pub fn bid(&self, id: BidId) -> Option<&Bid> {
        self.bids.get(&id)
    }

    pub fn bids(&self) -> impl Iterator<Item = &Bid> {
        self.bids.values()
    }

    pub fn lease(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.get(&id)
    }

    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }

    /// Those of nodes.
    pub fn leases_of_nodes(&self) -> impl Iterator<Item = &Lease> {
        let ids: BTreeSet<LeaseId> = self.nodes.values().filter_map(|(_, lease)| *lease).collect();
        ids.into_iter().filter_map(|id| self.leases.get(&id))
    }

    pub fn auto(&self, seller: TenantId, class: &str) -> Option<&Auto> {
        self.autos.get(&(seller, class.into()))
    }

    pub fn autos(&self) -> impl Iterator<Item = &Auto> {
        self.autos.values()
    }

    pub fn checks(&self) -> impl Iterator<Item = (GpuId, &GpuCheck)> {
        self.checks.iter().map(|(gpu, check)| (*gpu, check))
    }

    pub fn gpu_check(&self, gpu: GpuId) -> Option<&GpuCheck> {
        self.checks.get(&gpu)
    }

    /// How reliable a seller is now, in thousandths.
    pub fn reliability_permille(&self, seller: TenantId, at: Time) -> u32 {
        self.sellers
            .get(&seller)
            .copied()
            .unwrap_or_default()
            .permille(at)
    }

    pub fn prices(&self) -> &PriceIndex {
        &self.prices
    }

    pub fn paid_out(&self) -> Micros {
        self.paid_out
    }

    /// What a seller has on offer of its quota and not leased.
    pub fn offered_milli(&self, seller: TenantId, class: &str) -> u64 {
        self.offered.get(&(seller, class.into())).copied().unwrap_or(0)
    }

    /// By which offer and which lease a node is taken.
    pub fn node(&self, node: NodeId) -> (Option<OfferId>, Option<LeaseId>) {
        self.nodes.get(&node).copied().unwrap_or_default()
    }

    /// Leases that end before a moment, first first.
    pub fn ending_before(&self, at: Time) -> impl Iterator<Item = &Lease> {
        let before = self.ends.range(..(at, LeaseId(0)));
        before.filter_map(|(_, id)| self.leases.get(id))
    }

    /// Bids that expire before a moment.
    pub fn expiring_before(&self, at: Time) -> impl Iterator<Item = &Bid> {
        let before = self.expiries.range(..(at, BidId(0)));
        before.filter_map(|(_, id)| self.bids.get(id))
    }

    pub(crate) fn insert_offer(&mut self, offer: Offer) {
        self.list(&offer, true);
        let before = self.offers.insert(offer.id, offer);
        assert!(before.is_none(), "INVARIANT: an offer is made once");
    }

    pub(crate) fn remove_offer(&mut self, id: OfferId) -> Offer {
        let offer = self
            .offers
            .remove(&id)
            .expect("INVARIANT: events name live offers");
        self.list(&offer, false);
        offer
    }

    /// What is leased of it, or when it is open; it may have gone while some of it is leased. Every purchase comes this way,
    /// so only what is another afterwards is listed anew.
    pub(crate) fn change_offer(&mut self, id: OfferId, change: impl FnOnce(&mut Offer)) {
        let Some(offer) = self.offers.get_mut(&id) else {
            return;
        };
        let (left, due) = (offer.left_milli(), offer.due());
        change(offer);
        if offer.due() != due {
            self.dues.remove(&(due, id));
            self.dues.insert((offer.due(), id));
        }
        if offer.left_milli() != left {
            list_ask(&mut self.book, offer, true);
            if offer.spec.source == Source::Quota {
                let of = (offer.seller, offer.spec.class.clone());
                change_offered(&mut self.offered, of, |sum| sum - left + offer.left_milli());
            }
        }
    }

    fn list(&mut self, offer: &Offer, there: bool) {
        list_ask(&mut self.book, offer, there);
        let left = offer.left_milli();
        let (due, of) = (
            (offer.due(), offer.id),
            self.by_seller.entry(offer.seller).or_default(),
        );
        match there {
            true => of.insert(offer.id) | self.dues.insert(due),
            false => of.remove(&offer.id) | self.dues.remove(&due),
        };
        if of.is_empty() {
            self.by_seller.remove(&offer.seller);
        }
        match &offer.spec.source {
            Source::Quota => {
                let of = (offer.seller, offer.spec.class.clone());
                change_offered(
                    &mut self.offered,
                    of,
                    |sum| if there { sum + left } else { sum - left },
                );
            }
            Source::Nodes { nodes } => {
                for node in nodes {
                    let offered = there.then_some(offer.id);
                    self.change_node(*node, |of| of.0 = offered);
                }
            }
        }
    }

    fn change_node(&mut self, node: NodeId, change: impl FnOnce(&mut (Option<OfferId>, Option<LeaseId>))) {
        let of = self.nodes.entry(node).or_default();
        change(of);
        if *of == (None, None) {
            self.nodes.remove(&node);
        }
    }

    pub(crate) fn insert_bid(&mut self, bid: Bid) {
        let key = (Reverse(bid.spec.price), bid.made, bid.id);
        self.book.change(&bid.spec.class, |lists| {
            lists.bids.insert(key);
        });
        if let Some(expires) = bid.spec.expires() {
            self.expiries.insert((expires, bid.id));
        }
        let before = self.bids.insert(bid.id, bid);
        assert!(before.is_none(), "INVARIANT: a bid is placed once");
    }

    pub(crate) fn remove_bid(&mut self, id: BidId) -> Bid {
        let bid = self.bids.remove(&id).expect("INVARIANT: events name live bids");
        let key = (Reverse(bid.spec.price), bid.made, id);
        self.book.change(&bid.spec.class, |lists| {
            lists.bids.remove(&key);
        });
        if let Some(expires) = bid.spec.expires() {
            self.expiries.remove(&(expires, id));
        }
        bid
    }

    pub(crate) fn insert_lease(&mut self, lease: Lease) {
        self.ends.insert((lease.end, lease.id));
        if let (Some(price), None) = (lease.spot, lease.recalled) {
            let key = (price, Reverse(lease.start), Reverse(lease.id));
            self.book.change(&lease.class, |lists| {
                lists.spots.insert(key);
            });
        }
        for node in &lease.nodes {
            self.change_node(*node, |of| of.1 = Some(lease.id));
        }
        let before = self.leases.insert(lease.id, lease);
        assert!(before.is_none(), "INVARIANT: a lease begins once");
    }

    pub(crate) fn remove_lease(&mut self, id: LeaseId) -> Lease {
        let lease = self
            .leases
            .remove(&id)
            .expect("INVARIANT: events name live leases");
        self.ends.remove(&(lease.end, id));
        if let Some(price) = lease.spot {
            let key = (price, Reverse(lease.start), Reverse(id));
            self.book.change(&lease.class, |lists| {
                lists.spots.remove(&key);
            });
        }
        for node in &lease.nodes {
            self.change_node(*node, |of| of.1 = None);
        }
        lease
    }

    pub(crate) fn change_lease(&mut self, id: LeaseId, change: impl FnOnce(&mut Lease)) {
        let mut lease = self.remove_lease(id);
        change(&mut lease);
        self.insert_lease(lease);
    }

    pub(crate) fn set_auto(&mut self, auto: Auto) {
        self.autos.insert((auto.seller, auto.spec.class.clone()), auto);
    }

    pub(crate) fn change_auto(&mut self, seller: TenantId, class: &str, change: impl FnOnce(&mut Auto)) {
        if let Some(auto) = self.autos.get_mut(&(seller, class.into())) {
            change(auto);
        }
    }

    pub(crate) fn remove_auto(&mut self, seller: TenantId, class: &str) {
        self.autos.remove(&(seller, class.into()));
    }

    pub(crate) fn classes_with_auto(&self, seller: TenantId) -> impl Iterator<Item = &Box<str>> {
        let of = self.autos.range((seller, Box::from(""))..);
        of.take_while(move |((of, _), _)| *of == seller)
            .map(|((_, class), _)| class)
    }

    /// A tenant was closed, after all its trades.
    pub(crate) fn forget(&mut self, tenant: TenantId) {
        self.sellers.remove(&tenant);
        self.autos.retain(|(seller, _), _| *seller != tenant);
    }

    /// Forgets checks of nodes that are neither on offer nor let, nor kept.
    pub(crate) fn prune_checks(&mut self, kept: impl Fn(NodeId) -> bool) {
        let nodes = &self.nodes;
        self.checks
            .retain(|_, check| nodes.contains_key(&check.node) || kept(check.node));
    }
}

/// An offer stands in the book while something of it is left.
fn list_ask(book: &mut Book, offer: &Offer, there: bool) {
    let key = (offer.spec.price, offer.made, offer.id);
    book.change(&offer.spec.class, |lists| {
        match there && offer.left_milli() > 0 {
            true => lists.asks.insert(key, Glance::of(offer)),
            false => lists.asks.remove(&key),
        };
    });
}

fn change_offered(
    offered: &mut BTreeMap<(TenantId, Box<str>), u64>,
    of: (TenantId, Box<str>),
    change: impl FnOnce(u64) -> u64,
) {
    match offered.entry(of) {
        Entry::Occupied(mut sum) => {
            *sum.get_mut() = change(*sum.get());
            if *sum.get() == 0 {
                sum.remove();
            }
        }
        Entry::Vacant(sum) => {
            let left = change(0);
            if left > 0 {
                sum.insert(left);
            }
        }
    }
}
