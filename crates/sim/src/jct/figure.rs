//! What one replay measured.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::kept::Kept;
use super::{Args, Policy, Replay};
use clap::ValueEnum;

#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    pub policy: String,
    pub gpus: u32,
    pub jobs: usize,
    pub restart_s: u64,
    pub completion_mean_s: f64,
    pub completion_p99_s: u64,
    /// Completion less run time: all waiting, before the first start and after evictions, restarts included.
    pub queueing_mean_s: f64,
    pub queueing_p99_s: u64,
    pub queueing_max_s: u64,
    /// Until the first start.
    pub wait_p99_s: u64,
    /// Of the GPU time from the first arrival to the last end.
    pub utilisation: f64,
    pub evictions: u64,
    pub evictions_of_one_max: u32,
    pub seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_bands: Option<Kept>,
}

pub fn mean(values: &[u64]) -> f64 {
    values.iter().sum::<u64>() as f64 / values.len().max(1) as f64
}

/// Of sorted values.
pub fn quantile(sorted: &[u64], share: f64) -> u64 {
    match sorted.len() {
        0 => 0,
        n => sorted[((n - 1) as f64 * share) as usize],
    }
}

impl Figure {
    pub fn of(policy: Policy, args: &Args, replay: &Replay, took: Duration) -> Figure {
        let jobs = &replay.jobs;
        let sorted = |value: &dyn Fn(&super::Job) -> u64| {
            let mut values: Vec<u64> = jobs.iter().map(value).collect();
            values.sort_unstable();
            values
        };
        let completion = sorted(&|job| job.done - job.at);
        let queueing = sorted(&|job| job.done - job.at - job.run_s);
        let waits = sorted(&|job| job.wait_s());
        let first = jobs.iter().map(|job| job.at).min().unwrap_or(0);
        let last = jobs.iter().map(|job| job.done).max().unwrap_or(0);
        let worked: u64 = jobs.iter().map(|job| job.service()).sum();
        Figure {
            policy: policy
                .to_possible_value()
                .map_or_else(String::new, |name| name.get_name().to_owned()),
            gpus: args.gpus,
            jobs: jobs.len(),
            restart_s: args.restart_s,
            completion_mean_s: mean(&completion),
            completion_p99_s: quantile(&completion, 0.99),
            queueing_mean_s: mean(&queueing),
            queueing_p99_s: quantile(&queueing, 0.99),
            queueing_max_s: quantile(&queueing, 1.0),
            wait_p99_s: quantile(&waits, 0.99),
            utilisation: worked as f64 / (u64::from(args.gpus) * (last - first).max(1)) as f64,
            evictions: jobs.iter().map(|job| u64::from(job.evictions)).sum(),
            evictions_of_one_max: jobs.iter().map(|job| job.evictions).max().unwrap_or(0),
            seconds: took.as_secs_f64(),
            start_bands: replay.promises.as_ref().map(|promises| promises.kept(jobs)),
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:12} {} GPUs: completion mean {:.0} s, p99 {} s; queueing mean {:.0} s, p99 {} s; use {:.1} %; {} evictions; {:.1} s",
            self.policy,
            self.gpus,
            self.completion_mean_s,
            self.completion_p99_s,
            self.queueing_mean_s,
            self.queueing_p99_s,
            100.0 * self.utilisation,
            self.evictions,
            self.seconds
        )?;
        if let Some(kept) = &self.start_bands {
            write!(f, "{kept}")?;
        }
        Ok(())
    }
}
