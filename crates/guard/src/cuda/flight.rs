//! The way of one command: through the gate, to the driver, between two events of ours, and into the hands of the
//! watch, which charges it when it has ended.

use std::sync::{Arc, Mutex, PoisonError};

use super::abi::{Code, EVENT_BLOCKING_SYNC, Handle, NOT_PERMITTED, SUCCESS};
use super::bind::{Binding, current_context, of_stream, within};
use super::{module, real, watch};
use crate::gate::{Kernel, Measured};
use crate::registry::Registry;

/// What a command of unknown length is taken for: a whole turn, so nothing runs ahead of it.
const UNKNOWN_NS: u64 = 10_000_000;

/// What a command does.
pub enum Work {
    /// A kernel, or a graph, over so many items.
    Kernel(usize, u64),
    /// So many bytes written.
    Bytes(u64),
}

/// Functions and graphs by their handle. Unloaded ones stay: a graph's handle that comes again is only estimated wrongly
/// until it has run once.
static KERNELS: Registry<Kernel> = Registry::new();

/// A handle is another function's from now on.
pub fn forget_kernel(function: Handle) {
    KERNELS.remove(function);
}

/// A command on the device.
pub struct Flight {
    pub binding: &'static Binding,
    pub context: usize,
    pub stream: usize,
    pub events: Events,
    estimate_ns: u64,
    kernel: Option<(Arc<Kernel>, usize)>,
    first: bool,
}

/// What stands before and behind a command in its stream.
#[derive(Clone, Copy)]
pub struct Events {
    pub begun: usize,
    pub ended: usize,
}

/// Brings one command to the device; `next` is the driver's function.
pub fn command(stream: Handle, work: Work, next: impl FnOnce() -> Code) -> Code {
    let binding = match of_stream(stream) {
        Ok(binding) => binding,
        Err(code) => return code,
    };
    let gate = &binding.gate;
    let (kernel, known) = match work {
        Work::Kernel(handle, items) => {
            let kernel = KERNELS
                .get(handle as Handle)
                .unwrap_or_else(|| KERNELS.set(handle as Handle, Kernel::of_hash(module::hash_of(handle))));
            let size = Kernel::size_of(items);
            let known = kernel.estimate_ns(size, gate.surprises());
            (Some((kernel, size)), known)
        }
        // Twenty gigabytes a second and some microseconds: slower than any device's own memory.
        Work::Bytes(bytes) => (None, Some(5_000 + bytes / 20)),
    };
    let estimate_ns = known.unwrap_or(UNKNOWN_NS);
    if !gate.enter(estimate_ns) {
        return NOT_PERMITTED;
    }
    if let Some((kernel, _)) = &kernel {
        gate.count_kernel(&kernel.mark);
    }
    let context = current_context();
    gate.take_off();
    let events = match Events::take(context) {
        Ok(events) => events,
        Err(code) => {
            gate.never_flew(estimate_ns);
            return code;
        }
    };
    let marked = events.mark(events.begun, stream);
    let code = next();
    if code != SUCCESS || !marked || !events.mark(events.ended, stream) {
        gate.never_flew(estimate_ns);
        events.put_back(context);
        return code;
    }
    let first = kernel.as_ref().is_some_and(|(kernel, _)| kernel.first());
    watch::watch(Flight {
        binding,
        context,
        stream: stream as usize,
        events,
        estimate_ns,
        kernel,
        first,
    });
    code
}

impl Flight {
    /// It has ended: it is charged with what the driver measured, and its events serve the next.
    pub fn land(self) {
        let gate = &self.binding.gate;
        let measured = Measured {
            driver_ns: within(self.context as Handle, || self.events.between_ns()).flatten(),
            first: self.first,
            ..Measured::default()
        };
        let spent = gate.land(self.estimate_ns, measured);
        if let Some((kernel, size)) = self.kernel.as_ref().filter(|_| !self.first) {
            kernel.learn(*size, spent, gate.surprises());
        }
        self.events.put_back(self.context);
    }
}

/// Events not in use, by context.
static IDLE: Mutex<Vec<(usize, Events)>> = Mutex::new(Vec::new());

/// A context is going, and our events with it.
pub fn forget_events(context: usize) {
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    idle.retain(|(of, _)| *of != context);
}

impl Events {
    fn take(context: usize) -> Result<Events, Code> {
        {
            let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = idle.iter().rposition(|(of, _)| *of == context) {
                return Ok(idle.swap_remove(place).1);
            }
        }
        Ok(Events {
            begun: make_event()?,
            ended: make_event()?,
        })
    }

    fn put_back(self, context: usize) {
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push((context, self));
    }

    fn mark(&self, event: usize, stream: Handle) -> bool {
        let record: unsafe extern "C" fn(Handle, Handle) -> Code = real!("cuEventRecord");
        // SAFETY: an event of ours and the caller's stream, of one context.
        unsafe { record(event as Handle, stream) == SUCCESS }
    }

    /// Nanoseconds between the two, as the driver measured.
    fn between_ns(&self) -> Option<u64> {
        let ask: unsafe extern "C" fn(*mut f32, Handle, Handle) -> Code = real!("cuEventElapsedTime");
        let mut ms = 0f32;
        // SAFETY: two events of ours that were recorded; room for the answer.
        let code = unsafe { ask(&mut ms, self.begun as Handle, self.ended as Handle) };
        (code == SUCCESS && ms.is_finite() && ms >= 0.0).then_some((f64::from(ms) * 1e6) as u64)
    }
}

/// An event that measures time, and for which a thread can sleep.
fn make_event() -> Result<usize, Code> {
    let create: unsafe extern "C" fn(*mut Handle, u32) -> Code = real!("cuEventCreate");
    let mut event: Handle = std::ptr::null_mut();
    // SAFETY: room for the answer.
    match unsafe { create(&mut event, EVENT_BLOCKING_SYNC) } {
        SUCCESS => Ok(event as usize),
        code => Err(code),
    }
}
