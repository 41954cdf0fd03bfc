//! Services over HTTP: requests go to replicas that live and come back as they are, whoever waits is told for what, and
//! replicas come and go with the load.

mod stage;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use futures_util::{StreamExt, stream};
use reqwest::Method;
use serde_json::{Value, json};
use tenure_domain::Event;
use tenure_domain::id::JobId;

use crate::world::{World, generous, spec};
use stage::{Make, Stage};

struct Play {
    world: World,
    stage: Arc<Stage>,
    ada: String,
    /// A member of her tenant.
    bo: String,
    eve: String,
    service: String,
    node: tokio::task::JoinHandle<()>,
}

impl Drop for Play {
    fn drop(&mut self) {
        self.node.abort();
    }
}

/// A service between so many replicas, each the router that is made for it.
async fn play(service: Value, make: Make) -> Play {
    let stage = Arc::new(Stage::default());
    let world = World::on(generous(), stage.clone()).await;
    world.node("n", 64_000).await;
    let (acme, other) = (world.tenant("acme").await, world.tenant("other").await);
    let (_, ada) = world.user(&acme, "ada", Some("member")).await;
    let (_, bo) = world.user(&acme, "bo", Some("member")).await;
    let (_, eve) = world.user(&other, "eve", Some("owner")).await;
    let node = tokio::spawn(stage.clone().play(world.controller.clone(), make));
    let mut spec = spec("model");
    spec["service"] = service;
    spec["grace_s"] = json!(2);
    let made = world.post(&ada, "/v1/jobs", json!({ "spec": spec })).await;
    let service = made.id();
    Play {
        world,
        stage,
        ada,
        bo,
        eve,
        service,
        node,
    }
}

impl Play {
    fn path(&self, below: &str) -> String {
        format!("/v1/services/{}/{below}", self.service)
    }

    async fn view(&self) -> Value {
        let path = format!("/v1/jobs/{}", self.service);
        self.world.get(&self.ada, &path).await.json()["service"].clone()
    }

    async fn until(&self, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let view = self.view().await;
            if so(&view) {
                return view;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "never {what}: {view}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn journalled(&self, kind: &str) -> Vec<Event> {
        let rows = self.world.controller.reader().read(1, 10_000).await.unwrap();
        let events = rows
            .iter()
            .map(|row| tenure_server::controller::event(row).unwrap());
        events.filter(|event| event.kind() == kind).collect()
    }
}

fn plain(number: u32) -> Router {
    Router::new().fallback(any(move || async move { format!("replica {number}") }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_passes_as_it_is_and_its_key_stays_here() {
    async fn mirror(request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let headers: Value = parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), Value::from(value.to_str().unwrap())))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let told = json!({
            "method": parts.method.as_str(),
            "target": parts.uri.to_string(),
            "headers": headers,
            "length": bytes.len(),
        });
        let mut answer = HeaderMap::new();
        answer.insert("x-own", "1".parse().unwrap());
        answer.insert("set-cookie", "a=b".parse().unwrap());
        (StatusCode::IM_A_TEAPOT, answer, told.to_string()).into_response()
    }
    let replicas = json!({ "replicas": { "min": 1, "max": 1 } });
    let play = play(replicas, Box::new(|_| Router::new().fallback(any(mirror)))).await;
    let body = vec![7u8; 3_000_000];
    let request = play
        .world
        .request(Method::PATCH, &play.path("a%2Fb/c?x=1&x=2&y=%20"), Some(&play.bo))
        .header("cookie", "session=secret")
        .header("tenure-user", "usr_forged")
        .body(body);
    let reply = play.world.send(request).await;
    assert_eq!(reply.status, 418, "a replica's refusal is its own: {reply:?}");
    assert_eq!(reply.headers["x-own"], "1");
    assert!(!reply.headers.contains_key("set-cookie"));
    assert!(
        reply.headers["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("sandbox")
    );
    let seen = reply.json();
    assert_eq!(seen["method"], "PATCH");
    assert_eq!(seen["target"], "/a%2Fb/c?x=1&x=2&y=%20");
    assert_eq!(seen["length"], 3_000_000);
    let text = seen["headers"].to_string();
    assert!(!text.contains(&play.bo) && !text.contains("tnr_"), "{text}");
    assert!(!text.contains("secret") && !text.contains("forged"), "{text}");
    assert!(
        seen["headers"]["tenure-user"]
            .as_str()
            .unwrap()
            .starts_with("usr_")
    );

    // Whose key does not reach the service does not learn that it is there.
    let foreign = play.world.get(&play.eve, &play.path("x")).await;
    let nothing = play
        .world
        .get(&play.eve, "/v1/services/job_0000000000000/x")
        .await;
    assert_eq!(
        (foreign.status.as_u16(), foreign.code()),
        (404, "not_found".into())
    );
    assert_eq!(
        (nothing.status.as_u16(), nothing.code()),
        (404, "not_found".into())
    );
    let stranger = play
        .world
        .send(play.world.request(Method::GET, &play.path("x"), None))
        .await;
    assert_eq!(stranger.code(), "unauthenticated");
    // A key that is for services alone is for nothing else.
    let whoami = play.world.get(&play.bo, "/v1/whoami").await.json();
    let bo = whoami["user"]["id"]
        .as_str()
        .or(whoami["id"].as_str())
        .unwrap()
        .to_owned();
    let narrow = play
        .world
        .key(&bo, json!({ "label": "app", "allow": ["service_use"] }))
        .await;
    assert_eq!(play.world.get(&narrow, &play.path("x")).await.status, 418);
    let read = play
        .world
        .get(&narrow, &format!("/v1/jobs/{}", play.service))
        .await;
    assert_ne!(read.status, 200);
    let view = play.view().await;
    assert_eq!(
        (&view["requests"], &view["lost"]),
        (&json!(2), &json!(0)),
        "{view}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_kept_and_answers_stream() {
    async fn events() -> Response {
        let pieces = stream::unfold(0, |count| async move {
            tokio::time::sleep(Duration::from_millis(if count == 0 { 0 } else { 300 })).await;
            (count < 4).then(|| {
                (
                    Ok::<_, Infallible>(Bytes::from(format!("data: {count}\n\n"))),
                    count + 1,
                )
            })
        });
        ([("content-type", "text/event-stream")], Body::from_stream(pieces)).into_response()
    }
    let router = |_| {
        Router::new()
            .route("/events", get(events))
            .fallback(any(|| async { "." }))
    };
    let play = play(
        json!({ "replicas": { "min": 1, "max": 1 }, "ready": "/up" }),
        Box::new(router),
    )
    .await;
    play.until("ready", |view| view["ready"] == 1).await;
    for _ in 0..50 {
        assert_eq!(play.world.get(&play.ada, &play.path("one")).await.bytes, b".");
    }
    let opened = play.stage.opened.load(Ordering::Relaxed);
    assert!(
        opened <= 3,
        "{opened} connections for 50 requests one after another"
    );

    let response = play
        .world
        .request(Method::GET, &play.path("events"), Some(&play.ada))
        .send()
        .await
        .unwrap();
    let begun = Instant::now();
    let mut pieces = response.bytes_stream();
    let first = pieces.next().await.unwrap().unwrap();
    let early = begun.elapsed();
    let mut rest = Vec::new();
    while let Some(piece) = pieces.next().await {
        rest.extend_from_slice(&piece.unwrap());
    }
    assert_eq!(first, "data: 0\n\n", "the first comes by itself");
    assert!(early < begun.elapsed() / 2, "{early:?} of {:?}", begun.elapsed());
    assert!(rest.ends_with(b"data: 3\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_leaves_is_missed_by_the_replica() {
    static PRESENT: AtomicU32 = AtomicU32::new(0);
    struct Guest;
    impl Drop for Guest {
        fn drop(&mut self) {
            PRESENT.fetch_sub(1, Ordering::SeqCst);
        }
    }
    async fn forever() -> Response {
        PRESENT.fetch_add(1, Ordering::SeqCst);
        let guest = Guest;
        let pieces = stream::unfold(guest, |guest| async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some((Ok::<_, Infallible>(Bytes::from_static(b"x")), guest))
        });
        Body::from_stream(pieces).into_response()
    }
    let router = |_| Router::new().fallback(any(forever));
    let play = play(json!({ "replicas": { "min": 1, "max": 1 } }), Box::new(router)).await;
    let mut response = play
        .world
        .request(Method::GET, &play.path("x"), Some(&play.ada))
        .send()
        .await
        .unwrap();
    response.chunk().await.unwrap();
    assert_eq!(PRESENT.load(Ordering::SeqCst), 1);
    assert_eq!(play.view().await["in_flight"], 1);
    drop(response);
    play.until("free again", |view| view["in_flight"] == 0).await;
    let begun = Instant::now();
    while PRESENT.load(Ordering::SeqCst) > 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "the replica works for nobody"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(play.view().await["lost"], 0, "who left lost nothing");

    // Who loses the right while an answer comes loses the answer.
    let mut response = play
        .world
        .request(Method::GET, &play.path("x"), Some(&play.bo))
        .send()
        .await
        .unwrap();
    response.chunk().await.unwrap();
    let whoami = play.world.get(&play.bo, "/v1/whoami").await.json();
    let bo = whoami["user"]["id"]
        .as_str()
        .or(whoami["id"].as_str())
        .unwrap()
        .to_owned();
    let suspend = format!("/v1/scopes/{bo}/suspend");
    assert_eq!(
        play.world
            .post(&play.world.owner, &suspend, json!({}))
            .await
            .status,
        200
    );
    let ended = tokio::time::timeout(Duration::from_secs(20), async {
        while let Ok(Some(_)) = response.chunk().await {}
    });
    ended
        .await
        .expect("the answer goes on for somebody who is suspended");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_request_after_zero_waits_for_the_start() {
    let play = play(
        json!({ "replicas": { "min": 0, "max": 2 }, "idle_s": 2, "wait_s": 30 }),
        Box::new(plain),
    )
    .await;
    assert_eq!(play.stage.made.load(Ordering::Relaxed), 0);
    let first = play.world.get(&play.ada, &play.path("x")).await;
    assert_eq!(first.bytes, b"replica 0", "{first:?}");
    let scaled = play.journalled("ServiceScaled").await;
    assert_eq!(scaled.len(), 1, "{scaled:?}");
    // Quiet, it is given back; and asked again, it is there again.
    play.until("given back", |view| view["living"] == 0).await;
    let again = play.world.get(&play.ada, &play.path("x")).await;
    assert_eq!(again.bytes, b"replica 1");
    let view = play.view().await;
    assert_eq!((&view["lost"], &view["turned_away"]), (&json!(0), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_too_long_is_told_for_what() {
    let play = play(
        json!({ "replicas": { "min": 0, "max": 1 }, "wait_s": 1 }),
        Box::new(plain),
    )
    .await;
    play.stage.held.store(true, Ordering::Relaxed);
    let reply = play.world.get(&play.ada, &play.path("x")).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (503, "service_waits".into())
    );
    assert!(reply.headers.contains_key("retry-after"));
    assert!(
        reply.json()["detail"].as_str().unwrap().contains("starting"),
        "{}",
        reply.json()
    );
    assert_eq!(play.view().await["turned_away"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn load_brings_replicas_and_quiet_takes_them_and_nothing_is_lost() {
    async fn slow(number: u32) -> String {
        tokio::time::sleep(Duration::from_millis(100)).await;
        format!("{number}")
    }
    let router = |number| Router::new().fallback(any(move || slow(number)));
    let play = play(
        json!({ "replicas": { "min": 1, "max": 4 }, "in_flight": 2, "idle_s": 2 }),
        Box::new(router),
    )
    .await;
    let until = Instant::now() + Duration::from_secs(8);
    let callers = (0..8).map(|_| async {
        let mut answers = Vec::new();
        while Instant::now() < until {
            let reply = play.world.get(&play.bo, &play.path("x")).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            answers.push(String::from_utf8(reply.bytes).unwrap());
        }
        answers
    });
    let answers: Vec<String> = futures_util::future::join_all(callers).await.concat();
    let view = play.view().await;
    assert_eq!(view["wanted"], 4, "{view}");
    for number in 0..4 {
        let share = answers
            .iter()
            .filter(|answer| **answer == number.to_string())
            .count();
        assert!(
            share > answers.len() / 20,
            "replica {number} had {share} of {}",
            answers.len()
        );
    }
    let view = play.until("fewer", |view| view["living"] == 1).await;
    assert_eq!(view["requests"], answers.len());
    assert_eq!(view["answered"], answers.len());
    assert_eq!((&view["lost"], &view["turned_away"]), (&json!(0), &json!(0)));
    let scaled = play.journalled("ServiceScaled").await;
    assert!(
        scaled.len() <= 8,
        "so few changes for so many requests: {scaled:?}"
    );
    // Deleted by hand, between the bounds somebody set.
    let path = format!("/v1/jobs/{}/scale", play.service);
    let bad = play
        .world
        .post(&play.ada, &path, json!({ "min": 3, "max": 2 }))
        .await;
    assert_eq!((bad.code(), bad.field()), ("invalid_field".into(), "/min".into()));
    assert_eq!(
        play.world
            .post(&play.ada, &path, json!({ "min": 3, "max": 3 }))
            .await
            .status,
        200
    );
    play.until("three", |view| view["ready"] == 3).await;
    // And how often who asked is in the journal, when the server ends at the latest.
    let stop = format!("/v1/jobs/{}/stop", play.service);
    assert_eq!(play.world.post(&play.ada, &stop, json!({})).await.status, 200);
    let begun = Instant::now();
    let uses = loop {
        let uses = play.journalled("ServiceUsed").await;
        if !uses.is_empty() {
            break uses;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "nobody is said to have used it"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let uses = uses.iter().flat_map(|event| match event {
        Event::ServiceUsed { uses, .. } => uses.clone(),
        other => panic!("{other:?}"),
    });
    let (requests, lost) = uses.fold((0, 0), |sum, one| (sum.0 + one.requests, sum.1 + one.lost));
    assert_eq!((requests, lost), (answers.len() as u64, 0));
    let gone = play.world.get(&play.ada, &play.path("x")).await;
    assert_eq!(gone.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_fails_is_replaced_later_and_later() {
    let play = play(json!({ "replicas": { "min": 1, "max": 1 } }), Box::new(plain)).await;
    for round in 0..2 {
        play.until("ready", |view| view["ready"] == 1).await;
        let failing = play.stage.living();
        play.stage.doomed.lock().unwrap().extend(failing);
        play.until("not ready", |view| view["ready"] == 0).await;
        // Who asks meanwhile waits, and is served.
        let begun = Instant::now();
        let reply = play.world.get(&play.ada, &play.path("x")).await;
        assert_eq!(reply.bytes, format!("replica {}", round + 1).as_bytes());
        assert!(
            begun.elapsed() >= Duration::from_millis(500 << round),
            "{:?}",
            begun.elapsed()
        );
    }
    let id: JobId = play.service.parse().unwrap();
    let state = play.world.controller.view().read();
    let job = &state.jobs[&id];
    assert_eq!(job.tasks.as_ref().unwrap().made, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_never_ready_is_the_reason() {
    let router = |_| Router::new().fallback(any(|| async { StatusCode::SERVICE_UNAVAILABLE }));
    let play = play(
        json!({ "replicas": { "min": 1, "max": 1 }, "ready": "/health", "ready_s": 1, "wait_s": 4 }),
        Box::new(router),
    )
    .await;
    let view = play
        .until("told", |view| {
            view["waits_for"].as_str().is_some_and(|why| why.contains("503"))
        })
        .await;
    assert_eq!(view["ready"], 0);
    play.until("given up", |_| play.stage.made.load(Ordering::Relaxed) > 1)
        .await;
    let failed = play.journalled("ReplicaFailed").await;
    let Event::ReplicaFailed { why, .. } = &failed[0] else {
        panic!()
    };
    assert!(
        why.contains("/health") && why.contains("503") && why.contains("1 s"),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_dies_in_an_answer_is_told_and_not_tried_again() {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    async fn dies(request: Request) -> Response {
        if request.uri().path() == "/never" {
            TRIED.fetch_add(1, Ordering::SeqCst);
            // A panic drops the connection without an answer.
            panic!("on purpose");
        }
        "fine".into_response()
    }
    let router = |_| Router::new().fallback(any(dies));
    let play = play(json!({ "replicas": { "min": 2, "max": 2 } }), Box::new(router)).await;
    play.until("ready", |view| view["ready"] == 2).await;
    let reply = play.world.post(&play.ada, &play.path("never"), json!({})).await;
    assert_eq!(
        (reply.status.as_u16(), reply.code()),
        (502, "replica_failed".into())
    );
    assert_eq!(TRIED.load(Ordering::SeqCst), 1, "it may have been worked on");
    assert_eq!(play.view().await["lost"], 1);
    // Not so a replica that is gone before anything was sent: another is asked.
    let gone = play.stage.living()[0];
    play.stage.cut(gone);
    for _ in 0..4 {
        assert_eq!(play.world.get(&play.ada, &play.path("x")).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_service_says_so() {
    let play = play(json!({ "replicas": { "min": 0, "max": 1 } }), Box::new(plain)).await;
    let made = play
        .world
        .post(&play.ada, "/v1/jobs", json!({ "spec": spec("batch") }))
        .await;
    let path = format!("/v1/services/{}/x", made.id());
    assert_eq!(play.world.get(&play.ada, &path).await.code(), "wrong_phase");
    let scale = format!("/v1/jobs/{}/scale", made.id());
    let reply = play
        .world
        .post(&play.ada, &scale, json!({ "min": 0, "max": 1 }))
        .await;
    assert_eq!(reply.code(), "wrong_phase");
    let listed = play.world.get(&play.ada, "/v1/services").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        listed["items"][0]["service"]["endpoint"],
        format!("/v1/services/{}/", play.service)
    );
    assert_eq!(
        play.world.get(&play.eve, "/v1/services").await.json()["items"],
        json!([])
    );
    for (service, field) in [
        (json!({ "port": 0 }), "/spec/service/port"),
        (
            json!({ "replicas": { "min": 2, "max": 1 } }),
            "/spec/service/replicas/min",
        ),
        (
            json!({ "port": 80, "replicas": { "min": 0, "max": 2 } }),
            "/spec/service/replicas/max",
        ),
        (json!({ "in_flight": 0 }), "/spec/service/in_flight"),
        (json!({ "ready": "no-slash" }), "/spec/service/ready"),
        (json!({ "wait_s": 0 }), "/spec/service/wait_s"),
    ] {
        let mut bad = spec("bad");
        bad["service"] = service;
        let reply = play
            .world
            .post(&play.ada, "/v1/jobs", json!({ "spec": bad }))
            .await;
        assert_eq!(
            (reply.code(), reply.field()),
            ("invalid_field".into(), field.to_owned())
        );
        // The journal goes on by itself: the other job starts.
        let jobs = play.world.get(&play.ada, "/v1/jobs?show=all").await.json();
        let names = jobs["items"].as_array().unwrap().iter();
        assert!(names.map(|job| &job["spec"]["name"]).all(|name| name != "bad"));
    }
}
