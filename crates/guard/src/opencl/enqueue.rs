//! Transfers: reads, writes, copies, fills, migrations, of buffers, images and shared virtual memory. All go through
//! the gate with an estimate by their bytes.

use std::ffi::c_void;

use super::abi::{Handle, IMAGE_ELEMENT_SIZE, MEM_SIZE, OUT_OF_RESOURCES};
use super::bind::value_of;
use super::command::{Work, command};
use super::layer::{Entry, Hook};
use super::{guarded, next};
use crate::gate::Way;

/// Bytes of a region whose first side is in bytes.
///
/// # Safety
/// `region` is null or has three sides.
unsafe fn bytes_in(region: *const usize) -> u64 {
    if region.is_null() {
        return 0;
    }
    // SAFETY: three sides as promised.
    let sides = unsafe { std::slice::from_raw_parts(region, 3) };
    sides
        .iter()
        .fold(1u64, |all, side| all.saturating_mul(*side as u64))
}

/// Bytes of a region whose first side is in pixels, taken for the largest kind.
///
/// # Safety
/// As above.
unsafe fn pixels_in(region: *const usize) -> u64 {
    // SAFETY: as promised.
    unsafe { bytes_in(region) }.saturating_mul(16)
}

/// The same for pixels of an image.
///
/// # Safety
/// As above.
pub unsafe fn pixels_of(image: Handle, region: *const usize) -> u64 {
    let size = value_of::<usize>(next!("clGetImageInfo"), image, IMAGE_ELEMENT_SIZE);
    // SAFETY: as promised.
    unsafe { bytes_in(region) }.saturating_mul(size.unwrap_or(16) as u64)
}

/// # Safety
/// `objects` has `count` handles or is null.
unsafe fn bytes_of_objects(objects: *const Handle, count: u32) -> u64 {
    if objects.is_null() {
        return 0;
    }
    // SAFETY: as promised.
    let objects = unsafe { std::slice::from_raw_parts(objects, count as usize) };
    let size =
        |object: &Handle| value_of::<usize>(next!("clGetMemObjectInfo"), *object, MEM_SIZE).unwrap_or(0);
    objects.iter().map(|object| size(object) as u64).sum()
}

/// # Safety
/// `sizes` has `count` numbers or is null.
unsafe fn sum_of(sizes: *const usize, count: u32) -> u64 {
    if sizes.is_null() {
        return 0;
    }
    // SAFETY: as promised.
    let sizes = unsafe { std::slice::from_raw_parts(sizes, count as usize) };
    sizes
        .iter()
        .fold(0u64, |all, size| all.saturating_add(*size as u64))
}

/// One hook per transfer: its arguments between the queue and the wait list, what it moves, whether it blocks.
macro_rules! transfers {
    ($($place:ident $name:literal ($($arg:ident: $kind:ty),*) moves $bytes:expr, $way:ident, blocks $blocks:expr;)*) => {
        pub const HOOKS: &[Hook] = &[$(Hook($name, $place as Entry)),*];
        $(
            unsafe extern "C" fn $place(
                queue: Handle,
                $($arg: $kind,)*
                waits: u32,
                wait_list: *const Handle,
                event: *mut Handle,
            ) -> i32 {
                type Next = unsafe extern "C" fn(Handle, $($kind,)* u32, *const Handle, *mut Handle) -> i32;
                guarded!(OUT_OF_RESOURCES, {
                    let next: Next = next!($name);
                    // SAFETY: the caller's own arguments, read as the OpenCL function would.
                    let bytes: u64 = unsafe { $bytes };
                    command(queue, Work::Bytes(bytes, Way::$way), waits, $blocks, event, |event| {
                        // SAFETY: the caller's own arguments.
                        unsafe { next(queue, $($arg,)* waits, wait_list, event) }
                    })
                })
            }
        )*
    };
}

type Sides = *const usize;
type Bytes = *mut c_void;
type Const = *const c_void;

#[allow(unused_unsafe)]
mod hooks {
    use super::*;

    transfers! {
        read_buffer "clEnqueueReadBuffer" (b: Handle, blocking: u32, at: usize, size: usize, to: Bytes)
            moves size as u64, Out, blocks blocking != 0;
        write_buffer "clEnqueueWriteBuffer" (b: Handle, blocking: u32, at: usize, size: usize, from: Const)
            moves size as u64, In, blocks blocking != 0;
        read_buffer_rect "clEnqueueReadBufferRect" (b: Handle, blocking: u32, o: Sides, h: Sides, region: Sides,
            brp: usize, bsp: usize, hrp: usize, hsp: usize, to: Bytes)
            moves bytes_in(region), Out, blocks blocking != 0;
        write_buffer_rect "clEnqueueWriteBufferRect" (b: Handle, blocking: u32, o: Sides, h: Sides, region: Sides,
            brp: usize, bsp: usize, hrp: usize, hsp: usize, from: Const)
            moves bytes_in(region), In, blocks blocking != 0;
        copy_buffer "clEnqueueCopyBuffer" (from: Handle, to: Handle, a: usize, b: usize, size: usize)
            moves size as u64, Within, blocks false;
        copy_buffer_rect "clEnqueueCopyBufferRect" (from: Handle, to: Handle, a: Sides, b: Sides, region: Sides,
            frp: usize, fsp: usize, trp: usize, tsp: usize)
            moves bytes_in(region), Within, blocks false;
        fill_buffer "clEnqueueFillBuffer" (b: Handle, pattern: Const, length: usize, at: usize, size: usize)
            moves size as u64, Within, blocks false;
        read_image "clEnqueueReadImage" (i: Handle, blocking: u32, o: Sides, region: Sides, rp: usize, sp: usize,
            to: Bytes)
            moves pixels_of(i, region), Out, blocks blocking != 0;
        write_image "clEnqueueWriteImage" (i: Handle, blocking: u32, o: Sides, region: Sides, rp: usize, sp: usize,
            from: Const)
            moves pixels_of(i, region), In, blocks blocking != 0;
        copy_image "clEnqueueCopyImage" (from: Handle, to: Handle, a: Sides, b: Sides, region: Sides)
            moves pixels_in(region), Within, blocks false;
        copy_image_to_buffer "clEnqueueCopyImageToBuffer" (from: Handle, to: Handle, o: Sides, region: Sides,
            at: usize)
            moves pixels_in(region), Within, blocks false;
        copy_buffer_to_image "clEnqueueCopyBufferToImage" (from: Handle, to: Handle, at: usize, o: Sides,
            region: Sides)
            moves pixels_in(region), Within, blocks false;
        fill_image "clEnqueueFillImage" (i: Handle, color: Const, o: Sides, region: Sides)
            moves pixels_in(region), Within, blocks false;
        unmap "clEnqueueUnmapMemObject" (object: Handle, mapped: Bytes)
            moves bytes_of_objects(&object, 1), Within, blocks false;
        migrate "clEnqueueMigrateMemObjects" (count: u32, objects: *const Handle, flags: u64)
            moves bytes_of_objects(objects, count), Within, blocks false;
        svm_memcpy "clEnqueueSVMMemcpy" (blocking: u32, to: Bytes, from: Const, size: usize)
            moves size as u64, Within, blocks blocking != 0;
        svm_fill "clEnqueueSVMMemFill" (to: Bytes, pattern: Const, length: usize, size: usize)
            moves size as u64, Within, blocks false;
        svm_map "clEnqueueSVMMap" (blocking: u32, flags: u64, at: Bytes, size: usize)
            moves size as u64, Out, blocks blocking != 0;
        svm_unmap "clEnqueueSVMUnmap" (at: Bytes)
            moves 4096, Within, blocks false;
        svm_migrate "clEnqueueSVMMigrateMem" (count: u32, pointers: *const Const, sizes: *const usize, flags: u64)
            moves sum_of(sizes, count), Within, blocks false;
    }
}

pub use hooks::HOOKS;
