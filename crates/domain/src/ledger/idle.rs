//! Idle: device time that somebody paid for, could have had and had no work for; and what it cost.
//!
//! Pure, over what a metered interval says. Asked by `analysis`, and by nobody in another way: what is told of a job and what
//! is told of a class are then the same. Absent: what was not measured, of which nothing is said.

use super::bill::Interval;
use crate::money::Micros;
use crate::workload::spec::Isolation;

impl Interval {
    /// Device time it could have had: its share of each device. A part that hardware cuts is a device of its own, and its
    /// time is measured on it.
    pub fn could_ms(&self) -> u64 {
        if self.isolation == Isolation::Partition {
            return self.wall_ms();
        }
        let share = u128::from(self.ms()) * u128::from(self.gpu_milli) / 1000;
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    /// Time on the clock, of all its slices.
    fn wall_ms(&self) -> u64 {
        self.ms().saturating_mul(self.slices.into())
    }

    /// Device time it could have had and had no work for: what is missing of its share, and of that no more than it would
    /// have had while it neither worked nor was held back, be it by the turns of others or by its own cap. None where nothing
    /// was measured.
    pub fn idle_ms(&self) -> Option<u64> {
        let used = self.used?;
        let could_ms = self.could_ms();
        let engaged_ms = used
            .busy_ms
            .saturating_add(used.waited_ms)
            .saturating_add(used.throttled_ms);
        let wall_ms = self.wall_ms();
        let nothing_to_do_ms = wall_ms.saturating_sub(engaged_ms);
        let at_its_share = match wall_ms {
            0 => 0,
            wall_ms => u128::from(nothing_to_do_ms) * u128::from(could_ms) / u128::from(wall_ms),
        };
        let missing_ms = could_ms.saturating_sub(used.busy_ms);
        Some(missing_ms.min(u64::try_from(at_its_share).unwrap_or(u64::MAX)))
    }

    /// What of an amount paid for it went for that.
    pub fn waste(&self, amount: Micros) -> Option<Micros> {
        let idle_ms = self.idle_ms()?;
        let of = match self.could_ms() {
            0 => 0,
            could_ms => i128::from(amount.0) * i128::from(idle_ms) / i128::from(could_ms),
        };
        // INVARIANT: no more is idle than could be had, so it is no more than the amount.
        Some(Micros(of as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AllocationId, JobId, NodeId};
    use crate::kind::Kind;
    use crate::workload::usage::Usage;

    /// So many slices of a share each, for a thousand seconds.
    fn interval(slices: u32, permille: u64, used: Option<Usage>) -> Interval {
        Interval {
            allocation: AllocationId(1),
            job: JobId(2),
            node: NodeId(3),
            from_ms: 5_000,
            to_ms: 1_005_000,
            class: None,
            sku: None,
            kind: Kind::Batch,
            isolation: Isolation::Guarded,
            slices,
            gpu_milli: u64::from(slices) * permille,
            vram_mib: 1,
            gpu_ms: 1,
            used,
            frames: 0,
            about: None,
        }
    }

    fn used(busy_ms: u64, waited_ms: u64, throttled_ms: u64) -> Option<Usage> {
        Some(Usage {
            busy_ms,
            waited_ms,
            throttled_ms,
            ..Usage::default()
        })
    }

    #[test]
    fn a_share_is_idle_of_itself_and_not_of_the_whole_device() {
        let rows = [
            // Always busy at its share, waiting for others the rest, or held to its cap, or with nothing said of the rest.
            (1, 300, used(300_000, 700_000, 0), 0),
            (1, 300, used(300_000, 0, 700_000), 0),
            (1, 300, used(300_000, 0, 0), 0),
            // Half of that, whether it ran ahead while others had nothing to do or took turns.
            (1, 300, used(150_000, 0, 0), 150_000),
            (1, 300, used(150_000, 350_000, 0), 150_000),
            // It never had its share, but not for want of work.
            (1, 300, used(100_000, 900_000, 0), 0),
            // More than its share, while others had nothing to do.
            (1, 300, used(600_000, 0, 0), 0),
            // Nothing at all.
            (1, 300, used(0, 0, 0), 300_000),
            (2, 500, used(500_000, 0, 0), 500_000),
            // A whole device, and two of them.
            (1, 1000, used(400_000, 0, 0), 600_000),
            (1, 1000, used(400_000, 100_000, 0), 500_000),
            (2, 1000, used(400_000, 0, 0), 1_600_000),
            (0, 1000, used(400_000, 0, 0), 0),
            (1, 1000, used(u64::MAX, u64::MAX, u64::MAX), 0),
        ];
        for (slices, permille, used, idle_ms) in rows {
            let interval = interval(slices, permille, used);
            assert_eq!(
                interval.idle_ms(),
                Some(idle_ms),
                "{slices} × {permille} {used:?}"
            );
            let could_ms = interval.could_ms().max(1);
            let part = 1_000_000_i64 * idle_ms as i64 / could_ms as i64;
            assert_eq!(interval.waste(Micros(1_000_000)), Some(Micros(part)));
        }
    }

    #[test]
    fn a_part_that_hardware_cuts_is_a_device_of_its_own() {
        let mut part = interval(1, 142, used(500_000, 0, 0));
        part.isolation = Isolation::Partition;
        assert_eq!((part.could_ms(), part.idle_ms()), (1_000_000, Some(500_000)));
        assert_eq!(part.waste(Micros(1_000)), Some(Micros(500)));
    }

    #[test]
    fn of_what_was_not_measured_nothing_is_said() {
        let unmeasured = interval(1, 1000, None);
        assert_eq!((unmeasured.idle_ms(), unmeasured.waste(Micros(9))), (None, None));
        let mut empty = interval(1, 1000, used(0, 0, 0));
        empty.to_ms = empty.from_ms;
        assert_eq!(
            empty.waste(Micros(9)),
            Some(Micros(0)),
            "a minimum charge at the end"
        );
    }
}
