//! The exchange from outside: what no offer, bid, purchase or order is, is refused with a code, the field named, and nothing
//! changed.

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Reply, World};

const BIG: u64 = 1 << 63;

/// The body with one field as it cannot be.
fn odd(body: &Value, field: &str, value: Value) -> Value {
    let mut body = body.clone();
    body[field] = value;
    body
}

async fn refused(world: &World, token: &str, path: &str, body: &Value, field: &str) {
    let head = world.head();
    let reply: Reply = world.post(token, path, body.clone()).await;
    let said = reply.json();
    assert!(
        matches!(reply.status.as_u16(), 400 | 403 | 404 | 409 | 422),
        "{path} {body}: {reply:?}"
    );
    assert!(said["code"].is_string() && said["detail"].is_string(), "{said}");
    if !field.is_empty() {
        let named = said["errors"][0]["pointer"].as_str().unwrap_or_default();
        assert!(named.starts_with(field), "{path} {body}: {said}");
    }
    assert_eq!(world.head(), head, "{body} changed something");
}

#[tokio::test(flavor = "multi_thread")]
async fn offers_and_bids_that_are_none() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (_, token) = world.user(&tenant, "alma", Some("owner")).await;
    let limits = json!({ "limits": { "gpu_milli@class:T4": 1000 } });
    let path = format!("/v1/scopes/{tenant}/quota");
    let quota = world.put(&world.owner, &path, limits).await;
    assert!(quota.status.is_success());
    let offer = json!({
        "class": "T4", "gpu_milli": 500, "price_micros": 1000, "min_lease_s": 60, "max_lease_s": 3600, "notice_s": 60,
    });
    for (field, value) in [
        ("class", json!("")),
        ("class", json!("T4/../x")),
        ("class", json!("T\u{202e}4")),
        ("class", json!(4)),
        ("class", json!("a".repeat(1000))),
        ("gpu_milli", json!(0)),
        ("gpu_milli", json!(-1)),
        ("gpu_milli", json!(0.5)),
        ("gpu_milli", json!(1001)),
        ("gpu_milli", json!(BIG)),
        ("price_micros", json!(-1)),
        ("price_micros", json!(1.5)),
        ("price_micros", json!("1")),
        ("price_micros", json!(i64::MAX)),
        ("min_lease_s", json!(0)),
        ("min_lease_s", json!(7200)),
        ("max_lease_s", json!(u64::MAX)),
        ("notice_s", json!(u64::MAX)),
        ("notice_s", json!(null)),
        ("region", json!("here")),
        ("buyers", json!(["not an id"])),
        ("isolation", json!("none")),
        ("scope", json!("ten_zzzzzzzzzzzzz")),
        ("source", json!({ "from": "nodes", "nodes": [] })),
        (
            "source",
            json!({ "from": "nodes", "nodes": ["nod_zzzzzzzzzzzzz"] }),
        ),
        ("source", json!({ "from": "air" })),
        (
            "windows",
            json!({ "when": "once", "start": "2026-03-02T10:00:00Z", "end": "2026-03-02T09:00:00Z" }),
        ),
        (
            "windows",
            json!({ "when": "once", "start": "soon", "end": "later" }),
        ),
        (
            "windows",
            json!({ "when": "daily", "from_minute": 0, "until_minute": 60, "zone": "Mars/Olympus" }),
        ),
        (
            "windows",
            json!({ "when": "daily", "from_minute": 1441, "until_minute": 60, "zone": "UTC" }),
        ),
        ("colour", json!("red")),
    ] {
        let field_at = match field {
            "scope" => String::new(),
            field => format!("/{field}"),
        };
        // A lease's shortest and longest are judged together, and who names a foreign place is told of none.
        let field_at = match (field, &value) {
            ("max_lease_s", _) => "/min_lease_s".to_owned(),
            _ => field_at,
        };
        refused(
            &world,
            &token,
            "/v1/market/offers",
            &odd(&offer, field, value),
            &field_at,
        )
        .await;
    }
    let buy = json!({ "class": "T4", "gpu_milli": 1, "duration_s": 60 });
    let bid = json!({
        "class": "T4", "gpu_milli": 1, "duration_s": 60, "price_micros": 5, "expires": "2099-01-01T00:00:00Z",
    });
    for (field, value) in [
        ("class", json!("")),
        ("gpu_milli", json!(0)),
        ("gpu_milli", json!(BIG)),
        ("gpu_milli", json!("1")),
        ("duration_s", json!(0)),
        ("duration_s", json!(u64::MAX)),
        ("price_micros", json!(-1)),
        ("price_micros", json!(i64::MAX)),
        ("min_reliability_permille", json!(1001)),
        ("min_isolation", json!("some")),
        ("region", json!("no where")),
        ("colour", json!("red")),
    ] {
        for (path, body) in [("/v1/market/buy", &buy), ("/v1/market/bids", &bid)] {
            let body = odd(body, field, value.clone());
            refused(&world, &token, path, &body, &format!("/{field}")).await;
        }
    }
    for expires in [json!("2020-01-01T00:00:00Z"), json!("never"), json!(7)] {
        refused(
            &world,
            &token,
            "/v1/market/bids",
            &odd(&bid, "expires", expires),
            "/expires",
        )
        .await;
    }
    // Nothing is there to be bought, and of its own it buys nothing.
    refused(&world, &token, "/v1/market/buy", &buy, "").await;
    let made = world.post(&token, "/v1/market/offers", offer.clone()).await;
    assert_eq!(made.status, 201, "{made:?}");
    let own = world.post(&token, "/v1/market/buy", buy.clone()).await;
    assert_eq!(own.code(), "self_trade", "{own:?}");
    // What is on offer is not on offer once more.
    refused(
        &world,
        &token,
        "/v1/market/offers",
        &odd(&offer, "gpu_milli", json!(501)),
        "/gpu_milli",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn terms_and_standing_orders_that_are_none() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let head = world.head();
    let terms = world.get(&world.owner, "/v1/market/terms").await.json();
    for (field, value) in [
        ("fee_permille", json!(1001)),
        ("penalty_permille", json!(-1)),
        ("check_answer_s", json!(9)),
        ("check_again_s", json!(u64::MAX)),
        ("least_speed", json!({ "": 1 })),
        ("least_speed", json!({ "H100": -1 })),
    ] {
        let reply = world
            .put(&world.owner, "/v1/market/terms", odd(&terms, field, value))
            .await;
        assert!(matches!(reply.status.as_u16(), 400 | 422), "{field}: {reply:?}");
    }
    let order = json!({ "floor_micros": 1, "min_lease_s": 60, "max_lease_s": 3600, "notice_s": 60 });
    for (class, body) in [
        ("T4", odd(&order, "floor_micros", json!(-1))),
        ("T4", odd(&order, "min_lease_s", json!(0))),
        ("T4", odd(&order, "notice_s", json!(u64::MAX))),
        ("T4%20x", order.clone()),
        // Nothing of that class is its own.
        ("T4", order.clone()),
    ] {
        let path = format!("/v1/market/auto-offers/{tenant}/{class}");
        let request = world.request(Method::PUT, &path, Some(&world.owner)).json(&body);
        let reply = world.send(request).await;
        assert!(
            matches!(reply.status.as_u16(), 400 | 403 | 404 | 409 | 422),
            "{class} {body}: {reply:?}"
        );
    }
    for (method, path) in [
        (Method::DELETE, "/v1/market/offers/off_zzzzzzzzzzzzz"),
        (Method::DELETE, "/v1/market/bids/x"),
        (Method::POST, "/v1/market/leases/lse_zzzzzzzzzzzzz/recall"),
        (Method::GET, "/v1/market/leases?scope=nowhere"),
    ] {
        let reply = world.send(world.request(method, path, Some(&world.owner))).await;
        assert!(reply.status.is_client_error(), "{path}: {reply:?}");
    }
    assert_eq!(world.head(), head, "nothing changed");
}
