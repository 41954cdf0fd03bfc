//! Zero on allocation: what an earlier owner left is gone before the program gets the object, however that owner
//! ended. Done on a queue of our own, finished before returning, and charged to the slice's time.

use std::ffi::c_void;
use std::sync::PoisonError;

use tenure_limits::now_ns;

use super::abi::{Handle, SUCCESS};
use super::context::Context;
use super::next;

pub struct Scrub(Handle);

// SAFETY: a name for the driver, which is thread-safe.
unsafe impl Send for Scrub {}

type CreateQueue = unsafe extern "C" fn(Handle, Handle, u64, *mut i32) -> Handle;
type Plain = unsafe extern "C" fn(Handle) -> i32;
type FillBuffer = unsafe extern "C" fn(
    Handle,
    Handle,
    *const c_void,
    usize,
    usize,
    usize,
    u32,
    *const Handle,
    *mut Handle,
) -> i32;
type FillImage = unsafe extern "C" fn(
    Handle,
    Handle,
    *const c_void,
    *const usize,
    *const usize,
    u32,
    *const Handle,
    *mut Handle,
) -> i32;
type SvmFill = unsafe extern "C" fn(
    Handle,
    *mut c_void,
    *const c_void,
    usize,
    usize,
    u32,
    *const Handle,
    *mut Handle,
) -> i32;

const ZEROS: [u8; 16] = [0; 16];

/// Zeroes a new buffer. False: it could not be done, and the buffer must not be given out.
pub fn buffer(context: &Context, handle: Handle, of: Handle, size: usize) -> bool {
    let fill: FillBuffer = next!("clEnqueueFillBuffer");
    on_scrub_queue(context, of, |queue| {
        let body = size & !15;
        // SAFETY: a live queue and buffer of one context; offsets within the size it was made with.
        unsafe {
            let part = |pattern: usize, at: usize, length: usize| {
                length == 0
                    || fill(
                        queue,
                        handle,
                        ZEROS.as_ptr().cast(),
                        pattern,
                        at,
                        length,
                        0,
                        std::ptr::null(),
                        std::ptr::null_mut(),
                    ) == SUCCESS
            };
            part(16, 0, body) && part(1, body, size - body)
        }
    })
}

/// Zeroes a new image.
pub fn image(context: &Context, handle: Handle, of: Handle, region: [usize; 3]) -> bool {
    let fill: FillImage = next!("clEnqueueFillImage");
    on_scrub_queue(context, of, |queue| {
        let origin = [0usize; 3];
        // SAFETY: a live queue and image of one context; the region is the one the image was made with.
        let code = unsafe {
            fill(
                queue,
                handle,
                ZEROS.as_ptr().cast(),
                origin.as_ptr(),
                region.as_ptr(),
                0,
                std::ptr::null(),
                std::ptr::null_mut(),
            )
        };
        code == SUCCESS
    })
}

/// Zeroes new shared virtual memory.
pub fn svm(context: &Context, pointer: *mut c_void, of: Handle, size: usize) -> bool {
    let fill: SvmFill = next!("clEnqueueSVMMemFill");
    on_scrub_queue(context, of, |queue| {
        // SAFETY: memory the driver just gave for this context, of this size; one-byte patterns need no alignment.
        let code = unsafe {
            fill(
                queue,
                pointer,
                ZEROS.as_ptr().cast(),
                1,
                size,
                0,
                std::ptr::null(),
                std::ptr::null_mut(),
            )
        };
        code == SUCCESS
    })
}

fn on_scrub_queue(context: &Context, of: Handle, work: impl FnOnce(Handle) -> bool) -> bool {
    let Some(first) = context.devices.first() else {
        return false;
    };
    let begun = now_ns();
    let mut scrub = context.scrub.lock().unwrap_or_else(PoisonError::into_inner);
    if scrub.is_none() {
        let create: CreateQueue = next!("clCreateCommandQueue");
        let mut code = SUCCESS;
        // SAFETY: a live context and a device of it.
        let queue = unsafe { create(of, first.device, 0, &mut code) };
        if queue.is_null() || code != SUCCESS {
            return false;
        }
        *scrub = Some(Scrub(queue));
    }
    let Some(Scrub(queue)) = *scrub else {
        return false;
    };
    let finish: Plain = next!("clFinish");
    // SAFETY: our own queue.
    let done = work(queue) && unsafe { finish(queue) } == SUCCESS;
    first.gate.charge_time(now_ns() - begun);
    done
}

/// Lets the context go.
pub fn drop_queue(context: &Context) {
    let release: Plain = next!("clReleaseCommandQueue");
    if let Some(Scrub(queue)) = context
        .scrub
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
    {
        // SAFETY: our own queue, taken out just now.
        unsafe { release(queue) };
    }
}
