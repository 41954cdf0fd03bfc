//! What policies, budgets and credit say of trading, and whose word it is.

use std::collections::BTreeSet;

use tenure_domain::market::bid::{BidKind, BidSpec};
use tenure_domain::market::offer::OfferSpec;
use tenure_domain::market::terms::MarketTerms;
use tenure_domain::money::Micros;
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::tenancy::trade::TradePolicy;
use tenure_domain::time::Period;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Code, Wish};

use super::street::{Street, at, instant, offer};

fn trade(street: &mut Street, scope: ScopeId, trade: TradePolicy) {
    let policy = Policy {
        trade: Some(Box::new(trade)),
        ..Policy::default()
    };
    street.world.policy(scope, policy);
}

#[test]
fn a_policy_keeps_a_scope_from_buying_and_says_whose_it_is() {
    let cases: [(TradePolicy, &str); 6] = [
        (
            TradePolicy {
                may_buy: Some(false),
                ..TradePolicy::default()
            },
            "buying is not allowed",
        ),
        (
            TradePolicy {
                counterparties: Some(BTreeSet::new()),
                ..TradePolicy::default()
            },
            "buying of studio is not allowed",
        ),
        (
            TradePolicy {
                max_price_micros: Some(999_999),
                ..TradePolicy::default()
            },
            "a price of 1.000000 is above the 0.999999 allowed",
        ),
        (
            TradePolicy {
                min_isolation: Some(Isolation::Exclusive),
                ..TradePolicy::default()
            },
            "isolation fenced is below the exclusive asked for",
        ),
        (
            TradePolicy {
                regions: Some(["eu".into()].into()),
                ..TradePolicy::default()
            },
            "buying in region (none) is not allowed",
        ),
        (
            TradePolicy {
                max_bound_micros: Some(999_999),
                ..TradePolicy::default()
            },
            "1.000000 would be bound in leases and bids, above the 0.999999 allowed",
        ),
    ];
    for (policy, words) in cases {
        for at_platform in [false, true] {
            let mut street = Street::new();
            street.studio_offers(offer(1000)).expect("listed");
            let scope = if at_platform {
                ScopeId::Platform
            } else {
                street.startup.scope()
            };
            trade(&mut street, scope, policy.clone());
            let refusal = street.startup_bids(instant(1000)).expect_err("kept from it");
            assert_eq!(refusal.code, Code::PolicyExcludes, "{refusal}");
            let title = if at_platform { "platform" } else { "startup" };
            let sentence = format!("{words} by the policy of {title}");
            assert_eq!(refusal.sentence, sentence);
        }
    }
}

#[test]
fn a_seller_keeps_to_its_policy() {
    let mut street = Street::new();
    let (studio, startup) = (street.studio.scope(), street.startup.tenant);
    let band = TradePolicy {
        min_price_micros: Some(600_000),
        min_isolation: Some(Isolation::Fenced),
        counterparties: Some(BTreeSet::new()),
        ..TradePolicy::default()
    };
    trade(&mut street, studio, band.clone());
    let cheap = street.studio_offers(offer(1000)).expect_err("below the band");
    assert_eq!(
        (cheap.code, cheap.field.as_deref()),
        (Code::PolicyExcludes, Some("/price"))
    );
    let open = OfferSpec {
        price: Micros(600_000),
        isolation: Isolation::Guarded,
        ..offer(1000)
    };
    assert_eq!(
        street.studio_offers(open.clone()).expect_err("too open").code,
        Code::PolicyExcludes
    );
    let fine = OfferSpec {
        isolation: Isolation::Fenced,
        ..open
    };
    street.studio_offers(fine.clone()).expect("listed");
    let refusal = street
        .startup_bids(instant(1000))
        .expect_err("not of its friends");
    assert_eq!(
        refusal.sentence,
        "selling to startup is not allowed by the policy of studio"
    );
    let friends = TradePolicy {
        counterparties: Some([startup].into()),
        ..band
    };
    trade(&mut street, studio, friends);
    street.startup_bids(instant(1000)).expect("bought");
    // Who may buy an offer is said in the offer, too.
    let closed = OfferSpec {
        buyers: Some(BTreeSet::new()),
        price: Micros(700_000),
        ..fine
    };
    street.studio_offers(closed).expect("listed");
    assert_eq!(
        street.startup_bids(instant(1000)).expect_err("for nobody").code,
        Code::NoOffers
    );
}

#[test]
fn nobody_buys_beyond_budget_or_credit() {
    let mut street = Street::new();
    street.studio_offers(offer(8000)).expect("listed");
    let budget = Budget {
        period: Period::Month,
        class: None,
        sku: None,
        kind: None,
        money_micros: Some(2_000_000),
        gpu_seconds: None,
        frames: None,
        alerts_permille: Vec::new(),
    };
    let wish = Wish::SetBudgets {
        scope: street.startup.scope(),
        budgets: vec![budget],
        revision: None,
    };
    street.world.root(wish).expect("set");
    let limit = BidSpec {
        price: Micros(100_000),
        kind: BidKind::Limit {
            expires: at("2026-03-02T12:00:00Z"),
        },
        ..instant(5000)
    };
    street.startup_bids(limit).expect("it waits, with a unit held");
    let over = street.startup_bids(instant(2000)).expect_err("a unit is left");
    assert_eq!(over.code, Code::ExceedsBudget, "{over}");
    street
        .startup_bids(instant(1000))
        .expect("bought with the last of it");

    let mut street = Street::new();
    street.studio_offers(offer(8000)).expect("listed");
    let terms = MarketTerms {
        credit_micros: Some(2_999_999),
        ..MarketTerms::default()
    };
    street.world.root(Wish::SetMarketTerms { terms }).expect("set");
    let over = street.startup_bids(instant(3000)).expect_err("a micro too much");
    assert_eq!(over.code, Code::ExceedsBudget, "{over}");
    street.startup_bids(instant(2000)).expect("within its credit");
}
