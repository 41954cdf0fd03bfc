//! Who lives: a process owns a slot as long as it holds the open-file-description lock on the slot's byte.
//!
//! The kernel drops the lock on any death, at any instruction, whatever pid namespace the process was in. Two ways
//! would keep a dead process's lock alive, both closed here: a mapping made from the same descriptor (the lock's
//! descriptor is never mapped), and a forked child's copy (closed in the child by `pthread_atfork`).

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use crate::error::Error;
use crate::layout::{LOCK_BASE, SLOTS};

/// Descriptors that a forked child must close. Written with atomics only: the child's handler may do no more.
static HELD: [AtomicI32; 256] = [const { AtomicI32::new(-1) }; 256];
/// How often this process image was forked into being; a handle made under another number is the parent's.
static FORKS: AtomicU32 = AtomicU32::new(0);
static WATCH_FORKS: Once = Once::new();

extern "C" fn in_the_child() {
    FORKS.fetch_add(1, SeqCst);
    for held in &HELD {
        let fd = held.swap(-1, SeqCst);
        if fd >= 0 {
            // SAFETY: close is async-signal-safe; the number was ours and is forgotten at once.
            unsafe { libc::close(fd) };
        }
    }
}

pub(crate) fn forks() -> u32 {
    FORKS.load(Relaxed)
}

/// The descriptor that carries one handle's locks.
pub(crate) struct Locks {
    place: usize,
    fd: i32,
    forks: u32,
}

impl Locks {
    pub fn new(fd: OwnedFd) -> Result<Locks, Error> {
        WATCH_FORKS.call_once(|| {
            // SAFETY: the handler is a plain function that lives as long as this library is loaded.
            unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
        });
        let number = fd.as_raw_fd();
        let place = (0..HELD.len())
            .find(|place| HELD[*place].compare_exchange(-1, number, SeqCst, SeqCst).is_ok())
            .ok_or(Error::Full("handle in one process"))?;
        Ok(Locks {
            place,
            fd: fd.into_raw_fd(),
            forks: forks(),
        })
    }

    /// Whether this process made the handle, and did not inherit it.
    pub fn mine(&self) -> bool {
        self.forks == forks()
    }

    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// Takes the byte of `slot` if no living process has it.
    pub fn take(&self, slot: usize) -> bool {
        self.mine() && self.fcntl(libc::F_OFD_SETLK, libc::F_WRLCK, slot).is_some()
    }

    pub fn give_back(&self, slot: usize) {
        if self.mine() {
            self.fcntl(libc::F_OFD_SETLK, libc::F_UNLCK, slot);
        }
    }

    /// Whether another descriptor holds the byte. On doubt the owner is taken to live: nothing of it is touched.
    pub fn lives(&self, slot: usize) -> bool {
        match self.fcntl(libc::F_OFD_GETLK, libc::F_WRLCK, slot) {
            Some(kind) => kind != libc::F_UNLCK,
            None => true,
        }
    }

    fn fcntl(&self, command: i32, kind: i32, slot: usize) -> Option<i32> {
        debug_assert!(slot < SLOTS);
        // SAFETY: an all-zero flock is valid; OFD commands want l_pid zero.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as i16;
        lock.l_whence = libc::SEEK_SET as i16;
        lock.l_start = LOCK_BASE + slot as i64;
        lock.l_len = 1;
        // SAFETY: the pointer is to a live flock; a closed descriptor only makes the call fail.
        let answer = unsafe { libc::fcntl(self.fd, command, &mut lock) };
        (answer == 0).then_some(i32::from(lock.l_type))
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        if self.mine()
            && HELD[self.place]
                .compare_exchange(self.fd, -1, SeqCst, SeqCst)
                .is_ok()
        {
            // SAFETY: owned by this handle; forgotten by the table just now.
            unsafe { libc::close(self.fd) };
        }
    }
}
