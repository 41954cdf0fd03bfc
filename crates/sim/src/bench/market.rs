//! `tenure-bench market`: orders per second of the bare book beside a published order book, through `decide` with policy
//! and funds, and durable; and how long a search through the offers takes.

mod book;
mod decided;
mod order;
mod street;

use std::time::Duration;

use super::figure::{figure, percentile};

pub async fn run(short: bool) -> anyhow::Result<()> {
    let (orders, offers, searches, seconds) = if short {
        (20_000, 5_000, 200, 0.3)
    } else {
        (1_000_000, 100_000, 5_000, 5.0)
    };
    bare(orders);
    let decided = decided::decided(orders);
    let how = format!(
        "one core, {} leases, {} refused, four levels of policies and budgets",
        decided.leases, decided.refused
    );
    figure(
        "market",
        "orders through decide and apply",
        decided.rate,
        "orders/s",
        Some(500_000.0),
        &how,
    );
    let clients: &[usize] = if short { &[64] } else { &[1024, 4096, 8192] };
    let durable = decided::durable(clients, seconds).await?;
    let how = format!(
        "{} clients, SQLite, synchronous=FULL, {:.1} µs of processor time each",
        durable.clients, durable.busy_us
    );
    figure(
        "market",
        "durable orders",
        durable.rate,
        "orders/s",
        Some(100_000.0),
        &how,
    );
    figure(
        "market",
        "durable order, p99",
        ms(&durable.took, 0.99),
        "ms",
        None,
        &how,
    );
    let took = decided::searches(offers, searches);
    let how = format!("{offers} offers, pages of 50, one search in twenty finds nothing");
    figure("market", "search, p50", ms(&took, 0.5), "ms", None, &how);
    figure("market", "search, p99", ms(&took, 0.99), "ms", Some(5.0), &how);
    Ok(())
}

fn bare(orders: usize) {
    let beside = book::beside(orders);
    let how = "20,000 standing, best of three";
    figure(
        "market",
        "the bare book, ours",
        beside.ours,
        "orders/s",
        None,
        how,
    );
    figure(
        "market",
        "the bare book, lobster 0.7",
        beside.peer,
        "orders/s",
        None,
        how,
    );
    figure(
        "market",
        "ratio to lobster",
        beside.ours / beside.peer,
        "x",
        None,
        "",
    );
}

fn ms(took: &[Duration], share: f64) -> f64 {
    percentile(took, share).as_secs_f64() * 1000.0
}
