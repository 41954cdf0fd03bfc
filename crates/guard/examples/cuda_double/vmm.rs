//! Memory by handle: a piece lives while a handle or a mapping of it does.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use crate::export::{Code, INVALID_VALUE, SUCCESS, code, exports, give, given};
use crate::store::{Piece, devices, reserve, unmap};

const GRAIN: usize = 2 << 20;

#[derive(Default)]
struct Books {
    next: u64,
    handles: HashMap<u64, (Arc<Piece>, u32)>,
    mapped: BTreeMap<u64, (Arc<Piece>, u64)>,
}

static BOOKS: Mutex<Option<Books>> = Mutex::new(None);

fn with<T>(work: impl FnOnce(&mut Books) -> T) -> T {
    work(BOOKS.lock().unwrap().get_or_insert_default())
}

/// The head of `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    kind: u32,
    handle_types: u32,
    location_kind: u32,
    location: i32,
}

fn create(to: *mut u64, bytes: usize, properties: *const Properties) -> Result<(), Code> {
    let location = given(properties).ok_or(INVALID_VALUE)?.location;
    if bytes == 0 || !bytes.is_multiple_of(GRAIN) {
        return Err(INVALID_VALUE);
    }
    let room = devices()
        .get(location as usize)
        .ok_or(INVALID_VALUE)?
        .take(bytes as u64)?;
    let piece = Piece::new(bytes, Some(room))?;
    let at = piece.map(None)?;
    piece.soil(at);
    unmap(at, bytes);
    with(|books| {
        books.next += 1;
        books.handles.insert(books.next, (piece, 1));
        give(to, books.next)
    });
    Ok(())
}

exports! {
    cuMemGetAllocationGranularity(to: *mut usize, _properties: *const Properties, _which: u32) { give(to, GRAIN) }
    cuMemAddressReserve(to: *mut u64, bytes: usize, _align: usize, _hint: u64, _flags: u64) {
        match reserve(None, bytes) {
            Ok(at) => give(to, at),
            Err(code) => code,
        }
    }
    cuMemAddressFree(at: u64, bytes: usize) {
        unmap(at, bytes);
        SUCCESS
    }
    cuMemCreate(to: *mut u64, bytes: usize, properties: *const Properties, _flags: u64) {
        code(create(to, bytes, properties))
    }
    cuMemRelease(handle: u64) {
        with(|books| {
            let Some((_, references)) = books.handles.get_mut(&handle) else {
                return INVALID_VALUE;
            };
            *references -= 1;
            if *references == 0 {
                books.handles.remove(&handle);
            }
            SUCCESS
        })
    }
    cuMemRetainAllocationHandle(to: *mut u64, at: u64) {
        with(|books| {
            let here = books.mapped.range(..=at).next_back();
            let found = here.filter(|(start, (piece, _))| at - **start < piece.bytes as u64);
            let Some((piece, handle)) = found.map(|(_, (piece, handle))| (piece.clone(), *handle)) else {
                return INVALID_VALUE;
            };
            books.handles.entry(handle).or_insert((piece, 0)).1 += 1;
            give(to, handle)
        })
    }
    cuMemMap(at: u64, bytes: usize, offset: usize, handle: u64, _flags: u64) {
        with(|books| {
            let Some((piece, _)) = books.handles.get(&handle).filter(|(piece, _)| offset == 0 && piece.bytes == bytes)
            else {
                return INVALID_VALUE;
            };
            if let Err(code) = piece.map(Some(at)) {
                return code;
            }
            books.mapped.insert(at, (piece.clone(), handle));
            SUCCESS
        })
    }
    cuMemSetAccess(_at: u64, _bytes: usize, _access: *const u32, _count: usize) { SUCCESS }
    cuMemUnmap(at: u64, bytes: usize) {
        with(|books| {
            books.mapped.retain(|place, _| *place < at || *place >= at + bytes as u64);
            // The addresses stay reserved.
            code(reserve(Some(at), bytes).map(drop))
        })
    }
    cuMemExportToShareableHandle(to: *mut i32, _handle: u64, _kind: u32, _flags: u64) { give(to, 7) }
    cuMemImportFromShareableHandle(to: *mut u64, _shared: usize, _kind: u32) { give(to, 7) }
}
