//! Restart with a long journal: what has ended is in history, so the time grows with what is live.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tenure_domain::command::Observation;
use tenure_domain::id::{AllocationId, NodeId, UserId};
use tenure_domain::{Actor, Event, Wish};
use tenure_journal::{Journal, Location, Options};
use tenure_server::controller::{self, WriterOptions};

use super::figure::figure;
use super::journal::Scale;
use crate::platform::{Platform, small_job};

const CLIENTS: u64 = 2000;

pub async fn run(dir: &Path, scale: Scale) -> anyhow::Result<()> {
    let location = Location::Sqlite(dir.to_owned());
    let platform = Arc::new(Platform::open(&location, WriterOptions::default()).await?);
    let users = platform.populate(10, 10, 10).await?;
    let node = platform.endless_node().await?;
    let begun = Instant::now();
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|i| {
            let mine = |total: u64| total / CLIENTS + u64::from(i < total % CLIENTS);
            tokio::spawn(fill(
                platform.clone(),
                node,
                users[i as usize % users.len()],
                mine(scale.jobs),
                mine(scale.live),
            ))
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let events = platform.controller.view().seq();
    let filled = begun.elapsed().as_secs_f64();
    figure(
        "restart",
        "events journalled",
        events as f64,
        "events",
        None,
        &format!("{} jobs in {filled:.0} s", scale.jobs),
    );
    Arc::into_inner(platform)
        .expect("all clients have ended")
        .close()
        .await?;

    let before = resident_bytes();
    let begun = Instant::now();
    let journal = Journal::open_leader(&location, "bench", Options::default()).await?;
    let recovered = controller::recover(&journal).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let live = recovered.state.jobs.len();
    anyhow::ensure!(
        live as u64 == scale.live && recovered.seq == events,
        "the restart lost something: {live} live at {}",
        recovered.seq
    );
    figure(
        "restart",
        "restart from the snapshot",
        seconds,
        "s",
        Some(2.0),
        &format!("{} journalled jobs, {live} live", scale.jobs),
    );
    let grown = resident_bytes().saturating_sub(before) as f64 / live as f64;
    figure(
        "restart",
        "memory for a live job",
        grown,
        "bytes",
        None,
        "one copy of the state; the server keeps three that share specifications",
    );
    drop(recovered);
    journal.close().await?;
    Ok(())
}

/// Submits jobs and lets all but the last few end.
async fn fill(
    platform: Arc<Platform>,
    node: NodeId,
    owner: UserId,
    jobs: u64,
    live: u64,
) -> anyhow::Result<()> {
    let spec = small_job();
    for i in 0..jobs {
        let accepted = platform.submit(owner, spec.clone()).await?;
        if i + live < jobs {
            let allocation = accepted.events.iter().find_map(|event| match &**event {
                Event::JobPlaced { allocation, .. } => Some(allocation.id),
                _ => None,
            });
            end(
                &platform,
                node,
                allocation.ok_or_else(|| anyhow::anyhow!("not placed"))?,
            )
            .await?;
        }
    }
    Ok(())
}

async fn end(platform: &Platform, node: NodeId, allocation: AllocationId) -> anyhow::Result<()> {
    let observation = Observation::Exited {
        exit_code: Some(0),
        signal: None,
        ran_ms: 5,
        by: None,
        usage: None,
    };
    let wish = Wish::Observe {
        node,
        allocation,
        observation,
    };
    let ended = platform
        .controller
        .submit(Actor::Node(node), wish, None, None)
        .await;
    ended
        .map(drop)
        .map_err(|not_done| anyhow::anyhow!("not ended: {not_done:?}"))
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}
