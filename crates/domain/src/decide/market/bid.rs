//! Bidding: what there is now, or a place in the book; and taking from who bids less.

use super::lease::{notice_end, recalled};
use crate::decide::Case;
use crate::event::Event;
use crate::id::BidId;
use crate::market::advance::{escrow_of, leases};
use crate::market::allow::{may_bind, may_buy, may_trade};
use crate::market::bid::{Bid, BidKind, BidSpec};
use crate::market::fill::{Found, Taken, Want, find, suits};
use crate::market::funds;
use crate::market::lease::RecallReason;
use crate::refusal::{Code, Refusal};
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;

impl Case<'_> {
    pub(in crate::decide) fn place_bid(
        &mut self,
        scope: ScopeId,
        spec: &BidSpec,
    ) -> Result<Vec<Event>, Refusal> {
        self.may(Action::MarketTrade, scope)?;
        let (state, at) = (self.state, self.command.at);
        let Some(buyer) = state.tree.tenant_of(scope) else {
            return Err(Refusal::invalid(
                "/scope",
                "a tenant buys, or a subscriber or user of one",
            ));
        };
        spec.check(at)?;
        let waits = !matches!(spec.kind, BidKind::Now { .. });
        let bid = waits.then(|| Bid {
            id: BidId(self.ids.take()),
            scope,
            tenant: buyer,
            spec: spec.clone(),
            made: at,
            left_milli: spec.gpu_milli,
            by: self.command.by.user_id(),
        });
        let want = Want {
            scope,
            buyer,
            spec,
            bid: bid.as_ref().map(|bid| bid.id),
            gpu_milli: spec.gpu_milli,
            by: self.command.by.user_id(),
            at,
        };
        // What is paid at once is known when it was found.
        may_buy(state, &want, bid.as_ref().map(Bid::held))?;
        let found = find(state, &want, &mut Taken::default());
        if found.fills.is_empty() && found.own {
            return Err(Refusal::new(
                Code::SelfTrade,
                "the only offers that would do are of the same tenant",
            )
            .hint("withdraw them and use the quota, or bid where others offer"));
        }
        let Some(bid) = bid else {
            return self.buy(&want, &found);
        };
        funds::fits(state, scope, buyer, &spec.class, bid.held(), at)?;
        let mut events = vec![Event::BidPlaced {
            bid: Box::new(bid.clone()),
        }];
        let left = spec.gpu_milli - found.gpu_milli();
        events.extend(leases(state, &want, &found, &mut self.ids));
        if spec.is_spot() && left > 0 {
            events.extend(self.outbid(&want, bid.id, left));
        }
        Ok(events)
    }

    fn buy(&mut self, want: &Want<'_>, found: &Found<'_>) -> Result<Vec<Event>, Refusal> {
        let (state, spec) = (self.state, want.spec);
        let had = found.gpu_milli();
        let partial = spec.kind == BidKind::Now { partial: true };
        if had == 0 || (had < spec.gpu_milli && !partial) {
            if let (0, Some(barred)) = (had, &found.barred) {
                return Err(barred.clone());
            }
            let sentence = format!(
                "{had} of {} gpu_milli of {} are to be had now at {} or less for {} s",
                spec.gpu_milli, spec.class, spec.price, spec.duration_s
            );
            return Err(Refusal::new(Code::NoOffers, sentence)
                .hint("take less (`partial`), offer more, or place a limit bid, which waits"));
        }
        let events: Vec<Event> = found
            .fills
            .iter()
            .map(|fill| fill.lease(state, want, &mut self.ids))
            .collect();
        let escrow = escrow_of(&events);
        may_bind(state, want, Some(escrow))?;
        funds::fits(state, want.scope, want.buyer, &spec.class, escrow, want.at)?;
        Ok(events)
    }

    /// Has spot leases that pay less recalled, the one that pays least first, until what is missing will come free.
    fn outbid(&self, want: &Want<'_>, bid: BidId, missing: u64) -> Vec<Event> {
        let state = self.state;
        let Some(lists) = state.market.book().class(&want.spec.class) else {
            return vec![];
        };
        let (mut events, mut missing) = (Vec::new(), missing);
        for (price, _, id) in &lists.spots {
            if missing == 0 || *price >= want.spec.price {
                break;
            }
            let Some(lease) = state.market.lease(id.0) else {
                continue;
            };
            let offer = state.market.offer(lease.offer);
            let will_do = offer.is_some_and(|offer| {
                let then = Want {
                    at: notice_end(lease, want.at),
                    bid: None,
                    ..*want
                };
                // Nobody leaves for who would not be let in.
                let let_in = || may_trade(state, &then, offer, lease.gpu_milli.min(missing)).is_ok();
                offer.seller != want.buyer && suits(state, &then, offer) && let_in()
            });
            if !will_do || lease.buyer == want.buyer {
                continue;
            }
            missing = missing.saturating_sub(lease.gpu_milli);
            events.push(recalled(lease, RecallReason::Outbid(bid), want.at));
        }
        events
    }

    pub(in crate::decide) fn cancel_bid(&self, id: BidId) -> Result<Vec<Event>, Refusal> {
        let bid = self.state.market.bid(id).ok_or_else(Refusal::not_found)?;
        self.may(Action::MarketTrade, bid.scope)?;
        Ok(vec![Event::BidEnded {
            bid: id,
            scope: bid.scope,
            why: "it was cancelled".into(),
        }])
    }
}
