//! Seats: no more of them than there are GPUs, whatever is decided at one moment, and those of a window as it was booked.

use tenure_domain::booking::change::Edit;
use tenure_domain::booking::record::{Exception, Size};
use tenure_domain::booking::terms::Terms;
use tenure_domain::id::UserId;
use tenure_domain::schedule::label::Labels;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::Phase;
use tenure_domain::workload::spec::{Isolation, JobSpec};
use tenure_domain::{Event, Wish};

use super::story::{Story, demand, every, gpus, wall, zone};
use crate::world::{World, gpu, inventory, spec};

#[test]
fn windows_that_move_at_once_do_not_meet() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let first = story
        .book(ada, gpus("a", 2, "2026-03-02T12:00", "2026-03-02T16:00"), "UTC")
        .expect("booked");
    let second = story
        .book(bob, gpus("b", 2, "2026-03-02T12:00", "2026-03-02T16:00"), "UTC")
        .expect("booked");
    // On the other node, and later: what is free at twelve is not free for all four hours.
    let third = story
        .book(bob, gpus("c", 2, "2026-03-02T14:00", "2026-03-02T16:00"), "UTC")
        .expect("booked");
    let node = |story: &Story, id| story.booking(id).windows[0].seats[0].node;
    assert_eq!(node(&story, first), node(&story, second));
    assert_ne!(node(&story, first), node(&story, third));
    story.until("2026-03-02T11:59:00Z");
    let lost = node(&story, first);
    story.world.system(Wish::LoseNode { node: lost }).expect("lost");
    story.until("2026-03-02T12:00:05Z");
    let moved = [first, second].map(|id| node(&story, id) != lost);
    assert_eq!(
        moved.iter().filter(|moved| **moved).count(),
        1,
        "there is room for one"
    );
}

#[test]
fn windows_that_end_at_once_are_not_both_given_what_is_left() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let terms = Terms {
        grace_s: 600,
        ..Default::default()
    };
    story.world.root(Wish::SetBookingTerms { terms }).expect("set");
    let mut ids = Vec::new();
    for (user, name) in [(ada, "a"), (bob, "b")] {
        let spec = gpus(name, 2, "2026-03-02T12:00", "2026-03-02T13:00");
        ids.push(story.book(user, spec, "UTC").expect("booked"));
    }
    story
        .book(bob, gpus("c", 2, "2026-03-02T13:00", "2026-03-02T14:00"), "UTC")
        .expect("booked");
    story.until("2026-03-02T12:00:01Z");
    for (user, id) in [(ada, ids[0]), (bob, ids[1])] {
        let job = JobSpec {
            booking: Some(id),
            ..spec("long", demand(2), 36_000)
        };
        story.run(user, job);
    }
    let events = story.until("2026-03-02T13:00:05Z");
    let extended = events
        .iter()
        .filter(|event| matches!(event, Event::WindowExtended { .. }));
    assert_eq!(extended.count(), 1, "two GPUs are left, not four");
}

#[test]
fn grace_of_two_windows_fits_one_quota() {
    let mut story = Story::new();
    let (ada, acme) = (story.ada, story.acme);
    let terms = Terms {
        grace_s: 600,
        ..Default::default()
    };
    story.world.root(Wish::SetBookingTerms { terms }).expect("set");
    story.world.quota(acme, &[("booked_milli", 4000)]);
    let book = |story: &mut Story, name: &str, count, start: &str, end: &str| {
        let booked = story.book(ada, gpus(name, count, start, end), "UTC");
        booked.expect("booked")
    };
    let a = book(&mut story, "a", 2, "2026-03-02T12:00", "2026-03-02T13:00");
    let b = book(&mut story, "b", 2, "2026-03-02T12:00", "2026-03-02T13:00");
    book(&mut story, "c", 1, "2026-03-02T13:00", "2026-03-02T14:00");
    story.until("2026-03-02T12:00:01Z");
    for id in [a, b] {
        let job = JobSpec {
            booking: Some(id),
            ..spec("long", demand(2), 36_000)
        };
        story.run(ada, job);
    }
    let events = story.until("2026-03-02T13:00:05Z");
    let extended = events
        .iter()
        .filter(|event| matches!(event, Event::WindowExtended { .. }));
    assert_eq!(extended.count(), 1, "the second would be the fifth GPU");
}

/// How many of three-GPU jobs there is room for in the second window of a series of one size, edited to another.
fn beside(series: Size, one: Size) -> usize {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let mut daily = every(
        gpus("daily", 1, "2026-03-02T12:00", "2026-03-02T14:00"),
        "FREQ=DAILY;COUNT=3",
    );
    daily.size = series;
    let id = story.book(ada, daily, "UTC").expect("booked");
    let exception = Exception {
        of: wall("2026-03-03T12:00"),
        start: wall("2026-03-03T12:00"),
        end: wall("2026-03-03T14:00"),
        size: one,
    };
    let edit = Wish::EditBooking {
        booking: id,
        edit: Box::new(Edit::One(exception)),
        zone: Box::new(zone("UTC").expect("a zone")),
        revision: None,
    };
    story.world.by(ada, edit).expect("edited");
    let before: Vec<_> = (0..2)
        .map(|n| {
            story.run(
                bob,
                spec(&format!("before-{n}"), crate::world::cpu(1000), 86_400 * 7),
            )
        })
        .collect();
    story.until("2026-03-03T12:00:01Z");
    assert!(story.booking(id).windows[0].is_open());
    let jobs: Vec<_> = (0..2)
        .map(|n| {
            story
                .world
                .submit(bob, spec(&format!("job-{n}"), demand(3), 600))
                .expect("taken")
        })
        .collect();
    let phase = |job| story.world.state.jobs[job].phase;
    let node = story.booking(id).windows[0].seats[0].node;
    let whole = matches!(one, Size::Nodes { .. });
    let there = before.iter().filter_map(|job| story.world.allocation(*job));
    assert!(
        !whole || there.into_iter().all(|(_, on)| on != node),
        "nobody is on the node"
    );
    jobs.iter().filter(|job| phase(job) != Phase::Queued).count()
}

#[test]
fn a_window_keeps_what_it_is_and_not_what_its_series_is() {
    let (node, gpu) = (
        Size::Nodes { count: 1 },
        Size::Gpus {
            count: 1,
            spread: false,
        },
    );
    assert_eq!(
        beside(node, gpu),
        2,
        "three GPUs beside the one, and four on the other node"
    );
    assert_eq!(beside(gpu, node), 1, "the node is its own");
}

#[test]
fn a_window_is_what_it_was_when_its_series_is_edited() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let mut daily = every(
        gpus("daily", 1, "2026-03-02T12:00", "2026-03-02T14:00"),
        "FREQ=DAILY;COUNT=3",
    );
    daily.size = Size::Nodes { count: 1 };
    let id = story.book(ada, daily.clone(), "UTC").expect("booked");
    story.until("2026-03-02T12:00:01Z");
    daily.size = Size::Gpus {
        count: 1,
        spread: false,
    };
    let edit = Wish::EditBooking {
        booking: id,
        edit: Box::new(Edit::All { spec: daily }),
        zone: Box::new(zone("UTC").expect("a zone")),
        revision: None,
    };
    story.world.by(ada, edit).expect("edited");
    for name in ["one", "two"] {
        story
            .world
            .submit(bob, spec(name, crate::world::cpu(40_000), 600))
            .expect("taken");
    }
    let jobs = story.world.state.jobs.values();
    let placed = jobs.filter(|job| job.phase != Phase::Queued).count();
    assert_eq!(placed, 1, "what began is still a whole node");
}

#[test]
fn a_node_that_is_anothers_now_is_left() {
    let mut story = Story::new();
    let (ada, beta) = (
        story.ada,
        story.world.state.tree.tenant_of(ScopeId::User(story.bob)),
    );
    let id = story
        .book(ada, gpus("a", 4, "2026-03-02T12:00", "2026-03-02T14:00"), "UTC")
        .expect("booked");
    let seat = |story: &Story| story.booking(id).windows[0].seats[0].node;
    let before = seat(&story);
    let label = |node, dedicated| Wish::LabelNode {
        node,
        labels: Labels {
            dedicated,
            ..Labels::default()
        },
        revision: None,
    };
    story.world.system(label(before, beta)).expect("labelled");
    story.until("2026-03-02T12:00:01Z");
    assert_ne!(seat(&story), before, "it was cleared elsewhere");
    assert!(story.booking(id).windows[0].is_open());
    let now = seat(&story);
    story.world.system(label(before, None)).expect("labelled");
    story.world.system(label(now, beta)).expect("labelled");
    story.until("2026-03-02T12:00:05Z");
    assert_eq!(seat(&story), before, "and goes on elsewhere");
}

#[test]
fn who_needs_long_to_leave_is_told_in_time() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    for n in 0..2 {
        let slow = JobSpec {
            grace_s: 600,
            ..spec(&format!("slow-{n}"), demand(4), 86_400)
        };
        story.run(bob, slow);
    }
    story
        .book(ada, gpus("a", 4, "2026-03-02T12:00", "2026-03-02T14:00"), "UTC")
        .expect("booked");
    let told = |events: &[Event]| {
        events
            .iter()
            .any(|event| matches!(event, Event::JobStopping { .. }))
    };
    let events = story.until("2026-03-02T11:49:00Z");
    assert!(!told(&events), "no sooner than it takes");
    let events = story.until("2026-03-02T11:50:00Z");
    assert!(told(&events), "ten minutes before the start");
}

#[test]
fn windows_without_a_place_keep_no_others_waiting() {
    let mut world = World::new();
    world.thorough = false;
    let facts = |name: &str, class: &str, count: usize| {
        let gpu = |n| gpu(&format!("{name}-{n}"), class, 80_000, &[Isolation::Exclusive]);
        inventory(64_000, 512_000, (0..count).map(gpu).collect())
    };
    let large = world.node("large", facts("large", "H100", 80));
    world.node("small", facts("small", "A100", 1));
    let acme = world.tenant("acme");
    let ada: UserId = world.user(acme, "ada", Some(Role::Operator));
    let mut story = Story {
        world,
        acme,
        ada,
        bob: ada,
        nodes: vec![large],
    };
    for n in 0..70 {
        let spec = gpus(&format!("b-{n}"), 1, "2026-03-02T12:00", "2026-03-02T14:00");
        story.book(ada, spec, "UTC").expect("booked");
    }
    let mut other = gpus("other", 1, "2026-03-02T12:01", "2026-03-02T14:00");
    other.class = "A100".into();
    let other = story.book(ada, other, "UTC").expect("booked");
    story.world.system(Wish::LoseNode { node: large }).expect("lost");
    story.until("2026-03-02T12:01:05Z");
    assert!(story.booking(other).windows[0].is_open(), "its node is sound");
}

#[test]
fn a_booking_goes_to_nobody_whose_jobs_may_not_go_where_it_is() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let tenant = |story: &Story, user| story.world.state.tree.tenant_of(ScopeId::User(user));
    let acme = tenant(&story, ada);
    let id = story
        .book(ada, gpus("a", 2, "2026-03-03T12:00", "2026-03-03T14:00"), "UTC")
        .expect("booked");
    let node = story.booking(id).windows[0].seats[0].node;
    let label = |dedicated| Wish::LabelNode {
        node,
        labels: Labels {
            dedicated,
            ..Labels::default()
        },
        revision: None,
    };
    let transfer = || Wish::TransferBooking {
        booking: id,
        to: ScopeId::User(bob),
    };
    story.world.system(label(acme)).expect("labelled");
    let before = story.world.state.clone();
    let refused = story.world.root(transfer()).expect_err("the node is another's");
    assert_eq!(refused.field.as_deref(), Some("/to"), "{refused}");
    assert_eq!(story.world.state, before, "nothing changed");
    story.world.system(label(None)).expect("labelled");
    story.world.root(transfer()).expect("transferred");
}
