//! How long a submission takes while very many jobs wait: a full fleet, a long queue, jobs that end all the time so that
//! pass follows pass, and callers who submit meanwhile, through the controller onto a journal that is synced.
//!
//! Each submission is timed by the wall clock, from the call until it is on the disk. Absent: HTTP, which
//! `tenure-bench` measures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use tenure_domain::id::{AllocationId, JobId, NodeId, UserId};
use tenure_domain::workload::spec::{JobSpec, Priority};
use tenure_domain::{Actor, Wish};
use tenure_journal::Location;
use tenure_server::controller::WriterOptions;

use super::whole::{exited, join_all, people};
use crate::platform::Platform;

/// Requests under way while the cell is filled.
const AT_ONCE: usize = 256;
/// Who submits meanwhile, and how long each pauses between two.
const CALLERS: usize = 32;
const PAUSE: Duration = Duration::from_millis(50);
/// A running job ends so often.
const ENDS_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    pub case: String,
    pub nodes: usize,
    pub gpus_per_node: usize,
    /// Before and after.
    pub waiting: [usize; 2],
    pub seconds: f64,
    pub callers: usize,
    pub submissions: usize,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// Jobs that ended meanwhile, and waiting ones that passes started.
    pub ended: usize,
    pub started: usize,
}

/// So many GPUs, in one of eight shapes as people ask for them.
fn spec(gpus: u32, run_time_s: u64, priority: Priority) -> Arc<JobSpec> {
    let text = serde_json::json!({
        "name": "job", "command": ["/bin/true"], "run_time_s": run_time_s, "priority": priority,
        "demand": { "gpus": gpus, "class": "H100", "cpu_milli": 1000, "memory_mib": 1024 }
    });
    Arc::new(serde_json::from_value(text).expect("a specification"))
}

fn shapes() -> Vec<Arc<JobSpec>> {
    let sizes = [1, 2, 4, 8]
        .into_iter()
        .flat_map(|gpus| [(gpus, 3_600), (gpus, 86_400)]);
    let ranked = sizes.enumerate().map(|(n, (gpus, run_time_s))| {
        let high = n % 4 == 3;
        spec(
            gpus,
            run_time_s,
            if high { Priority::High } else { Priority::Normal },
        )
    });
    ranked.collect()
}

/// A full fleet and so many waiting jobs, then `seconds` of submissions.
pub async fn submissions(nodes: usize, gpus: usize, waiting: usize, seconds: f64) -> anyhow::Result<Line> {
    let dir = tempfile::tempdir()?;
    let location = Location::Sqlite(dir.path().join("journal"));
    let platform = Arc::new(Platform::open(&location, WriterOptions::default()).await?);
    let users = people(10, async |wish| Ok(platform.wish(wish).await?.ids)).await?;
    join_all(&platform, nodes, gpus).await?;
    // Whole nodes first, so that nobody finds room beside them.
    let whole = spec(u32::try_from(gpus)?, 86_400, Priority::Normal);
    submit_all(&platform, &users, nodes, &[whole]).await?;
    let mut running = placed(&platform);
    anyhow::ensure!(
        running.len() == nodes,
        "{} of {nodes} nodes were taken",
        running.len()
    );
    submit_all(&platform, &users, waiting, &shapes()).await?;
    let before = platform.controller.view().read().queue.len();

    let (begun, shapes) = (Instant::now(), Arc::new(shapes()));
    let until = begun + Duration::from_secs_f64(seconds);
    let callers = (0..CALLERS).map(|caller| {
        let (platform, shapes, users) = (platform.clone(), shapes.clone(), users.clone());
        tokio::spawn(async move {
            let mut took = Vec::new();
            while Instant::now() < until {
                let turn = caller + CALLERS * took.len();
                let owner = users[(turn * 7919) % users.len()];
                let called = Instant::now();
                platform
                    .submit(owner, shapes[turn % shapes.len()].clone())
                    .await?;
                took.push(called.elapsed());
                tokio::time::sleep(PAUSE).await;
            }
            anyhow::Ok(took)
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut ended = 0;
    while Instant::now() < until
        && let Some((_, node, allocation)) = running.pop()
    {
        let observe = Wish::Observe {
            node,
            allocation,
            observation: exited(None),
        };
        let answer = platform
            .controller
            .submit(Actor::Node(node), observe, None, None)
            .await;
        answer.map_err(|not_done| anyhow::anyhow!("not done: {not_done:?}"))?;
        ended += 1;
        tokio::time::sleep(ENDS_EVERY).await;
    }
    let mut took = Vec::new();
    for caller in callers {
        took.extend(caller.await??);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let after = platform.controller.view().read().queue.len();
    took.sort_unstable();
    let at = |share: f64| {
        let place = (took.len().saturating_sub(1) as f64 * share) as usize;
        took.get(place).map_or(0.0, |took| took.as_secs_f64() * 1e3)
    };
    let line = Line {
        case: format!("submissions beside {waiting} waiting jobs"),
        nodes,
        gpus_per_node: gpus,
        waiting: [before, after],
        seconds,
        callers: CALLERS,
        submissions: took.len(),
        p50_ms: at(0.5),
        p90_ms: at(0.9),
        p99_ms: at(0.99),
        max_ms: at(1.0),
        ended,
        started: (before + took.len()).saturating_sub(after),
    };
    if let Some(platform) = Arc::into_inner(platform) {
        platform.close().await?;
    }
    Ok(line)
}

async fn submit_all(
    platform: &Platform,
    users: &[UserId],
    count: usize,
    shapes: &[Arc<JobSpec>],
) -> anyhow::Result<()> {
    let submitted = stream::iter(0..count).map(|turn| {
        let spec = shapes[(turn / 3) % shapes.len()].clone();
        platform.submit(users[(turn * 6151) % users.len()], spec)
    });
    let submitted = submitted.buffer_unordered(AT_ONCE);
    submitted.try_for_each(|_| std::future::ready(Ok(()))).await
}

fn placed(platform: &Platform) -> Vec<(JobId, NodeId, AllocationId)> {
    let state = platform.controller.view().read();
    let jobs = state.jobs.values();
    let held = jobs.filter_map(|job| {
        let id = job.sole_allocation()?;
        Some((job.id, state.fleet.allocation(id)?.node, id))
    });
    held.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_waits_goes_on_waiting_and_what_ends_makes_room() {
        let line = submissions(12, 8, 300, 1.0).await.expect("measured");
        assert_eq!(line.waiting[0], 300, "{line:?}");
        assert!(line.submissions > 0 && line.ended > 0, "{line:?}");
        assert!(
            line.started > 0,
            "passes give what falls free to those that wait: {line:?}"
        );
        assert!(line.p50_ms > 0.0 && line.p50_ms <= line.p99_ms && line.p99_ms <= line.max_ms);
    }
}
