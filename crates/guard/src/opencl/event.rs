//! Events: profiling is shown only to a program that asked for it.

use std::ffi::c_void;

use super::abi::{EVENT_COMMAND_QUEUE, Handle, OUT_OF_RESOURCES, PROFILING_INFO_NOT_AVAILABLE};
use super::bind::{GetInfo, value_of};
use super::layer::{Entry, Hook};
use super::queue::queue;
use super::{guarded, next};

pub const HOOKS: &[Hook] = &[Hook("clGetEventProfilingInfo", get_profiling_info as Entry)];

unsafe extern "C" fn get_profiling_info(
    event: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        let next: GetInfo = next!("clGetEventProfilingInfo");
        let of = value_of::<usize>(next!("clGetEventInfo"), event, EVENT_COMMAND_QUEUE).unwrap_or(0);
        if queue(of as Handle).is_some_and(|queue| !queue.profiles()) {
            return PROFILING_INFO_NOT_AVAILABLE;
        }
        // SAFETY: the caller's own arguments.
        unsafe { next(event, param, size, value, size_ret) }
    })
}
