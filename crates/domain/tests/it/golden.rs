//! Golden encodings: `tests/golden/events.jsonl` holds one of each event as it is written today.
//!
//! A change of encoding turns this red. Where it is meant (a field with a default), move the old line to
//! `events-old.jsonl`, which must stay readable for ever, and run with `TENURE_GOLDEN=write`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use tenure_domain::Event;
use tenure_domain::audit::conduct::{Conduct, DeniedCall, KernelHash, KernelUse, SignedConduct, Tampering};
use tenure_domain::command::{Observation, Ran};
use tenure_domain::event::RefusedAccess;
use tenure_domain::id::SecretId;
use tenure_domain::ledger::adjust::AdjustmentKind;
use tenure_domain::ledger::book::Book;
use tenure_domain::money::Micros;
use tenure_domain::schedule::fleet::Inventory;
use tenure_domain::schedule::hardware::{
    Hardware, Link, LinkPath, Part, PartProfile, Partitioning, Placement,
};
use tenure_domain::schedule::label::Labels;
use tenure_domain::schedule::receipt::Receipt;
use tenure_domain::storage::volume::VolumeUse;
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::keeping::Keeping;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::{Action, Role};
use tenure_domain::tenancy::scope::{Identity, ScopeId, UserKind};
use tenure_domain::tenancy::share::{Nominal, Share};
use tenure_domain::time::Period;
use tenure_domain::workload::Workload;
use tenure_domain::workload::job::{PauseReason, StopReason};
use tenure_domain::workload::picture::Rendering;
use tenure_domain::workload::service::{Replicas, Service, ServiceUse};
use tenure_domain::workload::session::{SessionEnd, SessionKind};
use tenure_domain::workload::spec::{Demand, Isolation, Kind, Priority, Sku};
use tenure_domain::workload::usage::Usage;
use tenure_domain::{Actor, Wish};

use crate::world::{World, amounts, cpu, digest, gang, gpu, inventory, plain_prices, slice, spec};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// The names of all variants, from the list that `Event::kind` is made of.
fn kinds() -> BTreeSet<&'static str> {
    let source = include_str!("../../src/event/subject.rs");
    let list = source
        .split("names! {")
        .last()
        .and_then(|rest| rest.split('}').next())
        .expect("the list of names");
    let kinds: BTreeSet<&str> = list.split_whitespace().collect();
    assert!(kinds.len() >= 40 && kinds.contains("JobEnded"));
    kinds
}

/// Every fact a driver may tell.
fn hardware() -> Hardware {
    let placement = Placement { start: 4, size: 4 };
    Hardware {
        pci: Some("0000:c1:00.0".into()),
        numa_node: Some(1),
        driver: Some("nvidia 570.86.15".into()),
        architecture: Some("sm_90".into()),
        ecc: Some(true),
        partitioning: Some(Partitioning {
            mode: "mig".into(),
            pending: Some("off".into()),
            modes: vec!["off".into(), "mig".into()],
            parts: vec![Part {
                uuid: "MIG-77".into(),
                profile: "3g.40gb".into(),
                memory_mib: 40_192,
                placement: Some(placement),
            }],
            profiles: vec![PartProfile {
                name: "3g.40gb".into(),
                id: 9,
                memory_mib: 40_192,
                slices: 3,
                count: 2,
                placements: vec![Placement { start: 0, size: 4 }, placement],
            }],
            taken: vec![],
            uniform: false,
        }),
        one_tenant: false,
        checkpoint: false,
        links: vec![Link {
            peer: "GPU-77aa".into(),
            path: LinkPath::Nvlink,
            width: 18,
        }],
    }
}

/// A life in which everything happens once.
fn everything() -> Vec<Event> {
    let mut world = World::new();
    let mut all = vec![Event::PlatformFounded {
        name: "cell".into(),
        prices: plain_prices(),
    }];
    let identity = Identity {
        issuer: "https://id.example".into(),
        subject: "ada@example".into(),
    };
    let acme = world.tenant("acme");
    let lab = world.subscriber(acme, "lab");
    let root = Actor::user(world.root);
    let mut take = |world: &mut World, by: &Actor, wish: Wish| {
        let events = world
            .act(by.clone(), wish.clone())
            .unwrap_or_else(|refusal| panic!("{wish:?}: {refusal}"));
        all.extend(events.clone());
        events
    };
    let wish = Wish::CreateUser {
        parent: lab,
        name: "ada".into(),
        kind: UserKind::Person,
        identity: Some(identity.clone()),
        role: Some(Role::Member),
    };
    let made = take(&mut world, &root, wish);
    let Event::ScopeCreated {
        scope: home @ ScopeId::User(ada),
        ..
    } = made[0]
    else {
        panic!("no user")
    };
    take(
        &mut world,
        &root,
        Wish::SetIdentity {
            user: ada,
            identity: Some(identity),
        },
    );
    let expires = Some(world.now.plus_ms(1000));
    let key = take(
        &mut world,
        &root,
        Wish::CreateKey {
            user: ada,
            label: "laptop".into(),
            digest: digest(77),
            expires,
            allow: Some([Action::ScopeRead, Action::JobSubmit].into()),
        },
    );
    let Event::KeyCreated { key } = &key[0] else {
        panic!("no key")
    };
    take(&mut world, &root, Wish::RevokeKey { key: key.id });
    take(
        &mut world,
        &root,
        Wish::SetQuota {
            scope: acme,
            quota: amounts(&[
                ("gpu_milli", 4000),
                ("vram_mib@class:H100", 160_000),
                ("jobs@sku:small", 3),
            ]),
            revision: None,
        },
    );
    let budgets = vec![
        Budget {
            period: Period::Month,
            class: None,
            sku: None,
            money_micros: Some(50_000_000),
            kind: None,
            gpu_seconds: Some(360_000),
            frames: None,
            alerts_permille: Vec::new(),
        },
        Budget {
            period: Period::Day,
            class: Some("H100".into()),
            sku: None,
            money_micros: None,
            kind: None,
            gpu_seconds: Some(86_400),
            frames: None,
            alerts_permille: Vec::new(),
        },
    ];
    take(
        &mut world,
        &root,
        Wish::SetBudgets {
            scope: acme,
            budgets,
            revision: None,
        },
    );
    let policy = Policy {
        kinds: Some([Kind::Training, Kind::Batch].into()),
        priorities: Some([Priority::Normal, Priority::High].into()),
        classes: Some(["H100".into()].into()),
        min_isolation: Some(Isolation::Fenced),
        share_guarded: Some(false),
        max_run_time_s: Some(86_400),
        max_compute_permille: Some(500),
        max_vram_mib_per_job: Some(40_000),
        max_gpus_per_job: Some(1),
        max_parallel_tasks: None,
        egress: None,
        max_egress_mbit: None,
        share_with: None,
        guaranteed_run_s: None,
        max_evictions_per_hour: None,
        max_evictions_per_job: None,
        preempt_tenants: None,
        preempt_longer: None,
        trade: None,
    };
    take(
        &mut world,
        &root,
        Wish::SetPolicy {
            scope: lab,
            policy,
            revision: None,
        },
    );
    let rules = r#"@id("day-only") forbid (principal, action == Action::"job_submit", resource) when { context has hour_utc && context.hour_utc < 6 };"#;
    take(
        &mut world,
        &root,
        Wish::SetRules {
            scope: lab,
            rules: rules.into(),
            revision: None,
        },
    );
    take(
        &mut world,
        &root,
        Wish::StoreSecret {
            scope: home,
            name: "token".into(),
            secret: SecretId(4242),
        },
    );
    take(
        &mut world,
        &root,
        Wish::SetPrices {
            prices: plain_prices(),
        },
    );
    take(
        &mut world,
        &root,
        Wish::DefineSku {
            sku: Sku {
                name: "small".into(),
                demand: slice(100, 4000),
            },
        },
    );
    let counts = vec![RefusedAccess {
        principal: "203.0.113.9".into(),
        action: "job_submit".into(),
        code: "not_found".into(),
        count: 12,
    }];
    take(&mut world, &Actor::System, Wish::CountRefusals { counts });

    let expires = world.now.plus_ms(60_000);
    take(
        &mut world,
        &root,
        Wish::CreateJoinToken {
            digest: digest(80),
            expires,
            tenant: None,
        },
    );
    let joined = take(
        &mut world,
        &Actor::System,
        Wish::JoinNode {
            token: digest(80),
            name: "alpha".into(),
            key: digest(81),
        },
    );
    let Event::NodeJoined { node, .. } = joined[0] else {
        panic!("no node")
    };
    let agent = Actor::Node(node);
    let mut device = gpu(
        "GPU-5c1e",
        "H100",
        80_000,
        &[Isolation::Guarded, Isolation::Fenced, Isolation::Exclusive],
    );
    device.hardware = Some(Box::new(hardware()));
    take(
        &mut world,
        &agent,
        Wish::ReportInventory {
            node,
            inventory: Inventory {
                volume_mib: 1 << 20,
                ..inventory(64_000, 256_000, vec![device])
            },
        },
    );
    take(
        &mut world,
        &agent,
        Wish::AddNodeKey {
            node,
            key: digest(82),
        },
    );
    take(
        &mut world,
        &agent,
        Wish::RevokeNodeKey {
            node,
            key: digest(81),
        },
    );

    let mut job = spec("train", Default::default(), 3600);
    job.sku = Some("small".into());
    job.secrets = [("TOKEN".to_owned(), "token".to_owned())].into();
    job.env = [("EPOCHS".to_owned(), "3".to_owned())].into();
    job.workdir = Some("/work".into());
    let made = take(
        &mut world,
        &Actor::user(ada),
        Wish::CreateVolume {
            scope: home,
            name: "data".into(),
            size_mib: 1024,
        },
    );
    let Event::VolumeCreated { volume, .. } = made[0] else {
        panic!("no volume")
    };
    job.volumes = vec![VolumeUse {
        name: "data".into(),
        read_only: true,
    }];
    let submitted = take(
        &mut world,
        &Actor::user(ada),
        Wish::Submit {
            owner: ada,
            spec: job.into(),
            trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
                .parse()
                .ok(),
        },
    );
    let Event::JobSubmitted { job, .. } = submitted[0] else {
        panic!("no job")
    };
    let (allocation, _) = world.allocation(job).expect("it started");
    for observation in [Observation::Starting, Observation::Running] {
        take(
            &mut world,
            &agent,
            Wish::Observe {
                node,
                allocation,
                observation,
            },
        );
    }
    world.pass_s(60);
    take(
        &mut world,
        &agent,
        Wish::Meter {
            node,
            ran: vec![Ran {
                allocation,
                ran_ms: 59_000,
                usage: Some(Usage {
                    busy_ms: 41_000,
                    throttled_ms: 3000,
                    waited_ms: 900,
                    launches: 12_345,
                    refusals: 1,
                    denials: 2,
                    peak_vram_mib: 900,
                    energy_mj: 0,
                }),
            }],
        },
    );
    let command = ["/bin/sh", "-c", "true"].map(String::from);
    let opened = take(
        &mut world,
        &Actor::user(ada),
        Wish::OpenSession {
            job,
            member: 0,
            kind: SessionKind::exec(&command, true),
            from: "192.0.2.7".into(),
        },
    );
    let Event::SessionOpened { session } = &opened[0] else {
        panic!("no session")
    };
    let end = SessionEnd {
        bytes_in: 12,
        bytes_out: 3400,
        exit_code: Some(7),
        signal: None,
        why: "the process ended".into(),
    };
    let wish = Wish::EndSession {
        session: session.id,
        end,
    };
    take(&mut world, &Actor::System, wish);
    take(&mut world, &Actor::System, Wish::LoseNode { node });
    take(&mut world, &agent, Wish::ReturnNode { node });
    take(&mut world, &Actor::System, Wish::Schedule { job });
    take(
        &mut world,
        &Actor::user(ada),
        Wish::Stop {
            job,
            reason: StopReason::Cancelled,
        },
    );
    let (allocation, _) = world.allocation(job).expect("it started again");
    let mut conduct = Conduct {
        ran_ms: 5,
        devices: 1,
        devices_opened: 1,
        opens: 1,
        launches: 3,
        denied_calls: Some(vec![DeniedCall { call: 165, times: 2 }]),
        ..Conduct::new(allocation, job)
    };
    conduct.tampering.insert(Tampering::LimitsChanged);
    conduct.add_kernels([KernelUse {
        hash: KernelHash(0xfeed),
        launches: 3,
    }]);
    let record = Box::new(SignedConduct {
        conduct,
        key: world.state.fleet.node(node).expect("the node").keys[0],
        public_key: "3059".into(),
        signature: "3045".into(),
    });
    take(&mut world, &agent, Wish::NoteConduct { node, record });
    let exited = Observation::Exited {
        exit_code: None,
        signal: Some(15),
        ran_ms: 5,
        by: None,
        usage: None,
    };
    take(
        &mut world,
        &agent,
        Wish::Observe {
            node,
            allocation,
            observation: exited,
        },
    );

    let Ok(serving) = world.submit(ada, spec("serve", slice(100, 4000), 600)) else {
        panic!("no job to resize")
    };
    world.observe(serving, Observation::Running).expect("it runs");
    take(
        &mut world,
        &Actor::user(ada),
        Wish::Resize {
            job: serving,
            compute_permille: Some(200),
            vram_mib: Some(8000),
        },
    );
    let ada_self = Actor::user(ada);
    let reason = PauseReason::Asked;
    let pause = Wish::Pause { job: serving, reason };
    take(&mut world, &ada_self, pause.clone());
    let (at, _) = world.allocation(serving).expect("it is placed");
    let told = |observation| Wish::Observe {
        node,
        allocation: at,
        observation,
    };
    let kept = Observation::Kept { why: "busy".into() };
    take(&mut world, &agent, told(kept));
    take(&mut world, &agent, told(Observation::Saved { ago_ms: 0 }));
    take(&mut world, &ada_self, pause);
    let paused = Observation::Paused {
        ran_ms: 0,
        usage: None,
    };
    take(&mut world, &agent, told(paused));
    take(&mut world, &ada_self, Wish::ResumeJob { job: serving });
    world.observe(serving, Observation::Running).expect("it runs");
    world.exit(serving, 1);
    take(
        &mut world,
        &root,
        Wish::GrowVolume {
            volume,
            size_mib: 2048,
            revision: None,
        },
    );
    take(&mut world, &root, Wish::RemoveVolume { volume });
    take(&mut world, &agent, Wish::NoteVolumeErased { node, volume });

    let receipt = Receipt {
        number: 1,
        device: world
            .state
            .fleet
            .node(node)
            .and_then(|node| node.gpus.first())
            .map_or_else(String::new, |gpu| gpu.facts.uuid.clone()),
        from: ["ten_0000000040400".to_owned()].into(),
        to: "ten_0000000040800".into(),
        allocation: tenure_domain::id::AllocationId(1 << 20),
        at_ms: 1_750_000_000_000,
        took_ms: 412,
        bytes: 1 << 30,
        local_bytes: 65536,
        compute_units: 108,
        missed_bytes: 0,
        fault: Some("what was written to device memory was not read back".into()),
        key: digest(0x51),
        public_key: "04aa".into(),
        signature: "3045".into(),
    };
    let receipt = Box::new(receipt);
    take(&mut world, &agent, Wish::NoteScrub { node, receipt });
    let gpu = world.state.fleet.node(node).unwrap().gpus[0].id;
    take(&mut world, &root, Wish::ReleaseGpu { gpu });

    let nominal = Nominal {
        gpu_milli: 4000,
        borrow_milli: Some(2000),
        lend_milli: None,
    };
    let share = Share {
        weight: 3,
        nominal: [("H100".into(), nominal)].into(),
        ..Share::default()
    };
    let pair = take(
        &mut world,
        &ada_self,
        Wish::Submit {
            owner: ada,
            spec: spec("pair", gang(2, cpu(100)), 600).into(),
            trace: None,
        },
    );
    let Event::JobSubmitted { job: pair, .. } = pair[0] else {
        panic!("no gang")
    };
    let members = [0, 1].map(|member| world.member(pair, member).expect("it is placed").0);
    let exited = |exit_code| Observation::Exited {
        exit_code: Some(exit_code),
        signal: None,
        ran_ms: 1,
        by: None,
        usage: None,
    };
    for (allocation, observation) in [
        (members[0], Observation::Starting),
        (members[0], Observation::Running),
        (members[0], exited(3)),
        (members[1], exited(0)),
    ] {
        let wish = Wish::Observe {
            node,
            allocation,
            observation,
        };
        take(&mut world, &agent, wish);
    }

    for wish in [
        Wish::CordonNode { node },
        Wish::UncordonNode { node },
        Wish::LabelNode {
            node,
            labels: Labels {
                region: Some("eu-north".into()),
                block: Some("rail-1".into()),
                dedicated: world.state.tree.tenant_of(acme),
            },
            revision: None,
        },
        Wish::RemoveNode { node },
        Wish::RemoveSku { name: "small".into() },
        Wish::EraseSecret {
            scope: home,
            name: "token".into(),
        },
        Wish::RevokeRole {
            scope: lab,
            user: ada,
            role: Role::Member,
        },
        Wish::Suspend { scope: lab },
        Wish::Resume { scope: lab },
        Wish::Move {
            scope: home,
            parent: acme,
        },
        Wish::Close { scope: home },
        Wish::SetShare {
            scope: acme,
            share,
            revision: None,
        },
        Wish::SetLogKeeping {
            scope: acme,
            keeping: Keeping {
                days: Some(7),
                mib: Some(512),
                job_mib: Some(16),
                tenant_mib: None,
            },
            revision: None,
        },
    ] {
        take(&mut world, &root, wish);
    }
    all.extend(made_room(slice(500, 8000)));
    all.extend(made_room(gang(2, slice(500, 8000))));
    all.extend(outgrown());
    all.extend(served());
    all.extend(crate::booking::life());
    all.extend(crate::market::life());
    all.extend(billed());
    all.extend(alerted());
    all.extend(hooked());
    // Of some events one of each shape: of one node and of a gang, with a workload and without.
    let mut first: BTreeMap<(&str, bool), Event> = BTreeMap::new();
    for event in all {
        let other = match &event {
            Event::JobPlaced { others, .. } => !others.is_empty(),
            Event::JobPromised { promise } => !promise.others.is_empty(),
            Event::JobSubmitted { derivation, .. } => derivation.is_some(),
            Event::JobRequeued { vram_mib, .. } => vram_mib.is_some(),
            Event::BudgetsSet { budgets, .. } => budgets.iter().any(|budget| budget.frames.is_some()),
            Event::JobAdmitted { admission, .. } => admission.hold.left.frames > 0,
            Event::PolicySet { policy, .. } => policy.trade.is_some(),
            Event::LeaseBegan { lease, .. } => !lease.nodes.is_empty(),
            _ => false,
        };
        first.entry((event.kind(), other)).or_insert(event);
    }
    first.into_values().collect()
}

/// A job that says what it is, one of whose tasks outgrows what that was taken to need, and is then ended.
fn outgrown() -> Vec<Event> {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let device = gpu("h100-0", "H100", 80_000, &[Isolation::Guarded]);
    world.node("alpha", inventory(16_000, 64_000, vec![device]));
    let budget = Budget {
        period: Period::Day,
        class: None,
        sku: None,
        kind: Some(Kind::Rendering),
        money_micros: None,
        gpu_seconds: None,
        frames: Some(2000),
        alerts_permille: Vec::new(),
    };
    let mut events = world
        .root(Wish::SetBudgets {
            scope: acme,
            budgets: vec![budget],
            revision: None,
        })
        .expect("a budget");
    let mut job = spec("bridge", Default::default(), 3600);
    (job.grow, job.demand.compute_permille) = (true, 300);
    job.workload = Some(Box::new(Workload::Rendering(Rendering {
        frames: "1-240x2".parse().expect("frames"),
        scene: Some("bridge".into()),
        each_ms: Some(30_000),
        vram_mib: Some(6000),
    })));
    let spec = Arc::new(job);
    let submitted = world
        .by(
            ada,
            Wish::Submit {
                owner: ada,
                spec,
                trace: None,
            },
        )
        .expect("taken");
    let Event::TaskSubmitted { job, .. } = submitted[1] else {
        panic!("no task")
    };
    events.extend(submitted);
    events.extend(world.schedule());
    let exited = Observation::Exited {
        exit_code: Some(1),
        signal: None,
        ran_ms: 1000,
        by: None,
        usage: Some(Usage {
            refusals: 1,
            peak_vram_mib: 5900,
            ..Usage::default()
        }),
    };
    events.extend(world.observe(job, exited).expect("it ended"));
    events.extend(world.stop(job).expect("it waits"));
    events
}

/// A service with a replica that is of no use.
fn served() -> Vec<Event> {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    world.node("alpha", inventory(16_000, 64_000, vec![]));
    let mut job = spec("model", cpu(100), 3600);
    job.service = Some(Box::new(Service {
        ready: Some("/health".into()),
        replicas: Replicas { min: 1, max: 4 },
        ..Service::default()
    }));
    let job = world.submit(ada, job).expect("taken");
    world.schedule();
    let replica = world.state.jobs[&job].tasks.as_ref().expect("tasks").living[&0];
    world.observe(replica, Observation::Running).expect("it runs");
    let uses = vec![ServiceUse {
        user: ada,
        requests: 120,
        lost: 1,
        bytes_in: 24_000,
        bytes_out: 480_000,
    }];
    let why = "it answered /health with 503".to_owned();
    let wishes = [
        Wish::Scale {
            job,
            replicas: Replicas { min: 0, max: 8 },
        },
        Wish::NoteServiceUse { job, uses },
        Wish::FailReplica { replica, why },
    ];
    let events = wishes.into_iter().map(|wish| match wish {
        wish @ Wish::Scale { .. } => world.by(ada, wish).expect("scaled"),
        wish => world.system(wish).expect("noted"),
    });
    let named = ["ServiceScaled", "ServiceUsed", "ReplicaFailed"];
    let events = events.flatten().filter(|event| named.contains(&event.kind()));
    events.collect()
}

/// One job gives way to another, which is then not to start after all.
fn made_room(demand: Demand) -> Vec<Event> {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let device = gpu("h100-0", "H100", 80_000, &[Isolation::Guarded]);
    world.node("alpha", inventory(16_000, 64_000, vec![device]));
    let first = world
        .submit(ada, spec("first", slice(700, 8000), 3600))
        .expect("taken");
    world.observe(first, Observation::Running).expect("it runs");
    world.pass_s(600);
    let mut urgent = spec("urgent", demand, 600);
    urgent.priority = Priority::Urgent;
    let spec = Arc::new(urgent);
    let mut events = world
        .by(
            ada,
            Wish::Submit {
                owner: ada,
                spec,
                trace: None,
            },
        )
        .expect("taken");
    world.root(Wish::Suspend { scope: acme }).expect("suspended");
    events.extend(world.schedule());
    events
}

/// A job that is resold, an invoice, its payment, and what is given back of it.
fn billed() -> Vec<Event> {
    let mut house = crate::ledger::house(plain_prices());
    let (acme, ada, root, from) = (house.acme, house.ada, house.world.root, house.world.now);
    let book = Book {
        markup_permille: 1250,
        fee_permille: 50,
        ..Book::default()
    };
    let mut events = house.book(ScopeId::Platform, book.clone()).expect("set");
    let asked = Book {
        fee_permille: 0,
        ..book
    };
    house.book(acme, asked).expect("set");
    house.ran(ada, 60);
    house.world.pass_s(1);
    let mut draft = crate::ledger::draft(acme, from, house.world.now, &[]);
    draft.total = Micros(20_834);
    let draft = Box::new(draft);
    let issued = house.world.root(Wish::IssueInvoice { draft }).expect("issued");
    let Event::InvoiceIssued { invoice } = &issued[0] else {
        panic!("no invoice")
    };
    let id = invoice.id;
    events.extend(issued);
    let wish = Wish::PayInvoice {
        invoice: id,
        reference: "wire 17".into(),
    };
    events.extend(house.world.by(root, wish).expect("paid"));
    let wish = Wish::Adjust {
        scope: acme,
        kind: AdjustmentKind::Refund,
        amount: Micros(834),
        invoice: Some(id),
        reason: "the node was slow".into(),
    };
    events.extend(house.world.by(root, wish).expect("given back"));
    events
}

/// Half of a budget is spent.
fn alerted() -> Vec<Event> {
    let mut house = crate::ledger::house(plain_prices());
    let budget = Budget {
        period: Period::Day,
        class: None,
        sku: None,
        kind: None,
        money_micros: Some(20_000),
        gpu_seconds: None,
        frames: None,
        alerts_permille: vec![500],
    };
    let set = Wish::SetBudgets {
        scope: house.lab,
        budgets: vec![budget],
        revision: None,
    };
    house.world.root(set).expect("a budget");
    let events = house.metered(60, 6).into_iter();
    events.filter(|event| event.kind() == "BudgetAlerted").collect()
}

/// A webhook of a limited key, whose receiver is gone once.
fn hooked() -> Vec<Event> {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let limited = Actor::User {
        user: world.root,
        key: None,
        allow: Some([Action::WebhookManage, Action::EventRead].into()),
    };
    let wish = Wish::CreateWebhook {
        scope: acme,
        name: "chat".into(),
        origin: "https://hooks.example.com".into(),
        kinds: ["JobEnded".to_owned()].into(),
        secret: SecretId(4243),
        after: 7,
    };
    let mut events = world.act(limited, wish).expect("made");
    let Event::WebhookCreated { webhook } = &events[0] else {
        panic!("no webhook")
    };
    let webhook = webhook.id;
    let failed = Wish::FailWebhook {
        webhook,
        revision: 1,
        why: "it answered 410 Gone".into(),
    };
    events.extend(world.system(failed).expect("failed"));
    for wish in [
        Wish::ResumeWebhook {
            webhook,
            after: Some(9),
        },
        Wish::PauseWebhook { webhook },
        Wish::RotateWebhook {
            webhook,
            old: SecretId(4243),
            secret: SecretId(4244),
        },
        Wish::RemoveWebhook { webhook },
    ] {
        events.extend(world.root(wish).expect("done"));
    }
    events
}

#[test]
fn events_are_written_as_ever() {
    let text = |event: &Event| serde_json::to_string(event).expect("events encode");
    let today: Vec<String> = everything().iter().map(text).collect();
    if std::env::var("TENURE_GOLDEN").is_ok_and(|word| word == "write") {
        std::fs::write(path("events.jsonl"), today.join("\n") + "\n").expect("the golden file is writable");
    }
    let golden = std::fs::read_to_string(path("events.jsonl")).expect("the golden file is there");
    let mut seen = BTreeSet::new();
    for line in golden.lines() {
        let event: Event = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(text(&event), line, "an event is written as it was read");
        seen.insert(event.kind());
    }
    assert_eq!(seen, kinds(), "one of each event is golden");
    assert_eq!(
        today,
        golden.lines().collect::<Vec<_>>(),
        "the same life gives the same events"
    );
}

#[test]
fn old_events_stay_readable() {
    let Ok(old) = std::fs::read_to_string(path("events-old.jsonl")) else {
        return;
    };
    for line in old.lines() {
        let _: Event = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}
