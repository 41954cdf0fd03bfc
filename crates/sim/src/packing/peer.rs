//! The schedulers of the published comparison, as published: each scores every machine that fits, 0 to 100.

use super::room::{Room, kind};
use super::seeded::Seeded;
use super::trace::Ask;

/// The largest machine of the published fleet, by which scores are scaled.
const CPU_MOST: f64 = 128_000.0;
const GPU_MOST: f64 = 8_000.0;

/// A scheduler that scores machines one at a time. Higher is better; ties go to the machine that is first by name.
pub trait Peer {
    fn score(&mut self, room: &Room, ask: &Ask) -> i64;

    /// What is left of the machine once it holds the ask.
    fn take(&mut self, room: &Room, ask: &Ask) -> Room {
        room.after_tightest(ask)
    }

    /// Scores are the same for the same room and ask.
    fn is_pure(&self) -> bool {
        true
    }

    /// All scores of one decision, brought to the whole scale where the published code does so.
    fn is_normalised(&self) -> bool {
        false
    }
}

#[derive(Debug)]
pub struct Random(pub Seeded);

impl Peer for Random {
    fn score(&mut self, _: &Room, _: &Ask) -> i64 {
        i64::try_from(self.0.below(101)).unwrap_or(0)
    }

    fn take(&mut self, room: &Room, ask: &Ask) -> Room {
        if !ask.is_share() {
            return room.after_tightest(ask);
        }
        let fitting: Vec<usize> = (0..room.free().len())
            .filter(|&gpu| room.free[gpu] >= ask.gpu_milli)
            .collect();
        room.after_share(ask, fitting[self.0.below(fitting.len())])
    }

    fn is_pure(&self) -> bool {
        false
    }
}

/// Tetris: free times asked, the smallest first.
#[derive(Debug)]
pub struct DotProd;

impl Peer for DotProd {
    fn score(&mut self, room: &Room, ask: &Ask) -> i64 {
        let cpu = f64::from(room.cpu_milli) / CPU_MOST * (f64::from(ask.cpu_milli) / CPU_MOST);
        let gpu = f64::from(room.idle_milli()) / GPU_MOST * (ask.total_milli() as f64 / GPU_MOST);
        (100.0 * (1.0 - (cpu + gpu) / 2.0)) as i64
    }
}

/// Pods of one kind together.
#[derive(Debug)]
pub struct Clustering;

impl Peer for Clustering {
    fn score(&mut self, room: &Room, ask: &Ask) -> i64 {
        if ask.gpus == 0 {
            return 0;
        }
        let kind = kind(ask);
        let base = match room.kinds {
            kinds if kinds == kind => 75,
            kinds if kinds & kind != 0 => 50,
            0 => 25,
            _ => 0,
        };
        25 * (8000 - i64::from(room.idle_milli())) / 8000 + base
    }
}

/// GPUs in use first, then machines in use, then idle ones.
#[derive(Debug)]
pub struct Packing;

impl Peer for Packing {
    fn score(&mut self, room: &Room, ask: &Ask) -> i64 {
        if ask.gpus == 0 {
            return 0;
        }
        let whole = i64::try_from(room.whole()).unwrap_or(0);
        if whole == i64::from(room.gpus) {
            return (33 - whole).max(whole);
        }
        let mut free: Vec<u16> = room.free().to_vec();
        free.sort_unstable();
        let taken = free
            .into_iter()
            .filter(|&free| free >= ask.gpu_milli)
            .take(ask.gpus.into());
        let (mut fresh, mut ratio) = (0, 0);
        for free in taken {
            fresh += i64::from(free == 1000);
            ratio += i64::from(free) * 100 / 1000;
        }
        if fresh > 0 {
            (50 - fresh).max(33)
        } else {
            (100 - ratio / 10).max(50)
        }
    }
}

/// The least left over of CPU and GPU together.
#[derive(Debug)]
pub struct BestFit;

impl Peer for BestFit {
    fn score(&mut self, room: &Room, ask: &Ask) -> i64 {
        let cpu = f64::from(room.cpu_milli - ask.cpu_milli) / CPU_MOST;
        let gpu = (f64::from(room.idle_milli()) - ask.total_milli() as f64) / GPU_MOST;
        ((1.0 - (cpu + gpu) / 2.0) * 100.0) as i64
    }

    fn is_normalised(&self) -> bool {
        true
    }
}
