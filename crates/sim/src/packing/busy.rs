//! How long this thread, or all of the process, had a processor: what a decision costs, whoever else wants the machine
//! meanwhile.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long all threads of this process had processors, together.
pub fn of_all() -> Duration {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// A moment by the thread's own clock.
#[derive(Debug, Clone, Copy)]
pub struct Busy(Duration);

impl Busy {
    pub fn now() -> Busy {
        Busy(read(ClockId::ThreadCPUTime))
    }

    pub fn elapsed(self) -> Duration {
        Busy::now().0.saturating_sub(self.0)
    }
}
