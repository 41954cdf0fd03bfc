//! What puts one waiting line before another.

use crate::id::JobId;
use crate::state::State;
use crate::tenancy::share::DEFAULT_AGED_S;
use crate::time::SECOND_MS;
use crate::workload::job::Job;

/// See [`DEFAULT_AGED_S`].
pub const AGED_MS: u64 = DEFAULT_AGED_S * SECOND_MS;

/// Who is sure of what it asks goes before who is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    /// Within nominal quota for it.
    Nominal,
    /// Borrowing, or without a nominal quota.
    Rest,
}

/// Sorts what waits under one parent: the least goes first. A scope has the band, rank and job of its own first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub band: Band,
    /// What the scope uses for its weight, see [`share_of`]; the same for all lines of one user.
    pub share: u64,
    /// What a completion is expected to cost, see [`rank_of`].
    pub rank: u64,
    pub job: JobId,
}

/// What serving a job costs the others that ran this long already: the least expected run time per completion, by what is
/// known of its like, for all its GPUs.
pub fn cost_gpu_s(state: &State, job: &Job, ran_ms: u64) -> f64 {
    let Some(alike) = job.alike else { return 0.0 };
    let cost_s = state.history.hazard(alike).cost_s(ran_ms / SECOND_MS, 0);
    cost_s * job.spec.demand.gpu_milli() as f64 / 1000.0
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

/// What a scope uses for its weight, in sixteenths of a power of two: siblings that near to one another are equals,
/// and the learnt rank decides between their jobs.
pub fn share_of(claim_gpu_ms: u64, weight: u32) -> u64 {
    let per_weight = (u128::from(claim_gpu_ms) << 24) / u128::from(weight.max(1));
    if per_weight < 16 {
        return 0;
    }
    let octave = per_weight.ilog2();
    u64::from(octave) * 16 + ((per_weight >> (octave - 4)) & 15) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_question_outweighs_the_ones_after_it() {
        let worst = Key {
            band: Band::Rest,
            share: 900,
            rank: 90,
            job: JobId(9),
        };
        let job = Key {
            job: JobId(1),
            ..worst
        };
        let rank = Key { rank: 10, ..worst };
        let share = Key { share: 10, ..worst };
        let nominal = Key {
            band: Band::Nominal,
            ..worst
        };
        assert!([nominal, share, rank, job, worst].is_sorted_by(|a, b| a < b));
    }

    proptest! {
        #[test]
        fn ranks_grow_with_cost(a in 1.0f64..1e12, b in 1.0f64..1e12) {
            prop_assert!((a <= b) == (rank_of(a) <= rank_of(b)) || rank_of(a) == rank_of(b));
            prop_assert!(rank_of(a * 2.01) >= rank_of(a) + 8);
        }

        #[test]
        fn shares_are_told_apart_by_a_sixteenth(used in 1_000u64..1 << 50, weight in 1u32..1000) {
            let share = share_of(used, weight);
            prop_assert!(share_of(used + used / 15, weight) > share);
            prop_assert!(share_of(used, weight + 1) <= share);
            prop_assert_eq!(share_of(used * 4, weight), share + 32);
        }
    }
}
