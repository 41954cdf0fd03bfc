//! What a layer in front asks of a driver: events, which have ended when they are made, as every command has, and calls
//! when an object goes.

use std::ffi::c_void;

use crate::abi::{Handle, INVALID_VALUE, SUCCESS};
use crate::{Buffer, answer, made, of};

const EXECUTION_STATUS: u32 = 0x11D3;
const COMPLETE: i32 = 0;

/// A command's event, if somebody wants one.
///
/// # Safety
/// `event` is valid or null.
pub unsafe fn ended(event: *mut Handle) {
    if !event.is_null() {
        // SAFETY: as promised.
        unsafe { *event = made(()) };
    }
}

pub unsafe extern "C" fn set_callback(
    event: Handle,
    _status: i32,
    call: unsafe extern "C" fn(Handle, i32, *mut c_void),
    with: *mut c_void,
) -> i32 {
    // SAFETY: the caller's own function and data, called once.
    unsafe { call(event, COMPLETE, with) };
    SUCCESS
}

pub unsafe extern "C" fn info(
    _event: Handle,
    what: u32,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    match what {
        // SAFETY: as OpenCL has it.
        EXECUTION_STATUS => unsafe { answer(&COMPLETE.to_ne_bytes(), size, value, there) },
        _ => INVALID_VALUE,
    }
}

pub type Gone = (unsafe extern "C" fn(Handle, *mut c_void), *mut c_void);

pub unsafe extern "C" fn when_gone(
    buffer: Handle,
    call: unsafe extern "C" fn(Handle, *mut c_void),
    with: *mut c_void,
) -> i32 {
    // SAFETY: a live buffer.
    unsafe { of::<Buffer>(buffer) }.gone.push((call, with));
    SUCCESS
}
