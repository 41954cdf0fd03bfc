//! The device lease: one process at a time works on the device, the fairest next.
//!
//! There is no lock here, so nobody can die or stop inside one: who holds the lease, since which grant and until when
//! is one word, changed by compare-and-swap; virtual times and buckets only ever get added to. A choice made on values
//! that have just moved is still a legal choice, and what it got is charged all the same.
//!
//! A grant must be accepted, and an accepted one renewed, before its deadline; after it whoever waits passes the lease
//! on. So a stopped or dead holder costs at most one term. What it used until then is charged to its slice.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

use crate::clock::now_ns;
use crate::fair::{
    ABSENT_NS, QUANTUM_NS, Word, bucket_cost, bucket_floor, later, may_spend, start_tag, virtual_cost,
};
use crate::layout::{Counter, ENDED, LIVE, PAUSED, SLICES, SLOTS, Slice, Slot};
use crate::mutex::{futex_wait, futex_wake};
use crate::process::Process;

/// How long an accepted lease lasts unless it is renewed.
const TERM_NS: u64 = 50_000_000;
/// How long a grant waits to be accepted.
const ACCEPT_NS: u64 = 25_000_000;
/// The longest sleep before looking again, whatever the page says.
const LOOK_NS: u64 = 50_000_000;

/// How a request for the lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    Held,
    /// The patience given ran out; the request is withdrawn.
    TimedOut,
    /// The slice was ended, or the handle is a parent's.
    Ended,
}

/// What became of a turn that was offered to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nobody has a better claim: the turn goes on.
    Kept,
    /// Somebody else works now, or nobody.
    Passed,
}

impl Process {
    /// Whether this process holds the lease now and its slice may work. Asked at every launch: a few loads.
    pub fn holds(&self) -> bool {
        let grant = self.grant.load(Relaxed);
        let slice = self.slice();
        grant != 0
            && Word(self.lease().load(Acquire)).grant() == grant
            && slice.flags.load(Relaxed) == 0
            && slice.epoch.load(Relaxed) == self.epoch
            && self.mine()
    }

    /// Whether the device's local memory holds nothing of another slice. Asked at every launch, under the lease.
    pub fn local_is_own(&self) -> bool {
        let id = self.slice().id.load(Relaxed);
        id != 0 && self.seat.page().header.local_of.0.load(Acquire) == id
    }

    /// It was overwritten: what is in it from now on is this slice's.
    pub fn own_local(&self) {
        let id = self.slice().id.load(Relaxed);
        self.seat.page().header.local_of.0.store(id, Release);
    }

    /// Whether the turn has lasted its quantum; others that wait should be offered it.
    pub fn turn_over(&self, now: u64) -> bool {
        now >= self.turn_ends_ns.load(Relaxed) || !self.solvent(now)
    }

    /// How long the turn still lasts.
    pub fn turn_left_ns(&self, now: u64) -> u64 {
        self.turn_ends_ns.load(Relaxed).saturating_sub(now)
    }

    /// Whether the slice's cap lets it start work now.
    pub fn solvent(&self, now: u64) -> bool {
        let slice = self.slice();
        slice.cap_per_mille.load(Relaxed) == 0 || may_spend(slice.bucket.load(Relaxed), now)
    }

    /// Whether any other process waits for the lease.
    pub fn others_wait(&self) -> bool {
        let waiting = &self.seat.page().header.waiting.0;
        let own = self.seat.me.slot;
        (0..waiting.len()).any(|word| {
            let mine = if own / 64 == word { 1u64 << (own % 64) } else { 0 };
            waiting[word].load(Relaxed) & !mine != 0
        })
    }

    /// Waits for the lease, at most for `patience`.
    pub fn acquire(&self, patience: Duration) -> Lease {
        if self.holds() {
            return Lease::Held;
        }
        let begun = now_ns();
        let give_up = begun.saturating_add(patience.as_nanos() as u64);
        self.threads_waiting.fetch_add(1, SeqCst);
        let answer = self.wait_for_lease(begun, give_up);
        if self.threads_waiting.fetch_sub(1, SeqCst) == 1 {
            self.want_no_more();
        }
        if answer == Lease::TimedOut {
            // Time to see who of the slice is gone.
            let reap = || self.seat.reap_locked(self.index);
            let _ = self.seat.in_slice(self.index, Duration::from_millis(1), reap);
        }
        answer
    }

    fn wait_for_lease(&self, mut now: u64, give_up: u64) -> Lease {
        loop {
            if !self.mine() || !self.stands() {
                return Lease::Ended;
            }
            self.want(now);
            let word = Word(self.lease().load(SeqCst));
            if word.holder() == Some(self.seat.me.slot) && !word.expired(now) {
                if word.accepted() && word.grant() == self.grant.load(Relaxed) {
                    if self.holds() {
                        return Lease::Held;
                    }
                    // Paused while it holds: others may go.
                    self.pass_to_next(now);
                    continue;
                }
                let accepted = word.renewed(now + TERM_NS);
                if !word.accepted() && self.swap(word, accepted) {
                    self.begin_turn(accepted, now);
                    return Lease::Held;
                }
                // Another thread of ours is just accepting it, or a stale grant of ours must run out.
                std::thread::yield_now();
            }
            let vacant = word.holder().is_none() || word.expired(now);
            if vacant && let Some(held) = self.serve(word, now) {
                if held {
                    return Lease::Held;
                }
                now = now_ns();
                continue;
            }
            if now >= give_up {
                return Lease::TimedOut;
            }
            let (sleep, own_fault) = self.sleep_for(word, vacant, now);
            futex_wait(
                self.futex(),
                word.grant(),
                Duration::from_nanos(sleep.min(give_up - now)),
                bit(self.seat.me.slot),
            );
            let woken = now_ns();
            let counter = if own_fault {
                Counter::ThrottledNs
            } else {
                Counter::WaitedNs
            };
            self.count(counter, woken.saturating_sub(now));
            now = woken;
        }
    }

    /// Gives a vacant lease to whoever has the best claim. `Some(true)`: it is ours; `Some(false)`: the word moved,
    /// look again; `None`: nobody may work now.
    fn serve(&self, word: Word, now: u64) -> Option<bool> {
        let next = self.choose(now)?;
        let ours = next == self.seat.me.slot;
        let term = if ours { TERM_NS } else { ACCEPT_NS };
        let granted = word.next(next, ours, now + term);
        if self.swap(word, granted) {
            self.settle_for(word, now);
            if ours {
                self.begin_turn(granted, now);
                return Some(true);
            }
            self.wake(next);
        }
        Some(false)
    }

    /// After a lease was taken from one that missed its deadline: charge what it had, or stop asking the deaf.
    fn settle_for(&self, word: Word, now: u64) {
        let Some(slot) = word.holder().and_then(|slot| self.seat.page().slots.get(slot)) else {
            return;
        };
        if !word.accepted() {
            self.forget(word.holder().unwrap_or(0));
            return;
        }
        let since = slot.charged_ns.swap(now, AcqRel);
        slot.settled_ns.store(now, Release);
        let slice = self.seat.page().slices.get(slot.slice.load(Relaxed) as usize);
        if let Some(slice) = slice.filter(|_| since != 0 && since < now) {
            charge(slice, now - since);
            if slot.inflight.load(Relaxed) > 0 {
                slot.counters[Counter::BusyNs as usize].fetch_add(now - since, Relaxed);
            }
            slot.counters[Counter::Lost as usize].fetch_add(1, Relaxed);
        }
    }

    /// Offers the turn to others. With `again` this process stays in line in the same step, so a slice with much
    /// weight does not lose its turn between two launches.
    pub fn pass(&self, now: u64, again: bool) -> Turn {
        if again && self.grant.load(Relaxed) != 0 {
            self.want(now);
        }
        let turn = self.pass_to_next(now);
        if again && self.threads_waiting.load(SeqCst) == 0 {
            self.want_no_more();
        }
        turn
    }

    fn pass_to_next(&self, now: u64) -> Turn {
        let grant = self.grant.load(Relaxed);
        let next = self.choose(now);
        // A word that changed under our hands may be our own renewal by another thread: then it is still ours to pass.
        loop {
            let word = Word(self.lease().load(SeqCst));
            if grant == 0 || word.grant() != grant || !self.mine() {
                self.grant.compare_exchange(grant, 0, Relaxed, Relaxed).ok();
                return Turn::Passed;
            }
            let kept = next == Some(self.seat.me.slot);
            let to = match next {
                Some(_) if kept => word.renewed(now + TERM_NS),
                Some(slot) => word.next(slot, false, now + ACCEPT_NS),
                None => word.freed(),
            };
            if kept {
                if self.swap(word, to) {
                    self.account_lease(now);
                    self.open_turn(now);
                    return Turn::Kept;
                }
                continue;
            }
            // Before the word moves: a thread of ours that gets the lease again at once must find its own grant.
            self.account_lease(now);
            self.seat.slot().charged_ns.store(0, Relaxed);
            self.grant.compare_exchange(grant, 0, Relaxed, Relaxed).ok();
            if self.swap(word, to) {
                match next {
                    Some(slot) => self.wake(slot),
                    // Waiters that may not work yet look again by themselves; one that came meanwhile must not sleep on.
                    None => futex_wake(self.futex(), i32::MAX, !0),
                }
                return Turn::Passed;
            }
        }
    }

    /// Gives the lease up.
    pub fn release(&self) {
        if self.grant.load(Relaxed) != 0 {
            self.want_no_more();
            self.pass(now_ns(), false);
        }
    }

    /// Moves the deadline on. False: the lease was lost.
    pub fn renew(&self, now: u64) -> bool {
        loop {
            let word = Word(self.lease().load(Acquire));
            let grant = self.grant.load(Relaxed);
            if grant == 0 || word.grant() != grant || !self.mine() {
                self.grant.store(0, Relaxed);
                return false;
            }
            if self.swap(word, word.renewed(now + TERM_NS)) {
                self.account_lease(now);
                return true;
            }
        }
    }

    /// Charges the slice `ns` of device time; its use of the lease is thereby paid up to `until`.
    pub fn spend(&self, ns: u64, until: u64) {
        self.spend_beside(ns);
        if self.mine() {
            self.seat.slot().charged_ns.store(until, Relaxed);
        }
    }

    /// Charges device time used beside the lease.
    pub fn spend_beside(&self, ns: u64) {
        if self.mine() {
            charge(self.slice(), ns);
            self.count(Counter::BusyNs, ns);
        }
    }

    /// Up to when somebody else has charged this process's use, having taken the lease over; zero: never.
    pub fn settled_until(&self) -> u64 {
        self.seat.slot().settled_ns.load(Acquire)
    }

    fn lease(&self) -> &std::sync::atomic::AtomicU64 {
        &self.seat.page().header.lease.0
    }

    fn futex(&self) -> &AtomicU32 {
        // SAFETY: the first half of a live, 8-aligned atomic word; mixed-size access is the futex's own business and
        // never done by us.
        unsafe { AtomicU32::from_ptr(self.lease().as_ptr().cast()) }
    }

    fn swap(&self, from: Word, to: Word) -> bool {
        self.lease()
            .compare_exchange(from.0, to.0, SeqCst, Relaxed)
            .is_ok()
    }

    fn want(&self, now: u64) {
        let slot = self.seat.slot();
        if slot.want_ns.load(Relaxed) == 0 {
            slot.want_ns.store(now, Relaxed);
            self.come_back(now);
        }
        let own = self.seat.me.slot;
        let word = &self.seat.page().header.waiting.0[own / 64];
        if word.load(Relaxed) & (1 << (own % 64)) == 0 {
            word.fetch_or(1 << (own % 64), SeqCst);
        }
    }

    /// The slice wants the device. If it was away for long, its tag comes up to the virtual clock.
    fn come_back(&self, now: u64) {
        let slice = self.slice();
        let away = now.saturating_sub(slice.active_ns.swap(now, Relaxed));
        if away > ABSENT_NS {
            let weight = slice.weight_per_mille.load(Relaxed);
            let virtual_now = self.seat.page().header.virtual_now.0.load(Relaxed);
            let _ = slice
                .tag
                .0
                .fetch_update(Relaxed, Relaxed, |tag| Some(start_tag(tag, virtual_now, weight)));
        }
    }

    fn want_no_more(&self) {
        self.slice().active_ns.store(now_ns(), Relaxed);
        self.seat.slot().want_ns.store(0, Relaxed);
        self.clear_bit(self.seat.me.slot);
    }

    /// Takes a dead or deaf slot out of the line. If it lives it puts itself back.
    fn forget(&self, slot: usize) {
        if let Some(place) = self.seat.page().slots.get(slot) {
            place.want_ns.store(0, Relaxed);
            self.clear_bit(slot);
        }
    }

    fn clear_bit(&self, slot: usize) {
        self.seat.page().header.waiting.0[slot / 64].fetch_and(!(1 << (slot % 64)), SeqCst);
    }

    fn begin_turn(&self, word: Word, now: u64) {
        self.grant.store(word.grant(), Relaxed);
        self.granted_ns.store(now, Relaxed);
        self.seat.slot().charged_ns.store(now, Relaxed);
        self.seat.slot().want_ns.store(0, Relaxed);
        self.clear_bit(self.seat.me.slot);
        self.open_turn(now);
    }

    /// A quantum begins: the virtual clock follows the slice, and its bucket comes up to what idleness may keep.
    fn open_turn(&self, now: u64) {
        self.turn_ends_ns.store(now + QUANTUM_NS, Relaxed);
        let slice = self.slice();
        let clock = &self.seat.page().header.virtual_now.0;
        let tag = slice.tag.0.load(Relaxed);
        let _ = clock.fetch_update(Relaxed, Relaxed, |clock| Some(later(clock, tag)));
        let cap = slice.cap_per_mille.load(Relaxed);
        if cap != 0 {
            let _ = slice
                .bucket
                .fetch_update(Relaxed, Relaxed, |bucket| Some(bucket_floor(bucket, now, cap)));
        }
    }

    fn account_lease(&self, now: u64) {
        self.slice().active_ns.store(now, Relaxed);
        let since = self.granted_ns.swap(now, Relaxed);
        self.count(Counter::LeaseNs, now.saturating_sub(since));
    }

    fn wake(&self, slot: usize) {
        futex_wake(self.futex(), i32::MAX, bit(slot));
    }

    /// The waiting process with the best claim that may work now and lives.
    fn choose(&self, now: u64) -> Option<usize> {
        // Each round that does not end removes a dead slot from the line.
        for _ in 0..SLOTS {
            let best = self.best_claim(now)?;
            if best == self.seat.me.slot || self.seat.locks.lives(best) {
                return Some(best);
            }
            self.forget(best);
        }
        None
    }

    fn best_claim(&self, now: u64) -> Option<usize> {
        let page = self.seat.page();
        let virtual_now = page.header.virtual_now.0.load(Relaxed);
        let mut best: Option<(i64, u64, usize)> = None;
        for (number, slot) in self.waiting() {
            let index = slot.slice.load(Relaxed) as usize;
            if slot.state.load(Relaxed) != LIVE || index >= SLICES {
                continue;
            }
            let slice = &page.slices[index];
            let stale = slice.epoch.load(Relaxed) != slot.slice_epoch.load(Relaxed);
            if stale || !may_work(slice, now) {
                continue;
            }
            let tag = slice.tag.0.load(Relaxed);
            let claim = (
                tag.wrapping_sub(virtual_now) as i64,
                slot.want_ns.load(Relaxed),
                number,
            );
            if best.is_none_or(|best| claim < best) {
                best = Some(claim);
            }
        }
        best.map(|(_, _, slot)| slot)
    }

    fn waiting(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let page = self.seat.page();
        page.header
            .waiting
            .0
            .iter()
            .enumerate()
            .flat_map(move |(word, bits)| {
                let bits = bits.load(SeqCst);
                (0..64)
                    .filter(move |bit| bits & (1 << bit) != 0)
                    .map(move |bit| (word * 64 + bit, &page.slots[word * 64 + bit]))
            })
    }

    /// How long to sleep before looking again, and whether the slice's own cap or pause is the cause.
    fn sleep_for(&self, word: Word, vacant: bool, now: u64) -> (u64, bool) {
        let slice = self.slice();
        let paused = slice.flags.load(Relaxed) & PAUSED != 0;
        let until_solvent = match self.solvent(now) {
            true => 0,
            false => slice.bucket.load(Relaxed).wrapping_sub(now).min(LOOK_NS),
        };
        if vacant {
            // Nobody may work now: we are paused or over our cap.
            let sleep = if paused { LOOK_NS / 10 } else { until_solvent };
            return (sleep.max(20_000), true);
        }
        (
            word.left_ns(now, LOOK_NS).max(20_000),
            paused || until_solvent > 0,
        )
    }
}

fn may_work(slice: &Slice, now: u64) -> bool {
    let cap = slice.cap_per_mille.load(Relaxed);
    slice.id.load(Relaxed) != 0
        && slice.flags.load(Relaxed) & (PAUSED | ENDED) == 0
        && (cap == 0 || may_spend(slice.bucket.load(Relaxed), now))
}

/// Moves a slice's clocks on by `ns` of device time.
fn charge(slice: &Slice, ns: u64) {
    let weight = slice.weight_per_mille.load(Relaxed);
    slice.tag.0.fetch_add(virtual_cost(ns, weight), Relaxed);
    let cap = slice.cap_per_mille.load(Relaxed);
    if cap != 0 {
        slice.bucket.fetch_add(bucket_cost(ns, cap), Relaxed);
    }
}

fn bit(slot: usize) -> u32 {
    1 << (slot % 32)
}
