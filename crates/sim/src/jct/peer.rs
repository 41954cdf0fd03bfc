//! Preemptive orders to compare with: least attained service, and an oracle.

use super::engine::{Key, Live, Order, worst_first};
use super::trace::Job;

/// Least attained service, GPU-seconds, in levels; by arrival within one.
pub struct Las {
    levels: Vec<u64>,
}

impl Las {
    pub fn tiresias() -> Las {
        Las {
            levels: vec![16 * 3_600],
        }
    }

    pub fn doubling() -> Las {
        Las {
            levels: (0..27).map(|n| 60 << n).collect(),
        }
    }

    pub fn fine() -> Las {
        Las {
            levels: (1..200_000).map(|n| n * 900).collect(),
        }
    }

    fn level(&self, service: u64) -> usize {
        self.levels.partition_point(|&level| level <= service)
    }
}

impl Order for Las {
    fn key(&mut self, job: &Job, live: &Live, _: u64) -> Key {
        (0, self.level(live.age_s * u64::from(job.gpus)) as u64, 0, live.id)
    }

    fn review_s(&self, job: &Job, age_s: u64) -> Option<u64> {
        let gpus = u64::from(job.gpus);
        self.levels
            .get(self.level(age_s * gpus))
            .map(|level| level.div_ceil(gpus))
    }

    fn victims(
        &self,
        job: usize,
        free: u32,
        running: &[usize],
        jobs: &[Job],
        lives: &[Live],
        _: u64,
    ) -> Option<Vec<usize>> {
        worst_first(job, free, running, jobs, lives)
    }
}

/// Shortest remaining GPU time first; knows it.
pub struct Oracle;

impl Order for Oracle {
    fn key(&mut self, job: &Job, live: &Live, now: u64) -> Key {
        (
            0,
            (job.run_s - live.age_at(now)) * u64::from(job.gpus),
            0,
            live.id,
        )
    }

    fn moves(&self) -> bool {
        true
    }

    fn victims(
        &self,
        job: usize,
        free: u32,
        running: &[usize],
        jobs: &[Job],
        lives: &[Live],
        _: u64,
    ) -> Option<Vec<usize>> {
        worst_first(job, free, running, jobs, lives)
    }
}
