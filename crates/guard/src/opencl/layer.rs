//! The two exports a loader looks for, and the table it gets.
//!
//! Every entry of the table is named in exactly one of three lists: hooked, denied, or passed on. A name in none is
//! denied, so a loader with a longer table than ours adds no way past.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use super::abi::{
    ENTRIES, INVALID_VALUE, LAYER_API_VERSION, LAYER_API_VERSION_100, LAYER_NAME, NAMES, OUT_OF_RESOURCES,
    SUCCESS,
};
use super::{
    buffer, context, denied, device, enqueue, event, extension, guarded, image, kernel, map, program, queue,
    svm,
};

pub type Entry = *const c_void;

/// A name and the function of ours that stands for it.
pub struct Hook(pub &'static str, pub Entry);

// SAFETY: the address of a function.
unsafe impl Sync for Hook {}

/// Room for what newer loaders add behind the entries we know; all of that is denied.
const ROOM: usize = 512;

#[derive(Clone, Copy)]
struct Table([Entry; ROOM]);

// SAFETY: addresses of functions.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static NEXT: OnceLock<Table> = OnceLock::new();
static OURS: OnceLock<Table> = OnceLock::new();

/// The function behind this layer at `place`.
///
/// # Safety
/// `F` is the function pointer type of that entry.
pub unsafe fn next<F: Copy>(place: usize) -> F {
    const { assert!(size_of::<F>() == size_of::<Entry>()) };
    let entry = NEXT.get().map_or(denied::refuse as Entry, |table| table.0[place]);
    // SAFETY: a function pointer of the size of a pointer; the caller names its type.
    unsafe { std::mem::transmute_copy(&entry) }
}

/// Our entry for a name, for programs that ask for core functions by name.
pub fn ours(name: &str) -> Option<Entry> {
    let place = NAMES.iter().position(|known| *known == name)?;
    let denied = denied::DENIED.iter().any(|hook| hook.0 == name);
    OURS.get().filter(|_| !denied).map(|table| table.0[place])
}

/// Passed on as they are: they neither allocate on the device, nor give it work, nor show more than the slice.
const PASSED: &[&str] = &[
    "clRetainContext",
    "clGetContextInfo",
    "clRetainMemObject",
    "clReleaseMemObject",
    "clGetSupportedImageFormats",
    "clGetImageInfo",
    "clCreateSampler",
    "clRetainSampler",
    "clReleaseSampler",
    "clGetSamplerInfo",
    "clRetainProgram",
    "clReleaseProgram",
    "clBuildProgram",
    "clUnloadCompiler",
    "clGetProgramInfo",
    "clGetProgramBuildInfo",
    "clCreateKernel",
    "clCreateKernelsInProgram",
    "clRetainKernel",
    "clSetKernelArg",
    "clGetKernelInfo",
    "clGetKernelWorkGroupInfo",
    "clWaitForEvents",
    "clGetEventInfo",
    "clRetainEvent",
    "clReleaseEvent",
    "clFlush",
    "clEnqueueMarker",
    "clEnqueueWaitForEvents",
    "clEnqueueBarrier",
    "clSetEventCallback",
    // The parent is charged and the driver keeps it alive as long as the part.
    "clCreateSubBuffer",
    "clSetMemObjectDestructorCallback",
    "clCreateUserEvent",
    "clSetUserEventStatus",
    "clRetainDevice",
    "clReleaseDevice",
    "clRetainDeviceEXT",
    "clReleaseDeviceEXT",
    "clCompileProgram",
    "clUnloadPlatformCompiler",
    "clGetKernelArgInfo",
    "clEnqueueMarkerWithWaitList",
    "clEnqueueBarrierWithWaitList",
    "clGetPipeInfo",
    "clCreateSamplerWithProperties",
    "clSetKernelArgSVMPointer",
    "clSetKernelExecInfo",
    "clGetKernelSubGroupInfoKHR",
    "clCloneKernel",
    "clGetDeviceAndHostTimer",
    "clGetHostTimer",
    "clGetKernelSubGroupInfo",
    "clSetProgramReleaseCallback",
    "clSetProgramSpecializationConstant",
    "clSetContextDestructorCallback",
];

fn hooked() -> impl Iterator<Item = &'static Hook> {
    [
        device::HOOKS,
        context::HOOKS,
        queue::HOOKS,
        buffer::HOOKS,
        image::HOOKS,
        svm::HOOKS,
        enqueue::HOOKS,
        map::HOOKS,
        program::HOOKS,
        kernel::HOOKS,
        event::HOOKS,
        extension::HOOKS,
    ]
    .into_iter()
    .flatten()
}

fn make_table(next: &Table) -> Table {
    let mut ours = Table([denied::refuse as Entry; ROOM]);
    for (place, name) in NAMES.iter().enumerate() {
        if PASSED.contains(name) {
            ours.0[place] = next.0[place];
        }
        let hook = hooked().find(|hook| hook.0 == *name);
        let denial = denied::DENIED.iter().find(|hook| hook.0 == *name);
        if let Some(Hook(_, function)) = hook.or(denial) {
            ours.0[place] = *function;
        }
    }
    ours
}

/// Tells the loader which interface this layer speaks.
///
/// # Safety
/// Called by an OpenCL loader: `value` has room for `size` bytes or is null, `size_ret` is valid or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetLayerInfo(
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        let version = LAYER_API_VERSION_100.to_ne_bytes();
        let answer: &[u8] = match param {
            LAYER_API_VERSION => &version,
            LAYER_NAME => b"tenure-guard\0",
            _ => return INVALID_VALUE,
        };
        // SAFETY: as the loader promises.
        unsafe { device::answer(answer, size, value, size_ret) }
    })
}

/// Takes the loader's table and gives it ours.
///
/// # Safety
/// Called by an OpenCL loader: `target` points to `entries` function pointers that outlive the process's use of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clInitLayer(
    entries: u32,
    target: *const Entry,
    entries_ret: *mut u32,
    table_ret: *mut *const Entry,
) -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        if target.is_null() || entries_ret.is_null() || table_ret.is_null() {
            return INVALID_VALUE;
        }
        stay_loaded();
        let count = (entries as usize).min(ENTRIES);
        let next = NEXT.get_or_init(|| {
            let mut next = Table([denied::refuse as Entry; ROOM]);
            // SAFETY: the loader's table has at least `count` entries.
            let given = unsafe { std::slice::from_raw_parts(target, count) };
            for (entry, given) in next.0.iter_mut().zip(given).filter(|(_, given)| !given.is_null()) {
                *entry = *given;
            }
            next
        });
        let ours = OURS.get_or_init(|| make_table(next));
        // SAFETY: both checked against null above; the table is static.
        unsafe {
            *entries_ret = entries.min(ROOM as u32);
            *table_ret = ours.0.as_ptr();
        }
        SUCCESS
    })
}

/// The same for newer loaders, which pass a list of properties; none is known to us, none is refused.
///
/// # Safety
/// As for [`clInitLayer`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clInitLayerWithProperties(
    entries: u32,
    target: *const Entry,
    entries_ret: *mut u32,
    table_ret: *mut *const Entry,
    _properties: *const u64,
) -> i32 {
    // SAFETY: the loader's own arguments.
    unsafe { clInitLayer(entries, target, entries_ret, table_ret) }
}

/// The loader is about to let the drivers go: nothing may be asked of them any more.
#[unsafe(no_mangle)]
pub extern "C" fn clDeinitLayer() -> i32 {
    guarded!(OUT_OF_RESOURCES, {
        super::bind::at_exit();
        SUCCESS
    })
}

/// Newer loaders unload layers; the keeper's thread and the driver's callbacks need the code to stay.
fn stay_loaded() {
    // SAFETY: asks for the library that holds this very function and loads it once more, never to be unloaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(clGetLayerInfo as *const c_void, &mut info) != 0 && !info.dli_fname.is_null() {
            libc::dlopen(
                info.dli_fname,
                libc::RTLD_NOW | libc::RTLD_NODELETE | libc::RTLD_NOLOAD,
            );
        }
    }
}

/// A C string's text, or nothing.
///
/// # Safety
/// `text` is null or a C string.
pub unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, and a C string as the caller promises.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_named_once() {
        for name in NAMES {
            let lists = [
                PASSED.iter().filter(|passed| **passed == name).count(),
                hooked().filter(|hook| hook.0 == name).count(),
                denied::DENIED.iter().filter(|hook| hook.0 == name).count(),
            ];
            assert_eq!(lists.iter().sum::<usize>(), 1, "{name}: {lists:?}");
        }
        let known = PASSED.iter().chain(hooked().map(|hook| &hook.0));
        for name in known.chain(denied::DENIED.iter().map(|hook| &hook.0)) {
            assert!(NAMES.contains(name), "{name} is not in the table");
        }
    }
}
