//! The story of a night: what lies idle is listed, bought, used, wanted back, and paid for to the micro.

use tenure_domain::ledger::account::AccountId;
use tenure_domain::ledger::bill::{self, Eye, What};
use tenure_domain::market::bid::{BidKind, BidSpec};
use tenure_domain::market::lease::LeaseEnd;
use tenure_domain::market::offer::OfferSpec;
use tenure_domain::market::terms::MarketTerms;
use tenure_domain::market::window::Windows;
use tenure_domain::money::Micros;
use tenure_domain::schedule::order::lend::{Footing, footing};
use tenure_domain::tenancy::share::{Nominal, Share};
use tenure_domain::workload::Workload;
use tenure_domain::workload::job::Phase;
use tenure_domain::workload::picture::Rendering;
use tenure_domain::workload::spec::JobSpec;
use tenure_domain::{Code, Event, State, Time, Wish};

use super::street::{HOUR_S, Street, at, demand, instant, leases, offer};
use crate::world::{gang, spec};

fn nights(gpu_milli: u64) -> OfferSpec {
    OfferSpec {
        windows: Windows::Daily {
            from_minute: 21 * 60,
            until_minute: 6 * 60,
            zone: "Europe/Berlin".into(),
        },
        ..offer(gpu_milli)
    }
}

fn job(name: &str, demand: tenure_domain::workload::spec::Demand) -> JobSpec {
    JobSpec {
        grace_s: 30,
        ..spec(name, demand, 4 * HOUR_S)
    }
}

#[test]
fn a_night_of_the_studio_is_the_startups_until_it_is_wanted_back() {
    let mut street = Street::new();
    let (studio, startup) = (street.studio.tenant, street.startup.tenant);

    // The studio lists four of its eight GPUs for the night. By day there is nothing to buy.
    street.studio_offers(nights(4000)).expect("listed");
    let by_day = street.startup_bids(instant(4000)).expect_err("it is day");
    assert_eq!(by_day.code, Code::NoOffers);
    let none = street.world.submit(street.startup.user, job("train", demand(4)));
    assert_eq!(none.expect_err("no quota").code, Code::ExceedsQuota);

    // At ten at night in Berlin the startup takes four for two hours, at the asking price, paid into escrow.
    street.until("2026-03-02T21:00:00Z");
    let bought = street.startup_bids(instant(4000)).expect("bought");
    let [lease] = leases(&bought)[..] else {
        panic!("one lease: {bought:?}")
    };
    assert_eq!(street.of(startup), -4_000_000, "4 GPUs, 2 h, half a unit each");
    assert_eq!(street.has(AccountId::Escrow), 4_000_000);

    // Its quota grew: the job runs. The studio's shrank: five GPUs do not fit what is left of it.
    let train = street
        .world
        .submit(street.startup.user, job("train", demand(4)))
        .expect("taken");
    street.runs(train);
    let five = street
        .world
        .submit(street.studio.user, gang_of_five())
        .expect_err("four are left");
    assert_eq!(five.code, Code::ExceedsQuota, "{five}");

    // Half an hour later the studio wants them back; the notice is ten minutes.
    street.until("2026-03-02T21:30:00Z");
    let user = street.studio.user;
    street
        .world
        .by(user, Wish::RecallLease { lease })
        .expect("recalled");
    assert_eq!(street.phase(train), Phase::Running, "notice is kept");
    let told = street.until("2026-03-02T21:40:00Z");
    let vacating = told
        .iter()
        .any(|event| matches!(event, Event::LeaseVacating { victims, .. } if victims[..] == [train]));
    assert!(
        vacating,
        "the job is told in time to be gone at the end: {told:?}"
    );
    assert!(
        matches!(street.phase(train), Phase::Queued | Phase::Paused),
        "and waits for quota: {:?}",
        street.phase(train)
    );
    let ended = told.iter().find_map(|event| match event {
        Event::LeaseEnded {
            why, had_ms, cost, ..
        } => Some((*why, *had_ms, *cost)),
        _ => None,
    });
    assert_eq!(
        ended,
        Some((LeaseEnd::Recalled, 2_400_000, Micros(1_333_334))),
        "forty minutes of 4 GPUs, rounded up to the micro"
    );

    // Every account to the micro: the fee is 50 ‰; the job paid the platform's own price for the seconds it ran.
    let fee = 66_666;
    let ran = street.world.state.jobs[&train].charged.money.0;
    assert_eq!(ran, 4 * 1_000_000 * 2_368 / 3_600, "told 32 s before the end");
    assert_eq!(street.of(studio), 1_333_334 - fee);
    assert_eq!(street.of(startup), -1_333_334 - ran);
    assert_eq!(street.has(AccountId::Revenue), fee + ran);
    assert_eq!(street.has(AccountId::Escrow), 0);
    assert_eq!(street.world.state.accounts.sum(), 0);

    // The quota is the studio's again, and the offer stands for who comes next.
    street
        .world
        .submit(street.studio.user, gang_of_five())
        .expect("eight are its own");
}

fn gang_of_five() -> JobSpec {
    spec("five", gang(5, demand(1)), 600)
}

#[test]
fn who_is_cut_short_of_the_minimum_is_paid_for_it() {
    let mut street = Street::new();
    street.studio_offers(offer(2000)).expect("listed");
    let bought = street.startup_bids(instant(2000)).expect("bought");
    let user = street.studio.user;
    street.until("2026-03-02T09:05:00Z");
    let lease = leases(&bought)[0];
    street
        .world
        .by(user, Wish::RecallLease { lease })
        .expect("recalled");
    street.until("2026-03-02T09:15:00Z");
    // A quarter of an hour was had of the half that was promised; half the price of the rest is the penalty.
    let (had, penalty, fee) = (250_000, 125_000, 12_500);
    assert_eq!(street.of(street.studio.tenant), had - fee - penalty);
    assert_eq!(street.of(street.startup.tenant), penalty - had);
    assert_eq!(street.has(AccountId::Revenue), fee);
    let now = street.world.now;
    let reliable = street
        .world
        .state
        .market
        .reliability_permille(street.studio.tenant, now);
    assert!(reliable < 1000, "{reliable} ‰: a promise was broken");
    let picky = BidSpec {
        min_reliability_permille: 1000,
        ..instant(1000)
    };
    assert_eq!(
        street.startup_bids(picky).expect_err("not that reliable").code,
        Code::NoOffers
    );
}

#[test]
fn a_recall_has_a_gang_leave_whole() {
    let mut street = Street::new();
    street.studio_offers(offer(6000)).expect("listed");
    let bought = street.startup_bids(instant(6000)).expect("bought");
    let startup = street.startup.user;
    let pair = street
        .world
        .submit(startup, job("pair", gang(2, demand(2))))
        .expect("taken");
    let small = street
        .world
        .submit(startup, job("small", demand(1)))
        .expect("taken");
    street.runs(pair);
    street.until("2026-03-02T09:01:00Z");
    street.runs(small);
    let user = street.studio.user;
    let lease = leases(&bought)[0];
    street
        .world
        .by(user, Wish::RecallLease { lease })
        .expect("recalled");
    let told = street.until("2026-03-02T09:11:00Z");
    let victims = told.iter().find_map(|event| match event {
        Event::LeaseVacating { victims, .. } => Some(victims.clone()),
        _ => None,
    });
    assert_eq!(victims, Some(vec![small, pair]), "the last come first, and all");
    for id in [pair, small] {
        assert!(matches!(street.phase(id), Phase::Queued | Phase::Paused));
        assert_eq!(street.world.member(id, 1), None, "no member stayed behind");
    }
}

#[test]
fn with_another_lease_the_job_moves_on() {
    let mut street = Street::new();
    street.studio_offers(offer(2000)).expect("listed");
    let bought = street.startup_bids(instant(2000)).expect("bought");
    let run = street
        .world
        .submit(street.startup.user, job("run", demand(2)))
        .expect("taken");
    street.runs(run);
    street.studio_offers(offer(2000)).expect("listed");
    let user = street.studio.user;
    let lease = leases(&bought)[0];
    street
        .world
        .by(user, Wish::RecallLease { lease })
        .expect("recalled");
    street.startup_bids(instant(2000)).expect("bought elsewhere");
    street.until("2026-03-02T09:20:00Z");
    assert_eq!(street.phase(run), Phase::Running, "its quota is there as before");
}

#[test]
fn a_limit_bid_waits_for_its_price_and_takes_the_best_of_it() {
    let mut street = Street::new();
    let third = street.trader("third", 4000);
    let bid = BidSpec {
        kind: BidKind::Limit {
            expires: at("2026-03-02T12:00:00Z"),
        },
        price: Micros(400_000),
        ..instant(3000)
    };
    street.startup_bids(bid).expect("it waits");
    let held = |street: &Street| {
        let account = AccountId::Tenant(street.startup.tenant);
        street.world.state.accounts.get(account).held.0
    };
    assert_eq!(held(&street), 2_400_000, "three, two hours, at its own price");
    street.studio_offers(offer(8000)).expect("too dear");
    assert_eq!(street.world.state.market.leases().count(), 0);
    let cheap = OfferSpec {
        price: Micros(300_000),
        ..offer(2000)
    };
    let (user, tenant) = (third.user, third.tenant);
    street.offer(user, tenant, cheap).expect("taken at once");
    assert_eq!(
        (held(&street), street.has(AccountId::Escrow)),
        (800_000, 1_200_000),
        "two at what was asked, one still waits"
    );
    street.until("2026-03-02T12:00:01Z");
    assert_eq!(held(&street), 0, "it expired");
    assert_eq!(street.of(tenant), 1_140_000, "the lease ran its two hours");
}

#[test]
fn what_is_given_back_costs_the_minimum() {
    let mut street = Street::new();
    street.studio_offers(offer(1000)).expect("listed");
    let lease = leases(&street.startup_bids(instant(1000)).expect("bought"))[0];
    street.until("2026-03-02T09:01:00Z");
    let user = street.startup.user;
    street
        .world
        .by(user, Wish::ReturnLease { lease })
        .expect("given back");
    assert_eq!(
        street.of(street.startup.tenant),
        -250_000,
        "half an hour was the minimum"
    );
}

#[test]
fn nobody_buys_of_itself() {
    let mut street = Street::new();
    street.studio_offers(offer(4000)).expect("listed");
    let (user, scope) = (street.studio.user, street.studio.scope());
    let refused = street.bid(user, scope, instant(1000)).expect_err("its own");
    assert_eq!(refused.code, Code::SelfTrade, "{refused}");
    // Of others it buys, past its own though that is cheaper.
    let third = street.trader("third", 4000);
    let dearer = OfferSpec {
        price: Micros(900_000),
        ..offer(4000)
    };
    street.offer(third.user, third.tenant, dearer).expect("listed");
    let bought = street.bid(user, scope, instant(1000)).expect("bought");
    assert!(matches!(&bought[0], Event::LeaseBegan { lease, .. } if lease.seller == third.tenant));
}

#[test]
fn the_fee_is_nothing_or_all_of_it() {
    for (fee_permille, to_seller) in [(0, 500_000), (1000, 0), (333, 333_500)] {
        let mut street = Street::new();
        let terms = MarketTerms {
            fee_permille,
            ..MarketTerms::default()
        };
        street.world.root(Wish::SetMarketTerms { terms }).expect("set");
        street.studio_offers(offer(1000)).expect("listed");
        let hour = BidSpec {
            duration_s: HOUR_S,
            ..instant(1000)
        };
        street.startup_bids(hour).expect("bought");
        // Terms of a later day do not reach back.
        let terms = MarketTerms::default();
        street.world.root(Wish::SetMarketTerms { terms }).expect("set");
        street.until("2026-03-02T10:00:00Z");
        assert_eq!(street.of(street.studio.tenant), to_seller, "{fee_permille} ‰");
    }
}

#[test]
fn leases_and_what_was_set_stay_apart() {
    let mut street = Street::new();
    street.studio_offers(offer(4000)).expect("listed");
    street.startup_bids(instant(2000)).expect("bought");
    let limit = |street: &Street, scope| {
        let meter = "gpu_milli@class:H100".parse().expect("a meter");
        street
            .world
            .state
            .tree
            .get(scope)
            .and_then(|scope| scope.limits().get(&meter))
    };
    let (studio, startup) = (street.studio.scope(), street.startup.scope());
    assert_eq!(
        (limit(&street, studio), limit(&street, startup)),
        (Some(6000), Some(2000))
    );
    // An operator sets both anew in the middle of it.
    street.world.quota(studio, &[("gpu_milli@class:H100", 5000)]);
    street.world.quota(startup, &[("gpu_milli@class:H100", 1000)]);
    assert_eq!(
        (limit(&street, studio), limit(&street, startup)),
        (Some(3000), Some(3000))
    );
    street.until("2026-03-02T11:00:00Z");
    assert_eq!(
        (limit(&street, studio), limit(&street, startup)),
        (Some(5000), Some(1000))
    );
}

#[test]
fn who_leased_is_sure_of_it_and_the_seller_no_longer() {
    let mut street = Street::new();
    let (studio, startup) = (street.studio.scope(), street.startup.scope());
    let third = street.trader("third", 8000);
    let nominal = |gpu_milli| Share {
        nominal: [(
            "H100".into(),
            Nominal {
                gpu_milli,
                ..Nominal::default()
            },
        )]
        .into(),
        ..Share::default()
    };
    for (scope, gpu_milli) in [(studio, 8000), (third.scope(), 0)] {
        let wish = Wish::SetShare {
            scope,
            share: nominal(gpu_milli),
            revision: None,
        };
        street.world.root(wish).expect("set");
    }
    let sure = |street: &Street, scope, ask| footing(&street.world.state, scope, "H100", ask);
    assert_eq!(sure(&street, third.scope(), 8000), Ok(Footing::Borrows));
    street.studio_offers(offer(6000)).expect("listed");
    street.startup_bids(instant(6000)).expect("bought");
    assert_eq!(sure(&street, startup, 6000), Ok(Footing::Nominal));
    assert_eq!(
        sure(&street, startup, 6001),
        Ok(Footing::Unsure),
        "beyond it as before"
    );
    assert_eq!(sure(&street, studio, 2000), Ok(Footing::Nominal));
    assert_eq!(
        sure(&street, third.scope(), 2001).map_err(|refusal| refusal.code),
        Err(Code::NotLent),
        "what is let is not lent besides"
    );
}

#[test]
fn of_a_job_of_tasks_the_tasks_leave() {
    let mut street = Street::new();
    street.studio_offers(offer(2000)).expect("listed");
    let lease = leases(&street.startup_bids(instant(2000)).expect("bought"))[0];
    let mut frames = spec("frames", demand(1), HOUR_S);
    frames.workload = Some(Box::new(Workload::Rendering(Rendering {
        frames: "1-4".parse().expect("frames"),
        scene: None,
        each_ms: Some(30_000),
        vram_mib: Some(6000),
    })));
    let parent = street.world.submit(street.startup.user, frames).expect("taken");
    street.world.schedule();
    let tasks = |street: &Street| -> Vec<_> {
        let tasks = street.world.state.jobs[&parent].tasks.as_ref().expect("tasks");
        tasks.living.values().copied().collect()
    };
    let running: Vec<_> = tasks(&street)
        .into_iter()
        .filter(|task| street.world.allocation(*task).is_some())
        .collect();
    assert!(!running.is_empty(), "some of it runs on what was leased");
    running.iter().for_each(|task| street.runs(*task));
    let user = street.studio.user;
    street
        .world
        .by(user, Wish::RecallLease { lease })
        .expect("recalled");
    let told = street.until("2026-03-02T09:11:00Z");
    let stopped = told.iter().filter_map(|event| match event {
        Event::LeaseVacating { victims, .. } => Some(victims.clone()),
        _ => None,
    });
    let stopped: Vec<_> = stopped.flatten().collect();
    assert!(!stopped.is_empty() && !stopped.contains(&parent), "{stopped:?}");
    assert!(
        street.world.state.jobs[&parent].stop.is_none(),
        "the job waits for quota, as a whole"
    );
    assert!(
        tasks(&street)
            .iter()
            .all(|task| !matches!(street.phase(*task), Phase::Running))
    );
}

#[test]
fn a_lease_is_on_the_bills_of_both_sides_as_the_ledger_has_it() {
    let mut street = Street::new();
    street.studio_offers(offer(1000)).expect("listed");
    let mut rows = Vec::new();
    let mut bill = |state: &State, at: Time, events: &[Event]| {
        rows.extend(events.iter().flat_map(|event| bill::rows(state, at, event)));
    };
    let before = street.world.state.clone();
    let bought = street.startup_bids(instant(1000)).expect("bought");
    bill(&before, street.world.now, &bought);
    street.until("2026-03-02T09:01:00Z");
    let before = street.world.state.clone();
    let (user, lease) = (street.startup.user, leases(&bought)[0]);
    let ended = street
        .world
        .by(user, Wish::ReturnLease { lease })
        .expect("given back");
    bill(&before, street.world.now, &ended);
    for tenant in [street.startup.tenant, street.studio.tenant] {
        let path = tenant.to_string();
        let own = rows.iter().filter(|placed| placed.path.starts_with(&path));
        let owed: i64 = own
            .flat_map(|placed| &placed.rows)
            .filter_map(|row| row.seen(Eye::Tenant))
            .map(|of| of.0)
            .sum();
        assert_eq!(owed, -street.of(tenant));
        assert_ne!(owed, 0);
    }
    let mut each = rows.iter().flat_map(|placed| &placed.rows);
    assert!(each.all(|row| row.what == What::Lease));
    assert_eq!(rows.len(), 3, "paid, what came back, what was earned");
}
