//! Bad input, row by row: refused with the field at fault, and nothing changes.

use tenure_domain::id::{BidId, GpuId, LeaseId, NodeId, OfferId, TenantId};
use tenure_domain::ledger::account::{AccountId, Posting};
use tenure_domain::market::auto::AutoSpec;
use tenure_domain::market::bid::{BidKind, BidSpec};
use tenure_domain::market::check::GpuReport;
use tenure_domain::market::offer::{OfferSpec, Source};
use tenure_domain::market::terms::MarketTerms;
use tenure_domain::market::window::Windows;
use tenure_domain::money::Micros;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::tenancy::trade::TradePolicy;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Actor, Code, Event, Time, Wish};

use super::street::{HOUR_S, Street, at, instant, leases, offer};

#[test]
fn offers_that_are_not() {
    let mut street = Street::new();
    let daily = |from_minute, until_minute, zone: &str| Windows::Daily {
        from_minute,
        until_minute,
        zone: zone.into(),
    };
    let once = |start: &str, end: &str| Windows::Once {
        start: at(start),
        end: at(end),
    };
    let (morning, noon) = ("2026-03-02T08:00:00Z", "2026-03-02T12:00:00Z");
    type Row = (fn(&mut OfferSpec, Windows), Windows, &'static str);
    let always = || Windows::Always;
    let rows: Vec<Row> = vec![
        (|spec, _| spec.price = Micros(-1), always(), "/price"),
        (|spec, _| spec.price = Micros(i64::MAX), always(), "/price"),
        (|spec, _| spec.gpu_milli = 0, always(), "/gpu_milli"),
        (|spec, _| spec.gpu_milli = u64::MAX, always(), "/gpu_milli"),
        (|spec, _| spec.class = "a b".into(), always(), "/class"),
        (|spec, _| spec.region = Some("eu".into()), always(), "/region"),
        (|spec, _| spec.min_lease_s = 0, always(), "/min_lease_s"),
        (|spec, _| spec.min_lease_s = u64::MAX, always(), "/min_lease_s"),
        (|spec, _| spec.max_lease_s = 1, always(), "/min_lease_s"),
        (|spec, _| spec.notice_s = u64::MAX, always(), "/notice_s"),
        (
            |spec, _| spec.source = Source::Nodes { nodes: vec![] },
            always(),
            "/source/nodes",
        ),
        (
            |spec, _| {
                spec.source = Source::Nodes {
                    nodes: vec![NodeId(7)],
                }
            },
            always(),
            "/source/nodes",
        ),
        (|spec, w| spec.windows = w, once(noon, morning), "/windows/end"),
        (
            |spec, w| spec.windows = w,
            once("2026-03-02T07:00:00Z", morning),
            "/windows/end",
        ),
        (
            |spec, w| spec.windows = w,
            daily(0, 0, "UTC"),
            "/windows/until_minute",
        ),
        (
            |spec, w| spec.windows = w,
            daily(1440, 0, "UTC"),
            "/windows/from_minute",
        ),
        (
            |spec, w| spec.windows = w,
            daily(0, 60, "Mars/Olympus"),
            "/windows/zone",
        ),
    ];
    let before = street.world.state.clone();
    for (change, windows, field) in rows {
        let mut spec = offer(1000);
        change(&mut spec, windows);
        let refusal = street.studio_offers(spec.clone()).expect_err(field);
        assert_eq!(
            (refusal.code, refusal.field.as_deref()),
            (Code::InvalidField, Some(field)),
            "{spec:?}"
        );
    }
    assert_eq!(street.world.state, before);
}

#[test]
fn nobody_sells_what_it_has_not() {
    let mut street = Street::new();
    street.studio_offers(offer(6000)).expect("listed");
    let more = street.studio_offers(offer(2001)).expect_err("two are left");
    assert_eq!(more.code, Code::NothingToSell, "{more}");
    assert_eq!(more.hint.as_deref(), Some("offer at most 2000 gpu_milli"));
    let of_nobody = OfferSpec {
        class: "A10".into(),
        ..offer(1)
    };
    assert_eq!(
        street.studio_offers(of_nobody).expect_err("it has none").code,
        Code::NothingToSell
    );
    // What was leased of others is not its own to let.
    street.startup_bids(instant(4000)).expect("bought");
    let (user, tenant) = (street.startup.user, street.startup.tenant);
    let resold = street.offer(user, tenant, offer(1)).expect_err("not its own");
    assert_eq!(resold.code, Code::NothingToSell);
    // An offer withdrawn leaves its leases let.
    let id = street.world.state.market.offers().next().expect("an offer").id;
    let by = street.studio.user;
    street
        .world
        .by(by, Wish::WithdrawOffer { offer: id })
        .expect("withdrawn");
    assert_eq!(
        street.studio_offers(offer(4001)).expect_err("four are let").code,
        Code::NothingToSell
    );
    street.studio_offers(offer(4000)).expect("four are not");
}

#[test]
fn bids_that_are_not() {
    let mut street = Street::new();
    street.studio_offers(offer(8000)).expect("listed");
    type Row = (fn(&mut BidSpec), &'static str);
    let rows: Vec<Row> = vec![
        (|spec| spec.price = Micros(-1), "/price"),
        (|spec| spec.price = Micros(i64::MAX), "/price"),
        (|spec| spec.gpu_milli = 0, "/gpu_milli"),
        (|spec| spec.gpu_milli = u64::MAX, "/gpu_milli"),
        (|spec| spec.duration_s = 0, "/duration_s"),
        (|spec| spec.duration_s = u64::MAX, "/duration_s"),
        (|spec| spec.class = String::new().into(), "/class"),
        (|spec| spec.region = Some("../..".into()), "/region"),
        (
            |spec| spec.min_reliability_permille = 1001,
            "/min_reliability_permille",
        ),
        (
            |spec| spec.kind = BidKind::Limit { expires: Time(0) },
            "/kind/expires",
        ),
        (
            |spec| {
                spec.kind = BidKind::Spot {
                    expires: Time(i64::MIN),
                }
            },
            "/kind/expires",
        ),
    ];
    let before = street.world.state.clone();
    for (change, field) in rows {
        let mut spec = instant(1000);
        change(&mut spec);
        let refusal = street.startup_bids(spec.clone()).expect_err(field);
        assert_eq!(
            (refusal.code, refusal.field.as_deref()),
            (Code::InvalidField, Some(field)),
            "{spec:?}"
        );
    }
    let root = street.world.root;
    let refusal = street
        .bid(root, ScopeId::Platform, instant(1))
        .expect_err("nobody's");
    assert_eq!(refusal.field.as_deref(), Some("/scope"));
    // The dearest there is, for the longest there is: more than the ledger counts is refused, and nothing overflows.
    let dearest = BidSpec {
        price: Micros(1_000_000_000_000_000),
        gpu_milli: 1 << 40,
        duration_s: 366 * 24 * HOUR_S,
        kind: BidKind::Limit {
            expires: Time(i64::MAX),
        },
        ..instant(1)
    };
    assert_eq!(
        street.startup_bids(dearest).expect_err("too dear").code,
        Code::ExceedsBudget
    );
    assert_eq!(street.world.state, before);
}

#[test]
fn a_bid_at_the_ask_is_filled_and_one_below_is_not() {
    let mut street = Street::new();
    let first = street.studio_offers(offer(1000)).expect("listed");
    let second = street
        .studio_offers(offer(1000))
        .expect("listed in the same millisecond");
    let at_ask = |price| BidSpec {
        price: Micros(price),
        ..instant(1500)
    };
    assert_eq!(
        street.startup_bids(at_ask(499_999)).expect_err("below").code,
        Code::NoOffers
    );
    let bought = street.startup_bids(at_ask(500_000)).expect("at it");
    let from: Vec<_> = bought
        .iter()
        .filter_map(|event| match event {
            Event::LeaseBegan { lease, .. } => Some((lease.offer, lease.gpu_milli)),
            _ => None,
        })
        .collect();
    assert_eq!(from, [(first, 1000), (second, 500)], "the first made goes first");
}

#[test]
fn a_part_is_bought_where_that_is_said_to_do() {
    let mut street = Street::new();
    street.studio_offers(offer(1000)).expect("listed");
    assert_eq!(
        street.startup_bids(instant(1001)).expect_err("not all").code,
        Code::NoOffers
    );
    let partial = BidSpec {
        kind: BidKind::Now { partial: true },
        ..instant(5000)
    };
    assert_eq!(leases(&street.startup_bids(partial).expect("a part")).len(), 1);
}

#[test]
fn nothing_small_is_free_and_cutting_it_up_gains_nothing() {
    let mut street = Street::new();
    let seconds = OfferSpec {
        price: Micros(1),
        min_lease_s: 1,
        ..offer(8000)
    };
    street.studio_offers(seconds).expect("listed");
    let second = BidSpec {
        duration_s: 1,
        ..instant(1)
    };
    for _ in 0..100 {
        street.startup_bids(second.clone()).expect("bought");
        street.world.pass_s(2);
        street.tick();
    }
    assert_eq!(
        street.of(street.startup.tenant),
        -100,
        "a micro each, where one would do for all"
    );
}

#[test]
fn a_price_that_changes_in_a_lease_changes_nothing_of_it() {
    let mut street = Street::new();
    let id = street.studio_offers(offer(1000)).expect("listed");
    street.startup_bids(instant(1000)).expect("bought");
    let user = street.studio.user;
    street
        .world
        .by(user, Wish::WithdrawOffer { offer: id })
        .expect("withdrawn");
    let dearer = OfferSpec {
        price: Micros(900_000),
        ..offer(1000)
    };
    street.studio_offers(dearer).expect("listed");
    street.until("2026-03-02T11:00:00Z");
    assert_eq!(street.of(street.startup.tenant), -1_000_000);
}

#[test]
fn terms_policies_and_orders_that_are_not() {
    let mut street = Street::new();
    let terms = |change: fn(&mut MarketTerms)| {
        let mut terms = MarketTerms::default();
        change(&mut terms);
        Wish::SetMarketTerms { terms }
    };
    let rows = [
        (terms(|terms| terms.fee_permille = 1001), "/fee_permille"),
        (terms(|terms| terms.penalty_permille = 1001), "/penalty_permille"),
        (terms(|terms| terms.check_answer_s = 0), "/check_answer_s"),
        (terms(|terms| terms.check_again_s = u64::MAX), "/check_again_s"),
        (
            terms(|terms| terms.least_speed = [("<b>".into(), 1)].into()),
            "/least_speed",
        ),
    ];
    for (wish, field) in rows {
        let refusal = street.world.root(wish).expect_err(field);
        assert_eq!(refusal.field.as_deref(), Some(field));
    }
    let band = Policy {
        trade: Some(Box::new(TradePolicy {
            min_price_micros: Some(2),
            max_price_micros: Some(1),
            ..TradePolicy::default()
        })),
        ..Policy::default()
    };
    let wish = Wish::SetPolicy {
        scope: ScopeId::Platform,
        policy: band,
        revision: None,
    };
    assert!(street.world.root(wish).is_err());
    let order = AutoSpec {
        class: "H100".into(),
        floor: Micros(-1),
        reserve_milli: 0,
        min_lease_s: 1,
        max_lease_s: 1,
        notice_s: 0,
        buyers: None,
        isolation: Isolation::Fenced,
    };
    let (seller, user) = (street.studio.tenant, street.studio.user);
    let spec = Box::new(order);
    let refusal = street.world.by(user, Wish::SetAutoOffer { seller, spec });
    assert_eq!(refusal.expect_err("below zero").field.as_deref(), Some("/floor"));
}

#[test]
fn strangers_and_members_do_not_trade() {
    let mut street = Street::new();
    let id = street.studio_offers(offer(4000)).expect("listed");
    let bought = street.startup_bids(instant(1000)).expect("bought");
    let lease = leases(&bought)[0];
    let scope = street.startup.scope();
    let member = street.world.user(scope, "mia", Some(Role::Member));
    let refusal = street.bid(member, scope, instant(1)).expect_err("a member");
    assert_eq!(refusal.code, Code::NotPermitted);
    let stranger = street.startup.user;
    for wish in [
        Wish::WithdrawOffer { offer: id },
        Wish::RecallLease { lease },
        Wish::WithdrawOffer { offer: OfferId(1) },
        Wish::CancelBid { bid: BidId(1) },
        Wish::RecallLease { lease: LeaseId(1) },
        Wish::ReturnLease { lease: LeaseId(1) },
    ] {
        let refusal = street.world.by(stranger, wish.clone()).expect_err("not its own");
        assert!(
            matches!(refusal.code, Code::NotFound | Code::NotPermitted),
            "{wish:?}: {refusal}"
        );
    }
    let (node, gpu) = (street.nodes[0], GpuId(1));
    let report = GpuReport {
        uuid: "x".into(),
        memory_mib: 1,
        speed: 1,
        untried: None,
    };
    let answer = Wish::AnswerGpuCheck {
        node,
        gpu,
        number: 1,
        report,
    };
    let other = Actor::Node(street.nodes[1]);
    assert_eq!(
        street
            .world
            .act(other, answer.clone())
            .expect_err("another's")
            .code,
        Code::NotFound
    );
    assert_eq!(
        street
            .world
            .act(Actor::Node(node), answer)
            .expect_err("not asked")
            .code,
        Code::ContradictoryReport
    );
    let zones = |_: &str| None;
    assert!(street.world.by(stranger, Wish::AdvanceMarket { zones }).is_err());
    assert!(
        street
            .world
            .by(
                stranger,
                Wish::MakeOffer {
                    seller: TenantId(1),
                    spec: Box::new(offer(1)),
                    zone: None,
                }
            )
            .is_err()
    );
}

#[test]
fn who_has_traded_does_not_vanish() {
    let mut street = Street::new();
    street.studio_offers(offer(4000)).expect("listed");
    street.startup_bids(instant(1000)).expect("bought");
    for scope in [street.studio.scope(), street.startup.scope()] {
        let refusal = street
            .world
            .root(Wish::Close { scope })
            .expect_err("owed to others");
        assert_eq!(refusal.code, Code::TradesStillThere, "{refusal}");
    }
}

#[test]
fn accounts_read_as_they_are_written() {
    let posting = Posting {
        from: AccountId::Escrow,
        to: AccountId::Revenue,
        amount: Micros(1),
    };
    let text = serde_json::to_string(&posting).expect("it encodes");
    assert_eq!(text, r#"{"from":"escrow","to":"revenue","amount":1}"#);
    assert_eq!(serde_json::from_str::<Posting>(&text).expect("it reads"), posting);
}
