//! `tenure-sim utilisation`: the same jobs on GPUs of each team's own, and on one pool under Tenure's order.
//!
//! Each team gets as few GPUs of its own as let its jobs, in order of arrival, complete no later in the mean than in
//! the shared pool. Cost is GPUs paid for over the time of the trace; the work is the same.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::trace::Job;
use super::{Policy, load, queue, replay};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Jobs as CSV, as for `jct`. A generated week if none is given.
    #[arg(long)]
    pub jobs: Option<PathBuf>,
    #[arg(long, value_delimiter = ',', default_values_t = [416, 540])]
    pub gpus: Vec<u32>,
    #[arg(long, default_value_t = 60)]
    pub restart_s: u64,
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct Figure {
    shared_gpus: u32,
    dedicated_gpus: u32,
    teams: usize,
    /// Share of GPU time in use from the first arrival to the last.
    shared_use: f64,
    dedicated_use: f64,
    shared_completion_mean_s: f64,
    dedicated_completion_mean_s: f64,
    /// What the shared pool saves of the cost of dedicated GPUs.
    saved: f64,
}

fn completion_s(jobs: &[Job]) -> f64 {
    jobs.iter().map(|job| (job.done - job.at) as f64).sum::<f64>() / jobs.len().max(1) as f64
}

/// GPU time within the window in which jobs arrive; the long tail after it says nothing about either side.
fn in_use(jobs: &[Job], gpus: u32, from: u64, to: u64) -> f64 {
    let worked: f64 = jobs.iter().map(|job| job.service() as f64).sum();
    (worked / (f64::from(gpus) * (to - from).max(1) as f64)).min(1.0)
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let jobs = load(args.jobs.as_ref())?;
    let (from, to) = (
        jobs.first().map_or(0, |job| job.at),
        jobs.last().map_or(1, |job| job.at),
    );
    for &gpus in &args.gpus {
        let shared = replay(Policy::Tenure, &jobs, gpus, args.restart_s).jobs;
        let mut teams: BTreeMap<u32, Vec<Job>> = BTreeMap::new();
        for job in &shared {
            teams.entry(job.team).or_default().push(job.clone());
        }
        let (mut own_gpus, mut own_jobs) = (0, Vec::new());
        for jobs in teams.values() {
            let (gpus, jobs) = fewest(jobs, completion_s(jobs));
            own_gpus += gpus;
            own_jobs.extend(jobs);
        }
        let figure = Figure {
            shared_gpus: gpus,
            dedicated_gpus: own_gpus,
            teams: teams.len(),
            shared_use: in_use(&shared, gpus, from, to),
            dedicated_use: in_use(&own_jobs, own_gpus, from, to),
            shared_completion_mean_s: completion_s(&shared),
            dedicated_completion_mean_s: completion_s(&own_jobs),
            saved: 1.0 - f64::from(gpus) / f64::from(own_gpus.max(1)),
        };
        if args.json {
            println!("{}", serde_json::to_string(&figure)?);
        } else {
            println!(
                "shared {} GPUs, {:.1} % in use; {} teams' own {} GPUs, {:.1} % in use; saved {:.1} %",
                gpus,
                100.0 * figure.shared_use,
                figure.teams,
                own_gpus,
                100.0 * figure.dedicated_use,
                100.0 * figure.saved
            );
        }
    }
    Ok(())
}

/// The fewest GPUs on which a team's jobs, first come first served, complete within `most_s` in the mean.
fn fewest(jobs: &[Job], most_s: f64) -> (u32, Vec<Job>) {
    let on = |gpus: u32| {
        let mut own: Vec<Job> = jobs
            .iter()
            .map(|job| Job::new(job.at, job.run_s, job.gpus, job.team))
            .collect();
        queue::fifo(&mut own, gpus);
        own
    };
    let mut low = jobs.iter().map(|job| job.gpus).max().unwrap_or(1);
    let mut high = jobs.iter().map(|job| job.gpus).sum::<u32>().max(low);
    while low < high {
        let middle = low + (high - low) / 2;
        if completion_s(&on(middle)) <= most_s {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    (low, on(low))
}
