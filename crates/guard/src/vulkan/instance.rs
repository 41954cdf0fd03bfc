//! Instances: made through the chain, with everything the layer will ask of them looked up at once.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use super::abi::{
    Code, ERROR_INITIALIZATION_FAILED, Handle, LINK, LOADER_INSTANCE_CREATE_INFO, LayerLink, Link,
    LoaderInfo, MemoryProperties, MemoryProperties2, ProcAddr, SUCCESS,
};
use super::bind::Binding;
use super::chain;
use super::queue::GetFamilies;
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("vkCreateInstance", create as Entry),
    Hook("vkDestroyInstance", destroy as Entry),
];

pub type Enumerate = unsafe extern "system" fn(Handle, *mut u32, *mut Handle) -> Code;
pub type GetMemory = unsafe extern "system" fn(Handle, *mut MemoryProperties);
pub type GetMemory2 = unsafe extern "system" fn(Handle, *mut MemoryProperties2);
pub type GetProperties2 = unsafe extern "system" fn(Handle, *mut c_void);
type Destroy = unsafe extern "system" fn(Handle, *const c_void);

/// What lies behind an instance.
pub struct Instance {
    pub proc_addr: ProcAddr,
    pub enumerate: Enumerate,
    pub memory: GetMemory,
    pub memory_2: Option<GetMemory2>,
    pub properties_2: Option<GetProperties2>,
    pub families: GetFamilies,
    destroy: Destroy,
    /// The job's devices among the physical ones, found when they are first enumerated.
    pub bound: Mutex<Option<Vec<(usize, &'static Binding)>>>,
}

static INSTANCES: Mutex<Option<HashMap<usize, Arc<Instance>>>> = Mutex::new(None);

/// What an instance, and every object of it, has in its first word.
pub fn key(handle: Handle) -> usize {
    // SAFETY: a live dispatchable object, as the caller of a Vulkan function promises.
    unsafe { *handle.cast::<usize>() }
}

/// The instance of an object.
pub fn of(handle: Handle) -> Option<Arc<Instance>> {
    let all = INSTANCES.lock().unwrap_or_else(PoisonError::into_inner);
    all.as_ref()?.get(&key(handle)).cloned()
}

/// The function of a name behind an object, as the type expected.
///
/// # Safety
/// `F` is the function pointer type of that name.
pub unsafe fn behind<F: Copy>(proc_addr: ProcAddr, handle: Handle, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<Entry>()) };
    // SAFETY: the chain's own function; a C string.
    let entry = unsafe { proc_addr(handle, name.as_ptr()) };
    // SAFETY: a function pointer of the size of a pointer; the caller names its type.
    (!entry.is_null()).then(|| unsafe { std::mem::transmute_copy(&entry) })
}

/// The loader's information of a kind in a creation's chain.
///
/// # Safety
/// `head` begins a chain of live structures.
pub unsafe fn loader_info(head: *mut Link, kind: u32, function: u32) -> Option<*mut LoaderInfo> {
    // SAFETY: as promised; every link of this kind is the loader's.
    let found = unsafe {
        chain::find(head, |at, found| {
            found == kind && (*at.cast::<LoaderInfo>()).function == function
        })
    };
    found.map(|link| link.cast())
}

unsafe extern "system" fn create(info: *const Link, allocator: *const c_void, instance: *mut Handle) -> Code {
    type Create = unsafe extern "system" fn(*const Link, *const c_void, *mut Handle) -> Code;
    guarded!(ERROR_INITIALIZATION_FAILED, {
        if info.is_null() || instance.is_null() {
            return ERROR_INITIALIZATION_FAILED;
        }
        // SAFETY: the loader's chain; this layer's link is put forward to the next layer's, as each layer must.
        unsafe {
            let Some(ours) = loader_info((*info).next, LOADER_INSTANCE_CREATE_INFO, LINK) else {
                return ERROR_INITIALIZATION_FAILED;
            };
            let link = (*ours).value.cast::<LayerLink>();
            let proc_addr = (*link).instance_proc_addr;
            (*ours).value = (*link).next;
            let next: Create = match behind(proc_addr, std::ptr::null_mut(), c"vkCreateInstance") {
                Some(next) => next,
                None => return ERROR_INITIALIZATION_FAILED,
            };
            let code = next(info, allocator, instance);
            if code != SUCCESS {
                return code;
            }
            keep_loaded();
            match resolve(proc_addr, *instance) {
                Some(made) => {
                    let mut all = INSTANCES.lock().unwrap_or_else(PoisonError::into_inner);
                    all.get_or_insert_default().insert(key(*instance), Arc::new(made));
                    SUCCESS
                }
                None => ERROR_INITIALIZATION_FAILED,
            }
        }
    })
}

/// # Safety
/// An instance just made, and the function its chain goes on with.
unsafe fn resolve(proc_addr: ProcAddr, instance: Handle) -> Option<Instance> {
    // SAFETY: each name with the type the Vulkan headers give it.
    unsafe {
        Some(Instance {
            proc_addr,
            enumerate: behind(proc_addr, instance, c"vkEnumeratePhysicalDevices")?,
            memory: behind(proc_addr, instance, c"vkGetPhysicalDeviceMemoryProperties")?,
            memory_2: behind(proc_addr, instance, c"vkGetPhysicalDeviceMemoryProperties2")
                .or_else(|| behind(proc_addr, instance, c"vkGetPhysicalDeviceMemoryProperties2KHR")),
            properties_2: behind(proc_addr, instance, c"vkGetPhysicalDeviceProperties2")
                .or_else(|| behind(proc_addr, instance, c"vkGetPhysicalDeviceProperties2KHR")),
            families: behind(proc_addr, instance, c"vkGetPhysicalDeviceQueueFamilyProperties")?,
            destroy: behind(proc_addr, instance, c"vkDestroyInstance")?,
            bound: Mutex::new(None),
        })
    }
}

/// The loader unloads layers with the last instance; gates and their threads live as long as the process.
fn keep_loaded() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: asks for the library that holds this very function, and loads it once more for good.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            if libc::dladdr(create as Entry, &mut info) != 0 && !info.dli_fname.is_null() {
                let how = libc::RTLD_NOW | libc::RTLD_NODELETE | libc::RTLD_NOLOAD;
                libc::dlopen(info.dli_fname, how);
            }
        }
    });
}

unsafe extern "system" fn destroy(instance: Handle, allocator: *const c_void) {
    guarded!((), {
        if instance.is_null() {
            return;
        }
        let gone = {
            let mut all = INSTANCES.lock().unwrap_or_else(PoisonError::into_inner);
            all.as_mut().and_then(|all| all.remove(&key(instance)))
        };
        if let Some(gone) = gone {
            // SAFETY: the caller's own arguments.
            unsafe { (gone.destroy)(instance, allocator) };
        }
    })
}
