//! Buffers and pipes: charged, zeroed, given back when destroyed.

use std::ffi::c_void;

use super::abi::{
    Handle, INVALID_BUFFER_SIZE, INVALID_CONTEXT, INVALID_PROPERTY, MEM_COPY_HOST_PTR, MEM_FLAGS,
    MEM_OBJECT_ALLOCATION_FAILURE, MEM_USE_HOST_PTR, OUT_OF_RESOURCES,
};
use super::allocation::Allocation;
use super::bind::GetInfo;
use super::context::{context, nothing};
use super::layer::{Entry, Hook};
use super::{device, guarded, next, zero};
use crate::gate::Way;
use crate::registry::Registry;

pub const HOOKS: &[Hook] = &[
    Hook("clGetMemObjectInfo", get_mem_object_info as Entry),
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

/// Buffers up to this size are made as copies of zeros: drivers do that at once, without a command and its wait.
const SMALL: usize = 1 << 20;
static ZEROS: [u8; SMALL] = [0; SMALL];

/// What the program asked for where we asked for a copy of zeros instead.
static ASKED: Registry<u64> = Registry::new();

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
        unsafe {
            make(of, flags, size, host, code, |flags, host| {
                next(of, flags, size, host, code)
            })
        }
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
            return unsafe { nothing(code, INVALID_PROPERTY) };
        }
        let next: CreateWithProperties = next!("clCreateBufferWithProperties");
        // SAFETY: the caller's own arguments.
        unsafe {
            make(of, flags, size, host, code, |flags, host| {
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
    host: *mut c_void,
    code: *mut i32,
    create: impl FnOnce(u64, *mut c_void) -> Handle,
) -> Handle {
    // SAFETY: as promised.
    let refuse = |why| unsafe { nothing(code, why) };
    let Some(context) = context(of) else {
        return refuse(INVALID_CONTEXT);
    };
    if size == 0 {
        return refuse(INVALID_BUFFER_SIZE);
    }
    let Some(allocation) = Allocation::charge(&context, size as u64) else {
        return refuse(MEM_OBJECT_ALLOCATION_FAILURE);
    };
    let from_host = flags & (MEM_COPY_HOST_PTR | MEM_USE_HOST_PTR) != 0;
    // A host pointer without its flag is the program's mistake, and the driver's to name.
    let copied = !from_host && size <= SMALL && host.is_null();
    let buffer = match copied {
        true => create(flags | MEM_COPY_HOST_PTR, ZEROS.as_ptr().cast_mut().cast()),
        false => create(flags, host),
    };
    if buffer.is_null() {
        allocation.give_back();
        return buffer;
    }
    if copied {
        ASKED.set(buffer, flags);
    }
    if from_host {
        context
            .devices
            .iter()
            .for_each(|binding| binding.gate.count_bytes(Way::In, size as u64));
    }
    if allocation.tie_to(buffer) && (from_host || copied || zero::buffer(&context, buffer, of, size)) {
        return buffer;
    }
    // SAFETY: an object of ours, not yet given out.
    unsafe { withhold(buffer, code) }
}

/// A memory object is gone: its handle may come again for another.
pub fn forget(object: Handle) {
    ASKED.remove(object);
}

unsafe extern "C" fn get_mem_object_info(
    object: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        let next: GetInfo = next!("clGetMemObjectInfo");
        match ASKED.get(object).filter(|_| param == MEM_FLAGS) {
            // SAFETY: as the caller of an OpenCL function promises.
            Some(asked) => unsafe { device::answer(&asked.to_ne_bytes(), size, value, size_ret) },
            // SAFETY: the caller's own arguments.
            None => unsafe { next(object, param, size, value, size_ret) },
        }
    })
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
