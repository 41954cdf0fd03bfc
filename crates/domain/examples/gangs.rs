//! What it costs to find who leaves for a gang, and when there will be room for it: 1,213 nodes of 8 GPUs, all taken.
//! Run with `cargo run --release -p tenure-domain --example gangs`.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tenure_domain::command::Observation;
use tenure_domain::id::{Ids, JobId, UserId};
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{ScopeId, UserKind};
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::{Demand, Isolation, JobSpec, Priority};
use tenure_domain::{Actor, Command, Event, State, Time, Wish, decide};

const NODES: usize = 1_213;
const GPUS_PER_NODE: usize = 8;

struct Cell {
    state: State,
    at: Time,
    ids: u64,
}

impl Cell {
    fn decide(&mut self, by: Actor, wish: Wish) -> (Vec<Event>, Duration) {
        let command = Command {
            at: self.at,
            by,
            ids: self.ids,
            wish,
        };
        self.ids += Ids::BLOCK;
        let begin = busy();
        let events = decide(&self.state, &command);
        let took = busy() - begin;
        (
            events.unwrap_or_else(|refusal| panic!("refused: {refusal}")),
            took,
        )
    }

    fn act(&mut self, by: Actor, wish: Wish) -> Vec<Event> {
        self.at = self.at.plus_ms(1);
        let (events, _) = self.decide(by, wish);
        for event in &events {
            self.state.apply(self.at, event);
        }
        events
    }

    fn scope(&mut self, wish: Wish) -> ScopeId {
        match self.act(Actor::System, wish).first() {
            Some(&Event::ScopeCreated { scope, .. }) => scope,
            other => panic!("no scope: {other:?}"),
        }
    }

    fn node(&mut self, number: usize) {
        let mut key = Digest([7; 32]);
        key.0[..8].copy_from_slice(&(number as u64).to_le_bytes());
        let expires = self.at.plus_ms(60_000);
        self.act(
            Actor::System,
            Wish::CreateJoinToken {
                digest: key,
                expires,
                tenant: None,
            },
        );
        let name = format!("node-{number}");
        let token = key;
        let joined = self.act(Actor::System, Wish::JoinNode { token, name, key });
        let Some(&Event::NodeJoined { node, .. }) = joined.first() else {
            panic!("no node")
        };
        let facts = |n| GpuFacts {
            uuid: format!("gpu-{number}-{n}"),
            vendor: "nvidia".into(),
            model: "H100".into(),
            class: "H100".into(),
            vram_mib: 80_000,
            isolation: [(Isolation::Guarded, "guard".to_owned())].into(),
            hardware: None,
        };
        let inventory = Inventory {
            cpu_milli: 256_000,
            memory_mib: 1 << 20,
            gpus: (0..GPUS_PER_NODE).map(facts).collect(),
            images: Vec::new(),
            volume_mib: 0,
        };
        self.act(Actor::Node(node), Wish::ReportInventory { node, inventory });
    }

    fn run(&mut self, owner: UserId, spec: Arc<JobSpec>) {
        let events = self.act(
            Actor::System,
            Wish::Submit {
                owner,
                spec,
                trace: None,
            },
        );
        let Some(Event::JobPlaced {
            allocation, others, ..
        }) = events.last()
        else {
            panic!("no place: {events:?}")
        };
        for one in [allocation].into_iter().chain(others) {
            let wish = Wish::Observe {
                node: one.node,
                allocation: one.id,
                observation: Observation::Running,
            };
            self.act(Actor::Node(one.node), wish);
        }
    }

    /// What a decision about a gang takes, and what it gives.
    fn tell(&mut self, name: &str, owner: UserId, spec: Arc<JobSpec>) {
        let events = self.act(
            Actor::System,
            Wish::Enqueue {
                owner,
                spec,
                trace: None,
            },
        );
        let Some(&Event::JobSubmitted { job, .. }) = events.first() else {
            panic!("not taken")
        };
        let wish = Wish::Promise { job };
        let mut took: Vec<Duration> = (0..9)
            .map(|_| self.decide(Actor::System, wish.clone()).1)
            .collect();
        took.sort_unstable();
        let (events, _) = self.decide(Actor::System, wish);
        println!(
            "{name}: {:.2} ms (median of nine, the longest {:.2}): {}",
            took[4].as_secs_f64() * 1e3,
            took[8].as_secs_f64() * 1e3,
            said(&events, job)
        );
        self.act(
            Actor::System,
            Wish::Stop {
                job,
                reason: StopReason::Cancelled,
            },
        );
    }
}

/// Time this thread was on a core, so that neighbours do not spoil the figure; wall time where that is not told.
fn busy() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let on_core = told.and_then(|text| text.split(' ').next()?.parse().ok());
    on_core.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

fn said(events: &[Event], of: JobId) -> String {
    let promise = events.iter().find_map(|event| match event {
        Event::JobPromised { promise } if promise.job == of => Some(promise),
        _ => None,
    });
    promise.map_or("nothing is promised".into(), |promise| {
        format!(
            "{} rooms, {} leave",
            promise.rooms().count(),
            promise.victims.len()
        )
    })
}

fn job(nodes: u32, gpus: u32, priority: Priority) -> Arc<JobSpec> {
    let demand = Demand {
        nodes,
        gpus,
        class: Some("H100".into()),
        cpu_milli: 1000,
        memory_mib: 1024,
        ..Demand::default()
    };
    let text = serde_json::json!({"name": "job", "command": ["/bin/true"], "demand": demand, "priority": priority, "run_time_s": 86_400});
    Arc::new(serde_json::from_value(text).expect("a spec"))
}

fn main() {
    for (taken_by, nodes, gpus) in [
        ("single GPUs", 1, 1),
        ("whole nodes", 1, 8),
        ("gangs of 8 nodes", 8, 8),
    ] {
        let mut cell = Cell {
            state: State::default(),
            at: Time(1_800_000_000_000),
            ids: 1 << 22,
        };
        let wish = Wish::Found {
            platform: "cell".into(),
            owner: "root".into(),
            key: Digest([1; 32]),
            prices: Default::default(),
        };
        cell.act(Actor::System, wish);
        let tenant = cell.scope(Wish::CreateTenant { name: "acme".into() });
        let wish = Wish::CreateUser {
            parent: tenant,
            name: "ada".into(),
            kind: UserKind::Person,
            identity: None,
            role: Some(Role::Member),
        };
        let ScopeId::User(ada) = cell.scope(wish) else {
            panic!("no user")
        };
        (0..NODES).for_each(|number| cell.node(number));
        let each = nodes as usize * gpus as usize;
        for _ in 0..NODES * GPUS_PER_NODE / each {
            cell.run(ada, job(nodes, gpus, Priority::Low));
            cell.at = cell.at.plus_ms(10);
        }
        cell.at = cell.at.plus_ms(3_600_000);
        println!("all taken by {taken_by}");
        for members in [2, 8, 32, 64, 128] {
            let name = format!("  {members} × 8 GPUs, others give way");
            cell.tell(&name, ada, job(members, 8, Priority::High));
            let name = format!("  {members} × 8 GPUs, by run-time limits");
            cell.tell(&name, ada, job(members, 8, Priority::Low));
        }
        let spread = job(64, 1, Priority::High);
        cell.tell("  64 × 1 GPU, others give way", ada, spread);
    }
}
