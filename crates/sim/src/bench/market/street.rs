//! Sellers and buyers with policies, budgets and credit at every level above them, and the wishes their orders become.

use std::collections::VecDeque;
use std::sync::Arc;

use tenure_domain::id::{BidId, OfferId, SubscriberId, TenantId, UserId};
use tenure_domain::ledger::price::Prices;
use tenure_domain::market::bid::{BidKind, BidSpec};
use tenure_domain::market::offer::{OfferSpec, Source};
use tenure_domain::market::terms::MarketTerms;
use tenure_domain::market::window::Windows;
use tenure_domain::meter::Amounts;
use tenure_domain::money::Micros;
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{ScopeId, UserKind};
use tenure_domain::tenancy::trade::TradePolicy;
use tenure_domain::time::Period;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Actor, Time, Wish};

use super::order::{Order, Orders, STEPS};

/// Tenants that sell, and as many that buy.
const SIDES: usize = 32;
pub const CLASSES: [&str; 4] = ["A100", "H100", "L40S", "T4"];
/// The lowest ask by the hour, and a step above it: bids that wait stand below.
const LOWEST: i64 = 3_000_000;
const STEP: i64 = 10_000;
const HOUR_S: u64 = 3_600;

#[derive(Debug, Clone, Copy)]
pub struct Seller {
    pub tenant: TenantId,
    pub user: UserId,
}

#[derive(Debug)]
pub struct Street {
    pub sellers: Vec<Seller>,
    pub buyers: Vec<UserId>,
}

impl Street {
    /// By whoever does a wish of Tenure itself and says the first of its ids.
    pub async fn build(mut act: impl AsyncFnMut(Wish) -> anyhow::Result<u64>) -> anyhow::Result<Arc<Street>> {
        act(Wish::Found {
            platform: "street".into(),
            owner: "root".into(),
            key: Digest([1; 32]),
            prices: Prices::default(),
        })
        .await?;
        act(Wish::SetMarketTerms {
            terms: MarketTerms {
                credit_micros: Some(1 << 60),
                ..MarketTerms::default()
            },
        })
        .await?;
        limit(&mut act, ScopeId::Platform).await?;
        let (mut sellers, mut buyers) = (Vec::new(), Vec::new());
        for n in 0..SIDES {
            let tenant = TenantId(
                act(Wish::CreateTenant {
                    name: format!("seller-{n}"),
                })
                .await?,
            );
            limit(&mut act, ScopeId::Tenant(tenant)).await?;
            let user = user(&mut act, ScopeId::Tenant(tenant)).await?;
            sellers.push(Seller { tenant, user });
            let tenant = act(Wish::CreateTenant {
                name: format!("buyer-{n}"),
            })
            .await?;
            let tenant = ScopeId::Tenant(TenantId(tenant));
            limit(&mut act, tenant).await?;
            let team = Wish::CreateSubscriber {
                tenant,
                name: "team".into(),
            };
            let team = ScopeId::Subscriber(SubscriberId(act(team).await?));
            limit(&mut act, team).await?;
            buyers.push(self::user(&mut act, team).await?);
        }
        Ok(Arc::new(Street { sellers, buyers }))
    }
}

async fn user(
    act: &mut impl AsyncFnMut(Wish) -> anyhow::Result<u64>,
    parent: ScopeId,
) -> anyhow::Result<UserId> {
    let wish = Wish::CreateUser {
        parent,
        name: "trader".into(),
        kind: UserKind::Service,
        identity: None,
        role: Some(Role::Operator),
    };
    let user = UserId(act(wish).await?);
    limit(act, ScopeId::User(user)).await?;
    Ok(user)
}

/// A quota, a budget and a policy, each of which is asked and none of which is in the way.
async fn limit(act: &mut impl AsyncFnMut(Wish) -> anyhow::Result<u64>, scope: ScopeId) -> anyhow::Result<()> {
    let quota = CLASSES.map(|class| {
        let meter = format!("gpu_milli@class:{class}");
        (meter.parse().expect("a meter"), 1 << 40)
    });
    act(Wish::SetQuota {
        scope,
        quota: Amounts::from(quota),
        revision: None,
    })
    .await?;
    act(Wish::SetBudgets {
        scope,
        budgets: vec![Budget {
            period: Period::Month,
            class: None,
            sku: None,
            kind: None,
            money_micros: Some(1 << 62),
            gpu_seconds: None,
            frames: None,
            alerts_permille: Vec::new(),
        }],
        revision: None,
    })
    .await?;
    let trade = TradePolicy {
        min_isolation: Some(Isolation::Guarded),
        max_price_micros: Some(100_000_000),
        max_bound_micros: Some(1 << 62),
        ..TradePolicy::default()
    };
    act(Wish::SetPolicy {
        scope,
        policy: Policy {
            trade: Some(Box::new(trade)),
            ..Policy::default()
        },
        revision: None,
    })
    .await?;
    Ok(())
}

pub fn offer(class: &str, step: usize, gpus: u64) -> OfferSpec {
    OfferSpec {
        class: class.into(),
        source: Source::Quota,
        gpu_milli: gpus * 1000,
        region: None,
        windows: Windows::Always,
        price: Micros(LOWEST + STEP * step as i64),
        min_lease_s: 60,
        max_lease_s: 24 * HOUR_S,
        notice_s: 600,
        buyers: None,
        isolation: Isolation::Fenced,
    }
}

fn bid(class: &str, gpus: u64, price: i64, kind: BidKind) -> BidSpec {
    BidSpec {
        class: class.into(),
        gpu_milli: gpus * 1000,
        duration_s: HOUR_S,
        price: Micros(price),
        kind,
        region: None,
        min_isolation: None,
        min_reliability_permille: 0,
    }
}

/// What an order will have placed.
#[derive(Debug, Clone, Copy)]
pub enum Placed {
    Ask(usize),
    Bid(usize),
    Nothing,
}

/// Somebody who trades for all of the street: every order is of the next seller or buyer, in the next class.
pub struct Desk {
    street: Arc<Street>,
    orders: Orders,
    turn: usize,
    offers: VecDeque<(OfferId, usize)>,
    bids: VecDeque<(BidId, usize)>,
}

impl Desk {
    pub fn new(street: Arc<Street>, seed: u64) -> Desk {
        Desk {
            street,
            orders: Orders::new(seed),
            turn: seed as usize,
            offers: VecDeque::new(),
            bids: VecDeque::new(),
        }
    }

    /// The next order that can be given, by whom, and what is to be noted of it.
    pub fn order(&mut self, at: Time) -> (Actor, Wish, Placed) {
        loop {
            let order = self.orders.next().expect("orders have no end");
            if let Some(wish) = self.wish(order, at) {
                return wish;
            }
        }
    }

    /// An offer and a bid, so that something stands before the clock runs.
    pub fn standing(&mut self, at: Time) -> [(Actor, Wish, Placed); 2] {
        let orders = [self.orders.ask(), self.orders.bid()];
        orders.map(|order| self.wish(order, at).expect("these always can be given"))
    }

    /// What was placed has this number.
    pub fn placed(&mut self, placed: Placed, ids: u64) {
        match placed {
            Placed::Ask(seller) => self.offers.push_back((OfferId(ids), seller)),
            Placed::Bid(buyer) => self.bids.push_back((BidId(ids), buyer)),
            Placed::Nothing => {}
        }
    }

    fn wish(&mut self, order: Order, at: Time) -> Option<(Actor, Wish, Placed)> {
        self.turn += 1;
        let who = self.turn * 7 % SIDES;
        let class = CLASSES[self.turn % CLASSES.len()];
        let (seller, buyer) = (self.street.sellers[who], self.street.buyers[who]);
        let place = |spec| {
            let (scope, spec) = (ScopeId::User(buyer), Box::new(spec));
            (Actor::user(buyer), Wish::PlaceBid { scope, spec })
        };
        Some(match order {
            Order::Ask { step, gpus } => {
                let wish = Wish::MakeOffer {
                    seller: seller.tenant,
                    spec: Box::new(offer(class, step, gpus)),
                    zone: None,
                };
                (Actor::user(seller.user), wish, Placed::Ask(who))
            }
            Order::Bid { step, gpus } => {
                let below = LOWEST - STEP * (STEPS - step) as i64;
                let expires = at.plus_ms(24 * HOUR_S * 1000);
                let (by, wish) = place(bid(class, gpus, below, BidKind::Limit { expires }));
                (by, wish, Placed::Bid(who))
            }
            Order::Buy { gpus } => {
                let dearest = LOWEST + STEP * STEPS as i64;
                let (by, wish) = place(bid(class, gpus, dearest, BidKind::Now { partial: true }));
                (by, wish, Placed::Nothing)
            }
            Order::Withdraw => {
                let (offer, who) = self.offers.pop_front()?;
                let by = self.street.sellers[who].user;
                (Actor::user(by), Wish::WithdrawOffer { offer }, Placed::Nothing)
            }
            Order::Cancel => {
                let (bid, who) = self.bids.pop_front()?;
                let by = self.street.buyers[who];
                (Actor::user(by), Wish::CancelBid { bid }, Placed::Nothing)
            }
        })
    }
}
