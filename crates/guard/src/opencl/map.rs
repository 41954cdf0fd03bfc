//! Mapping buffers and images: transfers that answer with an address.

use std::ffi::c_void;

use super::abi::{Handle, MAP_READ, MAP_WRITE, OUT_OF_RESOURCES, SUCCESS};
use super::command::{Work, command};
use super::enqueue::pixels_of;
use super::layer::{Entry, Hook};
use super::{guarded, next};
use crate::gate::Way;

pub const HOOKS: &[Hook] = &[
    Hook("clEnqueueMapBuffer", map_buffer as Entry),
    Hook("clEnqueueMapImage", map_image as Entry),
];

/// Runs a mapping call as a command and passes its code on.
///
/// # Safety
/// `code` is valid or null.
unsafe fn mapped(
    queue: Handle,
    (bytes, flags): (u64, u64),
    waits: u32,
    blocking: u32,
    event: *mut Handle,
    code: *mut i32,
    call: impl FnOnce(*mut Handle, *mut i32) -> *mut c_void,
) -> *mut c_void {
    let mut address = std::ptr::null_mut();
    // What is written there comes to the device when it is unmapped.
    let way = match flags & MAP_READ {
        0 => Way::In,
        _ if flags & MAP_WRITE != 0 => Way::Both,
        _ => Way::Out,
    };
    let answer = command(
        queue,
        Work::Bytes(bytes, way),
        waits,
        blocking != 0,
        event,
        |event| {
            let mut answer = SUCCESS;
            address = call(event, &mut answer);
            answer
        },
    );
    if !code.is_null() {
        // SAFETY: valid as promised.
        unsafe { *code = answer };
    }
    address
}

unsafe extern "C" fn map_buffer(
    queue: Handle,
    buffer: Handle,
    blocking: u32,
    flags: u64,
    at: usize,
    size: usize,
    waits: u32,
    wait_list: *const Handle,
    event: *mut Handle,
    code: *mut i32,
) -> *mut c_void {
    type Next = unsafe extern "C" fn(
        Handle,
        Handle,
        u32,
        u64,
        usize,
        usize,
        u32,
        *const Handle,
        *mut Handle,
        *mut i32,
    ) -> *mut c_void;
    guarded!(doubt(code), {
        let next: Next = next!("clEnqueueMapBuffer");
        // SAFETY: the caller's own arguments.
        unsafe {
            mapped(
                queue,
                (size as u64, flags),
                waits,
                blocking,
                event,
                code,
                |event, code| {
                    next(
                        queue, buffer, blocking, flags, at, size, waits, wait_list, event, code,
                    )
                },
            )
        }
    })
}

unsafe extern "C" fn map_image(
    queue: Handle,
    image: Handle,
    blocking: u32,
    flags: u64,
    origin: *const usize,
    region: *const usize,
    row_pitch: *mut usize,
    slice_pitch: *mut usize,
    waits: u32,
    wait_list: *const Handle,
    event: *mut Handle,
    code: *mut i32,
) -> *mut c_void {
    type Next = unsafe extern "C" fn(
        Handle,
        Handle,
        u32,
        u64,
        *const usize,
        *const usize,
        *mut usize,
        *mut usize,
        u32,
        *const Handle,
        *mut Handle,
        *mut i32,
    ) -> *mut c_void;
    guarded!(doubt(code), {
        let next: Next = next!("clEnqueueMapImage");
        // SAFETY: the caller's own arguments.
        unsafe {
            mapped(
                queue,
                (pixels_of(image, region), flags),
                waits,
                blocking,
                event,
                code,
                |event, code| {
                    next(
                        queue,
                        image,
                        blocking,
                        flags,
                        origin,
                        region,
                        row_pitch,
                        slice_pitch,
                        waits,
                        wait_list,
                        event,
                        code,
                    )
                },
            )
        }
    })
}

fn doubt(code: *mut i32) -> *mut c_void {
    if !code.is_null() {
        // SAFETY: valid as the caller of an OpenCL function promises.
        unsafe { *code = OUT_OF_RESOURCES };
    }
    std::ptr::null_mut()
}
