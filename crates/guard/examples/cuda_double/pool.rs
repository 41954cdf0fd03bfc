//! Pools: they take memory of the device by the chunk and keep what was freed until somebody waits, as far as their
//! threshold says, or until they are trimmed.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use crate::context::device;
use crate::export::{Code, Handle, INVALID_VALUE, SUCCESS, code, exports, give, given};
use crate::store::{Piece, Room, devices, unmap};
use crate::stream::enqueue;

const CHUNK: u64 = 2 << 20;

struct Pool {
    room: Room,
    used: u64,
    threshold: u64,
    /// The program let it go; it stays while something of it is out.
    gone: bool,
}

impl Pool {
    fn shrink(&mut self, keep: u64) {
        let least = self.used.next_multiple_of(CHUNK).max(keep.min(self.room.bytes));
        let _ = self.room.resize(least.min(self.room.bytes));
    }
}

#[derive(Default)]
struct Pools {
    pools: HashMap<usize, Pool>,
    /// Which pool each piece is of.
    pieces: HashMap<u64, (usize, Arc<Piece>)>,
    /// Each device's pool in use.
    current: HashMap<i32, usize>,
}

static POOLS: Mutex<Option<Pools>> = Mutex::new(None);

fn with<T>(work: impl FnOnce(&mut Pools) -> T) -> T {
    work(POOLS.lock().unwrap().get_or_insert_default())
}

fn make(pools: &mut Pools, device: i32) -> Result<usize, Code> {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
    let handle = NEXT.fetch_add(16, Relaxed);
    let room = devices().get(device as usize).ok_or(INVALID_VALUE)?.take(0)?;
    let pool = Pool {
        room,
        used: 0,
        threshold: 0,
        gone: false,
    };
    pools.pools.insert(handle, pool);
    Ok(handle)
}

fn of_device(pools: &mut Pools, device: i32) -> Result<usize, Code> {
    if let Some(pool) = pools.current.get(&device) {
        return Ok(*pool);
    }
    let pool = make(pools, device)?;
    pools.current.insert(device, pool);
    Ok(pool)
}

fn allocate(to: *mut u64, bytes: usize, pool: Option<usize>) -> Result<(), Code> {
    let device = device()?;
    with(|pools| {
        let handle = match pool {
            Some(pool) => pool,
            None => of_device(pools, device)?,
        };
        let pool = pools
            .pools
            .get_mut(&handle)
            .filter(|pool| !pool.gone)
            .ok_or(INVALID_VALUE)?;
        let used = pool.used + bytes as u64;
        if used > pool.room.bytes {
            pool.room.resize(used.next_multiple_of(CHUNK))?;
        }
        let piece = Piece::new(bytes, None)?;
        let at = piece.map(None)?;
        piece.soil(at);
        pool.used = used;
        pools.pieces.insert(at, (handle, piece));
        give(to, at);
        Ok(())
    })
}

/// Frees a piece of a pool; false: it is none.
pub fn free(at: u64) -> bool {
    with(|pools| {
        let Some((handle, piece)) = pools.pieces.remove(&at) else {
            return false;
        };
        unmap(at, piece.bytes);
        if let Some(pool) = pools.pools.get_mut(&handle) {
            pool.used -= piece.bytes as u64;
            if pool.gone && pool.used == 0 {
                pools.pools.remove(&handle);
            }
        }
        true
    })
}

/// Somebody waited: pools give back what their threshold does not keep.
pub fn waited() {
    with(|pools| {
        pools
            .pools
            .values_mut()
            .for_each(|pool| pool.shrink(pool.threshold))
    });
}

fn free_in_order(at: u64, stream: Handle) -> Code {
    if !with(|pools| pools.pieces.contains_key(&at)) {
        return INVALID_VALUE;
    }
    enqueue(stream, move || {
        free(at);
    })
}

fn attribute(pool: Handle, which: u32, change: Option<u64>) -> Result<u64, Code> {
    with(|pools| {
        let pool = pools.pools.get_mut(&(pool as usize)).ok_or(INVALID_VALUE)?;
        match (which, change) {
            (4, Some(threshold)) => pool.threshold = threshold,
            (4, None) => return Ok(pool.threshold),
            (5 | 6, None) => return Ok(pool.room.bytes),
            (7 | 8, None) => return Ok(pool.used),
            (1..=3, _) => return Ok(1),
            _ => return Err(INVALID_VALUE),
        }
        Ok(0)
    })
}

/// The head of `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    kind: u32,
    handle_types: u32,
    location_kind: u32,
    location: i32,
}

exports! {
    cuMemAllocAsync(to: *mut u64, bytes: usize, _stream: Handle) { code(allocate(to, bytes, None)) }
    cuMemAllocAsync_ptsz(to: *mut u64, bytes: usize, _stream: Handle) { code(allocate(to, bytes, None)) }
    cuMemAllocFromPoolAsync(to: *mut u64, bytes: usize, pool: Handle, _stream: Handle) {
        code(allocate(to, bytes, Some(pool as usize)))
    }
    cuMemAllocFromPoolAsync_ptsz(to: *mut u64, bytes: usize, pool: Handle, _stream: Handle) {
        code(allocate(to, bytes, Some(pool as usize)))
    }
    cuMemFreeAsync(at: u64, stream: Handle) { free_in_order(at, stream) }
    cuMemFreeAsync_ptsz(at: u64, stream: Handle) {
        free_in_order(at, if stream.is_null() { 2 as Handle } else { stream })
    }
    cuMemPoolCreate(to: *mut Handle, properties: *const Properties) {
        let made = given(properties)
            .ok_or(INVALID_VALUE)
            .and_then(|properties| with(|pools| make(pools, properties.location)));
        match made {
            Ok(handle) => give(to, handle as Handle),
            Err(code) => code,
        }
    }
    cuMemPoolDestroy(pool: Handle) {
        with(|pools| match pools.pools.get_mut(&(pool as usize)) {
            Some(gone) => {
                gone.gone = true;
                gone.shrink(0);
                if gone.used == 0 {
                    pools.pools.remove(&(pool as usize));
                }
                SUCCESS
            }
            None => INVALID_VALUE,
        })
    }
    cuMemPoolTrimTo(pool: Handle, keep: usize) {
        with(|pools| match pools.pools.get_mut(&(pool as usize)) {
            Some(pool) => {
                pool.shrink(keep as u64);
                SUCCESS
            }
            None => INVALID_VALUE,
        })
    }
    cuMemPoolGetAttribute(pool: Handle, which: u32, value: *mut c_void) {
        match attribute(pool, which, None) {
            Ok(found) if which <= 3 => give(value.cast(), found as i32),
            Ok(found) => give(value.cast(), found),
            Err(code) => code,
        }
    }
    cuMemPoolSetAttribute(pool: Handle, which: u32, value: *mut c_void) {
        let change = given(value.cast_const().cast::<u64>()).filter(|_| which > 3).or(Some(0));
        code(attribute(pool, which, change).map(drop))
    }
    cuDeviceGetMemPool(to: *mut Handle, device: i32) {
        match with(|pools| of_device(pools, device)) {
            Ok(pool) => give(to, pool as Handle),
            Err(code) => code,
        }
    }
    cuDeviceGetDefaultMemPool(to: *mut Handle, device: i32) { cuDeviceGetMemPool(to, device) }
}
