//! Device memory: charged before the driver is asked, zeroed before the program gets it, given back when it is freed.
//!
//! Memory of the host, which the driver only borrows, is nobody's charge. Memory brought in from elsewhere is charged
//! and left as it is. Memory to be shown elsewhere would live on uncharged, and is refused.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use super::abi::{
    AllocateInfo, BUFFER_REQUIREMENTS_INFO, Code, DEDICATED, DEDICATED_REQUIREMENTS, Dedicated,
    DedicatedRequirements, ERROR_INITIALIZATION_FAILED, ERROR_INVALID_EXTERNAL_HANDLE,
    ERROR_OUT_OF_DEVICE_MEMORY, EXPORT_MEMORY, ExportMemory, HEAP_DEVICE_LOCAL, Handle,
    IMAGE_REQUIREMENTS_INFO, IMPORTS, Link, Object, ProcAddr, REQUIREMENTS_2, Requirements, Requirements2,
    RequirementsInfo, SUCCESS, head,
};
use super::chain::{self, Without};
use super::device::{self, Device};
use super::instance::behind;
use super::memory::Charge;
use super::zero::{self, Zeroed};
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("vkAllocateMemory", allocate as Entry),
    Hook("vkFreeMemory", free as Entry),
];

/// Allocations are made in whole grains, so that a fill reaches their last byte.
const GRAIN: u64 = 256;

type Allocate = unsafe extern "system" fn(Handle, *const AllocateInfo, *const c_void, *mut Object) -> Code;
type Free = unsafe extern "system" fn(Handle, Object, *const c_void);
type GetRequirements = unsafe extern "system" fn(Handle, *const RequirementsInfo, *mut Requirements2);

/// What a device's memory is asked of, and what of it is held.
pub struct Held {
    allocate: Allocate,
    free: Free,
    of_image: Option<GetRequirements>,
    of_buffer: Option<GetRequirements>,
    charges: Mutex<HashMap<Object, Charge>>,
}

impl Held {
    /// # Safety
    /// A live device, and the function its chain goes on with.
    pub unsafe fn resolve(proc_addr: ProcAddr, device: Handle) -> Option<Held> {
        // SAFETY: each name with the type the Vulkan headers give it.
        unsafe {
            let either =
                |core, khr| behind(proc_addr, device, core).or_else(|| behind(proc_addr, device, khr));
            Some(Held {
                allocate: behind(proc_addr, device, c"vkAllocateMemory")?,
                free: behind(proc_addr, device, c"vkFreeMemory")?,
                of_image: either(
                    c"vkGetImageMemoryRequirements2",
                    c"vkGetImageMemoryRequirements2KHR",
                ),
                of_buffer: either(
                    c"vkGetBufferMemoryRequirements2",
                    c"vkGetBufferMemoryRequirements2KHR",
                ),
                charges: Mutex::default(),
            })
        }
    }
}

/// Whether the driver insists that memory be one object's alone. Where it only prefers so, it is not: nothing of ours
/// could be bound there to zero it.
///
/// # Safety
/// `dedicated` is a live structure of the program's.
unsafe fn insists(device: &Device, dedicated: *const Dedicated) -> bool {
    // SAFETY: as promised.
    let Dedicated { image, buffer, .. } = unsafe { &*dedicated };
    let (ask, kind, object) = match *image != 0 {
        true => (device.held.of_image, IMAGE_REQUIREMENTS_INFO, *image),
        false => (device.held.of_buffer, BUFFER_REQUIREMENTS_INFO, *buffer),
    };
    let Some(ask) = ask.filter(|_| object != 0) else {
        return object != 0;
    };
    let mut answer = DedicatedRequirements {
        head: head(DEDICATED_REQUIREMENTS),
        prefers: 0,
        requires: 0,
    };
    let mut requirements = Requirements2 {
        head: Link {
            kind: REQUIREMENTS_2,
            next: (&raw mut answer).cast(),
        },
        requirements: Requirements::default(),
    };
    let question = RequirementsInfo {
        head: head(kind),
        object,
    };
    // SAFETY: a live object of the program's; chains of our own with room for the answers.
    unsafe { ask(device.handle as Handle, &question, &mut requirements) };
    answer.requires != 0
}

unsafe extern "system" fn allocate(
    handle: Handle,
    info: *const AllocateInfo,
    allocator: *const c_void,
    memory: *mut Object,
) -> Code {
    guarded!(ERROR_OUT_OF_DEVICE_MEMORY, {
        let Some(device) = device::of(handle) else {
            return ERROR_INITIALIZATION_FAILED;
        };
        if info.is_null() || memory.is_null() {
            return ERROR_OUT_OF_DEVICE_MEMORY;
        }
        // SAFETY: the caller's own arguments, a chain of live structures.
        unsafe {
            let mut wanted = *info;
            let kind = device
                .memory
                .types
                .get(wanted.memory_type as usize)
                .copied()
                .unwrap_or_default();
            let heap = device
                .memory
                .heaps
                .get(kind.heap as usize)
                .copied()
                .unwrap_or_default();
            if heap.flags & HEAP_DEVICE_LOCAL == 0 {
                return (device.held.allocate)(handle, info, allocator, memory);
            }
            let chain = wanted.head.next;
            let shown =
                chain::of_kind(chain, EXPORT_MEMORY).map(|link| (*link.cast::<ExportMemory>()).handle_types);
            if shown.is_some_and(|handles| handles != 0) {
                return ERROR_INVALID_EXTERNAL_HANDLE;
            }
            let imported = chain::find(chain, |_, kind| IMPORTS.contains(&kind)).is_some();
            let dedicated = chain::of_kind(chain, DEDICATED).filter(|_| !imported);
            let without = dedicated
                .filter(|link| !insists(&device, link.cast::<Dedicated>()))
                .and_then(|link| Without::new(chain, link));
            if let Some(without) = &without {
                wanted.head.next = without.first();
            }
            let alone = dedicated.is_some() && without.is_none();
            if !imported && !alone {
                wanted.size = wanted.size.checked_next_multiple_of(GRAIN).unwrap_or(wanted.size);
            }
            let Some(charge) = Charge::take(device.binding, wanted.size) else {
                return ERROR_OUT_OF_DEVICE_MEMORY;
            };
            let code = (device.held.allocate)(handle, &wanted, allocator, memory);
            if code != SUCCESS {
                return code;
            }
            let zeroed = match imported {
                true => Zeroed::Done,
                false => zero::memory(&device, *memory, &wanted, kind.flags, alone),
            };
            if zeroed != Zeroed::Done {
                match zeroed {
                    Zeroed::Not => (device.held.free)(handle, *memory, allocator),
                    // Nobody has it, and it stays charged.
                    _ => std::mem::forget(charge),
                }
                *memory = 0;
                return ERROR_OUT_OF_DEVICE_MEMORY;
            }
            let mut charges = device.held.charges.lock().unwrap_or_else(PoisonError::into_inner);
            charges.insert(*memory, charge);
            SUCCESS
        }
    })
}

unsafe extern "system" fn free(handle: Handle, memory: Object, allocator: *const c_void) {
    guarded!((), {
        let Some(device) = device::of(handle) else {
            return;
        };
        let charge = {
            let mut charges = device.held.charges.lock().unwrap_or_else(PoisonError::into_inner);
            charges.remove(&memory)
        };
        // SAFETY: the caller's own arguments.
        unsafe { (device.held.free)(handle, memory, allocator) };
        drop(charge);
    })
}
