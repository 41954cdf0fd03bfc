//! The one clock of the page: CLOCK_MONOTONIC, the same for every process of the machine (time namespaces shift it,
//! so a job must not get one of its own).

/// Nanoseconds since an arbitrary start; never zero, so that zero can mean "never" in the page.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live timespec; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
        .max(1)
}
