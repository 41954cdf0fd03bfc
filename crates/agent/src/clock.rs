//! The node's clocks. Leases count time asleep, run time does not; neither follows the wall.

use rustix::time::{ClockId, clock_gettime};

fn ms(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Since boot, time asleep included.
pub fn boottime_ms() -> u64 {
    ms(ClockId::Boottime)
}

/// Since boot, time asleep left out.
pub fn monotonic_ms() -> u64 {
    ms(ClockId::Monotonic)
}

/// The same, finer.
pub fn monotonic_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// What tells this boot from every other.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}
