//! Fragmentation gradient descent, as published: the machine whose fragmentation grows least.
//!
//! It is told the mix of the whole trace beforehand, which an online scheduler is not.

use std::collections::HashMap;

use super::peer::Peer;
use super::room::Room;
use super::trace::Ask;

/// Of all pods, how many the target workload covers, in percent.
const COVERED: usize = 95;

/// A kind of task of the target workload and how often it comes.
#[derive(Debug, Clone, Copy)]
struct Typical {
    ask: Ask,
    often: f64,
}

#[derive(Debug)]
pub struct Fgd {
    typical: Vec<Typical>,
}

impl Fgd {
    pub fn new(pods: &[Ask]) -> Fgd {
        let mut counts: HashMap<Ask, usize> = HashMap::new();
        for pod in pods {
            *counts
                .entry(Ask {
                    memory_mib: 0,
                    ..*pod
                })
                .or_default() += 1;
        }
        let mut specs: Vec<(usize, Ask)> = counts.into_iter().map(|(ask, count)| (count, ask)).collect();
        specs.sort_unstable_by_key(|&(count, ask)| {
            std::cmp::Reverse((count, ask.cpu_milli, ask.gpu_milli, ask.gpus, ask.models))
        });
        let mut covered = 0;
        let kept = specs.iter().take_while(|(count, _)| {
            let before = covered;
            covered += count;
            before * 100 < pods.len() * COVERED
        });
        let kept: Vec<_> = kept.collect();
        let all: usize = kept.iter().map(|(count, _)| count).sum();
        let typical = kept.iter().map(|&&(count, ask)| Typical {
            ask,
            often: count as f64 / all as f64,
        });
        Fgd {
            typical: typical.collect(),
        }
    }

    /// Idle thousandths that a task of the target workload could not use, expected.
    pub fn fragment(&self, room: &Room) -> f64 {
        let idle = f64::from(room.idle_milli());
        let unusable = |typical: &Typical| {
            let ask = &typical.ask;
            let enough = room.free().iter().filter(|&&free| free >= ask.gpu_milli).count();
            let usable = ask.gpu_milli > 0
                && room.model & ask.models != 0
                && room.cpu_milli >= ask.cpu_milli
                && enough >= usize::from(ask.gpus);
            if !usable {
                return typical.often * idle;
            }
            let slivers = room.free().iter().filter(|&&free| free < ask.gpu_milli);
            typical.often * slivers.map(|&free| f64::from(free)).sum::<f64>()
        };
        self.typical.iter().map(unusable).sum()
    }

    fn best(&self, room: &Room, ask: &Ask) -> (i64, Room) {
        let before = self.fragment(room);
        let score = |after: &Room| {
            let gain = (before - self.fragment(after)) / 1000.0;
            (100.0 / (1.0 + (-gain).exp())) as i64
        };
        if !ask.is_share() {
            let after = room.after_tightest(ask);
            return (score(&after), after);
        }
        let mut best: Option<(i64, Room)> = None;
        for gpu in 0..room.free().len() {
            if room.free[gpu] >= ask.gpu_milli && !room.free[..gpu].contains(&room.free[gpu]) {
                let after = room.after_share(ask, gpu);
                let score = score(&after);
                if best.is_none_or(|(known, _)| score > known) {
                    best = Some((score, after));
                }
            }
        }
        best.expect("INVARIANT: only rooms that fit are scored")
    }
}

impl Peer for Fgd {
    fn score(&mut self, room: &Room, ask: &Ask) -> i64 {
        self.best(room, ask).0
    }

    fn take(&mut self, room: &Room, ask: &Ask) -> Room {
        self.best(room, ask).1
    }
}
