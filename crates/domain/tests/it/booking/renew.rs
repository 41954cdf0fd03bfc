//! Series without an end, as time passes: windows are there in good time, what was missed is forgotten once it is over, and
//! what went before costs nothing.

use tenure_domain::booking::change::Edit;
use tenure_domain::booking::record::{Exception, Size};
use tenure_domain::booking::terms::Terms;
use tenure_domain::{Event, Wish};

use super::story::{Story, every, gpus, wall, zone};

fn horizon(story: &mut Story, days: u32) {
    let terms = Terms {
        horizon_days: days,
        ..Default::default()
    };
    story.world.root(Wish::SetBookingTerms { terms }).expect("set");
}

#[test]
fn a_horizon_of_a_day_is_renewed_in_good_time() {
    let mut story = Story::new();
    let ada = story.ada;
    horizon(&mut story, 1);
    // Half a minute beyond the horizon it is booked with: the next would be made when that has come.
    let daily = every(
        gpus("daily", 1, "2026-03-02T09:00:30", "2026-03-02T09:10:30"),
        "FREQ=DAILY",
    );
    let id = story.book(ada, daily, "UTC").expect("booked");
    let mut opened = Vec::new();
    for day in 3..=5 {
        let of = wall(&format!("2026-03-0{day}T09:00:30"));
        // Two minutes before its start is its lead time.
        opened.extend(story.until(&format!("2026-03-0{day}T08:58:00Z")));
        assert!(story.booking(id).window(of).is_some(), "{day}");
        opened.extend(story.until(&format!("2026-03-0{day}T09:00:32Z")));
    }
    let late = opened.iter().filter_map(|event| match event {
        Event::WindowOpened { late_ms, .. } => Some(*late_ms),
        _ => None,
    });
    // The first was booked within its lead time.
    assert_eq!(late.skip(1).collect::<Vec<_>>(), [0; 3]);
}

#[test]
fn a_series_of_many_goes_on_after_years() {
    let mut story = Story::new();
    let ada = story.ada;
    let every_minute: Vec<String> = (0..60).map(|minute| minute.to_string()).collect();
    let rule = format!("FREQ=HOURLY;BYMINUTE={}", every_minute.join(","));
    let minutes = every(gpus("minutes", 1, "2026-03-02T10:00", "2026-03-02T10:01"), &rule);
    let id = story.book(ada, minutes, "UTC").expect("booked");
    assert_eq!(story.booking(id).windows.len(), 1000);
    story.world.pass_s(200 * 86_400);
    for _ in 0..40 {
        story.tick();
    }
    let (booking, now) = (story.booking(id), story.world.now);
    let coming = booking.windows.iter().filter(|window| window.start > now);
    assert!(
        booking.more && coming.count() > 900,
        "{:?}",
        booking.windows.len()
    );
}

#[test]
fn what_was_missed_is_forgotten_when_it_is_over() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    horizon(&mut story, 2);
    let hourly = every(
        gpus("hourly", 4, "2026-03-02T10:00", "2026-03-02T10:10"),
        "FREQ=HOURLY",
    );
    let id = story.book(ada, hourly, "UTC").expect("booked");
    horizon(&mut story, 100);
    for name in ["x", "y"] {
        let all = gpus(name, 4, "2026-03-05T00:00", "2026-04-30T00:00");
        story.book(bob, all, "UTC").expect("booked");
    }
    horizon(&mut story, 2);
    let mut most = 0;
    for _ in 0..60 {
        story.world.pass_s(86_400);
        for _ in 0..3 {
            story.tick();
        }
        most = most.max(story.booking(id).spec.recurrence.except.len());
    }
    assert!((24..=4 * 24).contains(&most), "{most} dates are left out");
    assert!(!story.booking(id).windows.is_empty(), "it goes on");
    let window = story.booking(id).windows.last().expect("one").of;
    let shorter = Exception {
        of: window,
        start: window,
        end: window.plus_s(300).expect("a wall time"),
        size: Size::Gpus {
            count: 4,
            spread: false,
        },
    };
    let edit = Wish::EditBooking {
        booking: id,
        edit: Box::new(Edit::One(shorter)),
        zone: Box::new(zone("UTC").expect("a zone")),
        revision: None,
    };
    story
        .world
        .by(ada, edit)
        .expect("what was missed stands in no edit's way");
}

#[test]
fn more_dates_left_out_than_anybody_says_stand_in_no_edits_way() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    horizon(&mut story, 2);
    let often = every(
        gpus("often", 4, "2026-03-02T10:00", "2026-03-02T10:02"),
        "FREQ=HOURLY;BYMINUTE=0,5,10,15,20,25,30,35,40,45",
    );
    let id = story.book(ada, often, "UTC").expect("booked");
    horizon(&mut story, 100);
    for name in ["x", "y"] {
        let all = gpus(name, 4, "2026-03-04T09:00", "2026-03-08T19:00");
        story.book(bob, all, "UTC").expect("booked");
    }
    horizon(&mut story, 9);
    for _ in 0..4 {
        story.world.pass_s(1);
        story.tick();
    }
    assert!(story.booking(id).spec.recurrence.except.len() > 1000);
    let window = story.booking(id).windows.last().expect("one").of;
    let shorter = Exception {
        of: window,
        start: window,
        end: window.plus_s(60).expect("a wall time"),
        size: Size::Gpus {
            count: 4,
            spread: false,
        },
    };
    let edit = Wish::EditBooking {
        booking: id,
        edit: Box::new(Edit::One(shorter)),
        zone: Box::new(zone("UTC").expect("a zone")),
        revision: None,
    };
    story.world.by(ada, edit).expect("they are nobody's wish");
}
