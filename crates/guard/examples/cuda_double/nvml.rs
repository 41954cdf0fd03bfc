//! What NVML tells of the same devices.

use std::ffi::c_char;

use crate::context::uuid;
use crate::export::{Handle, SUCCESS, exports, give, given};
use crate::store::devices;

const INVALID_ARGUMENT: i32 = 2;

#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
struct Memory2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// Handles are numbers from one.
fn index(device: Handle) -> Option<usize> {
    (device as usize)
        .checked_sub(1)
        .filter(|at| *at < devices().len())
}

exports! {
    nvmlInit_v2() { SUCCESS }
    nvmlInitWithFlags(_flags: u32) { SUCCESS }
    nvmlShutdown() { SUCCESS }
    nvmlDeviceGetCount_v2(count: *mut u32) { give(count, devices().len() as u32) }
    nvmlDeviceGetHandleByIndex_v2(at: u32, to: *mut Handle) { give(to, (at as usize + 1) as Handle) }
    nvmlDeviceGetIndex(device: Handle, to: *mut u32) {
        index(device).map_or(INVALID_ARGUMENT, |at| give(to, at as u32))
    }
    nvmlDeviceGetUUID(device: Handle, to: *mut c_char, room: u32) {
        let Some(at) = index(device).filter(|_| room > 40) else {
            return INVALID_ARGUMENT;
        };
        let hex: String = uuid(at as i32).iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        for (place, byte) in format!("GPU-{}\0", parts.join("-")).bytes().enumerate() {
            give(to.wrapping_add(place), byte as c_char);
        }
        SUCCESS
    }
    nvmlDeviceGetMemoryInfo(device: Handle, to: *mut Memory) {
        let Some(at) = index(device) else {
            return INVALID_ARGUMENT;
        };
        let device = &devices()[at];
        let free = device.free();
        give(to, Memory { total: device.total, free, used: device.total - free })
    }
    nvmlDeviceGetMemoryInfo_v2(device: Handle, to: *mut Memory2) {
        let (Some(at), Some(version)) = (index(device), given(to.cast_const().cast::<u32>())) else {
            return INVALID_ARGUMENT;
        };
        let device = &devices()[at];
        let free = device.free();
        give(to, Memory2 { version, total: device.total, reserved: 1 << 20, free, used: device.total - free })
    }
}
