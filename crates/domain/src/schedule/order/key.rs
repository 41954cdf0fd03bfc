//! The place of one waiting job in the queue.

use std::cmp::Reverse;

use crate::id::JobId;
use crate::time::Time;
use crate::workload::spec::Priority;

/// Jobs that waited this long, in all, go before every other of their priority class, oldest first; so the wait of a
/// job is bounded by this plus the time its class needs for what is as old and older.
pub const AGED_MS: u64 = 60 * 24 * 3_600_000;

/// Within a class: bands of standing, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Waited past the bound; by submission.
    Aged(Time),
    /// The tenant is within its nominal quota.
    Nominal(u64),
    /// The tenant borrows; by how far above its fair share it is, in thousandths of it, then by the learnt rank.
    Borrowing(u64, u64),
}

/// What the order needs to know of a waiting job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waiting {
    pub job: JobId,
    pub priority: Priority,
    pub submitted: Time,
    /// What it waited so far, in all; time it ran between evictions does not count.
    pub waited_ms: u64,
    /// Within nominal quota for what it asks, at its tenant.
    pub nominal: bool,
    /// See [`super::share`]: what the tenant used lately over what it deserves, 1000 being its due.
    pub over_share_milli: u64,
    /// Expected GPU-seconds per completion, from the forecast.
    pub cost_gpu_s: f64,
}

/// Sorts waiting jobs; the least goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderKey {
    priority: Reverse<Priority>,
    standing: Standing,
    job: JobId,
}

/// A rank as an integer in eighths of a power of two: nearer than that two costs are as good as equal, and then the
/// tie goes to who came first instead of to noise.
pub fn rank_of(cost_gpu_s: f64) -> u64 {
    let mut cost = if cost_gpu_s.is_finite() {
        cost_gpu_s.clamp(1.0, 1e15)
    } else {
        1e15
    };
    let mut rank = 0;
    while cost >= 2.0 {
        cost /= 2.0;
        rank += 8;
    }
    rank + ((cost - 1.0) * 8.0) as u64
}

/// How fine shares are told apart: tenants within a quarter of their due of one another are equals, and the learnt
/// rank decides between their jobs.
const SHARE_STEP_MILLI: u64 = 250;

impl Waiting {
    pub fn key(&self) -> OrderKey {
        let rank = rank_of(self.cost_gpu_s);
        let standing = if self.waited_ms >= AGED_MS {
            Standing::Aged(self.submitted)
        } else if self.nominal {
            Standing::Nominal(rank)
        } else {
            // Below its due a tenant is not told apart from one at it: unused share is not a claim on the past.
            let over = self.over_share_milli.max(1000) / SHARE_STEP_MILLI;
            Standing::Borrowing(over, rank)
        };
        OrderKey {
            priority: Reverse(self.priority),
            standing,
            job: self.job,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn waiting(job: u64) -> Waiting {
        Waiting {
            job: JobId(job),
            priority: Priority::Normal,
            submitted: Time(job as i64),
            waited_ms: 0,
            nominal: false,
            over_share_milli: 1000,
            cost_gpu_s: 100.0,
        }
    }

    #[test]
    fn each_question_outweighs_the_ones_after_it() {
        let worst = Waiting {
            over_share_milli: 9_000,
            cost_gpu_s: 1e9,
            ..waiting(9)
        };
        let rank = Waiting {
            cost_gpu_s: 10.0,
            ..worst
        };
        let share = Waiting {
            over_share_milli: 2_000,
            ..worst
        };
        let nominal = Waiting {
            nominal: true,
            ..worst
        };
        let aged = Waiting {
            waited_ms: AGED_MS,
            ..worst
        };
        let urgent = Waiting {
            priority: Priority::Urgent,
            ..worst
        };
        let keys = [urgent, aged, nominal, share, rank, worst].map(|job| job.key());
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
    }

    #[test]
    fn among_the_aged_the_oldest_goes_first() {
        let older = Waiting {
            waited_ms: AGED_MS,
            cost_gpu_s: 1e9,
            ..waiting(1)
        };
        let newer = Waiting {
            waited_ms: AGED_MS * 2,
            cost_gpu_s: 1.0,
            ..waiting(2)
        };
        assert!(older.key() < newer.key());
    }

    #[test]
    fn equal_jobs_go_by_arrival() {
        assert!(waiting(1).key() < waiting(2).key());
    }

    proptest! {
        #[test]
        fn ranks_grow_with_cost(a in 1.0f64..1e12, b in 1.0f64..1e12) {
            prop_assert!((a <= b) == (rank_of(a) <= rank_of(b)) || rank_of(a) == rank_of(b));
            prop_assert!(rank_of(a * 2.01) >= rank_of(a) + 8);
        }
    }
}
