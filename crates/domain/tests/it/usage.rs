//! Use of devices: it rides on metered intervals, never goes back, and late or repeated reports change nothing.

use tenure_domain::command::{Observation, Ran};
use tenure_domain::id::JobId;
use tenure_domain::tenancy::role::Role;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::workload::usage::Usage;
use tenure_domain::{Actor, Event, Wish};

use crate::world::{World, gpu, inventory, slice, spec};

fn running() -> (World, JobId) {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let device = gpu("g0", "H100", 8000, &[Isolation::Guarded]);
    world.node("alpha", inventory(16_000, 64_000, vec![device]));
    let job = world
        .submit(ada, spec("train", slice(300, 2000), 3600))
        .expect("taken");
    world.observe(job, Observation::Running).expect("it runs");
    world.pass_s(600);
    (world, job)
}

fn used(busy_ms: u64, peak_vram_mib: u64) -> Usage {
    Usage {
        busy_ms,
        peak_vram_mib,
        launches: busy_ms,
        ..Usage::default()
    }
}

fn meter(world: &mut World, job: JobId, ran_ms: u64, usage: Option<Usage>) -> Vec<Event> {
    let (allocation, node) = world.allocation(job).expect("placed");
    let ran = Ran {
        allocation,
        ran_ms,
        usage,
    };
    let wish = Wish::Meter { node, ran: vec![ran] };
    world.act(Actor::Node(node), wish).expect("never refused")
}

fn so_far(world: &World, job: JobId) -> Option<Usage> {
    world.state.jobs[&job].usage
}

#[test]
fn intervals_carry_what_came_on_top() {
    let (mut world, job) = running();
    assert_eq!(so_far(&world, job), None, "not measured is not zero");
    meter(&mut world, job, 60_000, Some(used(10_000, 500)));
    let events = meter(&mut world, job, 120_000, Some(used(25_000, 400)));
    let Event::UsageMetered { charges, .. } = &events[0] else {
        panic!("{events:?}")
    };
    assert_eq!(charges[0].used.unwrap().busy_ms, 15_000, "of the interval");
    assert_eq!(charges[0].used.unwrap().peak_vram_mib, 500, "of the whole so far");
    assert_eq!(so_far(&world, job), Some(used(25_000, 500)));
}

#[test]
fn late_and_repeated_reports_change_nothing() {
    let (mut world, job) = running();
    meter(&mut world, job, 120_000, Some(used(25_000, 500)));
    for (ran_ms, usage) in [
        (120_000, used(25_000, 500)),
        (60_000, used(10_000, 100)),
        (60_000, used(90_000, 2000)),
    ] {
        assert_eq!(meter(&mut world, job, ran_ms, Some(usage)), vec![]);
    }
    // More time, but counts that went back: nothing is taken away.
    meter(&mut world, job, 130_000, Some(used(3, 1)));
    meter(&mut world, job, 140_000, None);
    assert_eq!(so_far(&world, job), Some(used(25_000, 500)));
}

#[test]
fn nothing_beyond_time_and_slice_is_believed() {
    let (mut world, job) = running();
    meter(&mut world, job, 60_000, Some(used(u64::MAX, u64::MAX)));
    let kept = so_far(&world, job).unwrap();
    assert_eq!((kept.busy_ms, kept.peak_vram_mib), (60_000, 2000));
}

#[test]
fn the_end_brings_the_last_of_it_and_attempts_add_up() {
    let (mut world, job) = running();
    let (_, node) = world.allocation(job).expect("placed");
    meter(&mut world, job, 60_000, Some(used(10_000, 700)));
    world.act(Actor::System, Wish::LoseNode { node }).expect("lost");
    world
        .act(Actor::Node(node), Wish::ReturnNode { node })
        .expect("back");
    world.schedule();
    world.pass_s(100);
    let exited = Observation::Exited {
        exit_code: Some(0),
        signal: None,
        ran_ms: 90_000,
        by: None,
        usage: Some(used(20_000, 300)),
    };
    // The next attempt counts from its own start.
    meter(&mut world, job, 30_000, Some(used(5_000, 300)));
    assert_eq!(so_far(&world, job), Some(used(15_000, 700)));
    let events = world.observe(job, exited).expect("an exit is taken");
    let Event::UsageMetered { charges, .. } = &events[0] else {
        panic!("{events:?}")
    };
    assert_eq!(charges[0].used, Some(used(15_000, 300)));
}
