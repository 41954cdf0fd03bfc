//! Spot: cheap until somebody bids more.

use tenure_domain::market::bid::{BidKind, BidSpec};
use tenure_domain::market::lease::RecallReason;
use tenure_domain::money::Micros;
use tenure_domain::workload::job::Phase;
use tenure_domain::{Event, Wish};

use super::street::{HOUR_S, Street, at, bid_of, demand, instant, leases, offer};
use crate::world::spec;

fn spot(gpu_milli: u64, price: i64) -> BidSpec {
    BidSpec {
        price: Micros(price),
        kind: BidKind::Spot {
            expires: at("2026-03-03T09:00:00Z"),
        },
        ..instant(gpu_milli)
    }
}

#[test]
fn who_bids_more_takes_it_after_the_notice() {
    let mut street = Street::new();
    let rival = street.trader("rival", 0);
    street.studio_offers(offer(2000)).expect("listed");
    let first = street.startup_bids(spot(2000, 600_000)).expect("bought");
    let lease = leases(&first)[0];
    let run = street
        .world
        .submit(street.startup.user, spec("run", demand(2), 4 * HOUR_S))
        .expect("taken");
    street.runs(run);

    // As much is not more.
    let (user, scope) = (rival.user, rival.scope());
    let same = street.bid(user, scope, spot(2000, 600_000)).expect("it waits");
    assert_eq!(same.len(), 1, "nobody is asked to leave: {same:?}");
    let bid = bid_of(&same);
    street.world.by(user, Wish::CancelBid { bid }).expect("cancelled");

    let more = street.bid(user, scope, spot(2000, 700_000)).expect("it waits");
    let taken = more.iter().find_map(|event| match event {
        Event::LeaseRecalled { lease, by, end, .. } => Some((*lease, *by, *end)),
        _ => None,
    });
    let by = RecallReason::Outbid(bid_of(&more));
    assert_eq!(taken, Some((lease, by, at("2026-03-02T09:10:00Z"))));
    street.until("2026-03-02T09:10:02Z");
    assert_ne!(street.phase(run), Phase::Running, "it left by the common way out");
    let held: Vec<_> = street
        .world
        .state
        .market
        .leases()
        .map(|lease| (lease.buyer, lease.gpu_milli, lease.price.0))
        .collect();
    assert_eq!(
        held,
        [(rival.tenant, 2000, 500_000)],
        "the rival has it, and pays what is asked"
    );
    // Ten minutes of two GPUs: 166,667 with nothing added for having been outbid.
    assert_eq!(street.of(street.studio.tenant), 166_667 - 8_333);
}

#[test]
fn what_was_bought_outright_is_not_outbid() {
    let mut street = Street::new();
    let rival = street.trader("rival", 0);
    street.studio_offers(offer(2000)).expect("listed");
    street.startup_bids(instant(2000)).expect("bought");
    let (user, scope) = (rival.user, rival.scope());
    let more = street.bid(user, scope, spot(2000, 1_500_000)).expect("it waits");
    assert_eq!(more.len(), 1, "{more:?}");
}
