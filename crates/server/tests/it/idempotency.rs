//! Idempotency-Key: said twice, done once.

use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Reply, World, spec};

async fn keyed(world: &World, token: &str, path: &str, key: &str, body: Value) -> Reply {
    world
        .send(
            world
                .request(Method::POST, path, Some(token))
                .header("idempotency-key", key)
                .json(&body),
        )
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repetition_gets_the_first_answer() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let owner = world.owner.clone();
    for (path, body, other) in [
        ("/v1/tenants", json!({ "name": "t" }), json!({ "name": "u" })),
        (
            "/v1/subscribers",
            json!({ "tenant": tenant, "name": "t" }),
            json!({ "tenant": tenant, "name": "u" }),
        ),
        (
            "/v1/users",
            json!({ "parent": tenant, "name": "x" }),
            json!({ "parent": tenant, "name": "y" }),
        ),
    ] {
        let first = keyed(&world, &owner, path, path, body.clone()).await;
        assert_eq!(first.status, 201, "{path} {first:?}");
        assert!(!first.headers.contains_key("idempotent-replayed"));
        let head = world.head();
        let again = keyed(&world, &owner, path, path, body.clone()).await;
        assert_eq!(
            (again.status, &again.bytes),
            (first.status, &first.bytes),
            "{path}"
        );
        assert_eq!(again.headers["idempotent-replayed"], "true");
        let reused = keyed(&world, &owner, path, path, other).await;
        assert_eq!(
            (reused.status.as_u16(), reused.code().as_str()),
            (422, "idempotency_key_reused"),
            "{path}"
        );
        assert_eq!(world.head(), head, "{path}: nothing changed");
    }
    // Another principal's key is another key.
    let (_, ada) = world.user(&tenant, "ada", Some("owner")).await;
    let theirs = keyed(
        &world,
        &ada,
        "/v1/subscribers",
        "/v1/tenants",
        json!({ "tenant": tenant, "name": "v" }),
    )
    .await;
    assert_eq!(theirs.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_used_on_another_route_is_reused() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let body = json!({ "name": "t" });
    assert_eq!(
        keyed(&world, &world.owner, "/v1/tenants", "k", body).await.status,
        201
    );
    let other = keyed(
        &world,
        &world.owner,
        "/v1/subscribers",
        "k",
        json!({ "tenant": tenant, "name": "t" }),
    )
    .await;
    assert_eq!(other.code(), "idempotency_key_reused");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_at_once_make_one_job() {
    let world = Arc::new(World::new().await);
    let tenant = world.tenant("acme").await;
    let (_, ada) = world.user(&tenant, "ada", Some("member")).await;
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (world, ada) = (world.clone(), ada.clone());
            tokio::spawn(async move {
                keyed(
                    &world,
                    &ada,
                    "/v1/jobs",
                    "only-once",
                    json!({ "spec": spec("j") }),
                )
                .await
            })
        })
        .collect();
    let mut made = Vec::new();
    for task in tasks {
        let reply = task.await.unwrap();
        match reply.status.as_u16() {
            201 => made.push(reply.id()),
            409 => assert_eq!(reply.code(), "idempotency_in_flight"),
            other => panic!("{other} {reply:?}"),
        }
    }
    made.dedup();
    assert_eq!(made.len(), 1);
    let listed = world.get(&ada, "/v1/jobs?show=all").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(
        keyed(
            &world,
            &ada,
            "/v1/jobs",
            "only-once",
            json!({ "spec": spec("j") })
        )
        .await
        .id(),
        made[0]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_leaves_its_key_free() {
    let world = World::new().await;
    let (_, ada) = world
        .user(&world.tenant("acme").await, "ada", Some("member"))
        .await;
    let bad = keyed(&world, &ada, "/v1/jobs", "k", json!({ "spec": spec("a b") })).await;
    assert_eq!((bad.status.as_u16(), bad.field().as_str()), (422, "/spec/name"));
    assert_eq!(
        keyed(&world, &ada, "/v1/jobs", "k", json!({ "spec": spec("ab") }))
            .await
            .status,
        201
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_keys_and_secret_answers_are_refused() {
    let world = World::new().await;
    let owner = world.owner.clone();
    let me = world.get(&owner, "/v1/whoami").await.json()["user"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    for key in ["", " ", "a b", &"x".repeat(256), "caf\u{e9}"] {
        let request = world
            .request(Method::POST, "/v1/tenants", Some(&owner))
            .json(&json!({ "name": "t" }));
        let value = reqwest::header::HeaderValue::from_bytes(key.as_bytes()).unwrap();
        let reply = world.send(request.header("idempotency-key", value)).await;
        assert_eq!(
            (reply.status.as_u16(), reply.field().as_str()),
            (422, "Idempotency-Key"),
            "{key:?}"
        );
    }
    for (path, body) in [
        (format!("/v1/users/{me}/keys"), json!({ "label": "l" })),
        ("/v1/nodes/tokens".into(), json!({})),
    ] {
        let reply = keyed(&world, &owner, &path, "k", body).await;
        assert_eq!(
            (reply.status.as_u16(), reply.field().as_str()),
            (422, "Idempotency-Key"),
            "{path}"
        );
    }
}
