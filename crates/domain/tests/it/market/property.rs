//! A random life of the exchange beside a naive book, which sorts everything anew for every order: who gets what of whom,
//! in what order, and at what price has to be the same. That nothing is leased twice and every sum is zero is checked
//! after each step by the world itself.

use std::collections::BTreeMap;

use tenure_domain::id::{BidId, LeaseId, OfferId, TenantId};
use tenure_domain::market::bid::{BidKind, BidSpec};
use tenure_domain::market::offer::OfferSpec;
use tenure_domain::money::Micros;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Code, Event, Time, Wish};

use super::street::{HOUR_S, Street, Trader, instant, offer, zone};
use crate::chance::{Chance, Replay, number_from_env};

#[derive(Clone)]
struct NaiveOffer {
    id: OfferId,
    seller: TenantId,
    price: i64,
    made: Time,
    left: u64,
    min_s: u64,
    max_s: u64,
}

#[derive(Clone)]
struct NaiveBid {
    id: BidId,
    buyer: TenantId,
    price: i64,
    made: Time,
    left: u64,
    duration_s: u64,
    expires: Time,
}

/// Of which offer, for which bid, how much, for how much.
type Trade = (OfferId, Option<BidId>, u64, i64);

#[derive(Default)]
struct Naive {
    offers: Vec<NaiveOffer>,
    bids: Vec<NaiveBid>,
    leases: BTreeMap<LeaseId, (OfferId, u64)>,
}

impl Naive {
    fn best(&mut self) -> Vec<&mut NaiveOffer> {
        let mut all: Vec<&mut NaiveOffer> = self.offers.iter_mut().collect();
        all.sort_by_key(|offer| (offer.price, offer.made, offer.id));
        all
    }

    fn take(
        &mut self,
        buyer: TenantId,
        bid: Option<BidId>,
        price: i64,
        duration_s: u64,
        wanted: u64,
    ) -> Vec<Trade> {
        let mut missing = wanted;
        let mut trades = Vec::new();
        for offer in self.best() {
            let fits = offer.price <= price && offer.min_s <= duration_s && duration_s <= offer.max_s;
            let part = offer.left.min(missing);
            if fits && offer.seller != buyer && part > 0 {
                offer.left -= part;
                missing -= part;
                trades.push((offer.id, bid, part, offer.price));
            }
        }
        trades
    }

    fn has_own(&self, buyer: TenantId, price: i64, duration_s: u64) -> bool {
        let fits = |offer: &NaiveOffer| {
            offer.seller == buyer
                && offer.price <= price
                && offer.left > 0
                && (offer.min_s..=offer.max_s).contains(&duration_s)
        };
        self.offers.iter().any(fits)
    }

    /// All who wait, the one that pays most first.
    fn serve(&mut self, now: Time) -> Vec<Trade> {
        let mut bids = self.bids.clone();
        bids.sort_by_key(|bid| (-bid.price, bid.made, bid.id));
        let mut trades = Vec::new();
        for bid in bids.iter().filter(|bid| bid.expires > now) {
            let got = self.take(bid.buyer, Some(bid.id), bid.price, bid.duration_s, bid.left);
            let sum: u64 = got.iter().map(|trade| trade.2).sum();
            if let Some(known) = self.bids.iter_mut().find(|known| known.id == bid.id) {
                known.left -= sum;
            }
            trades.extend(got);
        }
        self.bids.retain(|bid| bid.left > 0 && bid.expires > now);
        trades
    }

    fn note(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::LeaseBegan { lease, .. } => {
                    self.leases.insert(lease.id, (lease.offer, lease.gpu_milli));
                }
                Event::LeaseEnded { lease, .. } => {
                    let (offer, milli) = self.leases.remove(lease).expect("it lived");
                    if let Some(offer) = self.offers.iter_mut().find(|known| known.id == offer) {
                        offer.left += milli;
                    }
                }
                _ => {}
            }
        }
    }
}

fn trades(events: &[Event]) -> Vec<Trade> {
    let began = events.iter().filter_map(|event| match event {
        Event::LeaseBegan { lease, .. } => Some((lease.offer, lease.bid, lease.gpu_milli, lease.price.0)),
        _ => None,
    });
    began.collect()
}

fn step(street: &mut Street, traders: &[Trader], naive: &mut Naive, chance: &mut Chance) {
    let now = street.world.now;
    let who = &traders[chance.below(traders.len() as u64) as usize];
    let (user, tenant, scope) = (who.user, who.tenant, ScopeId::Tenant(who.tenant));
    match chance.below(10) {
        0..=2 => {
            let spec = OfferSpec {
                price: Micros(100_000 * (1 + chance.below(5) as i64)),
                min_lease_s: chance.of(&[60, HOUR_S]),
                max_lease_s: chance.of(&[HOUR_S, 4 * HOUR_S]),
                notice_s: chance.of(&[0, 600]),
                ..offer(1 + chance.below(2000))
            };
            let wish = Wish::MakeOffer {
                seller: tenant,
                spec: Box::new(spec.clone()),
                zone: None,
            };
            let events = match street.world.by(user, wish) {
                Ok(events) => events,
                Err(refusal) => return assert_eq!(refusal.code, Code::NothingToSell),
            };
            let Some(Event::OfferMade { offer }) = events.first() else {
                panic!("{events:?}")
            };
            naive.offers.push(NaiveOffer {
                id: offer.id,
                seller: tenant,
                price: spec.price.0,
                made: now,
                left: spec.gpu_milli,
                min_s: spec.min_lease_s,
                max_s: spec.max_lease_s,
            });
            assert_eq!(trades(&events), naive.serve(now));
            naive.note(&events);
        }
        3..=5 => {
            let waits = chance.one_in(2);
            let spec = BidSpec {
                duration_s: chance.of(&[60, HOUR_S, 2 * HOUR_S]),
                price: Micros(100_000 * (1 + chance.below(5) as i64)),
                kind: match waits {
                    true => BidKind::Limit {
                        expires: now.plus_ms(1000 * (1 + chance.below(2 * HOUR_S))),
                    },
                    false => BidKind::Now { partial: true },
                },
                ..instant(1 + chance.below(3000))
            };
            let own = naive.has_own(tenant, spec.price.0, spec.duration_s);
            let answer = street.bid(user, scope, spec.clone());
            let (bid, events) = match &answer {
                Ok(events) => match events.first() {
                    Some(Event::BidPlaced { bid }) => (Some(bid.id), events.clone()),
                    _ => (None, events.clone()),
                },
                Err(_) => (None, vec![]),
            };
            let got = naive.take(tenant, bid, spec.price.0, spec.duration_s, spec.gpu_milli);
            assert_eq!(trades(&events), got);
            if let Err(refusal) = answer {
                let code = if own { Code::SelfTrade } else { Code::NoOffers };
                assert_eq!(refusal.code, code);
                return;
            }
            let sum: u64 = got.iter().map(|trade| trade.2).sum();
            if let (Some(id), Some(expires)) = (bid, spec.expires()) {
                naive.bids.push(NaiveBid {
                    id,
                    buyer: tenant,
                    price: spec.price.0,
                    made: now,
                    left: spec.gpu_milli - sum,
                    duration_s: spec.duration_s,
                    expires,
                });
                naive.bids.retain(|bid| bid.left > 0);
            }
            naive.note(&events);
        }
        6 => {
            let mine: Vec<OfferId> = naive
                .offers
                .iter()
                .filter(|o| o.seller == tenant)
                .map(|o| o.id)
                .collect();
            let Some(&offer) = chance.pick(&mine) else { return };
            street
                .world
                .by(user, Wish::WithdrawOffer { offer })
                .expect("withdrawn");
            naive.offers.retain(|known| known.id != offer);
        }
        7 => {
            let all: Vec<LeaseId> = naive.leases.keys().copied().collect();
            let Some(&lease) = chance.pick(&all) else { return };
            let lives = street.world.state.market.lease(lease).expect("it lives");
            let seller = lives.seller;
            let by = traders
                .iter()
                .find(|trader| trader.tenant == seller)
                .expect("a trader")
                .user;
            street
                .world
                .by(by, Wish::RecallLease { lease })
                .expect("recalled");
        }
        8 => {
            let mine: Vec<BidId> = naive
                .bids
                .iter()
                .filter(|b| b.buyer == tenant)
                .map(|b| b.id)
                .collect();
            let Some(&bid) = chance.pick(&mine) else { return };
            street.world.by(user, Wish::CancelBid { bid }).expect("cancelled");
            naive.bids.retain(|known| known.id != bid);
        }
        _ => {
            street.world.pass_s(1 + chance.below(HOUR_S / 2));
            let now = street.world.now;
            loop {
                let events = street
                    .world
                    .system(Wish::AdvanceMarket { zones: zone })
                    .expect("time passes");
                assert_eq!(trades(&events), naive.serve(now));
                naive.note(&events);
                if events.is_empty() {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_random_life_is_that_of_a_naive_book() {
    let steps = number_from_env("TENURE_MARKET_STEPS", 3000);
    let first = number_from_env("TENURE_PROPERTY_SEED", 1);
    for seed in first..first + 3 {
        let mut chance = Chance::new(seed);
        let mut street = Street::new();
        street.world.thorough = false;
        let traders: Vec<Trader> = (0..5).map(|n| street.trader(&format!("t{n}"), 6000)).collect();
        let mut naive = Naive::default();
        let mut replay = Replay { seed, step: 0 };
        let mut leased = 0;
        for n in 0..steps {
            replay.step = n;
            step(&mut street, &traders, &mut naive, &mut chance);
            leased = leased.max(naive.leases.len());
        }
        assert!(leased > 5, "something was traded: {leased} leases at once");
        // Everything ends, and all accounts together have nothing.
        street.world.pass_s(24 * HOUR_S);
        for _ in 0..3 {
            street
                .world
                .system(Wish::AdvanceMarket { zones: zone })
                .expect("time passes");
            street.world.pass_s(24 * HOUR_S);
        }
        assert_eq!(street.world.state.market.leases().count(), 0);
    }
}
