//! Orders as they come to an exchange: offers, bids that wait, purchases, and some of both taken back, in steady numbers.
//!
//! The same for the same seed, so that whoever is measured with them is measured with the same.

use crate::packing::seeded::Seeded;

/// Prices are so many steps apart; bids that wait stand below all offers.
pub const STEPS: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Ask {
        step: usize,
        gpus: u64,
    },
    Bid {
        step: usize,
        gpus: u64,
    },
    /// The cheapest there are.
    Buy {
        gpus: u64,
    },
    /// Takes back the oldest offer.
    Withdraw,
    /// Takes back the oldest bid.
    Cancel,
}

/// Orders without end: of twenty six offer, four bid, five buy, four cancel a bid and one an offer.
#[derive(Debug, Clone)]
pub struct Orders(Seeded);

impl Orders {
    pub fn new(seed: u64) -> Orders {
        Orders(Seeded::new(seed))
    }

    pub fn ask(&mut self) -> Order {
        Order::Ask {
            step: self.0.below(STEPS),
            gpus: self.gpus(),
        }
    }

    pub fn bid(&mut self) -> Order {
        Order::Bid {
            step: self.0.below(STEPS),
            gpus: self.gpus(),
        }
    }

    fn gpus(&mut self) -> u64 {
        1 + self.0.below(8) as u64
    }
}

impl Iterator for Orders {
    type Item = Order;

    fn next(&mut self) -> Option<Order> {
        Some(match self.0.below(20) {
            0..6 => self.ask(),
            6..10 => self.bid(),
            10..15 => Order::Buy { gpus: self.gpus() },
            15..19 => Order::Cancel,
            _ => Order::Withdraw,
        })
    }
}
