//! What a waiting job is told: the moment, its basis, and what would let it start now.

use tenure_domain::command::Observation;
use tenure_domain::id::UserId;
use tenure_domain::schedule::order::outlook::outlook;
use tenure_domain::schedule::when::Basis;
use tenure_domain::schedule::why::answer;
use tenure_domain::tenancy::role::Role;
use tenure_domain::workload::spec::Priority;

use super::{GUARDED, ranked, run, setting};
use crate::story::Story;
use crate::world::{gpu, inventory, slice, spec, whole};

#[test]
fn a_promised_start_names_the_limit_it_rests_on() {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    let runs = run(&mut story, ada, spec("runs", whole(2), 3600));
    let waits = story.submit(ada, spec("waits", whole(2), 600)).expect("taken");
    story.world.pass_s(600);
    let told = answer(&story.world.state, waits, story.world.now).expect("it waits");
    assert!(matches!(
        told.starts.expect("a moment").basis,
        Basis::Rule {
            ahead: 0,
            seen: 0,
            ..
        }
    ));
    story.schedule();
    let told = answer(&story.world.state, waits, story.world.now).expect("it waits");
    let starts = told.starts.expect("a moment");
    assert_eq!(starts.basis, Basis::Limit { job: Some(runs) });
    assert_eq!(starts.to, story.world.now.plus_ms(3_000_000));
    story.world.pass_s(3000);
    story.exit(runs, 3600);
    story.schedule();
    assert!(story.world.allocation(waits).is_some(), "and it started then");
    assert_eq!(answer(&story.world.state, waits, story.world.now), None);
}

#[test]
fn every_alternative_that_is_told_really_starts() {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    let l40s = gpu("l40s-0", "L40S", 48_000, &GUARDED);
    story.world.node("beta", inventory(16_000, 64_000, vec![l40s]));
    run(&mut story, ada, spec("runs", slice(500, 20_000), 3600));
    story.world.pass_s(600);
    let mut wanted = slice(900, 20_000);
    wanted.class = Some("A10".into());
    let mut a10 = whole(1);
    a10.class = Some("A10".into());
    run(&mut story, ada, spec("fills", a10, 3600));
    story.say("only the first has run its guaranteed time, and is on the GPU that can be had");
    let waits = story.submit(ada, spec("one", wanted, 600)).expect("taken");
    let told = answer(&story.world.state, waits, story.world.now).expect("it waits");
    let said: Vec<&str> = told.instead.iter().map(|way| way.change.as_str()).collect();
    assert_eq!(said, ["on L40S", "with priority high"]);
    assert!(told.instead[1].evicts && !told.instead[0].evicts && told.instead[0].starts.is_none());
    let mut elsewhere = slice(900, 20_000);
    elsewhere.class = Some("L40S".into());
    let now = story
        .submit(ada, spec("elsewhere", elsewhere, 600))
        .expect("taken");
    assert!(story.world.allocation(now).is_some(), "as it was told");
    let mut higher = slice(900, 20_000);
    higher.class = Some("A10".into());
    let higher = ranked(Priority::High, spec("higher", higher, 600));
    let higher = story.submit(ada, higher).expect("taken");
    assert!(
        story.world.state.calendar.of(higher).is_some(),
        "others leave for it, as it was told"
    );
}

#[test]
fn one_kept_out_by_a_promise_is_told_the_run_time_that_fits() {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    let runs = run(&mut story, ada, spec("runs", whole(1), 3600));
    let pair = story.submit(ada, spec("pair", whole(2), 600)).expect("taken");
    story.schedule();
    let long = story.submit(ada, spec("long", whole(1), 7200)).expect("taken");
    let told = answer(&story.world.state, long, story.world.now).expect("it waits");
    assert_eq!(told.reason.code.as_str(), "promised");
    assert!(
        told.reason.sentence.contains(&pair.to_string()),
        "{}",
        told.reason
    );
    assert_eq!(told.instead[0].change, "with a run time of 3600 s");
    let short = story.submit(ada, spec("short", whole(1), 3600)).expect("taken");
    assert!(story.world.allocation(short).is_some(), "as it was told");
    story.observe(short, Observation::Running);
    let _ = runs;
}

/// Both GPUs are taken; one waits for them, and another behind it. The first starts after eleven minutes.
fn one_waits_in_sight(story: &mut Story, ada: UserId) {
    let runs = run(story, ada, spec("runs", whole(2), 3600));
    let [first, second] = ["first", "second"].map(|name| {
        let waits = story.submit(ada, spec(name, whole(2), 600));
        waits.expect("taken")
    });
    let mut before = runs;
    for (next, ran_s) in [(first, 660), (second, 400)] {
        story.world.pass_s(ran_s);
        story.exit(before, ran_s);
        story.schedule();
        story.observe(next, Observation::Running);
        before = next;
    }
    story.world.pass_s(400);
    story.exit(before, 400);
}

#[test]
fn what_became_of_those_before_is_what_a_stated_start_rests_on() {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    for _ in 0..5 {
        one_waits_in_sight(&mut story, ada);
    }
    run(&mut story, ada, spec("runs", whole(2), 3600));
    let waits = story.submit(ada, spec("waits", whole(2), 600)).expect("taken");
    let now = story.world.now;
    let told = answer(&story.world.state, waits, now).expect("it waits");
    let starts = told.starts.expect("a moment");
    let Basis::Rule {
        ahead,
        seen,
        permille,
    } = starts.basis
    else {
        panic!("nothing is promised yet: {starts:?}");
    };
    assert!(ahead == 0 && seen == 5 && permille >= 93, "{starts:?}");
    let in_eleven_minutes = now.plus_ms(660_000);
    assert!(
        starts.from <= in_eleven_minutes && in_eleven_minutes <= starts.to,
        "{starts:?}"
    );
}

#[test]
fn of_strangers_only_limits_and_the_rule_are_known() {
    let starts = |brief: bool| {
        let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
        let zeta = story.world.tenant("zeta");
        let zoe = story.world.user(zeta, "zoe", Some(Role::Member));
        for _ in 0..20 {
            let job = run(&mut story, zoe, spec("of-zoe", whole(2), 7200));
            let ran_s = if brief { 30 } else { 5_000 };
            story.world.pass_s(5_000);
            story.exit(job, ran_s);
        }
        run(&mut story, zoe, spec("runs", whole(2), 7200));
        let waits = story.submit(ada, spec("waits", whole(2), 600)).expect("taken");
        let job = &story.world.state.jobs[&waits];
        outlook(&story.world.state, job, story.world.now).expect("it waits")
    };
    let known = starts(true);
    assert!(known.estimate.is_some());
    assert_eq!(known, starts(false));
}
