//! Analysis and forecast over HTTP.

use serde_json::{Value, json};
use tenure_domain::workload::usage::Usage;
use tenure_server::controller::now;

use crate::money::Money;

#[tokio::test(flavor = "multi_thread")]
async fn use_is_put_together_in_the_prices_of_whoever_asks() {
    let money = Money::with_books().await;
    money.use_some().await;
    let of = async |token: &str, scope: &str, more: &str| -> Value {
        money
            .get(token, &format!("/v1/analysis?scope={scope}&{more}"))
            .await
    };
    let paid = of(&money.boss, &money.acme, "by=class").await;
    assert_eq!(paid["groups"][0]["group"], "H100");
    let (cost, waste) = (
        paid["total"]["cost_micros"].as_i64().unwrap(),
        paid["total"]["waste_micros"].as_i64().unwrap(),
    );
    assert_eq!(paid["total"]["gpu_ms"], 9000);
    assert!(cost > 0 && waste > 0 && waste < cost, "{paid}");
    assert_eq!(
        paid["total"]["idle_ms"], 3000,
        "of the six seconds that were measured"
    );
    let asked = of(&money.clerk, &money.lab, "by=user").await;
    assert_eq!(asked["groups"][0]["path"], "acme/lab/ada");
    let dearer = asked["total"]["cost_micros"].as_i64().unwrap();
    assert!(
        dearer > cost,
        "a subscriber pays its tenant's prices: {dearer} and {cost}"
    );
    // The tenant pays the fee too; whoever stands above sees no more than that, whatever scope is looked at.
    let seen = of(&money.staff, &money.lab, "by=kind").await;
    assert_eq!(seen["total"]["cost_micros"], cost);
    for (by, group) in [
        ("tenant", money.acme.as_str()),
        ("subscriber", &money.lab),
        ("user", &money.ada),
        ("kind", "batch"),
        ("name", "train"),
        ("sku", ""),
        ("isolation", "exclusive"),
        ("workload", ""),
        ("label:project", ""),
    ] {
        let view = of(&money.boss, &money.acme, &format!("by={by}")).await;
        let groups = view["groups"].as_array().unwrap();
        assert_eq!(groups.len(), 1, "{by}");
        if by != "isolation" {
            assert_eq!(groups[0]["group"], group, "{by}");
        }
        assert_eq!(groups[0]["cost_micros"], cost, "{by}");
    }
    for none in [
        "class=A10",
        "kind=training",
        "name=other",
        "sku=small",
        "until=2020-01-01T00:00:00Z&since=2019-01-01T00:00:00Z",
    ] {
        let view = of(&money.boss, &money.acme, none).await;
        assert_eq!(view["total"]["rows"], 0, "{none}");
    }
    for (bad, field) in [
        ("by=planet", "by"),
        ("by=label:", "by"),
        ("by=label:a%3Db", "by"),
        ("since=yesterday", "since"),
        ("kind=9", "kind"),
        ("since=2026-02-01T00:00:00Z&until=2026-01-01T00:00:00Z", "since"),
    ] {
        let reply = money.world.get(&money.boss, &format!("/v1/analysis?{bad}")).await;
        assert_eq!(
            (reply.code().as_str(), reply.field().as_str()),
            ("invalid_field", field),
            "{bad}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slices_are_idle_of_their_share_and_jobs_are_told_apart_by_their_labels() {
    let money = Money::with_books().await;
    let slice = json!({ "gpus": 1, "compute_permille": 300, "vram_mib": 1000 });
    for (name, project, busy_ms, waited_ms) in [("busy", "film", 900, 2100), ("lazy", "trailer", 450, 0)] {
        let spec = json!({ "name": name, "command": ["true"], "labels": { "project": project }, "demand": slice,
            "run_time_s": 3600 });
        let (_, allocation) = money.starts(spec).await;
        let usage = Usage {
            busy_ms,
            waited_ms,
            ..Usage::default()
        };
        money.meter_as(allocation, 3000, usage).await;
    }
    let of = async |by: &str| -> Value {
        money
            .get(&money.boss, &format!("/v1/analysis?scope={}&by={by}", money.acme))
            .await
    };
    for (by, key, names) in [
        ("job", "name", ["busy", "lazy"]),
        ("name", "group", ["busy", "lazy"]),
        ("label:project", "group", ["film", "trailer"]),
    ] {
        let view = of(by).await;
        assert_eq!((&view["by"], &view["labels"]), (&json!(by), &json!(["project"])));
        let groups = view["groups"].as_array().unwrap();
        assert_eq!(groups.len(), 2, "{view}");
        for (name, idle_ms) in names.into_iter().zip([0, 450]) {
            let group = groups.iter().find(|group| group[key] == name).unwrap();
            let cost = group["cost_micros"].as_i64().unwrap();
            assert!(cost > 0, "{view}");
            assert_eq!(group["idle_ms"], idle_ms, "{by} {name}");
            let waste = group["waste_micros"].as_i64().unwrap();
            let half = if idle_ms == 0 { 0 } else { cost / 2 };
            assert!((waste - half).abs() <= 1, "{by} {name}: {waste} of {cost}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_month_is_told_with_what_it_rests_on() {
    let money = Money::with_books().await;
    let empty = money
        .get(&money.boss, &format!("/v1/forecast?scope={}", money.acme))
        .await;
    assert_eq!(
        (&empty["forecast"]["basis"], &empty["forecast"]["month_micros"]),
        (&json!("nothing"), &json!(0))
    );
    money.use_some().await;
    let told = money
        .get(&money.boss, &format!("/v1/forecast?scope={}", money.acme))
        .await;
    assert_eq!(told["forecast"]["basis"], "mean");
    let (so_far, month) = (
        told["forecast"]["so_far_micros"].as_i64().unwrap(),
        told["forecast"]["month_micros"].as_i64().unwrap(),
    );
    let spent = money
        .get(&money.boss, &format!("/v1/analysis?scope={}", money.acme))
        .await;
    assert_eq!(so_far, spent["total"]["cost_micros"].as_i64().unwrap());
    assert!(
        month >= so_far && told["basis"].as_str().unwrap().contains("mean"),
        "{told}"
    );
    assert!(told["until"].as_str().unwrap() > now().rfc3339().as_str());
    assert_eq!(
        money
            .world
            .get(&money.stranger, &format!("/v1/forecast?scope={}", money.acme))
            .await
            .status,
        404
    );
}
