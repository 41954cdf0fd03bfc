//! The conformance suite over the hub and a scripted agent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure_api::channel::{AllocationReport, FromAgent, Order, RunState};
use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_domain::workload::spec::Isolation;
use tenure_engine::conformance::{self, Fixture, Watcher, Work};
use tenure_engine::local::HubConfig;
use tenure_engine::{Engine, Seen};

use crate::fake::{self, Memory};
use crate::wire::House;

struct Scripted {
    house: Arc<House>,
    node: NodeId,
    memory: Arc<Mutex<Memory>>,
    next: AtomicU64,
}

#[async_trait]
impl Fixture for Scripted {
    fn engine(&self) -> &dyn Engine {
        &self.house.hub
    }

    fn node(&self) -> NodeId {
        self.node
    }

    fn fresh(&self) -> AllocationId {
        AllocationId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn order(&self, allocation: AllocationId, work: Work) -> Order {
        Order {
            allocation,
            job: JobId(1),
            name: "job".into(),
            tenant: "t".into(),
            attempt: 1,
            command: vec![if work == Work::Long {
                "long".into()
            } else {
                "short".into()
            }],
            env: vec![],
            secrets: vec![],
            workdir: None,
            image: None,
            volumes: vec![],
            devices: vec![],
            cpu_milli: 1,
            memory_mib: 1,
            isolation: Isolation::Guarded,
            network: Default::default(),
            run_time_s: 60,
            grace_s: 1,
            stdin: false,
            tty: false,
        }
    }

    async fn runs(&self, allocation: AllocationId) -> u32 {
        self.memory
            .lock()
            .unwrap()
            .runs
            .get(&allocation)
            .copied()
            .unwrap_or(0)
    }

    async fn interrupt(&self) {
        self.house.hub.disconnect(self.node, "for a test");
    }
}

async fn scripted() -> (Scripted, tokio::task::JoinHandle<()>) {
    let config = HubConfig {
        term: Duration::from_secs(60),
        ..HubConfig::default()
    };
    let house = Arc::new(House::with(config).await);
    let card = house.node(1).await;
    let node = card.node;
    let memory = Arc::new(Mutex::new(Memory::default()));
    let agent = tokio::spawn(fake::live(house.clone(), card, memory.clone()));
    (
        Scripted {
            house,
            node,
            memory,
            next: AtomicU64::new(1),
        },
        agent,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_keeps_every_promise() {
    let (fixture, agent) = scripted().await;
    conformance::all(&fixture).await;
    agent.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_of_unknown_allocations_and_late_ones_are_passed_on() {
    let house = House::new().await;
    let card = house.node(1).await;
    let mut watcher = Watcher::of(&house.hub);
    let mut wire = house.wire(&card).await;
    wire.open().await;
    watcher.whole(card.node).await;
    let foreign = AllocationReport {
        allocation: AllocationId(404),
        ran_ms: 5,
        state: RunState::Running,
        usage: None,
        saved_ago_ms: None,
        kept: None,
        conduct: None,
    };
    for _ in 0..2 {
        wire.say(&FromAgent::Report {
            whole: false,
            more: false,
            allocations: vec![foreign.clone()],
        })
        .await;
        let seen = watcher.until(|seen| match seen {
            Seen::Report {
                allocations,
                whole: false,
                ..
            } => Some(allocations.clone()),
            _ => None,
        });
        assert_eq!(
            seen.await,
            std::slice::from_ref(&foreign),
            "judging it is the server's"
        );
    }
}
