//! Arrays: rows of bytes, level by level, that only copies reach.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::context::{current, device};
use crate::export::{Code, Handle, INVALID_HANDLE, INVALID_VALUE, SUCCESS, code, exports, give, given};
use crate::store::{DIRT, Room, devices};
use crate::stream::{enqueue, wait_for_all};

#[repr(C)]
#[derive(Clone, Copy)]
struct Described {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Flat {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

struct Level {
    row: usize,
    rows: usize,
    bytes: Vec<u8>,
}

struct Array {
    context: usize,
    levels: Vec<usize>,
    _room: Option<Room>,
}

/// Arrays by handle, and levels by theirs.
static ARRAYS: Mutex<Option<HashMap<usize, Array>>> = Mutex::new(None);
static LEVELS: Mutex<Option<HashMap<usize, Level>>> = Mutex::new(None);

fn element(format: u32) -> usize {
    match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        _ => 4,
    }
}

fn make(to: *mut Handle, described: Described, levels: u32) -> Result<(), Code> {
    let mut sizes = Vec::new();
    for level in 0..levels.max(1) {
        let side = |side: usize| (side >> level).max(1);
        let row = side(described.width) * element(described.format) * described.channels as usize;
        let depth = if described.flags & 5 != 0 {
            described.depth.max(1)
        } else {
            side(described.depth)
        };
        sizes.push((row, side(described.height), depth));
    }
    let bytes: usize = sizes.iter().map(|(row, rows, layers)| row * rows * layers).sum();
    let room = devices()[device()? as usize].take(bytes as u64)?;
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0x10);
    let next = || NEXT.fetch_add(16, std::sync::atomic::Ordering::Relaxed);
    let handle = next();
    let mut names = Vec::new();
    for (place, (row, rows, layers)) in sizes.into_iter().enumerate() {
        // A plain array is its own only level.
        let name = if place == 0 { handle } else { next() };
        let bytes = vec![DIRT; row * rows * layers];
        LEVELS
            .lock()
            .unwrap()
            .get_or_insert_default()
            .insert(name, Level { row, rows, bytes });
        names.push(name);
    }
    let array = Array {
        context: current().unwrap_or(0),
        levels: names,
        _room: Some(room),
    };
    ARRAYS
        .lock()
        .unwrap()
        .get_or_insert_default()
        .insert(handle, array);
    give(to, handle as Handle);
    Ok(())
}

fn unmake(handle: Handle) -> Code {
    let Some(array) = ARRAYS
        .lock()
        .unwrap()
        .get_or_insert_default()
        .remove(&(handle as usize))
    else {
        return INVALID_HANDLE;
    };
    let mut levels = LEVELS.lock().unwrap();
    array
        .levels
        .iter()
        .for_each(|level| drop(levels.get_or_insert_default().remove(level)));
    SUCCESS
}

pub fn free_all_of(context: usize) {
    let all: Vec<usize> = {
        let arrays = ARRAYS.lock().unwrap();
        let here = arrays
            .iter()
            .flatten()
            .filter(|(_, array)| array.context == context);
        here.map(|(handle, _)| *handle).collect()
    };
    all.into_iter().for_each(|handle| {
        let _ = unmake(handle as Handle);
    });
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Side {
    x: usize,
    y: usize,
    z: usize,
    lod: usize,
    kind: u32,
    host: usize,
    device: u64,
    array: usize,
    reserved: usize,
    pitch: usize,
    height: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Copy3d {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
    depth: usize,
}

/// Where a row of one side of a copy begins.
fn row_of(side: &Side, levels: &mut HashMap<usize, Level>, y: usize, z: usize) -> *mut u8 {
    let (base, pitch, rows) = match side.kind {
        1 => (side.host as *mut u8, side.pitch, side.height),
        2 | 4 => (side.device as *mut u8, side.pitch, side.height),
        _ => {
            let level = levels.get_mut(&side.array).expect("a live array");
            (level.bytes.as_mut_ptr(), level.row, level.rows)
        }
    };
    base.wrapping_add(((side.z + z) * rows + side.y + y) * pitch + side.x)
}

fn copy(what: *const Copy3d, stream: Handle) -> Code {
    let Some(what) = given(what) else {
        return INVALID_VALUE;
    };
    enqueue(stream, move || {
        let mut levels = LEVELS.lock().unwrap();
        let levels = levels.get_or_insert_default();
        for (z, y) in (0..what.depth).flat_map(|z| (0..what.height).map(move |y| (z, y))) {
            let to = row_of(&what.to, levels, y, z);
            let from = row_of(&what.from, levels, y, z);
            // SAFETY: rows of the sides the program gave, or of arrays of ours that are as large.
            unsafe { std::ptr::copy(from, to, what.width) };
        }
    })
}

exports! {
    cuArrayCreate_v2(to: *mut Handle, described: *const Flat) {
        let made = given(described).ok_or(INVALID_VALUE).and_then(|flat| make(to, Described {
            width: flat.width,
            height: flat.height,
            depth: 0,
            format: flat.format,
            channels: flat.channels,
            flags: 0,
        }, 1));
        code(made)
    }
    cuArray3DCreate_v2(to: *mut Handle, described: *const Described) {
        code(given(described).ok_or(INVALID_VALUE).and_then(|described| make(to, described, 1)))
    }
    cuArrayDestroy(handle: Handle) { unmake(handle) }
    cuMipmappedArrayCreate(to: *mut Handle, described: *const Described, levels: u32) {
        code(given(described).ok_or(INVALID_VALUE).and_then(|described| make(to, described, levels)))
    }
    cuMipmappedArrayDestroy(handle: Handle) { unmake(handle) }
    cuMipmappedArrayGetLevel(to: *mut Handle, handle: Handle, level: u32) {
        let arrays = ARRAYS.lock().unwrap();
        let array = arrays.as_ref().and_then(|arrays| arrays.get(&(handle as usize)));
        match array.and_then(|array| array.levels.get(level as usize)) {
            Some(level) => give(to, *level as Handle),
            None => INVALID_VALUE,
        }
    }
    cuMemcpy3D_v2(what: *const Copy3d) {
        let begun = copy(what, std::ptr::null_mut());
        wait_for_all();
        begun
    }
    cuMemcpy3DAsync_v2(what: *const Copy3d, stream: Handle) { copy(what, stream) }
}
