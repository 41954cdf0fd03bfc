//! How long this thread had a processor: what a decision costs on one core, whoever else wants the machine meanwhile.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment by the thread's own clock.
#[derive(Debug, Clone, Copy)]
pub struct Busy(Duration);

impl Busy {
    pub fn now() -> Busy {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Busy(Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0)))
    }

    pub fn elapsed(self) -> Duration {
        Busy::now().0.saturating_sub(self.0)
    }
}
