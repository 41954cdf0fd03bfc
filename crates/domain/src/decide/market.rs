//! The exchange: its terms, offers and standing orders. Each decision is whole: what is matched, leased and put into escrow is
//! one batch. Bids are decided in `bid`, what becomes of leases in `lease`.

mod bid;
mod lease;

use std::collections::BTreeSet;

use super::Case;
use crate::booking::zone::Zone;
use crate::event::Event;
use crate::id::{NodeId, OfferId, TenantId};
use crate::market::advance::leases;
use crate::market::allow::{may_buy, may_sell};
use crate::market::auto::AutoSpec;
use crate::market::check::is_to_be_asked;
use crate::market::fill::{Found, Taken, Want, look, node_milli, own_milli};
use crate::market::offer::{Offer, OfferSpec, Source};
use crate::market::terms::MarketTerms;
use crate::market::window::Windows;
use crate::money::Micros;
use crate::refusal::{Code, Refusal};
use crate::schedule::fleet::Gpu;
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;
use crate::time::SECOND_MS;

/// Live ones of one tenant.
const MAX_OFFERS: usize = 100_000;
const MAX_AUTOS: usize = 200;
/// Bids a new offer is laid beside at once; time has it laid beside the others.
const LOOKS: usize = 1000;
/// A command has only so many ids.
const MAX_QUESTIONS: usize = 2000;

impl Case<'_> {
    pub(super) fn set_market_terms(&self, terms: &MarketTerms) -> Result<Vec<Event>, Refusal> {
        self.may(Action::PriceSet, ScopeId::Platform)?;
        terms.check()?;
        let same = self.state.market.terms == *terms;
        let set = Event::MarketTermsSet { terms: terms.clone() };
        Ok(if same { vec![] } else { vec![set] })
    }

    pub(super) fn may_sell_for(&self, seller: TenantId) -> Result<(), Refusal> {
        self.state.tree.find(ScopeId::Tenant(seller))?;
        self.may(Action::MarketTrade, ScopeId::Tenant(seller))
    }

    pub(super) fn make_offer(
        &mut self,
        seller: TenantId,
        spec: &OfferSpec,
        zone: Option<&Zone>,
    ) -> Result<Vec<Event>, Refusal> {
        self.may_sell_for(seller)?;
        let at = self.command.at;
        spec.check(at)?;
        if let Windows::Daily { zone: name, .. } = &spec.windows
            && zone.is_none_or(|zone| zone.name.name != *name)
        {
            return Err(Refusal::invalid(
                "/windows/zone",
                "no such time zone in the tz database",
            ));
        }
        let by = self.command.by.user_id();
        may_sell(self.state, seller, spec, by, at)?;
        let questions = match &spec.source {
            Source::Quota => {
                self.has_quota(seller, spec)?;
                vec![]
            }
            Source::Nodes { nodes } => self.has_nodes(seller, spec, nodes)?,
        };
        if self.state.market.offers_of(seller).len() >= MAX_OFFERS {
            return Err(Refusal::new(
                Code::WrongPhase,
                format!("there are {MAX_OFFERS} offers of this tenant already"),
            ));
        }
        let offer = Offer {
            id: OfferId(self.ids.take()),
            seller,
            spec: spec.clone(),
            made: at,
            open: spec.windows.open(zone, at),
            leased_milli: 0,
            forecast: None,
            by,
        };
        let mut events = vec![Event::OfferMade {
            offer: Box::new(offer.clone()),
        }];
        events.extend(questions);
        events.extend(self.serve_from(&offer));
        Ok(events)
    }

    /// Who waited for it, the one that pays most first.
    fn serve_from(&mut self, offer: &Offer) -> Vec<Event> {
        let state = self.state;
        let Some(lists) = state.market.book().class(&offer.spec.class) else {
            return vec![];
        };
        let (mut events, mut taken) = (Vec::new(), Taken::default());
        for (price, _, id) in lists.bids.iter().take(LOOKS) {
            if price.0 < offer.spec.price {
                break;
            }
            let Some(bid) = state.market.bid(*id) else {
                continue;
            };
            let want = Want::of(bid, self.command.at);
            // What it may cost is held already.
            if may_buy(state, &want, Some(Micros::ZERO)).is_err() {
                continue;
            }
            let mut found = Found::default();
            look(state, &want, offer, want.gpu_milli, &mut taken, &mut found);
            events.extend(leases(state, &want, &found, &mut self.ids));
        }
        events
    }

    fn has_quota(&self, seller: TenantId, spec: &OfferSpec) -> Result<(), Refusal> {
        let (state, class) = (self.state, &spec.class);
        let title = state.tree.title(ScopeId::Tenant(seller));
        let Some(own) = own_milli(state, seller, class) else {
            return Err(Refusal::new(
                Code::NothingToSell,
                format!("{title} has neither a quota nor a nominal quota of {class}"),
            )
            .field("/class")
            .hint("only what was given to a tenant is its own to sell"));
        };
        let let_milli = state
            .tree
            .find(ScopeId::Tenant(seller))?
            .leased
            .of(class)
            .let_milli;
        let offered = state.market.offered_milli(seller, class);
        let left = own.saturating_sub(let_milli).saturating_sub(offered);
        if spec.gpu_milli > left {
            return Err(Refusal::new(
                Code::NothingToSell,
                format!(
                    "{title} has {own} gpu_milli of {class}, of which {let_milli} are let and {offered} on offer"
                ),
            )
            .field("/gpu_milli")
            .hint(format!("offer at most {left} gpu_milli")));
        }
        Ok(())
    }

    /// The seller's own, whole, of one class; each GPU that has not passed is asked.
    fn has_nodes(
        &mut self,
        seller: TenantId,
        spec: &OfferSpec,
        nodes: &[NodeId],
    ) -> Result<Vec<Event>, Refusal> {
        let (state, at) = (self.state, self.command.at);
        let refuse = |sentence: String| Refusal::invalid("/source/nodes", sentence);
        let mut milli = 0;
        let mut questions = Vec::new();
        let mut seen = BTreeSet::new();
        for id in nodes {
            let node = state
                .fleet
                .node(*id)
                .filter(|node| node.labels.dedicated == Some(seller));
            let Some(node) = node.filter(|node| seen.insert(node.id)) else {
                return Err(
                    refuse(format!("{id} is not a node of this tenant, or named twice")).hint(
                        "bring one with `tenure node token --tenant`, or ask an operator to dedicate one",
                    ),
                );
            };
            if state.market.node(*id).0.is_some() {
                return Err(refuse(format!("node {} is on offer already", node.name)));
            }
            let of_node = node_milli(node, &spec.class);
            if of_node == 0 {
                return Err(refuse(format!(
                    "node {} has no GPUs, or others than {}; a node is let whole",
                    node.name, spec.class
                )));
            }
            if spec.region.is_some() && node.labels.region != spec.region {
                return Err(Refusal::invalid(
                    "/region",
                    format!("node {} stands elsewhere", node.name),
                ));
            }
            milli += of_node;
            let due = at.plus_ms(state.market.terms.check_answer_s * SECOND_MS);
            let unknown = |gpu: &&Gpu| is_to_be_asked(state.market.gpu_check(gpu.id), at);
            for gpu in node.gpus.iter().filter(unknown) {
                questions.push(Event::GpuCheckAsked {
                    node: *id,
                    gpu: gpu.id,
                    number: self.ids.take(),
                    due,
                });
            }
        }
        if questions.len() > MAX_QUESTIONS {
            return Err(refuse(format!(
                "at most {MAX_QUESTIONS} GPUs are checked for one offer"
            )));
        }
        if milli != spec.gpu_milli {
            return Err(Refusal::invalid(
                "/gpu_milli",
                format!("these nodes have {milli} gpu_milli, and nodes are let whole"),
            ));
        }
        Ok(questions)
    }

    pub(super) fn withdraw_offer(&self, id: OfferId) -> Result<Vec<Event>, Refusal> {
        let offer = self.state.market.offer(id).ok_or_else(Refusal::not_found)?;
        self.may_sell_for(offer.seller)?;
        Ok(vec![Event::OfferWithdrawn {
            offer: id,
            seller: offer.seller,
            why: "the seller withdrew it".into(),
        }])
    }

    pub(super) fn set_auto_offer(&self, seller: TenantId, spec: &AutoSpec) -> Result<Vec<Event>, Refusal> {
        self.may_sell_for(seller)?;
        spec.check()?;
        let market = &self.state.market;
        if own_milli(self.state, seller, &spec.class).is_none() {
            let title = self.state.tree.title(ScopeId::Tenant(seller));
            return Err(Refusal::new(
                Code::NothingToSell,
                format!(
                    "{title} has neither a quota nor a nominal quota of {}",
                    spec.class
                ),
            )
            .field("/class"));
        }
        let known = market.auto(seller, &spec.class);
        if known.is_none() && market.classes_with_auto(seller).count() >= MAX_AUTOS {
            return Err(Refusal::new(
                Code::WrongPhase,
                format!("there are {MAX_AUTOS} standing orders already"),
            ));
        }
        Ok(if known.is_some_and(|known| known.spec == *spec) {
            vec![]
        } else {
            vec![Event::AutoOfferSet {
                seller,
                spec: Box::new(spec.clone()),
            }]
        })
    }

    pub(super) fn remove_auto_offer(&self, seller: TenantId, class: &str) -> Result<Vec<Event>, Refusal> {
        self.may_sell_for(seller)?;
        let auto = self
            .state
            .market
            .auto(seller, class)
            .ok_or_else(Refusal::not_found)?;
        let stands = auto.offer.and_then(|offer| self.state.market.offer(offer));
        let withdrawn = stands.map(|offer| Event::OfferWithdrawn {
            offer: offer.id,
            seller,
            why: "its standing order was removed".into(),
        });
        let removed = Event::AutoOfferRemoved {
            seller,
            class: class.into(),
        };
        Ok(withdrawn.into_iter().chain([removed]).collect())
    }
}
