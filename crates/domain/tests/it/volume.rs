//! Volumes seen from outside: whose they are, what they take of quotas and nodes, and where their jobs go.

use tenure_domain::command::Observation;
use tenure_domain::id::{JobId, NodeId, UserId, VolumeId};
use tenure_domain::schedule::fleet::Inventory;
use tenure_domain::schedule::why::why;
use tenure_domain::storage::volume::VolumeUse;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::spec::JobSpec;
use tenure_domain::{Actor, Code, Event, Refusal, State, Wish};

use crate::world::{World, cpu, inventory, spec};

struct House {
    world: World,
    acme: ScopeId,
    lab: ScopeId,
    ada: UserId,
    /// Of another tenant.
    eve: UserId,
}

fn house() -> House {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let lab = world.subscriber(acme, "lab");
    let ada = world.user(lab, "ada", Some(Role::Member));
    let brio = world.tenant("brio");
    let eve = world.user(brio, "eve", Some(Role::Operator));
    House {
        world,
        acme,
        lab,
        ada,
        eve,
    }
}

fn node(world: &mut World, name: &str, volume_mib: u64) -> NodeId {
    let inventory = Inventory {
        volume_mib,
        ..inventory(4000, 8000, vec![])
    };
    world.node(name, inventory)
}

fn create(
    world: &mut World,
    by: UserId,
    scope: ScopeId,
    name: &str,
    size_mib: u64,
) -> Result<VolumeId, Refusal> {
    let events = world.by(
        by,
        Wish::CreateVolume {
            scope,
            name: name.into(),
            size_mib,
        },
    )?;
    match events[..] {
        [Event::VolumeCreated { volume, .. }] => Ok(volume),
        _ => panic!("no volume was made: {events:?}"),
    }
}

fn grow(world: &mut World, by: UserId, volume: VolumeId, size_mib: u64) -> Result<Vec<Event>, Refusal> {
    world.by(
        by,
        Wish::GrowVolume {
            volume,
            size_mib,
            revision: None,
        },
    )
}

fn with(names: &[&str]) -> JobSpec {
    let mut job = spec("job", cpu(1000), 60);
    job.volumes = names
        .iter()
        .map(|name| VolumeUse {
            name: (*name).into(),
            read_only: false,
        })
        .collect();
    job
}

fn code<T: std::fmt::Debug>(answer: Result<T, Refusal>) -> Code {
    answer.expect_err("refused").code
}

fn waits(world: &World, job: JobId) -> Refusal {
    why(&world.state, job, world.now).expect("it waits")
}

#[test]
fn a_user_keeps_its_own_and_operators_those_of_their_scope() {
    let House {
        mut world,
        acme,
        lab,
        ada,
        eve,
    } = house();
    let home = ScopeId::User(ada);
    let own = create(&mut world, ada, home, "data", 100).expect("one's own");
    let operator = world.user(acme, "opal", Some(Role::Operator));
    let shared = create(&mut world, operator, lab, "data", 100).expect("an operator's");
    assert_eq!(
        code(create(&mut world, ada, lab, "mine", 100)),
        Code::NotPermitted
    );
    assert_eq!(code(create(&mut world, ada, acme, "mine", 100)), Code::NotFound);
    for (volume, scope) in [(own, home), (shared, lab)] {
        assert_eq!(code(create(&mut world, eve, scope, "x", 100)), Code::NotFound);
        assert_eq!(code(grow(&mut world, eve, volume, 200)), Code::NotFound);
        assert_eq!(code(world.by(eve, Wish::RemoveVolume { volume })), Code::NotFound);
        grow(&mut world, operator, volume, 200).expect("grown from above");
    }
    let teammate = world.user(lab, "tom", Some(Role::Member));
    assert_eq!(
        code(create(&mut world, teammate, lab, "t", 100)),
        Code::NotPermitted
    );
    let reader = world.user(lab, "rita", Some(Role::Auditor));
    assert_eq!(code(grow(&mut world, reader, own, 300)), Code::NotPermitted);
    world
        .by(ada, Wish::RemoveVolume { volume: own })
        .expect("removed");
    assert!(world.state.volumes.get(own).is_none(), "nothing has to be erased");
}

#[test]
fn names_sizes_and_the_platform_are_checked() {
    let House { mut world, ada, .. } = house();
    let (root, home) = (world.root, ScopeId::User(ada));
    create(&mut world, ada, home, "data", 16).expect("a volume");
    assert_eq!(code(create(&mut world, ada, home, "data", 16)), Code::NameTaken);
    for (name, size_mib) in [
        ("a/b", 16),
        ("..", 16),
        ("", 16),
        ("small", 15),
        ("large", (16 << 20) + 1),
    ] {
        assert_eq!(
            code(create(&mut world, ada, home, name, size_mib)),
            Code::InvalidField,
            "{name}"
        );
    }
    let refusal = create(&mut world, root, ScopeId::Platform, "all", 16).expect_err("refused");
    assert_eq!(refusal.field.as_deref(), Some("/scope"));
    for names in [vec!["data", "data"], vec!["../data"], vec!["v"; 17]] {
        assert_eq!(code(world.submit(ada, with(&names))), Code::InvalidField);
    }
    let unknown = world.submit(ada, with(&["data", "none"])).expect_err("refused");
    assert_eq!(unknown.field.as_deref(), Some("/volumes/1/name"));
}

#[test]
fn space_is_held_at_every_scope_above_and_the_wall_is_named() {
    let House {
        mut world,
        acme,
        lab,
        ada,
        ..
    } = house();
    let home = ScopeId::User(ada);
    world.quota(acme, &[("volume_mib", 1000)]);
    world.quota(lab, &[("volume_mib", 5000)]);
    let data = create(&mut world, ada, home, "data", 600).expect("it fits");
    for scope in [home, lab, acme, ScopeId::Platform] {
        let used = &world.state.tree.get(scope).expect("a scope").used;
        assert_eq!(used.get(&"volume_mib".parse().expect("a meter")), Some(600));
    }
    let refusal = create(&mut world, ada, home, "more", 401).expect_err("too much");
    assert_eq!(refusal.code, Code::QuotaInUse);
    assert!(
        refusal.sentence.starts_with("acme uses 600 of its 1000"),
        "{refusal}"
    );
    assert_eq!(
        code(create(&mut world, ada, home, "huge", 1001)),
        Code::ExceedsQuota
    );
    grow(&mut world, ada, data, 1000).expect("it fits exactly");
    assert_eq!(code(grow(&mut world, ada, data, 1001)), Code::QuotaInUse);
    assert_eq!(code(grow(&mut world, ada, data, 999)), Code::InvalidField);
    assert_eq!(grow(&mut world, ada, data, 1000), Ok(vec![]), "said again");
    world
        .by(ada, Wish::RemoveVolume { volume: data })
        .expect("removed");
    create(&mut world, ada, home, "more", 1000).expect("all of it is free again");
}

#[test]
fn the_nearest_volume_of_a_name_is_meant_and_kept() {
    let House {
        mut world,
        acme,
        lab,
        ada,
        eve,
    } = house();
    let (root, home) = (world.root, ScopeId::User(ada));
    node(&mut world, "n", 10_000);
    let far = create(&mut world, root, acme, "data", 100).expect("a volume");
    let near = create(&mut world, root, lab, "data", 100).expect("a volume");
    let job = world.submit(ada, with(&["data"])).expect("taken");
    assert_eq!(world.state.jobs[&job].volumes, [near]);
    let own = create(&mut world, ada, home, "data", 100).expect("a volume");
    assert_eq!(
        world.state.jobs[&job].volumes,
        [near],
        "a later one changes nothing"
    );
    let next = world.submit(ada, with(&["data"])).expect("taken");
    assert_eq!(world.state.jobs[&next].volumes, [own]);
    assert_eq!(code(world.submit(eve, with(&["data"]))), Code::InvalidField);
    assert_eq!(
        code(world.root(Wish::RemoveVolume { volume: near })),
        Code::JobsStillLive
    );
    world.exit(job, 1);
    world.root(Wish::RemoveVolume { volume: near }).expect("unused");
    assert!(world.state.volumes.get(near).is_some_and(|volume| volume.removed));
    world.exit(next, 1);
    world.by(ada, Wish::RemoveVolume { volume: own }).expect("unused");
    let last = world.submit(ada, with(&["data"])).expect("taken");
    assert_eq!(world.state.jobs[&last].volumes, [far]);
}

#[test]
fn a_volume_is_bound_with_its_first_job_and_draws_the_next_there() {
    let House { mut world, ada, .. } = house();
    let home = ScopeId::User(ada);
    node(&mut world, "bare", 0);
    let here = node(&mut world, "disk", 1000);
    let there = node(&mut world, "spare", 300);
    let data = create(&mut world, ada, home, "data", 600).expect("a volume");
    let first = world.submit(ada, with(&["data"])).expect("taken");
    assert_eq!(world.allocation(first).map(|(_, node)| node), Some(here));
    assert_eq!(world.state.volumes.find(data).expect("there").node, Some(here));
    assert_eq!(world.state.fleet.node(here).expect("a node").used_volume_mib, 600);

    create(&mut world, ada, home, "cache", 500).expect("a volume");
    let both = world.submit(ada, with(&["data", "cache"])).expect("taken");
    let reason = waits(&world, both);
    assert_eq!(reason.code, Code::VolumeUnavailable);
    assert!(
        reason.sentence.contains("no room for the job's new volumes"),
        "{reason}"
    );
    world.stop(both).expect("stopped");

    create(&mut world, ada, home, "scratch", 200).expect("a volume");
    world.root(Wish::CordonNode { node: here }).expect("cordoned");
    let second = world.submit(ada, with(&["scratch"])).expect("taken");
    assert_eq!(world.allocation(second).map(|(_, node)| node), Some(there));
    let refusal = world
        .submit(ada, with(&["data", "scratch"]))
        .expect_err("on two nodes");
    assert_eq!(refusal.code, Code::VolumesApart);
    assert_eq!(refusal.field.as_deref(), Some("/volumes"));

    let waiting = world.submit(ada, with(&["data"])).expect("taken");
    assert!(waits(&world, waiting).sentence.contains("out of service"));
    world.root(Wish::UncordonNode { node: here }).expect("back");
    world.schedule();
    assert_eq!(world.allocation(waiting).map(|(_, node)| node), Some(here));
}

#[test]
fn a_volume_waits_for_its_node() {
    let House { mut world, ada, .. } = house();
    let home = ScopeId::User(ada);
    let here = node(&mut world, "disk", 1000);
    create(&mut world, ada, home, "data", 600).expect("a volume");
    let job = world.submit(ada, with(&["data"])).expect("taken");
    node(&mut world, "other", 1000);
    world.system(Wish::LoseNode { node: here }).expect("lost");
    world.schedule();
    let reason = waits(&world, job);
    assert_eq!(reason.code, Code::VolumeUnavailable);
    assert!(reason.sentence.contains("node disk, which is lost"), "{reason}");
    assert_eq!(
        code(world.root(Wish::RemoveNode { node: here })),
        Code::VolumesStillThere
    );
    world
        .act(Actor::Node(here), Wish::ReturnNode { node: here })
        .expect("back");
    world.schedule();
    assert_eq!(world.allocation(job).map(|(_, node)| node), Some(here));
}

#[test]
fn volumes_never_have_more_than_a_node_has() {
    let House { mut world, ada, .. } = house();
    let home = ScopeId::User(ada);
    let here = node(&mut world, "disk", 1000);
    let large = create(&mut world, ada, home, "large", 2000).expect("a volume");
    assert_eq!(code(world.submit(ada, with(&["large"]))), Code::ExceedsFleet);
    world
        .by(ada, Wish::RemoveVolume { volume: large })
        .expect("removed");
    let a = create(&mut world, ada, home, "a", 700).expect("a volume");
    create(&mut world, ada, home, "b", 400).expect("a volume");
    let first = world.submit(ada, with(&["a"])).expect("taken");
    let second = world.submit(ada, with(&["b"])).expect("taken");
    assert!(waits(&world, second).sentence.contains("no node has 400 MiB"));
    assert_eq!(code(grow(&mut world, ada, a, 1001)), Code::NoCapacity);
    world.exit(first, 1);
    world.by(ada, Wish::RemoveVolume { volume: a }).expect("removed");
    world.schedule();
    assert!(
        world.allocation(second).is_none(),
        "its node has not erased it yet"
    );
    let erased = Wish::NoteVolumeErased {
        node: here,
        volume: a,
    };
    assert_eq!(code(world.by(ada, erased.clone())), Code::NotFound);
    assert_eq!(
        code(world.act(Actor::Node(NodeId(9)), erased.clone())),
        Code::NotFound
    );
    assert_eq!(
        world.act(Actor::Node(here), erased.clone()).expect("noted").len(),
        1
    );
    assert_eq!(world.act(Actor::Node(here), erased), Ok(vec![]), "said again");
    world.schedule();
    assert!(world.allocation(second).is_some());
}

#[test]
fn closing_and_moving_leave_no_files_of_one_tenant_with_another() {
    let House {
        mut world,
        acme,
        lab,
        ada,
        ..
    } = house();
    let (root, home) = (world.root, ScopeId::User(ada));
    let here = node(&mut world, "disk", 1000);
    let shared = create(&mut world, root, lab, "shared", 100).expect("a volume");
    let own = create(&mut world, ada, home, "own", 100).expect("a volume");
    let brio = world.tenant("brio-2");
    let away = Wish::Move {
        scope: home,
        parent: brio,
    };
    assert_eq!(code(world.root(away)), Code::VolumesStillThere);
    let job = world.submit(ada, with(&["shared"])).expect("taken");
    world
        .root(Wish::Move {
            scope: home,
            parent: acme,
        })
        .expect("within the tenant");
    assert_eq!(code(world.root(Wish::Close { scope: lab })), Code::JobsStillLive);
    world.exit(job, 1);
    let events = world.root(Wish::Close { scope: lab }).expect("closed");
    assert!(matches!(events[0], Event::VolumeRemoved { volume, .. } if volume == shared));
    world.root(Wish::Close { scope: home }).expect("closed");
    assert!(world.state.volumes.get(own).is_none());
    let left = world.state.volumes.get(shared).expect("to be erased");
    assert!(left.removed && left.node == Some(here));
    world
        .root(Wish::RemoveNode { node: here })
        .expect("with what it did not erase");
    assert_eq!(world.state.volumes.iter().count(), 0);
}

#[test]
fn a_job_that_starts_again_goes_back_to_its_volumes() {
    let House { mut world, ada, .. } = house();
    let home = ScopeId::User(ada);
    let here = node(&mut world, "disk", 1000);
    create(&mut world, ada, home, "data", 600).expect("a volume");
    let job = world.submit(ada, with(&["data"])).expect("taken");
    // A tighter fit, which it would go to without its volume.
    let other = Inventory {
        volume_mib: 100_000,
        ..inventory(2000, 8000, vec![])
    };
    world.node("other", other);
    world.observe(job, Observation::Vanished).expect("noted");
    world.schedule();
    assert_eq!(world.allocation(job).map(|(_, node)| node), Some(here));
}

#[test]
fn a_state_from_before_volumes_is_still_read() {
    let House { mut world, ada, .. } = house();
    node(&mut world, "disk", 0);
    world.submit(ada, spec("job", cpu(100), 60)).expect("taken");
    let mut old = serde_json::to_value(&world.state).expect("a state encodes");
    let removed = old.as_object_mut().and_then(|state| state.remove("volumes"));
    assert_eq!(removed, Some(serde_json::json!([])));
    assert!(!old.to_string().contains("volume"), "nothing else speaks of them");
    let mut read: State = serde_json::from_value(old).expect("it is read");
    read.rebuild_indexes();
    assert!(read == world.state);
}
