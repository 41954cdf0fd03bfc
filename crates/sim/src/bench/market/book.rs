//! The bare book beside `lobster`, a published order book for Rust: the same orders, no policy, no funds, no events.
//!
//! Ours is the domain's own lists, with the price of each order beside them by which a cancellation finds it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;

use lobster::{OrderBook, OrderEvent, OrderType, Side};
use tenure_domain::Time;
use tenure_domain::id::{BidId, OfferId, TenantId};
use tenure_domain::market::book::{Glance, Lists};
use tenure_domain::money::Micros;
use tenure_domain::workload::spec::Isolation;

use super::order::{Order, Orders, STEPS};
use crate::packing::busy::Busy;

/// Orders that stand on each side before the clock runs.
const STANDING: usize = 10_000;

/// What both are asked, with the ids they will have given.
struct Stream {
    standing: Vec<Order>,
    orders: Vec<Order>,
}

fn stream(count: usize) -> Stream {
    let mut orders = Orders::new(7);
    let sides = (0..STANDING).flat_map(|_| [orders.ask(), orders.bid()]);
    let standing = sides.collect();
    Stream {
        standing,
        orders: orders.take(count).collect(),
    }
}

/// Orders a second of ours and of the peer, and what was bought of each, which is the same.
pub struct Beside {
    pub ours: f64,
    pub peer: f64,
    pub bought: [u64; 2],
}

/// The best of three turns of each.
pub fn beside(count: usize) -> Beside {
    let stream = stream(count);
    let mut beside = Beside {
        ours: 0.0,
        peer: 0.0,
        bought: [0, 0],
    };
    for _ in 0..3 {
        let (rate, bought) = timed(&stream, &mut Ours::default());
        (beside.ours, beside.bought[0]) = (beside.ours.max(rate), bought);
        let (rate, bought) = timed(&stream, &mut Peer::new());
        (beside.peer, beside.bought[1]) = (beside.peer.max(rate), bought);
    }
    beside
}

trait Book {
    /// What was bought by it.
    fn take(&mut self, order: Order) -> u64;
}

fn timed(stream: &Stream, book: &mut impl Book) -> (f64, u64) {
    for order in &stream.standing {
        book.take(*order);
    }
    let begun = Busy::now();
    let mut bought = 0;
    for order in &stream.orders {
        bought += book.take(*order);
    }
    let rate = stream.orders.len() as f64 / begun.elapsed().as_secs_f64().max(1e-9);
    black_box(&book);
    (rate, bought)
}

/// Prices in whole steps: bids below all offers.
fn price(order: Order) -> u64 {
    match order {
        Order::Ask { step, .. } => (STEPS + step) as u64,
        Order::Bid { step, .. } => step as u64,
        _ => 0,
    }
}

#[derive(Default)]
struct Ours {
    lists: Lists,
    prices: BTreeMap<OfferId, Micros>,
    bids: BTreeMap<BidId, (Micros, u64)>,
    asked: VecDeque<OfferId>,
    bade: VecDeque<BidId>,
    next: u64,
}

impl Book for Ours {
    fn take(&mut self, order: Order) -> u64 {
        self.next += 1;
        let (id, at) = (self.next, Time(0));
        let micros = Micros(price(order) as i64);
        match order {
            Order::Ask { gpus, .. } => {
                let glance = Glance {
                    seller: TenantId(0),
                    left_milli: gpus,
                    isolation: Isolation::Fenced,
                    region: None,
                };
                self.lists.asks.insert((micros, at, OfferId(id)), glance);
                self.prices.insert(OfferId(id), micros);
                self.asked.push_back(OfferId(id));
            }
            Order::Bid { gpus, .. } => {
                self.lists.bids.insert((Reverse(micros), at, BidId(id)));
                self.bids.insert(BidId(id), (micros, gpus));
                self.bade.push_back(BidId(id));
            }
            Order::Buy { gpus } => return self.buy(gpus),
            Order::Withdraw => {
                if let Some(id) = self.asked.pop_front()
                    && let Some(micros) = self.prices.remove(&id)
                {
                    self.lists.asks.remove(&(micros, at, id));
                }
            }
            Order::Cancel => {
                if let Some(id) = self.bade.pop_front()
                    && let Some((micros, _)) = self.bids.remove(&id)
                {
                    self.lists.bids.remove(&(Reverse(micros), at, id));
                }
            }
        }
        0
    }
}

impl Ours {
    fn buy(&mut self, gpus: u64) -> u64 {
        let mut missing = gpus;
        while missing > 0 {
            let Some(mut best) = self.lists.asks.first_entry() else {
                break;
            };
            let left = &mut best.get_mut().left_milli;
            let taken = missing.min(*left);
            missing -= taken;
            *left -= taken;
            if *left == 0 {
                let ((.., id), _) = best.remove_entry();
                self.prices.remove(&id);
            }
        }
        gpus - missing
    }
}

struct Peer {
    book: OrderBook,
    asked: VecDeque<u128>,
    bade: VecDeque<u128>,
    next: u128,
}

impl Peer {
    /// With room for all that is ever there at once, so that it need not grow.
    fn new() -> Peer {
        Peer {
            book: OrderBook::new(8 * STANDING, 64, false),
            asked: VecDeque::new(),
            bade: VecDeque::new(),
            next: 0,
        }
    }
}

impl Book for Peer {
    fn take(&mut self, order: Order) -> u64 {
        self.next += 1;
        let (id, price) = (self.next, price(order));
        let limit = |side, qty| OrderType::Limit { id, side, qty, price };
        let order = match order {
            Order::Ask { gpus, .. } => {
                self.asked.push_back(id);
                limit(Side::Ask, gpus)
            }
            Order::Bid { gpus, .. } => {
                self.bade.push_back(id);
                limit(Side::Bid, gpus)
            }
            Order::Buy { gpus } => OrderType::Market {
                id,
                side: Side::Bid,
                qty: gpus,
            },
            Order::Withdraw => match self.asked.pop_front() {
                Some(id) => OrderType::Cancel { id },
                None => return 0,
            },
            Order::Cancel => match self.bade.pop_front() {
                Some(id) => OrderType::Cancel { id },
                None => return 0,
            },
        };
        match self.book.execute(order) {
            OrderEvent::Filled { filled_qty, .. } | OrderEvent::PartiallyFilled { filled_qty, .. } => {
                filled_qty
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_books_sell_the_same() {
        let beside = beside(20_000);
        assert!(beside.bought[0] > 0);
        assert_eq!(beside.bought[0], beside.bought[1]);
    }
}
