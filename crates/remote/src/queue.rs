//! Command queues.

use std::ffi::c_void;
use std::sync::Arc;

use tenure_wire::Request;

use crate::abi::{
    Handle, INVALID_COMMAND_QUEUE, INVALID_DEVICE, INVALID_OPERATION, INVALID_QUEUE_PROPERTIES,
    INVALID_VALUE, QUEUE_OUT_OF_ORDER, QUEUE_PROFILING, QUEUE_PROPERTIES,
};
use crate::callback::print_what_came;
use crate::context::Context;
use crate::device::Device;
use crate::export::{answer, bytes_of, done, made, pairs};
use crate::link::Remote;
use crate::object::{self, Kind, Object, get, hold};

pub struct Queue {
    pub remote: Remote,
    pub context: Arc<Object<Context>>,
    pub device: Arc<Object<Device>>,
    properties: u64,
    asked: Vec<u64>,
}

impl Queue {
    /// Whether a command may go in pieces of which the last has its event: they end in order, and nobody asks when the
    /// first began.
    pub fn takes_pieces(&self) -> bool {
        self.properties & (QUEUE_OUT_OF_ORDER | QUEUE_PROFILING) == 0
    }
}

impl Kind for Queue {
    const MARK: u32 = 0x5155_4555;
    const INVALID: i32 = INVALID_COMMAND_QUEUE;
}

/// # Safety
/// The handles are null or live OpenCL objects.
unsafe fn new(context: Handle, device: Handle, properties: u64, asked: Vec<u64>) -> Result<Handle, i32> {
    // SAFETY: as promised.
    let (context, device) = unsafe { (hold::<Context>(context)?, hold::<Device>(device)?) };
    if !context.devices.iter().any(|own| own.number == device.number) {
        return Err(INVALID_DEVICE);
    }
    if properties & !(QUEUE_OUT_OF_ORDER | QUEUE_PROFILING) != 0 {
        return Err(INVALID_QUEUE_PROPERTIES);
    }
    let (remote, _) = Remote::make(context.remote.link, |id| Request::Queue {
        id,
        context: context.remote.id,
        device: device.number,
        properties,
        extra: Vec::new(),
    })?;
    Ok(Object::give(Object::new(Queue {
        remote,
        context,
        device,
        properties,
        asked,
    })))
}

pub unsafe extern "C" fn create(context: Handle, device: Handle, properties: u64, code: *mut i32) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe { made(code, || new(context, device, properties, Vec::new())) }
}

pub unsafe extern "C" fn create_with_properties(
    context: Handle,
    device: Handle,
    properties: *const u64,
    code: *mut i32,
) -> Handle {
    const SIZE: u64 = 0x1094;
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let asked = pairs(properties);
            let mut wanted = 0;
            for pair in asked.chunks_exact(2) {
                match pair[0] {
                    QUEUE_PROPERTIES => wanted = pair[1],
                    SIZE => return Err(INVALID_QUEUE_PROPERTIES),
                    _ => return Err(INVALID_VALUE),
                }
            }
            new(context, device, wanted, asked)
        })
    }
}

pub unsafe extern "C" fn set_property(_: Handle, _: u64, _: u32, _: *mut u64) -> i32 {
    INVALID_OPERATION
}

pub unsafe extern "C" fn retain(queue: Handle) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe { object::retain::<Queue>(queue) })
}

pub unsafe extern "C" fn release(queue: Handle) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe { object::release::<Queue>(queue) }.map(|_| ()))
}

pub unsafe extern "C" fn get_info(
    queue: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let queue = unsafe { get::<Queue>(queue)? };
        let bytes = match param {
            0x1090 => bytes_of(&[queue.context.handle()]),
            0x1091 => bytes_of(&[queue.device.handle()]),
            0x1092 => bytes_of(&[queue.references()]),
            0x1093 => bytes_of(&[queue.properties]),
            // The size, which only queues on the device have.
            0x1094 => return Err(INVALID_COMMAND_QUEUE),
            0x1095 => bytes_of(&[0usize]),
            0x1098 => bytes_of(&queue.asked),
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}

pub unsafe extern "C" fn flush(queue: Handle) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let queue = unsafe { get::<Queue>(queue)? };
        queue.remote.link.post(&Request::Flush {
            queue: queue.remote.id,
        })
    })
}

pub unsafe extern "C" fn finish(queue: Handle) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let queue = unsafe { get::<Queue>(queue)? };
        let (link, id) = (queue.remote.link, queue.remote.id);
        let mark = link.pendings.mark();
        let code = link.call(&Request::Finish { queue: id });
        print_what_came(link);
        if link.usable() {
            link.pendings.settle_queue(link, id, mark)?;
        }
        code.map(|_| ())
    })
}
