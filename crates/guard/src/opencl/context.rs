//! Contexts: only over the job's devices, and remembered with them.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex};

use super::abi::{
    CONTEXT_INTEROP_USER_SYNC, CONTEXT_PLATFORM, CONTEXT_REFERENCE_COUNT, DEVICE_NOT_FOUND, Handle,
    INVALID_DEVICE, INVALID_PROPERTY, INVALID_VALUE, OUT_OF_RESOURCES, SUCCESS,
};
use super::bind::{Binding, binding, value_of};
use super::layer::{Entry, Hook};
use super::{device, guarded, next, zero};
use crate::registry::Registry;

pub const HOOKS: &[Hook] = &[
    Hook("clCreateContext", create_context as Entry),
    Hook("clCreateContextFromType", create_context_from_type as Entry),
    Hook("clReleaseContext", release_context as Entry),
];

pub struct Context {
    pub devices: Vec<&'static Binding>,
    /// The queue on which new memory is zeroed.
    pub scrub: Mutex<Option<zero::Scrub>>,
}

static CONTEXTS: Registry<Context> = Registry::new();

pub fn context(handle: Handle) -> Option<Arc<Context>> {
    CONTEXTS.get(handle)
}

type Notify = Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>;
type CreateContext =
    unsafe extern "C" fn(*const isize, u32, *const Handle, Notify, *mut c_void, *mut i32) -> Handle;

/// Writes an error code where the program wants it, and answers with no object.
///
/// # Safety
/// `code` is valid or null.
pub unsafe fn nothing(code: *mut i32, why: i32) -> Handle {
    if !code.is_null() {
        // SAFETY: valid as promised.
        unsafe { *code = why };
    }
    std::ptr::null_mut()
}

/// The platform a property list names; an error for properties that tie the context to anything else.
///
/// # Safety
/// `properties` is null or a list of pairs ended by zero.
unsafe fn platform_in(properties: *const isize) -> Result<Handle, i32> {
    let mut platform = std::ptr::null_mut();
    if properties.is_null() {
        return Ok(platform);
    }
    let mut at = 0;
    loop {
        // SAFETY: within the list, whose end is a zero.
        let (name, value) = unsafe {
            match *properties.add(at) {
                0 => return Ok(platform),
                name => (name, *properties.add(at + 1)),
            }
        };
        match name {
            CONTEXT_PLATFORM => platform = value as Handle,
            CONTEXT_INTEROP_USER_SYNC => {}
            _ => return Err(INVALID_PROPERTY),
        }
        at += 2;
    }
}

unsafe extern "C" fn create_context(
    properties: *const isize,
    count: u32,
    devices: *const Handle,
    notify: Notify,
    data: *mut c_void,
    code: *mut i32,
) -> Handle {
    guarded!(std::ptr::null_mut(), {
        if devices.is_null() || count == 0 {
            // SAFETY: as the caller of an OpenCL function promises.
            return unsafe { nothing(code, INVALID_VALUE) };
        }
        // SAFETY: as the caller of an OpenCL function promises.
        let (listed, platform) = unsafe {
            (
                std::slice::from_raw_parts(devices, count as usize),
                platform_in(properties),
            )
        };
        let bound: Option<Vec<_>> = listed.iter().map(|device| binding(*device)).collect();
        match (platform, bound) {
            // SAFETY: the caller's own arguments.
            (Ok(_), Some(bound)) => unsafe { create(properties, bound, notify, data, code) },
            // SAFETY: as above.
            (Err(why), _) => unsafe { nothing(code, why) },
            // SAFETY: as above.
            (_, None) => unsafe { nothing(code, INVALID_DEVICE) },
        }
    })
}

unsafe extern "C" fn create_context_from_type(
    properties: *const isize,
    kind: u64,
    notify: Notify,
    data: *mut c_void,
    code: *mut i32,
) -> Handle {
    guarded!(std::ptr::null_mut(), {
        // SAFETY: as the caller of an OpenCL function promises.
        let platform = match unsafe { platform_in(properties) } {
            Ok(platform) => platform,
            // SAFETY: as above.
            Err(why) => return unsafe { nothing(code, why) },
        };
        let bound = device::devices_of(platform, kind);
        if bound.is_empty() {
            // SAFETY: as above.
            return unsafe { nothing(code, DEVICE_NOT_FOUND) };
        }
        // SAFETY: the caller's own arguments.
        unsafe { create(properties, bound, notify, data, code) }
    })
}

/// # Safety
/// The arguments are those of `clCreateContext`.
unsafe fn create(
    properties: *const isize,
    bound: Vec<&'static Binding>,
    notify: Notify,
    data: *mut c_void,
    code: *mut i32,
) -> Handle {
    let next: CreateContext = next!("clCreateContext");
    let handles: Vec<Handle> = bound.iter().map(|binding| binding.device).collect();
    // SAFETY: the caller's arguments with a list of our own.
    let context = unsafe {
        next(
            properties,
            handles.len() as u32,
            handles.as_ptr(),
            notify,
            data,
            code,
        )
    };
    if !context.is_null() {
        CONTEXTS.set(
            context,
            Context {
                devices: bound,
                scrub: Mutex::new(None),
            },
        );
    }
    context
}

unsafe extern "C" fn release_context(handle: Handle) -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        let next: unsafe extern "C" fn(Handle) -> i32 = next!("clReleaseContext");
        if let Some(context) = context(handle) {
            // Our queue keeps the context alive; it is made again if the program goes on allocating.
            zero::drop_queue(&context);
            let last = value_of::<u32>(next!("clGetContextInfo"), handle, CONTEXT_REFERENCE_COUNT) == Some(1);
            // SAFETY: the caller's own argument.
            let code = unsafe { next(handle) };
            if last && code == SUCCESS {
                CONTEXTS.remove(handle);
            }
            return code;
        }
        // SAFETY: the caller's own argument.
        unsafe { next(handle) }
    })
}
