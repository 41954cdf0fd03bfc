//! The robust lock of one slice's ledger: a futex word that names its holder by slot and actor number.
//!
//! Not a pthread mutex: a robust one keeps list pointers inside the shared memory, and whoever edits them writes into
//! the next locker's address space. Here a waiter that finds the holder's slot dead (its byte lock free, or its actor
//! number changed) takes the lock over and is told so, to repair what the dead one left. Waiting is bounded always.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::clock::now_ns;
use crate::error::Error;
use crate::layout::{Page, SLOTS};
use crate::liveness::Locks;

const WAITERS: u32 = 1 << 31;
const SLOT_BITS: u32 = 10;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
const ACTOR_MASK: u32 = (1 << (31 - SLOT_BITS)) - 1;
/// How long a waiter sleeps before it looks whether the holder lives.
const LOOK: Duration = Duration::from_millis(2);
const SPINS: u32 = 60;

/// Who locks: a slot this process owns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub slot: usize,
    pub actor: u32,
}

impl Identity {
    fn word(self) -> u32 {
        ((self.actor & ACTOR_MASK) << SLOT_BITS) | (self.slot as u32 + 1)
    }
}

pub(crate) enum Locked {
    Clean,
    /// The last holder died inside; the caller repairs before it goes on.
    AfterDeath,
}

pub(crate) fn lock(
    word: &AtomicU32,
    me: Identity,
    page: &Page,
    locks: &Locks,
    patience: Duration,
) -> Result<Locked, Error> {
    if word.compare_exchange(0, me.word(), Acquire, Relaxed).is_ok() {
        return Ok(Locked::Clean);
    }
    for _ in 0..SPINS {
        std::hint::spin_loop();
        if word.load(Relaxed) == 0 && word.compare_exchange(0, me.word(), Acquire, Relaxed).is_ok() {
            return Ok(Locked::Clean);
        }
    }
    let give_up = now_ns() + patience.as_nanos() as u64;
    let mut look = now_ns() + LOOK.as_nanos() as u64;
    loop {
        let seen = word.load(Relaxed);
        if seen == 0 {
            // Others may sleep behind us, so the unlock must wake.
            if word
                .compare_exchange(0, me.word() | WAITERS, Acquire, Relaxed)
                .is_ok()
            {
                return Ok(Locked::Clean);
            }
            continue;
        }
        if seen & WAITERS == 0
            && word
                .compare_exchange(seen, seen | WAITERS, Relaxed, Relaxed)
                .is_err()
        {
            continue;
        }
        futex_wait(word, seen | WAITERS, LOOK, !0);
        let now = now_ns();
        if now >= look {
            look = now + LOOK.as_nanos() as u64;
            let seen = word.load(Relaxed);
            if seen != 0
                && dead(seen, me, page, locks)
                && word
                    .compare_exchange(seen, me.word() | WAITERS, Acquire, Relaxed)
                    .is_ok()
            {
                return Ok(Locked::AfterDeath);
            }
        }
        if now >= give_up {
            return Err(Error::Busy);
        }
    }
}

pub(crate) fn unlock(word: &AtomicU32, me: Identity) {
    if word.compare_exchange(me.word(), 0, Release, Relaxed).is_ok() {
        return;
    }
    if word
        .compare_exchange(me.word() | WAITERS, 0, Release, Relaxed)
        .is_ok()
    {
        futex_wake(word, 1, !0);
    }
}

/// Whether the holder a lock word names is gone. A word that names no possible holder is a dead one's too.
fn dead(seen: u32, me: Identity, page: &Page, locks: &Locks) -> bool {
    let Some(slot) = (seen & SLOT_MASK).checked_sub(1).map(|slot| slot as usize) else {
        return true;
    };
    if slot >= SLOTS {
        return true;
    }
    let actor = ((seen & !WAITERS) >> SLOT_BITS) & ACTOR_MASK;
    if page.slots[slot].actor.load(Relaxed) & ACTOR_MASK != actor {
        return true;
    }
    // Another thread of this process: it cannot die alone.
    slot != me.slot && !locks.lives(slot)
}

/// Sleeps while `word` is `expected`, at most for `patience`; wakes early for any reason.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, patience: Duration, bits: u32) {
    let until = now_ns() + patience.as_nanos() as u64;
    let until = libc::timespec {
        tv_sec: (until / 1_000_000_000) as i64,
        tv_nsec: (until % 1_000_000_000) as i64,
    };
    // SAFETY: the word lives in mapped memory; the bitset wait takes an absolute CLOCK_MONOTONIC time.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            expected,
            &until,
            std::ptr::null::<u32>(),
            bits,
        )
    };
}

pub(crate) fn futex_wake(word: &AtomicU32, count: i32, bits: u32) {
    // SAFETY: the word lives in mapped memory.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE_BITSET,
            count,
            std::ptr::null::<libc::timespec>(),
            std::ptr::null::<u32>(),
            bits,
        )
    };
}
