//! The gate of one device in this process: no command reaches the device without the lease, and what it used is
//! charged. Vendor-neutral: a front says when commands start and end, the gate says when they may.
//!
//! Work on the device is bounded by estimates, so a program that enqueues far ahead cannot run past its turn. Every
//! wait on the program's own work is bounded too: commands may wait for something the program has yet to do.

mod audit;
mod charge;
mod keeper;
mod kernel;

use std::path::PathBuf;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tenure_limits::{Counter, Error, Lease, Process, Refused, Turn, now_ns};

pub use audit::{KernelMark, Way};
pub use charge::Measured;
use charge::Trust;
pub use keeper::without_signals;
pub use kernel::Kernel;

/// How far ahead of the device a program may enqueue while nobody else waits.
const AHEAD_NS: u64 = 20_000_000;
/// Own work that has not started after this long waits for the program itself, not for the device.
const STALL: Duration = Duration::from_millis(100);
/// How long to sleep for a landing before looking around.
const LANDING: Duration = Duration::from_millis(20);
/// The longest wait on own work that does run, before the next command is let through behind it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Wall time a measured command did not claim stays claimable this long.
const UNCLAIMED_NS: u64 = 1_000_000;

/// What a front can say of the work it has given to the device.
pub trait Front: Send + Sync {
    /// Whether the oldest command not known to be finished has started.
    fn oldest_runs(&self) -> bool;
    /// See to it that commands finished without notice are noticed soon.
    fn look_for_finished(&self);
}

pub struct Gate {
    page: PathBuf,
    slice: u64,
    /// Replaced only after a fork; never freed, since callbacks of the driver may still look at it.
    process: AtomicPtr<Process>,
    joining: Mutex<()>,
    front: Box<dyn Front>,
    /// Estimated time of the commands on the device.
    outstanding_ns: AtomicU64,
    /// Groups of commands on the device.
    flights: AtomicU32,
    /// When work last began or ended; while idle, since when.
    mark_ns: AtomicU64,
    /// Up to when the use of the device is paid. It lags behind `mark_ns` by wall time that measured commands did not
    /// claim, which the next may: callbacks come late, and the lateness of one must not be the gain of another.
    paid_ns: AtomicU64,
    trust: Trust,
    /// Raised when estimates proved wrong: all of them are made anew.
    surprises: AtomicU32,
    finished: Mutex<u64>,
    some_finished: Condvar,
    /// Threads that wait for the device to be empty of our work.
    draining: AtomicU32,
    keeper: keeper::Keeper,
    /// The drivers are going away: the keeper asks nothing of them any more.
    closed: AtomicBool,
    /// The keeper may be inside a driver just now.
    asking: AtomicBool,
}

impl Gate {
    pub fn join(page: PathBuf, slice: u64, front: Box<dyn Front>) -> Result<Gate, Error> {
        let process = Process::join(&page, slice)?;
        Ok(Gate {
            page,
            slice,
            process: AtomicPtr::new(Box::into_raw(Box::new(process))),
            joining: Mutex::new(()),
            front,
            outstanding_ns: AtomicU64::new(0),
            flights: AtomicU32::new(0),
            mark_ns: AtomicU64::new(now_ns()),
            paid_ns: AtomicU64::new(now_ns()),
            trust: Trust::default(),
            surprises: AtomicU32::new(1),
            finished: Mutex::new(0),
            some_finished: Condvar::new(),
            draining: AtomicU32::new(0),
            keeper: keeper::Keeper::default(),
            closed: AtomicBool::new(false),
            asking: AtomicBool::new(false),
        })
    }

    /// This process's place on the slice; joined anew in a forked child.
    pub fn process(&self) -> Option<&Process> {
        // SAFETY: set from Box::into_raw in `join` or below, never freed.
        let process = unsafe { &*self.process.load(Acquire) };
        if process.mine() {
            return Some(process);
        }
        self.rejoin()
    }

    #[cold]
    fn rejoin(&self) -> Option<&Process> {
        let _one = self.joining.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as above.
        let process = unsafe { &*self.process.load(Acquire) };
        if process.mine() {
            return Some(process);
        }
        let fresh = Box::new(Process::join(&self.page, self.slice).ok()?);
        // The parent's commands are the parent's.
        self.outstanding_ns.store(0, Relaxed);
        self.flights.store(0, Relaxed);
        self.draining.store(0, Relaxed);
        self.keeper.forget();
        self.asking.store(false, SeqCst);
        let fresh = Box::into_raw(fresh);
        self.process.store(fresh, Release);
        // SAFETY: as above.
        Some(unsafe { &*fresh })
    }

    pub fn charge(&self, bytes: u64) -> Result<*const Process, Refused> {
        let process = self.process().ok_or(Refused::Unable(Error::Forked))?;
        process.charge(bytes)?;
        Ok(process)
    }

    /// Gives back what `charge` took; a forked child gives back nothing of its parent's.
    pub fn credit(&self, bytes: u64, charged_by: *const Process) {
        if let Some(process) = self
            .process()
            .filter(|process| std::ptr::eq(*process, charged_by))
        {
            let _ = process.credit(bytes);
        }
    }

    pub fn count(&self, counter: Counter) {
        if let Some(process) = self.process() {
            process.count(counter, 1);
        }
    }

    /// Which generation of estimates is valid.
    pub fn surprises(&self) -> u32 {
        self.surprises.load(Relaxed)
    }

    /// Waits until a command of about `estimate_ns` may go to the device. False: the slice is no more.
    pub fn enter(&'static self, estimate_ns: u64) -> bool {
        let Some(process) = self.process() else {
            return false;
        };
        let now = now_ns();
        if !self.may_go(process, estimate_ns, now) && !self.wait_to_go(process, estimate_ns) {
            return false;
        }
        self.outstanding_ns.fetch_add(estimate_ns, Relaxed);
        process.count(Counter::Launches, 1);
        true
    }

    fn may_go(&self, process: &Process, estimate_ns: u64, now: u64) -> bool {
        process.holds() && !process.turn_over(now) && self.room(process, estimate_ns, now)
    }

    fn room(&self, process: &Process, estimate_ns: u64, now: u64) -> bool {
        let outstanding = self.outstanding_ns.load(Relaxed);
        let most = match process.others_wait() {
            true => process.turn_left_ns(now),
            false => AHEAD_NS,
        };
        outstanding == 0 || outstanding.saturating_add(estimate_ns) <= most
    }

    #[cold]
    fn wait_to_go(&'static self, process: &Process, estimate_ns: u64) -> bool {
        self.keeper.wake(self);
        loop {
            let now = now_ns();
            if !process.holds() {
                match process.acquire(STALL) {
                    Lease::Held => self.took_over(),
                    Lease::TimedOut => continue,
                    Lease::Ended => return false,
                }
                continue;
            }
            if process.turn_over(now) {
                let alone = !process.others_wait() && process.solvent(now);
                if !alone && !self.drain() {
                    // What is on the device waits for the program; it is charged when it runs.
                    process.pass(now_ns(), true);
                    continue;
                }
                if !process.holds() || process.pass(now_ns(), true) == Turn::Passed {
                    continue;
                }
            }
            let fits = || self.room(process, estimate_ns, now_ns());
            if fits() || !self.wait_for_own(fits) {
                return true;
            }
        }
    }

    /// Waits until nothing of ours is on the device; false: it stays there.
    fn drain(&self) -> bool {
        self.draining.fetch_add(1, AcqRel);
        let drained = self.wait_for_own(|| self.flights.load(Acquire) == 0);
        self.draining.fetch_sub(1, AcqRel);
        drained
    }

    fn took_over(&'static self) {
        // Time before the grant is nobody's debt.
        if self.flights.load(Acquire) == 0 {
            self.begin_paying();
        }
        self.keeper.wake(self);
    }

    /// Waits until own work on the device satisfies `done`; false: it does not run, or runs too long to wait for.
    fn wait_for_own(&self, done: impl Fn() -> bool) -> bool {
        let mut patience = STALL;
        let mut waited = Duration::ZERO;
        while waited < patience {
            if done() {
                return true;
            }
            waited = match self.wait_for_landing(&done) {
                true => Duration::ZERO,
                false => waited + LANDING,
            };
            // Asked without any lock of ours: the driver may be calling back, and waiting for one.
            if waited >= patience && patience == STALL && self.front.oldest_runs() {
                patience = PATIENCE;
            }
        }
        done()
    }

    /// Sleeps until something of ours lands; false: nothing did for a while.
    fn wait_for_landing(&self, done: impl Fn() -> bool) -> bool {
        let landed = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at again under the lock: what lands from here on wakes us.
        if done() {
            return true;
        }
        let before = *landed;
        let woken = self.some_finished.wait_timeout(landed, LANDING);
        let (landed, _) = woken.unwrap_or_else(PoisonError::into_inner);
        *landed != before
    }

    /// A group of commands begins to occupy the device.
    pub fn take_off(&self) {
        if self.flights.fetch_add(1, AcqRel) == 0 {
            self.begin_paying();
        }
        self.publish();
    }

    fn begin_paying(&self) {
        let now = now_ns();
        self.mark_ns.store(now, Relaxed);
        self.paid_ns.store(now, Relaxed);
    }

    /// A group of commands ended; says what was charged for it.
    pub fn land(&self, estimate_ns: u64, measured: Measured) -> u64 {
        self.forget_outstanding(estimate_ns);
        let now = now_ns();
        let spent = match self.process() {
            Some(process) => {
                self.mark_ns.store(now, Relaxed);
                let since = self
                    .paid_ns
                    .load(Relaxed)
                    .max(process.settled_until())
                    .max(measured.not_before_ns);
                let wall = now.saturating_sub(since);
                let spent = self.trust.judge(measured, wall);
                let paid = (since + spent).max(now.saturating_sub(UNCLAIMED_NS));
                self.paid_ns.store(paid, Relaxed);
                process.spend(spent, paid);
                self.over_process_limit(process);
                if wall > estimate_ns.saturating_mul(2) + 1_000_000 && measured.grouped {
                    self.surprises.fetch_add(1, Relaxed);
                }
                spent
            }
            None => 0,
        };
        let _ = self
            .flights
            .fetch_update(AcqRel, Relaxed, |flights| flights.checked_sub(1));
        self.publish();
        self.hand_over(now);
        *self.finished.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.some_finished.notify_all();
        spent
    }

    /// The last command of a turn that is over ended, and a thread of ours waits for it only to pass the lease on:
    /// done here, the next slice need not wait for that thread to wake.
    fn hand_over(&self, now: u64) {
        if self.flights.load(Acquire) == 0
            && self.draining.load(Acquire) > 0
            && let Some(process) = self.process()
            && process.turn_over(now)
            && process.holds()
        {
            process.pass(now, true);
        }
    }

    /// What was let in does not go to the device after all.
    pub fn leave(&self, estimate_ns: u64) {
        self.forget_outstanding(estimate_ns);
    }

    /// A group that took off never reached the device.
    pub fn never_flew(&self, estimate_ns: u64) {
        self.forget_outstanding(estimate_ns);
        let _ = self
            .flights
            .fetch_update(AcqRel, Relaxed, |flights| flights.checked_sub(1));
        self.publish();
    }

    /// Charges work done without the lease, such as zeroing a new allocation.
    pub fn charge_time(&self, ns: u64) {
        if let Some(process) = self.process() {
            process.spend_beside(ns);
        }
    }

    fn forget_outstanding(&self, estimate_ns: u64) {
        let _ = self.outstanding_ns.fetch_update(Relaxed, Relaxed, |outstanding| {
            Some(outstanding.saturating_sub(estimate_ns))
        });
    }

    fn publish(&self) {
        if let Some(process) = self.process() {
            process.set_inflight(self.flights.load(Relaxed));
        }
    }

    fn over_process_limit(&self, process: &Process) {
        let limit = process.process_limit_ns();
        if limit != 0 && process.counted(Counter::BusyNs) > limit {
            end_process("the process", process.counted(Counter::BusyNs), limit);
        }
    }

    /// Before the process exits in order: whoever waits need not wait for the deadline, and the keeper is out of the
    /// drivers before they take themselves down.
    pub fn at_exit(&self) {
        // SAFETY: as in `process`.
        let process = unsafe { &*self.process.load(Acquire) };
        self.closed.store(true, SeqCst);
        // A forked child that never used the device has no keeper.
        if process.mine() {
            self.wait_for_keeper();
            process.release();
        }
    }
}

/// Ends this process: there is no portable way to end one kernel.
fn end_process(what: &str, used_ns: u64, limit_ns: u64) -> ! {
    crate::say(&format!(
        "{what} used the device for {} ms, over the limit of {} ms; the process is ended",
        used_ns / 1_000_000,
        limit_ns / 1_000_000
    ));
    // SAFETY: no handlers run, since driver threads may be stuck in the kernel we end for.
    unsafe { libc::_exit(crate::EXIT_OVER_TIME) }
}
