//! A job's trace, with the real server, agent, processes and command: the job joins its caller's trace, its node tells of
//! its start, and the trace goes on through a crash of the server.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tenure_sim::house::{House, program};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Far longer than a loaded machine takes for a job of a second.
const PATIENCE: Duration = Duration::from_secs(120);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

type Spans = Arc<Mutex<Vec<Value>>>;

/// Takes what it is sent; where and what.
async fn collector() -> (String, Spans) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let spans = Spans::default();
    let all = spans.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, all.clone()));
        }
    });
    (url, spans)
}

async fn serve(stream: TcpStream, all: Spans) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let body: Value = serde_json::from_slice(&body).unwrap();
        let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"]
            .as_array()
            .unwrap();
        all.lock().unwrap().extend(spans.iter().cloned());
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(answer.as_bytes()).await?;
    }
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a str> {
    let mut all = span["attributes"].as_array()?.iter();
    all.find(|pair| pair["key"] == key)?["value"]["stringValue"].as_str()
}

/// What was told of a job, by the names of its spans, once it ended.
async fn told(spans: &Spans, name: &str) -> BTreeMap<String, Value> {
    let begun = Instant::now();
    loop {
        let all = spans.lock().unwrap().clone();
        let whole = all
            .iter()
            .find(|span| span["name"] == "job" && attribute(span, "tenure.job.name") == Some(name));
        if let Some(whole) = whole {
            let job = attribute(whole, "tenure.job.id");
            let own = all.iter().filter(|span| attribute(span, "tenure.job.id") == job);
            return own
                .map(|span| (span["name"].as_str().unwrap().to_owned(), span.clone()))
                .collect();
        }
        assert!(begun.elapsed() < PATIENCE, "{name} is not told of: {all:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn ns(span: &Value, key: &str) -> u64 {
    span[key].as_str().unwrap().parse().unwrap()
}

fn tenure(house: &House, token: &str, parent: Option<&str>, args: &[&str]) -> String {
    let mut command = Command::new(program("tenure"));
    command
        .args(args)
        .env("TENURE_SERVER", house.url())
        .env("TENURE_TOKEN", token)
        .env_remove("TRACEPARENT");
    if let Some(parent) = parent {
        command.env("TRACEPARENT", parent);
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_job_joins_its_callers_trace_and_is_told_of_through_a_crash() {
    let (url, spans) = collector().await;
    let mut house = House::new(None);
    house.server_env = vec![("OTEL_EXPORTER_OTLP_ENDPOINT".into(), url)];
    house.start_server().await;
    house.start_agent().await;
    let ada = house.demo_token("acme/research/ada");
    let run = |parent: Option<&str>, name: &str, script: &str, more: &[&str]| {
        let mut args = vec!["run", "-y", "--name", name];
        args.extend(more);
        args.extend(["--", "sh", "-c", script]);
        tenure(&house, &ada, parent, &args)
    };
    let caller = format!("00-{TRACE}-{CALLER}-01");
    let said = run(
        Some(&caller),
        "joins",
        "echo \"hears $TRACEPARENT\"; sleep 0.3",
        &[],
    );
    let told_it = said
        .split_whitespace()
        .find(|word| word.starts_with("00-"))
        .unwrap();
    let joined = told(&spans, "joins").await;
    let names: BTreeSet<&str> = joined.keys().map(String::as_str).collect();
    let wanted = [
        "POST /v1/jobs",
        "attempt",
        "devices",
        "exec",
        "job",
        "order",
        "queued",
        "running",
        "sandbox",
        "starting",
    ];
    assert_eq!(names, BTreeSet::from(wanted));
    assert!(joined.values().all(|span| span["traceId"] == TRACE));
    assert_eq!(joined["job"]["parentSpanId"], CALLER);
    let attempt = joined["attempt"]["spanId"].as_str().unwrap();
    assert_eq!(told_it, format!("00-{TRACE}-{attempt}-01"), "{said}");
    let starting = &joined["starting"];
    for step in ["order", "devices", "sandbox", "exec"] {
        let step = &joined[step];
        assert_eq!(step["parentSpanId"], starting["spanId"]);
        let (began, ended) = (ns(step, "startTimeUnixNano"), ns(step, "endTimeUnixNano"));
        assert!(
            began >= ns(starting, "startTimeUnixNano") && began <= ended,
            "{step}"
        );
        assert!(
            ended <= ns(starting, "endTimeUnixNano"),
            "{step} is after {starting}"
        );
    }
    let at = |name: &str| ns(&joined[name], "startTimeUnixNano");
    assert!(at("devices") <= at("sandbox") && at("sandbox") < at("exec"));
    let ran = ns(&joined["running"], "endTimeUnixNano") - at("running");
    assert!(ran >= 250_000_000, "it ran for {ran} ns");

    // Nonsense in the environment is nobody's trace.
    let said = run(Some("nonsense"), "own", "echo \"hears $TRACEPARENT\"", &[]);
    let own = told(&spans, "own").await;
    let trace = own["job"]["traceId"].as_str().unwrap();
    assert!(trace != TRACE && own["job"].get("parentSpanId").is_none());
    assert!(said.contains(&format!("hears 00-{trace}-")), "{said}");

    run(None, "long", "sleep 4", &["-d"]);
    let show = |house: &House| -> Value {
        let text = tenure(house, &ada, None, &["show", "long", "-o", "json"]);
        serde_json::from_str(&text).unwrap()
    };
    let begun = Instant::now();
    while show(&house)["phase"] != "running" {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = show(&house)["trace_id"].clone();
    assert!(tenure(&house, &ada, None, &["show", "long"]).contains(before.as_str().unwrap()));
    house.kill_server();
    house.start_server().await;
    let long = told(&spans, "long").await;
    assert_eq!(long["job"]["traceId"], before);
    assert!(long.values().all(|span| span["traceId"] == before), "{long:#?}");
    for name in ["queued", "starting", "running", "attempt"] {
        assert!(long.contains_key(name), "{name} is not among {:?}", long.keys());
    }
}
