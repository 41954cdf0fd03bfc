//! What must be true of the exchange, recomputed from its offers, bids and leases alone.

use std::collections::BTreeMap;

use tenure_domain::State;
use tenure_domain::id::{NodeId, OfferId, TenantId};
use tenure_domain::ledger::account::AccountId;
use tenure_domain::meter::Of;
use tenure_domain::tenancy::leased::Sides;
use tenure_domain::tenancy::scope::ScopeId;

fn chain(state: &State, scope: ScopeId) -> Vec<ScopeId> {
    let up = |scope: &ScopeId| state.tree.get(*scope).expect("a living scope").parent;
    std::iter::successors(Some(scope), up).collect()
}

/// Money set aside in budgets: what is in escrow, and what bids that wait may cost.
pub fn held(state: &State) -> Vec<(ScopeId, Of, i64)> {
    let leases = state.market.leases();
    let leases = leases.map(|lease| (lease.scope, lease.class.clone(), lease.escrow.0));
    let bids = state.market.bids();
    let bids = bids.map(|bid| (bid.scope, bid.spec.class.clone(), bid.held().0));
    let mut held = Vec::new();
    for (scope, class, money) in leases.chain(bids) {
        for above in chain(state, scope) {
            held.push((above, Of::All, money));
            held.push((above, Of::Class((*class).into()), money));
        }
    }
    held
}

pub fn is_whole(state: &State) {
    let mut sides: BTreeMap<(ScopeId, Box<str>), Sides> = BTreeMap::new();
    let mut bound: BTreeMap<ScopeId, i64> = BTreeMap::new();
    let mut of_offers: BTreeMap<OfferId, u64> = BTreeMap::new();
    let mut lets: BTreeMap<NodeId, TenantId> = BTreeMap::new();
    let mut escrow = 0;
    for lease in state.market.leases() {
        assert_ne!(lease.seller, lease.buyer, "nobody trades with itself");
        assert!(lease.start <= lease.end);
        assert_eq!(state.tree.tenant_of(lease.scope), Some(lease.buyer));
        escrow += lease.escrow.0;
        *of_offers.entry(lease.offer).or_default() += lease.gpu_milli;
        for scope in chain(state, lease.scope) {
            *bound.entry(scope).or_default() += lease.escrow.0;
            if scope != ScopeId::Platform && !lease.vacating {
                sides.entry((scope, lease.class.clone())).or_default().taken_milli += lease.gpu_milli;
            }
        }
        let seller = (ScopeId::Tenant(lease.seller), lease.class.clone());
        sides.entry(seller).or_default().let_milli += lease.gpu_milli;
        for node in &lease.nodes {
            assert!(lets.insert(*node, lease.buyer).is_none(), "a node is let once");
        }
    }
    for bid in state.market.bids() {
        assert!(bid.left_milli > 0 && bid.left_milli <= bid.spec.gpu_milli);
        for scope in chain(state, bid.scope) {
            *bound.entry(scope).or_default() += bid.held().0;
        }
    }
    assert_eq!(
        state.accounts.get(AccountId::Escrow).posted.0,
        escrow,
        "in escrow is what live leases paid"
    );
    for offer in state.market.offers() {
        let leased = of_offers.get(&offer.id).copied().unwrap_or(0);
        assert_eq!(
            offer.leased_milli, leased,
            "{}: leased is the sum of leases",
            offer.id
        );
        assert!(
            leased <= offer.spec.gpu_milli,
            "{}: never more than offered",
            offer.id
        );
    }
    for scope in state.tree.iter() {
        assert_eq!(
            scope.leased.bound.0,
            bound.remove(&scope.id).unwrap_or(0),
            "{}: bound is what leases and bids below bind",
            scope.id
        );
        for (class, has) in scope.leased.classes() {
            let sum = sides.remove(&(scope.id, class.clone())).unwrap_or_default();
            assert_eq!(has, sum, "{}: {class} taken and let by leases", scope.id);
        }
    }
    assert!(sides.is_empty(), "every lease is counted: {sides:?}");
    for node in state.fleet.nodes() {
        assert_eq!(
            node.let_to,
            lets.remove(&node.id),
            "{}: let by a lease",
            node.name
        );
    }
}
