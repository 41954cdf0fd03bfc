//! What a booking may hold, whatever is done to it: windows, quota and money.

use tenure_domain::booking::change::Edit;
use tenure_domain::booking::record::{Exception, Size};
use tenure_domain::id::BookingId;
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::time::Period;
use tenure_domain::{Code, Event, Wish};

use super::story::{Story, every, gpus, money, wall, zone};

fn edit(booking: BookingId, edit: Edit) -> Wish {
    Wish::EditBooking {
        booking,
        edit: Box::new(edit),
        zone: Box::new(zone("UTC").expect("a zone")),
        revision: None,
    }
}

fn exception(of: &str, start: &str, end: &str, count: u32) -> Edit {
    Edit::One(Exception {
        of: wall(of),
        start: wall(start),
        end: wall(end),
        size: Size::Gpus { count, spread: false },
    })
}

fn budget(story: &mut Story, scope: ScopeId, money_micros: u64) {
    let total = Budget {
        period: Period::Total,
        class: None,
        sku: None,
        kind: None,
        money_micros: Some(money_micros),
        gpu_seconds: None,
        frames: None,
        alerts_permille: Vec::new(),
    };
    let set = Wish::SetBudgets {
        scope,
        budgets: vec![total],
        revision: None,
    };
    story.world.root(set).expect("set");
}

#[test]
fn a_long_series_holds_so_many_windows_and_no_more() {
    let mut story = Story::new();
    story.world.thorough = false;
    let ada = story.ada;
    let hourly = every(
        gpus("hourly", 1, "2026-03-02T10:00", "2026-03-02T10:10"),
        "FREQ=HOURLY",
    );
    let id = story.book(ada, hourly, "UTC").expect("booked");
    let held = money(&story, ada);
    assert_eq!(story.booking(id).windows.len(), 1000);
    for _ in 0..3 {
        story.tick();
    }
    assert_eq!(story.booking(id).windows.len(), 1000);
    assert_eq!(money(&story, ada), held, "what was agreed to, and no more");
    story.until("2026-03-02T12:20:00Z");
    assert_eq!(
        story.booking(id).windows.len(),
        1000,
        "one follows where one ended"
    );
}

#[test]
fn windows_stay_in_order_as_a_series_goes_on() {
    let mut story = Story::new();
    let ada = story.ada;
    // A thousand hours are held, and one of them is put off until long after these.
    let hourly = every(
        gpus("hourly", 1, "2026-03-03T09:00", "2026-03-03T09:10"),
        "FREQ=HOURLY",
    );
    let id = story.book(ada, hourly, "UTC").expect("booked");
    let later = exception("2026-03-20T09:00", "2026-08-07T15:30", "2026-08-07T15:40", 1);
    story.world.by(ada, edit(id, later)).expect("edited");
    story.world.pass_s(2 * 86_400);
    story.tick();
    let events = story.tick();
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::BookingRenewed { .. }))
    );
    let starts: Vec<_> = story
        .booking(id)
        .windows
        .iter()
        .map(|window| window.start)
        .collect();
    assert!(starts.is_sorted(), "{starts:?}");
}

#[test]
fn what_began_is_counted_when_the_rest_is_edited() {
    let mut story = Story::new();
    let (ada, acme) = (story.ada, story.acme);
    story.world.quota(acme, &[("booked_milli", 4000)]);
    let mut all = gpus("a", 4, "2026-03-02T10:00", "2026-03-02T17:00");
    let id = story.book(ada, all.clone(), "UTC").expect("booked");
    story.until("2026-03-02T10:00:01Z");
    assert!(story.booking(id).windows[0].is_open());
    all.recurrence.start = wall("2026-03-02T11:00");
    story
        .world
        .by(ada, edit(id, Edit::All { spec: all }))
        .expect_err("the one that is open is there until five");
}

#[test]
fn what_stays_of_a_series_is_counted_beside_what_follows() {
    let mut story = Story::new();
    let (ada, acme) = (story.ada, story.acme);
    story.world.quota(acme, &[("booked_milli", 4000)]);
    let daily = every(
        gpus("a", 4, "2026-03-03T10:00", "2026-03-03T11:00"),
        "FREQ=DAILY;COUNT=5",
    );
    let id = story.book(ada, daily.clone(), "UTC").expect("booked");
    let moved = exception("2026-03-04T10:00", "2026-03-05T12:00", "2026-03-05T13:00", 4);
    story.world.by(ada, edit(id, moved)).expect("edited");
    let mut longer = daily;
    longer.recurrence.start = wall("2026-03-05T10:00");
    longer.end = wall("2026-03-05T13:00");
    let rest = Edit::Rest {
        from: wall("2026-03-05T10:00"),
        spec: longer,
    };
    let refused = story
        .world
        .by(ada, edit(id, rest))
        .expect_err("eight GPUs at twelve");
    assert_eq!(refused.code, Code::ExceedsQuota);
}

#[test]
fn an_edit_fits_the_budget_with_its_fee() {
    let mut story = Story::new();
    let ada = story.ada;
    budget(&mut story, ScopeId::User(ada), 2_500_000);
    let mut soon = gpus("a", 2, "2026-03-02T11:00", "2026-03-02T12:00");
    let id = story.book(ada, soon.clone(), "UTC").expect("booked");
    soon.recurrence.start = wall("2026-03-02T15:00");
    soon.end = wall("2026-03-02T16:00");
    let all = |spec| edit(id, Edit::All { spec });
    let refused = story
        .world
        .by(ada, all(soon.clone()))
        .expect_err("half of two is due");
    assert_eq!(refused.code, Code::ExceedsBudget);
    let rest = every(
        gpus("b", 2, "2026-03-02T10:30", "2026-03-02T10:45"),
        "FREQ=HOURLY;COUNT=2",
    );
    budget(&mut story, ScopeId::User(ada), 3_000_000);
    story.world.by(ada, all(soon)).expect("it fits now");
    assert_eq!(money(&story, ada), (-1_000_000, 2_000_000));
    budget(&mut story, ScopeId::User(ada), 4_000_000);
    let id = story.book(ada, rest.clone(), "UTC").expect("booked");
    let mut later = rest;
    later.recurrence.rule = None;
    later.recurrence.start = wall("2026-03-02T19:30");
    later.end = wall("2026-03-02T19:45");
    let rest = Edit::Rest {
        from: wall("2026-03-02T11:30"),
        spec: later,
    };
    let refused = story.world.by(ada, edit(id, rest)).expect_err("a quarter is due");
    assert_eq!(refused.code, Code::ExceedsBudget);
}

#[test]
fn a_transfer_is_counted_where_it_was_not_before() {
    let mut story = Story::new();
    let (ada, acme) = (story.ada, story.acme);
    let eve = story.world.user(acme, "eve", Some(Role::Operator));
    let id = story
        .book(ada, gpus("a", 4, "2026-03-03T10:00", "2026-03-03T11:00"), "UTC")
        .expect("booked");
    let to = |scope| Wish::TransferBooking {
        booking: id,
        to: scope,
    };
    budget(&mut story, acme, 5_000_000);
    story
        .world
        .by(ada, to(ScopeId::User(eve)))
        .expect("above both it is held once");
    story.world.by(ada, to(acme)).expect("upwards");
    budget(&mut story, ScopeId::User(ada), 1_000_000);
    let refused = story
        .world
        .by(ada, to(ScopeId::User(ada)))
        .expect_err("more than hers");
    assert_eq!(refused.code, Code::ExceedsBudget);
}
