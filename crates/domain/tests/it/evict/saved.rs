//! Who leaves is whoever loses least: what a job said it saved is safe, and what it ran before it first said so is not.
//! Those who left are left alone for a while, so that a stream of urgent jobs does not have them take turns.

use super::*;

fn says(story: &mut Story, job: JobId, ago_ms: u64) {
    story.observe(job, Observation::Saved { ago_ms });
}

fn low(name: &str, restartable: bool) -> JobSpec {
    JobSpec {
        restartable,
        ..ranked(Priority::Low, spec(name, whole(1), 7 * 24 * 3600))
    }
}

fn urgent(name: &str) -> JobSpec {
    ranked(Priority::Urgent, spec(name, whole(1), 120))
}

fn leaving(story: &Story) -> Vec<JobId> {
    let jobs = story.world.state.jobs.values();
    let stopping = jobs.filter(|job| job.phase == Phase::Stopping);
    stopping.map(|job| job.id).collect()
}

#[test]
fn urgent_jobs_do_not_have_others_take_turns() {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    let half_an_hour = Policy {
        guaranteed_run_s: Some(1800),
        max_evictions_per_hour: Some(1),
        ..Policy::default()
    };
    story.world.policy(ScopeId::Platform, half_an_hour);
    let deep = run(&mut story, ada, low("deep", true));
    let saver = run(&mut story, ada, low("saver", true));
    story.world.pass_s(3500);
    story.say("one of two that ran for an hour has just saved its work: it is the one that leaves");
    says(&mut story, saver, 5000);
    let first = story.submit(ada, urgent("first")).expect("taken");
    assert_eq!(leaving(&story), [saver]);
    left(&mut story, saver, 3500);
    story.schedule();
    story.observe(first, Observation::Running);
    story.world.pass_s(120);
    story.exit(first, 120);
    story.schedule();
    story.observe(saver, Observation::Running);
    story.world.pass_s(60);
    story.say("it has just begun again, however often it saves: the next one is made room for by the other");
    says(&mut story, saver, 0);
    let second = story.submit(ada, urgent("second")).expect("taken");
    assert_eq!(leaving(&story), [deep]);
    left(&mut story, deep, 3680);
    story.schedule();
    story.observe(second, Observation::Running);
    story.world.pass_s(120);
    story.exit(second, 120);
    story.schedule();
    story.observe(deep, Observation::Running);
    story.world.pass_s(60);
    story.say("both have just begun: now whoever comes waits, and nobody works for nothing");
    story.submit(ada, urgent("third")).expect("taken");
    story.schedule();
    assert_eq!(leaving(&story), []);
    story.world.pass_s(1800);
    story.schedule();
    assert_eq!(leaving(&story), [], "once an hour");
    story.check("urgent_jobs_do_not_have_others_take_turns");
}

#[test]
fn what_was_saved_counts_and_what_could_have_been_does_not() {
    for (other_restartable, saved) in [(true, true), (true, false), (false, true)] {
        let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
        let longer = run(&mut story, ada, low("longer", true));
        story.world.pass_s(3600);
        let other = run(&mut story, ada, low("other", other_restartable));
        story.world.pass_s(600);
        if saved {
            says(&mut story, longer, 60_000);
        }
        story.submit(ada, urgent("urgent")).expect("taken");
        let loses_least = if saved { longer } else { other };
        assert_eq!(leaving(&story), [loses_least], "{other_restartable} {saved}");
    }
}

#[test]
fn what_is_safe_goes_forward_while_a_job_runs_and_no_further_back_than_it_began() {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    let job = story.submit(ada, low("job", true)).expect("taken");
    let saved = |story: &Story| story.world.state.jobs[&job].saved;
    story.world.pass_s(10);
    says(&mut story, job, 0);
    assert_eq!(saved(&story), None, "it does not run yet");
    story.observe(job, Observation::Running);
    story.world.pass_s(100);
    says(&mut story, job, u64::MAX);
    let placed = saved(&story).expect("noted");
    assert_eq!(
        story.world.now.since_ms(placed),
        110_000,
        "no sooner than it was placed"
    );
    says(&mut story, job, 20_000);
    let known = saved(&story);
    assert_eq!(story.world.now.since_ms(known.expect("noted")), 20_000);
    says(&mut story, job, 30_000);
    assert_eq!(saved(&story), known, "never back");
    story.world.pass_s(600);
    story.submit(ada, urgent("a")).expect("taken");
    story.submit(ada, urgent("b")).expect("taken");
    story.schedule();
    story.submit(ada, urgent("c")).expect("taken");
    assert_eq!(story.world.state.jobs[&job].phase, Phase::Stopping);
    says(&mut story, job, 0);
    assert_eq!(saved(&story), known, "it is told to leave");
}
