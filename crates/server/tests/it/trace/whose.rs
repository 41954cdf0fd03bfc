//! Whose trace a job belongs to, and what its own process is told of that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tenure_api::channel::RunState;

use super::collector::{Collector, Value};
use super::farm::Farm;
use super::stage::{Stage, is_whole, one, options, reconcile, spec, traceparent};
use super::{CALLER, TRACE};
use crate::world::World;

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
