//! Traces while things go wrong: the collector is away or says no, the server ends in the middle, words are hostile.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tenure_api::channel::RunState;
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Actor, Wish};

use super::collector::{Answer, Collector, Span};
use super::stage::{Stage, is_whole, one, options, spec, whole};

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_holds_up_nobody_and_what_has_no_room_is_counted() {
    let gone = Collector::new().await;
    let mut settings = options(&gone);
    // Nobody listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    settings.endpoint.set_port(Some(port)).unwrap();
    settings.max_bytes = 24 * 1024;
    let stage = Stage::new(settings).await;
    let begun = Instant::now();
    let first = stage.submit(&whole("first")).await;
    let order = stage.run(&first).await;
    let mut last = String::new();
    for number in 0..60 {
        // None fits beside the first: they wait, and are cancelled.
        last = stage.submit(&whole(&format!("job-{number}"))).await;
        let stop = format!("/v1/jobs/{last}/stop");
        assert_eq!(stage.world.post(&stage.key, &stop, json!({})).await.status, 200);
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?} for 60 jobs");
    let dropped = || stage.figure("tenure_trace_spans_total{result=\"dropped\"} ");
    for _ in 0..2000 {
        if dropped().await > 40 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(dropped().await > 40);
    assert_eq!(
        stage.figure("tenure_trace_spans_total{result=\"sent\"} ").await,
        0
    );
    assert!(
        stage
            .figure("tenure_trace_requests_total{result=\"failed\"} ")
            .await
            > 0
    );
    // It comes: the last are there still, no more of them than there was room for, and what follows is whole.
    let collector = Collector::at(port).await;
    collector.job(&last).await;
    let first = collector.spans().len();
    assert!(
        first < 60,
        "{first} spans of at least 300 bytes were kept in 24 KiB"
    );
    stage.end(order.allocation, 0).await;
    let job = stage.submit(&spec("after")).await;
    let order = stage.run(&job).await;
    stage.end(order.allocation, 0).await;
    is_whole(&collector.job(&job).await, None);
    stage.world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_taken_now_is_sent_again_and_what_is_refused_is_not() {
    let collector = Collector::new().await;
    let mut settings = options(&collector);
    settings.gzip = true;
    settings
        .headers
        .insert("authorization", "Bearer word".parse().unwrap());
    let stage = Stage::new(settings).await;
    collector.answers([
        Answer::Status(503),
        Answer::Status(502),
        Answer::Status(504),
        Answer::Later(429, 1),
        Answer::Never,
    ]);
    let begun = Instant::now();
    let job = stage.submit(&spec("again")).await;
    let order = stage.run(&job).await;
    stage.end(order.allocation, 0).await;
    let spans = collector.job(&job).await;
    is_whole(&spans, None);
    assert!(
        begun.elapsed() >= Duration::from_millis(2500),
        "a second was asked for, and a time-out took its time"
    );
    assert!(collector.asked() >= 6);
    assert_eq!(collector.headers()["authorization"], "Bearer word");
    assert_eq!(
        stage
            .figure("tenure_trace_requests_total{result=\"failed\"} ")
            .await,
        5
    );

    // What it will never take is dropped, told of, and nothing waits behind it.
    let sent = stage.figure("tenure_trace_spans_total{result=\"sent\"} ").await;
    collector.always(Some(Answer::Status(400)));
    let job = stage.submit(&spec("refused")).await;
    let order = stage.run(&job).await;
    stage.end(order.allocation, 0).await;
    for _ in 0..2000 {
        if stage
            .figure("tenure_trace_spans_total{result=\"rejected\"} ")
            .await
            >= 7
        {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let rejected = stage
        .figure("tenure_trace_spans_total{result=\"rejected\"} ")
        .await;
    assert!(rejected >= 7, "{rejected}");
    assert_eq!(
        stage.figure("tenure_trace_spans_total{result=\"sent\"} ").await,
        sent
    );
    collector.always(Some(Answer::Partial(1)));
    let job = stage.submit(&spec("partly")).await;
    let order = stage.run(&job).await;
    stage.end(order.allocation, 0).await;
    collector.job(&job).await;
    for _ in 0..2000 {
        if stage
            .figure("tenure_trace_spans_total{result=\"rejected\"} ")
            .await
            > rejected
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("what it did not want is not counted");
}

/// Doubles are the same span, to the word.
fn once(spans: Vec<Span>) -> Vec<Span> {
    let mut by_id: BTreeMap<String, Span> = BTreeMap::new();
    for span in spans {
        if let Some(known) = by_id.insert(span.id.clone(), span.clone()) {
            assert_eq!(
                (&known.trace, &known.name, &known.parent, known.ended),
                (&span.trace, &span.name, &span.parent, span.ended)
            );
        }
    }
    by_id.into_values().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_goes_on_where_the_server_ended_in_the_middle() {
    for crash in [true, false] {
        let collector = Collector::new().await;
        let stage = Stage::new(options(&collector)).await;
        // One runs already, and is told of; the other two come and go while nobody listens.
        let long = stage.submit(&spec("long")).await;
        let long_order = stage.run(&long).await;
        collector
            .until(|spans| spans.iter().any(|span| span.name == "starting"))
            .await;
        tokio::time::sleep(Duration::from_millis(1200)).await;
        if crash {
            collector.always(Some(Answer::Never));
        }
        let short = stage.submit(&spec("short")).await;
        let order = stage.run(&short).await;
        stage.end(order.allocation, 0).await;
        stage.phase(&short, "done").await;
        let waits = stage.submit(&whole("waits")).await;
        let stage = stage.again(crash).await;
        collector.always(None);
        let trace = stage.phase(&long, "running").await["trace_id"].clone();
        stage.end(long_order.allocation, 7).await;
        let order = stage.run(&waits).await;
        stage.end(order.allocation, 0).await;
        for job in [&long, &short, &waits] {
            let spans = once(collector.job(job).await);
            let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
            for name in ["job", "queued", "attempt", "starting", "running"] {
                assert!(names.contains(&name), "{name} of {job} after {crash}: {names:?}");
            }
            // What only the first server saw may be gone with it.
            let told: Vec<Span> = spans
                .into_iter()
                .filter(|span| !["POST /v1/jobs", "order"].contains(&span.name.as_str()))
                .collect();
            is_whole(&told, None);
        }
        let spans = collector.job(&long).await;
        assert_eq!(spans[0].trace, trace.as_str().unwrap());
        assert_eq!(
            one(&once(spans), "job").error.as_deref(),
            Some("it ended with exit code 7")
        );
        stage.world.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_collector_did_not_take_before_the_end_is_told_by_the_next_server() {
    let collector = Collector::new().await;
    let mut settings = options(&collector);
    settings.patience = Duration::from_millis(300);
    let stage = Stage::new(settings).await;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    collector.always(Some(Answer::Status(503)));
    let job = stage.submit(&spec("short")).await;
    let order = stage.run(&job).await;
    stage.end(order.allocation, 0).await;
    stage.phase(&job, "done").await;
    let begun = Instant::now();
    let stage = stage.again(false).await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(10), "the end was held up for {took:?}");
    assert_eq!(collector.spans().len(), 0);
    collector.always(None);
    let spans = collector.job(&job).await;
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["queued", "starting", "running", "attempt", "job"]);
    is_whole(&spans, None);
    stage.world.end().await;
}

/// Where `scripts/setup` puts what tests compare with.
fn python() -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let own = tmp.parent().unwrap().join("peers/venv/bin/python");
    if own.exists() { own } else { "python3".into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_words_are_text_and_opentelemetrys_own_schema_takes_what_is_sent() {
    const HOSTILE: &str = r#"H"},{"key":"x"}]}]}</script><b>\u0000' OR 1=1 -- ${jndi} \" é 漢 🂡"#;
    let collector = Collector::new().await;
    let stage = Stage::new(options(&collector)).await;
    // Names have no room for it; what a driver calls a GPU has.
    let refused = json!({ "spec": spec(HOSTILE) });
    assert_eq!(
        stage.world.post(&stage.key, "/v1/jobs", refused).await.status,
        422
    );
    let gpu = GpuFacts {
        uuid: "farm-1".into(),
        vendor: "maker".into(),
        model: HOSTILE.into(),
        class: "H100".into(),
        vram_mib: 8192,
        isolation: [(Isolation::Guarded, "by the guard".to_owned())].into(),
        hardware: None,
    };
    let report = Wish::ReportInventory {
        node: stage.node,
        inventory: Inventory {
            cpu_milli: 64_000,
            memory_mib: 64 * 1024,
            gpus: vec![gpu],
            volume_mib: 1 << 20,
            images: Vec::new(),
        },
    };
    stage
        .world
        .controller
        .submit(Actor::System, report, None, None)
        .await
        .unwrap();
    let job = stage.submit(&spec("train")).await;
    let order = stage.run(&job).await;
    // What a node says of a start is in its own words, which go nowhere.
    let why = format!("exec {HOSTILE}");
    stage.says(order.allocation, RunState::NotStarted { why }).await;
    let spans = collector.job(&job).await;
    is_whole(&spans, None);
    assert_eq!(one(&spans, "attempt").text("tenure.gpu.model"), HOSTILE);
    assert_eq!(
        one(&spans, "job").error.as_deref(),
        Some("it could not be started")
    );

    let mut validator = Command::new(python())
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer/otlp.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut stdin = validator.stdin.take().unwrap();
    for body in collector.bodies() {
        stdin.write_all(&body).unwrap();
        stdin.write_all(b"\n").unwrap();
    }
    drop(stdin);
    let output = validator.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "is opentelemetry-proto there? `scripts/setup test` puts it into target/peers: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let count: usize = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert_eq!(count, collector.spans().len());
    stage.world.end().await;
}
