//! One replay: pods arrive, each goes to the machine with the best score or nowhere.

use std::collections::HashMap;

use super::peer::Peer;
use super::room::Room;
use super::seeded::Seeded;
use super::trace::{Ask, Fleet};

/// GPU given away, as a share of the fleet in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outcome {
    /// When asks for 100 % of the fleet had arrived.
    pub at_100: f64,
    /// At the end.
    pub at_130: f64,
}

/// Takes note of what was given while pods arrive.
#[derive(Debug)]
pub struct Tally {
    all: u64,
    arrived: u64,
    given: u64,
    at_100: Option<f64>,
}

impl Tally {
    pub fn new(fleet: &Fleet) -> Tally {
        Tally {
            all: fleet.gpu_milli(),
            arrived: 0,
            given: 0,
            at_100: None,
        }
    }

    fn ratio(&self) -> f64 {
        100.0 * self.given as f64 / self.all as f64
    }

    pub fn note(&mut self, ask: &Ask, placed: bool) {
        self.arrived += ask.total_milli();
        if placed {
            self.given += ask.total_milli();
        }
        if self.at_100.is_none() && self.arrived >= self.all {
            self.at_100 = Some(self.ratio());
        }
    }

    pub fn outcome(&self) -> Outcome {
        Outcome {
            at_100: self.at_100.unwrap_or_else(|| self.ratio()),
            at_130: self.ratio(),
        }
    }
}

/// The machines in the order in which ties are settled: names are drawn anew for each seed.
pub fn tie_order(fleet: &Fleet, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..fleet.machines.len()).collect();
    Seeded::new(seed ^ 0x006e_616d_6573).shuffle(&mut order);
    order
}

pub fn replay(fleet: &Fleet, arrivals: &[Ask], peer: &mut dyn Peer, seed: u64) -> (Outcome, Vec<Room>) {
    let order = tie_order(fleet, seed);
    let mut rooms: Vec<Room> = order.iter().map(|&at| Room::of(&fleet.machines[at])).collect();
    let mut tally = Tally::new(fleet);
    let mut known: HashMap<Ask, Known> = HashMap::new();
    let mut touched: Vec<usize> = Vec::new();
    for ask in arrivals {
        let scores = known.entry(*ask).or_insert_with(|| Known::new(rooms.len()));
        scores.refresh(&rooms, &touched, ask, peer);
        let best = scores.best(peer);
        if let Some(at) = best {
            rooms[at] = peer.take(&rooms[at], ask);
            touched.push(at);
        }
        tally.note(ask, best.is_some());
    }
    (tally.outcome(), rooms)
}

/// Scores of one ask, computed anew only for machines that changed.
struct Known {
    scores: Vec<Option<i64>>,
    seen: Option<usize>,
}

impl Known {
    fn new(machines: usize) -> Known {
        Known {
            scores: vec![None; machines],
            seen: None,
        }
    }

    fn refresh(&mut self, rooms: &[Room], touched: &[usize], ask: &Ask, peer: &mut dyn Peer) {
        let mut score = |at: usize| rooms[at].fits(ask).then(|| peer.score(&rooms[at], ask));
        match self.seen {
            Some(seen)
                if touched.len() - seen < rooms.len() && {
                    let mut fresh = touched[seen..].to_vec();
                    fresh.sort_unstable();
                    fresh.dedup();
                    for at in fresh {
                        self.scores[at] = score(at);
                    }
                    true
                } => {}
            _ => (0..rooms.len()).for_each(|at| self.scores[at] = score(at)),
        }
        self.seen = Some(touched.len());
        if !peer.is_pure() {
            self.seen = None;
        }
    }

    /// The highest score, and of equal ones the first machine.
    fn best(&self, peer: &dyn Peer) -> Option<usize> {
        let fitting = || self.scores.iter().flatten().copied();
        let (low, high) = (fitting().min()?, fitting().max()?);
        let scaled = |score: i64| match high - low {
            0 => 0,
            range if peer.is_normalised() => (score - low) * 100 / range,
            _ => score,
        };
        let top = scaled(high);
        self.scores
            .iter()
            .position(|score| score.is_some_and(|score| scaled(score) == top))
    }
}
