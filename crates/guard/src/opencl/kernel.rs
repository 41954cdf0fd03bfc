//! Kernels: launched through the gate, with an estimate of how long each takes by the size of its launch.

use std::sync::Arc;

use super::abi::{Handle, KERNEL_REFERENCE_COUNT, OUT_OF_RESOURCES};
use super::bind::value_of;
use super::command::{Work, command};
use super::layer::{Entry, Hook};
use super::{guarded, next, program};
use crate::gate::Kernel;
use crate::registry::Registry;

pub const HOOKS: &[Hook] = &[
    Hook("clEnqueueNDRangeKernel", enqueue_nd_range_kernel as Entry),
    Hook("clEnqueueTask", enqueue_task as Entry),
    Hook("clReleaseKernel", release_kernel as Entry),
];

static KERNELS: Registry<Kernel> = Registry::new();

fn kernel(handle: Handle) -> Arc<Kernel> {
    KERNELS
        .get(handle)
        .unwrap_or_else(|| KERNELS.set(handle, Kernel::of_hash(program::kernel_hash(handle))))
}

unsafe extern "C" fn enqueue_nd_range_kernel(
    queue: Handle,
    handle: Handle,
    dimensions: u32,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
    waits: u32,
    wait_list: *const Handle,
    event: *mut Handle,
) -> i32 {
    type Enqueue = unsafe extern "C" fn(
        Handle,
        Handle,
        u32,
        *const usize,
        *const usize,
        *const usize,
        u32,
        *const Handle,
        *mut Handle,
    ) -> i32;
    guarded!(OUT_OF_RESOURCES, {
        let next: Enqueue = next!("clEnqueueNDRangeKernel");
        let items = match global.is_null() {
            true => 1,
            // SAFETY: as many sizes as dimensions, as the caller of an OpenCL function promises; at most three.
            false => unsafe { std::slice::from_raw_parts(global, dimensions.min(3) as usize) }
                .iter()
                .fold(1u64, |all, side| all.saturating_mul(*side as u64)),
        };
        let work = Work::Kernel(kernel(handle), Kernel::size_of(items));
        command(queue, work, waits, false, event, |event| {
            // SAFETY: the caller's own arguments.
            unsafe {
                next(
                    queue, handle, dimensions, offset, global, local, waits, wait_list, event,
                )
            }
        })
    })
}

unsafe extern "C" fn enqueue_task(
    queue: Handle,
    handle: Handle,
    waits: u32,
    wait_list: *const Handle,
    event: *mut Handle,
) -> i32 {
    type Enqueue = unsafe extern "C" fn(Handle, Handle, u32, *const Handle, *mut Handle) -> i32;
    guarded!(OUT_OF_RESOURCES, {
        let next: Enqueue = next!("clEnqueueTask");
        command(
            queue,
            Work::Kernel(kernel(handle), 1),
            waits,
            false,
            event,
            |event| {
                // SAFETY: the caller's own arguments.
                unsafe { next(queue, handle, waits, wait_list, event) }
            },
        )
    })
}

unsafe extern "C" fn release_kernel(handle: Handle) -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        let next: unsafe extern "C" fn(Handle) -> i32 = next!("clReleaseKernel");
        if value_of::<u32>(next!("clGetKernelInfo"), handle, KERNEL_REFERENCE_COUNT) == Some(1) {
            KERNELS.remove(handle);
        }
        // SAFETY: the caller's own argument.
        unsafe { next(handle) }
    })
}
