//! What a job did with its devices: measured by its node, kept with each metered interval. Nothing is charged by it.
//!
//! Counts come from memory that a job's own processes can write, so they are worth what the isolation level is
//! worth; `within` keeps them to what could have been.

use serde::{Deserialize, Serialize};

use crate::schedule::allocation::Slice;

/// Use of devices, over all slices of an allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Time devices worked for it; with several devices, their sum.
    pub busy_ms: u64,
    /// Time it was held back by its own cap or a pause.
    pub throttled_ms: u64,
    /// Time it waited for the turn of others.
    pub waited_ms: u64,
    /// Commands let through to devices.
    pub launches: u64,
    /// Allocations of device memory refused.
    pub refusals: u64,
    /// Calls denied because they would pass the guard by.
    pub denials: u64,
    /// The most device memory it had at once on one device.
    pub peak_vram_mib: u64,
    /// Energy its devices used for it, in millijoules, where they say so.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub energy_mj: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Where there are many, written as an array: busy, throttled, waited; launches, refusals, denials; peak memory; energy.
pub(crate) type Packed = [u64; 8];

impl Usage {
    pub(crate) fn packed(&self) -> Packed {
        let Usage {
            busy_ms,
            throttled_ms,
            waited_ms,
            launches,
            refusals,
            denials,
            peak_vram_mib,
            energy_mj,
        } = *self;
        [
            busy_ms,
            throttled_ms,
            waited_ms,
            launches,
            refusals,
            denials,
            peak_vram_mib,
            energy_mj,
        ]
    }

    pub(crate) fn unpacked(packed: Packed) -> Usage {
        let [
            busy_ms,
            throttled_ms,
            waited_ms,
            launches,
            refusals,
            denials,
            peak_vram_mib,
            energy_mj,
        ] = packed;
        Usage {
            busy_ms,
            throttled_ms,
            waited_ms,
            launches,
            refusals,
            denials,
            peak_vram_mib,
            energy_mj,
        }
    }

    /// What came on top of an earlier reading of the same allocation. A count that went back counts as nothing new;
    /// the peak is that of the whole so far.
    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            busy_ms: self.busy_ms.saturating_sub(before.busy_ms),
            throttled_ms: self.throttled_ms.saturating_sub(before.throttled_ms),
            waited_ms: self.waited_ms.saturating_sub(before.waited_ms),
            launches: self.launches.saturating_sub(before.launches),
            refusals: self.refusals.saturating_sub(before.refusals),
            denials: self.denials.saturating_sub(before.denials),
            peak_vram_mib: self.peak_vram_mib.max(before.peak_vram_mib),
            energy_mj: self.energy_mj.saturating_sub(before.energy_mj),
        }
    }

    /// Adds an interval, or another device, or another attempt.
    pub fn add(&mut self, more: &Usage) {
        self.busy_ms = self.busy_ms.saturating_add(more.busy_ms);
        self.throttled_ms = self.throttled_ms.saturating_add(more.throttled_ms);
        self.waited_ms = self.waited_ms.saturating_add(more.waited_ms);
        self.launches = self.launches.saturating_add(more.launches);
        self.refusals = self.refusals.saturating_add(more.refusals);
        self.denials = self.denials.saturating_add(more.denials);
        self.peak_vram_mib = self.peak_vram_mib.max(more.peak_vram_mib);
        self.energy_mj = self.energy_mj.saturating_add(more.energy_mj);
    }

    /// The same, as far as these slices could have been used in this time.
    pub fn within(&self, ran_ms: u64, slices: &[Slice]) -> Usage {
        let longest_ms = ran_ms.saturating_mul(slices.len() as u64);
        let largest_mib = slices.iter().map(|slice| slice.vram_mib).max().unwrap_or(0);
        Usage {
            busy_ms: self.busy_ms.min(longest_ms),
            throttled_ms: self.throttled_ms.min(longest_ms),
            waited_ms: self.waited_ms.min(longest_ms),
            peak_vram_mib: self.peak_vram_mib.min(largest_mib),
            ..*self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::GpuId;

    fn usage(busy_ms: u64, peak_vram_mib: u64) -> Usage {
        Usage {
            busy_ms,
            peak_vram_mib,
            launches: busy_ms * 2,
            ..Usage::default()
        }
    }

    #[test]
    fn steps_add_up_to_the_whole_and_never_go_back() {
        let mut total = Usage::default();
        for seen in [
            usage(0, 5),
            usage(40, 9),
            usage(30, 2),
            usage(40, 9),
            usage(100, 3),
        ] {
            let before = total;
            total.add(&seen.since(&total));
            assert!(total.busy_ms >= before.busy_ms && total.peak_vram_mib >= before.peak_vram_mib);
        }
        assert_eq!(total, usage(100, 9));
    }

    #[test]
    fn nobody_is_busier_than_the_time_or_larger_than_the_slice() {
        let slice = |vram_mib| Slice {
            gpu: GpuId(1),
            vram_mib,
            compute_permille: 500,
            part: None,
        };
        let claimed = usage(u64::MAX / 2, u64::MAX);
        let kept = claimed.within(1000, &[slice(10), slice(20)]);
        assert_eq!((kept.busy_ms, kept.peak_vram_mib), (2000, 20));
        assert_eq!(kept.launches, claimed.launches);
        assert_eq!(claimed.within(1000, &[]).busy_ms, 0);
    }
}
