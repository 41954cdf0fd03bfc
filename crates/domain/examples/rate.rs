//! How many submissions a core decides and applies in a second: 10,000 users four levels deep, every level with
//! a quota, a budget and a policy. Run with `cargo run --release -p tenure-domain --example rate`.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tenure_domain::command::Observation;
use tenure_domain::id::{Ids, NodeId, UserId};
use tenure_domain::meter::Amounts;
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{ScopeId, UserKind};
use tenure_domain::time::Period;
use tenure_domain::workload::spec::{Demand, Isolation, JobSpec};
use tenure_domain::{Actor, Command, Event, State, Time, Wish, decide};

struct Rate {
    state: State,
    at: Time,
    ids: u64,
}

impl Rate {
    fn act(&mut self, by: Actor, wish: Wish) -> Vec<Event> {
        let command = Command {
            at: self.at,
            by,
            ids: self.ids,
            wish,
        };
        self.ids += Ids::BLOCK;
        self.at = self.at.plus_ms(1);
        let events = decide(&self.state, &command).unwrap_or_else(|refusal| panic!("refused: {refusal}"));
        for event in &events {
            self.state.apply(self.at, event);
        }
        events
    }

    fn scope(&mut self, wish: Wish) -> ScopeId {
        let Some(&Event::ScopeCreated { scope, .. }) = self.act(Actor::System, wish).first() else {
            panic!("no scope")
        };
        let quota = Amounts(
            [
                ("gpu_milli", 1 << 40),
                ("jobs", 1 << 40),
                ("vram_mib@class:H100", 1 << 50),
            ]
            .map(|(meter, n)| (meter.parse().expect("a meter"), n))
            .into(),
        );
        self.act(
            Actor::System,
            Wish::SetQuota {
                scope,
                quota,
                revision: None,
            },
        );
        let budgets = vec![Budget {
            period: Period::Month,
            class: None,
            sku: None,
            money_micros: Some(1 << 60),
            gpu_seconds: None,
        }];
        self.act(
            Actor::System,
            Wish::SetBudgets {
                scope,
                budgets,
                revision: None,
            },
        );
        let policy = Policy {
            max_run_time_s: Some(86_400),
            ..Policy::default()
        };
        self.act(
            Actor::System,
            Wish::SetPolicy {
                scope,
                policy,
                revision: None,
            },
        );
        scope
    }

    fn node(&mut self, number: usize, gpus: usize) -> NodeId {
        let digest = Digest([0; 32].map(|_: u8| number as u8));
        let mut key = digest;
        key.0[..8].copy_from_slice(&self.ids.to_le_bytes());
        self.act(
            Actor::System,
            Wish::CreateJoinToken {
                digest: key,
                expires: self.at.plus_ms(60_000),
            },
        );
        let events = self.act(
            Actor::System,
            Wish::JoinNode {
                token: key,
                name: format!("node-{number}"),
                key,
            },
        );
        let Some(&Event::NodeJoined { node, .. }) = events.first() else {
            panic!("no node")
        };
        let isolation = [
            (Isolation::Guarded, "guard".to_owned()),
            (Isolation::Fenced, "broker".to_owned()),
        ];
        let facts = |i| GpuFacts {
            uuid: format!("gpu-{number}-{i}"),
            vendor: "nvidia".into(),
            model: "H100".into(),
            class: "H100".into(),
            vram_mib: 80_000,
            isolation: isolation.clone().into(),
            hardware: None,
        };
        let inventory = Inventory {
            cpu_milli: 256_000,
            memory_mib: 1 << 20,
            gpus: (0..gpus).map(facts).collect(),
            images: Vec::new(),
            volume_mib: 0,
        };
        self.act(Actor::Node(node), Wish::ReportInventory { node, inventory });
        node
    }
}

fn job(gpus: u32) -> Arc<JobSpec> {
    let demand = Demand {
        nodes: 1,
        capped: false,
        gpus,
        compute_permille: if gpus > 0 { 100 } else { 1000 },
        vram_mib: u64::from(gpus) * 4000,
        cpu_milli: 100,
        memory_mib: 64,
        class: (gpus > 0).then(|| "H100".into()),
        model: None,
        region: None,
        isolation: Isolation::Guarded,
    };
    let text =
        serde_json::json!({"name": "rate", "command": ["/bin/true"], "demand": demand, "run_time_s": 600});
    Arc::new(serde_json::from_value(text).expect("a spec"))
}

/// Time this thread was on a core, so that neighbours do not spoil the figure; wall time where that is not told.
fn busy() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let on_core = told.and_then(|text| text.split(' ').next()?.parse().ok());
    on_core.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

/// Submits `count` jobs by users in turn; jobs that started end again, so that the fleet stays free.
fn submissions(rate: &mut Rate, users: &[UserId], spec: &Arc<JobSpec>, count: usize, name: &str) {
    const AT_ONCE: usize = 64;
    let (mut spent, mut started) = (Duration::ZERO, 0);
    for first in (0..count).step_by(AT_ONCE) {
        let mut running = Vec::with_capacity(AT_ONCE);
        let begin = busy();
        for i in first..first + AT_ONCE {
            let owner = users[(i * 7919) % users.len()];
            let wish = Wish::Submit {
                owner,
                spec: spec.clone(),
            };
            if let Some(Event::JobPlaced { allocation, .. }) = rate.act(Actor::user(owner), wish).last() {
                running.push((allocation.node, allocation.id));
            }
        }
        spent += busy() - begin;
        started += running.len();
        for (node, allocation) in running {
            let observation = Observation::Exited {
                exit_code: Some(0),
                signal: None,
                ran_ms: 10,
                by: None,
                usage: None,
            };
            rate.act(
                Actor::Node(node),
                Wish::Observe {
                    node,
                    allocation,
                    observation,
                },
            );
        }
    }
    let decided = count.next_multiple_of(AT_ONCE);
    println!(
        "{name}: {:.0} submissions/s ({decided} decided and applied, {started} started)",
        decided as f64 / spent.as_secs_f64()
    );
}

fn main() {
    let mut rate = Rate {
        state: State::default(),
        at: Time(1_800_000_000_000),
        ids: 1 << 22,
    };
    rate.act(
        Actor::System,
        Wish::Found {
            platform: "cell".into(),
            owner: "root".into(),
            key: Digest([1; 32]),
            prices: Default::default(),
        },
    );
    let mut users = Vec::new();
    for t in 0..10 {
        let tenant = rate.scope(Wish::CreateTenant {
            name: format!("tenant-{t}"),
        });
        for s in 0..10 {
            let parent = rate.scope(Wish::CreateSubscriber {
                tenant,
                name: format!("sub-{s}"),
            });
            for u in 0..100 {
                let wish = Wish::CreateUser {
                    parent,
                    name: format!("user-{u}"),
                    kind: UserKind::Person,
                    identity: None,
                    role: Some(Role::Member),
                };
                if let ScopeId::User(user) = rate.scope(wish) {
                    users.push(user);
                }
            }
        }
    }
    let count = 100_000;
    submissions(&mut rate, &users, &job(0), 20_000, "queued, no node yet");
    let waiting: Vec<_> = rate.state.jobs.keys().copied().collect();
    for job in waiting {
        rate.act(
            Actor::System,
            Wish::Stop {
                job,
                reason: tenure_domain::workload::job::StopReason::Cancelled,
            },
        );
    }
    for nodes in [1, 16, 256, 1024] {
        let have = rate.state.fleet.nodes().count();
        for number in have..nodes {
            rate.node(number, 8);
        }
        submissions(
            &mut rate,
            &users,
            &job(0),
            count.min(2_000_000 / nodes),
            &format!("CPU job, {nodes} nodes"),
        );
        submissions(
            &mut rate,
            &users,
            &job(1),
            count.min(2_000_000 / nodes),
            &format!("GPU slice, {nodes} nodes of 8"),
        );
    }
}
