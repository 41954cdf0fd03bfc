//! Devices: made through the chain on the job's physical devices only, with everything the layer will ask of them
//! looked up at once; and their queues.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use super::abi::{
    Code, DeviceCreateInfo, ERROR_INITIALIZATION_FAILED, Handle, LINK, LOADER_DATA,
    LOADER_DEVICE_CREATE_INFO, LayerLink, MemoryProperties, ProcAddr, SUCCESS, SetLoaderData,
};
use super::allocate::Held;
use super::bind::Binding;
use super::instance::{Instance, behind, key, loader_info};
use super::physical::binding_of;
use super::queue::{self, Family, Place};
use super::submit::Submitting;
use super::zero::Scrub;
use super::{flight, instance, shader};
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const CREATE: &[Hook] = &[Hook("vkCreateDevice", create as Entry)];
pub const HOOKS: &[Hook] = &[Hook("vkDestroyDevice", destroy as Entry)];

/// A device, what lies behind it, and what the layer keeps of it.
pub struct Device {
    pub handle: usize,
    pub binding: &'static Binding,
    pub proc_addr: ProcAddr,
    pub memory: MemoryProperties,
    pub held: Held,
    pub submitting: Submitting,
    pub scrub: Option<Scrub>,
    pub create_shader: shader::Create,
    destroy: unsafe extern "system" fn(Handle, *const c_void),
}

static DEVICES: Mutex<Option<HashMap<usize, Arc<Device>>>> = Mutex::new(None);

/// The device of an object.
pub fn of(handle: Handle) -> Option<Arc<Device>> {
    let all = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    all.as_ref()?.get(&key(handle)).cloned()
}

type Create = unsafe extern "system" fn(Handle, *const DeviceCreateInfo, *const c_void, *mut Handle) -> Code;

unsafe extern "system" fn create(
    physical: Handle,
    info: *const DeviceCreateInfo,
    allocator: *const c_void,
    device: *mut Handle,
) -> Code {
    guarded!(ERROR_INITIALIZATION_FAILED, {
        let (Some(instance), Some(binding)) = (instance::of(physical), binding_of(physical)) else {
            return ERROR_INITIALIZATION_FAILED;
        };
        if info.is_null() || device.is_null() {
            return ERROR_INITIALIZATION_FAILED;
        }
        // SAFETY: the loader's chain; this layer's link is put forward to the next layer's, as each layer must. The
        // lists are as long as they say.
        unsafe {
            let chain = (*info).head.next;
            let Some(ours) = loader_info(chain, LOADER_DEVICE_CREATE_INFO, LINK) else {
                return ERROR_INITIALIZATION_FAILED;
            };
            let loader_data = loader_info(chain, LOADER_DEVICE_CREATE_INFO, LOADER_DATA)
                .map(|info| std::mem::transmute::<*mut c_void, SetLoaderData>((*info).value));
            let link = (*ours).value.cast::<LayerLink>();
            let (instance_proc_addr, proc_addr) = ((*link).instance_proc_addr, (*link).device_proc_addr);
            (*ours).value = (*link).next;
            let next: Option<Create> = behind(instance_proc_addr, std::ptr::null_mut(), c"vkCreateDevice");
            let (Some(next), Some(proc_addr)) = (next, proc_addr) else {
                return ERROR_INITIALIZATION_FAILED;
            };
            let mut wanted = *info;
            let families = families(&instance, physical);
            let queues = queue::choose(slice(wanted.queues, wanted.queue_count), &families);
            wanted.queues = queues.wanted.as_ptr();
            let code = next(physical, &wanted, allocator, device);
            if code != SUCCESS {
                return code;
            }
            let mut memory = MemoryProperties::default();
            (instance.memory)(physical, &mut memory);
            match resolve(*device, proc_addr, binding, memory, queues.place, loader_data) {
                Some(made) => {
                    let mut all = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
                    all.get_or_insert_default().insert(key(*device), Arc::new(made));
                    SUCCESS
                }
                None => ERROR_INITIALIZATION_FAILED,
            }
        }
    })
}

fn families(instance: &Instance, physical: Handle) -> Vec<Family> {
    let mut families = vec![Family::default(); 64];
    let mut count = families.len() as u32;
    // SAFETY: a live device, room for as many as said.
    unsafe { (instance.families)(physical, &mut count, families.as_mut_ptr()) };
    families.truncate(count as usize);
    families
}

/// # Safety
/// `list` has `count` elements, or is null.
unsafe fn slice<'a, T>(list: *const T, count: u32) -> &'a [T] {
    match list.is_null() {
        true => &[],
        // SAFETY: as promised.
        false => unsafe { std::slice::from_raw_parts(list, count as usize) },
    }
}

/// # Safety
/// A device just made with a queue at this place, and the function its chain goes on with.
unsafe fn resolve(
    handle: Handle,
    proc_addr: ProcAddr,
    binding: &'static Binding,
    memory: MemoryProperties,
    place: Option<Place>,
    loader_data: Option<SetLoaderData>,
) -> Option<Device> {
    // SAFETY: each name with the type the Vulkan headers give it.
    unsafe {
        Some(Device {
            handle: handle as usize,
            binding,
            proc_addr,
            memory,
            held: Held::resolve(proc_addr, handle)?,
            submitting: Submitting::resolve(proc_addr, handle)?,
            scrub: place.and_then(|place| Scrub::resolve(proc_addr, handle, place, loader_data)),
            create_shader: behind(proc_addr, handle, c"vkCreateShaderModule")?,
            destroy: behind(proc_addr, handle, c"vkDestroyDevice")?,
        })
    }
}

unsafe extern "system" fn destroy(handle: Handle, allocator: *const c_void) {
    guarded!((), {
        if handle.is_null() {
            return;
        }
        let gone = {
            let mut all = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
            all.as_mut().and_then(|all| all.remove(&key(handle)))
        };
        let Some(gone) = gone else {
            return;
        };
        // Its work has ended, as Vulkan asks of whoever destroys it; ours with it.
        flight::settle(&gone);
        if let Some(scrub) = &gone.scrub {
            scrub.end(handle);
        }
        gone.submitting.end(handle);
        // SAFETY: the caller's own arguments.
        unsafe { (gone.destroy)(handle, allocator) };
    })
}
