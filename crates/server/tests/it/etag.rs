//! Conditional requests on a scope's limits.

use reqwest::Method;
use serde_json::json;

use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_change_on_what_was_read_long_ago_is_refused() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    for (noun, body) in [
        ("quota", json!({ "limits": { "jobs": 3 } })),
        (
            "share",
            json!({ "weight": 3, "nominal": { "H100": { "gpu_milli": 2000 } } }),
        ),
        (
            "budgets",
            json!({ "budgets": [{ "period": "day", "money_micros": 5 }] }),
        ),
        ("policy", json!({ "max_gpus_per_job": 2 })),
        ("log-keeping", json!({ "days": 5 })),
        (
            "rules",
            json!({ "rules": "forbid (principal, action == Action::\"job_submit\", resource);" }),
        ),
    ] {
        let path = format!("/v1/scopes/{tenant}/{noun}");
        let read = world.get(&world.owner, &path).await;
        let tag = read.headers["etag"].to_str().unwrap().to_owned();
        let put = |condition: &str| {
            world.send(
                world
                    .request(Method::PUT, &path, Some(&world.owner))
                    .header("if-match", condition)
                    .json(&body),
            )
        };
        let head = world.head();
        for stale in ["\"0\"", "\"9999\"", "\"99.abc\"", "W/\"1\"", "\"nonsense\""] {
            let reply = put(stale).await;
            assert_eq!(
                (reply.status.as_u16(), reply.code().as_str()),
                (412, "revision_mismatch"),
                "{noun} {stale}"
            );
        }
        for broken in ["7", "\"1", "\"1\" \"2\"", "*, \"1\""] {
            let reply = put(broken).await;
            assert_eq!(
                (reply.status.as_u16(), reply.code().as_str()),
                (400, "malformed_request"),
                "{noun} {broken}"
            );
            assert_eq!(reply.field(), "If-Match");
        }
        assert_eq!(world.head(), head, "{noun}: nothing changed");
        let changed = put(&format!("\"12345\", {tag}")).await;
        assert_eq!(changed.status, 200, "{noun} {changed:?}");
        assert_eq!(put(&tag).await.status, 412, "{noun}: the old tag is old now");
        assert_eq!(put("*").await.status, 200, "{noun}");

        let fresh = world.get(&world.owner, &path).await.headers["etag"]
            .to_str()
            .unwrap()
            .to_owned();
        for (known, status) in [
            (fresh.clone(), 304),
            (format!("W/{fresh}"), 304),
            (tag, 200),
            ("*".into(), 304),
        ] {
            let request = world
                .request(Method::GET, &path, Some(&world.owner))
                .header("if-none-match", &known);
            let reply = world.send(request).await;
            assert_eq!(reply.status.as_u16(), status, "{noun} {known}");
            assert_eq!(reply.bytes.is_empty(), status == 304);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_changes_with_use() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (user, _) = world.user(&tenant, "ada", Some("member")).await;
    let path = format!("/v1/scopes/{tenant}/quota");
    let tag = world.get(&world.owner, &path).await.headers["etag"].clone();
    world.node("n1", 4000).await;
    world.job(&user, "one").await;
    let reply = world
        .send(
            world
                .request(Method::GET, &path, Some(&world.owner))
                .header("if-none-match", &tag),
        )
        .await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["used"]["jobs"], 1);
    // The revision is the same, so a change on what was read is still taken.
    let put = world
        .request(Method::PUT, &path, Some(&world.owner))
        .header("if-match", &tag)
        .json(&json!({ "limits": {} }));
    assert_eq!(world.send(put).await.status, 200);
}
