//! Sleeping on a word of shared memory, and waking whoever sleeps there.
//!
//! A word the other side may write: a wake may come early, late or never, so every sleep has an end of its own.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while the word is `seen`, at most `most`.
pub fn sleep(word: &AtomicU32, seen: u32, most: Duration) {
    let limit = libc::timespec {
        tv_sec: most.as_secs() as libc::time_t,
        tv_nsec: most.subsec_nanos().into(),
    };
    // SAFETY: the word is live for the call; the kernel only reads it and the time.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            seen,
            &raw const limit,
        );
    }
}

/// Wakes all who sleep on the word.
pub fn wake(word: &AtomicU32) {
    // SAFETY: the word is live for the call; the kernel uses its address only.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}
