//! Command queues: profiling is added for metering and hidden again, so the program sees what it asked for.

use std::ffi::c_void;
use std::sync::Arc;

use super::abi::{
    Handle, INVALID_DEVICE, INVALID_QUEUE_PROPERTIES, OUT_OF_RESOURCES, QUEUE_ON_DEVICE, QUEUE_OUT_OF_ORDER,
    QUEUE_PROFILING, QUEUE_PROPERTIES, QUEUE_PROPERTIES_ARRAY, QUEUE_REFERENCE_COUNT, SUCCESS,
};
use super::batch::Batch;
use super::bind::{Binding, GetInfo, binding, value_of};
use super::command::{Airborne, airborne};
use super::context::nothing;
use super::layer::{Entry, Hook};
use super::{device, guarded, next};
use crate::registry::Registry;

pub const HOOKS: &[Hook] = &[
    Hook("clCreateCommandQueue", create_queue as Entry),
    Hook(
        "clCreateCommandQueueWithProperties",
        create_queue_with_properties as Entry,
    ),
    Hook("clReleaseCommandQueue", release_queue as Entry),
    Hook("clGetCommandQueueInfo", get_queue_info as Entry),
    Hook("clFinish", finish as Entry),
];

pub struct Queue {
    pub handle: Handle,
    pub binding: &'static Binding,
    pub airborne: Arc<Airborne>,
    pub in_order: bool,
    pub batch: Batch,
    /// The properties the program asked for.
    asked: u64,
    asked_list: Vec<u64>,
}

// SAFETY: handles are names for the driver, which is thread-safe.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    pub fn profiles(&self) -> bool {
        self.asked & QUEUE_PROFILING != 0
    }
}

static QUEUES: Registry<Queue> = Registry::new();

pub fn queue(handle: Handle) -> Option<Arc<Queue>> {
    QUEUES.get(handle)
}

pub fn queues() -> Vec<Arc<Queue>> {
    QUEUES.all()
}

fn remember(handle: Handle, binding: &'static Binding, asked: u64, asked_list: Vec<u64>) {
    QUEUES.set(
        handle,
        Queue {
            handle,
            binding,
            airborne: airborne(binding.device),
            in_order: asked & QUEUE_OUT_OF_ORDER == 0,
            batch: Batch::default(),
            asked,
            asked_list,
        },
    );
}

unsafe extern "C" fn create_queue(context: Handle, device: Handle, asked: u64, code: *mut i32) -> Handle {
    type Create = unsafe extern "C" fn(Handle, Handle, u64, *mut i32) -> Handle;
    guarded!(std::ptr::null_mut(), {
        let next: Create = next!("clCreateCommandQueue");
        let Some(binding) = binding(device) else {
            // SAFETY: as the caller of an OpenCL function promises.
            return unsafe { nothing(code, INVALID_DEVICE) };
        };
        // SAFETY: the caller's own arguments.
        let queue = unsafe { next(context, device, asked | QUEUE_PROFILING, code) };
        if !queue.is_null() {
            remember(queue, binding, asked, Vec::new());
        }
        queue
    })
}

unsafe extern "C" fn create_queue_with_properties(
    context: Handle,
    device: Handle,
    properties: *const u64,
    code: *mut i32,
) -> Handle {
    type Create = unsafe extern "C" fn(Handle, Handle, *const u64, *mut i32) -> Handle;
    guarded!(std::ptr::null_mut(), {
        let next: Create = next!("clCreateCommandQueueWithProperties");
        let Some(binding) = binding(device) else {
            // SAFETY: as the caller of an OpenCL function promises.
            return unsafe { nothing(code, INVALID_DEVICE) };
        };
        // SAFETY: a list of pairs ended by zero, or null, as the caller of an OpenCL function promises.
        let asked_list = unsafe { list_of(properties) };
        let asked = property(&asked_list).unwrap_or(0);
        if asked & QUEUE_ON_DEVICE != 0 {
            // Kernels that launch kernels would pass the gate by.
            // SAFETY: as above.
            return unsafe { nothing(code, INVALID_QUEUE_PROPERTIES) };
        }
        let given = with_profiling(&asked_list);
        // SAFETY: the caller's arguments with a list of our own.
        let queue = unsafe { next(context, device, given.as_ptr(), code) };
        if !queue.is_null() {
            remember(queue, binding, asked, asked_list);
        }
        queue
    })
}

/// # Safety
/// `properties` is null or a list of pairs ended by zero.
unsafe fn list_of(properties: *const u64) -> Vec<u64> {
    let mut list = Vec::new();
    if properties.is_null() {
        return list;
    }
    let mut at = 0;
    loop {
        // SAFETY: within the list, whose end is a zero.
        let name = unsafe { *properties.add(at) };
        list.push(name);
        if name == 0 {
            return list;
        }
        // SAFETY: a name is followed by its value.
        list.push(unsafe { *properties.add(at + 1) });
        at += 2;
    }
}

fn property(list: &[u64]) -> Option<u64> {
    let mut pairs = list.chunks_exact(2);
    pairs
        .find(|pair| pair[0] == u64::from(QUEUE_PROPERTIES))
        .map(|pair| pair[1])
}

fn with_profiling(asked: &[u64]) -> Vec<u64> {
    let mut given = vec![
        u64::from(QUEUE_PROPERTIES),
        property(asked).unwrap_or(0) | QUEUE_PROFILING,
    ];
    let others = asked
        .chunks_exact(2)
        .filter(|pair| pair[0] != u64::from(QUEUE_PROPERTIES));
    given.extend(others.flatten());
    given.push(0);
    given
}

unsafe extern "C" fn get_queue_info(
    handle: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        let next: GetInfo = next!("clGetCommandQueueInfo");
        let known = queue(handle);
        let bytes = match (param, known) {
            (QUEUE_PROPERTIES, Some(queue)) => queue.asked.to_ne_bytes().to_vec(),
            (QUEUE_PROPERTIES_ARRAY, Some(queue)) => queue
                .asked_list
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect(),
            // SAFETY: the caller's own arguments.
            _ => return unsafe { next(handle, param, size, value, size_ret) },
        };
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { device::answer(&bytes, size, value, size_ret) }
    })
}

unsafe extern "C" fn finish(handle: Handle) -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        let next: unsafe extern "C" fn(Handle) -> i32 = next!("clFinish");
        // SAFETY: the caller's own argument.
        let code = unsafe { next(handle) };
        if code == SUCCESS
            && let Some(queue) = queue(handle)
        {
            queue.settle();
        }
        code
    })
}

unsafe extern "C" fn release_queue(handle: Handle) -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        let next: unsafe extern "C" fn(Handle) -> i32 = next!("clReleaseCommandQueue");
        let last = value_of::<u32>(next!("clGetCommandQueueInfo"), handle, QUEUE_REFERENCE_COUNT) == Some(1);
        if last && let Some(queue) = QUEUES.remove(handle) {
            queue.mark_end();
        }
        // SAFETY: the caller's own argument.
        unsafe { next(handle) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiling_is_added_once_and_nothing_lost() {
        let name = u64::from(QUEUE_PROPERTIES);
        assert_eq!(with_profiling(&[]), [name, 2, 0]);
        assert_eq!(with_profiling(&[name, 1, 0]), [name, 3, 0]);
        assert_eq!(with_profiling(&[7, 8, name, 2, 0]), [name, 2, 7, 8, 0]);
    }
}
