//! A service with the real programs: from nothing to its first answer, with the load and back, a replica that dies, and
//! the traces' replay in short on a real device.

use std::time::{Duration, Instant};

use tenure_domain::workload::service::Replicas;
use tenure_sim::bench::service::{once, rounds, trace::Ask};
use tenure_sim::house::{House, program};

const ADA: &str = "acme/research/ada";

fn service(house: &House, job: &str) -> serde_json::Value {
    let job: serde_json::Value =
        serde_json::from_str(&house.done(ADA, &["show", job, "-o", "json"])).unwrap();
    job["service"].clone()
}

fn until(house: &House, job: &str, what: &str, so: impl Fn(&serde_json::Value) -> bool) {
    let begun = Instant::now();
    loop {
        let now = service(house, job);
        if so(&now) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "never {what}: {now}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Answers after a moment, with its own process number.
const SERVER: &str = "
import http.server, os, socketserver, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        if self.path == '/die':
            os._exit(3)
        if self.path != '/ready':
            time.sleep(0.2)
        body = str(os.environ['TENURE_TASK']).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
Server(('127.0.0.1', int(os.environ['PORT'])), Handler).serve_forever()
";

#[tokio::test(flavor = "multi_thread")]
async fn a_service_comes_with_its_requests_and_goes_without() {
    let mut house = House::new(None);
    house.start_server().await;
    house.start_agent().await;
    let run = [
        "run",
        "-y",
        "--name",
        "model",
        "--service",
        "0..3",
        "--in-flight",
        "2",
        "--idle",
        "5s",
        "--ready",
        "/ready",
        "--cpu",
        "0.3",
        "-o",
        "name",
        "--",
        "/usr/bin/python3",
        "-c",
        SERVER,
    ];
    let job = house.done(ADA, &run).trim().to_owned();
    assert_eq!(service(&house, &job)["living"], 0);
    let http = reqwest::Client::new();
    let token = house.demo_token(ADA);
    let url = format!("{}/v1/services/{job}", house.url());
    let ask = async |path: &str| {
        let answer = http
            .get(format!("{url}{path}"))
            .bearer_auth(&token)
            .send()
            .await
            .unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    // Nobody is there, and the first request waits for the start.
    assert_eq!(ask("/x").await, (200, "0".to_owned()));
    // Load brings more, and all of them answer.
    let until_then = Instant::now() + Duration::from_secs(15);
    let callers = (0..6).map(|_| async {
        let mut answers = Vec::new();
        while Instant::now() < until_then {
            let (status, who) = ask("/x").await;
            assert_eq!(status, 200, "{who}");
            answers.push(who);
        }
        answers
    });
    let answers = futures_util::future::join_all(callers).await.concat();
    let who: std::collections::BTreeSet<&String> = answers.iter().collect();
    assert!(who.len() >= 2, "{who:?} of {} answers", answers.len());
    // One that dies is replaced; who asked it is told, and who asks next is served.
    let (status, said) = ask("/die").await;
    assert!(
        status == 502 && said.contains("replica_failed"),
        "{status} {said}"
    );
    assert_eq!(ask("/x").await.0, 200);
    let listed = house.done(ADA, &["services"]);
    assert!(listed.contains("model") && listed.contains("0..3"), "{listed}");
    until(&house, &job, "given back", |now| now["living"] == 0);
    let now = service(&house, &job);
    assert_eq!(
        (now["lost"].as_u64(), now["turned_away"].as_u64()),
        (Some(1), Some(0)),
        "{now}"
    );
    house.done(ADA, &["scale", &job, "1..2"]);
    until(&house, &job, "always one", |now| now["ready"] == 1);
    let bad = house.tenure(ADA, &["scale", &job, "3..2"]);
    assert_eq!(bad.status.code(), Some(2));
    house.done(ADA, &["stop", &job]);
}

/// What the longer replay does in ten minutes, in one: a burst amid a trickle, on slices of a real device.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_in_short_loses_nothing_and_is_scaled_both_ways() {
    let mut house = House::new(None);
    house.host_dirs = vec![program("examples/replica").parent().unwrap().to_owned()];
    house.start_server().await;
    house.start_agent().await;
    let trickle = (0..20).map(|n| (n * 1000, 200, 20));
    let burst = (0..60).map(|n| (8000 + n * 100, 1500, 30));
    let mut asks: Vec<Ask> = trickle
        .chain(burst)
        .map(|(after_ms, context, generated)| Ask {
            after: Duration::from_millis(after_ms),
            context,
            generated,
        })
        .collect();
    asks.sort_by_key(|ask| ask.after);
    let replicas = Replicas { min: 0, max: 4 };
    let outcome = once(&house, rounds(5.0).unwrap(), replicas, &asks).await.unwrap();
    assert_eq!((outcome.requests, outcome.lost), (asks.len(), 0), "{outcome:?}");
    assert!(outcome.scaled_up >= 1 && outcome.scaled_down >= 1, "{outcome:?}");
    assert!(
        outcome.gpu_seconds > 0.0 && outcome.busy_seconds > 0.0,
        "{outcome:?}"
    );
}
