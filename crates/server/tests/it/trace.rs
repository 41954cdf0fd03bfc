//! Jobs as traces in a collector of the test's own: what is told of them, to whom they belong, and that nobody waits for it.

mod collector;
mod farm;
mod lasting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value as Json, json};
use tenure_api::channel::{AllocationReport, Order, RunState, StartStep, Took};
use tenure_domain::command::Observation;
use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_domain::workload::job::StopReason;
use tenure_domain::{Actor, Wish};
use tenure_engine::Seen;
use tenure_server::reconcile::Reconciler;
use tenure_server::trace::TraceOptions;
use tokio::sync::mpsc;

use crate::world::World;
use collector::{Collector, Span, Value};
use farm::Farm;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
/// Words of what a job runs, which are nobody's but its own.
const PRIVATE: [&str; 3] = ["hush-program", "hush-argument", "hush-value"];

fn options(collector: &Collector) -> TraceOptions {
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
struct Stage {
    world: World,
    farm: Arc<Farm>,
    node: NodeId,
    key: String,
    says: mpsc::Sender<Seen>,
    reconciling: tokio::task::JoinHandle<()>,
}

impl Stage {
    async fn new(options: TraceOptions) -> Stage {
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
    async fn again(mut self, crash: bool) -> Stage {
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

    async fn submit_within(&self, spec: &Json, parents: &[&str]) -> String {
        let mut request = self.world.request(Method::POST, "/v1/jobs", Some(&self.key));
        for parent in parents {
            request = request.header("traceparent", *parent);
        }
        let reply = self.world.send(request.json(&json!({ "spec": spec }))).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.id()
    }

    async fn submit(&self, spec: &Json) -> String {
        self.submit_within(spec, &[]).await
    }

    async fn order(&self, job: &str, attempt: u32) -> (NodeId, Order) {
        for _ in 0..6000 {
            if let Some(order) = self.farm.order(job, attempt) {
                return order;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("no order came");
    }

    async fn says(&self, allocation: AllocationId, state: RunState) {
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
    async fn run(&self, job: &str) -> Order {
        let (_, order) = self.order(job, 1).await;
        self.says(order.allocation, RunState::Starting).await;
        self.says(order.allocation, RunState::Running).await;
        self.phase(job, "running").await;
        order
    }

    async fn end(&self, allocation: AllocationId, exit_code: i32) {
        let exited = RunState::Exited {
            exit_code: Some(exit_code),
            signal: None,
            by: None,
        };
        self.says(allocation, exited).await;
    }

    async fn phase(&self, job: &str, phase: &str) -> Json {
        for _ in 0..6000 {
            let shown = self.world.get(&self.key, &format!("/v1/jobs/{job}")).await.json();
            if shown["phase"] == phase {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it is never {phase}");
    }

    async fn figure(&self, line: &str) -> u64 {
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

fn reconcile(world: &World, farm: &Arc<Farm>) -> (mpsc::Sender<Seen>, tokio::task::JoinHandle<()>) {
    let (says, seen) = mpsc::channel(64);
    let term = Duration::from_secs(600);
    let reconciler = Reconciler::new(world.controller.clone(), farm.clone(), world.keyring(), term);
    (says, tokio::spawn(reconciler.run(seen)))
}

fn spec(name: &str) -> Json {
    json!({
        "name": name,
        "command": [PRIVATE[0], PRIVATE[1]],
        "env": { "HUSH": PRIVATE[2] },
        "demand": { "gpus": 1, "compute_permille": 500, "vram_mib": 1024, "cpu_milli": 10, "memory_mib": 16 },
    })
}

/// The whole of the GPU, so that one waits for the other.
fn whole(name: &str) -> Json {
    let mut spec = spec(name);
    spec["demand"] = json!({ "gpus": 1, "cpu_milli": 10, "memory_mib": 16 });
    spec
}

fn one<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut of = spans.iter().filter(|span| span.name == name);
    let (first, more) = (of.next(), of.count());
    assert_eq!(more, 0, "{name} is there more than once: {spans:#?}");
    first.unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
}

/// One trace, each parent there but the caller's, and nothing outside its parent's time.
#[track_caller]
fn is_whole(spans: &[Span], caller: Option<&str>) {
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

fn under<'a>(spans: &'a [Span], name: &str) -> BTreeSet<&'a str> {
    let parent = &one(spans, name).id;
    let below = spans.iter().filter(|span| span.parent.as_ref() == Some(parent));
    below.map(|span| span.name.as_str()).collect()
}

fn traceparent(order: &Order) -> Option<&str> {
    let mut of = order.env.iter().filter(|(name, _)| name == "TRACEPARENT");
    let value = of.next().map(|(_, value)| value.as_str());
    assert_eq!(of.count(), 0, "said once");
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_one_trace_from_the_request_that_submitted_it_to_its_end() {
    let collector = Collector::new().await;
    let stage = Stage::new(options(&collector)).await;
    let job = stage.submit(&spec("train")).await;
    let (_, order) = stage.order(&job, 1).await;
    let took = |step, ended_ago_us, took_us| Took {
        step,
        ended_ago_us,
        took_us,
    };
    stage.says(order.allocation, RunState::Starting).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    let steps = vec![
        // A clock that is wrong by far begins nothing before it was asked for.
        took(StartStep::Image, 20_000, 900_000_000),
        took(StartStep::Devices, 9_000, 4_000),
        took(StartStep::Worker, 10_000, 2_000),
        took(StartStep::Sandbox, 2_000, 6_000),
        took(StartStep::Exec, 500, 1_500),
    ];
    let seen = Seen::Started {
        node: stage.node,
        allocation: order.allocation,
        steps,
    };
    stage.says.send(seen).await.unwrap();
    stage.says(order.allocation, RunState::Running).await;
    let shown = stage.phase(&job, "running").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    stage.end(order.allocation, 0).await;
    let spans = collector.job(&job).await;
    is_whole(&spans, None);
    assert_eq!(shown["trace_id"], spans[0].trace.as_str());
    assert_eq!(
        stage.phase(&job, "done").await["trace_id"],
        spans[0].trace.as_str(),
        "still, when it is done"
    );
    assert_eq!(
        under(&spans, "job"),
        BTreeSet::from(["POST /v1/jobs", "queued", "attempt"])
    );
    assert_eq!(under(&spans, "attempt"), BTreeSet::from(["starting", "running"]));
    assert_eq!(
        under(&spans, "starting"),
        BTreeSet::from(["order", "image", "devices", "worker", "sandbox", "exec"])
    );
    let request = one(&spans, "POST /v1/jobs");
    assert_eq!(request.kind, 2, "a server's");
    assert_eq!(request.number("http.response.status_code"), 201);
    assert_eq!(request.text("http.route"), "/v1/jobs");
    let whole = one(&spans, "job");
    for (key, value) in [
        ("tenure.job.name", "train"),
        ("tenure.job.kind", "batch"),
        ("tenure.tenant", "acme"),
        ("tenure.outcome", "succeeded"),
    ] {
        assert_eq!(whole.text(key), value);
    }
    assert_eq!((whole.number("process.exit.code"), &whole.error), (0, &None));
    let attempt = one(&spans, "attempt");
    for (key, value) in [
        ("tenure.node", "farm-1"),
        ("tenure.gpu.class", "H100"),
        ("tenure.isolation", "guarded"),
    ] {
        assert_eq!(attempt.text(key), value);
    }
    assert_eq!(attempt.number("tenure.gpu.compute_permille"), 500);
    assert_eq!(one(&spans, "image").began, one(&spans, "starting").began);
    let (starting, running) = (one(&spans, "starting"), one(&spans, "running"));
    assert!(starting.has("received by node"));
    assert_eq!(starting.ended, running.began);
    assert!(running.ended - running.began >= 20_000_000);
    assert_eq!(one(&spans, "exec").ended - one(&spans, "exec").began, 1_500_000);

    // The job's own process is told where it belongs.
    let told = format!("00-{}-{}-01", attempt.trace, attempt.id);
    assert_eq!(traceparent(&order), Some(told.as_str()));

    // Nothing of what it runs went out, and who says it is told.
    for body in collector.bodies() {
        let text = String::from_utf8(body).unwrap();
        assert!(PRIVATE.iter().all(|word| !text.contains(word)), "{text}");
    }
    let resource = collector.resource();
    assert_eq!(resource["service.name"], Value::Text("tenure".into()));
    assert_eq!(resource["host.name"], Value::Text("host".into()));
    assert!(stage.figure("tenure_trace_spans_total{result=\"sent\"} ").await >= 11);
    assert_eq!(
        stage
            .figure("tenure_trace_spans_total{result=\"dropped\"} ")
            .await,
        0
    );
    stage.world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_trace_is_gone_on_with_and_nonsense_is_ignored() {
    let collector = Collector::new().await;
    let stage = Stage::new(options(&collector)).await;
    let caller = format!("00-{TRACE}-{CALLER}-01");
    let job = stage.submit_within(&spec("child"), &[&caller]).await;
    let order = stage.run(&job).await;
    stage.end(order.allocation, 3).await;
    let spans = collector.job(&job).await;
    is_whole(&spans, Some(CALLER));
    assert!(spans.iter().all(|span| span.trace == TRACE));
    let attempt = one(&spans, "attempt");
    assert_eq!(
        traceparent(&order),
        Some(&*format!("00-{TRACE}-{}-01", attempt.id))
    );
    for span in [one(&spans, "job"), attempt] {
        assert_eq!(span.text("tenure.outcome"), "failed");
        assert_eq!(span.text("error.type"), "failed");
        assert_eq!(span.number("process.exit.code"), 3);
        assert_eq!(span.error.as_deref(), Some("it ended with exit code 3"));
    }

    let long = format!("cc-{TRACE}-{CALLER}-01-{}", "x".repeat(300));
    let nonsense: [&[&str]; 7] = [
        &["nonsense"],
        &["00-00000000000000000000000000000000-00f067aa0ba902b7-01"],
        &["00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"],
        &["ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
        &[long.as_str()],
        &[""],
        &[caller.as_str(), caller.as_str()],
    ];
    let mut traces = BTreeSet::new();
    for parents in nonsense {
        let job = stage.submit_within(&spec("own"), parents).await;
        let shown = stage
            .world
            .get(&stage.key, &format!("/v1/jobs/{job}"))
            .await
            .json();
        let trace = shown["trace_id"].as_str().unwrap().to_owned();
        assert_ne!(trace, TRACE, "{parents:?}");
        let (_, order) = stage.order(&job, 1).await;
        assert!(traceparent(&order).unwrap().starts_with(&format!("00-{trace}-")));
        traces.insert(trace);
        stage.says(order.allocation, RunState::Running).await;
        stage.phase(&job, "running").await;
        stage.end(order.allocation, 0).await;
        is_whole(&collector.job(&job).await, None);
    }
    assert_eq!(traces.len(), 7, "each its own");

    // A caller that is not to be told of has its way, and its job hears of it as it was.
    let silent = format!("00-{TRACE}-{CALLER}-00");
    let job = stage.submit_within(&spec("silent"), &[&silent]).await;
    let order = stage.run(&job).await;
    assert_eq!(traceparent(&order), Some(silent.as_str()));
    stage.end(order.allocation, 0).await;
    stage.phase(&job, "done").await;
    let last = stage.submit(&spec("last")).await;
    let order = stage.run(&last).await;
    stage.end(order.allocation, 0).await;
    collector.job(&last).await;
    let of_silent = Value::Text(job);
    let told = collector.spans();
    assert!(
        told.iter()
            .all(|span| span.attributes.get("tenure.job.id") != Some(&of_silent))
    );
    stage.world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_a_job_has_its_callers_trace_or_none() {
    let farm = Arc::new(Farm::default());
    let world = World::on(crate::world::generous(), farm.clone()).await;
    let tenant = world.tenant("acme").await;
    let (_, key) = world.user(&tenant, "ada", Some("member")).await;
    world.node("farm", 8000).await;
    let (_says, reconciling) = reconcile(&world, &farm);
    let caller = format!("00-{TRACE}-{CALLER}-01");
    for parent in [None, Some(caller.as_str())] {
        let mut request = world.request(Method::POST, "/v1/jobs", Some(&key));
        if let Some(parent) = parent {
            request = request.header("traceparent", parent);
        }
        let body = json!({ "spec": { "name": "plain", "command": ["true"] } });
        let job = world.send(request.json(&body)).await.id();
        let shown = world.get(&key, &format!("/v1/jobs/{job}")).await.json();
        assert_eq!(shown["trace_id"].as_str(), parent.map(|_| TRACE));
        let begun = std::time::Instant::now();
        let (_, order) = loop {
            if let Some(order) = farm.order(&job, 1) {
                break order;
            }
            assert!(begun.elapsed() < Duration::from_secs(60));
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert_eq!(traceparent(&order), parent);
    }
    // The variable is Tenure's own.
    for of in ["env", "secrets"] {
        let body = json!({ "spec": { "name": "j", "command": ["true"], (of): { "TRACEPARENT": "mine" } } });
        let refused = world.post(&key, "/v1/jobs", body).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (422, "invalid_field"),
            "{refused:?}"
        );
    }
    reconciling.abort();
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_says_for_what_and_each_attempt_stands_beside_the_other() {
    let collector = Collector::new().await;
    let stage = Stage::new(options(&collector)).await;
    let first = stage.submit(&whole("first")).await;
    let order = stage.run(&first).await;
    let second = stage.submit(&whole("second")).await;
    // It is asked what for.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    // The first gives way, and goes back behind the second.
    let stop = Wish::Stop {
        job: first.parse().unwrap(),
        reason: StopReason::Evicted,
    };
    stage
        .world
        .controller
        .submit(Actor::System, stop, None, None)
        .await
        .unwrap();
    let gone = RunState::Exited {
        exit_code: None,
        signal: None,
        by: Some(StopReason::Evicted),
    };
    stage.says(order.allocation, gone).await;
    // Whoever is placed first runs first.
    let mut left = BTreeSet::from([first.clone(), second.clone()]);
    while !left.is_empty() {
        for job in left.clone() {
            let attempt = if job == first { 2 } else { 1 };
            let Some((_, order)) = stage.farm.order(&job, attempt) else {
                continue;
            };
            stage.says(order.allocation, RunState::Running).await;
            stage.phase(&job, "running").await;
            stage.end(order.allocation, 0).await;
            stage.phase(&job, "done").await;
            left.remove(&job);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let spans = collector.job(&second).await;
    is_whole(&spans, None);
    let queued = one(&spans, "queued");
    assert_eq!(queued.text("tenure.waiting.code"), "no_capacity");
    assert!(queued.has("waiting") && !queued.text("tenure.waiting.reason").is_empty());

    let spans = collector.job(&first).await;
    is_whole(&spans, None);
    let attempts: Vec<&Span> = spans.iter().filter(|span| span.name == "attempt").collect();
    assert_eq!(attempts.len(), 2);
    let numbers: Vec<i64> = attempts
        .iter()
        .map(|span| span.number("tenure.attempt"))
        .collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(attempts[0].text("tenure.attempt.result"), "gave_way");
    assert!(attempts[0].has("evicted") && attempts[0].error.is_none());
    assert_eq!(one(&spans, "stopping").text("tenure.stop.reason"), "evicted");
    assert_eq!(spans.iter().filter(|span| span.name == "queued").count(), 2);
    assert_eq!(one(&spans, "job").number("tenure.attempts"), 2);

    // One that is lost is an error of its attempt, and of no other.
    let third = stage.submit(&whole("third")).await;
    let order = stage.run(&third).await;
    let vanished = Wish::Observe {
        node: stage.node,
        allocation: order.allocation,
        observation: Observation::Vanished,
    };
    let by = Actor::Node(stage.node);
    stage
        .world
        .controller
        .submit(by, vanished, None, None)
        .await
        .unwrap();
    let (_, order) = stage.order(&third, 2).await;
    stage.says(order.allocation, RunState::Running).await;
    stage.end(order.allocation, 0).await;
    let spans = collector.job(&third).await;
    is_whole(&spans, None);
    let errors: Vec<(&str, i64)> = spans
        .iter()
        .filter(|span| span.error.is_some() && span.name != "running")
        .map(|span| (span.name.as_str(), span.number("tenure.attempt")))
        .collect();
    assert_eq!(errors, [("attempt", 1)]);
    stage.world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_told_of_each_and_tasks_are_linked_to_their_job() {
    let collector = Collector::new().await;
    let stage = Stage::new(options(&collector)).await;
    stage.world.gpu("farm-2").await;
    let mut gang = whole("gang");
    gang["demand"]["nodes"] = json!(2);
    let job = stage.submit(&gang).await;
    stage.order(&job, 1).await;
    let id: JobId = job.parse().unwrap();
    let members: Vec<(AllocationId, NodeId)> = {
        let state = stage.world.controller.view().read();
        let members = state.jobs.get(&id).unwrap().members.iter();
        members.map(|member| (member.allocation, member.node)).collect()
    };
    for exit in [false, true] {
        for (allocation, node) in &members {
            let observation = match exit {
                false => Observation::Running,
                true => Observation::Exited {
                    exit_code: Some(0),
                    signal: None,
                    ran_ms: 5,
                    by: None,
                    usage: None,
                },
            };
            let wish = Wish::Observe {
                node: *node,
                allocation: *allocation,
                observation,
            };
            let by = Actor::Node(*node);
            stage.world.controller.submit(by, wish, None, None).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let spans = collector.job(&job).await;
    is_whole(&spans, None);
    let mut of: Vec<(&str, i64)> = spans
        .iter()
        .filter(|span| span.name == "member")
        .map(|span| (span.text("tenure.node"), span.number("tenure.member")))
        .collect();
    of.sort_unstable_by_key(|(_, member)| *member);
    let nodes: BTreeSet<&str> = of.iter().map(|(node, _)| *node).collect();
    assert_eq!((of.len(), nodes.len()), (2, 2), "{of:?}");
    let Some(Value::Texts(all)) = one(&spans, "attempt").attributes.get("tenure.nodes") else {
        panic!("no nodes")
    };
    assert_eq!(all.len(), 2);

    let frames = json!({
        "name": "film", "command": ["true"],
        "workload": { "rendering": { "frames": "1-2", "each_ms": 1000 } },
        "tasks": { "parallel": 2, "per_task": 1 },
        "demand": { "cpu_milli": 10, "memory_mib": 16 },
    });
    let parent = stage
        .submit_within(&frames, &[&format!("00-{TRACE}-{CALLER}-01")])
        .await;
    let id: JobId = parent.parse().unwrap();
    for _ in 0..4000 {
        let placed: Vec<(AllocationId, NodeId)> = {
            let state = stage.world.controller.view().read();
            let Some(job) = state.jobs.get(&id) else { break };
            let tasks = job.tasks.as_ref().unwrap().jobs(&state.jobs);
            let members = tasks.flat_map(|task| task.members.iter());
            members.map(|member| (member.allocation, member.node)).collect()
        };
        for (allocation, node) in placed {
            for observation in [
                Observation::Running,
                Observation::Exited {
                    exit_code: Some(0),
                    signal: None,
                    ran_ms: 5,
                    by: None,
                    usage: None,
                },
            ] {
                let wish = Wish::Observe {
                    node,
                    allocation,
                    observation,
                };
                let by = Actor::Node(node);
                let _ = stage.world.controller.submit(by, wish, None, None).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let spans = collector.job(&parent).await;
    is_whole(&spans, Some(CALLER));
    let whole = one(&spans, "job");
    assert_eq!(
        under(&spans, "job"),
        BTreeSet::from(["POST /v1/jobs", "queued", "running"])
    );
    let of = Value::Text(parent.clone());
    let all = collector
        .until(|spans| {
            let tasks = spans
                .iter()
                .filter(|span| span.attributes.get("tenure.task.of") == Some(&of));
            tasks.count() == 2
        })
        .await;
    let tasks: Vec<&Span> = all
        .iter()
        .filter(|span| span.attributes.get("tenure.task.of") == Some(&of))
        .collect();
    let traces: BTreeSet<&str> = tasks.iter().map(|task| task.trace.as_str()).collect();
    assert!(traces.len() == 2 && !traces.contains(TRACE), "each in its own");
    for task in tasks {
        assert_eq!((task.name.as_str(), &task.parent), ("job", &None));
        assert_eq!(task.links, [(TRACE.to_owned(), whole.id.clone())]);
    }
    stage.world.end().await;
}
