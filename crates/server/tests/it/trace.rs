//! Jobs as traces in a collector of the test's own: what is told of them, to whom they belong, and that nobody waits for it.

mod attempt;
mod collector;
mod farm;
mod lasting;
mod stage;
mod whose;

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_api::channel::{RunState, StartStep, Took};
use tenure_engine::Seen;

use collector::{Collector, Value};
use stage::{PRIVATE, Stage, is_whole, one, options, spec, traceparent, under};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

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
