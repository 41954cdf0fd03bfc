//! Scattered room is gathered: restartable jobs start anew elsewhere, where that is worth it and they have a place.

use tenure_domain::id::{JobId, UserId};
use tenure_domain::workload::job::Phase;
use tenure_domain::workload::spec::{JobSpec, Priority};

use super::{GUARDED, left, ranked, run, setting};
use crate::story::Story;
use crate::world::{spec, whole};

fn restartable(name: &str, run_time_s: u64) -> JobSpec {
    JobSpec {
        restartable: true,
        ..spec(name, whole(1), run_time_s)
    }
}

/// A GPU is free on each of two nodes; those who run there have run a while.
fn scattered(one: JobSpec, other: JobSpec) -> (Story, UserId, [JobId; 2]) {
    let (mut story, _, ada) = setting(&["alpha", "beta"], &GUARDED);
    let filler = run(&mut story, ada, spec("filler", whole(1), 600));
    let one = run(&mut story, ada, one);
    let other = run(&mut story, ada, other);
    story.exit(filler, 1);
    story.world.pass_s(600);
    (story, ada, [one, other])
}

fn leaves(story: &Story, job: JobId) -> bool {
    story.world.state.jobs[&job].phase == Phase::Stopping
}

#[test]
fn scattered_room_is_gathered() {
    let (mut story, ada, [one, other]) = scattered(restartable("one", 7200), restartable("other", 7200));
    story.say("a GPU is free on each node, and a job needs two on one: one that said it may be moved is");
    let pair = story.submit(ada, spec("pair", whole(2), 3600)).expect("taken");
    story.schedule();
    let movers: Vec<JobId> = [one, other]
        .into_iter()
        .filter(|job| leaves(&story, *job))
        .collect();
    assert_eq!(movers.len(), 1, "the fewest move");
    let away = story.world.allocation(movers[0]).expect("there").1;
    story.world.pass_s(5);
    left(&mut story, movers[0], 605);
    story.schedule();
    let now = |job| story.world.allocation(job).map(|(_, node)| node);
    assert_eq!(now(pair), Some(away));
    assert!(
        now(movers[0]).is_some_and(|node| node != away),
        "and had a place to go to"
    );
    story.check("scattered_room_is_gathered");
}

fn nobody_moves(one: JobSpec, other: JobSpec, asks: JobSpec) {
    let (mut story, ada, jobs) = scattered(one, other);
    story.submit(ada, asks).expect("taken");
    story.schedule();
    assert!(!jobs.into_iter().any(|job| leaves(&story, job)));
}

#[test]
fn only_who_said_so_is_moved() {
    let pair = || spec("pair", whole(2), 3600);
    nobody_moves(spec("one", whole(1), 7200), spec("other", whole(1), 7200), pair());
}

#[test]
fn nobody_is_moved_for_a_wait_that_ends_soon() {
    let soon = |name: &str| restartable(name, 640);
    nobody_moves(soon("one"), soon("other"), spec("pair", whole(2), 3600));
}

#[test]
fn nobody_is_moved_for_who_ranks_below() {
    let high = |name: &str| ranked(Priority::High, restartable(name, 7200));
    nobody_moves(high("one"), high("other"), spec("pair", whole(2), 3600));
}

#[test]
fn nobody_is_moved_who_would_have_nowhere_to_go() {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    let one = run(&mut story, ada, restartable("one", 7200));
    story.world.pass_s(600);
    story.submit(ada, spec("pair", whole(2), 3600)).expect("taken");
    story.schedule();
    assert!(!leaves(&story, one));
}
