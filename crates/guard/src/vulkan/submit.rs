//! Submissions: through the gate, followed by a fence of ours whose signal is the end of all before it on the queue.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use super::abi::{
    Code, ERROR_DEVICE_LOST, Handle, Object, PoolCreateInfo, ProcAddr, SUCCESS, SubmitInfo, SubmitInfo2, head,
};
use super::device::{self, Device};
use super::flight;
use super::flight::Flight;
use super::instance::behind;
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("vkQueueSubmit", queue_submit as Entry),
    Hook("vkQueueSubmit2", queue_submit_2 as Entry),
    Hook("vkQueueSubmit2KHR", queue_submit_2 as Entry),
    Hook("vkQueueBindSparse", bind_sparse as Entry),
    Hook("vkQueuePresentKHR", present as Entry),
    Hook("vkQueueWaitIdle", queue_wait as Entry),
    Hook("vkDeviceWaitIdle", device_wait as Entry),
];

type Submit<T> = unsafe extern "system" fn(Handle, u32, *const T, Object) -> Code;
type Plain = unsafe extern "system" fn(Handle) -> Code;
type WithOne = unsafe extern "system" fn(Handle, *const c_void) -> Code;

/// What submitting asks of a device, and fences not in use.
pub struct Submitting {
    submit: Submit<SubmitInfo>,
    submit_2: Option<Submit<SubmitInfo2>>,
    bind_sparse: Submit<c_void>,
    present: Option<WithOne>,
    queue_wait: Plain,
    device_wait: Plain,
    create_fence:
        unsafe extern "system" fn(Handle, *const PoolCreateInfo, *const c_void, *mut Object) -> Code,
    destroy_fence: unsafe extern "system" fn(Handle, Object, *const c_void),
    reset_fences: unsafe extern "system" fn(Handle, u32, *const Object) -> Code,
    pub wait_fences: unsafe extern "system" fn(Handle, u32, *const Object, u32, u64) -> Code,
    idle: Mutex<Vec<Object>>,
}

impl Submitting {
    /// # Safety
    /// A live device, and the function its chain goes on with.
    pub unsafe fn resolve(proc_addr: ProcAddr, device: Handle) -> Option<Submitting> {
        // SAFETY: each name with the type the Vulkan headers give it.
        unsafe {
            Some(Submitting {
                submit: behind(proc_addr, device, c"vkQueueSubmit")?,
                submit_2: behind(proc_addr, device, c"vkQueueSubmit2")
                    .or_else(|| behind(proc_addr, device, c"vkQueueSubmit2KHR")),
                bind_sparse: behind(proc_addr, device, c"vkQueueBindSparse")?,
                present: behind(proc_addr, device, c"vkQueuePresentKHR"),
                queue_wait: behind(proc_addr, device, c"vkQueueWaitIdle")?,
                device_wait: behind(proc_addr, device, c"vkDeviceWaitIdle")?,
                create_fence: behind(proc_addr, device, c"vkCreateFence")?,
                destroy_fence: behind(proc_addr, device, c"vkDestroyFence")?,
                reset_fences: behind(proc_addr, device, c"vkResetFences")?,
                wait_fences: behind(proc_addr, device, c"vkWaitForFences")?,
                idle: Mutex::default(),
            })
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Object>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fence(&self, device: Handle) -> Option<Object> {
        if let Some(fence) = self.idle().pop() {
            return Some(fence);
        }
        let info = PoolCreateInfo {
            head: head(8),
            flags: 0,
            family: 0,
        };
        let mut fence = 0;
        // SAFETY: a structure of our own, room for the answer.
        let code = unsafe { (self.create_fence)(device, &info, std::ptr::null(), &mut fence) };
        (code == SUCCESS).then_some(fence)
    }

    /// A fence was seen to be signalled.
    pub fn put_back(&self, device: Handle, fence: Object) {
        // SAFETY: our own fence, signalled, and waited for by nobody.
        match unsafe { (self.reset_fences)(device, 1, &fence) } {
            SUCCESS => self.idle().push(fence),
            // SAFETY: as above.
            _ => unsafe { (self.destroy_fence)(device, fence, std::ptr::null()) },
        }
    }

    /// The device is going.
    pub fn end(&self, device: Handle) {
        for fence in self.idle().drain(..) {
            // SAFETY: our own fence, in no use.
            unsafe { (self.destroy_fence)(device, fence, std::ptr::null()) };
        }
    }
}

/// Runs `work` alone on a queue; see `zero`, which may be using it.
fn alone<T>(device: &Device, queue: Handle, work: impl FnOnce() -> T) -> T {
    match &device.scrub {
        Some(scrub) => scrub.alone(queue, work),
        None => work(),
    }
}

/// What a list of submissions asks for.
#[derive(Default)]
struct Asked {
    commands: u32,
    waits: u32,
}

/// Gives a queue work; `next` is the driver's function.
fn give(queue: Handle, asked: Asked, next: impl FnOnce(&Device) -> Code) -> Code {
    let Some(device) = device::of(queue) else {
        return ERROR_DEVICE_LOST;
    };
    // Signals and waits alone are no work.
    if asked.commands == 0 {
        return alone(&device, queue, || next(&device));
    }
    let handle = device.handle as Handle;
    let Some((estimate, kernel)) = flight::enter(&device, queue, asked.commands) else {
        return ERROR_DEVICE_LOST;
    };
    let Some(fence) = device.submitting.fence(handle) else {
        device.binding.gate.never_flew(estimate);
        return ERROR_DEVICE_LOST;
    };
    let (code, watched) = alone(&device, queue, || {
        let code = next(&device);
        // SAFETY: the caller's queue and a fence of ours; no submission, only its end.
        let watch = || unsafe { (device.submitting.submit)(queue, 0, std::ptr::null(), fence) };
        (code, code == SUCCESS && watch() == SUCCESS)
    });
    if !watched {
        device.binding.gate.never_flew(estimate);
        device.submitting.idle().push(fence);
        return code;
    }
    flight::watch(Flight::new(
        device,
        queue,
        fence,
        asked.waits > 0,
        estimate,
        kernel,
    ));
    code
}

/// # Safety
/// `list` has `count` elements, or is null.
unsafe fn sum<T>(list: *const T, count: u32, of: impl Fn(&T) -> (u32, u32)) -> Asked {
    let mut asked = Asked::default();
    if list.is_null() {
        return asked;
    }
    // SAFETY: as promised.
    for one in unsafe { std::slice::from_raw_parts(list, count as usize) } {
        let (commands, waits) = of(one);
        asked.commands = asked.commands.saturating_add(commands);
        asked.waits = asked.waits.saturating_add(waits);
    }
    asked
}

unsafe extern "system" fn queue_submit(
    queue: Handle,
    count: u32,
    list: *const SubmitInfo,
    fence: Object,
) -> Code {
    guarded!(ERROR_DEVICE_LOST, {
        // SAFETY: the caller's own list.
        let asked = unsafe { sum(list, count, |one| (one.command_count, one.wait_count)) };
        // SAFETY: the caller's own arguments.
        give(queue, asked, |device| unsafe {
            (device.submitting.submit)(queue, count, list, fence)
        })
    })
}

unsafe extern "system" fn queue_submit_2(
    queue: Handle,
    count: u32,
    list: *const SubmitInfo2,
    fence: Object,
) -> Code {
    guarded!(ERROR_DEVICE_LOST, {
        // SAFETY: the caller's own list.
        let asked = unsafe { sum(list, count, |one| (one.command_count, one.wait_count)) };
        give(queue, asked, |device| match device.submitting.submit_2 {
            // SAFETY: the caller's own arguments.
            Some(next) => unsafe { next(queue, count, list, fence) },
            None => ERROR_DEVICE_LOST,
        })
    })
}

unsafe extern "system" fn bind_sparse(queue: Handle, count: u32, list: *const c_void, fence: Object) -> Code {
    guarded!(ERROR_DEVICE_LOST, {
        // SAFETY: the caller's own arguments.
        let next = |device: &Device| unsafe { (device.submitting.bind_sparse)(queue, count, list, fence) };
        give(queue, Asked::default(), next)
    })
}

unsafe extern "system" fn present(queue: Handle, info: *const c_void) -> Code {
    guarded!(ERROR_DEVICE_LOST, {
        give(queue, Asked::default(), |device| {
            match device.submitting.present {
                // SAFETY: the caller's own arguments.
                Some(next) => unsafe { next(queue, info) },
                None => ERROR_DEVICE_LOST,
            }
        })
    })
}

/// On a queue that zeroing shares the wait is for a fence: held for the whole wait, the queue would be closed to
/// threads on which the wait may depend.
unsafe extern "system" fn queue_wait(queue: Handle) -> Code {
    guarded!(ERROR_DEVICE_LOST, {
        let Some(device) = device::of(queue) else {
            return ERROR_DEVICE_LOST;
        };
        let shared = device.scrub.as_ref().is_some_and(|scrub| scrub.shares(queue));
        let handle = device.handle as Handle;
        let Some(fence) = shared.then(|| device.submitting.fence(handle)).flatten() else {
            // SAFETY: the caller's own argument.
            return unsafe { (device.submitting.queue_wait)(queue) };
        };
        // SAFETY: the caller's queue and a fence of ours; no submission, only its end.
        unsafe {
            let mark = || (device.submitting.submit)(queue, 0, std::ptr::null(), fence);
            let mut code = alone(&device, queue, mark);
            if code == SUCCESS {
                code = (device.submitting.wait_fences)(handle, 1, &fence, 1, u64::MAX);
            }
            device.submitting.put_back(handle, fence);
            code
        }
    })
}

/// All queues of the device: the shared one first, as above, so that what is left is not ours to hold up.
unsafe extern "system" fn device_wait(handle: Handle) -> Code {
    guarded!(ERROR_DEVICE_LOST, {
        let Some(device) = device::of(handle) else {
            return ERROR_DEVICE_LOST;
        };
        let queue = device.scrub.as_ref().map(|scrub| scrub.queue());
        if let Some(queue) =
            queue.filter(|queue| device.scrub.as_ref().is_some_and(|scrub| scrub.shares(*queue)))
        {
            // SAFETY: a queue of this device.
            let code = unsafe { queue_wait(queue) };
            if code != SUCCESS {
                return code;
            }
        }
        // SAFETY: the caller's own argument.
        unsafe { (device.submitting.device_wait)(handle) }
    })
}
