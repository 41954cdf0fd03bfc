//! What the program is told of memory: the slice's.

use super::abi::{Code, INVALID_VALUE, SUCCESS, UNKNOWN};
use super::bind::{Binding, binding, current};
use super::{pool, real};
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("cuMemGetInfo_v2", get_info as Entry),
    Hook("cuDeviceTotalMem_v2", total as Entry),
];

/// The slice's size and what is left of it.
fn slice(binding: &Binding) -> Option<(usize, usize)> {
    let process = binding.gate.process()?;
    let limit = process.limit_bytes();
    Some((
        limit as usize,
        limit.saturating_sub(process.used_bytes()) as usize,
    ))
}

unsafe extern "C" fn get_info(free: *mut usize, total: *mut usize) -> Code {
    let next: unsafe extern "C" fn(*mut usize, *mut usize) -> Code = real!("cuMemGetInfo_v2");
    guarded!(UNKNOWN, {
        if free.is_null() || total.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(free, total) };
        if code != SUCCESS {
            return code;
        }
        let binding = match current() {
            Ok(binding) => binding,
            Err(code) => return code,
        };
        pool::refresh(binding);
        let (limit, left) = slice(binding).unwrap_or((0, 0));
        // SAFETY: not null; the driver wrote both.
        unsafe {
            *total = limit.min(*total);
            *free = left.min(*free);
        }
        SUCCESS
    })
}

unsafe extern "C" fn total(bytes: *mut usize, device: i32) -> Code {
    let next: unsafe extern "C" fn(*mut usize, i32) -> Code = real!("cuDeviceTotalMem_v2");
    guarded!(UNKNOWN, {
        if bytes.is_null() {
            return INVALID_VALUE;
        }
        let binding = match binding(device) {
            Ok(binding) => binding,
            Err(code) => return code,
        };
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(bytes, device) };
        if code == SUCCESS {
            let (limit, _) = slice(binding).unwrap_or((0, 0));
            // SAFETY: not null; the driver wrote it.
            unsafe { *bytes = limit.min(*bytes) };
        }
        code
    })
}
