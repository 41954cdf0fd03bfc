//! A process on a slice: what it may allocate. The lease is in `lease.rs`.

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::error::{Error, Refused};
use crate::layout::{Counter, ENDED, LIVE, NO_SLICE, Slice};
use crate::map::Map;
use crate::reap::{PATIENCE, Seat, fold, recount};

/// This process's place on one slice. Every charge is gone when the process is, however it ends.
pub struct Process {
    pub(crate) seat: Seat,
    pub(crate) index: usize,
    pub(crate) epoch: u32,
    /// The grant this process holds, or zero.
    pub(crate) grant: AtomicU32,
    pub(crate) granted_ns: AtomicU64,
    pub(crate) turn_ends_ns: AtomicU64,
    /// Threads of this process that wait for the lease.
    pub(crate) threads_waiting: AtomicU32,
}

impl Process {
    /// Joins the slice `id` of the device whose page stands at `path` (or is the inherited descriptor `fd:N`).
    pub fn join(path: &Path, id: u64) -> Result<Process, Error> {
        let seat = Seat::claim(Map::open(path)?)?;
        let (index, epoch) = seat.find(id)?;
        let slice = &seat.page().slices[index];
        seat.in_slice(index, PATIENCE, || {
            if slice.id.load(Acquire) != id || slice.epoch.load(Relaxed) != epoch {
                return Err(Error::NoSlice(id));
            }
            if slice.flags.load(Relaxed) & ENDED != 0 {
                return Err(Error::Ended);
            }
            let slot = seat.slot();
            slot.slice.store(index as u32, Relaxed);
            slot.slice_epoch.store(epoch, Relaxed);
            slot.counters[Counter::Opens as usize].store(1, Relaxed);
            slot.state.store(LIVE, Release);
            Ok(())
        })??;
        Ok(Process {
            seat,
            index,
            epoch,
            grant: AtomicU32::new(0),
            granted_ns: AtomicU64::new(0),
            turn_ends_ns: AtomicU64::new(0),
            threads_waiting: AtomicU32::new(0),
        })
    }

    pub(crate) fn slice(&self) -> &Slice {
        &self.seat.page().slices[self.index]
    }

    /// Whether the slice still stands and was not ended.
    pub fn stands(&self) -> bool {
        let slice = self.slice();
        slice.epoch.load(Relaxed) == self.epoch && slice.flags.load(Relaxed) & ENDED == 0
    }

    /// Whether this process joined itself, and did not inherit the handle by a fork.
    pub fn mine(&self) -> bool {
        self.seat.locks.mine()
    }

    /// Takes `bytes` of the slice, or says how much it has and uses.
    pub fn charge(&self, bytes: u64) -> Result<(), Refused> {
        let slice = self.slice();
        let slot = self.seat.slot();
        let answer = self.seat.in_slice(self.index, PATIENCE, || {
            if !self.stands() {
                return Err(Refused::Unable(Error::Ended));
            }
            let limit = slice.limit_bytes.load(Relaxed);
            let fits = |used: u64| used.checked_add(bytes).is_some_and(|sum| sum <= limit);
            let mut used = slice.used_bytes.load(Relaxed);
            if !fits(used) {
                self.seat.reap_locked(self.index);
                used = recount(self.seat.page(), self.index);
            }
            if !fits(used) {
                return Err(Refused::OverLimit {
                    limit,
                    used,
                    asked: bytes,
                });
            }
            // The slot first: a death after it is repaired from the slots, which then vanish with us.
            slot.bytes
                .store(slot.bytes.load(Relaxed).wrapping_add(bytes), Relaxed);
            slice.used_bytes.store(used + bytes, Relaxed);
            if used + bytes > slice.peak_bytes.load(Relaxed) {
                slice.peak_bytes.store(used + bytes, Relaxed);
            }
            Ok(())
        });
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => Err(Refused::Unable(error)),
        };
        if answer.is_ok() {
            self.count(Counter::Allocations, 1);
            self.count(Counter::AllocatedBytes, bytes);
        } else {
            self.count(Counter::Refusals, 1);
        }
        answer
    }

    /// Gives `bytes` back.
    pub fn credit(&self, bytes: u64) -> Result<(), Error> {
        let slice = self.slice();
        let slot = self.seat.slot();
        self.seat.in_slice(self.index, PATIENCE, || {
            let Some(left) = slot.bytes.load(Relaxed).checked_sub(bytes) else {
                return Err(Error::Overdrawn);
            };
            slot.bytes.store(left, Relaxed);
            slice
                .used_bytes
                .store(slice.used_bytes.load(Relaxed).saturating_sub(bytes), Relaxed);
            Ok(())
        })?
    }

    /// The slice's size now.
    pub fn limit_bytes(&self) -> u64 {
        self.slice().limit_bytes.load(Relaxed)
    }

    /// What the slice uses now, all its processes together.
    pub fn used_bytes(&self) -> u64 {
        self.slice().used_bytes.load(Relaxed)
    }

    /// The longest one kernel may run; zero: no limit.
    pub fn kernel_limit_ns(&self) -> u64 {
        self.slice().kernel_limit_ns.load(Relaxed)
    }

    /// The device time this one process may use; zero: no limit.
    pub fn process_limit_ns(&self) -> u64 {
        self.slice().process_limit_ns.load(Relaxed)
    }

    /// What this process counted so far.
    pub fn counted(&self, counter: Counter) -> u64 {
        self.seat.slot().counters[counter as usize].load(Relaxed)
    }

    /// Adds to one of the slice's counters.
    pub fn count(&self, counter: Counter, amount: u64) {
        if self.mine() {
            self.seat.slot().counters[counter as usize].fetch_add(amount, Relaxed);
        }
    }

    /// Publishes how many commands are on the device, for telemetry and for whoever takes over from this process.
    pub fn set_inflight(&self, commands: u32) {
        if self.mine() {
            self.seat.slot().inflight.store(commands, Relaxed);
        }
    }
}

impl Drop for Process {
    /// Leaves in order; a process that cannot is reaped like a dead one.
    fn drop(&mut self) {
        if !self.mine() {
            return;
        }
        self.release();
        let slot = self.seat.slot();
        let _ = self.seat.in_slice(self.index, PATIENCE, || {
            fold(self.seat.page(), self.index, self.seat.me.slot);
            slot.slice.store(NO_SLICE, Relaxed);
        });
    }
}
