//! How reliable a seller is: of what it promised lately, how much was had. Older promises fade.
//!
//! Whole GPU time, so that a long lease counts for more than a short one; a seller nobody knows begins with the benefit of
//! the doubt, which weighs as much as a day of one GPU. Fed where leases end; shown with offers, and asked by bids.

use serde::{Deserialize, Serialize};

use crate::tenancy::lately::Used;
use crate::time::{HOUR_MS, Time};

const HALF_LIFE_MS: u64 = 30 * 24 * HOUR_MS;
const DOUBT_GPU_MS: u64 = 24 * HOUR_MS;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reliability {
    kept: Used,
    broken: Used,
}

impl Reliability {
    pub(crate) fn note(&mut self, kept_gpu_ms: u64, broken_gpu_ms: u64, at: Time) {
        self.kept.add(kept_gpu_ms, HALF_LIFE_MS, at);
        self.broken.add(broken_gpu_ms, HALF_LIFE_MS, at);
    }

    /// In thousandths.
    pub fn permille(self, at: Time) -> u32 {
        let kept = u128::from(self.kept.gpu_ms(HALF_LIFE_MS, at)) + u128::from(DOUBT_GPU_MS);
        let all = kept + u128::from(self.broken.gpu_ms(HALF_LIFE_MS, at));
        (kept * 1000 / all) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_promise_counts_and_fades() {
        let mut seller = Reliability::default();
        assert_eq!(seller.permille(Time(0)), 1000);
        seller.note(0, DOUBT_GPU_MS, Time(0));
        assert_eq!(seller.permille(Time(0)), 500);
        assert_eq!(seller.permille(Time(HALF_LIFE_MS as i64)), 666);
        seller.note(9 * DOUBT_GPU_MS, 0, Time(0));
        assert_eq!(seller.permille(Time(0)), 909);
    }
}
