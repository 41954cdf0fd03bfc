//! What a finished command is charged: the driver's own measurement where it proved honest, else wall time under the
//! lease; never more than wall time, and not the time a driver took to compile.

use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

/// What a front knows of a finished group of commands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// The driver's measurement of the one command in the group.
    pub driver_ns: Option<u64>,
    /// The first launch of a kernel: the driver may have compiled it meanwhile.
    pub first: bool,
    /// Wall time counts from here at the earliest.
    pub not_before_ns: u64,
    /// Several commands counted as one.
    pub grouped: bool,
}

/// Whether this device's profiling can be believed, judged by comparing it with wall time. Some implementations
/// answer with next to nothing.
#[derive(Default)]
pub struct Trust(AtomicI32);

const SURE: i32 = 2;
/// Below this, wall time is mostly the cost of launching and says nothing about honesty.
const TELLING_NS: u64 = 200_000;

impl Trust {
    /// What to charge for a group that took `wall_ns`.
    pub fn judge(&self, measured: Measured, wall_ns: u64) -> u64 {
        let Some(driver_ns) = measured.driver_ns else {
            return wall_ns;
        };
        if !measured.first && wall_ns >= TELLING_NS {
            let step = if driver_ns >= wall_ns / 3 { 1 } else { -1 };
            let score = self.0.load(Relaxed);
            self.0.store((score + step).clamp(-2 * SURE, 2 * SURE), Relaxed);
        }
        let score = self.0.load(Relaxed);
        if score >= SURE {
            driver_ns.min(wall_ns)
        } else if measured.first && score > -SURE {
            // Not known yet: compiling is not charged, but a liar does not get the launch for nothing either.
            driver_ns.clamp(wall_ns / 20, wall_ns)
        } else {
            wall_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(driver_ns: u64, first: bool) -> Measured {
        Measured {
            driver_ns: Some(driver_ns),
            first,
            ..Measured::default()
        }
    }

    #[test]
    fn an_honest_driver_is_believed_and_compiling_is_free() {
        let trust = Trust::default();
        assert_eq!(trust.judge(measured(1_000_000, true), 900_000_000), 45_000_000);
        for _ in 0..3 {
            trust.judge(measured(5_000_000, false), 5_100_000);
        }
        assert_eq!(trust.judge(measured(5_000_000, false), 5_100_000), 5_000_000);
        assert_eq!(trust.judge(measured(1_000_000, true), 900_000_000), 1_000_000);
        assert_eq!(
            trust.judge(measured(9_000_000, false), 5_000_000),
            5_000_000,
            "overlap is paid once"
        );
    }

    #[test]
    fn a_liar_pays_wall_time() {
        let trust = Trust::default();
        for _ in 0..3 {
            trust.judge(measured(10, false), 5_000_000);
        }
        assert_eq!(trust.judge(measured(10, false), 5_000_000), 5_000_000);
        assert_eq!(trust.judge(measured(10, true), 5_000_000), 5_000_000);
    }

    #[test]
    fn short_commands_prove_nothing() {
        let trust = Trust::default();
        for _ in 0..9 {
            trust.judge(measured(5_000, false), 30_000);
        }
        assert_eq!(trust.judge(measured(5_000, false), 30_000), 30_000);
    }
}
