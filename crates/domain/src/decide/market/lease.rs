//! Leases that are wanted back or given back, and what nodes answer when their GPUs are checked.

use std::collections::BTreeSet;

use crate::actor::Actor;
use crate::decide::Case;
use crate::event::Event;
use crate::id::{GpuId, LeaseId, NodeId};
use crate::market::check::{Finding, GpuReport, again, put_off};
use crate::market::fault::leave_of;
use crate::market::lease::{Lease, LeaseEnd, RecallReason};
use crate::market::offer::{Offer, Source};
use crate::market::settle;
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::role::Action;
use crate::time::{SECOND_MS, Time};

impl Case<'_> {
    pub(in crate::decide) fn recall_lease(&self, id: LeaseId) -> Result<Vec<Event>, Refusal> {
        let lease = self.state.market.lease(id).ok_or_else(Refusal::not_found)?;
        self.may_sell_for(lease.seller)?;
        let sooner = notice_end(lease, self.command.at) < lease.end;
        Ok(if lease.recalled.is_some() || !sooner {
            vec![]
        } else {
            vec![recalled(lease, RecallReason::Seller, self.command.at)]
        })
    }

    pub(in crate::decide) fn return_lease(&self, id: LeaseId) -> Result<Vec<Event>, Refusal> {
        let lease = self.state.market.lease(id).ok_or_else(Refusal::not_found)?;
        self.may(Action::MarketTrade, lease.scope)?;
        let mut events = vec![settle::end(lease, LeaseEnd::Returned, self.command.at)];
        events.extend(leave_of(self.state, lease, &mut BTreeSet::new()));
        Ok(events)
    }

    pub(in crate::decide) fn answer_gpu_check(
        &self,
        node: NodeId,
        gpu: GpuId,
        number: u64,
        report: &GpuReport,
    ) -> Result<Vec<Event>, Refusal> {
        let (state, at) = (self.state, self.command.at);
        if !matches!(self.command.by, Actor::System) && self.command.by != Actor::Node(node) {
            return Err(Refusal::not_found());
        }
        report.check()?;
        let market = &state.market;
        let asked = market.gpu_check(gpu).filter(|check| check.node == node);
        let open = asked
            .and_then(|check| check.open)
            .filter(|open| open.number == number);
        let claim = state.fleet.node(node).and_then(|node| node.gpu(gpu));
        let (Some(_), Some(claim)) = (open, claim) else {
            return Err(Refusal::new(
                Code::ContradictoryReport,
                "nobody asked this of the node, or it was answered",
            ));
        };
        let finding = report.finding(&claim.facts, &market.terms);
        if finding == Finding::PutOff && claim.holders.is_empty() {
            // The question stays open, and who does not answer it in time is taken for broken.
            return Err(Refusal::new(
                Code::ContradictoryReport,
                "nobody's work is on this GPU, so it can be measured",
            ));
        }
        let checked = |lie: Option<String>, next| Event::GpuChecked {
            node,
            gpu,
            number,
            report: report.clone(),
            lie,
            next,
        };
        let later = again(&market.terms, gpu, number, at);
        let (mut events, lie) = match finding {
            Finding::Passed => return Ok(vec![checked(None, later)]),
            Finding::PutOff => return Ok(vec![checked(None, put_off(&market.terms, at))]),
            Finding::Unknown(why) => {
                let why = format!("GPU {gpu} could not be measured: {why}");
                let mut events = vec![checked(None, later)];
                events.extend(unlet(state, node, &why, at));
                return Ok(events);
            }
            Finding::Lie(lie) => (vec![checked(Some(lie.clone()), later)], lie),
        };
        let (offer, lease) = market.node(node);
        let seller = offer
            .and_then(|offer| market.offer(offer))
            .map(|offer| offer.seller);
        let seller = seller.or(lease
            .and_then(|lease| market.lease(lease))
            .map(|lease| lease.seller));
        // Who lied of one GPU is not believed of the others.
        let nodes_of = |offer: &&Offer| Some(offer.seller) == seller && offer.spec.source != Source::Quota;
        events.extend(
            market
                .offers()
                .filter(nodes_of)
                .map(|offer| Event::OfferWithdrawn {
                    offer: offer.id,
                    seller: offer.seller,
                    why: format!("GPU {gpu} is not what it was said to be: {lie}"),
                }),
        );
        if let Some(lease) = lease.and_then(|lease| market.lease(lease)) {
            events.push(settle::end(lease, LeaseEnd::Lied, at));
            events.extend(leave_of(state, lease, &mut BTreeSet::new()));
        }
        Ok(events)
    }
}

/// A node of which nobody can say any more whether it is what it claims: it is not offered, and not paid for from now on.
fn unlet(state: &State, node: NodeId, why: &str, at: Time) -> Vec<Event> {
    let (offer, lease) = state.market.node(node);
    let withdrawn = offer.and_then(|offer| state.market.offer(offer));
    let mut events: Vec<Event> = withdrawn
        .map(|offer| Event::OfferWithdrawn {
            offer: offer.id,
            seller: offer.seller,
            why: why.to_owned(),
        })
        .into_iter()
        .collect();
    if let Some(lease) = lease.and_then(|lease| state.market.lease(lease)) {
        events.push(settle::end(lease, LeaseEnd::Fault, at));
        events.extend(leave_of(state, lease, &mut BTreeSet::new()));
    }
    events
}

/// When a lease that is wanted back now ends.
pub(super) fn notice_end(lease: &Lease, at: Time) -> Time {
    at.plus_ms(lease.notice_s * SECOND_MS).min(lease.end)
}

pub(super) fn recalled(lease: &Lease, by: RecallReason, at: Time) -> Event {
    Event::LeaseRecalled {
        lease: lease.id,
        scope: lease.scope,
        seller: lease.seller,
        by,
        end: notice_end(lease, at),
    }
}
