//! `tenure-bench tenant`: from nothing to a new tenant's first running job, through the real server and agent:
//! tenant, subscriber, user, key, quota, submission, and the moment the job itself reads from the clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use futures_util::StreamExt as _;
use serde_json::json;
use tenure_api::v1::job::{JobPhase, LogQuery};

use super::figure::{figure, percentile};
use crate::house::House;

pub async fn run(trials: usize) -> anyhow::Result<()> {
    let mut house = House::new(None);
    house.start_server().await;
    house.start_agent().await;
    let mut took = Vec::new();
    for trial in 0..trials {
        took.push(newcomer(&house, trial).await?);
    }
    took.sort();
    for (what, share) in [("p50", 0.5), ("p99", 0.99)] {
        figure(
            "tenant",
            &format!("nothing to a new tenant's first instruction, {what}"),
            percentile(&took, share).as_secs_f64() * 1e3,
            "ms",
            Some(1_000.0),
            &format!("{trials} newcomers one after another, each with six requests over HTTP"),
        );
    }
    Ok(())
}

async fn newcomer(house: &House, trial: usize) -> anyhow::Result<Duration> {
    let owner = house.owner();
    let begun = SystemTime::now();
    let tenant = owner
        .create_tenant(
            &serde_json::from_value(json!({ "name": format!("new-{trial}") }))?,
            None,
        )
        .await?
        .id
        .to_string();
    let subscriber = owner
        .create_subscriber(
            &serde_json::from_value(json!({ "tenant": tenant, "name": "unit" }))?,
            None,
        )
        .await?
        .id
        .to_string();
    let user = json!({ "parent": subscriber, "name": "first", "role": "member" });
    let user = owner
        .create_user(&serde_json::from_value(user)?, None)
        .await?
        .id
        .to_string();
    let key = owner
        .create_key(&user, &serde_json::from_value(json!({ "label": "first" }))?)
        .await?;
    owner
        .set_quota(
            &tenant,
            &serde_json::from_value(json!({ "limits": { "jobs": 4 } }))?,
            None,
        )
        .await?;
    let client = house.client(&key.token);
    let job = json!({
        "spec": { "name": "first", "command": ["date", "+%s%N"], "demand": { "cpu_milli": 100, "memory_mib": 16 } }
    });
    let job = client.submit_job(&serde_json::from_value(job)?, None).await?;
    let told = first_line(&client, &job.id.to_string()).await?;
    let first = UNIX_EPOCH + Duration::from_nanos(told.trim().parse().context(told)?);
    Ok(first.duration_since(begun)?)
}

/// What the job printed, once it is done.
async fn first_line(client: &tenure_api::client::Client, job: &str) -> anyhow::Result<String> {
    let query = LogQuery {
        follow: Some(true),
        ..LogQuery::default()
    };
    let mut logs = std::pin::pin!(client.logs(job, &query).await?);
    let mut text = Vec::new();
    while let Some(bytes) = logs.next().await {
        text.extend(bytes?);
    }
    while client.job(job).await?.phase != JobPhase::Done {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    ensure!(!text.is_empty(), "the job printed nothing");
    Ok(String::from_utf8(text)?)
}
