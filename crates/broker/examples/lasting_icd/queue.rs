//! Queues: nothing lies in them, as every command has ended when it is given, but they are counted. A queue that is gone
//! stays in memory as such, so that whoever uses it still is found out.

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::abi::{Handle, INVALID_COMMAND_QUEUE, SUCCESS};
use crate::memory::fault;
use crate::{event, made, of, said};

/// A slow driver's way to take a marker.
const SLOW: Duration = Duration::from_millis(30);

struct Queue {
    references: AtomicI64,
}

pub unsafe extern "C" fn create(
    _context: Handle,
    _device: Handle,
    _properties: u64,
    code: *mut i32,
) -> Handle {
    // SAFETY: as OpenCL has it.
    unsafe { said(code, SUCCESS) };
    made(Queue {
        references: AtomicI64::new(1),
    })
}

pub unsafe extern "C" fn retain(queue: Handle) -> i32 {
    // SAFETY: a queue; it stays in memory.
    match unsafe { of::<Queue>(queue) }.references.fetch_add(1, SeqCst) {
        1.. => SUCCESS,
        _ => INVALID_COMMAND_QUEUE,
    }
}

pub unsafe extern "C" fn release(queue: Handle) -> i32 {
    // SAFETY: as above.
    match unsafe { of::<Queue>(queue) }.references.fetch_sub(1, SeqCst) {
        1.. => SUCCESS,
        _ => INVALID_COMMAND_QUEUE,
    }
}

/// A marker on a queue that is gone, or goes meanwhile, ends the process, as it may with any driver.
pub unsafe extern "C" fn marker(queue: Handle, _waits: u32, _wait: *const Handle, event: *mut Handle) -> i32 {
    if fault() == "slow" {
        std::thread::sleep(SLOW);
    }
    // SAFETY: as above.
    if unsafe { of::<Queue>(queue) }.references.load(SeqCst) < 1 {
        eprintln!("a marker on a queue that is gone");
        std::process::abort();
    }
    // SAFETY: as OpenCL has it.
    unsafe { event::ended(event) };
    SUCCESS
}
