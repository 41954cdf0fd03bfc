//! Linear memory: charged before the driver is asked, zeroed before the program gets it, given back when it is freed
//! or its context goes.

use super::abi::{Code, DevicePtr, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, UNKNOWN};
use super::bind::{current, current_context};
use super::charge::{Charge, Held, rounded};
use super::{pool, real, zero};
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("cuMemAlloc_v2", alloc as Entry),
    Hook("cuMemAllocPitch_v2", alloc_pitch as Entry),
    Hook("cuMemAllocManaged", alloc_managed as Entry),
    Hook("cuMemFree_v2", free as Entry),
];

static HELD: Held<DevicePtr> = Held::new();

pub fn forget(context: usize) {
    HELD.forget(context);
}

/// Has `next` allocate what takes `bytes`; `taken` tells afterwards what it took.
fn allocate(
    pointer: *mut DevicePtr,
    bytes: u64,
    taken: impl FnOnce() -> u64,
    next: impl FnOnce() -> Code,
) -> Code {
    if pointer.is_null() {
        return INVALID_VALUE;
    }
    let binding = match current() {
        Ok(binding) => binding,
        Err(code) => return code,
    };
    let Some(mut charge) = Charge::take(binding, rounded(bytes)) else {
        return OUT_OF_MEMORY;
    };
    let code = next();
    if code != SUCCESS {
        return code;
    }
    // SAFETY: not null; the driver wrote it.
    let at = unsafe { *pointer };
    let taken = taken();
    let code = match charge.correct(rounded(taken)) {
        true => zero::linear(binding, at, taken),
        false => OUT_OF_MEMORY,
    };
    if code == SUCCESS {
        HELD.put(at, current_context(), charge);
        return SUCCESS;
    }
    let next: unsafe extern "C" fn(DevicePtr) -> Code = real!("cuMemFree_v2");
    // SAFETY: allocated just now, given to nobody.
    unsafe {
        next(at);
        *pointer = 0;
    }
    code
}

unsafe extern "C" fn alloc(pointer: *mut DevicePtr, bytes: usize) -> Code {
    let next: unsafe extern "C" fn(*mut DevicePtr, usize) -> Code = real!("cuMemAlloc_v2");
    let size = bytes as u64;
    guarded!(
        UNKNOWN,
        // SAFETY: the caller's own arguments.
        allocate(pointer, size, || size, || unsafe { next(pointer, bytes) })
    )
}

unsafe extern "C" fn alloc_managed(pointer: *mut DevicePtr, bytes: usize, flags: u32) -> Code {
    let next: unsafe extern "C" fn(*mut DevicePtr, usize, u32) -> Code = real!("cuMemAllocManaged");
    let size = bytes as u64;
    guarded!(
        UNKNOWN,
        // SAFETY: the caller's own arguments.
        allocate(pointer, size, || size, || unsafe { next(pointer, bytes, flags) })
    )
}

unsafe extern "C" fn alloc_pitch(
    pointer: *mut DevicePtr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> Code {
    type Next = unsafe extern "C" fn(*mut DevicePtr, *mut usize, usize, usize, u32) -> Code;
    let next: Next = real!("cuMemAllocPitch_v2");
    guarded!(UNKNOWN, {
        if pitch.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: not null; the driver wrote it before this is asked.
        let taken = || unsafe { *pitch as u64 }.saturating_mul(height as u64);
        let least = (width as u64).saturating_mul(height as u64);
        // SAFETY: the caller's own arguments.
        allocate(pointer, least, taken, || unsafe {
            next(pointer, pitch, width, height, element)
        })
    })
}

unsafe extern "C" fn free(pointer: DevicePtr) -> Code {
    let next: unsafe extern "C" fn(DevicePtr) -> Code = real!("cuMemFree_v2");
    guarded!(UNKNOWN, {
        // Taken out first: freed, the address may be another thread's before we look.
        let held = HELD.take(&pointer);
        let pooled = pool::take(pointer);
        // SAFETY: the caller's own argument.
        let code = unsafe { next(pointer) };
        match (code, held, pooled) {
            (SUCCESS, held, pooled) => {
                drop(held);
                pooled.into_iter().for_each(pool::freed);
            }
            (_, held, pooled) => {
                held.into_iter()
                    .for_each(|(context, charge)| HELD.put(pointer, context, charge));
                pooled.into_iter().for_each(|part| pool::put(pointer, part));
            }
        }
        code
    })
}
