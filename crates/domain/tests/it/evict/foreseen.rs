//! Every waiting job is told when it starts, whatever it waits for; or, as a value, why nobody can say.

use tenure_domain::command::Observation;
use tenure_domain::forecast::wait::Alike;
use tenure_domain::id::{JobId, UserId};
use tenure_domain::schedule::when::{Basis, Starts, Unforeseen};
use tenure_domain::schedule::why::{Answer, answer};
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::tenancy::share::{Nominal, Share};
use tenure_domain::time::Period;
use tenure_domain::workload::job::{PauseReason, Phase};
use tenure_domain::workload::spec::{Demand, Priority};
use tenure_domain::{Time, Wish};

use super::{FENCED, GUARDED, ranked, run, setting};
use crate::story::Story;
use crate::world::{gpu, inventory, slice, spec, whole};

fn told(story: &Story, job: JobId, code: &str) -> Answer {
    let told = answer(&story.world.state, job, story.world.now).expect("it waits");
    assert_eq!(told.reason.code.as_str(), code, "{}", told.reason);
    told
}

fn starts(story: &Story, job: JobId, code: &str) -> Starts {
    let starts = told(story, job, code).starts.expect("a moment");
    assert!(
        story.world.now <= starts.from && starts.from <= starts.to,
        "{starts:?}"
    );
    starts
}

fn unforeseen(story: &Story, job: JobId, code: &str) -> Unforeseen {
    told(story, job, code).starts.expect_err("nobody can say")
}

fn holds(starts: &Starts, moment: Time) -> bool {
    starts.from <= moment && moment <= starts.to
}

fn quota(story: &mut Story, scope: ScopeId, gpu_milli: u64) {
    story.world.quota(scope, &[("gpu_milli", gpu_milli)]);
}

fn budget(story: &mut Story, scope: ScopeId, period: Period, gpu_seconds: u64) {
    let budgets = vec![Budget {
        period,
        class: None,
        sku: None,
        kind: None,
        money_micros: None,
        gpu_seconds: Some(gpu_seconds),
        frames: None,
        alerts_permille: Vec::new(),
    }];
    let wish = Wish::SetBudgets {
        scope,
        budgets,
        revision: None,
    };
    story.world.root(wish).expect("a budget");
}

fn share(story: &mut Story, scope: ScopeId, borrow_milli: Option<u64>, lend_milli: Option<u64>) {
    let nominal = Nominal {
        gpu_milli: 1000,
        borrow_milli,
        lend_milli,
    };
    let share = Share {
        nominal: [("A10".into(), nominal)].into(),
        ..Share::default()
    };
    let wish = Wish::SetShare {
        scope,
        share,
        revision: None,
    };
    story.world.root(wish).expect("a share");
}

fn a10(gpus: u32) -> Demand {
    Demand {
        class: Some("A10".into()),
        ..whole(gpus)
    }
}

/// One runs, and the quota has no room for the next until it has ended; that is eleven minutes later.
fn one_waits_for_quota(story: &mut Story, ada: UserId) {
    let runs = run(story, ada, spec("runs", whole(1), 3600));
    let waits = [0, 1].map(|_| story.submit(ada, spec("waits", whole(1), 600)).expect("taken"));
    story.world.pass_s(660);
    story.exit(runs, 660);
    for job in waits {
        story.schedule();
        story.observe(job, Observation::Running);
        story.world.pass_s(300);
        story.exit(job, 300);
    }
}

#[test]
fn who_waits_for_quota_is_told_when_the_scopes_own_jobs_give_it_back() {
    let (mut story, acme, ada) = setting(&["alpha"], &GUARDED);
    quota(&mut story, acme, 1000);
    run(&mut story, ada, spec("runs", whole(1), 3600));
    let waits = story.submit(ada, spec("waits", whole(1), 600)).expect("taken");
    let starts = starts(&story, waits, "quota_in_use");
    let Basis::Quota { scope, ahead, .. } = &starts.basis else {
        panic!("a GPU is free: {starts:?}")
    };
    assert_eq!((&**scope, *ahead), ("acme", 0));
    // The limit of what runs bounds what is drawn, and the band goes a step beyond at most.
    assert!(
        starts.to <= story.world.now.plus_ms(2 * 3_600_000 + 1000),
        "{starts:?}"
    );
    let behind = story.submit(ada, spec("behind", whole(1), 600)).expect("taken");
    let later = self::starts(&story, behind, "quota_in_use");
    assert!(
        matches!(later.basis, Basis::Quota { ahead: 1, .. }) && later.to > starts.to,
        "the one ahead has the quota first: {later:?} after {starts:?}"
    );
}

#[test]
fn bands_of_waits_for_quota_are_learnt_as_those_for_room() {
    let (mut story, acme, ada) = setting(&["alpha"], &GUARDED);
    quota(&mut story, acme, 1000);
    for _ in 0..5 {
        one_waits_for_quota(&mut story, ada);
    }
    run(&mut story, ada, spec("runs", whole(1), 3600));
    let waits = story.submit(ada, spec("waits", whole(1), 600)).expect("taken");
    let starts = starts(&story, waits, "quota_in_use");
    assert!(
        matches!(starts.basis, Basis::Quota { seen: 3.., .. }),
        "{starts:?}"
    );
    let in_eleven_minutes = story.world.now.plus_ms(660_000);
    assert!(holds(&starts, in_eleven_minutes), "{starts:?}");
    // What was watched was an estimate of the wait for quota: of one for room alone, which there is, nothing
    // would have been as far off as this.
    let of = story.world.state.jobs[&waits].alike.map(Alike::from);
    let at_once = tenure_domain::forecast::wait::Estimate::rough(0);
    let band = story.world.state.probes.tell(at_once, of, story.world.now).band;
    assert!(!band.holds(660), "{band:?}");
}

#[test]
fn a_quota_cut_below_what_is_asked_is_waited_for_until_somebody_raises_it() {
    let (mut story, acme, ada) = setting(&["alpha"], &GUARDED);
    quota(&mut story, acme, 1000);
    run(&mut story, ada, spec("runs", whole(1), 3600));
    let waits = story.submit(ada, spec("waits", whole(1), 600)).expect("taken");
    quota(&mut story, acme, 500);
    assert_eq!(unforeseen(&story, waits, "quota_in_use"), Unforeseen::UntilRaised);
}

/// Two GPUs, of which acme and zeta are sure of one each and have it; one of acme's waits for another.
fn both_have_theirs(borrow_milli: Option<u64>, lend_milli: Option<u64>) -> (Story, JobId, JobId) {
    let (mut story, acme, ada) = setting(&["alpha", "beta"], &GUARDED);
    let zeta = story.world.tenant("zeta");
    let zoe = story.world.user(zeta, "zoe", Some(Role::Member));
    share(&mut story, acme, borrow_milli, None);
    share(&mut story, zeta, None, lend_milli);
    // Ada's ends long after Zoe's, whatever is drawn.
    run(&mut story, ada, spec("of-ada", a10(1), 30 * 86_400));
    story.world.pass_s(10 * 86_400);
    let of_zoe = run(&mut story, zoe, spec("of-zoe", a10(1), 900));
    let waits = story.submit(ada, spec("waits", a10(1), 600)).expect("taken");
    (story, of_zoe, waits)
}

#[test]
fn who_waits_for_what_is_lent_is_told_when_others_let_theirs_fall_idle() {
    let (mut story, of_zoe, waits) = both_have_theirs(None, None);
    let starts = starts(&story, waits, "not_lent");
    assert!(
        matches!(&starts.basis, Basis::Quota { scope, .. } if scope == "acme"),
        "{starts:?}"
    );
    assert!(
        starts.to <= story.world.now.plus_ms(2 * 900_000 + 1000),
        "Zoe's limit is a quarter of an hour: {starts:?}"
    );
    story.world.pass_s(900);
    story.exit(of_zoe, 900);
    story.schedule();
    assert!(story.world.allocation(waits).is_some(), "and it started then");
}

#[test]
fn what_is_never_lent_is_not_waited_for() {
    let (story, _, waits) = both_have_theirs(None, Some(0));
    let starts = starts(&story, waits, "not_lent");
    assert!(
        starts.to > story.world.now.plus_ms(3_600_000),
        "only its own tenant's job can give it a GPU, after days: {starts:?}"
    );
}

#[test]
fn who_may_not_borrow_more_is_told_when_its_own_jobs_give_theirs_back() {
    let (story, _, waits) = both_have_theirs(Some(0), None);
    let starts = starts(&story, waits, "borrow_limit");
    assert!(
        starts.to > story.world.now.plus_ms(3_600_000),
        "Zoe's end does not help: {starts:?}"
    );
}

#[test]
fn who_waits_for_money_is_told_when_it_comes_back_or_the_period_turns() {
    let (mut story, acme, ada) = setting(&["alpha"], &GUARDED);
    budget(&mut story, acme, Period::Day, 4000);
    let first = run(&mut story, ada, spec("first", whole(1), 3600));
    let waits = story.submit(ada, spec("waits", whole(1), 600)).expect("taken");
    let starts = self::starts(&story, waits, "budget_held");
    assert!(
        matches!(&starts.basis, Basis::Budget { scope, .. } if scope == "acme"),
        "{starts:?}"
    );
    story.world.pass_s(3500);
    story.meter(first, 3500);
    let midnight = Time::parse_rfc3339("2026-03-03T00:00:00Z").expect("a moment");
    let starts = self::starts(&story, waits, "budget_held");
    assert!(
        matches!(starts.basis, Basis::Budget { turns: true, .. }) && holds(&starts, midnight),
        "what is left comes back in vain: {starts:?}"
    );
    story.exit(first, 3500);
    story.schedule();
    assert!(story.world.allocation(waits).is_none());
    let to_midnight_s = midnight.since_ms(story.world.now) / 1000;
    story.world.pass_s(to_midnight_s);
    story.schedule();
    assert!(story.world.allocation(waits).is_some(), "and it started then");
}

#[test]
fn a_budget_for_ever_that_is_spent_is_waited_for_until_somebody_raises_it() {
    let (mut story, acme, ada) = setting(&["alpha"], &GUARDED);
    budget(&mut story, acme, Period::Total, 4000);
    let first = run(&mut story, ada, spec("first", whole(1), 3600));
    let waits = story.submit(ada, spec("waits", whole(1), 600)).expect("taken");
    story.world.pass_s(3500);
    story.meter(first, 3500);
    assert_eq!(unforeseen(&story, waits, "budget_held"), Unforeseen::UntilRaised);
}

/// One that was set aside for an urgent one.
fn set_aside() -> (Story, UserId, JobId, JobId) {
    let (mut story, _, ada) = setting(&["alpha"], &FENCED);
    let low = |name: &str| ranked(Priority::Low, spec(name, slice(800, 8000), 7200));
    let both = [low("quiet"), low("other")].map(|spec| run(&mut story, ada, spec));
    story.world.pass_s(900);
    let urgent = ranked(Priority::Urgent, spec("urgent", slice(500, 4000), 600));
    let urgent = story.submit(ada, urgent).expect("taken");
    let pausing = |job: &JobId| story.world.state.jobs[job].phase == Phase::Pausing;
    let paused = both.into_iter().find(pausing).expect("one pauses");
    let observation = Observation::Paused {
        ran_ms: 900_000,
        usage: None,
    };
    story.observe(paused, observation);
    story.schedule();
    story.observe(urgent, Observation::Running);
    (story, ada, paused, urgent)
}

#[test]
fn one_that_was_set_aside_is_told_when_it_goes_on() {
    let (mut story, ada, paused, urgent) = set_aside();
    let starts = starts(&story, paused, "no_capacity");
    assert!(matches!(starts.basis, Basis::Rule { .. }), "{starts:?}");
    assert!(
        starts.to <= story.world.now.plus_ms(2 * 600_000 + 1000),
        "the urgent one has ten minutes: {starts:?}"
    );
    story.world.pass_s(600);
    story.exit(urgent, 600);
    story.schedule();
    assert_eq!(story.world.state.jobs[&paused].phase, Phase::Resuming);
    let _ = ada;
}

#[test]
fn one_that_somebody_paused_goes_on_when_somebody_asks() {
    let (mut story, _, ada) = setting(&["alpha"], &FENCED);
    let job = run(&mut story, ada, spec("quiet", slice(800, 8000), 7200));
    let reason = PauseReason::Asked;
    story
        .world
        .by(ada, Wish::Pause { job, reason })
        .expect("it pauses");
    let observation = Observation::Paused {
        ran_ms: 1000,
        usage: None,
    };
    story.observe(job, observation);
    assert_eq!(unforeseen(&story, job, "paused"), Unforeseen::UntilAsked);
}

#[test]
fn behind_a_suspension_or_on_a_node_out_of_service_nobody_can_say() {
    let (mut story, acme, ada) = setting(&["alpha"], &GUARDED);
    let l40s = gpu("l40s-0", "L40S", 48_000, &GUARDED);
    let other = story.world.node("beta", inventory(16_000, 64_000, vec![l40s]));
    run(&mut story, ada, spec("runs", a10(2), 3600));
    let waits = story.submit(ada, spec("waits", a10(2), 600)).expect("taken");
    story
        .world
        .root(Wish::Suspend { scope: acme })
        .expect("suspended");
    assert_eq!(
        unforeseen(&story, waits, "scope_suspended"),
        Unforeseen::UntilAsked
    );
    story.world.root(Wish::Resume { scope: acme }).expect("resumed");
    starts(&story, waits, "no_capacity");
    let mut nodes = story.world.state.fleet.nodes().map(|node| node.id);
    let alpha = nodes.find(|node| *node != other).expect("a node");
    drop(nodes);
    story
        .world
        .root(Wish::CordonNode { node: alpha })
        .expect("cordoned");
    assert_eq!(unforeseen(&story, waits, "no_capacity"), Unforeseen::UntilNodes);
    story
        .world
        .root(Wish::CordonNode { node: other })
        .expect("cordoned");
    assert_eq!(unforeseen(&story, waits, "no_nodes"), Unforeseen::UntilNodes);
}

#[test]
fn one_that_others_overtook_by_age_is_told_when_those_have_had_their_room() {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    let share = Share {
        aged_s: Some(7200),
        ..Share::default()
    };
    let wish = Wish::SetShare {
        scope: ScopeId::Platform,
        share,
        revision: None,
    };
    story.world.root(wish).expect("a bound");
    let first = run(&mut story, ada, spec("first", whole(1), 86_400));
    let second = run(&mut story, ada, spec("second", whole(1), 86_400));
    let both = ranked(Priority::Low, spec("both", whole(2), 600));
    story.submit(ada, both).expect("taken");
    story.world.pass_s(7_300);
    story.exit(second, 7_300);
    let small = story
        .submit(ada, spec("small", whole(1), 20 * 86_400))
        .expect("taken");
    let starts = starts(&story, small, "behind_others");
    assert!(
        starts.to > story.world.now.plus_ms(60_000),
        "a GPU is free, and kept: {starts:?}"
    );
    let _ = first;
}

/// On its own class nothing ends for days; on another one does in five minutes.
#[test]
fn an_alternative_that_starts_later_is_told_with_its_moment() {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    let l40s = gpu("l40s-0", "L40S", 48_000, &GUARDED);
    story.world.node("beta", inventory(16_000, 64_000, vec![l40s]));
    let long = |name: &str| spec(name, a10(1), 30 * 86_400);
    let soon = run(&mut story, ada, long("one"));
    run(&mut story, ada, long("other"));
    story.world.pass_s(10 * 86_400);
    let mut elsewhere = whole(1);
    elsewhere.class = Some("L40S".into());
    run(&mut story, ada, spec("brief", elsewhere.clone(), 300));
    let waits = story.submit(ada, spec("waits", a10(1), 600)).expect("taken");
    let told = told(&story, waits, "no_capacity");
    let own = told.starts.expect("a moment");
    let way = told.instead.iter().find(|way| way.change == "on L40S");
    let way = way.unwrap_or_else(|| panic!("it is told: {:?}", told.instead));
    let then = way.starts.as_ref().expect("not now");
    assert!(!way.evicts && then.to < own.to, "{then:?} for {own:?}");
    assert!(then.to <= story.world.now.plus_ms(2 * 300_000 + 1000), "{then:?}");
    // What is told is what one that asks for it is told.
    let there = spec("elsewhere", elsewhere, 600);
    let there = story.submit(ada, there).expect("taken");
    let really = starts(&story, there, "no_capacity");
    assert!(really.to <= own.to, "{really:?}");
    // One that would start no sooner is not told.
    story.observe(
        soon,
        Observation::Exited {
            exit_code: Some(0),
            signal: None,
            ran_ms: 864_000_000,
            by: None,
            usage: None,
        },
    );
    story.schedule();
    assert!(story.world.allocation(waits).is_some());
}

#[test]
fn with_fewer_gpus_it_is_told_when_those_will_be_free() {
    let (mut story, _, ada) = setting(&["alpha"], &GUARDED);
    run(&mut story, ada, spec("long", a10(1), 30 * 86_400));
    story.world.pass_s(10 * 86_400);
    run(&mut story, ada, spec("brief", a10(1), 300));
    let waits = story.submit(ada, spec("waits", a10(2), 600)).expect("taken");
    let told = told(&story, waits, "no_capacity");
    let own = told.starts.expect("a moment");
    let way = told.instead.iter().find(|way| way.change == "with 1 GPU");
    let then = way.and_then(|way| way.starts.as_ref());
    assert!(
        then.is_some_and(|then| then.to < own.to),
        "{then:?} for {own:?}: {:?}",
        told.instead
    );
}
