//! Folding what happens on the exchange: quota over and back, money into escrow and out of it.

use crate::event::Event;
use crate::id::{GpuId, NodeId, TenantId};
use crate::ledger::account::{AccountId, Posting};
use crate::market::auto::Auto;
use crate::market::bid::Bid;
use crate::market::check::{GpuCheck, Question, Untried, is_same_claim};
use crate::market::fill::used_milli;
use crate::market::funds::{cost, counted_as};
use crate::market::lease::{Lease, LeaseEnd};
use crate::market::settle::promise;
use crate::money::Micros;
use crate::schedule::fleet::Inventory;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;

impl State {
    pub(super) fn apply_market(&mut self, at: Time, event: &Event) {
        match event {
            Event::MarketTermsSet { terms } => self.market.terms = terms.clone(),
            Event::OfferMade { offer } => {
                self.saw_id(offer.id.0);
                if offer.forecast.is_some() {
                    let (seller, class) = (offer.seller, offer.spec.class.clone());
                    self.market
                        .change_auto(seller, &class, |auto| auto.offer = Some(offer.id));
                }
                self.market.insert_offer((**offer).clone());
            }
            Event::OfferRenewed { offer, open, .. } => self
                .market
                .change_offer(*offer, |offer| offer.open.clone_from(open)),
            Event::OfferWithdrawn { offer, .. } => {
                let gone = self.market.remove_offer(*offer);
                let (seller, class) = (gone.seller, gone.spec.class);
                self.market.change_auto(seller, &class, |auto| {
                    auto.offer = auto.offer.filter(|stands| stands != offer);
                });
                self.prune_checks();
            }
            Event::AutoOfferSet { seller, spec } => {
                let used = used_milli(self, *seller, &spec.class);
                let auto = match self.market.auto(*seller, &spec.class) {
                    Some(known) => known.with((**spec).clone()),
                    None => Auto::new(*seller, (**spec).clone(), used, at),
                };
                self.market.set_auto(auto);
            }
            Event::AutoOfferRemoved { seller, class } => self.market.remove_auto(*seller, class),
            Event::BidPlaced { bid } => {
                self.saw_id(bid.id.0);
                self.hold_for_bid(at, bid, bid.held());
                self.market.insert_bid((**bid).clone());
            }
            Event::BidEnded { bid, .. } => {
                let bid = self.market.remove_bid(*bid);
                self.release_for_bid(at, &bid);
            }
            Event::LeaseBegan { lease, escrow } => self.begin_lease(at, lease, escrow),
            Event::LeaseRecalled { lease, by, end, .. } => self.market.change_lease(*lease, |lease| {
                lease.recalled = Some(*by);
                lease.end = *end;
            }),
            Event::LeaseVacating { lease, victims, .. } => {
                for victim in victims {
                    self.living_job(*victim).evictions.note(at);
                }
                self.market.change_lease(*lease, |lease| lease.vacating = true);
                let lease = self.market.lease(*lease).cloned();
                self.shift_taken(
                    &lease.expect("INVARIANT: events name live leases"),
                    |milli, of_lease| milli - of_lease,
                );
            }
            Event::LeaseEnded {
                lease,
                why,
                had_ms,
                cost,
                postings,
                ..
            } => {
                let lease = self.market.remove_lease(*lease);
                self.end_lease(at, &lease, *why, *had_ms, *cost, postings);
            }
            Event::GpuCheckAsked {
                node,
                gpu,
                number,
                due,
            } => {
                self.saw_id(*number);
                let check = self.market.checks.entry(*gpu).or_insert(GpuCheck {
                    node: *node,
                    open: None,
                    passed: None,
                    next: *due,
                });
                check.open = Some(Question {
                    number: *number,
                    due: *due,
                });
            }
            Event::GpuChecked {
                gpu,
                report,
                lie,
                next,
                ..
            } => {
                if let Some(check) = self.market.checks.get_mut(gpu) {
                    check.open = None;
                    check.passed = match (lie, &report.untried) {
                        (None, None) => Some(at),
                        (None, Some(Untried::InUse)) => check.passed,
                        _ => None,
                    };
                    check.next = *next;
                }
            }
            _ => {}
        }
    }

    fn hold_for_bid(&mut self, at: Time, bid: &Bid, held: Micros) {
        self.accounts.hold(AccountId::Tenant(bid.tenant), held);
        let ofs = counted_as(&bid.spec.class);
        self.tree.for_chain(bid.scope, |scope| {
            scope.spending.hold(&ofs, at, cost(held));
            scope.leased.bound.0 += held.0;
        });
    }

    fn release_for_bid(&mut self, at: Time, bid: &Bid) {
        let held = bid.held();
        self.accounts.release(AccountId::Tenant(bid.tenant), held);
        let ofs = counted_as(&bid.spec.class);
        self.tree.for_chain(bid.scope, |scope| {
            scope.spending.release(&ofs, at, cost(held));
            scope.leased.bound.0 -= held.0;
        });
    }

    fn begin_lease(&mut self, at: Time, lease: &Lease, escrow: &Posting) {
        self.saw_id(lease.id.0);
        if let Some(bid) = lease.bid {
            let mut bid = self.market.remove_bid(bid);
            self.release_for_bid(at, &bid);
            bid.left_milli = bid
                .left_milli
                .checked_sub(lease.gpu_milli)
                .expect("INVARIANT: a bid gets no more than it wants");
            if bid.left_milli > 0 {
                self.hold_for_bid(at, &bid, bid.held());
                self.market.insert_bid(bid);
            }
        }
        self.accounts.post(escrow);
        let ofs = counted_as(&lease.class);
        self.tree.for_chain(lease.scope, |scope| {
            scope.spending.hold(&ofs, at, cost(lease.escrow));
            scope.leased.bound.0 += lease.escrow.0;
        });
        self.shift_taken(lease, |milli, of_lease| milli + of_lease);
        self.shift_let(lease, |milli, of_lease| milli + of_lease);
        self.market.change_offer(lease.offer, |offer| {
            offer.leased_milli += lease.gpu_milli;
            // INVARIANT: never is more leased than offered.
            assert!(
                offer.leased_milli <= offer.spec.gpu_milli,
                "INVARIANT: {} is leased beyond what it has",
                offer.id
            );
        });
        let gpu_ms = lease.gpu_ms(lease.length_ms());
        self.market
            .prices
            .note(&lease.class, lease.price, gpu_ms, lease.escrow, at);
        self.let_nodes(lease, Some(lease.buyer));
        self.market.insert_lease(lease.clone());
    }

    fn end_lease(
        &mut self,
        at: Time,
        lease: &Lease,
        why: LeaseEnd,
        had_ms: u64,
        spent: Micros,
        postings: &[Posting],
    ) {
        for posting in postings {
            self.accounts.post(posting);
        }
        // INVARIANT: escrow holds what live leases were paid, no less.
        assert!(
            self.accounts.get(AccountId::Escrow).posted.0 >= 0,
            "INVARIANT: more was paid out of escrow than into it"
        );
        let seller = AccountId::Tenant(lease.seller);
        let to_seller = postings
            .iter()
            .filter(|posting| posting.from == AccountId::Escrow && posting.to == seller);
        self.market.paid_out.0 += to_seller.map(|posting| posting.amount.0).sum::<i64>();
        let ofs = counted_as(&lease.class);
        let back = Micros(lease.escrow.0 - spent.0);
        self.tree.for_chain(lease.scope, |scope| {
            scope.spending.release(&ofs, at, cost(back));
            scope.spending.settle(&ofs, at, cost(spent));
            scope.leased.bound.0 -= lease.escrow.0;
        });
        if !lease.vacating {
            self.shift_taken(lease, |milli, of_lease| milli - of_lease);
        }
        self.shift_let(lease, |milli, of_lease| milli - of_lease);
        self.market
            .change_offer(lease.offer, |offer| offer.leased_milli -= lease.gpu_milli);
        let (kept, broken) = promise(lease, why, had_ms);
        let standing = self.market.sellers.entry(lease.seller).or_default();
        standing.note(kept, broken, at);
        self.let_nodes(lease, None);
        self.prune_checks();
    }

    /// Checks of nodes that are neither on offer nor let are forgotten: whoever offers one again has it checked anew.
    /// Those of a tenant's own are kept, so that it may list what it brought at once.
    pub(super) fn prune_checks(&mut self) {
        let fleet = &self.fleet;
        let is_own = |node| fleet.node(node).is_some_and(|node| node.owner.is_some());
        self.market.prune_checks(is_own);
    }

    /// A GPU of which more is said than it showed has yet to show it.
    pub(super) fn doubt_changed(&mut self, at: Time, node: NodeId, inventory: &Inventory, gpus: &[GpuId]) {
        for (facts, gpu) in inventory.gpus.iter().zip(gpus) {
            let before = self.fleet.node(node).and_then(|node| node.gpu(*gpu));
            let other = before.is_some_and(|before| !is_same_claim(&before.facts, facts));
            if let Some(check) = self.market.checks.get_mut(gpu).filter(|_| other) {
                check.passed = None;
                check.next = at;
            }
        }
    }

    /// Of the buyer's chain up to its tenant.
    fn shift_taken(&mut self, lease: &Lease, shift: impl Fn(u64, u64) -> u64) {
        let chain = self.tree.chain(lease.scope).map(|scope| scope.id);
        let chain: Vec<ScopeId> = chain.filter(|scope| *scope != ScopeId::Platform).collect();
        for scope in chain {
            self.tree.get_mut(scope).leased.change(&lease.class, |sides| {
                sides.taken_milli = shift(sides.taken_milli, lease.gpu_milli);
            });
        }
    }

    fn shift_let(&mut self, lease: &Lease, shift: impl Fn(u64, u64) -> u64) {
        let seller = self.tree.get_mut(ScopeId::Tenant(lease.seller));
        seller.leased.change(&lease.class, |sides| {
            sides.let_milli = shift(sides.let_milli, lease.gpu_milli);
        });
    }

    fn let_nodes(&mut self, lease: &Lease, to: Option<TenantId>) {
        for node in &lease.nodes {
            self.fleet.change_node(*node, |node| node.let_to = to);
        }
    }

    /// The tenant whose use changes with the event, if a standing order of its goes by that.
    pub(super) fn watched_by_auto(&self, event: &Event) -> Option<TenantId> {
        self.market.autos().next()?;
        let job = match event {
            Event::JobAdmitted { job, .. }
            | Event::JobResuming { job, .. }
            | Event::JobResized { job, .. }
            | Event::JobPaused { job }
            | Event::JobKept { job, .. }
            | Event::JobRequeued { job, .. }
            | Event::JobEnded { job, .. } => job,
            _ => return None,
        };
        let owner = self.jobs.get(job)?.owner;
        self.tree.tenant_of(ScopeId::User(owner))
    }

    pub(super) fn note_for_auto(&mut self, tenant: TenantId, at: Time) {
        let classes: Vec<Box<str>> = self.market.classes_with_auto(tenant).cloned().collect();
        for class in classes {
            let used = used_milli(self, tenant, &class);
            self.market
                .change_auto(tenant, &class, |auto| auto.note(used, at));
        }
    }
}
