//! Entries for what is not offered: each answers with the error the specification gives for it.

use std::ffi::c_void;

use crate::abi::{DEVICE_PARTITION_FAILED, Handle, INVALID_OPERATION};
use crate::export::put;

/// For entries that answer with a code.
pub unsafe extern "C" fn refuse() -> i32 {
    INVALID_OPERATION
}

fn no_object(code: *mut i32) -> Handle {
    // SAFETY: valid or null as the caller of an OpenCL function promises.
    unsafe { put(code, INVALID_OPERATION) };
    std::ptr::null_mut()
}

/// For entries that answer with an object and take an error code's address behind so many others.
pub unsafe extern "C" fn object_of_two(_: *mut c_void, _: usize, code: *mut i32) -> Handle {
    no_object(code)
}

pub unsafe extern "C" fn object_of_three(_: *mut c_void, _: usize, _: usize, code: *mut i32) -> Handle {
    no_object(code)
}

pub unsafe extern "C" fn object_of_four(
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    code: *mut i32,
) -> Handle {
    no_object(code)
}

pub unsafe extern "C" fn object_of_five(
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    code: *mut i32,
) -> Handle {
    no_object(code)
}

/// No shared virtual memory.
pub unsafe extern "C" fn svm_alloc(_: Handle, _: u64, _: usize, _: u32) -> *mut c_void {
    std::ptr::null_mut()
}

pub unsafe extern "C" fn svm_free(_: Handle, _: *mut c_void) {}

pub unsafe extern "C" fn sub_devices(
    _: Handle,
    _: *const isize,
    _: u32,
    _: *mut Handle,
    count: *mut u32,
) -> i32 {
    // SAFETY: valid or null as the caller of an OpenCL function promises.
    unsafe { put(count, 0) };
    DEVICE_PARTITION_FAILED
}
