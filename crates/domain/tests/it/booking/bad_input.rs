//! Windows in time as they come from outside: whatever is wrong with them is refused, named, and changes nothing.

use tenure_domain::booking::record::{BookingSpec, Size};
use tenure_domain::booking::zone::{Wall, Zone};
use tenure_domain::{Code, Refusal};

use super::story::{Story, every, gpus, wall};

fn refused(spec: BookingSpec, zone: &str) -> Refusal {
    let mut story = Story::new();
    let before = story.world.state.clone();
    let ada = story.ada;
    let refusal = story.book(ada, spec, zone).expect_err("refused");
    assert_eq!(story.world.state, before, "nothing changed");
    assert!(refusal.field.is_some(), "{refusal}");
    refusal
}

fn once(start: &str, end: &str) -> BookingSpec {
    gpus("w", 1, start, end)
}

#[test]
fn time_windows() {
    let field = |spec, zone: &str| refused(spec, zone).field.expect("a field").into_owned();
    assert_eq!(field(once("2026-03-05T09:00", "2026-03-05T08:00"), "UTC"), "/end");
    assert_eq!(field(once("2026-03-05T09:00", "2026-03-05T09:00"), "UTC"), "/end");
    assert_eq!(
        field(once("2026-03-05T09:00:00", "2026-03-05T09:00:01"), "UTC"),
        "/end"
    );
    assert_eq!(field(once("2026-03-05T09:00", "2037-03-05T09:00"), "UTC"), "/end");
    assert_eq!(
        field(once("2026-03-01T09:00", "2026-03-01T10:00"), "UTC"),
        "/start"
    );
    assert_eq!(
        field(once("1970-01-01T00:00", "1970-01-01T01:00"), "UTC"),
        "/start"
    );
    assert_eq!(
        field(once("9998-01-01T00:00", "9998-01-01T01:00"), "UTC"),
        "/start"
    );
    assert_eq!(
        field(once("2028-02-29T00:00", "2028-02-29T01:00"), "UTC"),
        "/start"
    );
    // The clocks are put forward over it.
    assert_eq!(
        field(once("2026-03-29T02:30", "2026-03-29T04:00"), "Europe/Berlin"),
        "/start"
    );
    assert_eq!(
        field(
            every(
                once("2026-03-05T09:00", "2026-03-05T10:00"),
                "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"
            ),
            "UTC"
        ),
        "/rule"
    );
    // A window that lasts into the next.
    assert_eq!(
        field(
            every(once("2026-03-05T09:00", "2026-03-06T10:00"), "FREQ=DAILY;COUNT=3"),
            "UTC"
        ),
        "/end"
    );
    let mut many = once("2026-03-05T09:00", "2026-03-05T10:00");
    many.recurrence.dates = (0..1001).map(|_| wall("2026-03-06T09:00")).collect();
    assert_eq!(field(many, "UTC"), "/dates");
    for count in [0, 4097, u32::MAX] {
        let mut spec = once("2026-03-05T09:00", "2026-03-05T10:00");
        spec.size = Size::Gpus { count, spread: true };
        assert_eq!(field(spec, "UTC"), "/size/count");
    }
    let mut spec = once("2026-03-05T09:00", "2026-03-05T10:00");
    spec.size = Size::Slices {
        count: 1,
        compute_permille: 1001,
        vram_mib: 1,
    };
    assert_eq!(field(spec, "UTC"), "/size/compute_permille");
    let mut spec = once("2026-03-05T09:00", "2026-03-05T10:00");
    spec.size = Size::Slices {
        count: 1,
        compute_permille: 500,
        vram_mib: 80_001,
    };
    assert_eq!(field(spec, "UTC"), "/size/vram_mib", "no GPU of it has as much");
    // Few come of them, and each takes half a million to find.
    let hours: Vec<String> = (0..24).map(|hour| hour.to_string()).collect();
    let minutes: Vec<String> = (0..60).map(|minute| minute.to_string()).collect();
    for often in ["YEARLY", "MONTHLY"] {
        let rule = format!(
            "FREQ={often};BYMONTHDAY=1,2,3;BYHOUR={};BYMINUTE={};BYSETPOS=1",
            hours.join(","),
            minutes.join(",")
        );
        let spec = every(once("1970-01-01T00:00", "1970-01-01T01:00"), &rule);
        assert_eq!(field(spec, "UTC"), "/rule", "{often}");
    }
    let mut spec = once("2026-03-05T09:00", "2026-03-05T10:00");
    spec.class = "no\nclass".into();
    assert_eq!(field(spec, "UTC"), "/class");
    let mut spec = once("2026-03-05T09:00", "2026-03-05T10:00");
    spec.class = "B200".into();
    assert_eq!(refused(spec, "UTC").code, Code::BookedOut, "there is none of it");
}

#[test]
fn a_time_that_is_twice_is_booked_once_and_a_day_of_23_hours_ends() {
    let mut story = Story::new();
    let ada = story.ada;
    let fold = story
        .book(ada, once("2026-10-25T02:30", "2026-10-25T03:30"), "Europe/Berlin")
        .expect("the first of two");
    let window = &story.booking(fold).windows[0];
    assert_eq!(
        (window.start.rfc3339().as_str(), window.length_ms()),
        ("2026-10-25T00:30:00Z", 7_200_000)
    );
    let night = story
        .book(ada, once("2026-03-28T22:00", "2026-03-29T06:00"), "Europe/Berlin")
        .expect("a night");
    assert_eq!(
        story.booking(night).windows[0].length_ms(),
        7 * 3_600_000,
        "until six by the clock"
    );
    let leap = story
        .book(
            ada,
            once("2026-03-28T09:00", "2026-03-28T10:00"),
            "Africa/Monrovia",
        )
        .expect("any zone");
    assert_eq!(story.booking(leap).windows.len(), 1);
    // Adjacent windows meet nobody; one second of overlap does.
    let mut whole = |start: &str, end: &str| story.book(ada, gpus("w", 4, start, end), "UTC");
    for _ in 0..2 {
        whole("2026-04-01T09:00:00", "2026-04-01T10:00:00").expect("booked");
        whole("2026-04-01T10:00:00", "2026-04-01T11:00:00").expect("adjacent");
    }
    assert_eq!(
        whole("2026-04-01T10:59:59", "2026-04-01T12:00:00")
            .expect_err("a second")
            .code,
        Code::BookedOut
    );
}

#[test]
fn zones_and_wall_times_are_what_they_are() {
    for bad in [
        "",
        "Europe",
        "Berlin",
        "Europe/Atlantis",
        "../../etc/passwd",
        "+01:00",
        "Europe/Berlin\n",
        "EUROPE/BERLIN/",
    ] {
        assert!(Zone::bundled(bad).is_err(), "{bad:?}");
    }
    for bad in [
        "2026-03-05",
        "2026-03-05T09:00Z",
        "2026-03-05T09:00+01:00",
        "2026-06-30T23:59:60",
        "-2026-03-05T09:00",
        "99999-01-01T00:00",
    ] {
        assert!(Wall::parse(bad).is_err(), "{bad}");
    }
}
