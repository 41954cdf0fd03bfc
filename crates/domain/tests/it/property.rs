//! Random operations by many actors, beside the naive model.
//!
//! `TENURE_PROPERTY_OPS` says how many, `TENURE_PROPERTY_SEED` replays from a seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_domain::command::{Observation, Ran};
use tenure_domain::id::{AllocationId, Ids, JobId, KeyId, NodeId, SecretId, TenantId, UserId, VolumeId};
use tenure_domain::kind::Counted;
use tenure_domain::ledger::price::ClassPrice;
use tenure_domain::meter::{Amounts, Meter, Of, Resource};
use tenure_domain::schedule::fleet::{Inventory, NodeStatus};
use tenure_domain::schedule::label::Labels;
use tenure_domain::schedule::order::aged::{ahead_of, waited_ms};
use tenure_domain::schedule::order::walk::{Turn, Walk};
use tenure_domain::schedule::when::Unforeseen;
use tenure_domain::schedule::why::{answer, why};
use tenure_domain::storage::volume::{Volume, VolumeUse};
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{Identity, ScopeId, UserKind};
use tenure_domain::tenancy::share::{Nominal, Share};
use tenure_domain::time::Period;
use tenure_domain::workload::Workload;
use tenure_domain::workload::job::{PauseReason, Phase, StopReason};
use tenure_domain::workload::picture::Rendering;
use tenure_domain::workload::spec::{Demand, Isolation, JobSpec, Kind, Priority, Sku};
use tenure_domain::workload::task::cut::Cut;
use tenure_domain::workload::usage::Usage;
use tenure_domain::{Actor, Code, Event, Refusal, Wish};

use crate::chance::{Chance, Replay, number_from_env};
use crate::model::Model;
use crate::world::{World, digest, gpu, spec};

const OPS_PER_RUN: u64 = 2_000;
const CLASSES: [(&str, u64); 3] = [("H100", 80_000), ("A10", 24_000), ("T4", 16_000)];
const REGIONS: [&str; 2] = ["north", "south"];
const SKUS: [&str; 2] = ["small", "large"];

struct Run {
    world: World,
    model: Model,
    chance: Chance,
    /// Allocations ever made, so that late reports can be told.
    past: Vec<(AllocationId, NodeId)>,
    taken: BTreeMap<&'static str, u64>,
    /// Promises to gangs, and of gangs' room to others.
    of_gangs: BTreeMap<&'static str, u64>,
    /// Gangs placed, and gangs that came to run.
    gangs: u64,
    whole: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut world = World::priced(Default::default());
        world.thorough = false;
        let mut model = Model::default();
        let founded = [
            Event::PlatformFounded {
                name: "cell".into(),
                prices: Default::default(),
            },
            Event::ScopeCreated {
                scope: ScopeId::User(world.root),
                parent: ScopeId::Platform,
                name: "root".into(),
                user: None,
            },
        ];
        founded.iter().for_each(|event| model.follow(world.now, event));
        let mut run = Run {
            world,
            model,
            chance: Chance::new(seed),
            past: Vec::new(),
            taken: BTreeMap::new(),
            of_gangs: BTreeMap::new(),
            gangs: 0,
            whole: 0,
        };
        for name in ["acme", "brio"] {
            run.act(Actor::System, Wish::CreateTenant { name: name.into() });
        }
        for _ in 0..6 {
            let wish = run.create();
            run.act(Actor::System, wish);
        }
        for _ in 0..3 {
            run.join();
        }
        run
    }

    fn act(&mut self, by: Actor, wish: Wish) -> Vec<Event> {
        self.try_act(by, wish).unwrap_or_default()
    }

    fn try_act(&mut self, by: Actor, wish: Wish) -> Result<Vec<Event>, Refusal> {
        let name = wish_name(&wish);
        let events = self.world.act(by, wish)?;
        if !events.is_empty() {
            *self.taken.entry(name).or_default() += 1;
        }
        for event in &events {
            if let Event::JobPromised { promise } = event {
                let kind = if promise.evicts() { "evicted" } else { "reserved" };
                *self.taken.entry(kind).or_default() += 1;
                let is_gang = |job: &JobId| self.world.state.jobs[job].is_gang();
                if is_gang(&promise.job) {
                    let kind = if promise.evicts() {
                        "gang evicts"
                    } else {
                        "gang waits"
                    };
                    *self.of_gangs.entry(kind).or_default() += 1;
                }
                if promise.victims.iter().any(is_gang) {
                    *self.of_gangs.entry("gang evicted").or_default() += 1;
                }
            }
            self.model.follow(self.world.now, event);
            if let Event::JobPlaced {
                allocation, others, ..
            } = event
            {
                let members = [allocation].into_iter().chain(others);
                self.past.extend(members.map(|member| (member.id, member.node)));
                self.gangs += u64::from(!others.is_empty());
            }
            if let Event::JobRunning { job } = event {
                self.whole += u64::from(self.world.state.jobs[job].is_gang());
            }
        }
        self.model.check(&self.world.state, self.world.now);
        Ok(events)
    }

    fn scope(&mut self) -> ScopeId {
        let all: Vec<ScopeId> = self.world.state.tree.iter().map(|scope| scope.id).collect();
        if self.chance.one_in(40) {
            ScopeId::Tenant(TenantId(self.chance.next()))
        } else {
            self.chance.of(&all)
        }
    }

    fn user(&mut self) -> UserId {
        let all: Vec<UserId> = self
            .world
            .state
            .tree
            .iter()
            .filter_map(|scope| {
                if let ScopeId::User(user) = scope.id {
                    Some(user)
                } else {
                    None
                }
            })
            .collect();
        self.chance.of(&all)
    }

    fn actor(&mut self) -> Actor {
        match self.chance.below(10) {
            0..6 => Actor::user(self.world.root),
            6 => Actor::System,
            _ => Actor::user(self.user()),
        }
    }

    fn node(&mut self) -> NodeId {
        let all: Vec<NodeId> = self.world.state.fleet.nodes().map(|node| node.id).collect();
        self.chance.pick(&all).copied().unwrap_or(NodeId(7))
    }

    fn name(&mut self) -> String {
        format!("n{}", self.chance.below(60))
    }

    fn create(&mut self) -> Wish {
        let (parent, name) = (self.scope(), self.name());
        if self.world.state.tree.len() > 30 {
            return Wish::Close { scope: parent };
        }
        match self.chance.below(6) {
            0 => Wish::CreateTenant { name },
            1 => Wish::CreateSubscriber { tenant: parent, name },
            _ => {
                let role = self.chance.one_in(2).then(|| self.chance.of(Role::ALL));
                let identity = self.chance.one_in(3).then(|| Identity {
                    issuer: "https://id".into(),
                    subject: self.name(),
                });
                Wish::CreateUser {
                    parent,
                    name,
                    kind: UserKind::Person,
                    identity,
                    role,
                }
            }
        }
    }

    fn join(&mut self) {
        if self.world.state.fleet.nodes().count() >= 5 {
            return;
        }
        let (token, name) = (digest(self.chance.next()), self.name());
        let expires = self.world.now.plus_ms(1000);
        self.act(
            Actor::System,
            Wish::CreateJoinToken {
                digest: token,
                expires,
                tenant: None,
            },
        );
        let key = digest(self.chance.next());
        let events = self.act(Actor::System, Wish::JoinNode { token, name, key });
        if let Some(&Event::NodeJoined { node, .. }) = events.first() {
            let inventory = self.inventory();
            self.act(Actor::Node(node), Wish::ReportInventory { node, inventory });
        }
    }

    fn inventory(&mut self) -> Inventory {
        let (class, vram) = self.chance.of(&CLASSES);
        let count = self.chance.below(5);
        let first = self.chance.below(30);
        let levels: &[Isolation] = match self.chance.below(3) {
            0 => &[Isolation::Guarded],
            1 => &[Isolation::Guarded, Isolation::Exclusive],
            _ => &[Isolation::Guarded, Isolation::Fenced, Isolation::Exclusive],
        };
        // Few uuids, so that devices turn up on two nodes, move and come back.
        let (other, other_vram) = self.chance.of(&CLASSES);
        let mixed = self.chance.one_in(4);
        let gpus = (0..count)
            .map(|i| {
                let (class, vram) = if mixed && i % 2 == 1 {
                    (other, other_vram)
                } else {
                    (class, vram)
                };
                let mut card = gpu(&format!("{class}-{}", (first + i) % 12), class, vram, levels);
                // Of one class and not alike.
                if mixed && i == 2 {
                    card.model = "rare".into();
                }
                card
            })
            .collect();
        Inventory {
            cpu_milli: 2000 + 1000 * self.chance.below(8) as u32,
            memory_mib: 4096 << self.chance.below(4),
            gpus,
            images: vec![],
            volume_mib: self.chance.of(&[0, 500, 4000]),
        }
    }

    fn job(&mut self) -> JobSpec {
        let chance = &mut self.chance;
        let (class, vram) = chance.of(&CLASSES);
        let mut demand = Demand {
            cpu_milli: 100 + 100 * chance.below(10) as u32,
            memory_mib: 64 + chance.below(1024),
            ..Demand::default()
        };
        match chance.below(10) {
            0..3 => {}
            3..8 => {
                demand.gpus = 1 + chance.below(2) as u32;
                demand.compute_permille = chance.of(&[50, 100, 250, 300, 500, 700]);
                demand.vram_mib = 1 + chance.below(vram / 2);
            }
            _ => demand.gpus = 1 + chance.below(3) as u32,
        }
        if demand.gpus > 0 {
            demand.class = chance.one_in(2).then(|| class.into());
            if chance.one_in(8) {
                demand.model = Some(chance.of(&["rare", class]).into());
            }
            demand.isolation = chance.of(&[
                Isolation::Guarded,
                Isolation::Guarded,
                Isolation::Guarded,
                Isolation::Fenced,
            ]);
        }
        if chance.one_in(5) {
            demand.nodes = 2 + chance.below(3) as u32;
        }
        if chance.one_in(8) {
            demand.region = Some(chance.of(&REGIONS).into());
        }
        let sku = chance.one_in(6).then(|| chance.of(&SKUS).to_owned());
        if sku.is_some() {
            demand = Demand::default();
        }
        let run_time_s = chance.of(&[1, 60, 600, 3600, 86_400, 40 * 86_400]);
        let mut job = spec("job", demand, run_time_s);
        (job.sku, job.priority, job.kind) = (sku, chance.of(Priority::ALL), chance.of(Kind::ALL));
        if chance.one_in(6) {
            job.kind = Kind::Rendering;
            job.workload = Some(Box::new(Workload::Rendering(Rendering {
                frames: chance.of(&["1-10", "1-240x2", "7"]).parse().expect("frames"),
                scene: None,
                each_ms: None,
                vram_mib: None,
            })));
            job.tasks = Some(match chance.below(4) {
                0 => Cut {
                    whole: true,
                    ..Cut::default()
                },
                _ => Cut {
                    parallel: chance.of(&[None, Some(1), Some(3)]),
                    per_task: chance.of(&[None, Some(4), Some(50)]),
                    tries: chance.of(&[None, Some(1), Some(2)]),
                    fail_fast: chance.one_in(5),
                    whole: false,
                },
            });
        }
        (job.grace_s, job.max_attempts) = (chance.below(20) as u32, 1 + chance.below(4) as u32);
        if chance.one_in(50) {
            job.secrets = [("TOKEN".to_owned(), "n1".to_owned())].into();
        }
        for name in ["v0", "v1", "v2"] {
            if chance.one_in(6) {
                job.volumes.push(VolumeUse {
                    name: name.into(),
                    read_only: chance.one_in(2),
                });
            }
        }
        job
    }

    /// A volume that is, or was removed, or never was.
    fn volume(&mut self) -> VolumeId {
        let all: Vec<VolumeId> = self.world.state.volumes.iter().map(|volume| volume.id).collect();
        if self.chance.one_in(20) {
            return VolumeId(self.chance.next());
        }
        self.chance.pick(&all).copied().unwrap_or(VolumeId(5))
    }

    fn volumes(&mut self) {
        let (by, volume, scope) = (self.actor(), self.volume(), self.scope());
        let size_mib = 16 + self.chance.below(600);
        let wish = match self.chance.below(8) {
            0..4 => Wish::CreateVolume {
                scope,
                name: format!("v{}", self.chance.below(3)),
                size_mib,
            },
            4 => Wish::GrowVolume {
                volume,
                size_mib,
                revision: None,
            },
            5 => {
                // One that its node has to erase, where there is one that nobody uses.
                let volumes = &self.world.state.volumes;
                let idle = |volume: &&Volume| {
                    volume.node.is_some() && !volume.removed && volumes.jobs_of(volume.id).next().is_none()
                };
                let bound = volumes.iter().find(idle);
                Wish::RemoveVolume {
                    volume: bound.map_or(volume, |bound| bound.id),
                }
            }
            _ => {
                let removed = self.world.state.volumes.iter().find(|volume| volume.removed);
                let volume = removed.map_or(volume, |removed| removed.id);
                let node = self
                    .world
                    .state
                    .volumes
                    .get(volume)
                    .and_then(|volume| volume.node);
                let node = node.unwrap_or_else(|| self.node());
                let by = self.speaker(node);
                self.act(by, Wish::NoteVolumeErased { node, volume });
                return;
            }
        };
        self.act(by, wish);
    }

    fn quota(&mut self) -> Amounts {
        let chance = &mut self.chance;
        let mut quota = Amounts::default();
        for _ in 0..chance.below(4) {
            let of = match chance.below(5) {
                0 => Of::Class(chance.of(&CLASSES).0.into()),
                1 => Of::Sku(chance.of(&SKUS).into()),
                2 => {
                    let kind = Counted::groups(chance.of(Kind::ALL), None).next();
                    kind.map_or(Of::All, Of::Kind)
                }
                _ => Of::All,
            };
            let resource = match of {
                Of::Kind(_) => chance.of(&[Resource::Jobs, Resource::GpuMilli, Resource::VramMib]),
                _ => chance.of(&Resource::ALL),
            };
            let limit = match resource {
                Resource::GpuMilli => chance.below(6000),
                Resource::Slices | Resource::Jobs => chance.below(8),
                Resource::VramMib => chance.below(200_000),
                Resource::CpuMilli => chance.below(8000),
                Resource::MemoryMib => chance.below(8000),
                Resource::VolumeMib => chance.below(4000),
                Resource::BookedMilli => chance.below(4000),
            };
            quota.set(Meter { resource, of }, limit);
        }
        quota
    }

    fn share(&mut self) -> Share {
        let chance = &mut self.chance;
        let mut share = Share {
            weight: 1 + chance.below(4) as u32,
            ..Share::default()
        };
        for _ in 0..chance.below(3) {
            let nominal = Nominal {
                gpu_milli: chance.below(4000),
                borrow_milli: chance.one_in(2).then(|| chance.below(2000)),
                lend_milli: chance.one_in(2).then(|| chance.below(2000)),
            };
            share.nominal.insert(chance.of(&CLASSES).0.into(), nominal);
        }
        share
    }

    fn budgets(&mut self) -> Vec<Budget> {
        let chance = &mut self.chance;
        let budgets = (0..chance.below(3)).map(|_| Budget {
            period: chance.of(&Period::ALL),
            class: chance.one_in(3).then(|| chance.of(&CLASSES).0.into()),
            sku: chance.one_in(6).then(|| chance.of(&SKUS).into()),
            kind: chance.one_in(6).then(|| chance.of(Kind::ALL)),
            money_micros: chance.one_in(2).then(|| chance.below(60_000_000)),
            gpu_seconds: chance.one_in(2).then(|| chance.below(400_000)),
            frames: None,
            alerts_permille: Vec::new(),
        });
        budgets.collect()
    }

    fn policy(&mut self) -> Policy {
        let chance = &mut self.chance;
        Policy {
            classes: chance
                .one_in(5)
                .then(|| [chance.of(&CLASSES).0.into(), chance.of(&CLASSES).0.into()].into()),
            min_isolation: chance
                .one_in(5)
                .then(|| chance.of(&[Isolation::Guarded, Isolation::Fenced])),
            share_guarded: chance.one_in(2).then(|| chance.one_in(2)),
            max_run_time_s: chance.one_in(6).then_some(100_000),
            max_vram_mib_per_job: chance.one_in(6).then(|| 20_000 + chance.below(80_000)),
            max_parallel_tasks: chance.one_in(6).then_some(2),
            max_gpus_per_job: chance.one_in(6).then_some(1),
            ..Policy::default()
        }
    }

    /// An allocation that lives, or lived once, or never was; and a node that may not be its own.
    fn allocation(&mut self) -> (AllocationId, NodeId) {
        let living: Vec<_> = self
            .world
            .state
            .fleet
            .allocations()
            .map(|allocation| (allocation.id, allocation.node))
            .collect();
        let (id, mut node) = match self.chance.below(10) {
            0 => self
                .chance
                .pick(&self.past)
                .copied()
                .unwrap_or((AllocationId(1), NodeId(1))),
            1 => (AllocationId(self.chance.next()), self.node()),
            _ => self
                .chance
                .pick(&living)
                .copied()
                .unwrap_or((AllocationId(1), NodeId(1))),
        };
        if self.chance.one_in(12) {
            node = self.node();
        }
        (id, node)
    }

    fn ran_ms(&mut self, id: AllocationId) -> u64 {
        let placed = self
            .world
            .state
            .fleet
            .allocation(id)
            .map_or(self.world.now, |allocation| allocation.placed);
        let possible = self.world.now.since_ms(placed);
        match self.chance.below(6) {
            0 => u64::MAX,
            1 => possible / 2,
            2 => 0,
            3 => possible.saturating_mul(3),
            _ => possible,
        }
    }

    /// What a node says of devices: nothing, sense, or nonsense.
    fn usage(&mut self) -> Option<Usage> {
        let busy_ms = self.chance.of(&[0, 1, 999, 60_000, u64::MAX]);
        let usage = Usage {
            busy_ms,
            throttled_ms: busy_ms / 3,
            waited_ms: busy_ms / 2,
            launches: self.chance.next(),
            peak_vram_mib: self.chance.of(&[0, 17, 4096, u64::MAX]),
            ..Usage::default()
        };
        (!self.chance.one_in(4)).then_some(usage)
    }

    fn speaker(&mut self, node: NodeId) -> Actor {
        match self.chance.below(12) {
            0 => Actor::System,
            1 => Actor::Node(self.node()),
            2 => Actor::user(self.user()),
            _ => Actor::Node(node),
        }
    }

    fn step(&mut self) {
        let jump = match self.chance.below(400) {
            0 => 86_400_000 * (1 + self.chance.below(40)),
            1..6 => 3_600_000 * self.chance.below(30),
            _ => self.chance.below(60_000),
        };
        self.world.now = self.world.now.plus_ms(jump);
        match self.chance.below(100) {
            0..24 => {
                let (owner, spec) = (self.user(), Arc::new(self.job()));
                let by = if self.chance.one_in(5) {
                    self.actor()
                } else {
                    Actor::System
                };
                self.act(
                    by,
                    Wish::Submit {
                        owner,
                        spec,
                        trace: None,
                    },
                );
            }
            24..32 => self.pass(),
            32..50 => {
                let (allocation, node) = self.allocation();
                let by = self.speaker(node);
                let observation = self.observation(allocation);
                self.act(
                    by,
                    Wish::Observe {
                        node,
                        allocation,
                        observation,
                    },
                );
            }
            52..60 => {
                let (first, node) = self.allocation();
                let (second, _) = self.allocation();
                let ran = [first, second, first].map(|allocation| Ran {
                    allocation,
                    ran_ms: self.ran_ms(allocation),
                    usage: self.usage(),
                });
                let by = self.speaker(node);
                self.act(
                    by,
                    Wish::Meter {
                        node,
                        ran: ran.to_vec(),
                    },
                );
            }
            62..67 => {
                let jobs: Vec<JobId> = self.world.state.jobs.keys().copied().collect();
                let job = self.chance.pick(&jobs).copied().unwrap_or(JobId(3));
                let (by, reason) = (
                    self.actor(),
                    self.chance.of(&[
                        StopReason::Cancelled,
                        StopReason::Cancelled,
                        StopReason::RunTime,
                        StopReason::Evicted,
                    ]),
                );
                self.act(by, Wish::Stop { job, reason });
            }
            50..52 | 60 | 61 | 67 => self.pause(),
            68..70 => {
                let running = self.world.state.jobs.values();
                let running = running.filter(|job| job.phase == Phase::Running && job.spec.demand.gpus > 0);
                let jobs: Vec<(JobId, UserId)> = running.map(|job| (job.id, job.owner)).collect();
                let (job, owner) = self.chance.pick(&jobs).copied().unwrap_or((JobId(3), UserId(3)));
                let by = self
                    .chance
                    .pick(&[Actor::user(owner), Actor::System])
                    .cloned()
                    .unwrap_or(Actor::System);
                let compute_permille =
                    self.chance
                        .of(&[None, Some(50), Some(250), Some(600), Some(1000), Some(0)]);
                let vram_mib = self
                    .chance
                    .of(&[None, Some(500), Some(4000), Some(20_000), Some(0)]);
                self.act(
                    by,
                    Wish::Resize {
                        job,
                        compute_permille,
                        vram_mib,
                    },
                );
            }
            70..73 => {
                let (by, scope, quota) = (self.actor(), self.scope(), self.quota());
                self.act(
                    by,
                    Wish::SetQuota {
                        scope,
                        quota,
                        revision: None,
                    },
                );
            }
            73..75 => {
                let (by, scope, share) = (self.actor(), self.scope(), self.share());
                self.act(
                    by,
                    Wish::SetShare {
                        scope,
                        share,
                        revision: None,
                    },
                );
            }
            75..77 => {
                let (by, scope, budgets) = (self.actor(), self.scope(), self.budgets());
                self.act(
                    by,
                    Wish::SetBudgets {
                        scope,
                        budgets,
                        revision: None,
                    },
                );
            }
            77..79 => {
                let (by, scope, policy) = (self.actor(), self.scope(), self.policy());
                self.act(
                    by,
                    Wish::SetPolicy {
                        scope,
                        policy,
                        revision: None,
                    },
                );
            }
            79..82 => self.volumes(),
            82..92 => self.tenancy(),
            _ => self.fleet(),
        }
    }

    fn pause(&mut self) {
        let jobs = self.world.state.jobs.values();
        let jobs: Vec<(JobId, UserId, bool)> = jobs
            .filter(|job| matches!(job.phase, Phase::Running | Phase::Pausing | Phase::Paused))
            .map(|job| (job.id, job.owner, job.phase == Phase::Paused))
            .collect();
        let only_paused: Vec<_> = jobs.iter().copied().filter(|job| job.2).collect();
        let none = (JobId(3), UserId(3), false);
        let among = match only_paused.is_empty() || self.chance.one_in(2) {
            true => jobs,
            false => only_paused,
        };
        let (job, owner, paused) = self.chance.pick(&among).copied().unwrap_or(none);
        let by = match self.chance.one_in(4) {
            true => self.actor(),
            false => Actor::user(owner),
        };
        let reason = self.chance.of(&[
            PauseReason::Asked,
            PauseReason::Asked,
            PauseReason::Asked,
            PauseReason::Preempted,
        ]);
        let wish = match self.chance.one_in(4) != paused {
            true => Wish::ResumeJob { job },
            false => Wish::Pause { job, reason },
        };
        self.act(by, wish);
    }

    fn observation(&mut self, id: AllocationId) -> Observation {
        let job = &self
            .world
            .state
            .fleet
            .allocation(id)
            .map(|allocation| allocation.job);
        let pausing = job.is_some_and(|job| self.world.state.jobs[&job].phase == Phase::Pausing);
        // All members have to be seen running for a gang to run.
        let gathers = job.is_some_and(|job| {
            let job = &self.world.state.jobs[&job];
            job.is_gang() && matches!(job.phase, Phase::Placed | Phase::Starting)
        });
        if gathers && !self.chance.one_in(4) {
            return match self.chance.one_in(3) {
                true => Observation::Starting,
                false => Observation::Running,
            };
        }
        match self.chance.below(9) {
            0..7 if pausing => Observation::Paused {
                ran_ms: self.ran_ms(id),
                usage: self.usage(),
            },
            0 => Observation::Kept { why: "busy\n".into() },
            1 => Observation::Starting,
            2..5 => Observation::Running,
            5 => Observation::NotStarted {
                why: "no such program\u{7}".into(),
            },
            6 => Observation::Vanished,
            _ => {
                let by = self.chance.of(&[
                    None,
                    None,
                    None,
                    Some(StopReason::RunTime),
                    Some(StopReason::Evicted),
                ]);
                Observation::Exited {
                    exit_code: self.chance.of(&[Some(0), Some(1), None]),
                    signal: None,
                    ran_ms: self.ran_ms(id),
                    by,
                    usage: self.usage(),
                }
            }
        }
    }

    fn pass(&mut self) {
        let mut walk = Walk::begin(&self.world.state, self.world.now);
        let mut freed = false;
        loop {
            let turn = walk.next(&self.world.state);
            // Room that was promised no more is anybody's, and is offered from the first on.
            if turn == Turn::Over && std::mem::take(&mut freed) {
                walk = Walk::begin(&self.world.state, self.world.now);
                continue;
            }
            if turn == Turn::Over {
                break;
            }
            let Some(wish) = turn.wish() else { continue };
            match self.try_act(Actor::System, wish) {
                Ok(events) => {
                    freed |= events.iter().any(|event| event.kind() == "PromiseWithdrawn");
                    for event in &events {
                        if let Event::TaskSubmitted { job, .. } = event {
                            let state = &self.world.state;
                            freed |= !walk.joined(state, &state.jobs[job]);
                        }
                    }
                }
                Err(refusal) => walk.refused(&self.world.state, &refusal),
            }
        }
        let (state, now) = (&self.world.state, self.world.now);
        let aged = state.jobs.values();
        let aged = aged.filter(|job| waited_ms(job, now) >= state.aged_ms());
        self.model.aged = aged.map(|job| job.id).collect();
        let held_back = |spec: &JobSpec| ahead_of(state, spec, now).is_some();
        let said = |job| why(state, job, now).map_or("nothing".to_owned(), |refusal| refusal.to_string());
        self.model.nothing_waits_in_vain(now, held_back, said);
        self.everybody_is_told();
    }

    /// Whoever waits is told a moment that is to come, or why there is none that fits the reason.
    fn everybody_is_told(&self) {
        let (state, now) = (&self.world.state, self.world.now);
        for id in state.queue.iter().map(|key| key.1).take(8) {
            let told = answer(state, id, now).expect("what waits has an answer");
            let code = told.reason.code;
            let moments = told.instead.iter().filter_map(|way| way.starts.as_ref());
            for starts in told.starts.iter().chain(moments) {
                assert!(
                    now <= starts.from && starts.from <= starts.to,
                    "{id} waits: {}; {starts:?}",
                    told.reason
                );
            }
            let fits = match told.starts {
                Ok(_) => true,
                Err(Unforeseen::UntilAsked) => matches!(code, Code::Paused | Code::ScopeSuspended),
                Err(Unforeseen::UntilBooked) => code == Code::BookingClosed,
                // What it waits for first may be room, behind which stands a limit.
                Err(Unforeseen::UntilRaised) => code != Code::NotShared,
                Err(Unforeseen::UntilNodes) => code != Code::Paused,
            };
            assert!(fits, "{id} waits: {}; {:?}", told.reason, told.starts);
        }
    }

    fn tenancy(&mut self) {
        let (by, scope, other, user) = (self.actor(), self.scope(), self.scope(), self.user());
        let wish = match self.chance.below(22) {
            0..5 => self.create(),
            5 => Wish::Suspend { scope },
            6..9 => {
                let suspended: Vec<ScopeId> = self
                    .world
                    .state
                    .tree
                    .iter()
                    .filter(|scope| scope.suspended)
                    .map(|scope| scope.id)
                    .collect();
                Wish::Resume {
                    scope: self.chance.pick(&suspended).copied().unwrap_or(scope),
                }
            }
            9..14 => Wish::Move { scope, parent: other },
            14 => Wish::Close { scope },
            15 => Wish::GrantRole {
                scope,
                user,
                role: self.chance.of(Role::ALL),
            },
            16 => Wish::RevokeRole {
                scope,
                user,
                role: self.chance.of(Role::ALL),
            },
            17 => Wish::CreateKey {
                user,
                label: "k".into(),
                digest: digest(self.chance.next()),
                expires: None,
                allow: None,
            },
            18 => Wish::RevokeKey {
                key: KeyId(self.world.next - Ids::BLOCK * self.chance.below(30)),
            },
            19 => Wish::StoreSecret {
                scope,
                name: format!("n{}", self.chance.below(3)),
                secret: SecretId(self.world.next),
            },
            20 => {
                let identity = self.chance.one_in(2).then(|| Identity {
                    issuer: "https://id".into(),
                    subject: self.name(),
                });
                Wish::SetIdentity { user, identity }
            }
            _ => self.platform(),
        };
        self.act(by, wish);
    }

    fn platform(&mut self) -> Wish {
        let name = self.chance.of(&SKUS).to_owned();
        match self.chance.below(3) {
            0 => {
                let mut prices = self.world.state.prices.clone();
                let price = ClassPrice {
                    gpu_hour_micros: self.chance.below(3_000_000) as i64,
                    vram_gib_hour_micros: self.chance.below(20_000) as i64,
                };
                prices.classes.insert(self.chance.of(&CLASSES).0.into(), price);
                Wish::SetPrices { prices }
            }
            1 => {
                let demand = if name == "small" {
                    crate::world::slice(100, 2000)
                } else {
                    crate::world::whole(1)
                };
                Wish::DefineSku {
                    sku: Sku { name, demand },
                }
            }
            _ => Wish::RemoveSku { name },
        }
    }

    fn fleet(&mut self) {
        let (by, node) = (self.actor(), self.node());
        match self.chance.below(12) {
            0 => self.join(),
            10 | 11 => {
                let tenants: Vec<TenantId> = (self.world.state.tree.iter())
                    .filter_map(|scope| match scope.id {
                        ScopeId::Tenant(tenant) => Some(tenant),
                        _ => None,
                    })
                    .collect();
                let chance = &mut self.chance;
                let labels = Labels {
                    region: chance.one_in(2).then(|| chance.of(&REGIONS).into()),
                    block: chance.one_in(2).then(|| chance.of(&["b1", "b2"]).into()),
                    dedicated: chance.pick(&tenants).copied().filter(|_| chance.one_in(4)),
                };
                let revision = None;
                self.act(
                    by,
                    Wish::LabelNode {
                        node,
                        labels,
                        revision,
                    },
                );
            }
            1 => drop(self.act(Actor::System, Wish::LoseNode { node })),
            2..5 => {
                let lost: Vec<NodeId> = self
                    .world
                    .state
                    .fleet
                    .nodes()
                    .filter(|node| node.status == NodeStatus::Lost)
                    .map(|node| node.id)
                    .collect();
                let node = self.chance.pick(&lost).copied().unwrap_or(node);
                self.act(Actor::Node(node), Wish::ReturnNode { node });
            }
            5 | 6 => {
                let inventory = self.inventory();
                let by = self.speaker(node);
                self.act(by, Wish::ReportInventory { node, inventory });
            }
            7 => drop(self.act(by, Wish::CordonNode { node })),
            8 => drop(self.act(by, Wish::UncordonNode { node })),
            _ => drop(self.act(by, Wish::RemoveNode { node })),
        }
    }
}

fn wish_name(wish: &Wish) -> &'static str {
    match wish {
        Wish::Submit { .. } => "submit",
        Wish::Schedule { .. } => "schedule",
        Wish::Promise { .. } => "promise",
        Wish::Withdraw => "withdraw",
        Wish::SetBookingTerms { .. } => "booking_terms",
        Wish::Book { .. } => "book",
        Wish::EditBooking { .. } => "edit_booking",
        Wish::ExtendBooking { .. } => "extend_booking",
        Wish::TransferBooking { .. } => "transfer_booking",
        Wish::CancelBooking { .. } => "cancel_booking",
        Wish::AdvanceBookings { .. } => "advance_bookings",
        Wish::ResolveBookings { .. } => "resolve_bookings",
        Wish::Observe { .. } => "observe",
        Wish::Meter { .. } => "meter",
        Wish::Stop { .. } => "stop",
        Wish::Resize { .. } => "resize",
        Wish::Pause { .. } => "pause",
        Wish::ResumeJob { .. } => "resume_job",
        Wish::SetQuota { .. } => "quota",
        Wish::SetShare { .. } => "share",
        Wish::SetBudgets { .. } => "budgets",
        Wish::SetPolicy { .. } => "policy",
        Wish::Move { .. } => "move",
        Wish::Close { .. } => "close",
        Wish::Suspend { .. } => "suspend",
        Wish::Resume { .. } => "resume",
        Wish::LoseNode { .. } => "lose_node",
        Wish::ReturnNode { .. } => "return_node",
        Wish::ReportInventory { .. } => "inventory",
        Wish::RemoveNode { .. } => "remove_node",
        Wish::LabelNode { .. } => "label_node",
        Wish::CreateUser { .. } => "create_user",
        Wish::CreateVolume { .. } => "create_volume",
        Wish::GrowVolume { .. } => "grow_volume",
        Wish::RemoveVolume { .. } => "remove_volume",
        Wish::NoteVolumeErased { .. } => "volume_erased",
        _ => "other",
    }
}

#[test]
fn no_limit_is_passed_and_every_count_adds_up() {
    let ops = number_from_env("TENURE_PROPERTY_OPS", 100_000);
    let first = number_from_env("TENURE_PROPERTY_SEED", 1);
    let mut taken: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut of_gangs: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut admitted, mut gangs, mut whole) = (0, 0, 0);
    for run_number in 0..ops.div_ceil(OPS_PER_RUN) {
        let seed = first + run_number;
        let mut replay = Replay { seed, step: 0 };
        let mut run = Run::new(seed);
        for step in 0..OPS_PER_RUN.min(ops - run_number * OPS_PER_RUN) {
            replay.step = step;
            run.step();
            if step % 100 == 0 {
                crate::invariant::snapshot_is_faithful(&run.world.state);
                run.model.check_spending(&run.world.state, run.world.now);
            }
        }
        admitted += run.model.admitted;
        (gangs, whole) = (gangs + run.gangs, whole + run.whole);
        run.taken
            .into_iter()
            .for_each(|(name, n)| *taken.entry(name).or_default() += n);
        run.of_gangs
            .into_iter()
            .for_each(|(name, n)| *of_gangs.entry(name).or_default() += n);
    }
    println!(
        "{ops} operations, {admitted} admissions, {gangs} gangs ({whole} ran), accepted: {taken:?}, {of_gangs:?}"
    );
    if ops >= 20_000 {
        // A property that is never exercised holds for nothing.
        assert_eq!(
            taken.len(),
            31,
            "every kind of operation was accepted at times: {taken:?}"
        );
        assert!(taken.values().all(|&n| n > ops / 5000), "{taken:?}");
        assert!(admitted > ops / 50, "{admitted} admissions");
        assert_eq!(
            of_gangs.len(),
            3,
            "gangs evict, are evicted and wait: {of_gangs:?}"
        );
        assert!(of_gangs.values().all(|&n| n > ops / 20_000), "{of_gangs:?}");
        assert!(
            gangs > ops / 500 && whole > ops / 4000,
            "{gangs} gangs, {whole} ran"
        );
    }
}
