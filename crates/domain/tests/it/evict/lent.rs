//! What was lent comes back: a scope within its nominal quota has borrowers leave, and nobody else.

use tenure_domain::id::{JobId, UserId};
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::tenancy::share::{Nominal, Share};
use tenure_domain::workload::job::Phase;
use tenure_domain::workload::spec::{JobSpec, Priority};
use tenure_domain::{Code, Wish};

use super::{GUARDED, ranked, run};
use crate::story::Story;
use crate::world::{World, gpu, inventory, spec, whole};

/// Four GPUs; acme and brio are sure of two each.
fn setting() -> (Story, UserId, UserId) {
    let mut world = World::new();
    let (acme, brio) = (world.tenant("acme"), world.tenant("brio"));
    let ada = world.user(acme, "ada", Some(Role::Member));
    let bob = world.user(brio, "bob", Some(Role::Member));
    let gpus = (0..4).map(|n| gpu(&format!("a10-{n}"), "A10", 24_000, &GUARDED));
    world.node("alpha", inventory(16_000, 64_000, gpus.collect()));
    for scope in [acme, brio] {
        sure(&mut world, scope, 2000);
    }
    (Story::new(world), ada, bob)
}

fn sure(world: &mut World, scope: ScopeId, gpu_milli: u64) {
    let nominal = Nominal {
        gpu_milli,
        ..Nominal::default()
    };
    let share = Share {
        nominal: [("A10".into(), nominal)].into(),
        ..Share::default()
    };
    let revision = None;
    let set = Wish::SetShare {
        scope,
        share,
        revision,
    };
    world.root(set).expect("set");
}

fn one(priority: Priority) -> JobSpec {
    ranked(priority, spec("one", whole(1), 7200))
}

fn leaving(story: &Story) -> Vec<JobId> {
    let jobs = story.world.state.jobs.values();
    let stopping = jobs.filter(|job| job.phase == Phase::Stopping);
    stopping.map(|job| job.id).collect()
}

#[test]
fn borrowers_leave_for_a_scope_within_its_nominal_quota_until_none_borrows() {
    let (mut story, ada, bob) = setting();
    let borrowed: Vec<JobId> = (0..4)
        .map(|_| run(&mut story, bob, one(Priority::Normal)))
        .collect();
    story.world.pass_s(600);
    story
        .submit(ada, one(Priority::Low))
        .expect("a lower class waits: priority goes before what is lent");
    assert_eq!(leaving(&story), []);
    for asked in 1..=2 {
        story.submit(ada, one(Priority::Normal)).expect("taken");
        let left = leaving(&story);
        assert_eq!(left.len(), asked, "one of four leaves for each");
        assert!(left.iter().all(|job| borrowed.contains(job)));
    }
    story
        .submit(ada, one(Priority::Normal))
        .expect("what is beyond nominal waits");
    story.schedule();
    assert_eq!(leaving(&story).len(), 2, "what is sure is taken from nobody");
}

#[test]
fn nobody_who_is_within_what_is_sure_to_it_leaves() {
    let (mut story, ada, bob) = setting();
    let (a, b) = (one(Priority::Normal), one(Priority::Normal));
    run(&mut story, bob, a);
    run(&mut story, bob, b);
    let other = story.world.tenant("other");
    let eve = story.world.user(other, "eve", Some(Role::Member));
    run(&mut story, eve, one(Priority::Normal));
    run(&mut story, eve, one(Priority::Normal));
    story.world.pass_s(600);
    story.submit(ada, one(Priority::Normal)).expect("taken");
    story.schedule();
    assert_eq!(
        leaving(&story),
        [],
        "bob is within his, and eve, sure of nothing, borrows nothing"
    );
}

#[test]
fn no_policy_of_its_own_keeps_what_was_lent() {
    let never = Policy {
        guaranteed_run_s: Some(86_400),
        max_evictions_per_job: Some(0),
        max_evictions_per_hour: Some(0),
        ..Policy::default()
    };
    let left = |scope: fn(&Story, UserId) -> ScopeId| {
        let (mut story, ada, bob) = setting();
        let scope = scope(&story, bob);
        set_policy(&mut story.world, scope, never.clone()).expect("set");
        for _ in 0..4 {
            run(&mut story, bob, one(Priority::Normal));
        }
        story.world.pass_s(600);
        story.submit(ada, one(Priority::Normal)).expect("taken");
        leaving(&story).len()
    };
    assert_eq!(left(|_, bob| ScopeId::User(bob)), 1, "of its user");
    let brio = |story: &Story, bob| {
        let tenant = story.world.state.tree.tenant_of(ScopeId::User(bob));
        ScopeId::Tenant(tenant.expect("a tenant"))
    };
    assert_eq!(left(brio), 1, "of its tenant");
    assert_eq!(left(|_, _| ScopeId::Platform), 0, "what stands above both counts");
}

#[test]
fn the_time_a_job_is_left_alone_is_a_day_at_most() {
    let (mut story, _, bob) = setting();
    let day = |run_s| Policy {
        guaranteed_run_s: Some(run_s),
        ..Policy::default()
    };
    set_policy(&mut story.world, ScopeId::User(bob), day(86_400)).expect("a day");
    let refused = set_policy(&mut story.world, ScopeId::User(bob), day(86_401)).expect_err("longer");
    assert_eq!(
        (refused.code, refused.field.as_deref()),
        (Code::InvalidField, Some("/guaranteed_run_s"))
    );
}

/// Bounds that a tenant sets hold among its own, and are honoured by what is decided.
#[test]
fn bounds_of_a_tenant_hold_among_its_own() {
    let (mut story, ada, _) = setting();
    let acme = story
        .world
        .state
        .tree
        .tenant_of(ScopeId::User(ada))
        .expect("a tenant");
    let acme = ScopeId::Tenant(acme);
    let other = story.world.user(acme, "amy", Some(Role::Member));
    let hour = Policy {
        guaranteed_run_s: Some(3600),
        max_evictions_per_job: Some(1),
        ..Policy::default()
    };
    set_policy(&mut story.world, acme, hour).expect("set");
    let jobs: Vec<JobId> = (0..4)
        .map(|_| run(&mut story, other, one(Priority::Low)))
        .collect();
    story.world.pass_s(3000);
    story.submit(ada, one(Priority::High)).expect("taken");
    story.schedule();
    assert_eq!(
        leaving(&story),
        [],
        "the default would have had one leave after five minutes"
    );
    story.world.pass_s(601);
    story.schedule();
    let first = leaving(&story);
    assert_eq!(first.len(), 1, "its hour is over");
    super::left(&mut story, first[0], 3601);
    story.schedule();
    for job in jobs.iter().filter(|job| **job != first[0]).take(1) {
        story.exit(*job, 3601);
    }
    story.schedule();
    let again = story.world.state.jobs[&first[0]].phase;
    assert_eq!(again, Phase::Placed, "it goes on where another ended");
    story.observe(first[0], tenure_domain::command::Observation::Running);
    story.world.pass_s(3700);
    for _ in 0..3 {
        story.submit(ada, one(Priority::High)).expect("taken");
    }
    story.schedule();
    let left = leaving(&story);
    assert!(
        !left.is_empty() && !left.contains(&first[0]),
        "once in its life: {left:?}"
    );
}

fn set_policy(
    world: &mut World,
    scope: ScopeId,
    policy: Policy,
) -> Result<Vec<tenure_domain::Event>, tenure_domain::Refusal> {
    let revision = None;
    world.root(Wish::SetPolicy {
        scope,
        policy,
        revision,
    })
}
