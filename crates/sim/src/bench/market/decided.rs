//! Orders through the whole of `decide`, policy and funds included, on one core; through the controller onto a synced
//! journal; and looking through a hundred thousand offers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tenure_domain::id::Ids;
use tenure_domain::market::search::Search;
use tenure_domain::money::Micros;
use tenure_domain::refusal::Code;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Actor, Command, Event, State, Time, Wish, decide};
use tenure_journal::Location;
use tenure_server::controller::{NotDone, WriterOptions};

use super::street::{CLASSES, Desk, Placed, Street, offer};
use crate::packing::busy::{self, Busy};
use crate::packing::seeded::Seeded;
use crate::platform::Platform;

/// Orders that stand on each side before the clock runs.
const STANDING: usize = 10_000;
/// Orders that are made up at a time, off the clock.
const AT_ONCE: usize = 1000;

struct Cell {
    state: State,
    at: Time,
    ids: u64,
}

impl Cell {
    fn new() -> (Cell, Arc<Street>) {
        let mut cell = Cell {
            state: State::default(),
            at: Time(1_800_000_000_000),
            ids: 1 << 22,
        };
        let street = Street::build(async |wish| {
            let command = cell.command(Actor::System, wish);
            cell.act(&command)
                .map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
            Ok(command.ids)
        });
        let street = street.now_or_never().expect("nothing waits in memory");
        let street = street.expect("each is done");
        (cell, street)
    }

    fn command(&mut self, by: Actor, wish: Wish) -> Command {
        let ids = self.ids;
        self.ids += Ids::BLOCK;
        let at = self.at;
        Command { at, by, ids, wish }
    }

    fn act(&mut self, command: &Command) -> Result<Vec<Event>, tenure_domain::Refusal> {
        let events = decide(&self.state, command)?;
        for event in &events {
            self.state.apply(self.at, event);
        }
        Ok(events)
    }

    /// The command of an order, its place noted.
    fn ordered(&mut self, desk: &mut Desk, (by, wish, placed): (Actor, Wish, Placed)) -> Command {
        let command = self.command(by, wish);
        desk.placed(placed, command.ids);
        command
    }
}

/// Of so many orders: how many a second of one core, and what share of the purchases found something.
pub struct Decided {
    pub rate: f64,
    pub leases: usize,
    pub refused: usize,
}

pub fn decided(orders: usize) -> Decided {
    let (mut cell, street) = Cell::new();
    let mut desk = Desk::new(street, 1);
    for _ in 0..STANDING {
        for standing in desk.standing(cell.at) {
            let command = cell.ordered(&mut desk, standing);
            cell.act(&command).expect("it may stand there");
        }
    }
    let (mut took, mut leases, mut refused) = (Duration::ZERO, 0, 0);
    for _ in 0..orders.div_ceil(AT_ONCE) {
        let at = cell.at;
        let commands: Vec<Command> = (0..AT_ONCE)
            .map(|_| {
                let order = desk.order(at);
                cell.ordered(&mut desk, order)
            })
            .collect();
        let begun = Busy::now();
        for command in &commands {
            match cell.act(command) {
                Ok(events) => leases += events.iter().filter(|event| is_lease(event)).count(),
                // Others were sooner; nothing else is in an order's way.
                Err(why) if why.code == Code::NoOffers => refused += 1,
                Err(why) => panic!("{why:?}"),
            }
        }
        took += begun.elapsed();
        cell.at = cell.at.plus_ms(10);
    }
    let orders = orders.next_multiple_of(AT_ONCE);
    assert_eq!(cell.state.accounts.sum(), 0, "postings sum to zero");
    Decided {
        rate: orders as f64 / took.as_secs_f64().max(1e-9),
        leases,
        refused,
    }
}

fn is_lease(event: &Event) -> bool {
    matches!(event, Event::LeaseBegan { .. })
}

/// Durable orders a second, by how many clients, and how long one waited.
pub struct Durable {
    pub rate: f64,
    pub clients: usize,
    /// Processor time of the whole process for each, in microseconds.
    pub busy_us: f64,
    pub took: Vec<Duration>,
}

/// Each client has one order on its way at a time; the best of some numbers of clients.
pub async fn durable(clients: &[usize], seconds: f64) -> anyhow::Result<Durable> {
    let dir = tempfile::tempdir()?;
    let location = Location::Sqlite(dir.path().join("journal"));
    let platform = Arc::new(Platform::open(&location, WriterOptions::default()).await?);
    let street = Street::build(async |wish| Ok(platform.wish(wish).await?.ids)).await?;
    let mut best = Durable {
        rate: 0.0,
        clients: 0,
        busy_us: 0.0,
        took: Vec::new(),
    };
    let mut seed = 0;
    for &clients in clients {
        let (begun, busy) = (Instant::now(), busy::of_all());
        let until = begun + Duration::from_secs_f64(seconds);
        let traders = (0..clients).map(|_| {
            seed += 1;
            let desk = Desk::new(street.clone(), seed);
            tokio::spawn(trade(platform.clone(), desk, until))
        });
        let mut took = Vec::new();
        for trader in traders.collect::<Vec<_>>() {
            took.extend(trader.await??);
        }
        let rate = took.len() as f64 / begun.elapsed().as_secs_f64();
        if rate > best.rate {
            let busy = busy::of_all().saturating_sub(busy);
            let busy_us = busy.as_secs_f64() * 1e6 / took.len() as f64;
            took.sort_unstable();
            best = Durable {
                rate,
                clients,
                busy_us,
                took,
            };
        }
    }
    anyhow::ensure!(
        platform.controller.view().read().accounts.sum() == 0,
        "postings sum to zero"
    );
    if let Some(platform) = Arc::into_inner(platform) {
        platform.close().await?;
    }
    Ok(best)
}

async fn trade(platform: Arc<Platform>, mut desk: Desk, until: Instant) -> anyhow::Result<Vec<Duration>> {
    let mut took = Vec::new();
    while Instant::now() < until {
        let (by, wish, placed) = desk.order(tenure_server::controller::now());
        let begun = Instant::now();
        match platform.controller.submit(by, wish, None, None).await {
            Ok(accepted) => {
                desk.placed(placed, accepted.ids);
                took.push(begun.elapsed());
            }
            // Nothing was on offer; what is refused is not written, and not counted.
            Err(NotDone::Refused(_)) => {}
            Err(NotDone::NotLeading) => anyhow::bail!("the controller ended"),
        }
    }
    Ok(took)
}

/// How long searches of a page took among so many offers, shortest first.
pub fn searches(offers: usize, searches: usize) -> Vec<Duration> {
    let (mut cell, street) = Cell::new();
    let mut random = Seeded::new(3);
    for n in 0..offers {
        let seller = street.sellers[random.below(street.sellers.len())];
        let class = CLASSES[random.below(CLASSES.len())];
        let mut spec = offer(
            class,
            random.below(super::order::STEPS),
            1 + random.below(8) as u64,
        );
        // One in a hundred is large, one in ten for one tenant alone.
        if n % 100 == 0 {
            spec.gpu_milli *= 16;
        }
        if n % 10 == 0 {
            spec.buyers = Some([street.sellers[random.below(street.sellers.len())].tenant].into());
        }
        if n % 3 == 0 {
            spec.isolation = Isolation::Guarded;
        }
        let wish = Wish::MakeOffer {
            seller: seller.tenant,
            spec: Box::new(spec),
            zone: None,
        };
        let command = cell.command(Actor::user(seller.user), wish);
        cell.act(&command).expect("it may be offered");
    }
    let market = &cell.state.market;
    let mut took: Vec<Duration> = (0..searches)
        .map(|_| {
            let search = search(&mut random, &street);
            let begun = Instant::now();
            std::hint::black_box(search.find(market, None, 50, cell.at));
            begun.elapsed()
        })
        .collect();
    took.sort_unstable();
    took
}

/// One in twenty asks for what nobody has, and passes over everything there is.
fn search(random: &mut Seeded, street: &Street) -> Search {
    let mut one_in = |n: usize| random.below(n) == 0;
    let mut search = Search {
        class: (!one_in(4)).then(|| CLASSES[1].into()),
        region: one_in(20).then(|| "nowhere".into()),
        max_price: one_in(2).then_some(Micros(4_000_000)),
        min_reliability_permille: if one_in(3) { 500 } else { 0 },
        min_milli: if one_in(4) { 64_000 } else { 0 },
        min_isolation: one_in(3).then_some(Isolation::Fenced),
        buyer: None,
    };
    if random.below(2) == 0 {
        search.buyer = Some(street.sellers[random.below(street.sellers.len())].tenant);
    }
    search
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_street_trades() {
        let decided = decided(2000);
        assert!(decided.leases > 400, "{} leases", decided.leases);
        assert!(
            decided.refused < decided.leases / 10,
            "{} refused",
            decided.refused
        );
    }
}
