//! Looking again for a short while before sleeping. How long pays depends on whether the other side has a processor:
//! where looking helped it goes on longer next time, where it did not it gives up sooner.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

const MOST_NS: u32 = 20_000;

/// How long to look, learnt from the last times.
pub(crate) struct Spin {
    budget_ns: AtomicU32,
    least_ns: u32,
}

impl Spin {
    /// For one who waits for the next call: longer than a program takes between two.
    pub fn for_calls() -> Spin {
        Spin::from(5_000)
    }

    /// For an answer that comes at once, once the other side is awake: long enough to wake it.
    pub fn for_answers() -> Spin {
        Spin::from(15_000)
    }

    /// For an answer that waits for a device.
    pub fn for_ends() -> Spin {
        Spin::from(8_000)
    }

    fn from(least_ns: u32) -> Spin {
        Spin {
            budget_ns: AtomicU32::new(MOST_NS),
            least_ns,
        }
    }

    /// Looks until `seen` says yes or the time is over.
    pub fn until<E>(&self, mut seen: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        for _ in 0..16 {
            if seen()? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        let budget = self.budget_ns.load(Relaxed);
        let end = Instant::now() + Duration::from_nanos(budget.into());
        loop {
            for _ in 0..16 {
                if seen()? {
                    self.budget_ns.store((budget + budget / 2).min(MOST_NS), Relaxed);
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= end {
                self.budget_ns
                    .store((budget - budget / 4).max(self.least_ns), Relaxed);
                return Ok(false);
            }
        }
    }
}
