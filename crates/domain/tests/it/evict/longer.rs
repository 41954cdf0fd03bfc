//! Within a class, where the platform says so, what is expected to be done soon goes before what is expected to run on.

use super::*;

/// A node of two GPUs that a long job has, and a short one that wants one of them.
fn long_and_short(restartable: bool, policy: Policy) -> (Story, JobId, JobId) {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    story.world.policy(ScopeId::Platform, policy);
    let long = JobSpec {
        restartable,
        ..spec("long", whole(2), 7 * 24 * 3600)
    };
    let long = run(&mut story, ada, long);
    story.world.pass_s(4 * 3600);
    story.meter(long, 4 * 3600);
    let short = story.submit(ada, spec("short", whole(1), 600)).expect("taken");
    story.schedule();
    (story, long, short)
}

fn sooner() -> Policy {
    Policy {
        preempt_longer: Some(true),
        ..Policy::default()
    }
}

#[test]
fn the_longer_job_gives_way_once() {
    let (mut story, long, short) = long_and_short(true, sooner());
    left(&mut story, long, 4 * 3600);
    story.schedule();
    story.observe(short, Observation::Running);
    story.say("the long one waits; it is the longer for good, and does not come back at the short one");
    story.world.pass_s(480);
    story.meter(short, 480);
    story.schedule();
    assert_eq!(story.world.state.jobs[&short].phase, Phase::Running);
    story.exit(short, 500);
    story.schedule();
    assert_ne!(story.world.state.jobs[&long].phase, Phase::Queued);
    story.check("the_longer_job_gives_way_once");
}

#[test]
fn who_would_lose_its_work_stays() {
    let (story, long, short) = long_and_short(false, sooner());
    assert_eq!(story.world.state.jobs[&long].phase, Phase::Running);
    assert_eq!(story.world.state.jobs[&short].phase, Phase::Queued);
}

#[test]
fn unless_the_platform_says_so_equals_stay() {
    let (story, long, _) = long_and_short(true, Policy::default());
    assert_eq!(story.world.state.jobs[&long].phase, Phase::Running);
}

#[test]
fn who_just_began_stays() {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    story.world.policy(ScopeId::Platform, sooner());
    let long = JobSpec {
        restartable: true,
        ..spec("long", whole(2), 7 * 24 * 3600)
    };
    let long = run(&mut story, ada, long);
    story.world.pass_s(240);
    story.meter(long, 240);
    story
        .submit(ada, spec("short", slice(10, 100), 600))
        .expect("taken");
    story.schedule();
    assert_eq!(story.world.state.jobs[&long].phase, Phase::Running);
}
