//! Fair share: what each scope used lately over what it deserves, down the tenancy tree.
//!
//! Used GPU time fades with a half-life, so a heavy week is forgiven. A scope deserves, of what its parent's children
//! used, the part its weight gives it among those that want something; how far above that it is counts
//! at every level from the platform down, the worst level deciding, so that a frugal user is not held back by
//! another tenant's excess, but is by the excess of its own.

use serde::{Deserialize, Serialize};

use crate::time::{HOUR_MS, Time};

pub const DEFAULT_HALF_LIFE_MS: u64 = 7 * 24 * HOUR_MS;

/// 2^(-n/16) in parts of 2^32, n from 0 to 15.
const SIXTEENTHS: [u64; 16] = [
    4_294_967_296,
    4_112_874_773,
    3_938_502_376,
    3_771_522_796,
    3_611_622_603,
    3_458_501_653,
    3_311_872_529,
    3_171_459_999,
    3_037_000_500,
    2_908_241_642,
    2_784_941_738,
    2_666_869_345,
    2_553_802_834,
    2_445_529_972,
    2_341_847_524,
    2_242_560_872,
];

/// GPU time used lately, fading. Whole GPU-milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    gpu_ms: u64,
    at: Time,
}

impl Used {
    /// As it has faded by `at`, in sixteenths of the half-life.
    pub fn faded(self, half_life_ms: u64, at: Time) -> Used {
        let step_ms = (half_life_ms / 16).max(1);
        let steps = at.since_ms(self.at) / step_ms;
        if steps == 0 {
            return self;
        }
        let halved = self
            .gpu_ms
            .checked_shr(u32::try_from(steps / 16).unwrap_or(64))
            .unwrap_or(0);
        let gpu_ms = (u128::from(halved) * u128::from(SIXTEENTHS[(steps % 16) as usize])) >> 32;
        Used {
            gpu_ms: gpu_ms as u64,
            // The part of a step not yet faded stays due.
            at: self.at.plus_ms(steps * step_ms),
        }
    }

    pub fn add(&mut self, gpu_ms: u64, half_life_ms: u64, at: Time) {
        *self = self.faded(half_life_ms, at);
        if self.gpu_ms == 0 {
            self.at = at;
        }
        self.gpu_ms = self.gpu_ms.saturating_add(gpu_ms);
    }

    pub fn gpu_ms(self, half_life_ms: u64, at: Time) -> u64 {
        self.faded(half_life_ms, at).gpu_ms
    }
}

/// One scope among its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    pub weight: u32,
    pub used_gpu_ms: u64,
    /// Of all siblings that run or wait for something, this one included.
    pub all_weights: u64,
    pub all_used_gpu_ms: u64,
}

impl Level {
    /// What it used over what it deserves: 1000 is its due, 2000 twice that.
    pub fn over_milli(self) -> u64 {
        let deserved = u128::from(self.all_used_gpu_ms) * u128::from(self.weight.max(1))
            / u128::from(self.all_weights.max(1));
        if deserved == 0 {
            return if self.used_gpu_ms == 0 { 0 } else { u64::MAX };
        }
        u64::try_from(u128::from(self.used_gpu_ms) * 1000 / deserved).unwrap_or(u64::MAX)
    }
}

/// How far above its share a job's chain of scopes is, platform's child first: the worst level counts.
pub fn over_share_milli(chain: impl IntoIterator<Item = Level>) -> u64 {
    chain.into_iter().map(Level::over_milli).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn level(weight: u32, used: u64, all_weights: u64, all_used: u64) -> Level {
        Level {
            weight,
            used_gpu_ms: used,
            all_weights,
            all_used_gpu_ms: all_used,
        }
    }

    #[test]
    fn use_is_halved_after_a_half_life() {
        let mut used = Used::default();
        used.add(1_000_000, 1_600, Time(0));
        assert_eq!(used.gpu_ms(1_600, Time(1_599)), 522_136, "in sixteen steps");
        assert_eq!(used.gpu_ms(1_600, Time(1_600)), 500_000);
        assert_eq!(used.gpu_ms(1_600, Time(4_800)), 125_000);
        assert_eq!(used.gpu_ms(1_600, Time(i64::MAX)), 0);
    }

    #[test]
    fn weight_says_what_is_deserved() {
        assert_eq!(level(3, 300, 4, 400).over_milli(), 1000);
        assert_eq!(level(1, 300, 4, 400).over_milli(), 3000);
        assert_eq!(level(1, 0, 4, 0).over_milli(), 0);
    }

    #[test]
    fn the_worst_level_counts() {
        let chain = [level(1, 50, 2, 100), level(1, 90, 3, 90)];
        assert_eq!(over_share_milli(chain), 3000);
        assert_eq!(over_share_milli([]), 0);
    }

    proptest! {
        #[test]
        fn fading_in_steps_is_fading_at_once(gpu_ms in 0u64..1 << 50, steps in proptest::collection::vec(1u64..5_000, 1..20)) {
            let mut once = Used::default();
            once.add(gpu_ms, 16_000, Time(0));
            let mut stepped = once;
            let mut at = Time(0);
            for ms in steps {
                at = at.plus_ms(ms);
                stepped = stepped.faded(16_000, at);
            }
            let (a, b) = (once.gpu_ms(16_000, at), stepped.gpu_ms(16_000, at));
            prop_assert!(a.abs_diff(b) <= 64 + a / 1_000_000, "{a} {b}");
        }

        #[test]
        fn siblings_cannot_all_be_above_their_share(used in proptest::collection::vec(0u64..1 << 40, 2..8)) {
            let all: u64 = used.iter().sum();
            let over = used.iter().filter(|&&one| level(1, one, used.len() as u64, all).over_milli() > 1001);
            prop_assert!(all < 1000 || over.count() < used.len());
        }
    }
}
