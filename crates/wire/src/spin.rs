//! Looking again for a short while before sleeping. How long pays depends on whether the other side has a processor:
//! where looking helped it goes on longer next time, where it did not it gives up sooner.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

const LEAST_NS: u32 = 500;
const MOST_NS: u32 = 20_000;

/// How long to look, learnt from the last times.
pub(crate) struct Spin(AtomicU32);

impl Default for Spin {
    fn default() -> Spin {
        Spin(AtomicU32::new(MOST_NS / 2))
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
        let budget = self.0.load(Relaxed);
        let end = Instant::now() + Duration::from_nanos(budget.into());
        loop {
            for _ in 0..16 {
                if seen()? {
                    self.0.store((budget + budget / 2).min(MOST_NS), Relaxed);
                    return Ok(true);
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= end {
                self.0.store((budget - budget / 4).max(LEAST_NS), Relaxed);
                return Ok(false);
            }
        }
    }
}
