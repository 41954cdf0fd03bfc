//! Linear memory, copies and fills.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use crate::context::{current, device};
use crate::export::{Code, Handle, INVALID_VALUE, NOT_FOUND, SUCCESS, exports, give};
use crate::pool;
use crate::store::{Piece, devices, unmap};
use crate::stream::{enqueue, wait_for_all};

struct Block {
    context: usize,
    piece: Arc<Piece>,
}

static BLOCKS: Mutex<BTreeMap<u64, Block>> = Mutex::new(BTreeMap::new());

fn allocate(to: *mut u64, bytes: usize) -> Result<(), Code> {
    if to.is_null() || bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let room = devices()[device()? as usize].take(bytes as u64)?;
    let piece = Piece::new(bytes, Some(room))?;
    let at = piece.map(None)?;
    piece.soil(at);
    put(at, piece)?;
    give(to, at);
    Ok(())
}

fn put(at: u64, piece: Arc<Piece>) -> Result<(), Code> {
    let context = current().unwrap_or(0);
    BLOCKS.lock().unwrap().insert(at, Block { context, piece });
    Ok(())
}

fn free(at: u64) -> Result<(), Code> {
    let block = BLOCKS.lock().unwrap().remove(&at).ok_or(INVALID_VALUE)?;
    unmap(at, block.piece.bytes);
    Ok(())
}

pub fn free_all_of(context: usize) {
    let all: Vec<u64> = {
        let blocks = BLOCKS.lock().unwrap();
        blocks
            .iter()
            .filter(|(_, block)| block.context == context)
            .map(|(at, _)| *at)
            .collect()
    };
    all.into_iter().for_each(|at| {
        let _ = free(at);
    });
}

fn copy(to: u64, from: u64, bytes: usize, stream: Handle) -> Code {
    enqueue(stream, move || {
        // SAFETY: two ranges of the program's, or of its device memory, which is the host's.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
    })
}

fn fill(at: u64, value: &[u8], times: usize, stream: Handle) -> Code {
    let value = value.to_vec();
    enqueue(stream, move || {
        for place in 0..times {
            let to = at as usize + place * value.len();
            // SAFETY: within the range the program says it has.
            unsafe { std::ptr::copy(value.as_ptr(), to as *mut u8, value.len()) };
        }
    })
}

fn clear(at: u64, byte: u8, bytes: usize, stream: Handle) -> Code {
    // SAFETY: within the range the program says it has.
    enqueue(stream, move || unsafe {
        std::ptr::write_bytes(at as *mut u8, byte, bytes)
    })
}

fn now(begun: Code) -> Code {
    if begun == SUCCESS {
        wait_for_all();
    }
    begun
}

const NULL: Handle = std::ptr::null_mut();

/// What an IPC handle says: whose, which descriptor, how long.
#[repr(C)]
#[derive(Clone, Copy)]
struct Shared {
    process: u32,
    descriptor: i32,
    bytes: u64,
    rest: [u64; 6],
}

exports! {
    cuMemAlloc_v2(to: *mut u64, bytes: usize) { crate::export::code(allocate(to, bytes)) }
    cuMemAllocManaged(to: *mut u64, bytes: usize, _flags: u32) { crate::export::code(allocate(to, bytes)) }
    cuMemAllocPitch_v2(to: *mut u64, pitch: *mut usize, width: usize, height: usize, _element: u32) {
        let row = width.next_multiple_of(1024);
        match allocate(to, row * height) {
            Ok(()) => give(pitch, row),
            Err(code) => code,
        }
    }
    cuMemFree_v2(at: u64) {
        wait_for_all();
        if at == 0 || pool::free(at) {
            return SUCCESS;
        }
        crate::export::code(free(at))
    }
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        match device() {
            Ok(device) => {
                let device = &devices()[device as usize];
                give(free, device.free() as usize);
                give(total, device.total as usize)
            }
            Err(code) => code,
        }
    }
    cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, at: u64) {
        let blocks = BLOCKS.lock().unwrap();
        let here = blocks.range(..=at).next_back();
        match here.filter(|(start, block)| at - **start < block.piece.bytes as u64) {
            Some((start, block)) => {
                give(bytes, block.piece.bytes);
                give(base, *start)
            }
            None => NOT_FOUND,
        }
    }
    // Of what it did not give it knows nothing.
    cuPointerGetAttribute(to: *mut u32, attribute: u32, at: u64) {
        let blocks = BLOCKS.lock().unwrap();
        let here = blocks.range(..=at).next_back();
        match here.filter(|(start, block)| attribute == 2 && at - **start < block.piece.bytes as u64) {
            Some(_) => give(to, 2),
            None => INVALID_VALUE,
        }
    }
    cuMemAllocHost_v2(to: *mut Handle, bytes: usize) {
        // SAFETY: plain memory of the host's.
        give(to, unsafe { libc::malloc(bytes) })
    }
    cuMemHostAlloc(to: *mut Handle, bytes: usize, _flags: u32) {
        // SAFETY: as above.
        give(to, unsafe { libc::malloc(bytes) })
    }
    cuMemFreeHost(at: *mut c_void) {
        // SAFETY: from one of the two above, as the caller promises.
        unsafe { libc::free(at) };
        SUCCESS
    }
    cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) { now(copy(to, from as u64, bytes, NULL)) }
    cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) { now(copy(to as u64, from, bytes, NULL)) }
    cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) { now(copy(to, from, bytes, NULL)) }
    cuMemcpy(to: u64, from: u64, bytes: usize) { now(copy(to, from, bytes, NULL)) }
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Handle) {
        copy(to, from as u64, bytes, stream)
    }
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Handle) {
        copy(to as u64, from, bytes, stream)
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) { copy(to, from, bytes, stream) }
    cuMemsetD8_v2(at: u64, byte: u8, bytes: usize) { now(clear(at, byte, bytes, NULL)) }
    cuMemsetD8Async(at: u64, byte: u8, bytes: usize, stream: Handle) { clear(at, byte, bytes, stream) }
    cuMemsetD32_v2(at: u64, value: u32, times: usize) { now(fill(at, &value.to_ne_bytes(), times, NULL)) }
    cuMemsetD32Async(at: u64, value: u32, times: usize, stream: Handle) {
        fill(at, &value.to_ne_bytes(), times, stream)
    }
    cuIpcGetMemHandle(to: *mut Shared, at: u64) {
        match BLOCKS.lock().unwrap().get(&at) {
            Some(block) => give(to, Shared {
                process: std::process::id(),
                descriptor: block.piece.descriptor(),
                bytes: block.piece.bytes as u64,
                rest: [0; 6],
            }),
            None => INVALID_VALUE,
        }
    }
    cuIpcOpenMemHandle_v2(to: *mut u64, shared: Shared, _flags: u32) {
        let opened = Piece::of_another(shared.process, shared.descriptor, shared.bytes as usize)
            .and_then(|piece| Ok((piece.map(None)?, piece)))
            .and_then(|(at, piece)| put(at, piece).map(|()| at));
        match opened {
            Ok(at) => give(to, at),
            Err(code) => code,
        }
    }
    cuIpcCloseMemHandle(at: u64) { crate::export::code(free(at)) }
}
