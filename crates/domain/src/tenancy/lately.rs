//! GPU time used lately: a sum that fades with a half-life, so that a heavy week is forgiven.
//!
//! Each scope keeps one, of itself and everything below it. Absent: what a scope deserves (`schedule/order`).
//! Fed by metered intervals in `state/apply`.

use serde::{Deserialize, Serialize};

use crate::time::Time;

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn use_is_halved_after_a_half_life() {
        let mut used = Used::default();
        used.add(1_000_000, 1_600, Time(0));
        assert_eq!(used.gpu_ms(1_600, Time(1_599)), 522_136, "in sixteen steps");
        assert_eq!(used.gpu_ms(1_600, Time(1_600)), 500_000);
        assert_eq!(used.gpu_ms(1_600, Time(4_800)), 125_000);
        assert_eq!(used.gpu_ms(1_600, Time(i64::MAX)), 0);
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
    }
}
