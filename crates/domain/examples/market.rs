//! What an order costs: 100,000 offers of 1,000 sellers in eight classes; bids through `decide`, with policies, budgets and
//! funds, each applied; and a search over all offers. Run with `cargo run --release -p tenure-domain --example market`.

use std::time::Instant;

use tenure_domain::id::{Ids, TenantId};
use tenure_domain::ledger::price::Prices;
use tenure_domain::market::bid::{BidKind, BidSpec};
use tenure_domain::market::offer::{OfferSpec, Source};
use tenure_domain::market::window::Windows;
use tenure_domain::money::Micros;
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::tenancy::trade::TradePolicy;
use tenure_domain::time::Period;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Actor, Command, Event, State, Time, Wish, decide};

const SELLERS: usize = 1_000;
const OFFERS: usize = 100_000;
const ORDERS: usize = 200_000;

struct Cell {
    state: State,
    ids: u64,
    at: Time,
    by: Actor,
}

impl Cell {
    fn wish(&mut self, wish: Wish) -> Vec<Event> {
        let command = Command {
            at: self.at,
            by: self.by.clone(),
            ids: self.ids,
            wish,
        };
        self.ids += Ids::BLOCK;
        let events = decide(&self.state, &command).expect("decided");
        for event in &events {
            self.state.apply(self.at, event);
        }
        events
    }

    fn tenant(&mut self, name: String) -> TenantId {
        match self.wish(Wish::CreateTenant { name })[..] {
            [
                Event::ScopeCreated {
                    scope: ScopeId::Tenant(tenant),
                    ..
                },
                ..,
            ] => tenant,
            _ => panic!("no tenant"),
        }
    }
}

fn class(n: usize) -> Box<str> {
    format!("class-{}", n % 8).into()
}

fn main() {
    let mut cell = Cell {
        state: State::default(),
        ids: 1 << 22,
        at: Time(1_772_442_000_000),
        by: Actor::System,
    };
    let founded = cell.wish(Wish::Found {
        platform: "cell".into(),
        owner: "root".into(),
        key: Digest([1; 32]),
        prices: Prices::default(),
    });
    let owner = founded.iter().find_map(|event| match event {
        Event::ScopeCreated {
            scope: ScopeId::User(user),
            ..
        } => Some(*user),
        _ => None,
    });
    cell.by = Actor::user(owner.expect("an owner"));
    let sellers: Vec<TenantId> = (0..SELLERS).map(|n| cell.tenant(format!("seller-{n}"))).collect();
    let buyer = cell.tenant("buyer".into());
    for seller in &sellers {
        let quota = (0..8).map(|n| {
            let meter = format!("gpu_milli@class:{}", class(n));
            (meter.parse().expect("a meter"), 1 << 30)
        });
        let quota = quota.collect();
        cell.wish(Wish::SetQuota {
            scope: ScopeId::Tenant(*seller),
            quota,
            revision: None,
        });
    }
    let trade = TradePolicy {
        max_price_micros: Some(100_000_000),
        max_bound_micros: Some(1 << 60),
        ..TradePolicy::default()
    };
    for scope in [ScopeId::Platform, ScopeId::Tenant(buyer)] {
        let policy = Policy {
            trade: Some(Box::new(trade.clone())),
            ..Policy::default()
        };
        cell.wish(Wish::SetPolicy {
            scope,
            policy,
            revision: None,
        });
    }
    let budget = Budget {
        period: Period::Month,
        class: None,
        sku: None,
        kind: None,
        money_micros: Some(1 << 60),
        gpu_seconds: None,
        frames: None,
        alerts_permille: Vec::new(),
    };
    cell.wish(Wish::SetBudgets {
        scope: ScopeId::Tenant(buyer),
        budgets: vec![budget],
        revision: None,
    });

    let began = Instant::now();
    for n in 0..OFFERS {
        let spec = OfferSpec {
            class: class(n),
            source: Source::Quota,
            gpu_milli: 8000,
            region: None,
            windows: Windows::Always,
            price: Micros(100_000 + (n * 7919 % 900_000) as i64),
            min_lease_s: 60,
            max_lease_s: 86_400,
            notice_s: 60,
            buyers: None,
            isolation: Isolation::Fenced,
        };
        cell.wish(Wish::MakeOffer {
            seller: sellers[n / 8 % SELLERS],
            spec: Box::new(spec),
            zone: None,
        });
    }
    report("offers made", OFFERS, began);

    let mut bid = BidSpec {
        class: class(0),
        gpu_milli: 1000,
        duration_s: 3600,
        price: Micros(90_000),
        kind: BidKind::Limit {
            expires: Time(i64::MAX),
        },
        region: None,
        min_isolation: None,
        min_reliability_permille: 0,
    };
    let scope = ScopeId::Tenant(buyer);
    let began = Instant::now();
    for n in 0..ORDERS {
        bid.class = class(n);
        bid.price = Micros(1 + (n * 104_729 % 90_000) as i64);
        cell.wish(Wish::PlaceBid {
            scope,
            spec: Box::new(bid.clone()),
        });
    }
    report("bids that wait", ORDERS, began);

    (bid.kind, bid.price) = (BidKind::Now { partial: false }, Micros(10_000_000));
    let began = Instant::now();
    for n in 0..ORDERS {
        bid.class = class(n);
        cell.wish(Wish::PlaceBid {
            scope,
            spec: Box::new(bid.clone()),
        });
    }
    report("bids filled at once", ORDERS, began);

    let mut times: Vec<_> = (0..1000)
        .map(|n| {
            let began = Instant::now();
            let state = &cell.state;
            let asks = state
                .market
                .book()
                .class(&class(n))
                .map(|lists| lists.asks.keys());
            let offers = asks
                .into_iter()
                .flatten()
                .filter_map(|(.., id)| state.market.offer(*id));
            let fine = offers.filter(|offer| state.market.reliability_permille(offer.seller, cell.at) >= 900);
            std::hint::black_box(fine.skip(n).take(100).count());
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("search: p50 {:?}, p99 {:?}", times[500], times[990]);
}

fn report(what: &str, count: usize, began: Instant) {
    let rate = count as f64 / began.elapsed().as_secs_f64();
    println!("{what}: {rate:.0}/s, decided and applied");
}
