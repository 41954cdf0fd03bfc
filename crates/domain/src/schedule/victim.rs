//! Whom to evict so that a job fits: the cheapest set, or nobody.
//!
//! Cheap is what loses least: work since the last checkpoint (none if the slice can be suspended), plus the restart,
//! for every GPU held. Only jobs ranked clearly behind the evictor are asked, so two jobs never take turns evicting
//! one another; each has run its guaranteed time, and none is evicted more often than the bounds allow.
//! Absent: where the freed slices lie, which `place` checks with the chosen ones gone.

use crate::id::JobId;
use crate::time::{HOUR_MS, Time};
use crate::workload::spec::Priority;

/// What protects running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// A job runs at least this long each time it starts.
    pub guaranteed_ms: u64,
    /// In its whole life.
    pub evictions_per_job: u32,
    /// Of one job within an hour.
    pub evictions_per_hour: u32,
    /// Within a priority class the evictor's expected cost has to be this many times smaller.
    pub clearly: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            guaranteed_ms: 5 * 60_000,
            evictions_per_job: 256,
            evictions_per_hour: 4,
            clearly: 3,
        }
    }
}

/// A running job that might give way.
#[derive(Debug, Clone, PartialEq)]
pub struct Running {
    pub job: JobId,
    pub priority: Priority,
    pub gpus: u32,
    pub started: Time,
    /// When its work was last safe; its start, if it never checkpointed.
    pub safe: Time,
    pub suspendable: bool,
    pub restart_ms: u64,
    /// Its waiting cost were it queued again, from the forecast.
    pub cost_gpu_s: f64,
    /// It borrows beyond its tenant's nominal quota.
    pub borrows: bool,
    pub evictions: u32,
    pub last_evictions: Vec<Time>,
    /// Waited past the ageing bound: it goes first, so it also stays.
    pub aged: bool,
}

/// Who wants room, and by what right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evictor {
    pub priority: Priority,
    pub gpus: u32,
    pub cost_gpu_s: f64,
    /// Within nominal quota, it may reclaim from any borrower of its class or below.
    pub nominal: bool,
    pub aged: bool,
}

impl Running {
    /// Run time lost by evicting it now.
    pub fn loss_ms(&self, at: Time) -> u64 {
        let redone = if self.suspendable {
            0
        } else {
            at.since_ms(self.safe.max(self.started))
        };
        redone + self.restart_ms
    }

    /// GPU-milliseconds lost by evicting it now.
    pub fn loss_gpu_ms(&self, at: Time) -> u64 {
        self.loss_ms(at).saturating_mul(u64::from(self.gpus))
    }

    pub fn may_give_way(&self, to: &Evictor, bounds: &Bounds, at: Time) -> bool {
        self.may_move(bounds, at) && self.ranks_behind(to, bounds)
    }

    /// Whether it has run its guaranteed time and was not made to leave too often already.
    pub fn may_move(&self, bounds: &Bounds, at: Time) -> bool {
        let lately = self
            .last_evictions
            .iter()
            .filter(|&&then| at.since_ms(then) < HOUR_MS)
            .count();
        at.since_ms(self.started) >= self.guaranteed_ms(bounds)
            && self.evictions < bounds.evictions_per_job
            && lately < bounds.evictions_per_hour as usize
    }

    /// A restart has to be paid off first: half of what it cost would be lost at once otherwise.
    fn guaranteed_ms(&self, bounds: &Bounds) -> u64 {
        bounds.guaranteed_ms.max(2 * self.restart_ms)
    }

    fn ranks_behind(&self, to: &Evictor, bounds: &Bounds) -> bool {
        if self.priority != to.priority {
            return self.priority < to.priority;
        }
        if self.aged || to.aged {
            return to.aged && !self.aged;
        }
        if to.nominal && self.borrows {
            return true;
        }
        // The other way round the evictor was within its quota and now borrows: it may not take from those within.
        let allowed = to.nominal || self.borrows;
        allowed && self.cost_gpu_s > to.cost_gpu_s * f64::from(bounds.clearly)
    }
}

/// The cheapest jobs to evict for `evictor`, `free` GPUs being idle; nobody where it would still not fit.
pub fn victims(
    evictor: &Evictor,
    free: u32,
    running: &[Running],
    bounds: &Bounds,
    at: Time,
) -> Option<Vec<JobId>> {
    let mut lacking = u64::from(evictor.gpus.saturating_sub(free));
    let mut candidates: Vec<&Running> = running
        .iter()
        .filter(|job| job.gpus > 0 && job.may_give_way(evictor, bounds, at))
        .collect();
    if candidates.iter().map(|job| u64::from(job.gpus)).sum::<u64>() < lacking {
        return None;
    }
    // Least lost per GPU first; then the furthest behind; then the last come.
    candidates.sort_by(|a, b| {
        let per_gpu = |job: &Running| job.loss_gpu_ms(at) / u64::from(job.gpus);
        (a.priority, per_gpu(a))
            .cmp(&(b.priority, per_gpu(b)))
            .then(b.cost_gpu_s.total_cmp(&a.cost_gpu_s))
            .then(b.job.cmp(&a.job))
    });
    let mut chosen: Vec<&Running> = Vec::new();
    for job in candidates {
        if lacking == 0 {
            break;
        }
        lacking = lacking.saturating_sub(u64::from(job.gpus));
        chosen.push(job);
    }
    spare_needless(&mut chosen, evictor.gpus.saturating_sub(free), at);
    Some(chosen.into_iter().map(|job| job.job).collect())
}

/// Lets go of whoever the last chosen made needless, dearest first.
fn spare_needless(chosen: &mut Vec<&Running>, needed: u32, at: Time) {
    let mut freed: u64 = chosen.iter().map(|job| u64::from(job.gpus)).sum();
    let mut dearest: Vec<(u64, JobId, u64)> = chosen
        .iter()
        .map(|job| (job.loss_gpu_ms(at), job.job, u64::from(job.gpus)))
        .collect();
    dearest.sort_unstable();
    for (_, id, gpus) in dearest.into_iter().rev() {
        if freed - gpus >= u64::from(needed) {
            freed -= gpus;
            chosen.retain(|job| job.job != id);
        }
    }
}

#[cfg(test)]
mod tests;
