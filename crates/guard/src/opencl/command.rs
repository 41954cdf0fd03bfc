//! The way of one command: through the gate, to the driver, watched until it ends, charged.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_limits::now_ns;

use super::abi::{
    COMPLETE, EVENT_EXECUTION_STATUS, Handle, INVALID_COMMAND_QUEUE, OUT_OF_RESOURCES, PROFILING_COMMAND_END,
    PROFILING_COMMAND_START, RUNNING, SUCCESS,
};
use super::batch::{Counted, Group};
use super::bind::{Binding, value_of};
use super::local;
use super::next;
use super::queue::{Queue, queue, queues};
use crate::gate::{Front, Kernel, Measured, Way};
use crate::registry::Registry;

/// Commands estimated shorter than this are counted in groups.
const WATCHED_NS: u64 = 50_000;
/// What a command of unknown length is taken for: a whole turn, so nothing runs ahead of it.
const UNKNOWN_NS: u64 = 10_000_000;
/// An open group this old is ended by a marker.
const OLD_NS: u64 = 2_000_000;

/// What a command does.
pub enum Work {
    /// A kernel over about 2^n work items.
    Kernel(Arc<Kernel>, usize),
    /// A transfer of so many bytes.
    Bytes(u64, Way),
}

impl Work {
    fn estimate_ns(&self, queue: &Queue) -> Option<u64> {
        match self {
            Work::Kernel(kernel, size) => kernel.estimate_ns(*size, queue.binding.gate.surprises()),
            // Two gigabytes a second and a microsecond: slower than any device, so it is on the safe side.
            Work::Bytes(bytes, _) => Some(1_000 + bytes / 2),
        }
    }
}

/// Commands that are watched, oldest first.
#[derive(Default)]
pub struct Airborne(Mutex<VecDeque<Arc<Watched>>>);

/// One watched command; owns a reference to its event.
struct Watched {
    event: AtomicUsize,
    /// It stands for commands before it, too: they may run while its own event says that it does not.
    grouped: bool,
}

impl Watched {
    fn event(&self) -> Handle {
        self.event.load(Acquire) as Handle
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let release: unsafe extern "C" fn(Handle) -> i32 = next!("clReleaseEvent");
        if !self.event().is_null() {
            // SAFETY: our reference, given up once.
            unsafe { release(self.event()) };
        }
    }
}

static AIRBORNE: Registry<Airborne> = Registry::new();

pub fn airborne(device: Handle) -> Arc<Airborne> {
    AIRBORNE
        .get(device)
        .unwrap_or_else(|| AIRBORNE.set(device, Airborne::default()))
}

impl Airborne {
    fn add(&self, grouped: bool) -> Arc<Watched> {
        let watched = Arc::new(Watched {
            event: AtomicUsize::new(0),
            grouped,
        });
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.push_back(watched.clone());
        watched
    }

    fn remove(&self, watched: &Arc<Watched>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = list.iter().position(|other| Arc::ptr_eq(other, watched));
        let removed = place.and_then(|place| list.remove(place));
        drop(list);
        // Its event may be released here, outside the lock: drivers call back while they hold theirs.
        drop(removed);
    }

    fn oldest(&self) -> Option<Arc<Watched>> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.front().cloned()
    }
}

/// The gate's view of one device's commands.
pub struct Flights {
    device: usize,
    airborne: Arc<Airborne>,
}

impl Flights {
    pub fn of(device: Handle) -> Flights {
        Flights {
            device: device as usize,
            airborne: airborne(device),
        }
    }
}

impl Front for Flights {
    fn oldest_runs(&self) -> bool {
        let Some(oldest) = self.airborne.oldest() else {
            // Only groups without an event: short commands, or about to be looked for.
            return true;
        };
        if oldest.grouped {
            return true;
        }
        // No event yet: still inside the driver's call, compiling perhaps.
        !oldest.event().is_null()
            && value_of::<i32>(next!("clGetEventInfo"), oldest.event(), EVENT_EXECUTION_STATUS)
                .is_none_or(|status| status <= RUNNING)
    }

    fn look_for_finished(&self) {
        let here = queues()
            .into_iter()
            .filter(|queue| queue.binding.device as usize == self.device);
        for queue in here {
            if let Some(group) = queue.batch.take_old(OLD_NS) {
                queue.end_by_marker(group);
            }
        }
    }
}

/// A watched group of commands, handed through the driver to its callback. It holds no queue: a driver may wait with
/// what lies in one until nobody holds it any more.
struct Flight {
    binding: &'static Binding,
    airborne: Arc<Airborne>,
    watched: Arc<Watched>,
    estimate_ns: u64,
    /// The one kernel in it, if it is a single launch.
    kernel: Option<(Arc<Kernel>, usize)>,
    measured: Measured,
}

/// Brings one command to the device. `waits`: how many events it waits for; `call`: the driver's function, given where
/// to write its event.
pub fn command(
    handle: Handle,
    work: Work,
    waits: u32,
    blocking: bool,
    event: *mut Handle,
    call: impl FnOnce(*mut Handle) -> i32,
) -> i32 {
    let Some(queue) = queue(handle) else {
        return INVALID_COMMAND_QUEUE;
    };
    let gate = &queue.binding.gate;
    let known = work.estimate_ns(&queue);
    let estimate_ns = known.unwrap_or(UNKNOWN_NS);
    if !gate.enter(estimate_ns) {
        return OUT_OF_RESOURCES;
    }
    if matches!(work, Work::Kernel(..)) && !local::is_own(queue.binding) {
        gate.leave(estimate_ns);
        crate::say("no kernel runs: what another slice left in local memory could not be overwritten");
        return OUT_OF_RESOURCES;
    }
    match &work {
        Work::Kernel(kernel, _) => gate.count_kernel(&kernel.mark),
        Work::Bytes(bytes, way) => gate.count_bytes(*way, *bytes),
    }
    if waits > 0 {
        // It may wait for the program itself; only an event of its own tells that from running.
        queue.mark_end();
    }
    let short = queue.in_order && waits == 0 && known.is_some_and(|known| known < WATCHED_NS);
    let group = match short.then(|| queue.batch.add(estimate_ns)) {
        Some(counted @ (Counted::First | Counted::More)) => {
            if let Counted::First = counted {
                gate.take_off();
            }
            let code = call(event);
            if blocking && code == SUCCESS {
                queue.settle();
            }
            return code;
        }
        Some(Counted::Full(group)) => Some(group),
        // The end of this command is the end of the open group before it, too.
        None => {
            let open = queue.in_order.then(|| queue.batch.take()).flatten();
            if open.is_none() {
                gate.take_off();
            }
            open.map(|open| open.and(estimate_ns))
        }
    };
    let watched = queue.airborne.add(group.is_some());
    let mut flight = Flight {
        estimate_ns: group.map_or(estimate_ns, |group| group.estimate_ns),
        measured: Measured {
            grouped: group.is_some(),
            ..Measured::default()
        },
        kernel: None,
        watched,
        binding: queue.binding,
        airborne: queue.airborne.clone(),
    };
    if let (Work::Kernel(kernel, size), None) = (&work, group) {
        flight.measured.first = kernel.first();
        flight.kernel = Some((kernel.clone(), *size));
    }
    fly(&queue, flight, blocking, event, call)
}

fn fly(
    queue: &Queue,
    mut flight: Flight,
    blocking: bool,
    event: *mut Handle,
    call: impl FnOnce(*mut Handle) -> i32,
) -> i32 {
    let mut own: Handle = std::ptr::null_mut();
    let place = if event.is_null() { &raw mut own } else { event };
    let code = call(place);
    if code != SUCCESS {
        flight.airborne.remove(&flight.watched);
        flight.binding.gate.never_flew(flight.estimate_ns);
        return code;
    }
    if flight.measured.first {
        flight.measured.not_before_ns = now_ns();
    }
    // SAFETY: the driver wrote its event there; it succeeded.
    let ended = unsafe { *place };
    if !event.is_null() && !ended.is_null() {
        let retain: unsafe extern "C" fn(Handle) -> i32 = next!("clRetainEvent");
        // SAFETY: a live event; the program's reference stays its own.
        unsafe { retain(ended) };
    }
    flight.watched.event.store(ended as usize, Release);
    if blocking || ended.is_null() {
        flight.land();
        if queue.in_order {
            queue.settle();
        }
        return code;
    }
    watch(flight, ended);
    code
}

/// Has the driver tell us when the flight ended.
fn watch(flight: Flight, event: Handle) {
    type SetCallback =
        unsafe extern "C" fn(Handle, i32, unsafe extern "C" fn(Handle, i32, *mut c_void), *mut c_void) -> i32;
    let set: SetCallback = next!("clSetEventCallback");
    let data = Box::into_raw(Box::new(flight));
    // SAFETY: a live event; the data is freed by the callback, which the driver calls once.
    if unsafe { set(event, COMPLETE, ended, data.cast()) } != SUCCESS {
        // SAFETY: the driver did not take it.
        unsafe { Box::from_raw(data) }.land();
    }
}

unsafe extern "C" fn ended(_event: Handle, _status: i32, data: *mut c_void) {
    let _ = std::panic::catch_unwind(|| {
        // SAFETY: made in `watch`, handed back once.
        unsafe { Box::from_raw(data.cast::<Flight>()) }.land();
    });
}

impl Flight {
    fn land(mut self) {
        let gate = &self.binding.gate;
        if !self.measured.grouped {
            self.measured.driver_ns = measured_ns(self.watched.event());
        }
        self.airborne.remove(&self.watched);
        let spent = gate.land(self.estimate_ns, self.measured);
        if let Some((kernel, size)) = self.kernel.as_ref().filter(|_| !self.measured.first) {
            kernel.learn(*size, spent, gate.surprises());
        }
    }
}

/// The driver's measurement of one command.
fn measured_ns(event: Handle) -> Option<u64> {
    let ask = next!("clGetEventProfilingInfo");
    let begun = value_of::<u64>(ask, event, PROFILING_COMMAND_START)?;
    let ended = value_of::<u64>(ask, event, PROFILING_COMMAND_END)?;
    ended.checked_sub(begun)
}

impl Queue {
    /// All commands of this in-order queue have ended.
    pub fn settle(&self) {
        if let Some(group) = self.batch.take() {
            let measured = Measured {
                grouped: true,
                ..Measured::default()
            };
            self.binding.gate.land(group.estimate_ns, measured);
        }
    }

    /// What is open on the queue ends with a marker.
    pub fn mark_end(&self) {
        if let Some(group) = self.batch.take() {
            self.end_by_marker(group);
        }
    }

    fn end_by_marker(&self, group: Group) {
        type Marker = unsafe extern "C" fn(Handle, u32, *const Handle, *mut Handle) -> i32;
        let mark: Marker = next!("clEnqueueMarkerWithWaitList");
        let flush: unsafe extern "C" fn(Handle) -> i32 = next!("clFlush");
        let flight = Flight {
            watched: self.airborne.add(true),
            binding: self.binding,
            airborne: self.airborne.clone(),
            estimate_ns: group.estimate_ns,
            kernel: None,
            measured: Measured {
                grouped: true,
                ..Measured::default()
            },
        };
        let queue = self.handle;
        fly(self, flight, false, std::ptr::null_mut(), |event| {
            // SAFETY: a live queue, held by ourselves.
            unsafe {
                let code = mark(queue, 0, std::ptr::null(), event);
                flush(queue);
                code
            }
        });
    }
}
