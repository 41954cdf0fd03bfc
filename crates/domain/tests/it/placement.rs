//! Placement and the queue, seen from outside: best fit, order, and devices that come, go and move.

use tenure_domain::command::Observation;
use tenure_domain::schedule::fleet::NodeStatus;
use tenure_domain::schedule::hardware::{Hardware, Link, LinkPath, Part, Partitioning};
use tenure_domain::schedule::order::walk::{Turn, Walk};
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::workload::spec::{Isolation, Priority};
use tenure_domain::{Actor, Code, Wish};

use crate::world::{World, cpu, gpu, inventory, slice, spec, whole};

const GUARDED: [Isolation; 1] = [Isolation::Guarded];

fn setting() -> (
    World,
    tenure_domain::tenancy::scope::ScopeId,
    tenure_domain::id::UserId,
) {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    (world, acme, ada)
}

#[test]
fn the_tightest_gpu_is_taken() {
    let (mut world, _, ada) = setting();
    let big = world.node(
        "big",
        inventory(8000, 16_000, vec![gpu("b", "A10", 24_000, &GUARDED)]),
    );
    let small = world.node(
        "small",
        inventory(8000, 16_000, vec![gpu("s", "A10", 12_000, &GUARDED)]),
    );
    let mut node_of = |share, vram| {
        let job = world
            .submit(ada, spec("j", slice(share, vram), 60))
            .expect("taken");
        world.allocation(job).map(|(_, node)| node)
    };
    assert_eq!(
        node_of(500, 6000),
        Some(small),
        "less is left over on the small one"
    );
    assert_eq!(node_of(500, 6000), Some(small), "and it is filled up");
    assert_eq!(
        node_of(100, 20_000),
        Some(big),
        "what only fits the big one goes there"
    );
    assert_eq!(node_of(100, 20_000), None);
}

#[test]
fn slices_of_one_job_are_on_different_gpus() {
    let (mut world, _, ada) = setting();
    world.node(
        "alpha",
        inventory(
            8000,
            16_000,
            (0..2)
                .map(|i| gpu(&format!("g{i}"), "A10", 24_000, &GUARDED))
                .collect(),
        ),
    );
    let mut two = slice(300, 4000);
    two.gpus = 2;
    let job = world.submit(ada, spec("pair", two, 60)).expect("taken");
    let (allocation, _) = world.allocation(job).expect("placed");
    let slices = &world.state.fleet.allocation(allocation).expect("living").slices;
    assert_ne!(slices[0].gpu, slices[1].gpu);
}

#[test]
fn higher_priority_goes_first_and_then_who_came_first() {
    let (mut world, acme, ada) = setting();
    world.quota(acme, &[("jobs", 1)]);
    world.node("alpha", inventory(8000, 16_000, vec![]));
    let mut running = world.submit(ada, spec("now", cpu(100), 60)).expect("taken");
    let order = [
        Priority::Low,
        Priority::Normal,
        Priority::Urgent,
        Priority::High,
        Priority::Urgent,
    ];
    let jobs: Vec<_> = order
        .iter()
        .map(|&priority| {
            let mut job = spec("later", cpu(100), 60);
            job.priority = priority;
            world.submit(ada, job).expect("taken")
        })
        .collect();
    for next in [2, 4, 3, 1, 0] {
        world.exit(running, 1);
        world.schedule();
        running = jobs[next];
        assert!(world.allocation(running).is_some(), "{:?} is next", order[next]);
        assert_eq!(world.state.fleet.allocations().count(), 1);
    }
}

#[test]
fn a_pass_asks_the_first_of_a_line_for_all() {
    let (mut world, acme, ada) = setting();
    world.node("alpha", inventory(8000, 16_000, vec![]));
    world.quota(acme, &[("cpu_milli", 1000)]);
    world.submit(ada, spec("first", cpu(900), 60)).expect("taken");
    for _ in 0..10 {
        world.submit(ada, spec("big", cpu(900), 60)).expect("taken");
    }
    let small = world.submit(ada, spec("small", cpu(800), 60)).expect("taken");
    world.quota(acme, &[("cpu_milli", 1750)]);
    let mut walk = Walk::begin(&world.state, world.now);
    let mut tried = Vec::new();
    loop {
        match walk.next(&world.state) {
            Turn::Over => break,
            Turn::Looks | Turn::Promise(_) | Turn::Withdraw => {}
            Turn::Try(job) => {
                tried.push(job);
                if let Err(refusal) = world.system(Wish::Schedule { job }) {
                    walk.refused(&world.state, &refusal);
                }
            }
        }
    }
    assert_eq!(tried.len(), 2, "one of the ten, and the small one: {tried:?}");
    assert!(world.allocation(small).is_some());
}

#[test]
fn jobs_that_lack_quota_do_not_keep_others_from_being_promised_room() {
    let (mut world, acme, ada) = setting();
    let brio = world.tenant("brio");
    let bob = world.user(brio, "bob", Some(Role::Member));
    let card = gpu("card", "A10", 24_000, &GUARDED);
    world.node("alpha", inventory(64_000, 64_000, vec![card]));
    world.quota(acme, &[("cpu_milli", 1000)]);
    let mut high = |cpu_milli| {
        let mut job = spec("high", cpu(cpu_milli), 60);
        job.priority = Priority::High;
        world.submit(ada, job).expect("taken")
    };
    high(900);
    let lacking: Vec<_> = (200..240).map(high).collect();
    let runs = world.submit(bob, spec("runs", whole(1), 3600)).expect("taken");
    world.observe(runs, Observation::Running).expect("runs");
    let waits = world.submit(bob, spec("waits", whole(1), 600)).expect("taken");
    let mut walk = Walk::begin(&world.state, world.now);
    let mut promised = Vec::new();
    loop {
        match walk.next(&world.state) {
            Turn::Over => break,
            Turn::Promise(job) => promised.push(job),
            Turn::Looks | Turn::Withdraw => {}
            Turn::Try(job) => {
                if let Err(refusal) = world.system(Wish::Schedule { job }) {
                    walk.refused(&world.state, &refusal);
                }
            }
        }
    }
    let for_quota = promised.iter().filter(|job| lacking.contains(job)).count();
    assert_eq!(for_quota, 32, "no more than some");
    assert!(promised.contains(&waits), "{promised:?}");
}

#[test]
fn a_device_is_on_one_node_only() {
    let (mut world, _, ada) = setting();
    let card = || gpu("card", "A10", 24_000, &GUARDED);
    let old = world.node("old", inventory(8000, 16_000, vec![card()]));
    let new = world.node("new", inventory(8000, 16_000, vec![]));
    let both = Wish::ReportInventory {
        node: new,
        inventory: inventory(8000, 16_000, vec![card()]),
    };
    assert_eq!(
        world
            .act(Actor::Node(new), both.clone())
            .expect_err("on two nodes")
            .code,
        Code::ContradictoryReport
    );
    world.system(Wish::LoseNode { node: old }).expect("lost");
    world
        .act(Actor::Node(new), both)
        .expect("the card was put into the new node");
    let job = world.submit(ada, spec("j", slice(600, 4000), 60)).expect("taken");
    assert!(world.allocation(job).is_some());
    // The node finds another device: the card it holds stays the same card.
    let more = inventory(8000, 16_000, vec![card(), gpu("other", "A10", 24_000, &GUARDED)]);
    world
        .act(
            Actor::Node(new),
            Wish::ReportInventory {
                node: new,
                inventory: more,
            },
        )
        .expect("one more");
    let jobs = [(); 2].map(|()| world.submit(ada, spec("k", slice(600, 4000), 60)).expect("taken"));
    assert_eq!(
        jobs.map(|job| world.allocation(job).is_some()),
        [true, false],
        "two cards hold two such jobs"
    );
    // The old node comes back from the dead without it.
    world
        .act(Actor::Node(old), Wish::ReturnNode { node: old })
        .expect("back");
    assert!(world.state.fleet.node(old).expect("old").gpus.is_empty());
    let again = Wish::ReportInventory {
        node: old,
        inventory: inventory(8000, 16_000, vec![card()]),
    };
    assert_eq!(
        world.act(Actor::Node(old), again).expect_err("on two nodes").code,
        Code::ContradictoryReport
    );
}

/// What a health incident will do about the job is not decided here: until then its program fails by itself or its
/// time runs out, and nobody else is sent to a device that is not there.
#[test]
fn a_device_that_goes_takes_no_more_work_and_its_job_is_not_touched() {
    let (mut world, _, ada) = setting();
    let cards = |names: &[&str]| {
        let cards = names.iter().map(|name| gpu(name, "A10", 24_000, &GUARDED));
        inventory(8000, 16_000, cards.collect())
    };
    let node = world.node("alpha", cards(&["one", "two"]));
    let mut submit = |share| {
        world
            .submit(ada, spec("j", slice(share, 4000), 60))
            .expect("taken")
    };
    let (kept, lost) = (submit(600), submit(500));
    let card_of = |job| {
        let (id, _) = world.allocation(job).expect("placed");
        let slice = &world.state.fleet.allocation(id).expect("living").slices[0];
        let gpu = world.state.fleet.node(node).and_then(|node| node.gpu(slice.gpu));
        gpu.expect("known").facts.uuid.clone()
    };
    let (stays, goes) = (card_of(kept), card_of(lost));
    assert_ne!(stays, goes, "they do not fit on one");
    world.observe(lost, Observation::Running).expect("runs");
    let report = |inventory| Wish::ReportInventory { node, inventory };
    world
        .act(Actor::Node(node), report(cards(&[&stays])))
        .expect("one went");
    let present = |world: &World, uuid: &str| {
        let gpus = &world.state.fleet.node(node).expect("alpha").gpus;
        gpus.iter()
            .find(|gpu| gpu.facts.uuid == uuid)
            .map(|gpu| gpu.present)
    };
    assert_eq!(
        (present(&world, &stays), present(&world, &goes)),
        (Some(true), Some(false))
    );
    assert!(world.allocation(lost).is_some(), "its job keeps its allocation");
    // It would fit beside the job on the card that went, and on no other.
    let next = world.submit(ada, spec("k", slice(450, 4000), 60)).expect("taken");
    assert_eq!(
        world.allocation(next),
        None,
        "nothing is placed on what is not there"
    );
    world.exit(lost, 10);
    assert_eq!(present(&world, &goes), None, "forgotten when nobody holds it");
    assert_eq!(world.allocation(next), None);
    world
        .act(Actor::Node(node), report(cards(&[&stays, &goes])))
        .expect("back again");
    world.schedule();
    assert!(world.allocation(next).is_some(), "and given out when it is back");
}

#[test]
fn what_a_driver_tells_is_bounded() {
    let (mut world, ..) = setting();
    let node = world.node("alpha", inventory(8000, 16_000, vec![]));
    let part = |uuid: &str| Part {
        uuid: uuid.into(),
        profile: "1g.5gb".into(),
        memory_mib: 4864,
        placement: None,
    };
    let cut = |parts: Vec<Part>, mode: &str| Hardware {
        partitioning: Some(Partitioning {
            mode: mode.into(),
            parts,
            ..Partitioning::default()
        }),
        ..Hardware::default()
    };
    let link = |peer: &str| Link {
        peer: peer.into(),
        path: LinkPath::System,
        width: 1,
    };
    let report = |hardware: Hardware| {
        let mut card = gpu("card", "A10", 24_000, &GUARDED);
        card.hardware = Some(Box::new(hardware));
        Wish::ReportInventory {
            node,
            inventory: inventory(8000, 16_000, vec![card]),
        }
    };
    let before = world.state.clone();
    for (bad, field) in [
        (cut(vec![part("a"); 129], "mig"), "/gpus/hardware/partitioning"),
        (
            cut(vec![part("a\u{1b}[31m")], "mig"),
            "/gpus/hardware/partitioning",
        ),
        (cut(vec![], &"m".repeat(201)), "/gpus/hardware/partitioning"),
        (
            Hardware {
                links: vec![link("a"); 1025],
                ..Hardware::default()
            },
            "/gpus/hardware/links",
        ),
        (
            Hardware {
                pci: Some("\n".into()),
                ..Hardware::default()
            },
            "/gpus/hardware",
        ),
    ] {
        let refusal = world
            .act(Actor::Node(node), report(bad))
            .expect_err("beyond bounds");
        assert_eq!(
            (refusal.code, refusal.field.as_deref()),
            (Code::InvalidField, Some(field))
        );
    }
    assert_eq!(world.state.fleet, before.fleet, "nothing changed");
    world
        .act(Actor::Node(node), report(cut(vec![part("a"); 128], "mig")))
        .expect("within bounds");
}

#[test]
fn a_report_in_another_order_says_nothing_new() {
    let (mut world, ..) = setting();
    let cards = || {
        vec![
            gpu("a", "A10", 24_000, &GUARDED),
            gpu("b", "A10", 24_000, &GUARDED),
        ]
    };
    let node = world.node("alpha", inventory(8000, 16_000, cards()));
    let turned = inventory(8000, 16_000, cards().into_iter().rev().collect());
    assert_eq!(
        world.act(
            Actor::Node(node),
            Wish::ReportInventory {
                node,
                inventory: turned
            }
        ),
        Ok(vec![])
    );
}

#[test]
fn a_cordon_outlives_a_loss() {
    let (mut world, ..) = setting();
    let node = world.node("alpha", inventory(8000, 16_000, vec![]));
    world.root(Wish::CordonNode { node }).expect("cordoned");
    world.system(Wish::LoseNode { node }).expect("lost");
    world
        .act(Actor::Node(node), Wish::ReturnNode { node })
        .expect("back");
    assert_eq!(
        world.state.fleet.node(node).expect("alpha").status,
        NodeStatus::Cordoned
    );
    world.root(Wish::UncordonNode { node }).expect("uncordoned");
    assert_eq!(
        world.state.fleet.node(node).expect("alpha").status,
        NodeStatus::Up
    );
}

#[test]
fn a_policy_on_vram_holds_for_whole_gpus_too() {
    let (mut world, acme, ada) = setting();
    world.node(
        "alpha",
        inventory(8000, 16_000, vec![gpu("big", "H100", 80_000, &GUARDED)]),
    );
    world.policy(
        acme,
        Policy {
            max_vram_mib_per_job: Some(40_000),
            ..Policy::default()
        },
    );
    let job = world.submit(ada, spec("whole", whole(1), 60)).expect("taken");
    assert!(
        world.allocation(job).is_none(),
        "a whole GPU comes with more than is allowed"
    );
    let slice = world
        .submit(ada, spec("part", slice(500, 40_000), 60))
        .expect("taken");
    assert!(world.allocation(slice).is_some());
}

#[test]
fn among_equals_a_node_with_the_image_is_taken() {
    let (mut world, _, ada) = setting();
    let nodes = ["one", "two"].map(|name| world.node(name, inventory(8000, 16_000, vec![])));
    let node_of = |world: &mut World, image: Option<&str>| {
        let mut job = spec("j", cpu(1000), 60);
        job.image = image.map(Into::into);
        let job = world.submit(ada, job).expect("taken");
        let (_, node) = world.allocation(job).expect("placed");
        world.exit(job, 1);
        node
    };
    let bare = node_of(&mut world, None);
    let has = if bare == nodes[0] { nodes[1] } else { nodes[0] };
    let mut told = inventory(8000, 16_000, vec![]);
    told.images = vec!["docker.io/library/ubuntu:latest".into()];
    let wish = Wish::ReportInventory {
        node: has,
        inventory: told,
    };
    world.act(Actor::Node(has), wish).expect("an image more");
    assert_eq!(node_of(&mut world, None), bare, "where all is equal");
    assert_eq!(
        node_of(&mut world, Some("ubuntu")),
        has,
        "however the name is written"
    );
    assert_eq!(
        node_of(&mut world, Some("debian")),
        bare,
        "another image is not there"
    );
}

#[test]
fn a_tighter_place_comes_before_the_image() {
    let (mut world, _, ada) = setting();
    let small = world.node("small", inventory(4000, 16_000, vec![]));
    let mut has = inventory(8000, 16_000, vec![]);
    has.images = vec!["docker.io/library/ubuntu:latest".into()];
    world.node("has", has);
    let mut job = spec("j", cpu(1000), 60);
    job.image = Some("ubuntu".into());
    let job = world.submit(ada, job).expect("taken");
    assert_eq!(world.allocation(job).map(|(_, node)| node), Some(small));
}

#[test]
fn a_node_tells_of_its_images_once() {
    let (mut world, _, _) = setting();
    let node = world.node("alpha", inventory(8000, 16_000, vec![]));
    let mut told = inventory(8000, 16_000, vec![]);
    told.images = vec!["ghcr.io/a/b:v1".into(), "ghcr.io/a/c:v1".into()];
    let mut report = |images: &[&str]| {
        told.images = images.iter().map(|image| (*image).to_owned()).collect();
        let wish = Wish::ReportInventory {
            node,
            inventory: told.clone(),
        };
        world.act(Actor::Node(node), wish).map(|events| events.len())
    };
    assert_eq!(report(&["ghcr.io/a/b:v1", "ghcr.io/a/c:v1"]), Ok(1));
    assert_eq!(
        report(&["ghcr.io/a/c:v1", "ghcr.io/a/b:v1"]),
        Ok(0),
        "the order says only what was used last"
    );
    assert_eq!(report(&["ghcr.io/a/c:v1"]), Ok(1));
    assert!(report(&["not an image"]).is_err());
    let many: Vec<String> = (0..101).map(|n| format!("ghcr.io/a/b:v{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(report(&many).is_err());
}
