//! Shared virtual memory: charged, zeroed, and given back when freed, at once or by a command.

use std::ffi::c_void;
use std::sync::Arc;

use super::abi::{COMPLETE, Handle, OUT_OF_RESOURCES, SUCCESS};
use super::allocation::Allocation;
use super::command::{Work, command};
use super::context::context;
use super::layer::{Entry, Hook};
use super::{guarded, next, zero};
use crate::gate::Way;
use crate::registry::Registry;

pub const HOOKS: &[Hook] = &[
    Hook("clSVMAlloc", svm_alloc as Entry),
    Hook("clSVMFree", svm_free as Entry),
    Hook("clEnqueueSVMFree", enqueue_svm_free as Entry),
];

static POINTERS: Registry<Allocation> = Registry::new();

type Free = unsafe extern "C" fn(Handle, *mut c_void);
type FreeNotify = Option<unsafe extern "C" fn(Handle, u32, *mut *mut c_void, *mut c_void)>;

unsafe extern "C" fn svm_alloc(of: Handle, flags: u64, size: usize, alignment: u32) -> *mut c_void {
    type Alloc = unsafe extern "C" fn(Handle, u64, usize, u32) -> *mut c_void;
    guarded!(std::ptr::null_mut(), {
        let next: Alloc = next!("clSVMAlloc");
        let free: Free = next!("clSVMFree");
        let charged = context(of).and_then(|context| {
            let allocation = Allocation::charge(&context, size as u64)?;
            Some((context, allocation))
        });
        let Some((context, allocation)) = charged.filter(|_| size > 0) else {
            return std::ptr::null_mut();
        };
        // SAFETY: the caller's own arguments.
        let pointer = unsafe { next(of, flags, size, alignment) };
        if pointer.is_null() || !zero::svm(&context, pointer, of, size) {
            if !pointer.is_null() {
                // SAFETY: just made, not given out.
                unsafe { free(of, pointer) };
            }
            allocation.give_back();
            return std::ptr::null_mut();
        }
        POINTERS.set(pointer, allocation);
        pointer
    })
}

unsafe extern "C" fn svm_free(of: Handle, pointer: *mut c_void) {
    guarded!((), {
        let next: Free = next!("clSVMFree");
        // Forgotten first: the driver may give the same address to another thread at once.
        let allocation = POINTERS.remove(pointer);
        // SAFETY: the caller's own arguments.
        unsafe { next(of, pointer) };
        if let Some(allocation) = allocation {
            allocation.give_back();
        }
    })
}

unsafe extern "C" fn enqueue_svm_free(
    queue: Handle,
    count: u32,
    pointers: *mut *mut c_void,
    notify: FreeNotify,
    data: *mut c_void,
    waits: u32,
    wait_list: *const Handle,
    event: *mut Handle,
) -> i32 {
    type Next = unsafe extern "C" fn(
        Handle,
        u32,
        *mut *mut c_void,
        FreeNotify,
        *mut c_void,
        u32,
        *const Handle,
        *mut Handle,
    ) -> i32;
    guarded!(OUT_OF_RESOURCES, {
        let next: Next = next!("clEnqueueSVMFree");
        let mut freed = Vec::new();
        // With a function of its own the program frees by `clSVMFree`, which is hooked.
        if notify.is_none() && !pointers.is_null() {
            // SAFETY: as many pointers as it says, as the caller of an OpenCL function promises.
            let pointers = unsafe { std::slice::from_raw_parts(pointers, count as usize) };
            freed.extend(pointers.iter().filter_map(|pointer| POINTERS.remove(*pointer)));
        }
        let mut own: Handle = std::ptr::null_mut();
        let place = if event.is_null() { &raw mut own } else { event };
        let code = command(queue, Work::Bytes(0, Way::Within), waits, false, place, |event| {
            // SAFETY: the caller's own arguments.
            unsafe { next(queue, count, pointers, notify, data, waits, wait_list, event) }
        });
        // SAFETY: written by the driver when it succeeded.
        let ended = unsafe { *place };
        if code == SUCCESS && !ended.is_null() {
            give_back_after(ended, freed);
        }
        if !own.is_null() {
            let release: unsafe extern "C" fn(Handle) -> i32 = next!("clReleaseEvent");
            // SAFETY: our own reference.
            unsafe { release(own) };
        }
        code
    })
}

fn give_back_after(event: Handle, freed: Vec<Arc<Allocation>>) {
    type SetCallback =
        unsafe extern "C" fn(Handle, i32, unsafe extern "C" fn(Handle, i32, *mut c_void), *mut c_void) -> i32;
    let set: SetCallback = next!("clSetEventCallback");
    let data = Box::into_raw(Box::new(freed));
    // SAFETY: a live event; the data is freed by the callback, which the driver calls once.
    if unsafe { set(event, COMPLETE, give_back, data.cast()) } != SUCCESS {
        // SAFETY: the driver did not take it. The bytes stay charged until the process ends: the safe side.
        drop(unsafe { Box::from_raw(data) });
    }
}

unsafe extern "C" fn give_back(_event: Handle, _status: i32, data: *mut c_void) {
    let _ = std::panic::catch_unwind(|| {
        // SAFETY: made in `give_back_after`, handed back once.
        let freed = unsafe { Box::from_raw(data.cast::<Vec<Arc<Allocation>>>()) };
        freed.iter().for_each(|allocation| allocation.give_back());
    });
}
