//! Which offers a bid is filled from: the cheapest, then the oldest, as much of each as is there, until it has enough.
//!
//! What an offer of quota has is what lies idle of it now; of nodes, those nobody is on. A bid's own tenant is passed over,
//! and that it was is said. Several bids are matched in one decision with what the others took thought away.
//! Asked by `decide/market` and `advance`.

use std::collections::{BTreeMap, BTreeSet};

use super::allow::may_trade;
use super::bid::{Bid, BidSpec};
use super::check::is_checked;
use super::lease::Lease;
use super::offer::{Offer, Source};
use crate::event::Event;
use crate::id::{BidId, Ids, LeaseId, NodeId, OfferId, TenantId, UserId};
use crate::ledger::account::{AccountId, Posting};
use crate::meter::{Meter, Of, Resource};
use crate::money::Micros;
use crate::refusal::Refusal;
use crate::schedule::fleet::{Node, NodeStatus};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;

/// A command has only so many ids; who wants more bids again.
const MAX_FILLS: usize = 1000;

/// Who wants what.
pub struct Want<'a> {
    pub scope: ScopeId,
    pub buyer: TenantId,
    pub spec: &'a BidSpec,
    pub bid: Option<BidId>,
    pub gpu_milli: u64,
    /// Who gave the order.
    pub by: Option<UserId>,
    pub at: Time,
}

impl<'a> Want<'a> {
    pub fn of(bid: &'a Bid, at: Time) -> Want<'a> {
        Want {
            scope: bid.scope,
            buyer: bid.tenant,
            spec: &bid.spec,
            bid: Some(bid.id),
            gpu_milli: bid.left_milli,
            by: bid.by,
            at,
        }
    }
}

/// What others took in this very decision.
#[derive(Default)]
pub struct Taken {
    of_offers: BTreeMap<OfferId, u64>,
    of_sellers: BTreeMap<(TenantId, Box<str>), u64>,
    nodes: BTreeSet<NodeId>,
}

impl Taken {
    /// Nothing of these offers, which end here.
    pub fn without(offers: &BTreeSet<OfferId>) -> Taken {
        Taken {
            of_offers: offers.iter().map(|offer| (*offer, u64::MAX)).collect(),
            ..Taken::default()
        }
    }
}

/// A part of an offer.
pub struct Fill<'a> {
    pub offer: &'a Offer,
    pub gpu_milli: u64,
    pub nodes: Vec<NodeId>,
}

impl Fill<'_> {
    /// The lease it becomes, and its price into escrow.
    pub fn lease(&self, state: &State, want: &Want<'_>, ids: &mut Ids) -> Event {
        let (spec, terms) = (&self.offer.spec, &state.market.terms);
        let mut lease = Lease {
            id: LeaseId(ids.take()),
            offer: self.offer.id,
            bid: want.bid,
            seller: self.offer.seller,
            scope: want.scope,
            buyer: want.buyer,
            class: spec.class.clone(),
            gpu_milli: self.gpu_milli,
            nodes: self.nodes.clone(),
            price: spec.price,
            start: want.at,
            end: want.at.plus_ms(want.spec.duration_ms()),
            min_lease_s: spec.min_lease_s,
            notice_s: spec.notice_s,
            fee_permille: terms.fee_permille,
            penalty_permille: terms.penalty_permille,
            spot: want.spec.is_spot().then_some(want.spec.price),
            escrow: Micros::ZERO,
            recalled: None,
            vacating: false,
        };
        lease.escrow = lease.cost_of(lease.length_ms());
        let escrow = Posting {
            from: AccountId::Tenant(lease.buyer),
            to: AccountId::Escrow,
            amount: lease.escrow,
        };
        Event::LeaseBegan {
            lease: Box::new(lease),
            escrow,
        }
    }
}

/// What came of looking.
#[derive(Default)]
pub struct Found<'a> {
    pub fills: Vec<Fill<'a>>,
    /// An offer of its own tenant would have done.
    pub own: bool,
    /// The first offer at its price that a policy kept from it.
    pub barred: Option<Refusal>,
}

impl Found<'_> {
    pub fn gpu_milli(&self) -> u64 {
        self.fills.iter().map(|fill| fill.gpu_milli).sum()
    }
}

/// The fills of a want, best first; `taken` grows by them.
pub fn find<'a>(state: &'a State, want: &Want<'_>, taken: &mut Taken) -> Found<'a> {
    let mut found = Found::default();
    let Some(lists) = state.market.book().class(&want.spec.class) else {
        return found;
    };
    let mut missing = want.gpu_milli;
    for (price, _, id) in lists.asks.keys() {
        if missing == 0 || *price > want.spec.price || found.fills.len() >= MAX_FILLS {
            break;
        }
        if let Some(offer) = state.market.offer(*id) {
            missing -= look(state, want, offer, missing, taken, &mut found);
        }
    }
    found
}

/// Takes what is missing of one offer if it will do; gives how much that was.
pub fn look<'a>(
    state: &State,
    want: &Want<'_>,
    offer: &'a Offer,
    missing: u64,
    taken: &mut Taken,
    found: &mut Found<'a>,
) -> u64 {
    if !suits(state, want, offer) {
        return 0;
    }
    if offer.seller == want.buyer {
        found.own = true;
        return 0;
    }
    if let Err(refusal) = may_trade(state, want, offer, missing.min(offer.left_milli())) {
        found.barred.get_or_insert(refusal);
        return 0;
    }
    let Some(fill) = take(state, offer, missing, taken) else {
        return 0;
    };
    let gpu_milli = fill.gpu_milli;
    found.fills.push(fill);
    gpu_milli
}

/// Whether the offer's terms and the bid's wishes agree, whatever is left of it.
pub fn suits(state: &State, want: &Want<'_>, offer: &Offer) -> bool {
    let (bid, spec) = (want.spec, &offer.spec);
    let end = want.at.plus_ms(bid.duration_ms());
    spec.price <= bid.price
        && (spec.min_lease_s..=spec.max_lease_s).contains(&bid.duration_s)
        && offer.is_open(want.at, end)
        && offer.sells_to(want.buyer)
        && bid
            .region
            .as_ref()
            .is_none_or(|region| spec.region.as_ref() == Some(region))
        && bid.min_isolation.is_none_or(|least| spec.isolation >= least)
        && (bid.min_reliability_permille == 0
            || state.market.reliability_permille(offer.seller, want.at) >= bid.min_reliability_permille)
}

fn take<'a>(state: &State, offer: &'a Offer, missing: u64, taken: &mut Taken) -> Option<Fill<'a>> {
    let of_offer = taken.of_offers.get(&offer.id).copied().unwrap_or(0);
    let left = offer.left_milli().saturating_sub(of_offer).min(missing);
    if left == 0 {
        return None;
    }
    let (gpu_milli, nodes) = match &offer.spec.source {
        Source::Quota => {
            let of = (offer.seller, offer.spec.class.clone());
            let others = taken.of_sellers.entry(of).or_default();
            let idle = idle_milli(state, offer.seller, &offer.spec.class).saturating_sub(*others);
            let gpu_milli = left.min(idle);
            *others += gpu_milli;
            (gpu_milli, vec![])
        }
        Source::Nodes { nodes } => {
            let mut chosen = (0, vec![]);
            let known = nodes.iter().filter(|node| !taken.nodes.contains(*node));
            for node in known.filter_map(|node| state.fleet.node(*node)) {
                let milli = node_milli(node, &offer.spec.class);
                if milli > 0 && chosen.0 + milli <= left && is_idle(state, node, offer.seller) {
                    chosen.0 += milli;
                    chosen.1.push(node.id);
                }
            }
            taken.nodes.extend(&chosen.1);
            chosen
        }
    };
    *taken.of_offers.entry(offer.id).or_default() += gpu_milli;
    (gpu_milli > 0).then_some(Fill {
        offer,
        gpu_milli,
        nodes,
    })
}

/// What a tenant has of a class to sell at all: what it is sure of, within its quota. What it leased of others is not its
/// own to let.
pub fn own_milli(state: &State, seller: TenantId, class: &str) -> Option<u64> {
    let scope = state.tree.get(ScopeId::Tenant(seller))?;
    let meter = Meter {
        resource: Resource::GpuMilli,
        of: Of::Class(class.into()),
    };
    let sure = scope.share.nominal.get(class).map(|nominal| nominal.gpu_milli);
    [sure, scope.quota.get(&meter)].into_iter().flatten().min()
}

/// What of its own lies idle now and is not let.
pub fn idle_milli(state: &State, seller: TenantId, class: &str) -> u64 {
    let (Some(own), Some(scope)) = (
        own_milli(state, seller, class),
        state.tree.get(ScopeId::Tenant(seller)),
    ) else {
        return 0;
    };
    let sides = scope.leased.of(class);
    let used = used_milli(state, seller, class).saturating_sub(sides.taken_milli);
    own.saturating_sub(sides.let_milli).saturating_sub(used)
}

pub fn used_milli(state: &State, tenant: TenantId, class: &str) -> u64 {
    let meter = Meter {
        resource: Resource::GpuMilli,
        of: Of::Class(class.into()),
    };
    let scope = state.tree.get(ScopeId::Tenant(tenant));
    scope.and_then(|scope| scope.used.get(&meter)).unwrap_or(0)
}

/// What a node has of a class; nothing where it has others too, for it is let whole.
pub fn node_milli(node: &Node, class: &str) -> u64 {
    let alike = node.gpus.iter().all(|gpu| *gpu.facts.class == *class);
    let present = node.gpus.iter().filter(|gpu| gpu.present).count() as u64;
    if alike { present * 1000 } else { 0 }
}

/// Up, whole, checked, and nobody is on it.
fn is_idle(state: &State, node: &Node, seller: TenantId) -> bool {
    works(node)
        && node.labels.dedicated == Some(seller)
        && node.let_to.is_none()
        && node.allocations.is_empty()
        && node.gpus.iter().all(|gpu| is_checked(state, gpu.id))
}

/// Whether a node takes work on all its GPUs.
pub fn works(node: &Node) -> bool {
    node.status == NodeStatus::Up
        && node
            .gpus
            .iter()
            .all(|gpu| gpu.present && gpu.quarantine.is_none())
}
