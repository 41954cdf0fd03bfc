//! Jobs that say what they are, and what would do for them, over HTTP.

use serde_json::{Value, json};

use crate::world::World;

async fn setting() -> (World, String) {
    let world = World::new().await;
    world.gpu("GPU-11").await;
    let tenant = world.tenant("acme").await;
    let (_, key) = world.user(&tenant, "ada", Some("member")).await;
    (world, key)
}

fn inference(model: &str, dtype: &str) -> Value {
    json!({ "inference": { "model": model, "dtype": dtype } })
}

#[tokio::test(flavor = "multi_thread")]
async fn fit_tells_terms_and_classes_and_changes_nothing() {
    let (world, key) = setting().await;
    let head = world.head();
    let asked = json!({ "workload": inference("llama-2-7b", "int4") });
    let told = world.post(&key, "/v1/fit", asked).await;
    assert_eq!(told.status, 200, "{told:?}");
    let told = told.json();
    let terms = told["fit"]["derivation"]["estimate"]["terms"]
        .as_array()
        .unwrap()
        .clone();
    let parts: Vec<&str> = terms.iter().map(|term| term["name"].as_str().unwrap()).collect();
    assert_eq!(parts, ["weights", "kv_cache", "activations", "overhead"]);
    assert_eq!(told["fit"]["derivation"]["basis"], "rule");
    let class = &told["fit"]["classes"][0];
    assert_eq!(
        (&class["class"], &class["free"]),
        (&json!("H100"), &json!(1)),
        "{told}"
    );
    let hourly = |size: &Value| size["hourly_micros"].as_i64().unwrap();
    assert!(hourly(&class["slice"]) < hourly(&class["whole"]));
    let large = json!({ "workload": inference("70B", "bf16") });
    let told = world.post(&key, "/v1/fit", large).await.json();
    assert!(told["fit"]["classes"][0]["why_not"].is_string(), "{told}");
    assert_eq!(world.head(), head, "nothing was decided");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_means_nothing_names_its_field() {
    let (world, key) = setting().await;
    let head = world.head();
    for (workload, field) in [
        (
            json!({ "inference": { "model": "no-such" } }),
            "/workload/inference/model",
        ),
        (
            json!({ "inference": { "model": "7B", "context": 0 } }),
            "/workload/inference/context",
        ),
        (
            json!({ "inference": { "model": "7B", "context": -1 } }),
            "/workload/inference/context",
        ),
        (
            json!({ "inference": { "model": "7B", "context": 1e30 } }),
            "/workload/inference/context",
        ),
        (
            json!({ "inference": { "model": "7B", "dtype": "fp7" } }),
            "/workload/inference/dtype",
        ),
        (
            json!({ "inference": { "model": "7B", "colour": 1 } }),
            "/workload/inference/colour",
        ),
        (json!({ "inference": {} }), "/workload/inference/model"),
        (json!({ "painting": {} }), "/workload"),
        (json!("inference"), "/workload"),
        (
            json!({ "rendering": { "frames": "5-1" } }),
            "/workload/rendering/frames",
        ),
        (
            json!({ "rendering": { "frames": "1-2,2" } }),
            "/workload/rendering/frames",
        ),
        (
            json!({ "rendering": { "frames": "1-2", "vram_mib": 0 } }),
            "/workload/rendering/vram_mib",
        ),
        (json!({ "video": {} }), "/workload/video"),
        (
            json!({ "video": { "segments": { "duration_s": 0 } } }),
            "/workload/video/segments/duration_s",
        ),
        (
            json!({ "training": { "model": "7B", "method": "lora" } }),
            "/workload/training/method",
        ),
    ] {
        let refused = world.post(&key, "/v1/fit", json!({ "workload": workload })).await;
        assert_eq!(
            (refused.status.as_u16(), refused.field()),
            (422, field.to_owned()),
            "{workload} {refused:?}"
        );
        let spec = json!({ "name": "j", "command": ["true"], "workload": workload });
        let refused = world.post(&key, "/v1/jobs", json!({ "spec": spec })).await;
        assert_eq!(
            (refused.status.as_u16(), refused.field()),
            (422, format!("/spec{field}")),
            "{workload} {refused:?}"
        );
    }
    let spec =
        json!({ "name": "j", "command": ["true"], "kind": "video", "workload": inference("7B", "int4") });
    let refused = world.post(&key, "/v1/jobs", json!({ "spec": spec })).await;
    assert_eq!(
        (refused.status.as_u16(), refused.field()),
        (422, "/spec/kind".to_owned())
    );
    assert_eq!(world.head(), head);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_shown_with_how_its_demand_came_about() {
    let (world, key) = setting().await;
    let spec = json!({ "name": "serve", "command": ["true"], "workload": inference("llama-2-7b", "int4") });
    let plan = world
        .post(&key, "/v1/jobs/plan", json!({ "spec": spec }))
        .await
        .json();
    assert_eq!(plan["starts_now"], true, "{plan}");
    let taken = world.post(&key, "/v1/jobs", json!({ "spec": spec })).await;
    assert_eq!(taken.status, 201, "{taken:?}");
    let job = taken.json();
    assert_eq!(job["spec"]["kind"], "inference");
    assert_eq!(job["spec"]["demand"], plan["filled"]["demand"]);
    assert_eq!(job["derivation"], plan["derivation"]);
    assert_eq!(job["derivation"]["vram_mib"], job["spec"]["demand"]["vram_mib"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_by_kind_are_set_shown_and_refuse_with_a_reason() {
    let (world, key) = setting().await;
    let user = world.get(&key, "/v1/whoami").await.json()["user"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let quota = json!({ "limits": { "jobs@kind:inference:7b": 0 } });
    let set = world
        .put(&world.owner, &format!("/v1/scopes/{user}/quota"), quota)
        .await;
    assert_eq!(set.status, 200, "{set:?}");
    let bad = json!({ "limits": { "slices@kind:video": 1 } });
    let set = world
        .put(&world.owner, &format!("/v1/scopes/{user}/quota"), bad)
        .await;
    assert_eq!(set.status, 422, "{set:?}");
    let spec = json!({ "name": "serve", "command": ["true"], "workload": inference("llama-2-7b", "int4") });
    let refused = world.post(&key, "/v1/jobs", json!({ "spec": spec })).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (403, "exceeds_quota".into()),
        "{refused:?}"
    );
    let budgets = json!({ "budgets": [{ "period": "day", "kind": "rendering", "frames": 2000 }] });
    let set = world
        .put(&world.owner, &format!("/v1/scopes/{user}/budgets"), budgets)
        .await;
    assert_eq!(set.status, 200, "{set:?}");
    assert_eq!(set.json()["budgets"][0]["held_frames"], 0);
    let rendering = |frames: &str| {
        let workload = json!({ "rendering": { "frames": frames, "vram_mib": 512, "each_ms": 1000 } });
        let tasks = json!({ "whole": true });
        json!({ "spec": { "name": "r", "command": ["true"], "workload": workload, "tasks": tasks } })
    };
    let refused = world.post(&key, "/v1/jobs", rendering("1-2001")).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (403, "exceeds_budget".into()),
        "{refused:?}"
    );
    let taken = world.post(&key, "/v1/jobs", rendering("1-2000")).await;
    assert_eq!(taken.status, 201, "{taken:?}");
    let shown = world
        .get(&key, &format!("/v1/scopes/{user}/budgets"))
        .await
        .json();
    assert_eq!(shown["budgets"][0]["held_frames"], 2000, "{shown}");
}
