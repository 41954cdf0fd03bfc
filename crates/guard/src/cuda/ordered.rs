//! Memory in the order of a stream: it comes of pools, zeroed in that order, and goes back to them. What pools have is
//! `pool`'s; here is where it changes, waiting included.

use super::abi::{
    Code, DevicePtr, Handle, INVALID_VALUE, OUT_OF_MEMORY, STREAM_CAPTURE_UNSUPPORTED, SUCCESS, UNKNOWN,
};
use super::bind::{Binding, of_stream};
use super::charge::{Charge, rounded};
use super::flight::{Work, command};
use super::launch::{captures, own};
use super::{pool, real};
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("cuMemAllocAsync", alloc as Entry),
    Hook("cuMemAllocAsync_ptsz", alloc_per_thread as Entry),
    Hook("cuMemAllocFromPoolAsync", alloc_from as Entry),
    Hook("cuMemAllocFromPoolAsync_ptsz", alloc_from_per_thread as Entry),
    Hook("cuMemFreeAsync", free as Entry),
    Hook("cuMemFreeAsync_ptsz", free_per_thread as Entry),
    Hook("cuStreamSynchronize", wait_for_stream as Entry),
    Hook("cuStreamSynchronize_ptsz", wait_for_stream_per_thread as Entry),
    Hook("cuCtxSynchronize", wait_for_context as Entry),
    Hook("cuEventSynchronize", wait_for_event as Entry),
];

/// Has `next` allocate from a pool, and zeroes what it gave, in the stream's order.
fn allocate(
    pointer: *mut DevicePtr,
    bytes: usize,
    pool: Result<usize, Code>,
    stream: Handle,
    binding: &'static Binding,
    next: impl FnOnce() -> Code,
) -> Code {
    let pool = match pool {
        Ok(pool) => pool,
        Err(code) => return code,
    };
    if pointer.is_null() {
        return INVALID_VALUE;
    }
    // Captured, it would become memory that a graph takes at its launch.
    if captures(stream) {
        return STREAM_CAPTURE_UNSUPPORTED;
    }
    pool::begin();
    pool::refresh(binding);
    // The worst that may happen is that the pool grows by all of it.
    let Some(charge) = Charge::take(binding, rounded(bytes as u64)) else {
        return OUT_OF_MEMORY;
    };
    let code = next();
    if code != SUCCESS {
        drop(charge);
        pool::refresh(binding);
        return code;
    }
    // SAFETY: not null; the driver wrote it.
    let at = unsafe { *pointer };
    let fits = pool::add(pool, at, rounded(bytes as u64), charge, binding);
    let set: unsafe extern "C" fn(DevicePtr, u8, usize, Handle) -> Code = real!("cuMemsetD8Async");
    let code = match fits {
        // SAFETY: memory the driver just gave for this stream, of this size.
        true => command(stream, Work::Bytes(bytes as u64), || unsafe {
            set(at, 0, bytes, stream)
        }),
        false => OUT_OF_MEMORY,
    };
    if code != SUCCESS {
        let free: unsafe extern "C" fn(DevicePtr, Handle) -> Code = real!("cuMemFreeAsync");
        // SAFETY: allocated just now, given to nobody.
        unsafe {
            free(at, stream);
            *pointer = 0;
        }
        let part = pool::take(at);
        part.into_iter().for_each(pool::freed);
        pool::trim(binding);
    }
    code
}

fn of_device(device: i32) -> Result<usize, Code> {
    let ask: unsafe extern "C" fn(*mut Handle, i32) -> Code = real!("cuDeviceGetMemPool");
    let mut pool: Handle = std::ptr::null_mut();
    // SAFETY: room for the answer.
    match unsafe { ask(&mut pool, device) } {
        SUCCESS => Ok(pool as usize),
        code => Err(code),
    }
}

/// The hooks that come in two forms: for the default stream, and for the calling thread's.
macro_rules! in_two_forms {
    ($($alloc:ident $alloc_name:literal, $from:ident $from_name:literal, $free:ident $free_name:literal,
       $wait:ident $wait_name:literal, $per_thread:literal;)*) => {$(
        unsafe extern "C" fn $alloc(pointer: *mut DevicePtr, bytes: usize, stream: Handle) -> Code {
            let next: unsafe extern "C" fn(*mut DevicePtr, usize, Handle) -> Code = real!($alloc_name);
            guarded!(UNKNOWN, {
                let ours = own(stream, $per_thread);
                match of_stream(ours) {
                    Ok(binding) => allocate(pointer, bytes, of_device(binding.device), ours, binding, || {
                        // SAFETY: the caller's own arguments.
                        unsafe { next(pointer, bytes, stream) }
                    }),
                    Err(code) => code,
                }
            })
        }

        unsafe extern "C" fn $from(pointer: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle) -> Code {
            type Next = unsafe extern "C" fn(*mut DevicePtr, usize, Handle, Handle) -> Code;
            let next: Next = real!($from_name);
            guarded!(UNKNOWN, {
                let ours = own(stream, $per_thread);
                match of_stream(ours) {
                    Ok(binding) => allocate(pointer, bytes, Ok(pool as usize), ours, binding, || {
                        // SAFETY: the caller's own arguments.
                        unsafe { next(pointer, bytes, pool, stream) }
                    }),
                    Err(code) => code,
                }
            })
        }

        unsafe extern "C" fn $free(pointer: DevicePtr, stream: Handle) -> Code {
            let next: unsafe extern "C" fn(DevicePtr, Handle) -> Code = real!($free_name);
            guarded!(UNKNOWN, {
                let part = pool::take(pointer);
                // SAFETY: the caller's own arguments.
                let code = unsafe { next(pointer, stream) };
                match (code, part) {
                    (SUCCESS, Some(part)) => pool::freed(part),
                    (_, Some(part)) => pool::put(pointer, part),
                    _ => {}
                }
                code
            })
        }

        unsafe extern "C" fn $wait(stream: Handle) -> Code {
            let next: unsafe extern "C" fn(Handle) -> Code = real!($wait_name);
            // SAFETY: the caller's own argument.
            let code = unsafe { next(stream) };
            guarded!(UNKNOWN, {
                pool::refresh_all();
                code
            })
        }
    )*};
}

in_two_forms! {
    alloc "cuMemAllocAsync", alloc_from "cuMemAllocFromPoolAsync", free "cuMemFreeAsync",
        wait_for_stream "cuStreamSynchronize", false;
    alloc_per_thread "cuMemAllocAsync_ptsz", alloc_from_per_thread "cuMemAllocFromPoolAsync_ptsz",
        free_per_thread "cuMemFreeAsync_ptsz", wait_for_stream_per_thread "cuStreamSynchronize_ptsz", true;
}

unsafe extern "C" fn wait_for_context() -> Code {
    let next: unsafe extern "C" fn() -> Code = real!("cuCtxSynchronize");
    // SAFETY: no arguments.
    let code = unsafe { next() };
    guarded!(UNKNOWN, {
        pool::refresh_all();
        code
    })
}

unsafe extern "C" fn wait_for_event(event: Handle) -> Code {
    let next: unsafe extern "C" fn(Handle) -> Code = real!("cuEventSynchronize");
    // SAFETY: the caller's own argument.
    let code = unsafe { next(event) };
    guarded!(UNKNOWN, {
        pool::refresh_all();
        code
    })
}
