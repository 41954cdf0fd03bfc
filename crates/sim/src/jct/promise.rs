//! Starts stated at submission, by the domain's `forecast/wait`, and how many were kept.

use std::collections::BTreeSet;

use serde::Serialize;
use tenure_domain::forecast::wait::{Band, Waits};
use tenure_domain::time::Time;

use super::figure::{mean, quantile};
use super::trace::Job;

/// The bands stated so far.
#[derive(Debug, Default)]
pub struct Promises {
    waits: Waits,
    stated: Vec<(u64, Band)>,
    /// When the bands of waiting jobs end.
    due: BTreeSet<(u64, usize)>,
}

/// How the stated bands turned out.
#[derive(Debug, Clone, Serialize)]
pub struct Kept {
    /// Share of jobs that started inside their band.
    pub inside: f64,
    /// The same among those not said to start at once.
    pub inside_of_waiting: f64,
    pub at_once: f64,
    pub width_mean_s: f64,
    pub width_median_s: u64,
    /// From the 10th to the 90th percentile of all waits of the replay, known only afterwards.
    pub naive_width_s: u64,
}

impl Promises {
    /// For the next job of the trace: at once, or an estimated wait.
    pub fn state(&mut self, estimate_s: Option<u64>, now: u64) {
        let band = estimate_s.map_or(Band::AT_ONCE, |estimate| self.waits.band(estimate));
        if estimate_s.is_some() {
            self.due.insert((now + band.to_s, self.stated.len()));
        }
        self.stated.push((estimate_s.unwrap_or(0), band));
    }

    pub fn started(&mut self, job: usize, wait_s: u64, now: u64) {
        let (estimate, band) = self.stated[job];
        self.due.remove(&((now - wait_s) + band.to_s, job));
        if band != Band::AT_ONCE {
            self.waits
                .started(estimate, band, wait_s, Time(now as i64 * 1000));
        }
    }

    /// Learns from those that ought to have started by now.
    pub fn pass_time(&mut self, now: u64) {
        while let Some(&(at, job)) = self.due.first().filter(|(at, _)| *at < now) {
            self.due.remove(&(at, job));
            let (estimate, _) = self.stated[job];
            self.waits.overdue(estimate, Time(at as i64 * 1000));
        }
    }

    pub fn kept(&self, jobs: &[Job]) -> Kept {
        let of = |some: &dyn Fn(Band) -> bool| {
            let among: Vec<bool> = (self.stated.iter().zip(jobs))
                .filter(|((_, band), _)| some(*band))
                .map(|((_, band), job)| band.holds(job.wait_s()))
                .collect();
            among.iter().filter(|&&held| held).count() as f64 / among.len().max(1) as f64
        };
        let sorted = |mut values: Vec<u64>| {
            values.sort_unstable();
            values
        };
        let widths = sorted(self.stated.iter().map(|(_, band)| band.width_s()).collect());
        let waits = sorted(jobs.iter().map(Job::wait_s).collect());
        let at_once = self
            .stated
            .iter()
            .filter(|(_, band)| *band == Band::AT_ONCE)
            .count();
        Kept {
            inside: of(&|_| true),
            inside_of_waiting: of(&|band| band != Band::AT_ONCE),
            at_once: at_once as f64 / jobs.len().max(1) as f64,
            width_mean_s: mean(&widths),
            width_median_s: quantile(&widths, 0.5),
            naive_width_s: quantile(&waits, 0.9) - quantile(&waits, 0.1),
        }
    }
}
