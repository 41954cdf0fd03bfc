//! Parts of devices: which kind a job gets, where it lies, what it is charged, and who never meets whom on it.

use tenure_domain::Code;
use tenure_domain::id::JobId;
use tenure_domain::schedule::fleet::GpuFacts;
use tenure_domain::schedule::hardware::{Hardware, Part, PartChoice, PartProfile, Partitioning, Placement};
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::workload::spec::{Demand, Isolation};

use crate::world::{World, gpu, inventory, slice, spec, whole};

fn profile(
    name: &str,
    id: u32,
    slices: u32,
    count: u32,
    memory_mib: u64,
    starts: &[u32],
    size: u32,
) -> PartProfile {
    PartProfile {
        name: name.into(),
        id,
        memory_mib,
        slices,
        count,
        placements: starts.iter().map(|&start| Placement { start, size }).collect(),
    }
}

/// An H100 in MIG mode.
fn hopper(uuid: &str) -> GpuFacts {
    let anywhere = [0, 1, 2, 3, 4, 5, 6];
    let mut card = gpu(uuid, "H100", 81_559, &[Isolation::Partition]);
    card.hardware = Some(Box::new(Hardware {
        partitioning: Some(Partitioning {
            mode: "mig".into(),
            profiles: vec![
                profile("1g.10gb", 19, 1, 7, 9856, &anywhere, 1),
                profile("2g.20gb", 14, 2, 3, 19_968, &[0, 2, 4], 2),
                profile("3g.40gb", 9, 3, 2, 40_192, &[0, 4], 4),
                profile("4g.40gb", 5, 4, 1, 40_192, &[0], 4),
                profile("7g.80gb", 0, 7, 1, 80_384, &[0], 8),
                profile("1g.10gb+me", 20, 1, 1, 9856, &anywhere, 1),
                profile("1g.20gb", 15, 1, 4, 19_968, &[0, 2, 4, 6], 2),
            ],
            ..Partitioning::default()
        }),
        ..Hardware::default()
    }));
    card
}

fn cut(card: &mut GpuFacts) -> &mut Partitioning {
    card.hardware.as_mut().unwrap().partitioning.as_mut().unwrap()
}

/// A device whose mode cuts all of it alike, and that can be given whole and in shares too.
fn instinct(uuid: &str) -> GpuFacts {
    let levels = [
        Isolation::Guarded,
        Isolation::Fenced,
        Isolation::Partition,
        Isolation::Exclusive,
    ];
    let mut card = gpu(uuid, "MI300X", 196_592, &levels);
    card.hardware = Some(Box::new(Hardware {
        partitioning: Some(Partitioning {
            mode: "SPX/NPS1".into(),
            profiles: vec![
                profile("SPX", 0, 8, 1, 196_592, &[0], 8),
                profile("DPX", 1, 4, 2, 98_296, &[0, 4], 4),
                profile("CPX", 3, 1, 8, 24_574, &[0, 1, 2, 3, 4, 5, 6, 7], 1),
            ],
            uniform: true,
            ..Partitioning::default()
        }),
        ..Hardware::default()
    }));
    card
}

fn setting(cards: Vec<GpuFacts>) -> (World, tenure_domain::id::UserId) {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    world.node("alpha", inventory(64_000, 160_000, cards));
    (world, ada)
}

fn part_of(world: &World, job: JobId) -> Option<(String, u32)> {
    let (id, _) = world.allocation(job)?;
    let slices = &world.state.fleet.allocation(id)?.slices;
    let part = slices[0].part.as_ref()?;
    Some((part.profile.clone(), part.placement.start))
}

fn part(permille: u16, vram_mib: u64) -> Demand {
    Demand {
        isolation: Isolation::Partition,
        ..slice(permille, vram_mib)
    }
}

#[test]
fn the_smallest_kind_that_is_enough_lies_where_large_ones_stay_possible() {
    let (mut world, ada) = setting(vec![hopper("h")]);
    let mut ask = |permille, vram| {
        let job = world
            .submit(ada, spec("j", part(permille, vram), 60))
            .expect("taken");
        (job, part_of(&world, job))
    };
    let at = |name: &str, start| Some((name.to_owned(), start));
    let (first, lies) = ask(100, 8000);
    assert_eq!(
        lies,
        at("1g.10gb", 6),
        "beside it a 4g, a 3g and three 2g stay possible"
    );
    assert_eq!(ask(143, 9000).1, at("1g.10gb", 5), "a seventh, rounded up");
    assert_eq!(ask(100, 15_000).1, at("1g.20gb", 2), "memory without compute");
    assert_eq!(ask(280, 15_000).1, at("2g.20gb", 0), "and with");
    assert_eq!(
        ask(280, 20_000).1,
        None,
        "what is left has no four slices in a row"
    );
    assert_eq!(ask(100, 9857).1, None, "nor two");
    assert_eq!(ask(10, 1).1, at("1g.10gb", 4));
    let allocation = world.allocation(first).expect("placed").0;
    let allocation = world.state.fleet.allocation(allocation).expect("living");
    assert_eq!(allocation.isolation, Isolation::Partition);
    assert_eq!(allocation.isolation_why, "1g.10gb: the device gives partition");
    assert_eq!(
        (
            allocation.slices[0].vram_mib,
            allocation.slices[0].compute_permille
        ),
        (9856, 142)
    );
    let admission = world.state.jobs[&first].admission.as_ref().expect("admitted");
    assert_eq!(
        admission.hold.gpu_milli, 142,
        "a part is charged as it is, not as it was asked for"
    );
}

#[test]
fn memory_alone_says_which_part() {
    let (mut world, ada) = setting(vec![hopper("h")]);
    let mut demand = part(1000, 30_000);
    let job = world.submit(ada, spec("j", demand.clone(), 60)).expect("taken");
    assert_eq!(part_of(&world, job), Some(("3g.40gb".into(), 4)));
    // Without a word on memory it is the whole.
    demand.vram_mib = 0;
    let all = world.submit(ada, spec("all", demand, 60)).expect("taken");
    assert_eq!(part_of(&world, all), None, "not beside another");
    world.exit(job, 1);
    world.schedule();
    assert_eq!(part_of(&world, all), Some(("7g.80gb".into(), 0)));
}

#[test]
fn what_others_made_is_left_alone() {
    let mut card = hopper("h");
    cut(&mut card).parts = vec![Part {
        uuid: "MIG-others".into(),
        profile: "1g.10gb+me".into(),
        memory_mib: 9856,
        placement: Some(Placement { start: 6, size: 1 }),
    }];
    cut(&mut card).taken = vec![PartChoice {
        profile: "2g.20gb".into(),
        id: 14,
        placement: Placement { start: 4, size: 2 },
    }];
    let (mut world, ada) = setting(vec![card]);
    let mut starts = Vec::new();
    for _ in 0..5 {
        let job = world.submit(ada, spec("j", part(100, 8000), 60)).expect("taken");
        starts.extend(part_of(&world, job).map(|(_, start)| start));
    }
    assert_eq!(
        starts,
        [3, 2, 1, 0],
        "and the one kind with extra engines is there already"
    );
}

#[test]
fn an_exclusive_job_never_gets_a_part_and_a_whole_gpu_is_preferred_whole() {
    let (mut world, ada) = setting(vec![
        hopper("cut"),
        gpu("plain", "H100", 81_559, &[Isolation::Exclusive]),
    ]);
    let mut alone = whole(1);
    alone.isolation = Isolation::Exclusive;
    let jobs = [(); 2].map(|()| world.submit(ada, spec("x", alone.clone(), 60)).expect("taken"));
    assert_eq!(jobs.map(|job| world.allocation(job).is_some()), [true, false]);
    assert_eq!(part_of(&world, jobs[0]), None);
    world.stop(jobs[1]).expect("stopped");
    let any = world.submit(ada, spec("any", whole(1), 60)).expect("taken");
    assert_eq!(
        part_of(&world, any),
        Some(("7g.80gb".into(), 0)),
        "all of it, as a part"
    );
    world.exit(jobs[0], 1);
    let next = world.submit(ada, spec("next", whole(1), 60)).expect("taken");
    assert!(world.allocation(next).is_some() && part_of(&world, next).is_none());
}

#[test]
fn where_the_mode_decides_all_parts_are_of_one_kind() {
    let (mut world, ada) = setting(vec![instinct("m")]);
    let mut ask = |demand: Demand| {
        let job = world.submit(ada, spec("j", demand, 60)).expect("taken");
        (job, part_of(&world, job), world.allocation(job).is_some())
    };
    // A share is a share while nobody needs more.
    let (share, none, placed) = ask(slice(100, 20_000));
    assert!(none.is_none() && placed);
    assert!(
        !ask(part(100, 20_000)).2,
        "a share and a part would lie on the same memory"
    );
    world.exit(share, 1);
    world.schedule();
    let mut ask = |demand: Demand| {
        let job = world.submit(ada, spec("j", demand, 60)).expect("taken");
        (part_of(&world, job), world.allocation(job).is_some())
    };
    assert_eq!(ask(part(125, 24_000)).0, Some(("CPX".into(), 6)));
    assert!(!ask(part(400, 50_000)).1, "no DPX beside CPX");
    assert_eq!(
        ask(slice(100, 20_000)).0,
        Some(("CPX".into(), 5)),
        "once it is cut, a part is what there is"
    );
    assert!(!ask(whole(1)).1);
}

#[test]
fn a_policy_of_partition_gets_parts_and_excludes_weaker_neighbours() {
    let (mut world, ada) = setting(vec![instinct("m")]);
    let strict = world.tenant("strict");
    let bob = world.user(strict, "bob", Some(Role::Member));
    world.policy(
        strict,
        Policy {
            min_isolation: Some(Isolation::Partition),
            ..Policy::default()
        },
    );
    let job = world
        .submit(bob, spec("j", slice(100, 20_000), 60))
        .expect("taken");
    assert_eq!(part_of(&world, job), Some(("CPX".into(), 7)));
    let beside = world
        .submit(ada, spec("k", slice(100, 20_000), 60))
        .expect("taken");
    assert_eq!(
        part_of(&world, beside),
        Some(("CPX".into(), 6)),
        "as strong as its neighbour asks"
    );
    world.exit(job, 1);
    world.exit(beside, 1);
    let weak = world
        .submit(ada, spec("weak", slice(100, 20_000), 60))
        .expect("taken");
    let waits = world
        .submit(bob, spec("waits", slice(100, 20_000), 60))
        .expect("taken");
    assert!(world.allocation(weak).is_some() && world.allocation(waits).is_none());
    let why = tenure_domain::schedule::why::why(&world.state, waits, world.now).expect("it waits");
    assert!(matches!(why.code, Code::NoCapacity | Code::NotShared), "{why:?}");
}

#[test]
fn what_no_part_could_ever_hold_is_refused_at_once() {
    let (mut world, ada) = setting(vec![hopper("h")]);
    let refusal = world
        .submit(ada, spec("j", part(900, 81_000), 60))
        .expect_err("too large");
    assert_eq!(refusal.code, Code::ExceedsFleet);
}

/// Under a service that one fault brings down, no consent makes two tenants meet.
#[test]
fn shares_of_one_tenant_stay_with_one_tenant() {
    let mut card = gpu("l", "L40S", 46_068, &[Isolation::Guarded, Isolation::Exclusive]);
    card.hardware = Some(Box::new(Hardware {
        one_tenant: true,
        ..Hardware::default()
    }));
    let (mut world, ada) = setting(vec![card]);
    let agrees = || Policy {
        share_guarded: Some(true),
        ..Policy::default()
    };
    let other = world.tenant("other");
    let bob = world.user(other, "bob", Some(Role::Member));
    let acme = world
        .state
        .tree
        .tenant_of(tenure_domain::tenancy::scope::ScopeId::User(ada))
        .expect("a tenant");
    world.policy(other, agrees());
    world.policy(tenure_domain::tenancy::scope::ScopeId::Tenant(acme), agrees());
    let first = world.submit(ada, spec("a", slice(200, 4000), 60)).expect("taken");
    let stranger = world.submit(bob, spec("b", slice(200, 4000), 60)).expect("taken");
    let second = world.submit(ada, spec("c", slice(200, 4000), 60)).expect("taken");
    assert!(world.allocation(first).is_some() && world.allocation(second).is_some());
    assert_eq!(world.allocation(stranger), None);
    let why = tenure_domain::schedule::why::why(&world.state, stranger, world.now).expect("it waits");
    assert_eq!(why.code, Code::NotShared);
    world.exit(first, 1);
    world.exit(second, 1);
    world.schedule();
    assert!(world.allocation(stranger).is_some(), "alone it may");
}

/// Whom to share with: named by each, at any level, and both must.
#[test]
fn tenants_name_whom_they_share_with() {
    let (mut world, ada) = setting(vec![hopper("h")]);
    let tenant = |world: &World, user| {
        let scope = tenure_domain::tenancy::scope::ScopeId::User(user);
        world.state.tree.tenant_of(scope).expect("a tenant")
    };
    let users = ["friend", "stranger"].map(|name| {
        let scope = world.tenant(name);
        (scope, world.user(scope, name, Some(Role::Member)))
    });
    let [(friends, friend), (_, stranger)] = users;
    let acme = tenure_domain::tenancy::scope::ScopeId::Tenant(tenant(&world, ada));
    let only = |tenants: &[tenure_domain::id::TenantId]| Policy {
        share_with: Some(tenants.iter().copied().collect()),
        ..Policy::default()
    };
    world.policy(acme, only(&[tenant(&world, friend)]));
    let placed = |world: &mut World, user| {
        let job = world.submit(user, spec("j", part(100, 8000), 60)).expect("taken");
        let is = world.allocation(job).is_some();
        (job, is)
    };
    assert!(placed(&mut world, ada).1);
    assert!(placed(&mut world, friend).1, "who is named may come");
    let (waits, is) = placed(&mut world, stranger);
    assert!(!is, "who is not may not");
    let why = tenure_domain::schedule::why::why(&world.state, waits, world.now).expect("it waits");
    assert_eq!(why.code, Code::NotShared);
    // Nor when the other side names nobody.
    world.policy(friends, only(&[]));
    assert!(
        !placed(&mut world, ada).1,
        "a neighbour that has since said no is asked too"
    );
}

/// Beside what lies there the next is put where it does the least harm, not where it comes last.
#[test]
fn what_is_broken_already_is_filled_first() {
    let mut card = hopper("h");
    cut(&mut card).parts = vec![Part {
        uuid: "MIG-others".into(),
        profile: "1g.10gb".into(),
        memory_mib: 9856,
        placement: Some(Placement { start: 0, size: 1 }),
    }];
    let (mut world, ada) = setting(vec![card]);
    let job = world.submit(ada, spec("j", part(100, 8000), 60)).expect("taken");
    assert_eq!(part_of(&world, job), Some(("1g.10gb".into(), 1)));
    let large = world
        .submit(ada, spec("large", part(400, 30_000), 60))
        .expect("taken");
    assert_eq!(part_of(&world, large), Some(("3g.40gb".into(), 4)));
}
