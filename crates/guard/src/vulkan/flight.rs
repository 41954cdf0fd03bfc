//! Submissions on the device, watched until their fence is signalled, then charged with the time they took.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::abi::{Handle, Object, TIMEOUT};
use super::device::Device;
use crate::gate::{Front, Kernel, Measured};
use crate::registry::Registry;

/// What a submission of unknown length is taken for: a whole turn, so nothing runs ahead of it.
const UNKNOWN_NS: u64 = 10_000_000;
/// How often it looks where submissions of several queues may end in any order.
const LOOK: Duration = Duration::from_micros(100);
const PATIENCE_NS: u64 = 100_000_000;
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Queues by their handle: how long submissions to each take, by the number of their command buffers.
static QUEUES: Registry<Kernel> = Registry::new();

/// A submission on the device.
pub struct Flight {
    device: Arc<Device>,
    queue: usize,
    fence: Object,
    /// It may wait for something the program has yet to do.
    may_wait: bool,
    estimate_ns: u64,
    kernel: (Arc<Kernel>, usize),
}

/// Waits for the device; what the submission is estimated at, and whose estimate that is. None: the slice is no more.
pub fn enter(device: &Device, queue: Handle, commands: u32) -> Option<(u64, (Arc<Kernel>, usize))> {
    let gate = &device.binding.gate;
    let kernel = QUEUES
        .get(queue)
        .unwrap_or_else(|| QUEUES.set(queue, Kernel::default()));
    let size = Kernel::size_of(commands.into());
    let estimate_ns = kernel.estimate_ns(size, gate.surprises()).unwrap_or(UNKNOWN_NS);
    gate.enter(estimate_ns).then(|| {
        gate.take_off();
        (estimate_ns, (kernel, size))
    })
}

impl Flight {
    pub fn new(
        device: Arc<Device>,
        queue: Handle,
        fence: Object,
        may_wait: bool,
        estimate_ns: u64,
        kernel: (Arc<Kernel>, usize),
    ) -> Flight {
        Flight {
            device,
            queue: queue as usize,
            fence,
            may_wait,
            estimate_ns,
            kernel,
        }
    }

    /// Waits for the fence; false: it is not signalled yet. An error is an end too: the device is lost.
    fn ended(&self, patience_ns: u64) -> bool {
        let device = self.device.handle as Handle;
        // SAFETY: our own fence of a live device: devices wait for us before they go.
        let code = unsafe { (self.device.submitting.wait_fences)(device, 1, &self.fence, 1, patience_ns) };
        code != TIMEOUT
    }

    fn land(self) {
        let gate = &self.device.binding.gate;
        let (kernel, size) = &self.kernel;
        let spent = gate.land(self.estimate_ns, Measured::default());
        if !kernel.first() {
            kernel.learn(*size, spent, gate.surprises());
        }
        self.device
            .submitting
            .put_back(self.device.handle as Handle, self.fence);
    }
}

/// The submissions of one binding.
#[derive(Default)]
pub struct Flights {
    airborne: Mutex<Airborne>,
    changed: Condvar,
    watched: AtomicBool,
}

/// Sees to it that a submission is noticed when it ends.
pub fn watch(flight: Flight) {
    let flights = flight.device.binding.flights;
    flights.airborne().flights.push_back(Arc::new(flight));
    flights.changed.notify_all();
    if !flights.watched.swap(true, Relaxed) {
        crate::gate::without_signals(|| {
            let thread = std::thread::Builder::new().name("tenure-guard".into());
            // Without the thread nothing would be seen to end; the gate bounds its waits, and goes on unpaid for.
            let _ = thread.spawn(move || flights.keep());
        });
    }
}

/// A device is going, its work ended.
pub fn settle(device: &Device) {
    let flights = device.binding.flights;
    let of = |flight: &Arc<Flight>| flight.device.handle == device.handle;
    let busy = |all: &mut Airborne| all.landing > 0 || all.flights.iter().any(of);
    let waited = flights
        .changed
        .wait_timeout_while(flights.airborne(), LAST_WAIT, busy);
    let (mut left, _) = waited.unwrap_or_else(PoisonError::into_inner);
    left.flights.retain(|flight| !of(flight));
}

#[derive(Default)]
struct Airborne {
    flights: VecDeque<Arc<Flight>>,
    /// Taken out of the list, and not done with yet.
    landing: usize,
}

impl Flights {
    fn airborne(&self) -> MutexGuard<'_, Airborne> {
        self.airborne.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self) {
        loop {
            let (oldest, one_queue) = {
                let mut all = self.airborne();
                while all.flights.is_empty() {
                    all = self.changed.wait(all).unwrap_or_else(PoisonError::into_inner);
                }
                let oldest = all.flights[0].clone();
                let one_queue = all.flights.iter().all(|flight| flight.queue == oldest.queue);
                (oldest, one_queue)
            };
            // On one queue the oldest ends first.
            match one_queue {
                true => drop(oldest.ended(PATIENCE_NS)),
                false => std::thread::sleep(LOOK),
            }
            drop(oldest);
            self.land_ended();
        }
    }

    fn land_ended(&self) {
        let ended: Vec<Arc<Flight>> = {
            let mut all = self.airborne();
            let (ended, still): (Vec<_>, Vec<_>) = all.flights.drain(..).partition(|flight| flight.ended(0));
            all.flights = still.into();
            all.landing = ended.len();
            ended
        };
        for flight in ended {
            if let Ok(flight) = Arc::try_unwrap(flight) {
                flight.land();
            }
        }
        self.airborne().landing = 0;
        self.changed.notify_all();
    }
}

impl Front for &'static Flights {
    /// A fence does not tell whether work has begun; what waits for nothing has.
    fn oldest_runs(&self) -> bool {
        self.airborne()
            .flights
            .front()
            .is_none_or(|oldest| !oldest.may_wait)
    }

    /// Every submission has a fence, and the watch waits for it.
    fn look_for_finished(&self) {}
}
