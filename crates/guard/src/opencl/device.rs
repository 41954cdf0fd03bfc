//! What the program sees of platforms and devices: its own, with the size of its slice.

use std::ffi::c_void;

use super::abi::{
    DEVICE_NOT_FOUND, DEVICE_PARTITION_FAILED, DEVICE_TYPE, Handle, INVALID_DEVICE, INVALID_PLATFORM,
    INVALID_VALUE, OUT_OF_RESOURCES, PLATFORM_EXTENSIONS, PLATFORM_EXTENSIONS_WITH_VERSION,
    PLATFORM_NOT_FOUND, SUCCESS,
};
use super::bind::{Binding, GetInfo, binding, bindings, bytes_of, value_of};
use super::layer::{Entry, Hook};
use super::{extension, guarded, next};

pub const HOOKS: &[Hook] = &[
    Hook("clGetPlatformIDs", get_platform_ids as Entry),
    Hook("clGetPlatformInfo", get_platform_info as Entry),
    Hook("clGetDeviceIDs", get_device_ids as Entry),
    Hook("clGetDeviceInfo", get_device_info as Entry),
    Hook("clCreateSubDevices", create_sub_devices as Entry),
    Hook("clCreateSubDevicesEXT", create_sub_devices as Entry),
];

unsafe extern "C" fn get_platform_ids(entries: u32, platforms: *mut Handle, count: *mut u32) -> i32 {
    guarded!(PLATFORM_NOT_FOUND, {
        if (entries == 0 && !platforms.is_null()) || (platforms.is_null() && count.is_null()) {
            return INVALID_VALUE;
        }
        let mut found: Vec<Handle> = Vec::new();
        for binding in bindings() {
            if !found.contains(&binding.platform) {
                found.push(binding.platform);
            }
        }
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { list(&found, entries, platforms, count, PLATFORM_NOT_FOUND) }
    })
}

/// # Safety
/// `handles` has room for `entries` or is null; `count` is valid or null.
unsafe fn list(found: &[Handle], entries: u32, handles: *mut Handle, count: *mut u32, none: i32) -> i32 {
    if !count.is_null() {
        // SAFETY: valid as promised.
        unsafe { *count = found.len() as u32 };
    }
    if found.is_empty() {
        return none;
    }
    if !handles.is_null() {
        for (place, handle) in found.iter().take(entries as usize).enumerate() {
            // SAFETY: place < entries.
            unsafe { *handles.add(place) = *handle };
        }
    }
    SUCCESS
}

/// The job's devices on a platform of a type the program asks for.
pub fn devices_of(platform: Handle, kind: u64) -> Vec<&'static Binding> {
    const DEFAULT: u64 = 1;
    const ALL: u64 = 0xFFFF_FFFF;
    let mut here = bindings()
        .iter()
        .filter(|binding| platform.is_null() || binding.platform == platform);
    match kind {
        DEFAULT => here.next().into_iter().collect(),
        ALL => here.collect(),
        _ => here
            .filter(|binding| {
                value_of::<u64>(next!("clGetDeviceInfo"), binding.device, DEVICE_TYPE)
                    .is_some_and(|own| own & kind != 0)
            })
            .collect(),
    }
}

unsafe extern "C" fn get_device_ids(
    platform: Handle,
    kind: u64,
    entries: u32,
    devices: *mut Handle,
    count: *mut u32,
) -> i32 {
    guarded!(DEVICE_NOT_FOUND, {
        if (entries == 0 && !devices.is_null()) || (devices.is_null() && count.is_null()) {
            return INVALID_VALUE;
        }
        if bindings()
            .iter()
            .all(|binding| !platform.is_null() && binding.platform != platform)
        {
            return INVALID_PLATFORM;
        }
        let found: Vec<Handle> = devices_of(platform, kind)
            .iter()
            .map(|binding| binding.device)
            .collect();
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { list(&found, entries, devices, count, DEVICE_NOT_FOUND) }
    })
}

unsafe extern "C" fn get_platform_info(
    platform: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        let next: GetInfo = next!("clGetPlatformInfo");
        let filtered = match param {
            PLATFORM_EXTENSIONS => extension::filter_names(&bytes_of(next, platform, param)),
            PLATFORM_EXTENSIONS_WITH_VERSION => extension::filter_versions(&bytes_of(next, platform, param)),
            // SAFETY: the caller's own arguments.
            _ => return unsafe { next(platform, param, size, value, size_ret) },
        };
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&filtered, size, value, size_ret) }
    })
}

unsafe extern "C" fn get_device_info(
    device: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        let next: GetInfo = next!("clGetDeviceInfo");
        let Some(binding) = binding(device) else {
            return INVALID_DEVICE;
        };
        match seen(binding, next, param) {
            // SAFETY: as the caller of an OpenCL function promises.
            Some(bytes) => unsafe { answer(&bytes, size, value, size_ret) },
            // SAFETY: the caller's own arguments.
            None => unsafe { next(device, param, size, value, size_ret) },
        }
    })
}

/// What the program is told instead of the driver's answer, if anything.
fn seen(binding: &Binding, ask: GetInfo, param: u32) -> Option<Vec<u8>> {
    const MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
    const GLOBAL_MEM_CACHE_SIZE: u32 = 0x101E;
    const GLOBAL_MEM_SIZE: u32 = 0x101F;
    const MAX_CONSTANT_BUFFER_SIZE: u32 = 0x1020;
    const EXECUTION_CAPABILITIES: u32 = 0x1029;
    const QUEUE_ON_HOST_PROPERTIES: u32 = 0x102A;
    const EXTENSIONS: u32 = 0x1030;
    const IMAGE_MAX_BUFFER_SIZE: u32 = 0x1040;
    const PARTITION_MAX_SUB_DEVICES: u32 = 0x1043;
    const PARTITION_PROPERTIES: u32 = 0x1044;
    const PARTITION_AFFINITY_DOMAIN: u32 = 0x1045;
    const MAX_GLOBAL_VARIABLE_SIZE: u32 = 0x104D;
    const QUEUE_ON_DEVICE_PROPERTIES: u32 = 0x104E;
    const MAX_ON_DEVICE_QUEUES: u32 = 0x1051;
    const SVM_CAPABILITIES: u32 = 0x1053;
    const GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE: u32 = 0x1054;
    const EXTENSIONS_WITH_VERSION: u32 = 0x1060;
    const DEVICE_ENQUEUE_CAPABILITIES: u32 = 0x1070;
    const GLOBAL_FREE_MEMORY_AMD: u32 = 0x4039;
    const NATIVE_KERNEL: u64 = 2;
    const FINE_GRAIN_SYSTEM: u64 = 4;

    let process = binding.gate.process()?;
    let limit = process.limit_bytes();
    let word = || value_of::<u64>(ask, binding.device, param);
    match param {
        // INVARIANT: no size the program sees is larger than its slice.
        GLOBAL_MEM_SIZE
        | MAX_MEM_ALLOC_SIZE
        | MAX_CONSTANT_BUFFER_SIZE
        | GLOBAL_MEM_CACHE_SIZE
        | MAX_GLOBAL_VARIABLE_SIZE
        | GLOBAL_VARIABLE_PREFERRED_TOTAL_SIZE
        | IMAGE_MAX_BUFFER_SIZE => Some(word()?.min(limit).to_ne_bytes().to_vec()),
        GLOBAL_FREE_MEMORY_AMD => {
            bytes_of(ask, binding.device, param).first()?;
            let free_kib = limit.saturating_sub(process.used_bytes()) / 1024;
            Some([free_kib.to_ne_bytes(), free_kib.to_ne_bytes()].concat())
        }
        EXTENSIONS => Some(extension::filter_names(&bytes_of(ask, binding.device, param))),
        EXTENSIONS_WITH_VERSION => Some(extension::filter_versions(&bytes_of(ask, binding.device, param))),
        EXECUTION_CAPABILITIES => Some((word()? & !NATIVE_KERNEL).to_ne_bytes().to_vec()),
        SVM_CAPABILITIES => Some((word()? & !FINE_GRAIN_SYSTEM).to_ne_bytes().to_vec()),
        QUEUE_ON_HOST_PROPERTIES => None,
        PARTITION_MAX_SUB_DEVICES | MAX_ON_DEVICE_QUEUES => Some(0u32.to_ne_bytes().to_vec()),
        PARTITION_PROPERTIES
        | PARTITION_AFFINITY_DOMAIN
        | QUEUE_ON_DEVICE_PROPERTIES
        | DEVICE_ENQUEUE_CAPABILITIES => Some(0u64.to_ne_bytes().to_vec()),
        _ => None,
    }
}

/// A part of a device would be a device without a page.
unsafe extern "C" fn create_sub_devices(
    _device: Handle,
    _properties: *const isize,
    _entries: u32,
    _devices: *mut Handle,
    count: *mut u32,
) -> i32 {
    if !count.is_null() {
        // SAFETY: valid as the caller of an OpenCL function promises.
        unsafe { *count = 0 };
    }
    DEVICE_PARTITION_FAILED
}

/// Answers a `clGet…Info` question with `bytes`.
///
/// # Safety
/// `value` has room for `size` bytes or is null; `size_ret` is valid or null.
pub unsafe fn answer(bytes: &[u8], size: usize, value: *mut c_void, size_ret: *mut usize) -> i32 {
    if !value.is_null() {
        if size < bytes.len() {
            return INVALID_VALUE;
        }
        // SAFETY: room for `size` bytes, which is enough.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), bytes.len()) };
    }
    if !size_ret.is_null() {
        // SAFETY: valid as promised.
        unsafe { *size_ret = bytes.len() };
    }
    SUCCESS
}
