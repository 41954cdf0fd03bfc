//! The double's functions, as the headers have them. What a driver must check itself is answered with its code; what
//! the worker answers for is asserted. Contexts and queues are here, the rest by its noun.

mod command;
mod memory;
mod program;

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_void};
use std::slice::from_raw_parts;

use super::queue::{self, Order, Tell, enqueue};
use super::{DEVICES, Image, Inside, Key, Memory, PLATFORMS, What, inside, platform_of_device};
use crate::abi::{Handle, SUCCESS};
use crate::driver::Functions;
use crate::format::element_bytes;
use command::*;
use memory::*;
use program::*;

type Sides = *const usize;
type Waits = *const Handle;

/// The largest memory object.
const SIZE_MOST: usize = 16 << 10;

const MEM_COPY: u64 = 1 << 5;
const BUILD_FAILED: i32 = -11;
const ALLOCATION_FAILED: i32 = -4;
const NOT_BUILT: i32 = -45;
const NO_SUCH_KERNEL: i32 = -46;
const IN_USE: i32 = -59;

pub fn functions() -> Functions {
    Functions {
        get_platform_ids,
        get_platform_info: get_any_info,
        get_device_ids,
        get_device_info: get_any_info,
        create_context,
        release_context: release,
        create_queue,
        create_queue_with_properties,
        retain_queue: retain,
        release_queue: release,
        create_buffer,
        create_sub_buffer,
        create_image,
        release_memory: release,
        get_image_info,
        get_image_formats,
        create_sampler,
        release_sampler: release,
        create_program_with_source,
        create_program_with_binary,
        create_program_with_il,
        create_program_with_built_in_kernels,
        build_program,
        compile_program,
        link_program,
        set_specialization,
        release_program: release,
        get_program_info,
        get_build_info,
        create_kernel,
        create_kernels,
        clone_kernel,
        set_kernel_arg,
        release_kernel: release,
        get_kernel_info,
        get_kernel_arg_info,
        get_kernel_work_group_info,
        get_kernel_sub_group_info,
        create_user_event,
        set_user_event_status,
        set_event_callback,
        wait_for_events,
        retain_event: retain,
        release_event: release,
        get_event_info,
        get_event_profiling_info,
        flush,
        finish: queue_finish,
        launch,
        read_buffer,
        write_buffer,
        read_rect,
        write_rect,
        copy_buffer,
        copy_rect,
        fill_buffer,
        read_image,
        write_image,
        copy_image,
        image_to_buffer,
        buffer_to_image,
        fill_image,
        migrate,
        marker,
        barrier,
        get_timers,
    }
}

/// Puts an answer where the worker has room for it.
unsafe fn say(bytes: &[u8], size: usize, value: *mut c_void, there: *mut usize) -> i32 {
    // SAFETY: places of the sizes the worker says, or null.
    unsafe {
        if !there.is_null() {
            *there = bytes.len();
        }
        if !value.is_null() {
            if size < bytes.len() {
                return -30;
            }
            value
                .cast::<u8>()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }
    SUCCESS
}

unsafe fn made(key: Key, code: *mut i32) -> Handle {
    // SAFETY: the worker's own variable.
    unsafe { *code = SUCCESS };
    key as Handle
}

unsafe fn refused(with: i32, code: *mut i32) -> Handle {
    // SAFETY: as above.
    unsafe { *code = with };
    std::ptr::null_mut()
}

unsafe fn three(sides: Sides) -> [usize; 3] {
    // SAFETY: lists of three.
    unsafe { *sides.cast::<[usize; 3]>() }
}

unsafe fn keys(count: u32, list: *const Handle) -> Vec<Key> {
    assert_eq!(count == 0, list.is_null(), "a list as the headers want it");
    match count {
        0 => Vec::new(),
        // SAFETY: a list of the length said.
        _ => unsafe { from_raw_parts(list, count as usize) }
            .iter()
            .map(|key| *key as Key)
            .collect(),
    }
}

unsafe extern "C" fn retain(key: Handle) -> i32 {
    inside().retain(key as Key);
    SUCCESS
}

unsafe extern "C" fn release(key: Handle) -> i32 {
    inside().release(key as Key);
    SUCCESS
}

unsafe extern "C" fn get_platform_ids(_: u32, _: *mut Handle, _: *mut u32) -> i32 {
    unreachable!("the worker looks for platforms once, when it opens a driver")
}

unsafe extern "C" fn get_device_ids(_: Handle, _: u64, _: u32, _: *mut Handle, _: *mut u32) -> i32 {
    unreachable!("as for platforms")
}

unsafe extern "C" fn get_any_info(
    of: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    let of = of as Key;
    assert!(PLATFORMS.contains(&of) || DEVICES.iter().any(|(key, _)| *key == of));
    let answer = if param.is_multiple_of(7) {
        vec![b'x'; 9000]
    } else {
        param.to_ne_bytes().to_vec()
    };
    // SAFETY: as the worker says.
    unsafe { say(&answer, size, value, there) }
}

unsafe extern "C" fn create_context(
    properties: *const isize,
    count: u32,
    devices: *const Handle,
    _: *const c_void,
    _: *mut c_void,
    code: *mut i32,
) -> Handle {
    // SAFETY: lists of the worker's, of the lengths said.
    unsafe {
        let devices = keys(count, devices);
        let platform = PLATFORMS
            .iter()
            .position(|key| *key as isize == *properties.add(1));
        let platform = platform.expect("a platform of the driver's");
        for device in &devices {
            assert_eq!(
                platform_of_device(*device),
                platform,
                "a device of another platform"
            );
        }
        made(inside().make(What::Context { platform, devices }, 0, &[]), code)
    }
}

fn new_queue(context: Handle, device: Handle, properties: u64) -> Option<Key> {
    let mut state = inside();
    let what = What::Queue {
        out_of_order: properties & 1 != 0,
        waiting: Vec::new(),
    };
    state
        .has_device(context as Key, device as Key)
        .then(|| state.make(what, context as Key, &[]))
}

unsafe extern "C" fn create_queue(
    context: Handle,
    device: Handle,
    properties: u64,
    code: *mut i32,
) -> Handle {
    // SAFETY: the worker's own variable.
    unsafe {
        assert_eq!(
            inside().platform_of(context as Key),
            1,
            "a function of another version"
        );
        match new_queue(context, device, properties) {
            Some(key) => made(key, code),
            None => refused(-33, code),
        }
    }
}

unsafe extern "C" fn create_queue_with_properties(
    context: Handle,
    device: Handle,
    properties: *const u64,
    code: *mut i32,
) -> Handle {
    // SAFETY: a list ended by zero, as the worker makes it.
    unsafe {
        assert_eq!(
            inside().platform_of(context as Key),
            0,
            "a function of another version"
        );
        match new_queue(context, device, *properties.add(1)) {
            Some(key) => made(key, code),
            None => refused(-33, code),
        }
    }
}
