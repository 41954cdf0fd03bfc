//! Labels of nodes, filters of demands, and what goes together: links, neighbours, gangs.

use tenure_domain::id::{NodeId, TenantId, UserId};
use tenure_domain::schedule::hardware::{Hardware, Link, LinkPath};
use tenure_domain::schedule::label::Labels;
use tenure_domain::schedule::place::{Place, gang_places};
use tenure_domain::schedule::volume::VolumeNeeds;
use tenure_domain::schedule::why::why;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::spec::{Isolation, JobSpec, Kind};
use tenure_domain::{Actor, Code, Refusal, Wish};

use crate::world::{World, cpu, gpu, inventory, slice, spec, whole};

const GUARDED: [Isolation; 1] = [Isolation::Guarded];

fn label(world: &mut World, node: NodeId, labels: Labels) {
    let revision = None;
    let wish = Wish::LabelNode {
        node,
        labels,
        revision,
    };
    world.system(wish).expect("labelled");
}

fn region(name: &str) -> Labels {
    Labels {
        region: Some(name.into()),
        ..Labels::default()
    }
}

fn node(world: &mut World, name: &str, gpus: usize) -> NodeId {
    let cards = (0..gpus).map(|i| gpu(&format!("{name}-{i}"), "A10", 24_000, &GUARDED));
    world.node(name, inventory(16_000, 64_000, cards.collect()))
}

fn node_of(world: &mut World, owner: UserId, job: JobSpec) -> Option<NodeId> {
    let job = world.submit(owner, job).expect("taken");
    world.allocation(job).map(|(_, node)| node)
}

#[test]
fn a_dedicated_node_is_its_tenants_alone_and_filled_first() {
    let mut world = World::new();
    let (acme, other) = (world.tenant("acme"), world.tenant("other"));
    let ada = world.user(acme, "ada", Some(Role::Member));
    let bob = world.user(other, "bob", Some(Role::Member));
    let (open, theirs) = (node(&mut world, "open", 1), node(&mut world, "theirs", 1));
    let ScopeId::Tenant(tenant) = acme else {
        panic!("a tenant")
    };
    let mine = Labels {
        dedicated: Some(tenant),
        ..Labels::default()
    };
    label(&mut world, theirs, mine);
    for kind in [cpu(100), slice(100, 1000)] {
        assert_eq!(
            node_of(&mut world, ada, spec("own", kind.clone(), 60)),
            Some(theirs)
        );
        assert_eq!(node_of(&mut world, bob, spec("not", kind, 60)), Some(open));
    }
    assert_eq!(node_of(&mut world, bob, spec("all", whole(1), 60)), None);
    assert_eq!(
        node_of(&mut world, ada, spec("rest", slice(900, 20_000), 60)),
        Some(theirs)
    );
    let waiting = world
        .submit(bob, spec("more", slice(950, 20_000), 60))
        .expect("taken");
    assert_eq!(world.allocation(waiting), None, "their node is nobody else's");
    label(&mut world, theirs, Labels::default());
    let vast = world
        .submit(bob, spec("vast", whole(2), 60))
        .expect_err("no such node");
    assert_eq!(vast.code, Code::ExceedsFleet);
    let nobody = Labels {
        dedicated: Some(TenantId(77)),
        ..Labels::default()
    };
    let refusal = world
        .system(Wish::LabelNode {
            node: open,
            labels: nobody,
            revision: None,
        })
        .expect_err("no such tenant");
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (Code::InvalidField, Some("/dedicated"))
    );
    let by_ada = Wish::LabelNode {
        node: open,
        labels: Labels::default(),
        revision: None,
    };
    assert_eq!(
        world.act(Actor::user(ada), by_ada).expect_err("not hers").code,
        Code::NotFound
    );
}

#[test]
fn a_job_goes_to_the_region_and_the_model_it_names() {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let (north, south) = (node(&mut world, "north", 1), node(&mut world, "south", 1));
    label(&mut world, north, region("north"));
    label(&mut world, south, region("south"));
    let within = |name: &str, mut demand: tenure_domain::workload::spec::Demand| {
        demand.region = Some(name.into());
        spec("job", demand, 60)
    };
    for demand in [cpu(100), slice(300, 4000), cpu(200)] {
        assert_eq!(node_of(&mut world, ada, within("south", demand)), Some(south));
    }
    assert_eq!(node_of(&mut world, ada, within("north", whole(1))), Some(north));
    let waiting = world
        .submit(ada, within("north", slice(300, 4000)))
        .expect("taken");
    assert_eq!(
        world.allocation(waiting),
        None,
        "there is room in the south alone"
    );
    let reason = why(&world.state, waiting, world.now).expect("it waits");
    assert_eq!(reason.code, Code::NoCapacity);
    assert!(reason.sentence.contains("in region north"), "{}", reason.sentence);
    let nowhere = world
        .submit(ada, within("west", cpu(100)))
        .expect_err("no such region");
    assert_eq!(nowhere.code, Code::ExceedsFleet);
    let mut card = gpu("rare", "A10", 24_000, &GUARDED);
    card.model = "A10 PCIe".into();
    let rare = world.node("rare", inventory(16_000, 64_000, vec![card]));
    let mut demand = slice(100, 1000);
    demand.model = Some("A10 PCIe".into());
    assert_eq!(node_of(&mut world, ada, spec("job", demand, 60)), Some(rare));
}

/// Four cards, two pairs of them linked.
fn paired(path: LinkPath) -> Vec<tenure_domain::schedule::fleet::GpuFacts> {
    let cards = (0..4).map(|i| {
        let mut card = gpu(
            &format!("c{i}"),
            "H100",
            80_000,
            &[Isolation::Guarded, Isolation::Exclusive],
        );
        let link = |peer: usize| Link {
            peer: format!("c{peer}"),
            path: if peer == (i + 2) % 4 {
                path
            } else {
                LinkPath::System
            },
            width: 1,
        };
        let links = (0..4).filter(|peer| *peer != i).map(link).collect();
        card.hardware = Some(Box::new(Hardware {
            links,
            ..Hardware::default()
        }));
        card
    });
    cards.collect()
}

#[test]
fn gpus_that_are_linked_are_given_together_and_left_together() {
    for path in [
        LinkPath::Nvlink,
        LinkPath::Xgmi,
        LinkPath::PciSwitch,
        LinkPath::HostBridge,
    ] {
        let mut world = World::new();
        let acme = world.tenant("acme");
        let ada = world.user(acme, "ada", Some(Role::Member));
        world.node("alpha", inventory(16_000, 64_000, paired(path)));
        let mut cards = |gpus| {
            let job = world.submit(ada, spec("job", whole(gpus), 60)).expect("taken");
            let (id, node) = world.allocation(job).expect("placed");
            let slices = &world.state.fleet.allocation(id).expect("living").slices;
            let name = |gpu| {
                world
                    .state
                    .fleet
                    .node(node)?
                    .gpu(gpu)
                    .map(|gpu| gpu.facts.uuid.clone())
            };
            slices
                .iter()
                .filter_map(|slice| name(slice.gpu))
                .collect::<Vec<_>>()
        };
        let one = cards(1);
        assert_eq!(one, ["c0"], "{path:?}");
        assert_eq!(cards(2), ["c1", "c3"], "the whole pair, {path:?}");
        assert_eq!(cards(1), ["c2"], "what was left of the first, {path:?}");
    }
}

#[test]
fn long_work_stays_off_gpus_that_serve_bursts_where_another_is_as_good() {
    for first in 0..2 {
        let mut world = World::new();
        let acme = world.tenant("acme");
        let ada = world.user(acme, "ada", Some(Role::Member));
        let job = |kind: Kind, share| {
            let mut job = spec("job", slice(share, 6000), 60);
            job.kind = kind;
            job
        };
        let nodes = [node(&mut world, "one", 1), node(&mut world, "two", 1)];
        let (bursts, long) = (nodes[first], nodes[1 - first]);
        world.system(Wish::CordonNode { node: long }).expect("cordoned");
        assert_eq!(node_of(&mut world, ada, job(Kind::Inference, 300)), Some(bursts));
        world.system(Wish::UncordonNode { node: long }).expect("back");
        world.system(Wish::CordonNode { node: bursts }).expect("cordoned");
        assert_eq!(node_of(&mut world, ada, job(Kind::Training, 300)), Some(long));
        world.system(Wish::UncordonNode { node: bursts }).expect("back");
        // As much is free on both.
        for (kind, there) in [
            (Kind::Rendering, long),
            (Kind::Inference, bursts),
            (Kind::Video, long),
        ] {
            let probe = world.submit(ada, job(kind, 200)).expect("taken");
            assert_eq!(
                world.allocation(probe).map(|(_, node)| node),
                Some(there),
                "{kind:?}"
            );
            world.exit(probe, 1);
        }
        assert_eq!(node_of(&mut world, ada, job(Kind::Video, 700)), Some(long));
        let last = node_of(&mut world, ada, job(Kind::Batch, 700));
        assert_eq!(last, Some(bursts), "rather there than not at all");
    }
}

fn gang(
    world: &World,
    owner: UserId,
    demand: tenure_domain::workload::spec::Demand,
    members: u32,
) -> Result<Vec<Place>, Refusal> {
    let mut job = spec("gang", demand, 60);
    job.demand.nodes = members;
    gang_places(
        &world.state,
        ScopeId::User(owner),
        &job,
        VolumeNeeds::default(),
        &Default::default(),
    )
}

#[test]
fn a_gang_has_all_of_its_places_or_none_in_one_block_where_one_holds_it() {
    let mut world = World::new();
    let (acme, other) = (world.tenant("acme"), world.tenant("other"));
    let ada = world.user(acme, "ada", Some(Role::Member));
    let bob = world.user(other, "bob", Some(Role::Member));
    let nodes: Vec<NodeId> = (0..6).map(|i| node(&mut world, &format!("n{i}"), 2)).collect();
    for (at, &node) in nodes.iter().enumerate() {
        let labels = Labels {
            block: Some(["left", "right"][at / 3].into()),
            ..Labels::default()
        };
        label(&mut world, node, labels);
    }
    let block = |world: &World, place: &Place| {
        world
            .state
            .fleet
            .node(place.node)
            .and_then(|node| node.labels.block.clone())
    };
    // One of the left is taken by somebody who shares with nobody.
    world
        .submit(bob, spec("sits", slice(100, 1000), 60))
        .expect("taken");
    let mut places = gang(&world, ada, whole(1), 6).expect("a block holds six");
    let first = block(&world, &places[0]);
    assert!(
        places.iter().all(|place| block(&world, place) == first),
        "{places:?}"
    );
    places.sort_by_key(|place| place.slices[0].gpu);
    places.dedup_by_key(|place| place.slices[0].gpu);
    assert_eq!(places.len(), 6, "each has a GPU of its own");
    assert_eq!(
        gang(&world, ada, whole(1), 11).map(|places| places.len()),
        Ok(11),
        "both blocks hold eleven"
    );
    let refusal = gang(&world, ada, whole(1), 12).expect_err("one GPU is taken");
    assert_eq!(refusal.code, Code::NoCapacity);
    // Shares of one GPU, five to each, behind the wall around the stranger.
    assert_eq!(
        gang(&world, ada, slice(200, 4000), 55).map(|places| places.len()),
        Ok(55)
    );
    assert!(gang(&world, ada, slice(200, 4000), 56).is_err());
    assert_eq!(
        gang(&world, ada, cpu(16_000), 5).map(|places| places.len()),
        Ok(5)
    );
    assert!(
        gang(&world, ada, cpu(16_000), 6).is_err(),
        "the stranger has some CPU"
    );
}

#[test]
fn a_gang_goes_to_the_block_with_the_least_to_spare_and_to_few_where_none_holds_it() {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let sizes = [("wide", 6), ("tight", 3), ("small", 2), ("middle", 4)];
    for (name, nodes) in sizes {
        for i in 0..nodes {
            let node = node(&mut world, &format!("{name}-{i}"), 2);
            let labels = Labels {
                block: Some(name.into()),
                ..Labels::default()
            };
            label(&mut world, node, labels);
        }
    }
    let blocks = |members: u32| {
        let places = gang(&world, ada, whole(2), members).expect("there is room");
        assert_eq!(places.len(), members as usize);
        let mut blocks: Vec<String> = places
            .iter()
            .filter_map(|place| world.state.fleet.node(place.node))
            .filter_map(|node| Some(node.labels.block.as_ref()?.to_string()))
            .collect();
        blocks.sort();
        blocks.dedup();
        blocks
    };
    assert_eq!(blocks(2), ["small"]);
    assert_eq!(blocks(3), ["tight"]);
    assert_eq!(blocks(4), ["middle"]);
    assert_eq!(blocks(5), ["wide"]);
    assert_eq!(blocks(9), ["middle", "wide"], "none holds nine");
    assert_eq!(blocks(15).len(), 4);
    assert!(gang(&world, ada, whole(2), 16).is_err());
}

#[test]
fn what_is_remembered_of_neighbours_follows_their_policies_and_their_going() {
    let mut world = World::new();
    let (acme, other) = (world.tenant("acme"), world.tenant("other"));
    let ada = world.user(acme, "ada", Some(Role::Member));
    let bob = world.user(other, "bob", Some(Role::Member));
    let shares = |share_guarded: bool| tenure_domain::tenancy::policy::Policy {
        share_guarded: Some(share_guarded),
        ..Default::default()
    };
    let set = |world: &mut World, scope: ScopeId, policy| {
        let revision = None;
        let wish = Wish::SetPolicy {
            scope,
            policy,
            revision,
        };
        world.system(wish).expect("set");
    };
    node(&mut world, "only", 1);
    set(&mut world, acme, shares(true));
    let sits = world
        .submit(bob, spec("sits", slice(100, 1000), 60))
        .expect("taken");
    let starts = |world: &mut World| {
        let job = world
            .submit(ada, spec("asks", slice(100, 1000), 60))
            .expect("taken");
        let started = world.allocation(job).is_some();
        if started {
            world.exit(job, 1);
        } else {
            world
                .system(Wish::Stop {
                    job,
                    reason: tenure_domain::workload::job::StopReason::Cancelled,
                })
                .expect("it waited");
        }
        started
    };
    assert!(!starts(&mut world), "silence means no");
    set(&mut world, other, shares(true));
    assert!(starts(&mut world));
    assert!(starts(&mut world), "and again");
    set(&mut world, other, shares(false));
    assert!(!starts(&mut world));
    world.exit(sits, 1);
    assert!(starts(&mut world), "nobody is there any more");
}
