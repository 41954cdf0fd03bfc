//! Bad input: each a clear 4xx with a stable code and the field named, and nothing changed.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::{Reply, World, spec};

/// What it is, the body, the expected status and code, and the field named.
type Case = (&'static str, Vec<u8>, (u16, &'static str), &'static str);

async fn raw_body(world: &World, body: impl Into<reqwest::Body>) -> Reply {
    let request = world.request(Method::POST, "/v1/tenants", Some(&world.owner));
    world
        .send(request.header("content-type", "application/json").body(body))
        .await
}

/// The server reads no further than it must, so a client may be cut off while it writes and before it has read the answer.
async fn too_large(world: &World) -> Reply {
    for _ in 0..50 {
        let request = world.request(Method::POST, "/v1/tenants", Some(&world.owner));
        let request = request.header("content-type", "application/json");
        let body = format!("{{\"name\":\"{}\"}}", "a".repeat(1 << 20));
        if let Ok(reply) = world.try_send(request.body(body)).await {
            return reply;
        }
    }
    panic!("no client ever reads that its body is too large");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_not_what_was_wanted() {
    let world = World::new().await;
    let head = world.head();
    let deep = format!("{{\"name\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let long_name = format!("{{\"name\":\"{}\"}}", "a".repeat(1_000_000));
    let (malformed, invalid) = ((400, "malformed_request"), (422, "invalid_field"));
    let cases: Vec<Case> = vec![
        ("empty", b"".into(), malformed, ""),
        ("blank", b"  \n".into(), malformed, ""),
        ("null", b"null".into(), invalid, ""),
        ("array for object", b"[\"a\"]".into(), invalid, ""),
        ("text for object", b"\"a\"".into(), invalid, ""),
        (
            "duplicate key",
            br#"{"name":"a","name":"b"}"#.into(),
            malformed,
            "",
        ),
        (
            "unknown field",
            br#"{"name":"a","colour":1}"#.into(),
            invalid,
            "/colour",
        ),
        ("missing field", b"{}".into(), invalid, "/name"),
        ("null field", br#"{"name":null}"#.into(), invalid, "/name"),
        ("number for text", br#"{"name":1}"#.into(), invalid, "/name"),
        ("array for text", br#"{"name":["a"]}"#.into(), invalid, "/name"),
        ("deep", deep.into_bytes(), malformed, ""),
        ("trailing garbage", br#"{"name":"a"} x"#.into(), malformed, ""),
        ("two values", br#"{"name":"a"}{"name":"b"}"#.into(), malformed, ""),
        ("cut", br#"{"name":"a"#.into(), malformed, ""),
        ("invalid UTF-8", b"{\"name\":\"\xff\xfe\"}".into(), malformed, ""),
        ("lone surrogate", br#"{"name":"\ud800"}"#.into(), malformed, ""),
        (
            "NUL in a name",
            br#"{"name":"a\u0000b"}"#.into(),
            invalid,
            "/name",
        ),
        (
            "direction mark",
            "{\"name\":\"a\u{202e}b\"}".into(),
            invalid,
            "/name",
        ),
        ("homoglyph", "{\"name\":\"\u{430}cme\"}".into(), invalid, "/name"),
        ("a name of 1 MB", long_name.into_bytes(), invalid, "/name"),
        ("empty name", br#"{"name":""}"#.into(), invalid, "/name"),
        ("path in a name", br#"{"name":"../etc"}"#.into(), invalid, "/name"),
        ("quote in a name", br#"{"name":"a'--"}"#.into(), invalid, "/name"),
        ("NaN", br#"{"name":NaN}"#.into(), malformed, ""),
        ("1e400", br#"{"name":1e400}"#.into(), malformed, ""),
        ("leading zero", br#"{"name":01}"#.into(), malformed, ""),
    ];
    for (case, body, (status, code), field) in cases {
        let reply = raw_body(&world, body).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (status, code),
            "{case} {}",
            String::from_utf8_lossy(&reply.bytes)
        );
        assert_eq!(reply.field(), field, "{case}");
    }
    assert_eq!(world.head(), head, "nothing changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_out_of_their_range() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (_, ada) = world.user(&tenant, "ada", Some("member")).await;
    let head = world.head();
    for number in [
        "-1",
        "-0",
        "1.5",
        "1e3",
        "18446744073709551616",
        "9223372036854775808.5",
        "\"7\"",
        "true",
        "null",
        "[]",
    ] {
        let body = format!("{{\"limits\":{{\"jobs\":{number}}}}}");
        let request = world.request(
            Method::PUT,
            &format!("/v1/scopes/{tenant}/quota"),
            Some(&world.owner),
        );
        let reply = world
            .send(request.header("content-type", "application/json").body(body))
            .await;
        assert_eq!(
            (reply.status.as_u16(), reply.field().as_str()),
            (422, "/limits/jobs"),
            "{number}"
        );
    }
    for number in ["-1", "4294967296", "1e400"] {
        let body =
            format!("{{\"spec\":{{\"name\":\"j\",\"command\":[\"x\"],\"demand\":{{\"gpus\":{number}}}}}}}");
        let request = world
            .request(Method::POST, "/v1/jobs", Some(&ada))
            .header("content-type", "application/json");
        let reply = world.send(request.body(body)).await;
        let expected = if number == "1e400" {
            (400, "")
        } else {
            (422, "/spec/demand/gpus")
        };
        assert_eq!(
            (reply.status.as_u16(), reply.field().as_str()),
            expected,
            "{number}"
        );
    }
    for (limits, field) in [
        (json!({ "gpus": 1 }), "/limits/gpus"),
        (json!({ "vram_mib@class:a b": 1 }), "/limits/vram_mib@class:a b"),
    ] {
        let reply = world
            .put(
                &world.owner,
                &format!("/v1/scopes/{tenant}/quota"),
                json!({ "limits": limits }),
            )
            .await;
        assert_eq!((reply.status.as_u16(), reply.field().as_str()), (422, field));
    }
    let twice = "{\"limits\":{\"jobs\":1,\"jobs\":2}}";
    let request = world.request(
        Method::PUT,
        &format!("/v1/scopes/{tenant}/quota"),
        Some(&world.owner),
    );
    let reply = world
        .send(request.header("content-type", "application/json").body(twice))
        .await;
    assert_eq!(
        reply.code(),
        "malformed_request",
        "keys of maps are said once too"
    );
    assert_eq!(world.head(), head, "nothing changed");

    // The largest numbers that fit are taken as they are.
    for number in ["9007199254740993", "9223372036854775808", "18446744073709551615"] {
        let body = format!("{{\"limits\":{{\"jobs\":{number}}}}}");
        let request = world.request(
            Method::PUT,
            &format!("/v1/scopes/{tenant}/quota"),
            Some(&world.owner),
        );
        let reply = world
            .send(request.header("content-type", "application/json").body(body))
            .await;
        assert_eq!(reply.json()["limits"]["jobs"].to_string(), number);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_object_is_never_taken_from_an_array() {
    let world = World::new().await;
    let (_, ada) = world
        .user(&world.tenant("acme").await, "ada", Some("member"))
        .await;
    let mut odd = spec("j");
    odd["demand"] = json!([0, 1000, 0, null, 1000, 512, "guarded"]);
    let reply = world.post(&ada, "/v1/jobs", json!({ "spec": odd })).await;
    assert_eq!(
        (reply.status.as_u16(), reply.field().as_str()),
        (422, "/spec/demand")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn media_types_encodings_and_sizes() {
    let world = World::new().await;
    let head = world.head();
    let body = r#"{"name":"a"}"#;
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonp",
        "application/json; charset=latin1",
        "multipart/form-data",
    ] {
        let request = world
            .request(Method::POST, "/v1/tenants", Some(&world.owner))
            .header("content-type", kind)
            .body(body);
        let reply = world.send(request).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (415, "unsupported_media_type"),
            "{kind}"
        );
        assert_eq!(reply.field(), "Content-Type");
    }
    let untyped = world
        .send(
            world
                .request(Method::POST, "/v1/tenants", Some(&world.owner))
                .body(body),
        )
        .await;
    assert_eq!(untyped.status, 415);
    for coding in ["gzip", "deflate", "br", "zstd", "gzip, identity"] {
        let request = world
            .request(Method::POST, "/v1/tenants", Some(&world.owner))
            .header("content-type", "application/json");
        let reply = world
            .send(
                request
                    .header("content-encoding", coding)
                    .body(vec![31, 139, 8, 0]),
            )
            .await;
        assert_eq!(
            (reply.status.as_u16(), reply.field().as_str()),
            (415, "Content-Encoding"),
            "{coding}"
        );
    }
    let large = too_large(&world).await;
    assert_eq!(
        (large.status.as_u16(), large.code().as_str()),
        (413, "body_too_large")
    );
    assert_eq!(world.head(), head, "nothing changed");
    let polite = world
        .request(Method::POST, "/v1/tenants", Some(&world.owner))
        .header("content-type", "application/json; charset=UTF-8");
    assert_eq!(world.send(polite.body(body)).await.status, 201);
}

/// Sends bytes as they are and gives what comes back.
async fn raw(world: &World, bytes: &[u8], mut more: impl FnMut() -> Option<Vec<u8>>) -> String {
    let mut stream = tokio::net::TcpStream::connect(world.url.trim_start_matches("http://"))
        .await
        .unwrap();
    stream.write_all(bytes).await.unwrap();
    while let Some(piece) = more() {
        if stream.write_all(&piece).await.is_err() {
            break;
        }
    }
    let mut answer = vec![0; 4096];
    let read = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut answer))
        .await
        .expect("an answer in time");
    String::from_utf8_lossy(&answer[..read.unwrap_or(0)]).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_without_end_and_heads_without_measure() {
    let world = World::new().await;
    let head = world.head();
    let start = format!(
        "POST /v1/tenants HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n",
        world.owner
    );
    let claim = raw(
        &world,
        format!("{start}content-length: 1073741824\r\n\r\n").as_bytes(),
        || None,
    )
    .await;
    assert!(claim.starts_with("HTTP/1.1 413"), "{claim}");
    let mut left = 64;
    let endless = raw(
        &world,
        format!("{start}transfer-encoding: chunked\r\n\r\n").as_bytes(),
        || {
            left -= 1;
            let chunk = format!("8000\r\n{}\r\n", "[".repeat(0x8000));
            (left > 0).then_some(chunk.into_bytes())
        },
    )
    .await;
    assert!(
        endless.starts_with("HTTP/1.1 413") || endless.is_empty(),
        "{endless}"
    );
    let many: String = (0..200).map(|i| format!("x-{i}: y\r\n")).collect();
    let headers = raw(&world, format!("{start}{many}\r\n").as_bytes(), || None).await;
    assert!(
        headers.starts_with("HTTP/1.1 4") || headers.is_empty(),
        "{headers}"
    );
    let long = raw(
        &world,
        format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(100_000)).as_bytes(),
        || None,
    )
    .await;
    assert!(long.starts_with("HTTP/1.1 4") || long.is_empty(), "{long}");
    assert_eq!(world.head(), head, "nothing changed");
    assert_eq!(
        world.get(&world.owner, "/v1/whoami").await.status,
        200,
        "and it still answers"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_are_none() {
    let world = World::new().await;
    let (tenant, job) = (world.tenant("acme").await, "job_0000000000000");
    let absent = world.get(&world.owner, "/v1/scopes/ten_0000000000000").await;
    assert_eq!(absent.code(), "not_found");
    let upper = tenant.to_uppercase();
    for id in [
        job,
        "usr_0000000000000",
        upper.as_str(),
        "%2e%2e",
        "..%2f..%2fetc",
        "*",
        "'",
        "%00",
        "%ff",
        "ten_",
        "0",
        &"a".repeat(5000),
    ] {
        let reply = world.get(&world.owner, &format!("/v1/scopes/{id}")).await;
        assert_eq!(reply.status, 404, "{id}");
        if reply.code() == "not_found" {
            let (mut ours, mut theirs) = (reply.json(), absent.json());
            (ours["request_id"], theirs["request_id"]) = (json!(0), json!(0));
            assert_eq!(ours, theirs, "{id}");
        }
    }
    for (body, field) in [
        (json!({ "tenant": job, "name": "x" }), "/tenant"),
        (json!({ "tenant": "*", "name": "x" }), "/tenant"),
    ] {
        let reply = world.post(&world.owner, "/v1/subscribers", body).await;
        assert_eq!((reply.status.as_u16(), reply.field().as_str()), (422, field));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_pages_and_cursors() {
    let world = World::new().await;
    let (a, b) = (world.tenant("a").await, world.tenant("b").await);
    for i in 0..3 {
        world.subscriber(&a, &format!("s{i}")).await;
        world.subscriber(&b, &format!("s{i}")).await;
    }
    let (_, boss) = world.user(&a, "boss", Some("owner")).await;
    let list = format!("/v1/scopes/{a}/children");
    for limit in [
        "0",
        "-1",
        "1000000000",
        "1001",
        "x",
        "",
        "1.5",
        "99999999999999999999",
    ] {
        let reply = world.get(&world.owner, &format!("{list}?limit={limit}")).await;
        assert_eq!(
            (reply.status.as_u16(), reply.field().as_str()),
            (422, "limit"),
            "{limit}"
        );
    }
    for (query, field) in [
        ("limits=1", "limits"),
        ("limit=1&limit=2", "limit"),
        ("a%20b=1", "a b"),
    ] {
        let reply = world.get(&world.owner, &format!("{list}?{query}")).await;
        assert_eq!(
            (
                reply.status.as_u16(),
                reply.code().as_str(),
                reply.field().as_str()
            ),
            (400, "malformed_request", field),
            "{query}"
        );
    }
    for query in ["limit=%zz", "limit=%ff", "%"] {
        assert_eq!(
            world.get(&world.owner, &format!("{list}?{query}")).await.code(),
            "malformed_request",
            "{query}"
        );
    }
    let cursor = world.get(&world.owner, &format!("{list}?limit=1")).await.json()["next"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        world
            .get(&world.owner, &format!("{list}?limit=1&cursor={cursor}"))
            .await
            .json()["items"][0]["name"],
        "s0"
    );
    let mut flipped = cursor.clone().into_bytes();
    flipped[30] = if flipped[30] == b'0' { b'1' } else { b'0' };
    let flipped = String::from_utf8(flipped).unwrap();
    for (token, path, cursor) in [
        (&world.owner, &list, flipped.as_str()),
        (&world.owner, &list, "abc"),
        (&world.owner, &list, "''"),
        (&world.owner, &list, ""),
        (&world.owner, &format!("/v1/scopes/{b}/children"), &cursor),
        (&world.owner, &"/v1/nodes".to_owned(), &cursor),
        (&boss, &list, &cursor),
    ] {
        let reply = world.get(token, &format!("{path}?cursor={cursor}")).await;
        assert_eq!(
            (reply.status.as_u16(), reply.field().as_str()),
            (422, "cursor"),
            "{path} {cursor}"
        );
    }
    for query in ["show=everything", "scope=*"] {
        assert!(
            world
                .get(&world.owner, &format!("/v1/jobs?{query}"))
                .await
                .status
                .is_client_error(),
            "{query}"
        );
    }
    for (query, field) in [
        ("since=yesterday", "since"),
        ("until=1", "until"),
        ("since=2030-01-01T00:00:00Z&until=2029-01-01T00:00:00Z", "since"),
    ] {
        let reply = world.get(&world.owner, &format!("/v1/costs?{query}")).await;
        assert_eq!(
            (reply.status.as_u16(), reply.field().as_str()),
            (422, field),
            "{query}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_prove_nothing() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (ada, key) = world.user(&tenant, "ada", Some("owner")).await;
    let soon = tenure_domain::Time(tenure_server::controller::now().0 + 300).rfc3339();
    let fleeting = world
        .key(&ada, json!({ "label": "fleeting", "expires": soon }))
        .await;
    let limited = world
        .key(
            &ada,
            json!({ "label": "limited", "allow": ["job_read", "scope_read"] }),
        )
        .await;
    let head = world.head();
    let whoami = |value: String| {
        world.send(
            world
                .request(Method::GET, "/v1/whoami", None)
                .header("authorization", value),
        )
    };
    let stranger = tenure_api::token::write(tenure_api::token::Kind::Key, &[5; 32])
        .reveal()
        .to_owned();
    let join = tenure_api::token::write(tenure_api::token::Kind::Join, &[5; 32])
        .reveal()
        .to_owned();
    for bad in [
        String::new(),
        "Bearer".into(),
        "Bearer ".into(),
        format!("Basic {key}"),
        key.clone(),
        format!("Bearer {}", &key[..key.len() - 1]),
        format!("Bearer {}x", key),
        format!("Bearer {stranger}"),
        format!("Bearer {join}"),
        "Bearer eyJhbGciOiJub25lIn0.e30.".into(),
        format!("Bearer {} {}", key, key),
    ] {
        let reply = whoami(bad.clone()).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (401, "unauthenticated"),
            "{bad}"
        );
        assert!(
            reply.headers["www-authenticate"]
                .to_str()
                .unwrap()
                .starts_with("Bearer")
        );
    }
    let two = world
        .request(Method::GET, "/v1/whoami", Some(&key))
        .header("authorization", format!("Bearer {}", world.owner));
    let reply = world.send(two).await;
    assert_eq!(
        (reply.status.as_u16(), reply.field().as_str()),
        (400, "Authorization")
    );
    for query in ["access_token", "token", "key", "api_key"] {
        let reply = world
            .send(world.request(Method::GET, &format!("/v1/whoami?{query}={key}"), None))
            .await;
        assert_eq!(reply.status, 401, "{query}");
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(whoami(format!("Bearer {fleeting}")).await.status, 401, "expired");
    let refused = world
        .post(&limited, "/v1/jobs", json!({ "spec": spec("j") }))
        .await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (403, "not_permitted")
    );
    assert_eq!(world.get(&limited, "/v1/jobs").await.status, 200);
    assert_eq!(
        world.get(&limited, &format!("/v1/users/{ada}/keys")).await.status,
        403
    );
    assert_eq!(world.head(), head, "nothing changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_is_refused_at_once() {
    let world = World::new().await;
    let (ada, key) = world
        .user(&world.tenant("acme").await, "ada", Some("owner"))
        .await;
    for _ in 0..20 {
        let made = world
            .post(
                &key,
                &format!("/v1/users/{ada}/keys"),
                json!({ "label": "brief" }),
            )
            .await
            .json();
        let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
        assert_eq!(world.get(token, "/v1/whoami").await.status, 200);
        assert_eq!(world.delete(token, &format!("/v1/keys/{id}")).await.status, 204);
        assert_eq!(world.get(token, "/v1/whoami").await.status, 401);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn suspension_ownership_and_the_tree() {
    let world = World::new().await;
    let (a, b) = (world.tenant("a").await, world.tenant("b").await);
    let sub = world.subscriber(&a, "s").await;
    let (ada, key) = world.user(&sub, "ada", Some("owner")).await;
    assert_eq!(
        world
            .post(&world.owner, &format!("/v1/scopes/{a}/suspend"), json!({}))
            .await
            .status,
        200
    );
    for path in ["/v1/whoami", "/v1/jobs", "/v1/prices", "/v1/events?follow=false"] {
        let reply = world.get(&key, path).await;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (403, "suspended"),
            "{path}"
        );
    }
    assert_eq!(
        world
            .post(&key, "/v1/jobs", json!({ "spec": spec("j") }))
            .await
            .code(),
        "suspended"
    );
    assert_eq!(
        world
            .post(&world.owner, &format!("/v1/scopes/{a}/resume"), json!({}))
            .await
            .status,
        200
    );
    assert_eq!(world.get(&key, "/v1/whoami").await.status, 200);

    let head = world.head();
    let me = world.get(&world.owner, "/v1/whoami").await.json()["user"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        world
            .delete(&world.owner, &format!("/v1/scopes/platform/roles/{me}/owner"))
            .await
            .code(),
        "last_owner"
    );
    assert_eq!(
        world
            .delete(&world.owner, &format!("/v1/scopes/{me}"))
            .await
            .code(),
        "last_owner"
    );
    for (scope, parent) in [
        (&a, &sub),
        (&a, &a),
        (&a, &b),
        (&sub, &sub),
        (&sub, &ada),
        (&ada, &ada),
    ] {
        let reply = world
            .post(
                &world.owner,
                &format!("/v1/scopes/{scope}/move"),
                json!({ "parent": parent }),
            )
            .await;
        assert_eq!(
            (reply.status.as_u16(), reply.code().as_str()),
            (422, "wrong_parent"),
            "{scope} {parent}"
        );
    }
    assert_eq!(
        world
            .post(
                &world.owner,
                &format!("/v1/scopes/{sub}/suspend"),
                json!({ "x": 1 })
            )
            .await
            .field(),
        "/x"
    );
    assert_eq!(world.head(), head, "nothing changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_in_two_tenants_is_two_users() {
    let world = World::new().await;
    let (a, b) = (world.tenant("a").await, world.tenant("b").await);
    let (at_a, key_a) = world.user(&a, "ada", Some("owner")).await;
    let (at_b, key_b) = world.user(&b, "ada", Some("owner")).await;
    assert_eq!(world.get(&key_a, &format!("/v1/scopes/{at_b}")).await.status, 404);
    assert_eq!(world.get(&key_b, &format!("/v1/scopes/{at_a}")).await.status, 404);
    let crossing = world
        .post(
            &world.owner,
            &format!("/v1/scopes/{b}/roles"),
            json!({ "user": at_a, "role": "member" }),
        )
        .await;
    assert_eq!(
        (crossing.status.as_u16(), crossing.field().as_str()),
        (422, "/user")
    );
}
