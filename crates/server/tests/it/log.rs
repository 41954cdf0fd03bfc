//! Kept logs over HTTP: collected from a played node, found, read by those who may and nobody else, and erased.

mod keep;
pub mod node;
mod page;
mod search;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_api::channel::LogStream;
use tenure_domain::command::Observation;
use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_domain::{Actor, Wish};
use tenure_server::log::{Collector, CollectorOptions};
use tokio::task::JoinHandle;

use crate::world::{World, generous};
use node::Played;

/// Two tenants with a user each, and a node both run on.
struct Stage {
    world: World,
    node: Arc<Played>,
    acme: String,
    ada: (String, String),
    cleo: (String, String),
    collecting: Option<JoinHandle<()>>,
}

/// A job that runs.
#[derive(Clone)]
struct Run {
    job: JobId,
    allocation: AllocationId,
    on: NodeId,
}

impl Stage {
    async fn new() -> Stage {
        let node = Arc::new(Played::default());
        let world = World::on(generous(), node.clone()).await;
        let (acme, globex) = (world.tenant("acme").await, world.tenant("globex").await);
        let ada = world.user(&acme, "ada", Some("member")).await;
        let cleo = world.user(&globex, "cleo", Some("member")).await;
        world.node("farm", 64_000).await;
        let mut stage = Stage {
            world,
            node,
            acme,
            ada,
            cleo,
            collecting: None,
        };
        stage.collect();
        stage
    }

    fn collect(&mut self) {
        let options = CollectorOptions {
            every: Duration::from_millis(20),
            questions_per_s: 100_000,
            sweep: Duration::from_secs(3600),
            ..CollectorOptions::default()
        };
        let collector = Collector::new(
            self.world.controller.clone(),
            self.node.clone(),
            self.world.logs.clone(),
            options,
        );
        self.collecting = Some(tokio::spawn(collector.run()));
    }

    /// The server's end, as a crash has it.
    async fn stop_collecting(&mut self) {
        if let Some(collecting) = self.collecting.take() {
            collecting.abort();
            let _ = collecting.await;
        }
    }

    /// Starts a job of somebody's.
    async fn run(&self, who: &(String, String), name: &str, labels: Value) -> Run {
        let spec = json!({ "name": name, "command": ["true"], "labels": labels, "demand": { "cpu_milli": 10, "memory_mib": 1 } });
        let reply = self.world.post(&who.1, "/v1/jobs", json!({ "spec": spec })).await;
        let job: JobId = reply.id().parse().unwrap();
        eventually(async || {
            let state = self.world.controller.view().read();
            let allocation = state.jobs.get(&job)?.sole_allocation()?;
            Some(Run {
                job,
                allocation,
                on: state.fleet.allocation(allocation)?.node,
            })
        })
        .await
    }

    fn says(&self, run: &Run, stream: LogStream, text: impl AsRef<[u8]>) {
        self.node.write(run.allocation, stream, text.as_ref());
    }

    /// The job ends well.
    async fn end(&self, run: &Run) {
        self.node.end(run.allocation);
        let wish = Wish::Observe {
            node: run.on,
            allocation: run.allocation,
            observation: Observation::Exited {
                exit_code: Some(0),
                signal: None,
                ran_ms: 1000,
                by: None,
                usage: None,
            },
        };
        let by = Actor::Node(run.on);
        self.world.controller.submit(by, wish, None, None).await.unwrap();
    }

    /// All lines that fit, page by page.
    async fn find(&self, key: &str, query: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let mut cursor = String::new();
        loop {
            let reply = self
                .world
                .get(key, &format!("/v1/logs?limit=7&{query}{cursor}"))
                .await;
            assert_eq!(reply.status, 200, "{query}: {reply:?}");
            let page = reply.json();
            all.extend(page["items"].as_array().unwrap().clone());
            if page["more"] == false {
                return all;
            }
            cursor = format!("&cursor={}", page["next"].as_str().unwrap());
        }
    }

    async fn texts(&self, key: &str, query: &str) -> Vec<String> {
        let found = self.find(key, query).await;
        found
            .iter()
            .map(|line| line["text"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Waits until so many lines are kept that somebody may read.
    async fn kept(&self, key: &str, query: &str, count: usize) {
        eventually(async || (self.find(key, query).await.len() >= count).then_some(())).await;
    }

    async fn log(&self, key: &str, job: JobId) -> (u16, String) {
        let reply = self.world.get(key, &format!("/v1/jobs/{job}/logs")).await;
        (
            reply.status.as_u16(),
            String::from_utf8_lossy(&reply.bytes).into_owned(),
        )
    }
}

async fn eventually<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = ask().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come about");
}

fn is_each_once(texts: &[String]) -> bool {
    let once: BTreeSet<&String> = texts.iter().collect();
    once.len() == texts.len()
}
