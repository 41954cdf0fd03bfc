//! What runs in a window, and who pays for it: the booking within what was booked and while it is open, else the job.

use tenure_domain::booking::change::Which;
use tenure_domain::booking::record::{BookingSpec, Size};
use tenure_domain::command::Observation;
use tenure_domain::event::CloseReason;
use tenure_domain::id::{BookingId, JobId};
use tenure_domain::schedule::why::why;
use tenure_domain::tenancy::budget::Cost;
use tenure_domain::workload::job::{Phase, StopReason};
use tenure_domain::workload::spec::{Demand, Isolation, JobSpec};
use tenure_domain::{Code, Event, Wish};

use super::story::{Story, demand, gpus, money, zone};
use crate::world::{gpu, inventory, slice, spec};

fn within(id: BookingId, job: JobSpec) -> JobSpec {
    JobSpec {
        booking: Some(id),
        ..job
    }
}

fn phase(story: &Story, job: JobId) -> Phase {
    story.world.state.jobs[&job].phase
}

/// What the job's GPUs cost it by the hour, and what of them is counted in its budgets.
fn price(story: &Story, job: JobId) -> (i64, u64) {
    let admission = story.world.state.jobs[&job].admission.as_ref();
    let hold = &admission.expect("admitted").hold;
    (hold.hourly.0, hold.gpu_milli)
}

fn h100(demand: Demand) -> Demand {
    Demand {
        class: Some("H100".into()),
        ..demand
    }
}

fn fenced(demand: Demand) -> Demand {
    Demand {
        isolation: Isolation::Fenced,
        ..h100(demand)
    }
}

fn cancel(booking: BookingId) -> Wish {
    Wish::CancelBooking {
        booking,
        which: Which::All,
        zone: Some(Box::new(zone("UTC").expect("a zone"))),
    }
}

fn three_fifths() -> BookingSpec {
    let mut slices = gpus("slices", 1, "2026-03-02T12:00", "2026-03-02T14:00");
    slices.size = Size::Slices {
        count: 3,
        compute_permille: 200,
        vram_mib: 16_000,
    };
    slices
}

#[test]
fn slices_are_paid_for_as_the_gpus_they_withhold_and_have_all_of_them() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let id = story.book(ada, three_fifths(), "UTC").expect("booked");
    assert_eq!(money(&story, ada).1, 2 * 1_000_000, "a GPU, that nobody else has");
    let mut half = three_fifths();
    half.size = Size::Slices {
        count: 2,
        compute_permille: 501,
        vram_mib: 16_000,
    };
    story.book(bob, half, "UTC").expect("booked");
    assert_eq!(money(&story, bob).1, 2 * 2_000_000, "no two of them fit one");
    story.until("2026-03-02T12:00:01Z");
    let job = within(id, spec("whole", h100(demand(1)), 600));
    let whole = story.world.submit(ada, job).expect("taken");
    assert_ne!(phase(&story, whole), Phase::Queued, "what is paid for is had");
    assert_eq!(price(&story, whole), (0, 0));
}

#[test]
fn a_window_that_was_paid_for_by_the_slice_has_as_many() {
    let mut story = Story::new();
    let ada = story.ada;
    let id = story.book(ada, three_fifths(), "UTC").expect("booked");
    // As journals from before have it.
    let mut before = story.booking(id).clone();
    before.windows[0].gpu_milli = 600;
    let changed = Event::BookingChanged {
        booking: Box::new(before),
        why: "as it was".into(),
        cost: Cost::default(),
        charge: None,
    };
    let now = story.world.now;
    story.world.state.apply(now, &changed);
    story.until("2026-03-02T12:00:01Z");
    let mut submit = |name: &str, demand: Demand| {
        let job = within(id, spec(name, h100(demand), 600));
        story.world.submit(ada, job).expect("taken")
    };
    let whole = submit("whole", demand(1));
    let wide = submit("wide", slice(200, 64_000));
    let two = submit("two", slice(400, 16_000));
    let one = submit("one", slice(200, 16_000));
    let more = submit("more", slice(100, 8_000));
    assert_eq!(
        phase(&story, whole),
        Phase::Queued,
        "a GPU is not what was booked"
    );
    assert_eq!(phase(&story, wide), Phase::Queued, "nor is all its memory");
    assert_ne!(
        phase(&story, two),
        Phase::Queued,
        "a larger one takes two of them"
    );
    assert_ne!(phase(&story, one), Phase::Queued);
    assert_eq!(phase(&story, more), Phase::Queued, "all of them are taken");
    let waits = why(&story.world.state, whole, story.world.now).expect("it waits");
    assert_eq!(waits.code, Code::BookingClosed);
    story.runs(one);
    let larger = Wish::Resize {
        job: one,
        compute_permille: Some(600),
        vram_mib: None,
    };
    story
        .world
        .by(ada, larger)
        .expect_err("no larger than what is booked");
    story.runs(two);
    story.world.exit(two, 1);
    story.world.schedule();
    assert_ne!(
        phase(&story, more),
        Phase::Queued,
        "what was given back is had again"
    );
}

#[test]
fn what_ran_in_a_cancelled_window_leaves() {
    let mut story = Story::new();
    let ada = story.ada;
    let id = story
        .book(ada, gpus("a", 4, "2026-03-02T12:00", "2026-03-02T14:00"), "UTC")
        .expect("booked");
    story.until("2026-03-02T12:00:01Z");
    let named = story.run(ada, within(id, spec("named", demand(2), 36_000)));
    let other = story.run(ada, spec("other", demand(2), 36_000));
    assert_eq!(price(&story, named), (0, 0));
    assert_eq!(
        price(&story, other),
        (0, 0),
        "the owner's jobs are tried there first"
    );
    story.world.by(ada, cancel(id)).expect("cancelled");
    for job in [named, other] {
        let job = &story.world.state.jobs[&job];
        assert_eq!(
            (job.phase, job.stop),
            (Phase::Stopping, Some(StopReason::Evicted))
        );
    }
    story.tick();
    assert_eq!(phase(&story, named), Phase::Queued, "its booking is over");
    assert_eq!(price(&story, other), (2_000_000, 2000), "it pays for itself");
}

#[test]
fn what_is_paused_in_a_window_resumes_there_or_waits() {
    let mut story = Story::new();
    let ada = story.ada;
    let id = story
        .book(ada, gpus("a", 4, "2026-03-02T12:00", "2026-03-02T14:00"), "UTC")
        .expect("booked");
    story.until("2026-03-02T12:00:01Z");
    let named = story.run(ada, within(id, spec("named", fenced(slice(500, 8_000)), 36_000)));
    let other = story.run(ada, spec("other", fenced(slice(500, 8_000)), 36_000));
    let pause = |story: &mut Story, job| {
        let reason = tenure_domain::workload::job::PauseReason::Asked;
        story.world.by(ada, Wish::Pause { job, reason }).expect("paused");
        let paused = Observation::Paused {
            ran_ms: 1000,
            usage: None,
        };
        story.world.observe(job, paused).expect("taken");
    };
    for job in [named, other] {
        pause(&mut story, job);
        story.world.by(ada, Wish::ResumeJob { job }).expect("wanted");
        assert_eq!(phase(&story, job), Phase::Resuming);
        assert_eq!(price(&story, job), (0, 0), "the window is open");
        story.runs(job);
        pause(&mut story, job);
    }
    story.until("2026-03-02T14:00:05Z");
    for job in [named, other] {
        story.world.by(ada, Wish::ResumeJob { job }).expect("wanted");
    }
    assert_eq!(phase(&story, named), Phase::Paused, "its booking is over");
    assert_eq!(phase(&story, other), Phase::Resuming);
    assert_eq!(price(&story, other), (500_000, 500), "it pays for itself");
}

#[test]
fn nobody_resumes_in_another_ones_window() {
    let mut story = Story::new();
    let (ada, bob) = (story.ada, story.bob);
    let jobs: Vec<_> = (0..8)
        .map(|n| story.run(bob, spec(&format!("j-{n}"), fenced(slice(900, 70_000)), 86_400)))
        .collect();
    let id = story
        .book(ada, gpus("a", 4, "2026-03-02T12:00", "2026-03-02T14:00"), "UTC")
        .expect("booked");
    story.until("2026-03-02T12:01:00Z");
    assert!(story.booking(id).windows[0].is_open());
    let paused = jobs.iter().filter(|job| phase(&story, **job) == Phase::Paused);
    assert_eq!(paused.count(), 4, "they are set aside, and stay so");
}

#[test]
fn what_a_window_that_moves_leaves_behind_leaves_too() {
    let mut story = Story::new();
    let ada = story.ada;
    let id = story
        .book(ada, gpus("a", 4, "2026-03-02T12:00", "2026-03-02T14:00"), "UTC")
        .expect("booked");
    story.until("2026-03-02T12:00:01Z");
    let job = story.run(ada, within(id, spec("job", demand(1), 36_000)));
    let (allocation, node) = story.world.allocation(job).expect("placed");
    let used = story
        .world
        .state
        .fleet
        .allocation(allocation)
        .expect("there")
        .slices[0]
        .gpu;
    let found = story.world.state.fleet.node(node).expect("there");
    // Another GPU of the node is not there any more, so the window goes to the other node.
    let gone = found
        .gpus
        .iter()
        .find(|gpu| gpu.id != used)
        .expect("another")
        .facts
        .uuid
        .clone();
    let left = found.gpus.iter().filter(|gpu| gpu.facts.uuid != gone);
    let facts = left.map(|found| {
        let levels = [Isolation::Guarded, Isolation::Fenced, Isolation::Exclusive];
        gpu(&found.facts.uuid, "H100", 80_000, &levels)
    });
    let inventory = inventory(64_000, 512_000, facts.collect());
    let report = Wish::ReportInventory { node, inventory };
    story
        .world
        .act(tenure_domain::Actor::Node(node), report)
        .expect("reported");
    let advance = Wish::AdvanceBookings { zones: zone };
    let events = story.world.system(advance).expect("nothing refuses time");
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::WindowMoved { .. })),
        "{events:?}"
    );
    assert_eq!(phase(&story, job), Phase::Stopping, "nobody pays for it there");
    story.tick();
    story.tick();
    let (_, now) = story.world.allocation(job).expect("it is where the window is");
    assert_ne!(now, node);
    assert_eq!(price(&story, job), (0, 0));
}

#[test]
fn owners_who_are_there_already_are_no_strangers() {
    let mut story = Story::new();
    let ada = story.ada;
    let jobs: Vec<_> = (0..2)
        .map(|n| story.run(ada, spec(&format!("job-{n}"), demand(4), 86_400)))
        .collect();
    let id = story
        .book(ada, gpus("a", 4, "2026-03-02T12:00", "2026-03-02T14:00"), "UTC")
        .expect("booked");
    let mut events = story.until("2026-03-02T12:00:01Z");
    let mut prices: Vec<_> = jobs.iter().map(|job| price(&story, *job)).collect();
    prices.sort_unstable();
    assert_eq!(
        prices,
        [(0, 0), (4_000_000, 4000)],
        "the booking pays for one of them"
    );
    events.extend(story.until("2026-03-02T13:00:00Z"));
    let closed = events
        .iter()
        .any(|event| matches!(event, Event::WindowClosed { .. }));
    assert!(!closed && story.booking(id).windows[0].is_open(), "somebody came");
    let events = story.until("2026-03-02T14:00:05Z");
    assert!(events.iter().any(|event| matches!(
        event,
        Event::WindowClosed {
            why: CloseReason::Over,
            ..
        }
    )));
    let ran = jobs.iter().filter(|job| phase(&story, **job) == Phase::Running);
    assert_eq!(ran.count(), 1, "who pays for itself goes on");
}
