//! A seat at the page: the slot a handle owns, the lock of a slice taken in its name, and the reaping of the dead.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::error::Error;
use crate::layout::{AGENTS, COUNTERS, FREE, LIVE, NO_SLICE, Page, READY, SLICES, SLOTS, Slice, Slot};
use crate::liveness::Locks;
use crate::map::Map;
use crate::mutex::{self, Identity, Locked};

/// How long anyone waits for a slice's ledger; its holder normally has it for less than a microsecond.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct Seat {
    pub map: Map,
    pub locks: Locks,
    pub me: Identity,
}

impl Seat {
    /// Takes a slot whose byte no living process holds, reaping what a dead one left in it.
    pub fn claim(map: Map) -> Result<Seat, Error> {
        let locks = Locks::new(map.open_for_locks()?)?;
        for slot in 0..AGENTS {
            if !locks.take(slot) {
                continue;
            }
            let actor = map.page().slots[slot].actor.fetch_add(1, Relaxed).wrapping_add(1);
            let seat = Seat {
                map,
                locks,
                me: Identity { slot, actor },
            };
            if seat.reap_own_place().is_err() {
                // Its last slice's ledger is stuck: leave the slot to a later reaper, take another.
                let Seat { map: back, locks, .. } = seat;
                locks.give_back(slot);
                return Seat::claim_after(back, locks, slot + 1);
            }
            seat.begin_content();
            return Ok(seat);
        }
        Err(Error::Full("process"))
    }

    /// The agent's: the place that is kept for it. It is sat on even where somebody holds its byte and all others, so that
    /// nobody keeps the agent off the page; whoever does may be taken for it, and it for them, until they let go.
    pub fn claim_agents(map: Map) -> Result<Seat, Error> {
        let locks = Locks::new(map.open_for_locks()?)?;
        let free = std::iter::once(AGENTS)
            .chain(0..AGENTS)
            .find(|slot| locks.take(*slot));
        let slot = free.unwrap_or(AGENTS);
        let actor = map.page().slots[slot].actor.fetch_add(1, Relaxed).wrapping_add(1);
        let seat = Seat {
            map,
            locks,
            me: Identity { slot, actor },
        };
        // A ledger that is stuck keeps what the dead left in it until it is not; the place is the agent's all the same.
        let _ = seat.reap_own_place();
        seat.begin_content();
        Ok(seat)
    }

    /// Takes the byte of one's place where somebody else had it.
    pub fn sit_firmly(&self) {
        self.locks.take(self.me.slot);
    }

    fn claim_after(map: Map, locks: Locks, first: usize) -> Result<Seat, Error> {
        let free = (first..AGENTS)
            .find(|slot| map.page().slots[*slot].state.load(Acquire) == FREE && locks.take(*slot))
            .ok_or(Error::Full("process"))?;
        let actor = map.page().slots[free].actor.fetch_add(1, Relaxed).wrapping_add(1);
        let seat = Seat {
            map,
            locks,
            me: Identity { slot: free, actor },
        };
        seat.begin_content();
        Ok(seat)
    }

    fn begin_content(&self) {
        let slot = self.slot();
        slot.content.fetch_add(1, Relaxed);
        clear(slot);
        slot.slice.store(NO_SLICE, Relaxed);
        slot.state.store(FREE, Release);
    }

    fn reap_own_place(&self) -> Result<(), Error> {
        let slot = self.slot();
        let slice = slot.slice.load(Relaxed) as usize;
        if slot.state.load(Acquire) != LIVE || slice >= SLICES {
            return Ok(());
        }
        self.in_slice(slice, PATIENCE, || {
            if slot.state.load(Relaxed) == LIVE {
                fold(self.page(), slice, self.me.slot);
            }
        })
    }

    pub fn page(&self) -> &Page {
        self.map.page()
    }

    pub fn slot(&self) -> &Slot {
        &self.page().slots[self.me.slot]
    }

    /// Runs `work` with the slice's lock held, after repairing what a dead holder left.
    pub fn in_slice<T>(
        &self,
        index: usize,
        patience: Duration,
        work: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        if !self.locks.mine() {
            return Err(Error::Forked);
        }
        let slice = &self.page().slices[index];
        if let Locked::AfterDeath = mutex::lock(&slice.lock.0, self.me, self.page(), &self.locks, patience)? {
            repair(self.page(), index);
        }
        let result = work();
        mutex::unlock(&slice.lock.0, self.me);
        Ok(result)
    }

    /// Drops the dead slots of a slice. The caller holds the slice's lock. Returns how many were dropped.
    pub fn reap_locked(&self, index: usize) -> usize {
        let mut reaped = 0;
        for number in 0..SLOTS {
            let slot = &self.page().slots[number];
            let here = || belongs(slot, index);
            if number == self.me.slot || !here() || !self.locks.take(number) {
                continue;
            }
            if here() {
                fold(self.page(), index, number);
                reaped += 1;
            }
            self.locks.give_back(number);
        }
        reaped
    }

    /// Which place the slice `id` has, with its epoch.
    pub fn find(&self, id: u64) -> Result<(usize, u32), Error> {
        let slices = &self.page().slices;
        (0..SLICES)
            .find(|index| id != 0 && slices[*index].id.load(Acquire) == id)
            .map(|index| (index, slices[index].epoch.load(Relaxed)))
            .ok_or(Error::NoSlice(id))
    }
}

pub(crate) fn belongs(slot: &Slot, slice: usize) -> bool {
    slot.state.load(Acquire) == LIVE && slot.slice.load(Relaxed) as usize == slice
}

/// Adds a slot's counters to its slice's totals and frees the slot; the caller holds the slice's lock and the slot's
/// byte. The new totals are written down whole before the first is taken over, so a death anywhere counts once.
pub(crate) fn fold(page: &Page, index: usize, number: usize) {
    let slice = &page.slices[index];
    let slot = &page.slots[number];
    slice.seq.0.fetch_add(1, Release);
    for counter in 0..COUNTERS {
        let sum = slice.totals[counter]
            .load(Relaxed)
            .wrapping_add(slot.counters[counter].load(Relaxed));
        slice.fold[counter].store(sum, Relaxed);
    }
    slice.fold_slot.store(number as u32, Relaxed);
    slice.fold_content.store(slot.content.load(Relaxed), Relaxed);
    slice.fold_stage.store(READY, Release);
    finish_fold(page, index);
}

fn finish_fold(page: &Page, index: usize) {
    let slice = &page.slices[index];
    for counter in 0..COUNTERS {
        slice.totals[counter].store(slice.fold[counter].load(Relaxed), Relaxed);
    }
    let number = slice.fold_slot.load(Relaxed) as usize;
    if number < SLOTS {
        let slot = &page.slots[number];
        // A successor has begun its own content: then the fold had freed the slot before the death.
        if slot.content.load(Relaxed) == slice.fold_content.load(Relaxed) {
            clear(slot);
            slot.state.store(FREE, Release);
        }
    }
    recount(page, index);
    slice.fold_stage.store(0, Release);
    slice.seq.0.fetch_add(1, Release);
}

fn clear(slot: &Slot) {
    slot.bytes.store(0, Relaxed);
    slot.want_ns.store(0, Relaxed);
    slot.charged_ns.store(0, Relaxed);
    slot.settled_ns.store(0, Relaxed);
    slot.inflight.store(0, Relaxed);
    for counter in &slot.counters {
        counter.store(0, Relaxed);
    }
}

fn repair(page: &Page, index: usize) {
    let slice = &page.slices[index];
    if slice.fold_stage.load(Acquire) == READY {
        finish_fold(page, index);
    }
    if slice.seq.0.load(Relaxed) % 2 == 1 {
        slice.seq.0.fetch_add(1, Release);
    }
    recount(page, index);
}

/// The slice's usage from its slots, which are the truth.
pub(crate) fn recount(page: &Page, index: usize) -> u64 {
    let slice: &Slice = &page.slices[index];
    let used = page
        .slots
        .iter()
        .filter(|slot| belongs(slot, index))
        .fold(0u64, |sum, slot| sum.saturating_add(slot.bytes.load(Relaxed)));
    slice.used_bytes.store(used, Relaxed);
    slice.peak_bytes.fetch_max(used, Relaxed);
    used
}
