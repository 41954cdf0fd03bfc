//! Local memory between slices: what another slice's kernels left in it is overwritten before the first kernel of
//! this one, on devices that have memory of that kind. Others share a device with us in turns, so each turn after
//! theirs begins with this (CVE-2023-4969).
//!
//! INVARIANT: no kernel of the program is given to the device while local memory may hold another slice's. Where it
//! cannot be overwritten, no kernel runs.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, OnceLock, PoisonError};

use tenure_limits::now_ns;

use super::abi::{Handle, SUCCESS};
use super::bind::{Binding, value_of};
use super::next;

const LOCAL_MEM_TYPE: u32 = 0x1022;
const LOCAL_MEM_SIZE: u32 = 0x1023;
const MAX_COMPUTE_UNITS: u32 = 0x1002;
const MAX_WORK_GROUP_SIZE: u32 = 0x1004;
/// Memory of its own beside the device's; the other kind is ordinary memory of this process's driver.
const LOCAL: u32 = 1;
/// Groups for each unit: one that has all of a unit's memory is alone there, so these come to all units in turn.
const GROUPS_PER_UNIT: usize = 4;

const SOURCE: &std::ffi::CStr = c"
__kernel void tenure_zero_local(__local volatile uint *local_memory, ulong words) {
    for (ulong at = get_local_id(0); at < words; at += get_local_size(0)) local_memory[at] = 0;
}
";

/// What one device's local memory is overwritten with.
#[derive(Default)]
pub struct Local {
    /// Its bytes; none where the device has no such memory.
    bytes: OnceLock<Option<u64>>,
    made: Mutex<Option<Made>>,
}

struct Made {
    queue: Handle,
    kernel: Handle,
    items: usize,
    group: usize,
}

// SAFETY: names for the driver, which is thread-safe; used under the lock.
unsafe impl Send for Made {}

type CreateContext =
    unsafe extern "C" fn(*const isize, u32, *const Handle, *const c_void, *mut c_void, *mut i32) -> Handle;
type CreateQueue = unsafe extern "C" fn(Handle, Handle, u64, *mut i32) -> Handle;
type CreateProgram = unsafe extern "C" fn(Handle, u32, *const *const i8, *const usize, *mut i32) -> Handle;
type Build = unsafe extern "C" fn(Handle, u32, *const Handle, *const i8, *const c_void, *mut c_void) -> i32;
type CreateKernel = unsafe extern "C" fn(Handle, *const i8, *mut i32) -> Handle;
type SetArg = unsafe extern "C" fn(Handle, u32, usize, *const c_void) -> i32;
type Launch = unsafe extern "C" fn(
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
type Finish = unsafe extern "C" fn(Handle) -> i32;

/// Sees to it that local memory holds nothing of another slice. False: it may, and no kernel must run.
pub fn is_own(binding: &Binding) -> bool {
    let Some(process) = binding.gate.process() else {
        return false;
    };
    if process.local_is_own() {
        return true;
    }
    let bytes = *binding.local.bytes.get_or_init(|| {
        let ask = next!("clGetDeviceInfo");
        value_of::<u32>(ask, binding.device, LOCAL_MEM_TYPE)
            .filter(|kind| *kind == LOCAL)
            .and_then(|_| value_of::<u64>(ask, binding.device, LOCAL_MEM_SIZE))
            .filter(|bytes| *bytes >= 4)
    });
    let Some(bytes) = bytes else {
        return true;
    };
    let mut made = binding.local.made.lock().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have done it meanwhile.
    if process.local_is_own() {
        return true;
    }
    let begun = now_ns();
    if made.is_none() {
        *made = make(binding);
    }
    let done = made.as_ref().is_some_and(|made| overwrite(made, bytes));
    binding.gate.charge_time(now_ns() - begun);
    if done {
        process.own_local();
    }
    done
}

/// In a context of its own, so that no program's error reaches it.
fn make(binding: &Binding) -> Option<Made> {
    let ask = next!("clGetDeviceInfo");
    let units = value_of::<u32>(ask, binding.device, MAX_COMPUTE_UNITS)?.max(1) as usize;
    let group = value_of::<usize>(ask, binding.device, MAX_WORK_GROUP_SIZE)?.clamp(1, 256);
    let create_context: CreateContext = next!("clCreateContext");
    let create_queue: CreateQueue = next!("clCreateCommandQueue");
    let create_program: CreateProgram = next!("clCreateProgramWithSource");
    let build: Build = next!("clBuildProgram");
    let create_kernel: CreateKernel = next!("clCreateKernel");
    let (mut code, source) = (SUCCESS, SOURCE.as_ptr());
    // SAFETY: one device of the driver's, no callbacks; each handle is used only where its making succeeded, and all
    // are kept as long as the process.
    unsafe {
        let context = create_context(null(), 1, &binding.device, null(), null_mut(), &mut code);
        if code != SUCCESS {
            return None;
        }
        let queue = create_queue(context, binding.device, 0, &mut code);
        if code != SUCCESS {
            return None;
        }
        let program = create_program(context, 1, &source, null(), &mut code);
        if code != SUCCESS || build(program, 0, null(), c"".as_ptr(), null(), null_mut()) != SUCCESS {
            return None;
        }
        let kernel = create_kernel(program, c"tenure_zero_local".as_ptr(), &mut code);
        (code == SUCCESS).then_some(Made {
            queue,
            kernel,
            items: units * GROUPS_PER_UNIT * group,
            group,
        })
    }
}

fn overwrite(made: &Made, bytes: u64) -> bool {
    let set: SetArg = next!("clSetKernelArg");
    let launch: Launch = next!("clEnqueueNDRangeKernel");
    let finish: Finish = next!("clFinish");
    let mut words = bytes / 4;
    loop {
        let number: *const u64 = &words;
        // SAFETY: live handles; local memory has a size and no value; the number lives until it is copied by the call;
        // one dimension, whose sizes are live.
        let code = unsafe {
            let set = set(made.kernel, 0, words as usize * 4, null())
                | set(made.kernel, 1, size_of::<u64>(), number.cast());
            match set {
                SUCCESS => launch(
                    made.queue,
                    made.kernel,
                    1,
                    null(),
                    &made.items,
                    &made.group,
                    0,
                    null(),
                    null_mut(),
                ),
                code => code,
            }
        };
        if code == SUCCESS {
            // SAFETY: a live queue.
            return unsafe { finish(made.queue) } == SUCCESS;
        }
        // Some of it the driver keeps for itself; what no kernel can have, no kernel can read.
        if words <= bytes / 4 * 3 / 4 {
            return false;
        }
        words -= (bytes / 64).max(4) / 4;
    }
}
