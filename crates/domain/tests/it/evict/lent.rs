//! What was lent comes back: a scope within its nominal quota has borrowers leave, and nobody else.

use tenure_domain::Wish;
use tenure_domain::id::{JobId, UserId};
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::tenancy::share::{Nominal, Share};
use tenure_domain::workload::job::Phase;
use tenure_domain::workload::spec::{JobSpec, Priority};

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
