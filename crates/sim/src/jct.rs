//! `tenure-sim jct` and `tenure-sim utilisation`: a trace of jobs by its real arrivals, under several queue orders.
//!
//! One pool of equal GPUs: who goes next is measured, not where. `tenure` is driven by the real domain modules
//! (`forecast`, `schedule/order`, `schedule/victim`), `cell` by the whole of `decide`; the others are here to be compared with. Every preemptive order
//! pays the same restart. Absent, but for `cell`: placement, which `packing` measures.

pub mod cell;
pub mod engine;
pub mod figure;
pub mod kept;
pub mod naive;
pub mod peer;
pub mod promise;
pub mod queue;
pub mod tenure;
pub mod trace;
pub mod utilisation;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use clap::ValueEnum;

use figure::Figure;
use trace::Job;

/// Who goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// Ours: run times unknown, learnt from what finished and what runs.
    Tenure,
    /// Ours through the whole of `decide`, on nodes of eight GPUs, in a cell as it is founded: nobody of one class gives way.
    Cell,
    /// The same where the platform's policy says `preempt_longer` and `preempt_tenants`, and every job may be restarted.
    CellLonger,
    /// In order of arrival, nobody overtakes.
    Fifo,
    /// EASY: the first is given a reservation, others fill in where they do not delay it. Is told each job's run
    /// time rounded up to the next usual limit (half an hour, 1, 4, 12 hours, 1, 2, 4, 7, 14, 28, 60 days).
    Backfill,
    /// Tiresias: least attained GPU time first in two levels parted at 16 GPU-hours, by arrival within one.
    Las,
    /// Least attained GPU time in levels that double: stronger than Tiresias here.
    LasDoubling,
    /// Least attained GPU time by the quarter of an hour.
    LasFine,
    /// Shortest remaining GPU time; knows every run time.
    Oracle,
}

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Jobs as CSV: timestamp, duration in seconds, GPUs, GPU time, team. A generated week if none is given.
    #[arg(long)]
    pub jobs: Option<PathBuf>,
    #[arg(long, default_value_t = 416)]
    pub gpus: u32,
    #[arg(long, value_delimiter = ',', default_values = ["tenure", "fifo", "backfill", "las", "oracle"])]
    pub policy: Vec<Policy>,
    /// What a restart after an eviction costs: GPUs held without progress.
    #[arg(long, default_value_t = 60)]
    pub restart_s: u64,
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let jobs = load(args.jobs.as_ref())?;
    for &policy in &args.policy {
        let begun = Instant::now();
        let replay = replay(policy, &jobs, args.gpus, args.restart_s);
        let figure = Figure::of(policy, args, &replay, begun.elapsed());
        if args.json {
            println!("{}", serde_json::to_string(&figure)?);
        } else {
            println!("{figure}");
        }
    }
    Ok(())
}

pub fn load(file: Option<&PathBuf>) -> anyhow::Result<Vec<Job>> {
    match file {
        Some(file) => {
            let text =
                std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
            trace::parse(&text)
        }
        None => Ok(trace::generate(2_000, 1)),
    }
}

/// What became of every job, in the order of the trace.
pub struct Replay {
    pub jobs: Vec<Job>,
    pub promises: Option<promise::Promises>,
}

pub fn replay(policy: Policy, jobs: &[Job], gpus: u32, restart_s: u64) -> Replay {
    let preempt = |jobs, order: &mut dyn engine::Order| engine::run(jobs, gpus, restart_s, order);
    let mut jobs = jobs.to_vec();
    let promises = match policy {
        Policy::Fifo => Some(queue::fifo(&mut jobs, gpus)),
        Policy::Backfill => Some(queue::backfill(&mut jobs, gpus)),
        Policy::Las => preempt(&mut jobs, &mut peer::Las::tiresias()),
        Policy::LasDoubling => preempt(&mut jobs, &mut peer::Las::doubling()),
        Policy::LasFine => preempt(&mut jobs, &mut peer::Las::fine()),
        Policy::Oracle => preempt(&mut jobs, &mut peer::Oracle),
        Policy::Cell | Policy::CellLonger => {
            cell::run(&mut jobs, gpus, restart_s, policy == Policy::CellLonger);
            None
        }
        Policy::Tenure => preempt(&mut jobs, &mut tenure::Tenure::new(restart_s)),
    };
    Replay { jobs, promises }
}

#[cfg(test)]
mod tests;
