//! A disk in memory that can lose power: a SQLite VFS whose files remember what was synced.
//!
//! Until a sync, a write may be on the disk or not, sector by sector and in any order; a new file or a
//! removed one may not have reached the directory. When the fuse burns down, one of the states the disk
//! may then be in is chosen by chance, and every later call fails. A world is one machine's disk between
//! two cuts; it is found by the directory the files are in.

#![allow(non_snake_case)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use libsqlite3_sys as ffi;

use crate::place::Chance;

mod world;

pub use world::{Disk, Fault, World, unmount};
use world::{Node, Op, SECTOR, SHM_SLOTS, State, apply, worlds};

pub const NAME: &str = "powercut";
struct Handle {
    world: Arc<World>,
    name: String,
    id: usize,
    /// As the unix VFS has it: the first sync of a journal or log opened to be created syncs the directory too,
    /// whether the file was there before or not. It also makes the removal of an older journal last.
    syncs_dir: AtomicBool,
}

#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    handle: *mut Handle,
}

/// Runs `body` on the node behind a SQLite file; `None` when the file was removed or has no power.
fn with<T>(file: *mut ffi::sqlite3_file, body: impl FnOnce(&mut Node, usize, &mut Chance) -> T) -> Option<T> {
    // SAFETY: SQLite passes a file that `open` filled in and `close` has not yet seen; it does not use one
    // file from two threads at once.
    let handle = unsafe { &*(*file.cast::<File>()).handle };
    let mut state = handle.world.state();
    if state.after.is_some() {
        return None;
    }
    let State { nodes, chance, .. } = &mut *state;
    nodes
        .get_mut(&handle.name)
        .map(|node| body(node, handle.id, chance))
}

/// Like `with`, for what changes the disk: counts against the fuse.
fn changing(file: *mut ffi::sqlite3_file, full: c_int, sync: c_int, body: impl FnOnce(&mut Node)) -> c_int {
    // SAFETY: as in `with`.
    let handle = unsafe { &*(*file.cast::<File>()).handle };
    let mut state = handle.world.state();
    if !state.powered() {
        return ffi::SQLITE_IOERR;
    }
    match state.fault {
        Some(Fault::DiskFull) if full != 0 => return full,
        Some(Fault::SyncFails) if sync != 0 => return sync,
        _ => {}
    }
    if let Some(node) = state.nodes.get_mut(&handle.name) {
        body(node);
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `open` made the handle from a box, and SQLite closes a file once.
    let handle = unsafe { Box::from_raw((*file.cast::<File>()).handle) };
    let mut state = handle.world.state();
    if let Some(node) = state.nodes.get_mut(&handle.name) {
        node.locks.remove(&handle.id);
    }
    drop(state);
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, to: *mut c_void, count: c_int, offset: i64) -> c_int {
    let (offset, count) = (offset as usize, count as usize);
    // SAFETY: SQLite passes a buffer of `count` bytes.
    let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), count) };
    let found = with(file, |node, _, _| {
        let there = node.content.get(offset..).unwrap_or_default();
        let there = &there[..there.len().min(count)];
        to[..there.len()].copy_from_slice(there);
        to[there.len()..].fill(0);
        there.len()
    });
    match found {
        Some(found) if found == count => ffi::SQLITE_OK,
        Some(_) => ffi::SQLITE_IOERR_SHORT_READ,
        None => ffi::SQLITE_IOERR,
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    count: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite passes a buffer of `count` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), count as usize) };
    changing(file, ffi::SQLITE_FULL, 0, |node| {
        let op = Op::Write(offset as usize, bytes.to_vec());
        apply(&mut node.content, &op);
        node.pending.push(op);
    })
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    changing(file, 0, 0, |node| {
        let op = Op::Truncate(size as usize);
        apply(&mut node.content, &op);
        node.pending.push(op);
    })
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    let code = changing(file, 0, ffi::SQLITE_IOERR_FSYNC, |node| {
        for op in node.pending.drain(..) {
            apply(&mut node.synced, &op);
        }
    });
    // SAFETY: as in `with`.
    let handle = unsafe { &*(*file.cast::<File>()).handle };
    if code == ffi::SQLITE_OK && handle.syncs_dir.swap(false, Ordering::Relaxed) {
        let mut state = handle.world.state();
        state.removed.clear();
        state.nodes.values_mut().for_each(|node| node.entered = true);
    }
    code
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    match with(file, |node, _, _| node.content.len()) {
        Some(len) => {
            // SAFETY: SQLite passes a place for the answer.
            unsafe { *size = len as i64 };
            ffi::SQLITE_OK
        }
        None => ffi::SQLITE_IOERR,
    }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    let taken = with(file, |node, id, _| {
        let others = node
            .locks
            .iter()
            .filter(|(other, _)| **other != id)
            .map(|(_, level)| *level)
            .max();
        let others = others.unwrap_or(ffi::SQLITE_LOCK_NONE);
        let free = match level {
            ffi::SQLITE_LOCK_SHARED => others < ffi::SQLITE_LOCK_PENDING,
            ffi::SQLITE_LOCK_RESERVED => others < ffi::SQLITE_LOCK_RESERVED,
            _ => others < ffi::SQLITE_LOCK_SHARED,
        };
        if free {
            node.locks.insert(id, level);
        }
        free
    });
    match taken {
        Some(true) => ffi::SQLITE_OK,
        Some(false) => ffi::SQLITE_BUSY,
        None => ffi::SQLITE_IOERR_LOCK,
    }
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    with(file, |node, id, _| node.locks.insert(id, level));
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved(file: *mut ffi::sqlite3_file, found: *mut c_int) -> c_int {
    let reserved = with(file, |node, _, _| {
        node.locks
            .values()
            .any(|level| *level >= ffi::SQLITE_LOCK_RESERVED)
    });
    // SAFETY: SQLite passes a place for the answer.
    unsafe { *found = c_int::from(reserved.unwrap_or(false)) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    SECTOR as c_int
}

/// As the unix VFS says: a torn write leaves the bytes around it alone.
unsafe extern "C" fn characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    extend: c_int,
    to: *mut *mut c_void,
) -> c_int {
    let found = with(file, |node, _, _| {
        let region = region as usize;
        if extend != 0 {
            while node.shm.len() <= region {
                node.shm.push(vec![0; size as usize]);
            }
        }
        // The inner buffers never grow, so they do not move.
        node.shm
            .get_mut(region)
            .map_or(ptr::null_mut(), |region| region.as_mut_ptr())
    });
    // SAFETY: SQLite passes a place for the answer.
    unsafe { *to = found.unwrap_or(ptr::null_mut()).cast() };
    if found.is_some() {
        ffi::SQLITE_OK
    } else {
        ffi::SQLITE_IOERR_SHMMAP
    }
}

unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    let slots = offset as usize..(offset + count) as usize;
    let done = with(file, |node, id, _| {
        if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
            for slot in slots {
                node.shm_shared[slot].retain(|other| *other != id);
                if node.shm_exclusive[slot] == Some(id) {
                    node.shm_exclusive[slot] = None;
                }
            }
            return true;
        }
        let exclusive = flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
        let free = slots.clone().all(|slot| {
            let owned = node.shm_exclusive[slot].is_some_and(|owner| owner != id);
            !(owned || exclusive && node.shm_shared[slot].iter().any(|other| *other != id))
        });
        if free {
            for slot in slots {
                match exclusive {
                    true => node.shm_exclusive[slot] = Some(id),
                    false => node.shm_shared[slot].push(id),
                }
            }
        }
        free
    });
    match done {
        Some(true) => ffi::SQLITE_OK,
        Some(false) => ffi::SQLITE_BUSY,
        None => ffi::SQLITE_IOERR_SHMLOCK,
    }
}

unsafe extern "C" fn shm_barrier(_: *mut ffi::sqlite3_file) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, _delete: c_int) -> c_int {
    with(file, |node, id, _| {
        for slot in 0..SHM_SLOTS {
            node.shm_shared[slot].retain(|other| *other != id);
            if node.shm_exclusive[slot] == Some(id) {
                node.shm_exclusive[slot] = None;
            }
        }
    });
    ffi::SQLITE_OK
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// The world a path lies in, and the file's name in it.
fn find(path: *const c_char) -> Option<(Arc<World>, String)> {
    // SAFETY: SQLite passes a path ended by a zero byte.
    let path = unsafe { CStr::from_ptr(path) }.to_str().ok()?;
    let (dir, name) = path.rsplit_once('/')?;
    Some((worlds().get(dir)?.clone(), name.to_owned()))
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let file = file.cast::<File>();
    // SAFETY: SQLite passes room for `szOsFile` bytes; no methods means there is nothing to close.
    unsafe { (*file).base.pMethods = ptr::null() };
    let Some((world, name)) = (!path.is_null()).then(|| find(path)).flatten() else {
        return ffi::SQLITE_CANTOPEN;
    };
    let mut state = world.state();
    let exists = state.nodes.contains_key(&name);
    let may_create = flags & ffi::SQLITE_OPEN_CREATE != 0;
    if state.after.is_some() || !(exists || may_create && state.powered()) {
        return ffi::SQLITE_CANTOPEN;
    }
    state.nodes.entry(name.clone()).or_default();
    let is_log = flags & (ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL) != 0;
    state.next_handle += 1;
    let id = state.next_handle;
    drop(state);
    let handle = Box::into_raw(Box::new(Handle {
        world,
        name,
        id,
        syncs_dir: AtomicBool::new(is_log && may_create),
    }));
    // SAFETY: as above; `out` may be null.
    unsafe {
        (*file).handle = handle;
        (*file).base.pMethods = &METHODS;
        if !out.is_null() {
            *out = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, path: *const c_char, sync_dir: c_int) -> c_int {
    let Some((world, name)) = find(path) else {
        return ffi::SQLITE_IOERR_DELETE_NOENT;
    };
    let mut state = world.state();
    if !state.powered() {
        return ffi::SQLITE_IOERR_DELETE;
    }
    let Some(node) = state.nodes.remove(&name) else {
        return ffi::SQLITE_IOERR_DELETE_NOENT;
    };
    match sync_dir {
        0 if node.entered => drop(state.removed.insert(name, node.synced)),
        _ => drop(state.removed.remove(&name)),
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn access(
    _: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    _: c_int,
    found: *mut c_int,
) -> c_int {
    let there = find(path).is_some_and(|(world, name)| {
        world
            .state()
            .nodes
            .get(&name)
            .is_some_and(|node| !node.content.is_empty())
    });
    // SAFETY: SQLite passes a place for the answer.
    unsafe { *found = c_int::from(there) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_path(
    _: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    size: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: SQLite passes a path ended by a zero byte and room for `size` bytes.
    unsafe {
        let bytes = CStr::from_ptr(path).to_bytes_with_nul();
        if bytes.len() > size as usize {
            return ffi::SQLITE_CANTOPEN;
        }
        ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(_: *mut ffi::sqlite3_vfs, count: c_int, out: *mut c_char) -> c_int {
    let mut chance = Chance(7);
    for at in 0..count as usize {
        // SAFETY: SQLite passes room for `count` bytes.
        unsafe { *out.add(at) = chance.next() as c_char };
    }
    count
}

unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, micros: c_int) -> c_int {
    std::thread::sleep(std::time::Duration::from_micros(micros as u64));
    micros
}

unsafe extern "C" fn current_time(_: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: SQLite passes a place for the answer.
    unsafe { *out = 2_460_000.5 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn last_error(_: *mut ffi::sqlite3_vfs, _: c_int, _: *mut c_char) -> c_int {
    0
}

fn register() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let name = CString::new(NAME).unwrap().into_raw();
        // SAFETY: all zeros is a valid `sqlite3_vfs`: null pointers and absent functions.
        let mut vfs: ffi::sqlite3_vfs = unsafe { std::mem::zeroed() };
        vfs.iVersion = 1;
        vfs.szOsFile = size_of::<File>() as c_int;
        vfs.mxPathname = 1_024;
        vfs.zName = name;
        vfs.xOpen = Some(open);
        vfs.xDelete = Some(delete);
        vfs.xAccess = Some(access);
        vfs.xFullPathname = Some(full_path);
        vfs.xRandomness = Some(randomness);
        vfs.xSleep = Some(sleep);
        vfs.xCurrentTime = Some(current_time);
        vfs.xGetLastError = Some(last_error);
        // SAFETY: the structure and its name are leaked, as SQLite keeps pointers to them.
        let code = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 0) };
        assert_eq!(code, ffi::SQLITE_OK);
    });
}
