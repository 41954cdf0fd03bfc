//! Jobs that give way, room that is promised, and jobs that fill the gap: stories, and streams of jobs on nodes that
//! do what they are told.

mod foreseen;
mod lent;
mod longer;
mod moved;
mod relieved;
mod saved;
mod stream;
mod told;
mod whole;

use tenure_domain::Wish;
use tenure_domain::command::Observation;
use tenure_domain::id::{JobId, UserId};
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{Phase, StopReason};
use tenure_domain::workload::spec::{Isolation, JobSpec, Priority};

use crate::story::Story;
use crate::world::{World, gpu, inventory, slice, spec, whole};

const GUARDED: [Isolation; 1] = [Isolation::Guarded];
const FENCED: [Isolation; 2] = [Isolation::Guarded, Isolation::Fenced];

/// acme/ada on nodes of two GPUs each.
fn setting(nodes: &[&str], levels: &[Isolation]) -> (Story, ScopeId, UserId) {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    for name in nodes {
        let gpus = (0..2).map(|n| gpu(&format!("{name}-{n}"), "A10", 24_000, levels));
        world.node(name, inventory(16_000, 64_000, gpus.collect()));
    }
    (Story::new(world), acme, ada)
}

fn ranked(priority: Priority, spec: JobSpec) -> JobSpec {
    JobSpec { priority, ..spec }
}

fn run(story: &mut Story, owner: UserId, spec: JobSpec) -> JobId {
    let job = story.submit(owner, spec).expect("taken");
    story.observe(job, Observation::Running);
    job
}

fn left(story: &mut Story, job: JobId, ran_s: u64) {
    story.observe(
        job,
        Observation::Exited {
            exit_code: Some(143),
            signal: None,
            ran_ms: ran_s * 1000,
            by: Some(StopReason::Evicted),
            usage: None,
        },
    );
}

#[test]
fn made_to_leave() {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    let one_try = |name: &str| JobSpec {
        max_attempts: 1,
        grace_s: 30,
        ..ranked(Priority::Low, spec(name, whole(1), 7200))
    };
    let first = run(&mut story, ada, one_try("first"));
    let second = run(&mut story, ada, one_try("second"));
    story.world.pass_s(600);
    story.say("one job needs both GPUs, and goes before them");
    let large = story
        .submit(ada, ranked(Priority::High, spec("large", whole(2), 3600)))
        .expect("taken");
    story.world.pass_s(5);
    story.say("the first has left; what came meanwhile does not take its room, nor does the first itself");
    left(&mut story, first, 605);
    story
        .submit(ada, ranked(Priority::Normal, spec("small", slice(100, 1000), 60)))
        .expect("taken");
    story.schedule();
    story.say("a late word of the first changes nothing");
    assert!(story.world.allocation(first).is_none());
    story.world.pass_s(10);
    story.say("the second has left too");
    left(&mut story, second, 615);
    story.schedule();
    story.observe(large, Observation::Running);
    story.world.pass_s(3600);
    story.say("it is done, and those who gave way go on, each with its one try");
    story.exit(large, 3600);
    story.schedule();
    assert_eq!(story.world.state.jobs[&first].tries(), 1);
    story.check("made_to_leave");
}

#[test]
fn set_aside_for_another() {
    let (mut story, _, ada) = setting(&["alpha"], &FENCED);
    let quiet = run(
        &mut story,
        ada,
        ranked(Priority::Low, spec("quiet", slice(800, 8000), 7200)),
    );
    let other = run(
        &mut story,
        ada,
        ranked(Priority::Low, spec("other", slice(800, 8000), 7200)),
    );
    story.world.pass_s(900);
    story.say("behind a worker nothing is lost: the cheapest is paused");
    let urgent = story
        .submit(
            ada,
            ranked(Priority::Urgent, spec("urgent", slice(500, 4000), 600)),
        )
        .expect("taken");
    let paused = [quiet, other].into_iter().find(|job| {
        let job = &story.world.state.jobs[job];
        job.phase == Phase::Pausing
    });
    let paused = paused.expect("one pauses");
    story.observe(
        paused,
        Observation::Paused {
            ran_ms: 900_000,
            usage: None,
        },
    );
    story.schedule();
    story.world.pass_s(600);
    story.exit(urgent, 600);
    story.schedule();
    story.say("and where the worker cannot, the job leaves with its grace");
    story.observe(paused, Observation::Running);
    story.world.pass_s(900);
    story
        .submit(
            ada,
            ranked(Priority::Urgent, spec("again", slice(500, 4000), 600)),
        )
        .expect("taken");
    let jobs = story.world.state.jobs.values();
    let pausing = jobs.filter(|job| job.phase == Phase::Pausing).map(|job| job.id);
    let pausing: Vec<JobId> = pausing.collect();
    story.observe(
        pausing[0],
        Observation::Kept {
            why: "the driver is busy".into(),
        },
    );
    story.check("set_aside_for_another");
}

#[test]
fn nobody_leaves_in_vain() {
    let (mut story, acme, ada) = setting(&["alpha"], &GUARDED);
    let low = ranked(Priority::Low, spec("low", whole(1), 7200));
    run(&mut story, ada, low);
    story.world.pass_s(600);
    story.root(
        "acme may have one GPU and a half",
        Wish::SetQuota {
            scope: acme,
            quota: crate::world::amounts(&[("gpu_milli", 1500)]),
            revision: None,
        },
    );
    story.say("within the quota once the other has left");
    let high = ranked(Priority::High, spec("high", whole(1), 600));
    story.submit(ada, high).expect("taken");
    story.check("nobody_leaves_in_vain");
}

#[test]
fn strangers_and_the_newly_started_stay() {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    let brio = story.world.tenant("brio");
    let bob = story.world.user(brio, "bob", Some(Role::Member));
    run(
        &mut story,
        bob,
        ranked(Priority::Low, spec("bobs", whole(1), 7200)),
    );
    story.world.pass_s(600);
    let own = ranked(Priority::Low, spec("adas", whole(1), 7200));
    run(&mut story, ada, own);
    story.world.pass_s(60);
    story.say("bob's is another tenant's, ada's has run for one minute of its five");
    let high = story
        .submit(ada, ranked(Priority::High, spec("high", whole(1), 600)))
        .expect("taken");
    story.schedule();
    story.world.pass_s(300);
    story.say("five minutes later");
    story.schedule();
    assert_eq!(
        story.world.state.calendar.of(high).map(|p| p.victims.len()),
        Some(1)
    );
    story.say("where the platform says so, tenants give way to one another");
    let policy = Policy {
        preempt_tenants: Some(true),
        ..Policy::default()
    };
    story.root(
        "priorities hold across tenants",
        Wish::SetPolicy {
            scope: ScopeId::Platform,
            policy,
            revision: None,
        },
    );
    story
        .submit(ada, ranked(Priority::High, spec("higher", whole(1), 600)))
        .expect("taken");
    story.check("strangers_and_the_newly_started_stay");
}

/// users.md row 15: GPUs are free, but not together; the job that needs them together neither blocks the others nor
/// waits for ever.
#[test]
fn scattered_gpus() {
    let (mut story, _, ada) = setting(&["alpha", "beta"], &GUARDED);
    // The best fit would put both on one node: one that leaves again scatters them.
    let filler = run(&mut story, ada, spec("filler", whole(1), 600));
    let stays = run(&mut story, ada, spec("stays", whole(1), 3600));
    let third = run(&mut story, ada, spec("third", whole(1), 7200));
    story.exit(filler, 1);
    let _ = (stays, third);
    story.say("a GPU is free on each node, and a job needs two on one");
    let pair = story.submit(ada, spec("pair", whole(2), 1800)).expect("taken");
    story.schedule();
    story.say("a short job fills the gap, a long one does not take what is promised");
    let short = run(&mut story, ada, spec("short", whole(1), 1200));
    let long = story.submit(ada, spec("long", whole(1), 86_400)).expect("taken");
    story.schedule();
    story.world.pass_s(1200);
    story.exit(short, 1200);
    story.world.pass_s(2400);
    story.say("at its limit the other ends, and the pair starts");
    story.exit(stays, 3600);
    story.schedule();
    assert!(story.world.allocation(pair).is_some());
    let _ = long;
    story.check("scattered_gpus");
}

/// Kubernetes 75880: a GPU whose holder was told to leave went to the next before the holder had left.
#[test]
fn one_gpu_to_two() {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let only = vec![gpu("only", "A10", 24_000, &GUARDED)];
    world.node("alpha", inventory(16_000, 64_000, only));
    let mut story = Story::new(world);
    let holder = JobSpec {
        grace_s: 60,
        ..ranked(Priority::Low, spec("holder", whole(1), 7200))
    };
    let holder = run(&mut story, ada, holder);
    story.world.pass_s(600);
    let next = story
        .submit(ada, ranked(Priority::High, spec("next", whole(1), 600)))
        .expect("taken");
    story.world.pass_s(59);
    story.say("told to leave, but still there: nobody gets its GPU, however often a pass is made");
    story.schedule();
    story.schedule();
    assert!(story.world.allocation(next).is_none());
    story.say("it left, and only now the next has the GPU; told twice, nothing is given twice");
    let (allocation, node) = story.world.allocation(holder).expect("it is there");
    left(&mut story, holder, 659);
    story.schedule();
    let again = Wish::Observe {
        node,
        allocation,
        observation: Observation::Vanished,
    };
    story.tell(
        "alpha reports of the old allocation: Vanished",
        tenure_domain::Actor::Node(node),
        again,
    );
    story.schedule();
    assert!(story.world.allocation(next).is_some());
    story.check("one_gpu_to_two");
}
