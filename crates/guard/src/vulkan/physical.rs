//! Physical devices: only the job's are shown, with the slice for their memory.

use std::ffi::c_void;
use std::sync::PoisonError;

use super::abi::{
    Code, ERROR_INITIALIZATION_FAILED, Group, HEAP_DEVICE_LOCAL, Handle, ID_PROPERTIES, INCOMPLETE,
    IdProperties, Link, MEMORY_BUDGET, MemoryBudget, MemoryProperties, MemoryProperties2, PROPERTIES_2,
    SUCCESS, head,
};
use super::bind::{Binding, binding, mappings};
use super::instance::{Instance, of};
use super::{chain, memory};
use crate::config::Selector;
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("vkEnumeratePhysicalDevices", enumerate as Entry),
    Hook("vkEnumeratePhysicalDeviceGroups", enumerate_groups as Entry),
    Hook("vkEnumeratePhysicalDeviceGroupsKHR", enumerate_groups as Entry),
    Hook("vkGetPhysicalDeviceMemoryProperties", get_memory as Entry),
    Hook("vkGetPhysicalDeviceMemoryProperties2", get_memory_2 as Entry),
    Hook("vkGetPhysicalDeviceMemoryProperties2KHR", get_memory_2 as Entry),
];

/// The job's devices of an instance, in the order of their mappings.
pub fn bound(handle: Handle, instance: &Instance) -> Vec<(usize, &'static Binding)> {
    let mut bound = instance.bound.lock().unwrap_or_else(PoisonError::into_inner);
    bound.get_or_insert_with(|| find(handle, instance)).clone()
}

/// The binding of a physical device.
pub fn binding_of(physical: Handle) -> Option<&'static Binding> {
    let instance = of(physical)?;
    let bound = instance.bound.lock().unwrap_or_else(PoisonError::into_inner);
    let here = bound
        .iter()
        .flatten()
        .find(|(device, _)| *device == physical as usize);
    here.map(|(_, binding)| *binding)
}

fn find(handle: Handle, instance: &Instance) -> Vec<(usize, &'static Binding)> {
    let mut all = [std::ptr::null_mut(); 64];
    let mut count = all.len() as u32;
    // SAFETY: room for as many as said.
    let code = unsafe { (instance.enumerate)(handle, &mut count, all.as_mut_ptr()) };
    let all = match code {
        SUCCESS | INCOMPLETE => &all[..count as usize],
        _ => &[],
    };
    let mut found: Vec<(usize, &'static Binding)> = Vec::new();
    for mapping in mappings() {
        // All drivers together are one list: a place on a platform is a place in it.
        let device = match &mapping.device {
            Selector::Place { device, .. } | Selector::Named { device, .. } => all.get(*device).copied(),
            Selector::Uuid(uuid) => all
                .iter()
                .copied()
                .find(|device| uuid_of(instance, *device).as_ref() == Some(uuid)),
        };
        match device {
            Some(device) if found.iter().all(|(other, _)| *other != device as usize) => {
                found.extend(binding(mapping).map(|binding| (device as usize, binding)));
            }
            Some(_) => crate::say("no Vulkan device is given: two pages stand for one device"),
            None => crate::say(&format!("Vulkan has no device {:?}", mapping.device)),
        }
    }
    found
}

fn uuid_of(instance: &Instance, device: Handle) -> Option<String> {
    /// `VkPhysicalDeviceProperties2`, whose body is not looked at.
    #[repr(C)]
    struct Properties {
        head: Link,
        body: [u64; 256],
    }
    let ask = instance.properties_2?;
    let mut id = IdProperties {
        head: head(ID_PROPERTIES),
        device: [0; 16],
        driver: [0; 16],
        luid: [0; 8],
        node_mask: 0,
        luid_valid: 0,
    };
    let mut properties = Properties {
        head: Link {
            kind: PROPERTIES_2,
            next: (&raw mut id).cast(),
        },
        body: [0; 256],
    };
    // SAFETY: a live device; a chain of two structures with room for the answers.
    unsafe { ask(device, (&raw mut properties).cast::<c_void>()) };
    debug_assert_eq!(properties.head.kind, PROPERTIES_2);
    Some(id.device.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Answers a question for a list in Vulkan's way: how many, or as many as there is room for.
///
/// # Safety
/// `count` is the caller's, `to` is null or has room for `*count`.
unsafe fn answer<T: Copy>(list: &[T], count: *mut u32, to: *mut T) -> Code {
    if count.is_null() {
        return ERROR_INITIALIZATION_FAILED;
    }
    // SAFETY: as promised.
    unsafe {
        if to.is_null() {
            *count = list.len() as u32;
            return SUCCESS;
        }
        let room = (*count as usize).min(list.len());
        std::ptr::copy_nonoverlapping(list.as_ptr(), to, room);
        *count = room as u32;
        if room < list.len() { INCOMPLETE } else { SUCCESS }
    }
}

unsafe extern "system" fn enumerate(handle: Handle, count: *mut u32, devices: *mut Handle) -> Code {
    guarded!(ERROR_INITIALIZATION_FAILED, {
        let Some(instance) = of(handle) else {
            return ERROR_INITIALIZATION_FAILED;
        };
        let shown: Vec<Handle> = bound(handle, &instance)
            .into_iter()
            .map(|(device, _)| device as Handle)
            .collect();
        // SAFETY: the caller's own arguments.
        unsafe { answer(&shown, count, devices) }
    })
}

/// Groups of one device each: those of several would give a device work without its gate.
unsafe extern "system" fn enumerate_groups(handle: Handle, count: *mut u32, groups: *mut Group) -> Code {
    guarded!(ERROR_INITIALIZATION_FAILED, {
        let Some(instance) = of(handle) else {
            return ERROR_INITIALIZATION_FAILED;
        };
        let shown = bound(handle, &instance);
        if count.is_null() || groups.is_null() {
            // SAFETY: the caller's own arguments; nothing is written but the count.
            return unsafe { answer(&shown, count, std::ptr::null_mut()) };
        }
        // SAFETY: the caller's own arguments; each structure keeps the head the caller gave it.
        unsafe {
            let room = (*count as usize).min(shown.len());
            for (place, (device, _)) in shown.iter().take(room).enumerate() {
                let group = &mut *groups.add(place);
                group.count = 1;
                group.devices = [std::ptr::null_mut(); 32];
                group.devices[0] = *device as Handle;
                group.subset = 0;
            }
            *count = room as u32;
            if room < shown.len() { INCOMPLETE } else { SUCCESS }
        }
    })
}

/// Device memory is the slice's.
fn shrink(properties: &mut MemoryProperties, limit: u64) {
    let heaps = properties.heaps.iter_mut().take(properties.heap_count as usize);
    for heap in heaps.filter(|heap| heap.flags & HEAP_DEVICE_LOCAL != 0) {
        heap.size = heap.size.min(limit);
    }
}

unsafe extern "system" fn get_memory(physical: Handle, properties: *mut MemoryProperties) {
    guarded!((), {
        let (Some(instance), false) = (of(physical), properties.is_null()) else {
            return;
        };
        // SAFETY: the caller's own arguments.
        unsafe {
            (instance.memory)(physical, properties);
            shrink(&mut *properties, memory::limit(binding_of(physical)));
        }
    })
}

unsafe extern "system" fn get_memory_2(physical: Handle, properties: *mut MemoryProperties2) {
    guarded!((), {
        let (Some(instance), false) = (of(physical), properties.is_null()) else {
            return;
        };
        let Some(next) = instance.memory_2 else {
            return;
        };
        let binding = binding_of(physical);
        // SAFETY: the caller's own chain.
        unsafe {
            let budget = chain::of_kind((*properties).head.next, MEMORY_BUDGET)
                .map(|link| link.cast::<MemoryBudget>());
            if let Some(budget) = budget {
                (*budget).budget = [0; 16];
                (*budget).usage = [0; 16];
            }
            next(physical, properties);
            let properties = &mut (*properties).properties;
            shrink(properties, memory::limit(binding));
            if let Some(budget) = budget {
                fill(&mut *budget, properties, binding);
            }
        }
    })
}

/// The layer tells budgets itself, so it offers them on drivers that do not.
fn fill(budget: &mut MemoryBudget, properties: &MemoryProperties, binding: Option<&Binding>) {
    let (own, left) = memory::own_and_left(binding);
    for (place, heap) in properties
        .heaps
        .iter()
        .take(properties.heap_count as usize)
        .enumerate()
    {
        if heap.flags & HEAP_DEVICE_LOCAL != 0 {
            budget.usage[place] = own;
            budget.budget[place] = own.saturating_add(left).min(heap.size);
        } else if budget.budget[place] == 0 {
            budget.budget[place] = heap.size;
        }
    }
}
