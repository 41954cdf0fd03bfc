//! `tenure-bench journal`: durable commands per second in process and through HTTP, beside SQLite and PostgreSQL
//! doing one durable insert each, each at its best batch size and client count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_domain::id::UserId;
use tenure_domain::state::State;
use tenure_domain::{Actor, Command, Wish, decide};
use tenure_journal::Location;
use tenure_journal::testing::PostgresServer;
use tenure_server::controller::WriterOptions;

use super::figure::{figure, percentile};
use super::{http, peer, restart};
use crate::platform::{Platform, small_job};

const CLIENTS: [usize; 4] = [64, 256, 1024, 4096];

/// How much is measured; the short form is for tests of the harness.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub seconds: f64,
    pub jobs: u64,
    pub live: u64,
}

impl Scale {
    pub const FULL: Scale = Scale {
        seconds: 3.0,
        jobs: 1_000_000,
        live: 100_000,
    };
    pub const SHORT: Scale = Scale {
        seconds: 0.5,
        jobs: 20_000,
        live: 2_000,
    };
}

pub async fn run(scale: Scale) -> anyhow::Result<()> {
    let postgres = PostgresServer::shared();
    let dir = tempfile::tempdir()?;

    let limit = peer::sqlite_insert(&dir.path().join("peer.db"), scale.seconds).await?;
    figure(
        "journal",
        "SQLite durable insert, one per transaction",
        limit.single,
        "rows/s",
        None,
        "synchronous=FULL, WAL",
    );
    figure(
        "journal",
        "SQLite durable insert, best batch",
        limit.best,
        "rows/s",
        None,
        &format!("{} rows a transaction", limit.batch),
    );
    let ours = in_process(&Location::Sqlite(dir.path().join("ours")), scale).await?;
    figure(
        "journal",
        "submissions in process on SQLite",
        ours.rate,
        "jobs/s",
        Some(20_000.0),
        &format!("{} clients", ours.clients),
    );
    figure(
        "journal",
        "ratio to SQLite one by one",
        ours.rate / limit.single,
        "x",
        None,
        "",
    );
    figure(
        "journal",
        "events in process on SQLite",
        ours.events,
        "events/s",
        None,
        "submitted, admitted and placed each",
    );

    let limit = peer::postgres_insert(&postgres.url(), scale.seconds).await?;
    figure(
        "journal",
        "PostgreSQL durable insert, one client",
        limit.single,
        "rows/s",
        None,
        "",
    );
    figure(
        "journal",
        "PostgreSQL durable insert, best",
        limit.best,
        "rows/s",
        None,
        &format!("{} clients", limit.batch),
    );
    let ours = in_process(&postgres.new_location(), scale).await?;
    figure(
        "journal",
        "submissions in process on PostgreSQL",
        ours.rate,
        "jobs/s",
        Some(20_000.0),
        &format!("{} clients", ours.clients),
    );
    figure(
        "journal",
        "ratio to PostgreSQL one client",
        ours.rate / limit.single,
        "x",
        None,
        "",
    );

    http::run(scale).await?;
    admission(&dir.path().join("admission")).await?;
    restart::run(&dir.path().join("restart"), scale).await
}

struct Best {
    rate: f64,
    events: f64,
    clients: usize,
}

/// Submissions through the controller, each awaited until durable, at the best number of clients.
async fn in_process(location: &Location, scale: Scale) -> anyhow::Result<Best> {
    let platform = Arc::new(Platform::open(location, WriterOptions::default()).await?);
    let users = Arc::new(platform.populate(10, 4, 25).await?);
    platform.endless_node().await?;
    let mut best = Best {
        rate: 0.0,
        events: 0.0,
        clients: 0,
    };
    for clients in CLIENTS {
        let before = platform.controller.view().seq();
        let begun = Instant::now();
        let until = begun + Duration::from_secs_f64(scale.seconds);
        let tasks: Vec<_> = (0..clients)
            .map(|i| tokio::spawn(client(platform.clone(), users[i % users.len()], until)))
            .collect();
        let mut submitted = 0;
        for task in tasks {
            submitted += task.await??;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let rate = submitted as f64 / seconds;
        if rate > best.rate {
            best = Best {
                rate,
                events: (platform.controller.view().seq() - before) as f64 / seconds,
                clients,
            };
        }
    }
    let platform = Arc::into_inner(platform).expect("all clients have ended");
    platform.close().await?;
    Ok(best)
}

async fn client(platform: Arc<Platform>, owner: UserId, until: Instant) -> anyhow::Result<u64> {
    let spec = small_job();
    let mut submitted = 0;
    while Instant::now() < until {
        platform.submit(owner, spec.clone()).await?;
        submitted += 1;
    }
    Ok(submitted)
}

/// How long deciding one submission takes with 10,000 users, without the disk.
async fn admission(dir: &std::path::Path) -> anyhow::Result<()> {
    let platform = Platform::open(&Location::Sqlite(dir.to_owned()), WriterOptions::default()).await?;
    let users = platform.populate(20, 10, 50).await?;
    platform.endless_node().await?;
    let mut state: State = platform.controller.view().read().clone();
    platform.close().await?;
    let spec = small_job();
    let mut took = Vec::with_capacity(50_000);
    let (mut ids, at) = (state.last_id + (1 << 12), tenure_server::controller::now());
    for i in 0..50_000usize {
        let owner = users[(i * 7919) % users.len()];
        let command = Command {
            at,
            by: Actor::user(owner),
            ids,
            wish: Wish::Submit {
                owner,
                spec: spec.clone(),
                trace: None,
            },
        };
        ids += 1 << 12;
        let begun = Instant::now();
        let events = decide(&state, &command).map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
        for event in &events {
            state.apply(at, event);
        }
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    let micros = |share| percentile(&took, share).as_secs_f64() * 1e6;
    let how = format!("{} users, decide and apply", users.len());
    figure(
        "journal",
        "admission p50 at 10,000 leaf accounts",
        micros(0.5),
        "µs",
        None,
        &how,
    );
    figure(
        "journal",
        "admission p99 at 10,000 leaf accounts",
        micros(0.99),
        "µs",
        Some(1000.0),
        &how,
    );
    Ok(())
}
