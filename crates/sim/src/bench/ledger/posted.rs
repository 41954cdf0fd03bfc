//! Postings of metered intervals: decided and applied on one core, and durable through the controller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tenure_domain::id::Ids;
use tenure_domain::{Actor, Command, Event, State, Time, Wish, decide};
use tenure_journal::Location;
use tenure_server::controller::{NotDone, WriterOptions};

use super::peer::Best;
use super::town::{Meter, build, postings};
use crate::packing::busy::{self, Busy};
use crate::platform::Platform;

struct Cell {
    state: State,
    at: Time,
    ids: u64,
}

impl Cell {
    fn act(&mut self, by: Actor, wish: Wish) -> anyhow::Result<(u64, Vec<Arc<Event>>)> {
        let ids = self.ids;
        self.ids += Ids::BLOCK;
        let at = self.at;
        let command = Command { at, by, ids, wish };
        let events = decide(&self.state, &command).map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
        for event in &events {
            self.state.apply(at, event);
        }
        Ok((ids, events.into_iter().map(Arc::new).collect()))
    }
}

/// Postings a second of one core, without a journal.
pub fn decided(nodes: usize, reports: usize) -> f64 {
    let mut cell = Cell {
        state: State::default(),
        at: Time(1_800_000_000_000),
        ids: 1 << 22,
    };
    let meters = build(nodes, async |by, wish| cell.act(by, wish));
    let meters = meters.now_or_never().expect("nothing waits in memory");
    let mut meters = meters.expect("each is done");
    let (mut took, mut posted) = (Duration::ZERO, 0);
    for turn in 0..reports {
        if turn % nodes == 0 {
            cell.at = cell.at.plus_ms(1000);
        }
        let (by, wish, _) = meters[turn % nodes].report();
        let begun = Busy::now();
        let (_, events) = cell.act(by, wish).expect("a node meters its own");
        took += begun.elapsed();
        posted += events.iter().map(|event| postings(event)).sum::<usize>();
    }
    assert_eq!(cell.state.accounts.sum(), 0, "postings sum to zero");
    posted as f64 / took.as_secs_f64().max(1e-9)
}

/// Every node a client with one report on its way at a time; how long each took is told too.
pub async fn durable(location: &Location, nodes: usize, seconds: f64) -> anyhow::Result<Best> {
    let platform = Arc::new(Platform::open(location, WriterOptions::default()).await?);
    let meters = build(nodes, async |by, wish| {
        let accepted = platform.controller.submit(by, wish, None, None).await;
        let accepted = accepted.map_err(|not_done| anyhow::anyhow!("not done: {not_done:?}"))?;
        Ok((accepted.ids, accepted.events))
    })
    .await?;
    let (begun, busy) = (Instant::now(), busy::of_all());
    let until = begun + Duration::from_secs_f64(seconds);
    let batch = 240;
    let clients = meters.len();
    let tasks = meters
        .into_iter()
        .map(|meter| tokio::spawn(client(platform.clone(), meter, begun, until)));
    let (mut posted, mut took) = (0, Vec::new());
    for task in tasks.collect::<Vec<_>>() {
        let (of_one, times) = task.await??;
        posted += of_one;
        took.extend(times);
    }
    let rate = posted as f64 / begun.elapsed().as_secs_f64();
    let busy = busy::of_all().saturating_sub(busy);
    anyhow::ensure!(
        platform.controller.view().read().accounts.sum() == 0,
        "postings sum to zero"
    );
    if let Some(platform) = Arc::into_inner(platform) {
        platform.close().await?;
    }
    took.sort_unstable();
    Ok(Best {
        rate,
        batch,
        clients,
        busy_us: Some(busy.as_secs_f64() * 1e6 / posted.max(1) as f64),
        took,
    })
}

async fn client(
    platform: Arc<Platform>,
    mut meter: Meter,
    begun: Instant,
    until: Instant,
) -> anyhow::Result<(usize, Vec<Duration>)> {
    let (mut posted, mut took) = (0, Vec::new());
    while Instant::now() < until {
        if !meter.may_report(u64::try_from(begun.elapsed().as_millis()).unwrap_or(0)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        }
        let (by, wish, _) = meter.report();
        let one = Instant::now();
        match platform.controller.submit(by, wish, None, None).await {
            Ok(accepted) => posted += accepted.events.iter().map(|event| postings(event)).sum::<usize>(),
            Err(NotDone::Refused(refusal)) => anyhow::bail!("a report was refused: {refusal}"),
            Err(NotDone::NotLeading) => anyhow::bail!("the controller ended"),
        }
        took.push(one.elapsed());
    }
    Ok((posted, took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_interval_is_three_postings() {
        let mut cell = Cell {
            state: State::default(),
            at: Time(1_800_000_000_000),
            ids: 1 << 22,
        };
        let meters = build(1, async |by, wish| cell.act(by, wish));
        let mut meters = meters.now_or_never().unwrap().unwrap();
        cell.at = cell.at.plus_ms(1000);
        let (by, wish, intervals) = meters[0].report();
        let (_, events) = cell.act(by, wish).unwrap();
        assert_eq!(postings(&events[0]), 3 * intervals);
        assert_eq!(cell.state.accounts.sum(), 0);
    }
}
