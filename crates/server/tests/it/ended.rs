//! Ended jobs in any number: a page of them costs what it shows, however many there are behind it.
//!
//! `TENURE_ENDED=1000000 cargo test -p tenure-server --test it ended -- --nocapture` measures with so many.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tenure_domain::Time;
use tenure_domain::id::{JobId, UserId};
use tenure_domain::tenancy::budget::Cost;
use tenure_domain::workload::job::{DoneJob, Outcome};
use tenure_domain::workload::spec::JobSpec;
use tenure_journal::HistoryRow;

use crate::world::World;

const FEW: u64 = 300;
const MANY: u64 = 30_000;

/// Jobs of somebody who has left, one a second.
fn past(count: u64) -> impl Iterator<Item = HistoryRow> {
    let spec = json!({
        "name": "render", "command": ["python3", "train.py", "--epochs", "3"], "env": { "SEED": "17" },
        "demand": { "gpus": 1, "compute_permille": 500, "vram_mib": 8192, "cpu_milli": 4000, "memory_mib": 16384 },
    });
    let spec: Arc<JobSpec> = Arc::new(serde_json::from_value(spec).unwrap());
    let owner = UserId(900_001);
    (0..count).map(move |number| {
        let ended = Time(1_760_000_000_000 + number as i64 * 1000);
        let job = DoneJob {
            id: JobId(1_000_000 + number),
            owner,
            spec: spec.clone(),
            derivation: None,
            submitted: Time(ended.0 - 90_000),
            started: Some(Time(ended.0 - 60_000)),
            ended,
            attempts: 1,
            outcome: Outcome::Succeeded,
            charged: Cost::default(),
            resold: None,
            ran_ms: 60_000,
            usage: None,
            audit: Default::default(),
            allocation: None,
            node: None,
            members: Vec::new(),
            trace: None,
            tasks: None,
        };
        HistoryRow {
            kind: "job".into(),
            id: job.id.to_string(),
            scope: format!("{}/{owner}", tenure_domain::id::TenantId(900_000)),
            at_ms: ended.0,
            body: serde_json::to_string(&job).unwrap(),
        }
    })
}

/// The least of several times: what a page costs, whatever else the machine does.
async fn quickest(world: &World, path: &str) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..12 {
        let begun = Instant::now();
        let page = world.get(&world.owner, path).await;
        least = least.min(begun.elapsed());
        assert_eq!(page.json()["items"].as_array().unwrap().len(), 50, "{path}");
    }
    least
}

/// A page in the middle of all that ended.
async fn amid(world: &World, count: u64) -> String {
    let mut path = "/v1/jobs?show=done&limit=1000".to_owned();
    let mut seen = 0;
    loop {
        let page = world.get(&world.owner, &path).await.json();
        seen += page["items"].as_array().unwrap().len() as u64;
        let next = page["next"].as_str().expect("more of them").to_owned();
        path = format!("/v1/jobs?show=done&limit=1000&cursor={next}");
        if seen * 2 >= count.min(40_000) {
            return format!("/v1/jobs?show=done&limit=50&cursor={next}");
        }
        // Few of them are one page.
        if seen + 1000 > count {
            return "/v1/jobs?show=done&limit=50".into();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_ended_jobs_costs_the_same_however_many_there_are() {
    let many = std::env::var("TENURE_ENDED").ok();
    let many = many.map_or(MANY, |many| many.parse().expect("a number of jobs"));
    let (small, large) = (World::after(past(FEW)).await, World::after(past(many)).await);
    let first = "/v1/jobs?show=done&limit=50";
    let before = quickest(&small, first).await;
    let deep = amid(&large, many).await;
    for (what, path) in [("the first page", first), ("a page amid them", &*deep)] {
        let after = quickest(&large, path).await;
        eprintln!("{what}: {before:?} of {FEW}, {after:?} of {many}");
        assert!(
            after < before * 5,
            "{what}: {before:?} of {FEW}, {after:?} of {many}"
        );
    }
    small.end().await;
    large.end().await;
}
