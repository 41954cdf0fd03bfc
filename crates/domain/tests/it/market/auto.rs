//! The standing order: what a week has shown to lie idle is offered, until when it was busy again, and no more.

use tenure_domain::market::auto::AutoSpec;
use tenure_domain::market::offer::Offer;
use tenure_domain::money::Micros;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Event, Wish};

use super::street::{HOUR_S, Street, at, demand, instant};
use crate::world::spec;

fn standing() -> AutoSpec {
    AutoSpec {
        class: "H100".into(),
        floor: Micros(400_000),
        reserve_milli: 1000,
        min_lease_s: HOUR_S,
        max_lease_s: 12 * HOUR_S,
        notice_s: 600,
        buyers: None,
        isolation: Isolation::Fenced,
    }
}

fn on_offer(street: &Street) -> Option<&Offer> {
    street.world.state.market.offers().next()
}

#[test]
fn idle_nights_are_offered_by_what_the_week_before_was_like() {
    let mut street = Street::new();
    street.world.thorough = false;
    let (seller, user) = (street.studio.tenant, street.studio.user);
    let spec_of = Box::new(standing());
    let wish = Wish::SetAutoOffer {
        seller,
        spec: spec_of,
    };
    street.world.by(user, wish).expect("it stands");
    street.tick();
    assert_eq!(on_offer(&street), None, "nothing is offered on a guess");

    // A week: seven GPUs are busy from nine to five, none at night.
    for day in 2..9 {
        street.until(&format!("2026-03-{day:02}T09:00:00Z"));
        let busy = street
            .world
            .submit(user, spec("day", demand(4), 10 * HOUR_S))
            .expect("taken");
        let more = street
            .world
            .submit(user, spec("day", demand(3), 10 * HOUR_S))
            .expect("taken");
        street.runs(busy);
        street.runs(more);
        street.world.now = at(&format!("2026-03-{day:02}T16:59:00Z"));
        street.tick();
        for job in [busy, more] {
            street.world.exit(job, 8 * HOUR_S - 60);
        }
    }

    // Monday again, at six in the evening.
    street.until("2026-03-09T09:00:00Z");
    assert_eq!(on_offer(&street), None, "by day seven are used and one is kept");
    street.world.now = at("2026-03-09T18:00:00Z");
    let events = street.tick();
    let made = events
        .iter()
        .any(|event| matches!(event, Event::OfferMade { .. }));
    assert!(made, "{events:?}");
    let offer = on_offer(&street).expect("an offer");
    assert_eq!(offer.spec.gpu_milli, 7000, "all but the reserve");
    assert_eq!(offer.spec.price, Micros(400_000), "the floor");
    assert_eq!(
        offer.open.last().map(|span| span.end),
        Some(at("2026-03-10T09:00:00Z")),
        "until work begins"
    );
    let basis = offer.forecast.as_deref().expect("a basis");
    assert!(
        basis.contains("at most 0 gpu_milli of H100 were in use"),
        "{basis}"
    );
    street.startup_bids(instant(7000)).expect("bought");

    let class = "H100".into();
    street
        .world
        .by(user, Wish::RemoveAutoOffer { seller, class })
        .expect("removed");
    assert_eq!(on_offer(&street), None);
}
