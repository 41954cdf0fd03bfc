//! Gangs that make others leave, are made to leave, and wait for room on several nodes: whole or not at all.

use tenure_domain::command::Observation;
use tenure_domain::id::{JobId, UserId};
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::share::{Nominal, Share};
use tenure_domain::workload::job::{Phase, StopReason};
use tenure_domain::workload::spec::{Demand, JobSpec, Priority};
use tenure_domain::{Actor, Event, Time, Wish};

use super::{GUARDED, left, ranked, run, setting};
use crate::story::Story;
use crate::world::{World, gang, gpu, inventory, slice, spec, whole};

/// One of low priority with a single try and half a minute of grace.
fn low(name: &str, demand: Demand) -> JobSpec {
    JobSpec {
        max_attempts: 1,
        grace_s: 30,
        ..ranked(Priority::Low, spec(name, demand, 7200))
    }
}

fn high(name: &str, demand: Demand) -> JobSpec {
    ranked(Priority::High, spec(name, demand, 3600))
}

fn members_run(story: &mut Story, job: JobId) {
    let members = story.world.state.jobs[&job].members.len() as u32;
    (0..members).for_each(|member| story.observe_member(job, member, Observation::Running));
}

fn run_gang(story: &mut Story, owner: UserId, spec: JobSpec) -> JobId {
    let job = story.submit(owner, spec).expect("taken");
    members_run(story, job);
    assert_eq!(story.world.state.jobs[&job].phase, Phase::Running);
    job
}

fn member_left(story: &mut Story, job: JobId, member: u32, ran_s: u64) {
    let exited = Observation::Exited {
        exit_code: Some(143),
        signal: None,
        ran_ms: ran_s * 1000,
        by: Some(StopReason::Evicted),
        usage: None,
    };
    story.observe_member(job, member, exited);
}

fn phase(story: &Story, job: JobId) -> Phase {
    story.world.state.jobs[&job].phase
}

/// The victims of what was promised to the job.
fn victims(story: &Story, job: JobId) -> Vec<JobId> {
    let promise = story.world.state.calendar.of(job);
    promise.map_or_else(Vec::new, |promise| promise.victims.clone())
}

#[test]
fn a_gang_gives_way_whole() {
    let (mut story, _, ada) = setting(&["alpha", "beta"], &GUARDED);
    let train = run_gang(&mut story, ada, low("train", gang(4, whole(1))));
    story.world.pass_s(600);
    story.say("one node is wanted, and all members leave: none goes on without the others");
    let pair = story.submit(ada, high("pair", whole(2))).expect("taken");
    assert_eq!(victims(&story, pair), [train]);
    let kept = story.world.state.calendar.of(pair).expect("promised").node;
    story.world.pass_s(5);
    story.say("those on the promised node leave first; the others have their GPUs and the quota still");
    let on = |story: &Story, here: bool| -> Vec<u32> {
        let members = story.world.state.jobs[&train].members.iter();
        let those = (0..)
            .zip(members)
            .filter(|(_, member)| (member.node == kept) == here);
        those.map(|(number, _)| number).collect()
    };
    for member in on(&story, true) {
        member_left(&mut story, train, member, 605);
    }
    story.schedule();
    story.observe(pair, Observation::Running);
    story.say("the last has left, and the gang waits whole, for no node alone");
    for member in on(&story, false) {
        member_left(&mut story, train, member, 605);
    }
    story.schedule();
    story.world.pass_s(3600);
    story.say("the pair is done, and the gang goes on with its one try");
    story.exit(pair, 3600);
    story.schedule();
    let job = &story.world.state.jobs[&train];
    assert_eq!((job.phase, job.attempt, job.tries()), (Phase::Placed, 2, 1));
    assert_eq!(job.evictions.count, 1);
    story.check("a_gang_gives_way_whole");
}

#[test]
fn a_gang_is_as_dear_as_all_its_members() {
    let (mut story, _, ada) = setting(&["alpha", "beta", "gamma"], &GUARDED);
    let alone = run(&mut story, ada, low("alone", whole(2)));
    story.world.pass_s(400);
    let train = run_gang(&mut story, ada, low("train", gang(2, whole(2))));
    story.world.pass_s(400);
    // A member of the gang lost half of what the other lost, and there are two of them, and two restarts.
    let first = story.submit(ada, high("first", whole(2))).expect("taken");
    assert_eq!(victims(&story, first), [alone]);
    let second = story.submit(ada, high("second", whole(2))).expect("taken");
    assert_eq!(victims(&story, second), [train], "where nobody else is, the gang");
    let third = story.submit(ada, high("third", whole(2))).expect("taken");
    assert_eq!(
        victims(&story, third),
        [],
        "its other node is free soon, and nobody is asked twice"
    );
}

#[test]
fn nobody_leaves_for_a_gang_who_is_not_needed() {
    let (mut story, _, ada) = setting(&["alpha", "beta"], &GUARDED);
    let pair = run(&mut story, ada, low("pair", whole(2)));
    let stays = ranked(Priority::High, spec("stays", whole(1), 7200));
    run(&mut story, ada, stays);
    story.world.pass_s(300);
    run(&mut story, ada, low("cheap", whole(1)));
    story.world.pass_s(400);
    let train = story
        .submit(ada, high("train", gang(2, whole(1))))
        .expect("taken");
    assert_eq!(
        victims(&story, train),
        [pair],
        "with it gone the cheaper one is of no use"
    );
}

#[test]
fn a_gang_has_others_leave() {
    let (mut story, _, ada) = setting(&["alpha", "beta", "gamma"], &GUARDED);
    let mut jobs = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        jobs.push(run(&mut story, ada, low(name, whole(1))));
        story.world.pass_s(100);
    }
    story.world.pass_s(300);
    story.say("two members want two GPUs each: the two nodes where least is lost are cleared");
    let train = story
        .submit(ada, high("train", gang(2, whole(2))))
        .expect("taken");
    let leave = victims(&story, train);
    assert_eq!(leave.len(), 4, "nobody leaves who need not");
    assert!(
        !leave.contains(&jobs[0]) && !leave.contains(&jobs[1]),
        "those lose most"
    );
    let rooms: Vec<_> = story
        .world
        .state
        .calendar
        .of(train)
        .expect("promised")
        .rooms()
        .collect();
    assert_eq!(rooms.len(), 2);
    assert_ne!(rooms[0].0, rooms[1].0, "room on two nodes is one promise");
    story.say("three have left; nobody takes their room, on either node, and no member starts alone");
    for job in &leave[..3] {
        left(&mut story, *job, 400);
    }
    story
        .submit(ada, ranked(Priority::Low, spec("small", slice(100, 1000), 60)))
        .expect("taken");
    story.schedule();
    assert_eq!(phase(&story, train), Phase::Queued);
    story.say("the last has left, and all members start where it was promised");
    left(&mut story, leave[3], 400);
    story.schedule();
    assert_eq!(phase(&story, train), Phase::Placed);
    story.check("a_gang_has_others_leave");
}

#[test]
fn nobody_leaves_for_a_gang_that_would_not_fit() {
    let (mut story, acme, ada) = setting(&["alpha", "beta"], &GUARDED);
    for name in ["a", "b", "c"] {
        run(&mut story, ada, low(name, whole(1)));
    }
    let stays = ranked(Priority::High, spec("stays", whole(1), 7200));
    run(&mut story, ada, stays);
    story.world.pass_s(600);
    let train = story
        .submit(ada, high("train", gang(2, whole(2))))
        .expect("taken");
    assert_eq!(
        victims(&story, train),
        [],
        "one node of the two is all there could be"
    );
    story.world.quota(acme, &[("gpu_milli", 4000)]);
    let four = story.submit(ada, high("four", gang(4, whole(1)))).expect("taken");
    assert_eq!(victims(&story, four), []);
    let three = story
        .submit(ada, high("three", gang(3, whole(1))))
        .expect("taken");
    assert_eq!(
        victims(&story, three).len(),
        3,
        "within what is there and the quota"
    );
}

/// Quota is what lacks: who holds it leaves, wherever it is, and room is left alone.
#[test]
fn a_gang_has_those_leave_who_hold_the_quota() {
    let (mut story, acme, ada) = setting(&["alpha", "beta", "gamma"], &GUARDED);
    story.world.quota(acme, &[("gpu_milli", 4000)]);
    let first = run(&mut story, ada, low("first", whole(1)));
    story.world.pass_s(100);
    let second = run(&mut story, ada, low("second", whole(1)));
    story.world.pass_s(600);
    let train = story
        .submit(ada, high("train", gang(3, whole(1))))
        .expect("taken");
    assert_eq!(
        victims(&story, train),
        [second],
        "one GPU of quota lacks, and it lost least"
    );
    story.world.pass_s(5);
    story.schedule();
    assert_eq!(phase(&story, train), Phase::Queued);
    assert_eq!(
        victims(&story, train),
        [second],
        "the promise stands while it leaves"
    );
    left(&mut story, second, 605);
    story.schedule();
    assert_eq!(
        (phase(&story, train), phase(&story, first)),
        (Phase::Placed, Phase::Running)
    );
}

#[test]
fn a_gang_has_back_what_was_lent_and_no_more() {
    let mut world = World::new();
    let (acme, brio) = (world.tenant("acme"), world.tenant("brio"));
    let ada = world.user(acme, "ada", Some(Role::Member));
    let bob = world.user(brio, "bob", Some(Role::Member));
    for name in ["alpha", "beta", "gamma"] {
        let gpus = (0..2).map(|n| gpu(&format!("{name}-{n}"), "A10", 24_000, &GUARDED));
        world.node(name, inventory(16_000, 64_000, gpus.collect()));
    }
    for (scope, gpu_milli) in [(acme, 3000), (brio, 4000)] {
        let nominal = Nominal {
            gpu_milli,
            ..Nominal::default()
        };
        let share = Share {
            nominal: [("A10".into(), nominal)].into(),
            ..Share::default()
        };
        let revision = None;
        let wish = Wish::SetShare {
            scope,
            share,
            revision,
        };
        world.root(wish).expect("set");
    }
    let mut story = Story::new(world);
    let one = || ranked(Priority::Normal, spec("one", whole(1), 7200));
    for _ in 0..6 {
        run(&mut story, bob, one());
    }
    story.world.pass_s(600);
    let mut asks = |members| {
        let spec = ranked(Priority::Normal, spec("train", gang(members, whole(1)), 600));
        let job = story.submit(ada, spec).expect("taken");
        victims(&story, job).len()
    };
    assert_eq!(asks(4), 0, "beyond what acme is sure of it takes nothing back");
    assert_eq!(asks(3), 0, "brio borrows two, on whatever nodes");
    assert_eq!(asks(2), 2, "and two leave");
}

#[test]
fn a_gang_waits_for_several_nodes() {
    let (mut story, _, ada) = setting(&["alpha", "beta", "gamma"], &GUARDED);
    let until = |name: &str, run_time_s| spec(name, whole(2), run_time_s);
    let hour = run(&mut story, ada, until("hour", 3600));
    let two = run(&mut story, ada, until("two", 7200));
    let day = run(&mut story, ada, until("day", 86_400));
    story.say("two members want a node each: the second of the three is free in two hours");
    let train = story
        .submit(ada, spec("train", gang(2, whole(2)), 1800))
        .expect("taken");
    story.schedule();
    let promise = story.world.state.calendar.of(train).expect("promised");
    assert_eq!(promise.from, story.world.now.plus_ms(7_200_000));
    story.world.pass_s(1800);
    story.say("the first is free early: what ends in time fills the gap, what does not keeps off");
    story.exit(hour, 1800);
    let long = story.submit(ada, until("long", 7200)).expect("taken");
    assert_eq!(phase(&story, long), Phase::Queued);
    let short = run(&mut story, ada, until("short", 3600));
    story.schedule();
    story.world.pass_s(3600);
    story.exit(short, 3600);
    story.schedule();
    assert_eq!(
        phase(&story, train),
        Phase::Queued,
        "one of two is nothing to a gang"
    );
    story.world.pass_s(1800);
    story.say("the second is free, and both members start");
    story.exit(two, 7200);
    story.schedule();
    assert_eq!(phase(&story, train), Phase::Placed);
    let _ = day;
    story.check("a_gang_waits_for_several_nodes");
}

/// A gang of all there is, and one-GPU jobs that come for ever.
#[test]
fn small_jobs_do_not_starve_a_gang() {
    let (mut story, _, ada) = setting(&["alpha", "beta"], &GUARDED);
    let mut running: Vec<(JobId, Time)> = Vec::new();
    let come = |story: &mut Story, running: &mut Vec<(JobId, Time)>| {
        let job = story.submit(ada, spec("small", whole(1), 600)).expect("taken");
        if story.world.allocation(job).is_some() {
            story.observe(job, Observation::Running);
            running.push((job, story.world.now.plus_ms(600_000)));
        }
    };
    for _ in 0..4 {
        come(&mut story, &mut running);
        story.world.pass_s(100);
    }
    let train = story
        .submit(ada, spec("train", gang(2, whole(2)), 600))
        .expect("taken");
    for tick in 0..50 {
        story.schedule();
        if phase(&story, train) != Phase::Queued {
            assert!(tick <= 6, "when those that ran had reached their limits: {tick}");
            return;
        }
        story.world.pass_s(100);
        let now = story.world.now;
        let done = running
            .iter()
            .filter(|(_, ends)| *ends <= now)
            .map(|(job, _)| *job);
        let done: Vec<JobId> = done.collect();
        running.retain(|(_, ends)| *ends > now);
        done.into_iter().for_each(|job| story.exit(job, 600));
        come(&mut story, &mut running);
    }
    panic!("the gang starved");
}

#[test]
fn a_promise_on_several_nodes_falls_with_one_of_them() {
    for removed in [false, true] {
        let (mut story, _, ada) = setting(&["alpha", "beta"], &GUARDED);
        let a = run(&mut story, ada, spec("a", whole(2), 3600));
        let b = run(&mut story, ada, spec("b", whole(2), 7200));
        let train = story
            .submit(ada, spec("train", gang(2, whole(2)), 600))
            .expect("taken");
        story.schedule();
        let promise = story.world.state.calendar.of(train).expect("promised").clone();
        let last = promise.others[0].node;
        let (_, first) = story.world.allocation(a).expect("it runs");
        let on_last = if first == last { a } else { b };
        story.exit(on_last, 10);
        let wish = match removed {
            true => Wish::RemoveNode { node: last },
            false => Wish::CordonNode { node: last },
        };
        story.root("an operator takes a node away", wish).expect("done");
        if !removed {
            let events = story.world.system(Wish::Withdraw).expect("done");
            assert!(
                matches!(&events[..], [Event::PromiseWithdrawn { job, .. }] if *job == train),
                "{events:?}"
            );
        }
        assert!(
            story.world.state.calendar.is_empty(),
            "no room is kept on the other node"
        );
        let free = story.world.state.calendar.on(promise.node).count();
        assert_eq!(free, 0);
    }
}

/// A node is lost while the gang gives way: that is no fault of an attempt, and uses up none.
#[test]
fn a_node_lost_while_a_gang_gives_way_uses_up_no_attempt() {
    let (mut story, _, ada) = setting(&["alpha", "beta"], &GUARDED);
    let train = run_gang(&mut story, ada, low("train", gang(2, whole(2))));
    story.world.pass_s(600);
    let pair = story.submit(ada, high("pair", whole(2))).expect("taken");
    assert_eq!(victims(&story, pair), [train]);
    member_left(&mut story, train, 0, 600);
    let (_, node) = story.world.member(train, 1).expect("it leaves");
    story.tell("the other node is lost", Actor::System, Wish::LoseNode { node });
    let job = &story.world.state.jobs[&train];
    assert_eq!((job.phase, job.attempt, job.tries()), (Phase::Queued, 2, 1));
}

#[test]
fn scattered_room_is_gathered_for_a_gang() {
    let (mut story, _, ada) = setting(&["alpha", "beta", "gamma", "delta"], &GUARDED);
    let moves = |name: &str| JobSpec {
        restartable: true,
        grace_s: 10,
        ..spec(name, whole(1), 86_400)
    };
    let fills: Vec<JobId> = (0..8)
        .map(|n| run(&mut story, ada, moves(&format!("j{n}"))))
        .collect();
    // One stays on each node: four GPUs are free, no two together.
    let mut seen = std::collections::BTreeSet::new();
    for job in fills {
        let (_, node) = story.world.allocation(job).expect("it runs");
        if !seen.insert(node) {
            story.exit(job, 1);
        }
    }
    story.world.pass_s(600);
    let train = story
        .submit(ada, spec("train", gang(2, whole(2)), 3600))
        .expect("taken");
    story.schedule();
    assert_eq!(
        victims(&story, train).len(),
        2,
        "two move, each to a GPU that is free"
    );
}
