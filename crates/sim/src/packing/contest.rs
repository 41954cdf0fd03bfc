//! All seeds of one trace under one policy, and the line that tells of them.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::decided::Decided;
use super::fgd::Fgd;
use super::ours;
use super::peer::{BestFit, Clustering, DotProd, Packing, Peer, Random};
use super::replay::{Outcome, replay};
use super::seeded::Seeded;
use super::trace::{Ask, Fleet, arrivals};

/// The published runs had these seeds, from here on.
const FIRST_SEED: u64 = 42;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// The domain's board.
    Tenure,
    /// The same through the whole of `decide`, every pod a job that is submitted.
    Decided,
    Fgd,
    Bestfit,
    Dotprod,
    Packing,
    Clustering,
    Random,
}

impl Policy {
    fn peer(self, pods: &[Ask], seed: u64) -> Option<Box<dyn Peer>> {
        Some(match self {
            Policy::Tenure | Policy::Decided => return None,
            Policy::Fgd => Box::new(Fgd::new(pods)),
            Policy::Bestfit => Box::new(BestFit),
            Policy::Dotprod => Box::new(DotProd),
            Policy::Packing => Box::new(Packing),
            Policy::Clustering => Box::new(Clustering),
            Policy::Random => Box::new(Random(Seeded::new(seed ^ 0x0067_7075))),
        })
    }
}

/// Means over the seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    pub trace: String,
    pub policy: String,
    pub alloc_100: f64,
    pub alloc_130: f64,
    pub sd_130: f64,
    pub decisions_per_s: f64,
}

pub fn run(trace: &str, fleet: &Fleet, pods: &[Ask], policy: Policy, seeds: u64) -> Line {
    let mut outcomes: Vec<Outcome> = Vec::new();
    let (mut decided, mut took) = (0, Duration::ZERO);
    for seed in FIRST_SEED..FIRST_SEED + seeds {
        let order = arrivals(pods, fleet.gpu_milli(), seed);
        let outcome = if let Some(mut peer) = policy.peer(pods, seed) {
            let began = Instant::now();
            let (outcome, _) = replay(fleet, &order, &mut *peer, seed);
            took += began.elapsed();
            outcome
        } else if policy == Policy::Decided {
            let mut cell = Decided::new(fleet, seed);
            let began = Instant::now();
            let outcome = cell.replay(fleet, &order);
            took += began.elapsed();
            outcome
        } else {
            let mut board = ours::board(fleet, seed);
            let began = Instant::now();
            let outcome = ours::replay(&mut board, fleet, &order);
            took += began.elapsed();
            outcome
        };
        outcomes.push(outcome);
        decided += order.len();
    }
    let mean =
        |of: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / outcomes.len().max(1) as f64;
    let alloc_130 = mean(&|outcome| outcome.at_130);
    Line {
        trace: trace.to_owned(),
        policy: format!("{policy:?}").to_lowercase(),
        alloc_100: mean(&|outcome| outcome.at_100),
        alloc_130,
        sd_130: mean(&|outcome| (outcome.at_130 - alloc_130).powi(2)).sqrt(),
        decisions_per_s: decided as f64 / took.as_secs_f64().max(1e-9),
    }
}
