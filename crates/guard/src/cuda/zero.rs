//! Zero on allocation: what an earlier owner left is gone before the program gets the memory, however that owner ended.
//! Done on a stream of our own in each context, finished before returning, and charged to the slice's time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tenure_limits::now_ns;

use super::abi::{
    CAPTURE_RELAXED, Code, Copy3d, DevicePtr, Handle, MEMORY_ARRAY, MEMORY_HOST, STREAM_NON_BLOCKING,
    SUCCESS, UNKNOWN,
};
use super::bind::{Binding, current_context};
use super::real;

/// Our stream in each context.
static STREAMS: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);

/// A context is gone, and our stream with it.
pub fn forget(context: usize) {
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    streams.as_mut().map(|streams| streams.remove(&context));
}

/// Zeroes linear memory of the current context.
pub fn linear(binding: &Binding, at: DevicePtr, bytes: u64) -> Code {
    let set: unsafe extern "C" fn(DevicePtr, u8, usize, Handle) -> Code = real!("cuMemsetD8Async");
    on_our_stream(binding, |stream| {
        // SAFETY: memory the driver just gave, of this size.
        unsafe { set(at, 0, bytes as usize, stream) }
    })
}

/// Zeroes an array of the current context: rows of `row` bytes.
pub fn array(binding: &Binding, array: Handle, row: usize, rows: usize, layers: usize) -> Code {
    let copy: unsafe extern "C" fn(*const Copy3d, Handle) -> Code = real!("cuMemcpy3DAsync_v2");
    let zeros = vec![0u8; row.saturating_mul(rows)];
    on_our_stream(binding, |stream| {
        for layer in 0..layers {
            // SAFETY: plain data, for which zeros are good values.
            let mut from_zeros: Copy3d = unsafe { std::mem::zeroed() };
            from_zeros.from_kind = MEMORY_HOST;
            from_zeros.from_host = zeros.as_ptr().cast();
            from_zeros.from_pitch = row;
            from_zeros.from_height = rows;
            from_zeros.to_kind = MEMORY_ARRAY;
            from_zeros.to_array = array;
            from_zeros.to_z = layer;
            (from_zeros.width, from_zeros.height, from_zeros.depth) = (row, rows, 1);
            // SAFETY: the array has these sides; the zeros live until the stream has been waited for.
            let code = unsafe { copy(&from_zeros, stream) };
            if code != SUCCESS {
                return code;
            }
        }
        SUCCESS
    })
}

/// Runs `work` on our stream of the current context and waits for it. Another thread may be capturing a graph: what
/// is done here is not part of it.
fn on_our_stream(binding: &Binding, work: impl FnOnce(Handle) -> Code) -> Code {
    let wait: unsafe extern "C" fn(Handle) -> Code = real!("cuStreamSynchronize");
    let begun = now_ns();
    let code = beside_captures(|| match stream() {
        Ok(stream) => match work(stream) {
            // SAFETY: our own stream.
            SUCCESS => unsafe { wait(stream) },
            code => {
                // SAFETY: as above.
                unsafe { wait(stream) };
                code
            }
        },
        Err(code) => code,
    });
    binding.gate.charge_time(now_ns() - begun);
    code
}

/// Runs `work` so that it neither joins nor breaks what threads of the program capture.
pub fn beside_captures<T>(work: impl FnOnce() -> T) -> T {
    let exchange: unsafe extern "C" fn(*mut i32) -> Code = real!("cuThreadExchangeStreamCaptureMode");
    let mut mode = CAPTURE_RELAXED;
    // SAFETY: a number of our own, exchanged and put back.
    let exchanged = unsafe { exchange(&mut mode) } == SUCCESS;
    let answer = work();
    if exchanged {
        // SAFETY: as above.
        unsafe { exchange(&mut mode) };
    }
    answer
}

fn stream() -> Result<Handle, Code> {
    let create: unsafe extern "C" fn(*mut Handle, u32) -> Code = real!("cuStreamCreate");
    let context = current_context();
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let streams = streams.get_or_insert_default();
    if let Some(stream) = streams.get(&context) {
        return Ok(*stream as Handle);
    }
    let mut stream: Handle = std::ptr::null_mut();
    // SAFETY: room for the answer.
    match unsafe { create(&mut stream, STREAM_NON_BLOCKING) } {
        SUCCESS if !stream.is_null() => {
            streams.insert(context, stream as usize);
            Ok(stream)
        }
        SUCCESS => Err(UNKNOWN),
        code => Err(code),
    }
}
