//! Starting up, devices and contexts.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::export::{
    Code, Handle, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NOT_FOUND, NOT_INITIALIZED, SUCCESS,
    exports, give,
};
use crate::store::devices;
use crate::{array, linear};

static STARTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

struct Context {
    device: i32,
}

/// A device's own context, and how often it is retained.
static PRIMARY: Mutex<Option<HashMap<i32, (usize, u32)>>> = Mutex::new(None);

fn check(device: i32) -> Result<(), Code> {
    match () {
        () if !STARTED.load(Relaxed) => Err(NOT_INITIALIZED),
        () if device < 0 || device as usize >= devices().len() => Err(INVALID_DEVICE),
        () => Ok(()),
    }
}

pub fn current() -> Option<usize> {
    let top = CURRENT.with_borrow(|stack| stack.last().copied());
    top.map(|context| context as usize)
        .filter(|context| *context != 0)
}

/// The number of the device the thread's context is on.
pub fn device() -> Result<i32, Code> {
    let context = current().ok_or(INVALID_CONTEXT)?;
    // SAFETY: made by `make`, never freed, so that a stale handle is only stale.
    Ok(unsafe { (*(context as *const Context)).device })
}

fn make(device: i32) -> Handle {
    Box::into_raw(Box::new(Context { device })).cast()
}

fn end(context: usize) {
    linear::free_all_of(context);
    array::free_all_of(context);
}

fn make_current(context: *mut Handle, device: i32) -> Code {
    if let Err(code) = check(device) {
        return code;
    }
    let made = make(device);
    CURRENT.with_borrow_mut(|stack| stack.push(made));
    give(context, made)
}

fn write_text(text: &str, to: *mut c_char, room: i32) -> Code {
    if to.is_null() || room <= 0 {
        return INVALID_VALUE;
    }
    let bytes = text.bytes().take(room as usize - 1).chain([0]);
    for (at, byte) in bytes.enumerate() {
        // SAFETY: within the room the caller says there is.
        unsafe { to.add(at).write(byte as c_char) };
    }
    SUCCESS
}

pub fn uuid(device: i32) -> [u8; 16] {
    std::array::from_fn(|at| (device as u8 + 1) * 16 + at as u8)
}

fn let_go(device: i32, whole: bool) -> Code {
    if let Err(code) = check(device) {
        return code;
    }
    let mut all = PRIMARY.lock().unwrap();
    let all = all.get_or_insert_default();
    let Some((context, retained)) = all.get_mut(&device) else {
        return INVALID_CONTEXT;
    };
    *retained -= u32::from(!whole);
    if whole || *retained == 0 {
        end(*context);
    }
    if *retained == 0 {
        all.remove(&device);
    }
    SUCCESS
}

const NAMES_OF_ERRORS: &[(Code, &std::ffi::CStr)] = &[
    (0, c"CUDA_SUCCESS"),
    (1, c"CUDA_ERROR_INVALID_VALUE"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED"),
    (100, c"CUDA_ERROR_NO_DEVICE"),
    (101, c"CUDA_ERROR_INVALID_DEVICE"),
    (201, c"CUDA_ERROR_INVALID_CONTEXT"),
    (400, c"CUDA_ERROR_INVALID_HANDLE"),
    (500, c"CUDA_ERROR_NOT_FOUND"),
    (600, c"CUDA_ERROR_NOT_READY"),
    (800, c"CUDA_ERROR_NOT_PERMITTED"),
    (801, c"CUDA_ERROR_NOT_SUPPORTED"),
];

fn name_of(error: Code, to: *mut *const c_char) -> Code {
    match NAMES_OF_ERRORS.iter().find(|(code, _)| *code == error) {
        Some((_, name)) => give(to, name.as_ptr()),
        None => INVALID_VALUE,
    }
}

exports! {
    cuInit(_flags: u32) {
        STARTED.store(true, Relaxed);
        SUCCESS
    }
    cuDriverGetVersion(version: *mut i32) { give(version, 13_000) }
    cuGetErrorName(error: Code, name: *mut *const c_char) { name_of(error, name) }
    cuGetErrorString(error: Code, text: *mut *const c_char) { name_of(error, text) }
    cuDeviceGetCount(count: *mut i32) { give(count, devices().len() as i32) }
    cuDeviceGet(device: *mut i32, ordinal: i32) {
        match check(ordinal) {
            Ok(()) => give(device, ordinal),
            Err(code) => code,
        }
    }
    cuDeviceGetName(name: *mut c_char, room: i32, device: i32) {
        match check(device) {
            Ok(()) => write_text("Tenure double of a CUDA device", name, room),
            Err(code) => code,
        }
    }
    cuDeviceGetPCIBusId(text: *mut c_char, room: i32, device: i32) {
        write_text(&format!("0000:{:02x}:00.0", device + 1), text, room)
    }
    cuDeviceGetUuid(to: *mut [u8; 16], device: i32) { give(to, uuid(device)) }
    cuDeviceGetUuid_v2(to: *mut [u8; 16], device: i32) { give(to, uuid(device)) }
    cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) {
        match check(device) {
            Ok(()) => give(bytes, devices()[device as usize].total as usize),
            Err(code) => code,
        }
    }
    cuDeviceGetAttribute(value: *mut i32, attribute: i32, _device: i32) {
        give(value, match attribute {
            1 => 1024,          // threads of a block
            2 | 3 => 1024,      // its sides
            4 => 64,
            5..=7 => 65535,     // the grid's
            10 => 32,           // a warp
            16 => 8,            // multiprocessors
            41 => 1,            // unified addressing
            75 => 8,            // compute capability
            83 | 102 | 115 => 1, // managed memory, memory by handle, pools
            _ => 0,
        })
    }
    cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) {
        let held = PRIMARY.lock().unwrap().as_ref().is_some_and(|all| all.contains_key(&device));
        give(flags, 0);
        give(active, i32::from(held))
    }
    cuDevicePrimaryCtxRetain(context: *mut Handle, device: i32) {
        if let Err(code) = check(device) {
            return code;
        }
        let mut all = PRIMARY.lock().unwrap();
        let (made, retained) = all.get_or_insert_default().entry(device).or_insert_with(|| (make(device) as usize, 0));
        *retained += 1;
        give(context, *made as Handle)
    }
    cuDevicePrimaryCtxRelease_v2(device: i32) { let_go(device, false) }
    cuDevicePrimaryCtxReset_v2(device: i32) { let_go(device, true) }
    cuCtxCreate_v2(context: *mut Handle, _flags: u32, device: i32) { make_current(context, device) }
    cuCtxCreate_v3(context: *mut Handle, _affinity: *mut c_void, _count: i32, _flags: u32, device: i32) {
        make_current(context, device)
    }
    cuCtxCreate_v4(context: *mut Handle, _parameters: *mut c_void, _flags: u32, device: i32) {
        make_current(context, device)
    }
    cuCtxDestroy_v2(context: Handle) {
        CURRENT.with_borrow_mut(|stack| stack.retain(|other| *other != context));
        end(context as usize);
        SUCCESS
    }
    cuCtxGetCurrent(context: *mut Handle) { give(context, current().unwrap_or(0) as Handle) }
    cuCtxSetCurrent(context: Handle) {
        CURRENT.with_borrow_mut(|stack| {
            stack.pop();
            stack.push(context);
        });
        SUCCESS
    }
    cuCtxPushCurrent_v2(context: Handle) {
        CURRENT.with_borrow_mut(|stack| stack.push(context));
        SUCCESS
    }
    cuCtxPopCurrent_v2(context: *mut Handle) {
        match CURRENT.with_borrow_mut(Vec::pop) {
            Some(_) if context.is_null() => SUCCESS,
            Some(top) => give(context, top),
            None => INVALID_CONTEXT,
        }
    }
    cuCtxGetDevice(to: *mut i32) {
        match device() {
            Ok(device) => give(to, device),
            Err(code) => code,
        }
    }
    cuCtxGetApiVersion(_context: Handle, version: *mut u32) { give(version, 13_000) }
    cuCtxGetFlags(flags: *mut u32) { give(flags, 0) }
    cuGetExportTable(_table: *mut *const c_void, _id: *const c_void) { NOT_FOUND }
}
