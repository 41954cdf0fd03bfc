//! What every route shares: problems, headers, the document, the audit of refusals, lists and their pages.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::json;
use tenure_domain::Event;
use tenure_server::controller::event;

use crate::world::{World, spec};

#[tokio::test(flavor = "multi_thread")]
async fn unknown_routes_and_methods_are_problems() {
    let world = World::new().await;
    let lost = world.get(&world.owner, "/v2/everything").await;
    assert_eq!(
        (lost.status.as_u16(), lost.code().as_str()),
        (404, "route_not_found")
    );
    let patch = world
        .send(world.request(Method::PATCH, "/v1/jobs", Some(&world.owner)))
        .await;
    assert_eq!(
        (patch.status.as_u16(), patch.code().as_str()),
        (405, "method_not_allowed")
    );
    let allowed = patch.headers["allow"].to_str().unwrap();
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
    let request = world
        .request(Method::GET, "/v1/jobs", Some(&world.owner))
        .header("x-http-method-override", "DELETE");
    assert_eq!(
        world.send(request.header("x-request-id", "mine")).await.status,
        200
    );
    for reply in [&lost, &patch] {
        let id = reply.headers["x-request-id"].to_str().unwrap();
        assert_eq!(reply.json()["request_id"], id);
        assert!(id.starts_with("req_"));
        assert_eq!(reply.headers["x-content-type-options"], "nosniff");
        assert_eq!(reply.headers["cache-control"], "no-store");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_and_its_reading_room_are_served() {
    let world = World::new().await;
    let document = world
        .send(world.request(Method::GET, "/openapi.json", None))
        .await
        .json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(
                ids.insert(operation["operationId"].as_str().unwrap().to_owned()),
                "{method} {path}"
            );
            assert!(
                operation["responses"]["500"]["content"]["application/problem+json"].is_object(),
                "{method} {path}"
            );
        }
    }
    assert!(document["components"]["schemas"]["Problem"].is_object());
    let page = world.send(world.request(Method::GET, "/docs/", None)).await;
    assert_eq!(page.status, 200);
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("script-src 'self'") && !policy.contains("script-src 'self' 'unsafe-inline'"));
    assert_eq!(
        world
            .send(world.request(Method::GET, "/docs/no-such-file", None))
            .await
            .code(),
        "route_not_found"
    );
}

/// Each method of the typed client is an operation of the document.
#[tokio::test(flavor = "multi_thread")]
async fn every_client_method_is_an_operation() {
    let world = World::new().await;
    let text = String::from_utf8(
        world
            .send(world.request(Method::GET, "/openapi.json", None))
            .await
            .bytes,
    )
    .unwrap();
    let client =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../api/src/client.rs")).unwrap();
    let methods = client
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub async fn ")?.split('(').next());
    for method in methods {
        let operation = if method.starts_with("health") {
            "readyz"
        } else {
            method
        };
        assert!(
            text.contains(&format!("\"operationId\":\"{operation}\"")),
            "{method} has no route"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refused_access_is_counted() {
    let world = World::new().await;
    let (a, b) = (world.tenant("a").await, world.tenant("b").await);
    let (ada, key) = world.user(&a, "ada", Some("member")).await;
    for _ in 0..3 {
        assert_eq!(world.get(&key, &format!("/v1/scopes/{b}")).await.status, 404);
    }
    assert_eq!(
        world
            .put(&key, &format!("/v1/scopes/{ada}/quota"), json!({ "limits": {} }))
            .await
            .status,
        403
    );
    for _ in 0..2 {
        assert_eq!(world.get("tnr_nonsense", "/v1/whoami").await.status, 401);
    }
    assert_eq!(
        world
            .send(world.request(Method::GET, "/v1/whoami", None))
            .await
            .status,
        401
    );
    let dir = world.end().await;
    let reader =
        tenure_journal::JournalReader::open(&tenure_journal::Location::Sqlite(dir.path().to_owned()))
            .await
            .unwrap();
    let lines = reader.read(1, 10_000).await.unwrap();
    let counts: Vec<_> = lines
        .iter()
        .filter_map(|line| match event(line).unwrap() {
            Event::AccessRefused { counts } => Some(counts),
            _ => None,
        })
        .flatten()
        .collect();
    let count = |principal: &str, action: &str, code: &str| {
        let rows = counts
            .iter()
            .filter(|row| row.principal == principal && row.action == action && row.code == code);
        rows.map(|row| row.count).sum::<u64>()
    };
    assert_eq!(count(&ada, "scope", "not_found"), 3, "{counts:?}");
    assert_eq!(count(&ada, "set_quota", "not_permitted"), 1, "{counts:?}");
    assert_eq!(count("stranger", "whoami", "unauthenticated"), 2, "{counts:?}");
    reader.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_jobs_show_each_once_live_and_done() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (ada, key) = world.user(&tenant, "ada", Some("member")).await;
    let mut all = BTreeSet::new();
    for i in 0..25 {
        let job = world.job(&ada, &format!("j{i}")).await;
        if i % 2 == 0 {
            assert_eq!(
                world
                    .post(&key, &format!("/v1/jobs/{job}/stop"), json!({}))
                    .await
                    .status,
                200
            );
        }
        all.insert(job);
    }
    for (show, count) in [("live", 12), ("done", 13), ("all", 25)] {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = world
                .get(&key, &format!("/v1/jobs?show={show}&limit=4{cursor}"))
                .await
                .json();
            seen.extend(
                page["items"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|job| job["id"].as_str().unwrap().to_owned()),
            );
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(seen.len(), count, "{show}");
        assert_eq!(
            seen.iter().collect::<BTreeSet<_>>().len(),
            count,
            "{show}: no job twice"
        );
        assert!(seen.iter().all(|job| all.contains(job)));
    }
    // A stranger to the tenant sees none of them.
    let (_, eve) = world
        .user(&world.tenant("other").await, "eve", Some("owner"))
        .await;
    assert_eq!(
        world.get(&eve, "/v1/jobs?show=all").await.json()["items"],
        json!([])
    );
    assert_eq!(
        world.get(&eve, &format!("/v1/jobs?scope={tenant}")).await.code(),
        "not_found"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_changes_nothing_and_says_what_would_happen() {
    let world = World::new().await;
    let (_, key) = world
        .user(&world.tenant("acme").await, "ada", Some("member"))
        .await;
    let head = world.head();
    let waits = world
        .post(&key, "/v1/jobs/plan", json!({ "spec": spec("j") }))
        .await
        .json();
    assert_eq!(
        (waits["starts_now"].as_bool(), waits["waiting"]["code"].as_str()),
        (Some(false), Some("no_nodes")),
        "{waits}"
    );
    assert_eq!(world.head(), head);
    world.node("n1", 4000).await;
    let head = world.head();
    let starts = world
        .post(&key, "/v1/jobs/plan", json!({ "spec": spec("j") }))
        .await
        .json();
    assert_eq!(
        (starts["starts_now"].as_bool(), starts["node_name"].as_str()),
        (Some(true), Some("n1")),
        "{starts}"
    );
    assert!(starts["hold_micros"].as_i64().unwrap() > 0);
    assert_eq!(world.head(), head);
    let made = world.post(&key, "/v1/jobs", json!({ "spec": spec("j") })).await;
    assert_eq!(made.json()["held_micros"], starts["hold_micros"]);
    let log = world.get(&key, &format!("/v1/jobs/{}/logs", made.id())).await;
    assert_eq!(
        (log.status.as_u16(), log.bytes.as_slice()),
        (200, &b"a line\n"[..])
    );
    let why = world
        .get(&key, &format!("/v1/jobs/{}/why", made.id()))
        .await
        .json();
    assert!(
        why["waiting"].is_null() && why["sentence"].as_str().unwrap().contains("placed"),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn proofs_stand_on_their_own() {
    let world = World::new().await;
    world.tenant("acme").await;
    let reply = world.get(&world.owner, "/v1/journal/proofs/2").await.json();
    assert_eq!(reply["index"], 1);
    assert!(reply["line"].as_str().unwrap().contains("\"seq\":2"));
    assert_eq!(reply["size"], reply["head"]["seq"]);
    for seq in ["0", "999999", "x", "-1"] {
        assert_eq!(
            world
                .get(&world.owner, &format!("/v1/journal/proofs/{seq}"))
                .await
                .code(),
            "not_found",
            "{seq}"
        );
    }
}
