//! A small world to decide in: a state, a clock and fresh ids. After every command it checks every invariant
//! of the state from scratch, and that deciding is pure and encodings are faithful.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_domain::command::Observation;
use tenure_domain::id::{AllocationId, Ids, JobId, NodeId, UserId};
use tenure_domain::ledger::price::{ClassPrice, Prices};
use tenure_domain::meter::Amounts;
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::schedule::order::walk::{Turn, Walk};
use tenure_domain::state::Retired;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{ScopeId, UserKind};
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::{Demand, Isolation, JobSpec};
use tenure_domain::{Actor, Command, Event, Refusal, State, Time, Wish, decide};

use crate::invariant;

pub struct World {
    pub state: State,
    pub now: Time,
    pub next: u64,
    /// Whether the costly checks (serde of the whole state) run after every command too.
    pub thorough: bool,
    /// A planted bug: what decisions see in place of the state.
    pub blind: Option<fn(&State) -> State>,
    pub retired: Vec<Retired>,
    pub root: UserId,
    /// The most GPUs of each class that each node has had.
    pub had: BTreeMap<(NodeId, Box<str>), i64>,
}

pub fn digest(n: u64) -> Digest {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    Digest(bytes)
}

pub fn amounts(pairs: &[(&str, u64)]) -> Amounts {
    pairs
        .iter()
        .map(|(meter, n)| (meter.parse().expect("a meter"), *n))
        .collect()
}

pub fn gpu(uuid: &str, class: &str, vram_mib: u64, levels: &[Isolation]) -> GpuFacts {
    let isolation = levels
        .iter()
        .map(|&level| (level, format!("the device gives {}", level.as_str())));
    GpuFacts {
        uuid: uuid.into(),
        vendor: "acme".into(),
        model: class.into(),
        class: class.into(),
        vram_mib,
        isolation: isolation.collect(),
        hardware: None,
    }
}

pub fn inventory(cpu_milli: u32, memory_mib: u64, gpus: Vec<GpuFacts>) -> Inventory {
    Inventory {
        cpu_milli,
        memory_mib,
        gpus,
        images: vec![],
        volume_mib: 0,
    }
}

pub fn spec(name: &str, demand: Demand, run_time_s: u64) -> JobSpec {
    JobSpec {
        name: name.into(),
        labels: BTreeMap::new(),
        workload: None,
        grow: false,
        service: None,
        tasks: None,
        task: None,
        kind: Default::default(),
        priority: Default::default(),
        command: vec!["/bin/true".into()],
        image: None,
        image_secret: None,
        env: BTreeMap::new(),
        secrets: BTreeMap::new(),
        volumes: vec![],
        workdir: None,
        sku: None,
        demand,
        run_time_s,
        stdin: false,
        tty: false,
        grace_s: 0,
        max_attempts: 3,
        restartable: false,
        booking: None,
    }
}

pub fn cpu(cpu_milli: u32) -> Demand {
    Demand {
        cpu_milli,
        memory_mib: 64,
        ..Demand::default()
    }
}

pub fn slice(permille: u16, vram_mib: u64) -> Demand {
    Demand {
        gpus: 1,
        compute_permille: permille,
        vram_mib,
        cpu_milli: 100,
        memory_mib: 64,
        ..Demand::default()
    }
}

pub fn whole(gpus: u32) -> Demand {
    Demand {
        gpus,
        compute_permille: 1000,
        vram_mib: 0,
        cpu_milli: 100,
        memory_mib: 64,
        ..Demand::default()
    }
}

/// So many members of a demand.
pub fn gang(nodes: u32, demand: Demand) -> Demand {
    Demand { nodes, ..demand }
}

/// One unit an hour for a GPU of any class, nothing for CPU and memory: stories stay readable.
pub fn plain_prices() -> Prices {
    Prices {
        cpu_hour_micros: 0,
        memory_gib_hour_micros: 0,
        other: ClassPrice {
            gpu_hour_micros: 1_000_000,
            vram_gib_hour_micros: 0,
        },
        ..Prices::default()
    }
}

impl World {
    pub fn new() -> World {
        World::priced(plain_prices())
    }

    pub fn priced(prices: Prices) -> World {
        let now = Time::parse_rfc3339("2026-03-02T09:00:00Z").expect("a moment");
        let mut world = World {
            state: State::default(),
            now,
            next: 1 << 22,
            thorough: true,
            blind: None,
            retired: Vec::new(),
            root: UserId(0),
            had: BTreeMap::new(),
        };
        let events = world
            .system(Wish::Found {
                platform: "cell".into(),
                owner: "root".into(),
                key: digest(1),
                prices,
            })
            .expect("founded");
        let root = events.iter().find_map(|event| match event {
            Event::ScopeCreated {
                scope: ScopeId::User(user),
                ..
            } => Some(*user),
            _ => None,
        });
        world.root = root.expect("an owner");
        world
    }

    pub fn act(&mut self, by: Actor, wish: Wish) -> Result<Vec<Event>, Refusal> {
        let command = Command {
            at: self.now,
            by,
            ids: self.next,
            wish,
        };
        self.next += Ids::BLOCK;
        let blinded = self.blind.map(|blind| blind(&self.state));
        let seen = blinded.as_ref().unwrap_or(&self.state);
        let decided = decide(seen, &command);
        assert_eq!(
            decided,
            decide(seen, &command),
            "the same state and command give the same events"
        );
        let events = decided?;
        for event in &events {
            let placed = matches!(event, Event::JobPlaced { .. });
            invariant::round_trips(event);
            self.retired.extend(self.state.apply(self.now, event));
            if placed {
                invariant::neighbours_agree(&self.state, event);
            }
            invariant::quotas_hold(&self.state, event);
        }
        invariant::check(&self.state);
        if !self.state.bookings.is_empty() {
            self.note_gpus();
            invariant::seats_are_there(&self.state, &self.had);
        }
        if self.thorough {
            invariant::snapshot_is_faithful(&self.state);
        }
        Ok(events)
    }

    fn note_gpus(&mut self) {
        for node in self.state.fleet.nodes() {
            let mut now: BTreeMap<&str, i64> = BTreeMap::new();
            for gpu in &node.gpus {
                *now.entry(&gpu.facts.class).or_default() += 1;
            }
            for (class, count) in now {
                let most = self.had.entry((node.id, class.into())).or_default();
                *most = count.max(*most);
            }
        }
    }

    pub fn system(&mut self, wish: Wish) -> Result<Vec<Event>, Refusal> {
        self.act(Actor::System, wish)
    }

    pub fn root(&mut self, wish: Wish) -> Result<Vec<Event>, Refusal> {
        self.act(Actor::user(self.root), wish)
    }

    pub fn by(&mut self, user: UserId, wish: Wish) -> Result<Vec<Event>, Refusal> {
        self.act(Actor::user(user), wish)
    }

    pub fn pass_s(&mut self, seconds: u64) {
        self.now = self.now.plus_ms(seconds * 1000);
    }

    fn made(events: &[Event]) -> ScopeId {
        match events.first() {
            Some(Event::ScopeCreated { scope, .. }) => *scope,
            other => panic!("no scope was made: {other:?}"),
        }
    }

    pub fn tenant(&mut self, name: &str) -> ScopeId {
        Self::made(
            &self
                .root(Wish::CreateTenant { name: name.into() })
                .expect("a tenant"),
        )
    }

    pub fn subscriber(&mut self, tenant: ScopeId, name: &str) -> ScopeId {
        Self::made(
            &self
                .root(Wish::CreateSubscriber {
                    tenant,
                    name: name.into(),
                })
                .expect("a subscriber"),
        )
    }

    pub fn user(&mut self, parent: ScopeId, name: &str, role: Option<Role>) -> UserId {
        let wish = Wish::CreateUser {
            parent,
            name: name.into(),
            kind: UserKind::Person,
            identity: None,
            role,
        };
        match Self::made(&self.root(wish).expect("a user")) {
            ScopeId::User(user) => user,
            other => panic!("{other} is not a user"),
        }
    }

    pub fn node(&mut self, name: &str, inventory: Inventory) -> NodeId {
        let token = digest(self.next);
        let expires = self.now.plus_ms(60_000);
        self.root(Wish::CreateJoinToken {
            digest: token,
            expires,
            tenant: None,
        })
        .expect("a token");
        let key = digest(self.next + 1);
        let events = self
            .system(Wish::JoinNode {
                token,
                name: name.into(),
                key,
            })
            .expect("joined");
        let Some(Event::NodeJoined { node, .. }) = events.first() else {
            panic!("no node joined")
        };
        self.act(
            Actor::Node(*node),
            Wish::ReportInventory {
                node: *node,
                inventory,
            },
        )
        .expect("an inventory");
        *node
    }

    pub fn quota(&mut self, scope: ScopeId, pairs: &[(&str, u64)]) {
        self.root(Wish::SetQuota {
            scope,
            quota: amounts(pairs),
            revision: None,
        })
        .expect("a quota");
    }

    pub fn policy(&mut self, scope: ScopeId, policy: Policy) {
        self.root(Wish::SetPolicy {
            scope,
            policy,
            revision: None,
        })
        .expect("a policy");
    }

    pub fn submit(&mut self, owner: UserId, spec: JobSpec) -> Result<JobId, Refusal> {
        let events = self.by(
            owner,
            Wish::Submit {
                owner,
                spec: Arc::new(spec),
                trace: None,
            },
        )?;
        match events.first() {
            Some(Event::JobSubmitted { job, .. }) => Ok(*job),
            other => panic!("no job was submitted: {other:?}"),
        }
    }

    pub fn allocation(&self, job: JobId) -> Option<(AllocationId, NodeId)> {
        self.member(job, 0)
    }

    pub fn member(&self, job: JobId, member: u32) -> Option<(AllocationId, NodeId)> {
        let id = self.state.jobs.get(&job)?.allocation_of(member)?;
        self.state
            .fleet
            .allocation(id)
            .map(|allocation| (id, allocation.node))
    }

    pub fn observe(&mut self, job: JobId, observation: Observation) -> Result<Vec<Event>, Refusal> {
        self.observe_member(job, 0, observation)
    }

    pub fn observe_member(
        &mut self,
        job: JobId,
        member: u32,
        observation: Observation,
    ) -> Result<Vec<Event>, Refusal> {
        let (allocation, node) = self.member(job, member).expect("the member is placed");
        self.act(
            Actor::Node(node),
            Wish::Observe {
                node,
                allocation,
                observation,
            },
        )
    }

    pub fn exit(&mut self, job: JobId, ran_s: u64) -> Vec<Event> {
        let exited = Observation::Exited {
            exit_code: Some(0),
            signal: None,
            ran_ms: ran_s * 1000,
            by: None,
            usage: None,
        };
        self.observe(job, exited).expect("an exit is taken")
    }

    pub fn stop(&mut self, job: JobId) -> Result<Vec<Event>, Refusal> {
        self.root(Wish::Stop {
            job,
            reason: StopReason::Cancelled,
        })
    }

    /// One whole pass over the queue, or as much of it as it takes to start one job.
    fn walk(&mut self, until_one_starts: bool) -> Vec<Event> {
        let mut walk = Walk::begin(&self.state, self.now);
        let mut all = Vec::new();
        loop {
            let turn = walk.next(&self.state);
            if turn == Turn::Over {
                return all;
            }
            let Some(wish) = turn.wish() else { continue };
            match self.system(wish) {
                Ok(events) => {
                    for event in &events {
                        if let Event::TaskSubmitted { job, .. } = event {
                            walk.joined(&self.state, &self.state.jobs[job]);
                        }
                    }
                    all.extend(events);
                }
                Err(refusal) => walk.refused(&self.state, &refusal),
            }
            if until_one_starts && !all.is_empty() {
                return all;
            }
        }
    }

    pub fn schedule(&mut self) -> Vec<Event> {
        self.walk(false)
    }

    pub fn schedule_one(&mut self) -> Vec<Event> {
        self.walk(true)
    }
}
