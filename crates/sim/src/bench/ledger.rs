//! `tenure-bench ledger`: durable postings per second in double entry, through metering with its prices, holds and budgets,
//! beside PostgreSQL and SQLite that keep bare accounts, each at its best batch size and number of clients.

mod peer;
mod posted;
mod town;

use tenure_journal::Location;
use tenure_journal::testing::PostgresServer;

use super::figure::{figure, percentile};
use peer::Best;

const GOAL: f64 = 200_000.0;

pub async fn run(short: bool) -> anyhow::Result<()> {
    let (nodes, seconds) = if short { (4, 0.3) } else { (100, 5.0) };
    let dir = tempfile::tempdir()?;
    let sqlite = peer::sqlite(&dir.path().join("peer.db"), seconds / 2.0).await?;
    said("SQLite, bare accounts", &sqlite, None);
    let postgres = PostgresServer::shared();
    let server = peer::postgres(&postgres.url(), seconds / 5.0).await?;
    said("PostgreSQL, bare accounts", &server, None);
    let decided = posted::decided(nodes, nodes * if short { 4 } else { 100 });
    let how = "one core, three postings an interval, 80 intervals a report";
    figure(
        "ledger",
        "postings through decide and apply",
        decided,
        "postings/s",
        None,
        how,
    );
    let ours = posted::durable(&Location::Sqlite(dir.path().join("ours")), nodes, seconds).await?;
    said("ours on SQLite", &ours, Some(GOAL));
    ratio("ratio to SQLite", ours.rate / sqlite.rate);
    let ours = posted::durable(&postgres.new_location(), nodes, seconds).await?;
    said("ours on PostgreSQL", &ours, Some(GOAL));
    ratio("ratio to PostgreSQL", ours.rate / server.rate);
    Ok(())
}

fn said(who: &str, best: &Best, goal: Option<f64>) {
    let busy = best
        .busy_us
        .map_or_else(String::new, |us| format!(", {us:.1} µs of processor time each"));
    let how = format!(
        "batches of {}, {} clients, each synced{busy}",
        best.batch, best.clients
    );
    figure(
        "ledger",
        &format!("durable postings, {who}"),
        best.rate,
        "postings/s",
        goal,
        &how,
    );
    let p99 = percentile(&best.took, 0.99).as_secs_f64() * 1000.0;
    figure("ledger", &format!("commit p99, {who}"), p99, "ms", None, &how);
}

fn ratio(what: &str, times: f64) {
    figure("ledger", what, times, "x", None, "");
}
