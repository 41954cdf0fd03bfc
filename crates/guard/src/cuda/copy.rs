//! Copies over the device's boundary, counted for the audit: which way and how many bytes, never which.
//!
//! They are passed on as they are, and only those count that the driver took and that are not merely being taken down.
//! Deliberately absent: copies from device to device, which stay within; batches; and the forms of CUDA 3.1 and before.

use std::ffi::c_void;

use super::abi::{Code, Copy2d, Copy3d, DevicePtr, Handle, MEMORY_HOST, MEMORY_UNIFIED, SUCCESS, UNKNOWN};
use super::bind::current;
use super::launch::{captures, own};
use super::real;
use crate::gate::Way;
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("cuMemcpyHtoD_v2", to_device as Entry),
    Hook("cuMemcpyHtoD_v2_ptds", to_device_ptds as Entry),
    Hook("cuMemcpyHtoDAsync_v2", to_device_async as Entry),
    Hook("cuMemcpyHtoDAsync_v2_ptsz", to_device_async_ptsz as Entry),
    Hook("cuMemcpyDtoH_v2", to_host as Entry),
    Hook("cuMemcpyDtoH_v2_ptds", to_host_ptds as Entry),
    Hook("cuMemcpyDtoHAsync_v2", to_host_async as Entry),
    Hook("cuMemcpyDtoHAsync_v2_ptsz", to_host_async_ptsz as Entry),
    Hook("cuMemcpy", anywhere as Entry),
    Hook("cuMemcpy_ptds", anywhere_ptds as Entry),
    Hook("cuMemcpyAsync", anywhere_async as Entry),
    Hook("cuMemcpyAsync_ptsz", anywhere_async_ptsz as Entry),
    Hook("cuMemcpy2D_v2", flat as Entry),
    Hook("cuMemcpy2D_v2_ptds", flat_ptds as Entry),
    Hook("cuMemcpy2DUnaligned_v2", flat_unaligned as Entry),
    Hook("cuMemcpy2DUnaligned_v2_ptds", flat_unaligned_ptds as Entry),
    Hook("cuMemcpy2DAsync_v2", flat_async as Entry),
    Hook("cuMemcpy2DAsync_v2_ptsz", flat_async_ptsz as Entry),
    Hook("cuMemcpy3D_v2", deep as Entry),
    Hook("cuMemcpy3D_v2_ptds", deep_ptds as Entry),
    Hook("cuMemcpy3DAsync_v2", deep_async as Entry),
    Hook("cuMemcpy3DAsync_v2_ptsz", deep_async_ptsz as Entry),
];

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
const MEMORY_TYPE: u32 = 2;

/// Counts a copy that the driver took.
fn count(code: Code, way: impl FnOnce() -> Option<Way>, bytes: u64) -> Code {
    if code == SUCCESS
        && let (Some(way), Ok(binding)) = (way(), current())
    {
        binding.gate.count_bytes(way, bytes);
    }
    code
}

/// The same on a stream, unless that only takes it down.
fn count_on(
    stream: Handle,
    way: impl FnOnce() -> Option<Way>,
    bytes: u64,
    next: impl FnOnce() -> Code,
) -> Code {
    let taken_down = captures(stream);
    let code = next();
    match taken_down {
        true => code,
        false => count(code, way, bytes),
    }
}

/// Whether an address is the host's: the driver knows nothing of the host's own, and of what it gave it says.
fn is_hosts(address: DevicePtr) -> bool {
    let ask: unsafe extern "C" fn(*mut c_void, u32, DevicePtr) -> Code = real!("cuPointerGetAttribute");
    let mut kind = 0u32;
    // SAFETY: room for the answer; any address may be asked about.
    let code = unsafe { ask((&raw mut kind).cast(), MEMORY_TYPE, address) };
    code != SUCCESS || kind == MEMORY_HOST
}

/// Which way, from one kind of memory to another; none stays where it is.
fn between(from_host: bool, to_host: bool) -> Option<Way> {
    match (from_host, to_host) {
        (true, false) => Some(Way::In),
        (false, true) => Some(Way::Out),
        _ => None,
    }
}

fn by_address(to: DevicePtr, from: DevicePtr) -> Option<Way> {
    between(is_hosts(from), is_hosts(to))
}

fn kind_is_hosts(kind: u32, address: DevicePtr) -> bool {
    match kind {
        MEMORY_UNIFIED => is_hosts(address),
        kind => kind == MEMORY_HOST,
    }
}

/// What a structure of the driver's says of its copy.
trait Shape {
    fn way(&self) -> Option<Way>;
    fn bytes(&self) -> u64;
}

impl Shape for Copy2d {
    fn way(&self) -> Option<Way> {
        between(
            kind_is_hosts(self.from_kind, self.from_device),
            kind_is_hosts(self.to_kind, self.to_device),
        )
    }

    fn bytes(&self) -> u64 {
        (self.width as u64).saturating_mul(self.height as u64)
    }
}

impl Shape for Copy3d {
    fn way(&self) -> Option<Way> {
        between(
            kind_is_hosts(self.from_kind, self.from_device),
            kind_is_hosts(self.to_kind, self.to_device),
        )
    }

    fn bytes(&self) -> u64 {
        (self.width as u64)
            .saturating_mul(self.height as u64)
            .saturating_mul(self.depth as u64)
    }
}

/// Linear copies, at once and on a stream.
macro_rules! linear {
    ($($function:ident $name:literal, $on_stream:ident $on_stream_name:literal $per_thread:literal: $way:expr;)*) => {$(
        unsafe extern "C" fn $function(to: DevicePtr, from: DevicePtr, bytes: usize) -> Code {
            let next: unsafe extern "C" fn(DevicePtr, DevicePtr, usize) -> Code = real!($name);
            let way: fn(DevicePtr, DevicePtr) -> Option<Way> = $way;
            // SAFETY: the caller's own arguments.
            guarded!(UNKNOWN, count(unsafe { next(to, from, bytes) }, || way(to, from), bytes as u64))
        }

        unsafe extern "C" fn $on_stream(to: DevicePtr, from: DevicePtr, bytes: usize, stream: Handle) -> Code {
            let next: unsafe extern "C" fn(DevicePtr, DevicePtr, usize, Handle) -> Code = real!($on_stream_name);
            let way: fn(DevicePtr, DevicePtr) -> Option<Way> = $way;
            // SAFETY: the caller's own arguments.
            let next = || unsafe { next(to, from, bytes, stream) };
            guarded!(UNKNOWN, count_on(own(stream, $per_thread), || way(to, from), bytes as u64, next))
        }
    )*};
}

linear! {
    to_device "cuMemcpyHtoD_v2", to_device_async "cuMemcpyHtoDAsync_v2" false: |_, _| Some(Way::In);
    to_device_ptds "cuMemcpyHtoD_v2_ptds", to_device_async_ptsz "cuMemcpyHtoDAsync_v2_ptsz" true: |_, _| Some(Way::In);
    to_host "cuMemcpyDtoH_v2", to_host_async "cuMemcpyDtoHAsync_v2" false: |_, _| Some(Way::Out);
    to_host_ptds "cuMemcpyDtoH_v2_ptds", to_host_async_ptsz "cuMemcpyDtoHAsync_v2_ptsz" true: |_, _| Some(Way::Out);
    anywhere "cuMemcpy", anywhere_async "cuMemcpyAsync" false: by_address;
    anywhere_ptds "cuMemcpy_ptds", anywhere_async_ptsz "cuMemcpyAsync_ptsz" true: by_address;
}

/// Copies that a structure describes, at once.
macro_rules! shaped {
    ($($function:ident $name:literal $shape:ty;)*) => {$(
        unsafe extern "C" fn $function(what: *const $shape) -> Code {
            let next: unsafe extern "C" fn(*const $shape) -> Code = real!($name);
            guarded!(UNKNOWN, {
                // SAFETY: the caller's own argument, which the driver takes for what it is.
                match unsafe { (next(what), what.as_ref()) } {
                    (code, Some(what)) => count(code, || what.way(), what.bytes()),
                    (code, None) => code,
                }
            })
        }
    )*};
}

shaped! {
    flat "cuMemcpy2D_v2" Copy2d;
    flat_ptds "cuMemcpy2D_v2_ptds" Copy2d;
    flat_unaligned "cuMemcpy2DUnaligned_v2" Copy2d;
    flat_unaligned_ptds "cuMemcpy2DUnaligned_v2_ptds" Copy2d;
    deep "cuMemcpy3D_v2" Copy3d;
    deep_ptds "cuMemcpy3D_v2_ptds" Copy3d;
}

/// The same on a stream.
macro_rules! shaped_on_streams {
    ($($function:ident $name:literal $shape:ty, $per_thread:literal;)*) => {$(
        unsafe extern "C" fn $function(what: *const $shape, stream: Handle) -> Code {
            let next: unsafe extern "C" fn(*const $shape, Handle) -> Code = real!($name);
            guarded!(UNKNOWN, {
                // SAFETY: the caller's own arguments.
                let next = || unsafe { next(what, stream) };
                // SAFETY: null, or what the driver takes for what it is.
                match unsafe { what.as_ref() } {
                    Some(what) => count_on(own(stream, $per_thread), || what.way(), what.bytes(), next),
                    None => next(),
                }
            })
        }
    )*};
}

shaped_on_streams! {
    flat_async "cuMemcpy2DAsync_v2" Copy2d, false;
    flat_async_ptsz "cuMemcpy2DAsync_v2_ptsz" Copy2d, true;
    deep_async "cuMemcpy3DAsync_v2" Copy3d, false;
    deep_async_ptsz "cuMemcpy3DAsync_v2_ptsz" Copy3d, true;
}
