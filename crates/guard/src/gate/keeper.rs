//! The keeper: one thread per gate that renews the lease while work is on the device, gives it up when the program
//! goes idle, and ends the process when a kernel runs over its limit. It sleeps while no lease is held.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tenure_limits::{Process, now_ns};

use super::{Gate, end_process};

/// How often it looks while others wait, and while none does.
const TICK_CONTENDED: Duration = Duration::from_micros(1000);
const TICK_ALONE: Duration = Duration::from_millis(4);
/// An idle holder keeps the lease this long, so that a gap between two launches costs no turn.
const GRACE_NS: u64 = 1_000_000;
/// An idle holder beside whom nobody waits keeps it this long.
const LINGER_NS: u64 = 30_000_000;
/// Work that has not started after this long is waiting for the program or the compiler: others may go first.
const NOT_STARTED_NS: u64 = 20_000_000;
const RENEW_NS: u64 = 8_000_000;
/// A process that exits waits this long at most for the keeper: whoever exits may hold what the driver waits for.
const LAST_LOOK: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Keeper {
    /// Zero: no thread; one: asleep; two: awake.
    state: AtomicU32,
    signal: Mutex<bool>,
    signalled: Condvar,
}

const NONE: u32 = 0;
const ASLEEP: u32 = 1;
const AWAKE: u32 = 2;

impl Keeper {
    /// Sees to it that the keeper watches `gate`.
    pub fn wake(&self, gate: &'static Gate) {
        match self.state.load(Acquire) {
            AWAKE => {}
            ASLEEP => {
                *self.signal.lock().unwrap_or_else(PoisonError::into_inner) = true;
                self.signalled.notify_one();
            }
            _ => self.start(gate),
        }
    }

    fn start(&self, gate: &'static Gate) {
        if self.state.compare_exchange(NONE, AWAKE, AcqRel, Relaxed).is_err() {
            return;
        }
        let thread = without_signals(|| {
            std::thread::Builder::new()
                .name("tenure-guard".into())
                .stack_size(256 << 10)
                .spawn(move || gate.keep())
        });
        if thread.is_err() {
            // Without a keeper the lease runs out under long kernels, which costs turns but breaks nothing.
            self.state.store(NONE, Relaxed);
        }
    }

    /// After a fork: the thread stayed with the parent.
    pub fn forget(&self) {
        self.state.store(NONE, Relaxed);
    }

    fn sleep(&self) {
        self.state.store(ASLEEP, Relaxed);
        let mut signal = self.signal.lock().unwrap_or_else(PoisonError::into_inner);
        while !*signal {
            // The time-out covers a wake-up that came just before the state was set.
            let (next, timeout) = self
                .signalled
                .wait_timeout(signal, Duration::from_millis(50))
                .unwrap_or_else(PoisonError::into_inner);
            signal = next;
            if timeout.timed_out() {
                break;
            }
        }
        *signal = false;
        self.state.store(AWAKE, Relaxed);
    }
}

/// Starts a thread with all signals blocked: the program's handlers must not run on it.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: plain signal-set calls on live locals; the old mask is restored before returning.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let result = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut());
        result
    }
}

/// What the keeper remembers between looks.
#[derive(Default)]
struct Watch {
    renewed_ns: u64,
    /// The mark under which the oldest command was first seen running, and when.
    running: Option<(u64, u64)>,
}

impl Gate {
    fn keep(&'static self) {
        let mut watch = Watch::default();
        while !self.closed.load(Acquire) {
            // SAFETY: set in `join`, never freed.
            let process = unsafe { &*self.process.load(Acquire) };
            let flying = self.flights.load(Acquire) > 0;
            if !flying && !process.holds() {
                watch = Watch::default();
                self.keeper.sleep();
                continue;
            }
            let tick = if process.others_wait() {
                TICK_CONTENDED
            } else {
                TICK_ALONE
            };
            std::thread::sleep(tick);
            self.asking.store(true, SeqCst);
            if !self.closed.load(SeqCst) {
                let now = now_ns();
                match self.flights.load(Acquire) > 0 {
                    true => self.watch_flight(process, &mut watch, now),
                    false => self.watch_idle(process, &mut watch, now),
                }
            }
            self.asking.store(false, SeqCst);
        }
    }

    // INVARIANT: the keeper raises `asking` before it looks at `closed`, and this looks at `asking` after `closed` was
    // raised; so either the keeper sees that and asks nothing, or this waits until it is done.
    pub(super) fn wait_for_keeper(&self) {
        let deadline = Instant::now() + LAST_LOOK;
        while self.asking.load(SeqCst) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn watch_idle(&self, process: &Process, watch: &mut Watch, now: u64) {
        watch.running = None;
        let idle = now.saturating_sub(self.mark_ns.load(Relaxed));
        let most = if process.others_wait() {
            GRACE_NS
        } else {
            LINGER_NS
        };
        if idle >= most {
            process.release();
        } else {
            renew(process, watch, now);
        }
    }

    fn watch_flight(&self, process: &Process, watch: &mut Watch, now: u64) {
        let mark = self.mark_ns.load(Relaxed);
        let since_mark = now.saturating_sub(mark);
        if since_mark > 2_000_000 {
            self.front.look_for_finished();
        }
        if since_mark > NOT_STARTED_NS {
            if !self.front.oldest_runs() {
                watch.running = None;
                if process.others_wait() {
                    process.pass(now, false);
                }
                return;
            }
            let since = match watch.running {
                Some((of, since)) if of == mark => since,
                _ => now - NOT_STARTED_NS,
            };
            watch.running = Some((mark, since));
            let limit = process.kernel_limit_ns();
            let ran = now.saturating_sub(since);
            if limit != 0 && ran > limit {
                end_process("a kernel", ran, limit);
            }
        } else {
            watch.running = None;
        }
        renew(process, watch, now);
    }
}

fn renew(process: &Process, watch: &mut Watch, now: u64) {
    if now.saturating_sub(watch.renewed_ns) >= RENEW_NS {
        process.renew(now);
        watch.renewed_ns = now;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32};

    use tenure_limits::{Device, SliceSpec};

    use super::*;
    use crate::gate::Front;

    static INSIDE: AtomicBool = AtomicBool::new(false);
    static LOOKS: AtomicU32 = AtomicU32::new(0);

    /// A driver that is slow to answer.
    struct Slow;

    impl Front for Slow {
        fn oldest_runs(&self) -> bool {
            true
        }

        fn look_for_finished(&self) {
            INSIDE.store(true, SeqCst);
            LOOKS.fetch_add(1, SeqCst);
            std::thread::sleep(Duration::from_millis(60));
            INSIDE.store(false, SeqCst);
        }
    }

    #[test]
    fn nobody_is_inside_the_driver_when_it_goes() {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("device.limits");
        let device = Device::create(&page).unwrap();
        device
            .add(SliceSpec {
                id: 1,
                limit_bytes: 1 << 20,
                weight_per_mille: 1000,
                cap_per_mille: None,
                kernel_limit_ns: None,
                process_limit_ns: None,
            })
            .unwrap();
        let gate: &'static Gate = Box::leak(Box::new(Gate::join(page, 1, Box::new(Slow)).unwrap()));
        assert!(gate.enter(1_000));
        gate.take_off();
        while !INSIDE.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        gate.at_exit();
        assert!(!INSIDE.load(SeqCst), "the keeper is still inside");
        let looks = LOOKS.load(SeqCst);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(LOOKS.load(SeqCst), looks, "it looks no more");
    }
}
