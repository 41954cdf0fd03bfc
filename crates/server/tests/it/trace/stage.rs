//! A platform that tells of its jobs, with a node that does what it is told to; and what a trace has to be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value as Json, json};
use tenure_api::channel::{AllocationReport, Order, RunState};
use tenure_domain::id::{AllocationId, NodeId};
use tenure_engine::Seen;
use tenure_server::reconcile::Reconciler;
use tenure_server::trace::TraceOptions;
use tokio::sync::mpsc;

use super::collector::{Collector, Span};
use super::farm::Farm;
use crate::world::World;

/// Words of what a job runs, which are nobody's but its own.
pub const PRIVATE: [&str; 3] = ["hush-program", "hush-argument", "hush-value"];

pub fn options(collector: &Collector) -> TraceOptions {
    TraceOptions {
        delay: Duration::from_millis(20),
        look: Duration::from_millis(30),
        first_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(100),
        time_limit: Duration::from_millis(1500),
        patience: Duration::from_secs(20),
        ..TraceOptions::read(Some(&collector.url()), |_| None)
            .unwrap()
            .unwrap()
    }
}

/// A platform with a tenant, a user, a node that does what it is told to, and a collector.
pub struct Stage {
    pub world: World,
    pub farm: Arc<Farm>,
    pub node: NodeId,
    pub key: String,
    pub says: mpsc::Sender<Seen>,
    reconciling: tokio::task::JoinHandle<()>,
}

impl Stage {
    pub async fn new(options: TraceOptions) -> Stage {
        let farm = Arc::new(Farm::default());
        let world = World::traced(options, farm.clone()).await;
        let tenant = world.tenant("acme").await;
        let (_, key) = world.user(&tenant, "ada", Some("member")).await;
        let gpu = world.gpu("farm-1").await;
        let node = {
            let state = world.controller.view().read();
            let with = |node: &&tenure_domain::schedule::fleet::Node| node.gpu(gpu).is_some();
            state.fleet.nodes().find(with).unwrap().id
        };
        let (says, reconciling) = reconcile(&world, &farm);
        Stage {
            world,
            farm,
            node,
            key,
            says,
            reconciling,
        }
    }

    /// Ends it, as a crash does or in peace, and begins again on what it left.
    pub async fn again(mut self, crash: bool) -> Stage {
        self.reconciling.abort();
        if crash {
            self.world.break_telling();
        }
        let farm = Arc::new(Farm::default());
        let world = self.world.again_on(crate::world::generous(), farm.clone()).await;
        let (says, reconciling) = reconcile(&world, &farm);
        Stage {
            world,
            farm,
            says,
            reconciling,
            ..self
        }
    }

    pub async fn submit_within(&self, spec: &Json, parents: &[&str]) -> String {
        let mut request = self.world.request(Method::POST, "/v1/jobs", Some(&self.key));
        for parent in parents {
            request = request.header("traceparent", *parent);
        }
        let reply = self.world.send(request.json(&json!({ "spec": spec }))).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.id()
    }

    pub async fn submit(&self, spec: &Json) -> String {
        self.submit_within(spec, &[]).await
    }

    pub async fn order(&self, job: &str, attempt: u32) -> (NodeId, Order) {
        for _ in 0..6000 {
            if let Some(order) = self.farm.order(job, attempt) {
                return order;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("no order came");
    }

    pub async fn says(&self, allocation: AllocationId, state: RunState) {
        let report = AllocationReport {
            allocation,
            ran_ms: 40,
            state,
            kept: None,
            usage: None,
            saved_ago_ms: None,
            conduct: None,
        };
        let seen = Seen::Report {
            node: self.node,
            whole: false,
            allocations: vec![report],
        };
        self.says.send(seen).await.unwrap();
    }

    /// Goes with a job from its order to its running, as its node.
    pub async fn run(&self, job: &str) -> Order {
        let (_, order) = self.order(job, 1).await;
        self.says(order.allocation, RunState::Starting).await;
        self.says(order.allocation, RunState::Running).await;
        self.phase(job, "running").await;
        order
    }

    pub async fn end(&self, allocation: AllocationId, exit_code: i32) {
        let exited = RunState::Exited {
            exit_code: Some(exit_code),
            signal: None,
            by: None,
        };
        self.says(allocation, exited).await;
    }

    pub async fn phase(&self, job: &str, phase: &str) -> Json {
        for _ in 0..6000 {
            let shown = self.world.get(&self.key, &format!("/v1/jobs/{job}")).await.json();
            if shown["phase"] == phase {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it is never {phase}");
    }

    pub async fn figure(&self, line: &str) -> u64 {
        let page = self.world.get(&self.world.owner, "/metrics").await;
        let page = String::from_utf8(page.bytes).unwrap();
        let found = page.lines().find_map(|known| known.strip_prefix(line));
        found
            .unwrap_or_else(|| panic!("{line} is not in {page}"))
            .trim()
            .parse()
            .unwrap()
    }
}

pub fn reconcile(world: &World, farm: &Arc<Farm>) -> (mpsc::Sender<Seen>, tokio::task::JoinHandle<()>) {
    let (says, seen) = mpsc::channel(64);
    let term = Duration::from_secs(600);
    let reconciler = Reconciler::new(world.controller.clone(), farm.clone(), world.keyring(), term);
    (says, tokio::spawn(reconciler.run(seen)))
}

pub fn spec(name: &str) -> Json {
    json!({
        "name": name,
        "command": [PRIVATE[0], PRIVATE[1]],
        "env": { "HUSH": PRIVATE[2] },
        "demand": { "gpus": 1, "compute_permille": 500, "vram_mib": 1024, "cpu_milli": 10, "memory_mib": 16 },
    })
}

/// The whole of the GPU, so that one waits for the other.
pub fn whole(name: &str) -> Json {
    let mut spec = spec(name);
    spec["demand"] = json!({ "gpus": 1, "cpu_milli": 10, "memory_mib": 16 });
    spec
}

pub fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut of = spans.iter().filter(|span| span.name == name);
    let (first, more) = (of.next(), of.count());
    assert_eq!(more, 0, "{name} is there more than once: {spans:#?}");
    first.unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
}

/// One trace, each parent there but the caller's, and nothing outside its parent's time.
#[track_caller]
pub fn is_whole(spans: &[Span], caller: Option<&str>) {
    let traces: BTreeSet<&str> = spans.iter().map(|span| span.trace.as_str()).collect();
    assert_eq!(traces.len(), 1, "{spans:#?}");
    let by_id: BTreeMap<&str, &Span> = spans.iter().map(|span| (span.id.as_str(), span)).collect();
    assert_eq!(by_id.len(), spans.len(), "an id is one span's: {spans:#?}");
    for span in spans {
        if span.name == "job" {
            assert_eq!(span.parent.as_deref(), caller);
            assert_eq!(span.remote, caller.is_some());
            continue;
        }
        let parent = span.parent.as_deref().and_then(|parent| by_id.get(parent));
        let parent = parent.unwrap_or_else(|| panic!("{} has no parent", span.name));
        assert!(!span.remote);
        assert!(
            parent.began <= span.began && span.ended <= parent.ended,
            "{} ({}..{}) is not within {} ({}..{})",
            span.name,
            span.began,
            span.ended,
            parent.name,
            parent.began,
            parent.ended
        );
    }
}

pub fn under<'a>(spans: &'a [Span], name: &str) -> BTreeSet<&'a str> {
    let parent = &one(spans, name).id;
    let below = spans.iter().filter(|span| span.parent.as_ref() == Some(parent));
    below.map(|span| span.name.as_str()).collect()
}

pub fn traceparent(order: &Order) -> Option<&str> {
    let mut of = order.env.iter().filter(|(name, _)| name == "TRACEPARENT");
    let value = of.next().map(|(_, value)| value.as_str());
    assert_eq!(of.count(), 0, "said once");
    value
}
