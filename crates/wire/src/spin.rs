//! Looking again for a short while before sleeping. How long pays depends on whether the other side has a processor:
//! where looking helped it goes on longer next time, where it did not it gives up sooner, and now and then tries again.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

const LEAST_NS: u32 = 2_000;
const MOST_NS: u32 = 20_000;
/// The longest is tried once in so many times.
const TRIED_EACH: u32 = 32;

/// How long to look, learnt from the last times.
pub(crate) struct Spin {
    budget_ns: AtomicU32,
    tries: AtomicU32,
}

impl Default for Spin {
    fn default() -> Spin {
        Spin {
            budget_ns: AtomicU32::new(MOST_NS),
            tries: AtomicU32::new(0),
        }
    }
}

impl Spin {
    /// Looks until `seen` says yes or the time is over.
    pub fn until<E>(&self, mut seen: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        for _ in 0..16 {
            if seen()? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        let mut budget = self.budget_ns.load(Relaxed);
        if self.tries.fetch_add(1, Relaxed).is_multiple_of(TRIED_EACH) {
            budget = MOST_NS;
        }
        let end = Instant::now() + Duration::from_nanos(budget.into());
        loop {
            for _ in 0..16 {
                if seen()? {
                    self.budget_ns.store(MOST_NS, Relaxed);
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= end {
                self.budget_ns.store((budget / 4).max(LEAST_NS), Relaxed);
                return Ok(false);
            }
        }
    }
}
