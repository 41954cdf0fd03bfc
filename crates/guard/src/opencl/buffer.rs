//! Buffers and pipes: charged, zeroed, given back when destroyed.

use std::ffi::c_void;

use super::abi::{
    Handle, INVALID_BUFFER_SIZE, INVALID_CONTEXT, MEM_COPY_HOST_PTR, MEM_OBJECT_ALLOCATION_FAILURE,
    MEM_USE_HOST_PTR,
};
use super::allocation::Allocation;
use super::context::{context, nothing};
use super::layer::{Entry, Hook};
use super::{guarded, next, zero};

pub const HOOKS: &[Hook] = &[
    Hook("clCreateBuffer", create_buffer as Entry),
    Hook(
        "clCreateBufferWithProperties",
        create_buffer_with_properties as Entry,
    ),
    Hook("clCreatePipe", create_pipe as Entry),
];

type CreateBuffer = unsafe extern "C" fn(Handle, u64, usize, *mut c_void, *mut i32) -> Handle;
type CreateWithProperties =
    unsafe extern "C" fn(Handle, *const u64, u64, usize, *mut c_void, *mut i32) -> Handle;
type CreatePipe = unsafe extern "C" fn(Handle, u64, u32, u32, *const isize, *mut i32) -> Handle;

unsafe extern "C" fn create_buffer(
    of: Handle,
    flags: u64,
    size: usize,
    host: *mut c_void,
    code: *mut i32,
) -> Handle {
    guarded!(std::ptr::null_mut(), {
        let next: CreateBuffer = next!("clCreateBuffer");
        // SAFETY: the caller's own arguments.
        unsafe { make(of, flags, size, code, || next(of, flags, size, host, code)) }
    })
}

unsafe extern "C" fn create_buffer_with_properties(
    of: Handle,
    properties: *const u64,
    flags: u64,
    size: usize,
    host: *mut c_void,
    code: *mut i32,
) -> Handle {
    guarded!(std::ptr::null_mut(), {
        // A property could bring in memory from elsewhere; the core specification has none.
        // SAFETY: a list ended by zero as the caller of an OpenCL function promises.
        if !properties.is_null() && unsafe { *properties } != 0 {
            // SAFETY: as the caller of an OpenCL function promises.
            return unsafe { nothing(code, super::abi::INVALID_PROPERTY) };
        }
        let next: CreateWithProperties = next!("clCreateBufferWithProperties");
        // SAFETY: the caller's own arguments.
        unsafe {
            make(of, flags, size, code, || {
                next(of, properties, flags, size, host, code)
            })
        }
    })
}

/// # Safety
/// `code` is valid or null.
unsafe fn make(
    of: Handle,
    flags: u64,
    size: usize,
    code: *mut i32,
    create: impl FnOnce() -> Handle,
) -> Handle {
    let Some(context) = context(of) else {
        // SAFETY: as promised.
        return unsafe { nothing(code, INVALID_CONTEXT) };
    };
    if size == 0 {
        // SAFETY: as promised.
        return unsafe { nothing(code, INVALID_BUFFER_SIZE) };
    }
    let Some(allocation) = Allocation::charge(&context, size as u64) else {
        // SAFETY: as promised.
        return unsafe { nothing(code, MEM_OBJECT_ALLOCATION_FAILURE) };
    };
    let buffer = create();
    if buffer.is_null() {
        allocation.give_back();
        return buffer;
    }
    let filled_by_host = flags & (MEM_COPY_HOST_PTR | MEM_USE_HOST_PTR) != 0;
    if allocation.tie_to(buffer) && (filled_by_host || zero::buffer(&context, buffer, of, size)) {
        return buffer;
    }
    // SAFETY: an object of ours, not yet given out.
    unsafe { withhold(buffer, code) }
}

/// Destroys an object the program must not get.
///
/// # Safety
/// `object` is a memory object with one reference, `code` is valid or null.
pub unsafe fn withhold(object: Handle, code: *mut i32) -> Handle {
    let release: unsafe extern "C" fn(Handle) -> i32 = next!("clReleaseMemObject");
    // SAFETY: as promised.
    unsafe {
        release(object);
        nothing(code, MEM_OBJECT_ALLOCATION_FAILURE)
    }
}

/// A pipe begins empty, so nothing an earlier owner left can be read from it.
unsafe extern "C" fn create_pipe(
    of: Handle,
    flags: u64,
    packet: u32,
    packets: u32,
    properties: *const isize,
    code: *mut i32,
) -> Handle {
    guarded!(std::ptr::null_mut(), {
        let next: CreatePipe = next!("clCreatePipe");
        let Some(context) = context(of) else {
            // SAFETY: as the caller of an OpenCL function promises.
            return unsafe { nothing(code, INVALID_CONTEXT) };
        };
        let bytes = u64::from(packet) * u64::from(packets);
        let Some(allocation) = Allocation::charge(&context, bytes) else {
            // SAFETY: as above.
            return unsafe { nothing(code, MEM_OBJECT_ALLOCATION_FAILURE) };
        };
        // SAFETY: the caller's own arguments.
        let pipe = unsafe { next(of, flags, packet, packets, properties, code) };
        if pipe.is_null() {
            allocation.give_back();
            return pipe;
        }
        match allocation.tie_to(pipe) {
            true => pipe,
            // SAFETY: not yet given out.
            false => unsafe { withhold(pipe, code) },
        }
    })
}
