//! Command queues: profiling is added for metering and hidden again, so the program sees what it asked for.
//!
//! The guard holds a reference of its own to each: its keeper, which is no thread of the program's, ends what is open on
//! a queue at any time, and the program may let it go at that very moment. The program's references are counted here,
//! since a driver's count is of others too: of the guard's, and with some drivers of events'.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use super::abi::{
    Handle, INVALID_COMMAND_QUEUE, INVALID_DEVICE, INVALID_QUEUE_PROPERTIES, OUT_OF_RESOURCES,
    QUEUE_ON_DEVICE, QUEUE_OUT_OF_ORDER, QUEUE_PROFILING, QUEUE_PROPERTIES, QUEUE_PROPERTIES_ARRAY,
    QUEUE_REFERENCE_COUNT, SUCCESS,
};
use super::batch::Batch;
use super::bind::{Binding, GetInfo, binding};
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
    Hook("clRetainCommandQueue", retain_queue as Entry),
    Hook("clReleaseCommandQueue", release_queue as Entry),
    Hook("clGetCommandQueueInfo", get_queue_info as Entry),
    Hook("clFinish", finish as Entry),
];

/// A queue of the program's. Whoever has this may use the handle: it lives until this is dropped.
pub struct Queue {
    pub handle: Handle,
    pub binding: &'static Binding,
    pub airborne: Arc<Airborne>,
    pub in_order: bool,
    pub batch: Batch,
    /// The properties the program asked for.
    asked: u64,
    asked_list: Vec<u64>,
    /// The program's references.
    held: AtomicU32,
}

// SAFETY: handles are names for the driver, which is thread-safe.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    pub fn profiles(&self) -> bool {
        self.asked & QUEUE_PROFILING != 0
    }

    /// One reference of the program's less; whether it was the last. None: there was none left.
    fn let_go(&self) -> Option<bool> {
        let before = self
            .held
            .fetch_update(AcqRel, Acquire, |held| held.checked_sub(1));
        before.ok().map(|before| before == 1)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let release: Plain = next!("clReleaseCommandQueue");
        // SAFETY: our own reference, given up once.
        unsafe { release(self.handle) };
    }
}

type Plain = unsafe extern "C" fn(Handle) -> i32;

static QUEUES: Registry<Queue> = Registry::new();

pub fn queue(handle: Handle) -> Option<Arc<Queue>> {
    QUEUES.get(handle)
}

pub fn queues() -> Vec<Arc<Queue>> {
    QUEUES.all()
}

/// Takes a new queue into the guard's keeping and passes it on; without a reference of the guard's there is none.
///
/// # Safety
/// `handle` is a queue with one reference, or null; `code` is valid or null.
unsafe fn remember(
    handle: Handle,
    binding: &'static Binding,
    asked: u64,
    asked_list: Vec<u64>,
    code: *mut i32,
) -> Handle {
    if handle.is_null() {
        return handle;
    }
    let retain: Plain = next!("clRetainCommandQueue");
    let release: Plain = next!("clReleaseCommandQueue");
    // SAFETY: as promised; what is not passed on is released.
    unsafe {
        if retain(handle) != SUCCESS {
            release(handle);
            return nothing(code, OUT_OF_RESOURCES);
        }
    }
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
            held: AtomicU32::new(1),
        },
    );
    handle
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
        unsafe {
            let queue = next(context, device, asked | QUEUE_PROFILING, code);
            remember(queue, binding, asked, Vec::new(), code)
        }
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
        unsafe {
            let queue = next(context, device, given.as_ptr(), code);
            remember(queue, binding, asked, asked_list, code)
        }
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
            (QUEUE_REFERENCE_COUNT, Some(queue)) => queue.held.load(Acquire).to_ne_bytes().to_vec(),
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

unsafe extern "C" fn retain_queue(handle: Handle) -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        let next: Plain = next!("clRetainCommandQueue");
        let Some(queue) = queue(handle) else {
            return INVALID_COMMAND_QUEUE;
        };
        // SAFETY: a queue that lives.
        let code = unsafe { next(handle) };
        if code == SUCCESS {
            queue.held.fetch_add(1, AcqRel);
        }
        code
    })
}

unsafe extern "C" fn release_queue(handle: Handle) -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        let next: Plain = next!("clReleaseCommandQueue");
        let known = queue(handle);
        let Some((queue, last)) = known.and_then(|queue| queue.let_go().map(|last| (queue, last))) else {
            // Gone but for the guard perhaps, whose reference is not the program's to give up.
            return INVALID_COMMAND_QUEUE;
        };
        if last {
            QUEUES.remove(handle);
            queue.mark_end();
        }
        // SAFETY: a queue that lives; the reference is the program's.
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
