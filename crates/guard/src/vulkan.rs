//! The Vulkan layer: heaps and budgets show the slice, allocations of device memory are charged and zeroed, submissions
//! wait for the lease. Loaded by the Vulkan loader by the manifest `vulkan_layer.json`.
//!
//! What lies behind is resolved once, inside `vkCreateInstance` and `vkCreateDevice`: a function looked up later would
//! be found through the loader, which starts with this layer again. Deliberately absent: what a driver takes for
//! itself (swapchains, pipelines, descriptors), which no call tells of.

mod abi;
mod allocate;
mod bind;
mod chain;
mod device;
mod flight;
mod instance;
mod memory;
mod physical;
mod queue;
mod shader;
mod submit;
mod zero;

use std::ffi::{CStr, c_char};

use crate::guarded;
use crate::jump::{Entry, Hook};
use abi::{ERROR_INITIALIZATION_FAILED, NegotiateInterface, SUCCESS};

/// Functions of instances and physical devices.
fn of_instances() -> impl Iterator<Item = &'static Hook> {
    [instance::HOOKS, physical::HOOKS, device::CREATE]
        .into_iter()
        .flatten()
}

/// Functions of devices and queues.
fn of_devices() -> impl Iterator<Item = &'static Hook> {
    [device::HOOKS, allocate::HOOKS, shader::HOOKS, submit::HOOKS]
        .into_iter()
        .flatten()
}

/// # Safety
/// `name` is null or a C string.
unsafe fn text<'a>(name: *const c_char) -> &'a str {
    if name.is_null() {
        return "";
    }
    // SAFETY: as promised.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("")
}

fn find(mut hooks: impl Iterator<Item = &'static Hook>, name: &str) -> Option<Entry> {
    hooks.find(|hook| hook.0 == name).map(|hook| hook.1)
}

/// Our function of a name for an instance, or what lies behind.
///
/// # Safety
/// As `vkGetInstanceProcAddr`.
unsafe extern "system" fn instance_proc_addr(handle: abi::Handle, name: *const c_char) -> Entry {
    guarded!(std::ptr::null(), {
        // SAFETY: a C string as the caller promises.
        let text = unsafe { text(name) };
        match text {
            "vkGetInstanceProcAddr" => return instance_proc_addr as Entry,
            "vkGetDeviceProcAddr" => return device_proc_addr as Entry,
            _ => {}
        }
        let known = (!handle.is_null()).then(|| instance::of(handle)).flatten();
        let behind = match &known {
            // SAFETY: the function the instance was made with; the caller's own arguments.
            Some(instance) => unsafe { (instance.proc_addr)(handle, name) },
            None => std::ptr::null(),
        };
        let ours = find(of_instances(), text).or_else(|| find(of_devices(), text));
        match ours {
            // What the driver behind does not have is not ours to give, but for making an instance.
            Some(ours) if !behind.is_null() || text == "vkCreateInstance" => ours,
            _ => behind,
        }
    })
}

/// Our function of a name for a device, or what lies behind.
///
/// # Safety
/// As `vkGetDeviceProcAddr`.
unsafe extern "system" fn device_proc_addr(handle: abi::Handle, name: *const c_char) -> Entry {
    guarded!(std::ptr::null(), {
        // SAFETY: a C string as the caller promises.
        let text = unsafe { text(name) };
        if text == "vkGetDeviceProcAddr" {
            return device_proc_addr as Entry;
        }
        let Some(device) = device::of(handle) else {
            return std::ptr::null();
        };
        // SAFETY: the function the device was made with; the caller's own arguments.
        let behind = unsafe { (device.proc_addr)(handle, name) };
        match find(of_devices(), text) {
            Some(ours) if !behind.is_null() => ours,
            _ => behind,
        }
    })
}

/// Tells the loader which interface this layer speaks, and where it begins.
///
/// # Safety
/// Called by a Vulkan loader: `interface` is its own.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn vkNegotiateLoaderLayerInterfaceVersion(
    interface: *mut NegotiateInterface,
) -> i32 {
    guarded!(ERROR_INITIALIZATION_FAILED, {
        if interface.is_null() {
            return ERROR_INITIALIZATION_FAILED;
        }
        // SAFETY: not null, and the loader's.
        let interface = unsafe { &mut *interface };
        if interface.version < 2 {
            return ERROR_INITIALIZATION_FAILED;
        }
        interface.version = 2;
        interface.instance_proc_addr = instance_proc_addr as Entry;
        interface.device_proc_addr = device_proc_addr as Entry;
        interface.physical_device_proc_addr = std::ptr::null();
        SUCCESS
    })
}
