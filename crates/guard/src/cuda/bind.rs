//! Which of the driver's devices are the job's, each with its gate; found when the program initialises the driver.
//! Other devices are not counted and no context is made on them.

use std::sync::OnceLock;

use super::abi::{
    Code, Handle, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_INITIALIZED, PER_THREAD_STREAM, SUCCESS,
    UNKNOWN,
};
use super::{real, watch};
use crate::config::{self, Mapping, Selector};
use crate::gate::Gate;
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("cuInit", init as Entry),
    Hook("cuDeviceGetCount", get_count as Entry),
    Hook("cuDeviceGet", get as Entry),
];

/// One device of the job.
pub struct Binding {
    /// The driver's number for it.
    pub device: i32,
    pub gate: Gate,
    /// What a context on it takes of the device, beside what programs ask for.
    pub context_bytes: u64,
}

static BINDINGS: OnceLock<Vec<Binding>> = OnceLock::new();

/// The job's devices; none before the driver is initialised.
pub fn bindings() -> &'static [Binding] {
    BINDINGS.get().map_or(&[], Vec::as_slice)
}

pub fn binding(device: i32) -> Result<&'static Binding, Code> {
    if BINDINGS.get().is_none() {
        return Err(NOT_INITIALIZED);
    }
    bindings()
        .iter()
        .find(|binding| binding.device == device)
        .ok_or(INVALID_DEVICE)
}

/// The device of the calling thread's context.
pub fn current() -> Result<&'static Binding, Code> {
    let ask: unsafe extern "C" fn(*mut i32) -> Code = real!("cuCtxGetDevice");
    let mut device = -1;
    // SAFETY: room for the answer.
    match unsafe { ask(&mut device) } {
        SUCCESS => binding(device),
        code => Err(code),
    }
}

/// The context of the calling thread, as a number.
pub fn current_context() -> usize {
    let ask: unsafe extern "C" fn(*mut Handle) -> Code = real!("cuCtxGetCurrent");
    let mut context: Handle = std::ptr::null_mut();
    // SAFETY: room for the answer.
    unsafe { ask(&mut context) };
    context as usize
}

/// The device of a stream.
pub fn of_stream(stream: Handle) -> Result<&'static Binding, Code> {
    if let [only] = bindings() {
        return Ok(only);
    }
    if stream as usize <= PER_THREAD_STREAM {
        return current();
    }
    let ask: unsafe extern "C" fn(Handle, *mut Handle) -> Code = real!("cuStreamGetCtx");
    let mut context: Handle = std::ptr::null_mut();
    // SAFETY: the caller's own stream, room for the answer.
    match unsafe { ask(stream, &mut context) } {
        SUCCESS => within(context, current).unwrap_or(Err(UNKNOWN)),
        code => Err(code),
    }
}

/// Runs `work` with a context made the thread's own meanwhile.
pub fn within<T>(context: Handle, work: impl FnOnce() -> T) -> Option<T> {
    let push: unsafe extern "C" fn(Handle) -> Code = real!("cuCtxPushCurrent_v2");
    let pop: unsafe extern "C" fn(*mut Handle) -> Code = real!("cuCtxPopCurrent_v2");
    let mut popped: Handle = std::ptr::null_mut();
    // SAFETY: a context of the program's; popped below.
    (unsafe { push(context) } == SUCCESS).then(|| {
        let answer = work();
        // SAFETY: pushed just now.
        unsafe { pop(&mut popped) };
        answer
    })
}

unsafe extern "C" fn init(flags: u32) -> Code {
    guarded!(UNKNOWN, {
        let next: unsafe extern "C" fn(u32) -> Code = real!("cuInit");
        // SAFETY: the caller's own argument.
        let code = unsafe { next(flags) };
        if code != SUCCESS {
            return code;
        }
        let bound = BINDINGS.get_or_init(|| match find() {
            Ok(bindings) => {
                // SAFETY: a plain function; this library is not unloaded, its own driver handle is never closed.
                unsafe { libc::atexit(at_exit) };
                bindings
            }
            Err(why) => {
                crate::say(&format!("no CUDA device is given: {why}"));
                Vec::new()
            }
        });
        if bound.is_empty() { NO_DEVICE } else { SUCCESS }
    })
}

extern "C" fn at_exit() {
    bindings().iter().for_each(|binding| binding.gate.at_exit());
}

fn find() -> Result<Vec<Binding>, String> {
    let context_bytes = config::context_bytes()?;
    let mut bindings: Vec<Binding> = Vec::new();
    for mapping in config::from_environment()? {
        let device = select(&mapping)?;
        if bindings.iter().any(|other| other.device == device) {
            return Err("two pages stand for one device".into());
        }
        let front = Box::new(watch::Flights::of(device));
        let gate = Gate::join(mapping.page.clone(), mapping.slice, front)
            .map_err(|error| format!("{}: {error}", mapping.page.display()))?;
        bindings.push(Binding {
            device,
            gate,
            context_bytes,
        });
    }
    Ok(bindings)
}

/// The driver's number for a device. A place on a platform is the driver's own numbering: it is one platform.
fn select(mapping: &Mapping) -> Result<i32, String> {
    let count: unsafe extern "C" fn(*mut i32) -> Code = real!("cuDeviceGetCount");
    let get: unsafe extern "C" fn(*mut i32, i32) -> Code = real!("cuDeviceGet");
    let mut devices = 0;
    // SAFETY: room for the answer.
    unsafe { count(&mut devices) };
    let mut all = (0..devices).filter_map(|ordinal| {
        let mut device = -1;
        // SAFETY: room for the answer.
        (unsafe { get(&mut device, ordinal) } == SUCCESS).then_some(device)
    });
    let found = match &mapping.device {
        Selector::Place { device, .. } | Selector::Named { device, .. } => all.nth(*device),
        Selector::Uuid(uuid) => all.find(|device| uuid_of(*device).as_ref() == Some(uuid)),
    };
    found.ok_or_else(|| format!("the driver has no device {:?}", mapping.device))
}

fn uuid_of(device: i32) -> Option<String> {
    type Ask = unsafe extern "C" fn(*mut [u8; 16], i32) -> Code;
    // The later form names the partition where the earlier names the whole device.
    let asks: [Ask; 2] = [real!("cuDeviceGetUuid_v2"), real!("cuDeviceGetUuid")];
    asks.into_iter().find_map(|ask| {
        let mut uuid = [0; 16];
        // SAFETY: room for the answer.
        let code = unsafe { ask(&mut uuid, device) };
        (code == SUCCESS).then(|| uuid.iter().map(|byte| format!("{byte:02x}")).collect())
    })
}

unsafe extern "C" fn get_count(count: *mut i32) -> Code {
    guarded!(UNKNOWN, {
        if count.is_null() {
            return INVALID_VALUE;
        }
        if BINDINGS.get().is_none() {
            return NOT_INITIALIZED;
        }
        // SAFETY: not null, and the caller's own.
        unsafe { *count = bindings().len() as i32 };
        SUCCESS
    })
}

unsafe extern "C" fn get(device: *mut i32, ordinal: i32) -> Code {
    guarded!(UNKNOWN, {
        if device.is_null() {
            return INVALID_VALUE;
        }
        if BINDINGS.get().is_none() {
            return NOT_INITIALIZED;
        }
        match usize::try_from(ordinal).ok().and_then(|at| bindings().get(at)) {
            Some(binding) => {
                // SAFETY: not null, and the caller's own.
                unsafe { *device = binding.device };
                SUCCESS
            }
            None => INVALID_DEVICE,
        }
    })
}
