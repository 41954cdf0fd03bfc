//! What operators' rules say of trades, at each scope of the tree, on both sides, and again when a bid that waited is matched.

use tenure_domain::market::bid::{BidKind, BidSpec};
use tenure_domain::market::offer::OfferSpec;
use tenure_domain::money::Micros;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::rule::Rules;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Code, Event, Wish};

use super::street::{Street, at, bid_of, instant, leases, offer};

fn rule(street: &mut Street, scope: ScopeId, when: &str) {
    let rules = match when {
        "" => String::new(),
        when => format!(
            r#"@id("r") forbid (principal, action == Action::"market_trade", resource) when {{ {when} }};"#
        ),
    };
    let wish = Wish::SetRules {
        scope,
        rules,
        revision: None,
    };
    street.world.root(wish).expect("set");
}

fn limit(gpu_milli: u64, price: i64) -> BidSpec {
    BidSpec {
        price: Micros(price),
        kind: BidKind::Limit {
            expires: at("2026-03-02T20:00:00Z"),
        },
        ..instant(gpu_milli)
    }
}

fn spot(gpu_milli: u64, price: i64) -> BidSpec {
    BidSpec {
        kind: BidKind::Spot {
            expires: at("2026-03-02T20:00:00Z"),
        },
        ..limit(gpu_milli, price)
    }
}

/// The startup with a team, whose member buys for itself: a GPU for two hours, of the studio, at half a unit by the hour.
fn bought(holder: &str, when: impl Fn(&Street) -> String) -> Result<(), (Code, String)> {
    let mut street = Street::new();
    street.studio_offers(offer(1000)).expect("listed");
    let team = street.world.subscriber(street.startup.scope(), "team");
    let ada = street.world.user(team, "ada", Some(Role::Operator));
    let scope = match holder {
        "platform" => ScopeId::Platform,
        "startup" => street.startup.scope(),
        "startup/team" => team,
        "startup/team/ada" => ScopeId::User(ada),
        other => panic!("{other} is no scope here"),
    };
    let when = when(&street);
    rule(&mut street, scope, &when);
    let before = street.world.state.clone();
    match street.bid(ada, ScopeId::User(ada), instant(1000)) {
        Ok(events) => {
            assert_eq!(leases(&events).len(), 1, "{events:?}");
            Ok(())
        }
        Err(refusal) => {
            assert_eq!(street.world.state, before, "a refusal changes nothing");
            Err((refusal.code, refusal.sentence.into_owned()))
        }
    }
}

#[test]
fn every_scope_forbids_by_all_that_is_known_of_a_trade() {
    let studio = |street: &Street| street.studio.scope();
    let startup = |street: &Street| street.startup.scope();
    type When = Box<dyn Fn(&Street) -> String>;
    let fixed = |text: &'static str| -> When { Box::new(move |_| text.to_owned()) };
    let with = |scope: fn(&Street) -> ScopeId| -> When {
        Box::new(move |street| {
            format!(
                r#"context has side && context.side == "buy" && context has counterparty && context.counterparty == Scope::"{}""#,
                scope(street)
            )
        })
    };
    // What forbids it, and the nearest that does not.
    let rows: Vec<(When, When)> = vec![
        (with(studio), with(startup)),
        (
            fixed(
                r#"context has side && context.side == "buy" && context has counterparty && context.counterparty.name == "studio""#,
            ),
            fixed(
                r#"context has side && context.side == "buy" && context has counterparty && context.counterparty.name == "startup""#,
            ),
        ),
        (
            fixed("context has price_micros && context.price_micros > 999999"),
            fixed("context has price_micros && context.price_micros > 1000000"),
        ),
        (
            fixed("context has counterparty && context has price_micros && context.price_micros > 499999"),
            fixed("context has counterparty && context has price_micros && context.price_micros > 500000"),
        ),
        (
            fixed(r#"context has counterparty && !(context has region && context.region == "eu")"#),
            fixed(r#"context has region && context.region == "us""#),
        ),
        (
            fixed("context has bound_micros && context.bound_micros > 999999"),
            fixed("context has bound_micros && context.bound_micros > 1000000"),
        ),
        (
            fixed(r#"context has isolation && ["guarded", "fenced"].contains(context.isolation)"#),
            fixed(r#"context has isolation && ["guarded"].contains(context.isolation)"#),
        ),
        (
            fixed(r#"context has class && context.class == "H100""#),
            fixed(r#"context has class && context.class == "A10""#),
        ),
        (
            fixed("context has gpu_milli && context.gpu_milli > 999"),
            fixed("context has gpu_milli && context.gpu_milli > 1000"),
        ),
        (
            fixed("context has duration_s && context.duration_s > 7199"),
            fixed("context has duration_s && context.duration_s > 7200"),
        ),
        (
            fixed("context has hour_utc && context.hour_utc == 9"),
            fixed("context has hour_utc && context.hour_utc == 10"),
        ),
        (
            fixed(r#"context has side && context.side == "buy" && principal.name == "ada""#),
            fixed(r#"context has side && context.side == "buy" && principal.name == "startup-op""#),
        ),
    ];
    for (forbids, does_not) in &rows {
        for holder in ["platform", "startup", "startup/team", "startup/team/ada"] {
            let said = format!("rule r of {holder} forbids market_trade");
            assert_eq!(bought(holder, forbids), Err((Code::ForbiddenByRule, said)));
            assert_eq!(bought(holder, does_not), Ok(()), "{holder}");
        }
    }
}

#[test]
fn a_seller_keeps_to_rules_and_classes() {
    let mut street = Street::new();
    let studio = street.studio.scope();
    rule(
        &mut street,
        studio,
        "context has price_micros && context.price_micros < 600000",
    );
    let refusal = street.studio_offers(offer(1000)).expect_err("too cheap");
    assert_eq!(refusal.sentence, "rule r of studio forbids market_trade");
    let dearer = OfferSpec {
        price: Micros(600_000),
        ..offer(1000)
    };
    street.studio_offers(dearer).expect("listed");
    // With whom is known when somebody bids.
    let startup = street.startup.scope();
    let not_to =
        |of: ScopeId| format!(r#"context has counterparty && context.counterparty == Scope::"{of}""#);
    rule(&mut street, studio, &not_to(startup));
    let refusal = street.startup_bids(instant(1000)).expect_err("not to them");
    assert_eq!(refusal.sentence, "rule r of studio forbids market_trade");
    // Who gave the order is asked for it, whoever takes it.
    rule(
        &mut street,
        studio,
        r#"context has counterparty && principal.name == "studio-op""#,
    );
    assert_eq!(
        street.startup_bids(instant(1000)).expect_err("not by them").code,
        Code::ForbiddenByRule
    );
    rule(&mut street, studio, &not_to(studio));
    street.startup_bids(instant(1000)).expect("bought");
    // A class that is not allowed is not sold either.
    let policy = Policy {
        classes: Some(["A10".into()].into()),
        ..Policy::default()
    };
    street.world.policy(studio, policy);
    let refusal = street.studio_offers(offer(1000)).expect_err("not of this class");
    assert_eq!(
        (refusal.code, &*refusal.sentence),
        (
            Code::PolicyExcludes,
            "GPU class H100 is not allowed by the policy of studio"
        )
    );
}

#[test]
fn a_bid_that_waited_is_asked_again_at_the_match() {
    let mut street = Street::new();
    let (studio, startup) = (street.studio.scope(), street.startup.scope());
    let rival = street.trader("rival", 2000);
    let events = street.startup_bids(limit(1000, 600_000)).expect("it waits");
    let bid = bid_of(&events);
    // The rule is of after the bid, and speaks of who gave it.
    rule(
        &mut street,
        startup,
        &format!(
            r#"principal.name == "startup-op" && context has counterparty && context.counterparty == Scope::"{studio}""#
        ),
    );
    street.studio_offers(offer(1000)).expect("listed");
    let events = street.tick();
    assert_eq!(leases(&events), [], "{events:?}");
    assert_eq!(street.world.state.market.leases().count(), 0);
    let (user, tenant) = (rival.user, rival.tenant);
    let dearer = OfferSpec {
        price: Micros(600_000),
        ..offer(500)
    };
    street.offer(user, tenant, dearer).expect("listed");
    let sellers: Vec<_> = street
        .world
        .state
        .market
        .leases()
        .map(|lease| lease.seller)
        .collect();
    assert_eq!(sellers, [tenant], "half of it, of whom it may");
    rule(&mut street, startup, "");
    street.tick();
    assert_eq!(street.world.state.market.leases().count(), 2, "the rest of it");
    assert!(street.world.state.market.bid(bid).is_none());
}

#[test]
fn what_a_bid_holds_is_counted_once() {
    let mut street = Street::new();
    let startup = street.startup.scope();
    // Two hours at 0.6 are 1.2 held.
    rule(
        &mut street,
        startup,
        "context has bound_micros && context.bound_micros > 1200000",
    );
    street.startup_bids(limit(1000, 600_000)).expect("it waits");
    let more = street.startup_bids(limit(1000, 1)).expect_err("two micros more");
    assert_eq!(more.code, Code::ForbiddenByRule);
    street.studio_offers(offer(1000)).expect("listed");
    assert_eq!(
        street.world.state.market.leases().count(),
        1,
        "within what it held"
    );
    // A unit is bound now: two tenths more are allowed, and what is asked is paid, not the limit.
    let fine = BidSpec {
        duration_s: 1440,
        ..instant(1000)
    };
    let short = OfferSpec {
        min_lease_s: 60,
        ..offer(2000)
    };
    street.studio_offers(short).expect("listed");
    street.startup_bids(fine).expect("it comes to exactly that");
    let over = street.startup_bids(instant(10)).expect_err("nothing more");
    assert_eq!(over.code, Code::ForbiddenByRule);
}

#[test]
fn nobody_is_outbid_by_who_would_not_be_let_in() {
    for barred in [false, true] {
        let mut street = Street::new();
        let rival = street.trader("rival", 0);
        street.studio_offers(offer(1000)).expect("listed");
        let events = street.startup_bids(spot(1000, 600_000)).expect("taken");
        assert_eq!(leases(&events).len(), 1, "{events:?}");
        if barred {
            let studio = street.studio.scope();
            let when = format!(r#"context has counterparty && context.counterparty == Scope::"{studio}""#);
            rule(&mut street, rival.scope(), &when);
        }
        let (user, scope) = (rival.user, rival.scope());
        let events = street.bid(user, scope, spot(1000, 900_000)).expect("it waits");
        let recalled = events
            .iter()
            .any(|event| matches!(event, Event::LeaseRecalled { .. }));
        assert_eq!(recalled, !barred, "{events:?}");
    }
}

#[test]
fn rules_that_say_nothing_of_trades_are_not_asked() {
    for (action, of_trades) in [
        ("action", true),
        (r#"action == Action::"market_trade""#, true),
        (
            r#"action in [Action::"job_submit", Action::"market_trade"]"#,
            true,
        ),
        (r#"action == Action::"job_submit""#, false),
        (r#"action in [Action::"job_submit", Action::"job_stop"]"#, false),
    ] {
        let rules = Rules::parse(&format!("forbid (principal, {action}, resource);")).expect("rules");
        assert_eq!(rules.are_of_trades(), of_trades, "{action}");
    }
    // What a trade has is no context of a job, and the other way round.
    for (action, attribute) in [("job_submit", "price_micros"), ("market_trade", "gpus")] {
        let text = format!(
            r#"forbid (principal, action == Action::"{action}", resource) when {{ context.{attribute} > 1 }};"#
        );
        assert_eq!(
            Rules::parse(&text).map_err(|refusal| refusal.code),
            Err(Code::InvalidRule),
            "{text}"
        );
    }
    // A rule for every action that was accepted before trades had a context still is.
    let text = "forbid (principal, action, resource) when { context has gpus && context.gpus > 8 };";
    assert!(Rules::parse(text).is_ok());
}
