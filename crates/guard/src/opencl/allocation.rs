//! One allocation: charged before the driver is asked, given back when the driver destroys the object (not when the
//! program releases it: kernels and parts of it may keep it alive).

use std::ffi::c_void;

use tenure_limits::Process;

use super::abi::{Handle, SUCCESS};
use super::bind::Binding;
use super::context::Context;
use super::{buffer, next};

/// Bytes charged on every device of a context.
pub struct Allocation {
    parts: Vec<(&'static Binding, *const Process)>,
    bytes: u64,
}

// SAFETY: the process pointers are compared, never followed.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Charges `bytes`, or nothing at all.
    pub fn charge(context: &Context, bytes: u64) -> Option<Allocation> {
        let mut allocation = Allocation {
            parts: Vec::with_capacity(context.devices.len()),
            bytes,
        };
        for binding in &context.devices {
            match binding.gate.charge(bytes) {
                Ok(process) => allocation.parts.push((binding, process)),
                Err(_) => {
                    allocation.give_back();
                    return None;
                }
            }
        }
        Some(allocation)
    }

    /// Brings the charge to what the driver says the object takes. False: the slice has not that much.
    pub fn correct(&mut self, bytes: u64) -> bool {
        while self.bytes < bytes {
            let more = bytes - self.bytes;
            let charged = self
                .parts
                .iter()
                .take_while(|(binding, _)| binding.gate.charge(more).is_ok())
                .count();
            if charged < self.parts.len() {
                self.parts[..charged]
                    .iter()
                    .for_each(|(binding, process)| binding.gate.credit(more, *process));
                return false;
            }
            self.bytes = bytes;
        }
        if bytes < self.bytes {
            let less = self.bytes - bytes;
            self.parts
                .iter()
                .for_each(|(binding, process)| binding.gate.credit(less, *process));
            self.bytes = bytes;
        }
        true
    }

    pub fn give_back(&self) {
        for (binding, process) in &self.parts {
            binding.gate.credit(self.bytes, *process);
        }
    }

    /// Ties the charge to the object's life. False: the driver would not, and the object must not be given out.
    pub fn tie_to(self, object: Handle) -> bool {
        type SetCallback =
            unsafe extern "C" fn(Handle, unsafe extern "C" fn(Handle, *mut c_void), *mut c_void) -> i32;
        let set: SetCallback = next!("clSetMemObjectDestructorCallback");
        let data = Box::into_raw(Box::new(self));
        // SAFETY: a live object; the data is freed by the callback, which the driver calls once.
        if unsafe { set(object, destroyed, data.cast()) } == SUCCESS {
            return true;
        }
        // SAFETY: the driver did not take it.
        unsafe { Box::from_raw(data) }.give_back();
        false
    }
}

unsafe extern "C" fn destroyed(object: Handle, data: *mut c_void) {
    let _ = std::panic::catch_unwind(|| {
        buffer::forget(object);
        // SAFETY: made in `tie_to`, handed back once.
        unsafe { Box::from_raw(data.cast::<Allocation>()) }.give_back();
    });
}
