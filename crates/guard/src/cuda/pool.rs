//! Memory pools: charged with what each pool has reserved, not with what the program has of it, so that a pool hides
//! nothing. Pools give memory back at their own time, so what they have is asked for again wherever it may have
//! changed: after allocating, freeing, trimming and waiting, before memory is told of, and before it is refused.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::abi::{
    Code, DevicePtr, Handle, INVALID_VALUE, LOCATION_DEVICE, MEMPOOL_RESERVED_CURRENT, OUT_OF_MEMORY,
    PoolProps, STREAM_CAPTURE_UNSUPPORTED, SUCCESS, UNKNOWN,
};
use super::bind::{Binding, binding, bindings, of_stream};
use super::charge::{Charge, rounded};
use super::flight::{Work, command};
use super::launch::{captures, own};
use super::real;
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("cuMemAllocAsync", alloc as Entry),
    Hook("cuMemAllocAsync_ptsz", alloc_per_thread as Entry),
    Hook("cuMemAllocFromPoolAsync", alloc_from as Entry),
    Hook("cuMemAllocFromPoolAsync_ptsz", alloc_from_per_thread as Entry),
    Hook("cuMemFreeAsync", free as Entry),
    Hook("cuMemFreeAsync_ptsz", free_per_thread as Entry),
    Hook("cuMemPoolCreate", create as Entry),
    Hook("cuMemPoolDestroy", destroy as Entry),
    Hook("cuMemPoolTrimTo", trim_to as Entry),
    Hook("cuMemPoolSetAttribute", set_attribute as Entry),
    Hook("cuStreamSynchronize", wait_for_stream as Entry),
    Hook("cuStreamSynchronize_ptsz", wait_for_stream_per_thread as Entry),
    Hook("cuCtxSynchronize", wait_for_context as Entry),
    Hook("cuEventSynchronize", wait_for_event as Entry),
];

struct Pool {
    binding: &'static Binding,
    charge: Option<Charge>,
    /// The program let it go: what is still allocated from it is all it is charged with.
    orphaned: bool,
}

/// A piece of a pool.
#[derive(Clone, Copy)]
pub struct Part {
    pool: usize,
    bytes: u64,
}

#[derive(Default)]
struct Pools {
    pools: HashMap<usize, Pool>,
    parts: HashMap<DevicePtr, Part>,
}

static POOLS: Mutex<Option<Pools>> = Mutex::new(None);
/// Whether any pool was ever used: most programs have none, and waiting costs them nothing.
static ANY: AtomicBool = AtomicBool::new(false);

fn pools() -> MutexGuard<'static, Option<Pools>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

type Attribute = unsafe extern "C" fn(Handle, u32, *mut c_void) -> Code;

fn attribute(pool: usize, which: u32) -> Option<u64> {
    let ask: Attribute = real!("cuMemPoolGetAttribute");
    let mut value = 0u64;
    // SAFETY: a live pool; both attributes are of 64 bits.
    (unsafe { ask(pool as Handle, which, (&raw mut value).cast()) } == SUCCESS).then_some(value)
}

impl Pool {
    /// Brings the charge to what the pool has reserved. False: the slice has not that much.
    fn settle(&mut self, handle: usize) -> bool {
        if self.orphaned {
            return true;
        }
        match (attribute(handle, MEMPOOL_RESERVED_CURRENT), &mut self.charge) {
            (Some(reserved), Some(charge)) => charge.correct(reserved),
            // Never charged: it has nothing yet.
            (Some(0), None) | (None, _) => true,
            (Some(_), None) => false,
        }
    }

    fn absorb(&mut self, charge: Charge) {
        match &mut self.charge {
            Some(old) => old.absorb(charge),
            None => self.charge = Some(charge),
        }
    }
}

/// Asks the pools of a device what they have by now.
pub fn refresh(binding: &'static Binding) {
    if !ANY.load(Relaxed) {
        return;
    }
    if let Some(all) = pools().as_mut() {
        let here = all
            .pools
            .iter_mut()
            .filter(|(_, pool)| std::ptr::eq(pool.binding, binding));
        here.for_each(|(handle, pool)| {
            pool.settle(*handle);
        });
    }
}

fn refresh_all() {
    if ANY.load(Relaxed) {
        bindings().iter().for_each(refresh);
    }
}

/// Has the pools of a device give back what nobody uses. False: there are none.
pub fn trim(binding: &'static Binding) -> bool {
    if !ANY.load(Relaxed) {
        return false;
    }
    let trim: unsafe extern "C" fn(Handle, usize) -> Code = real!("cuMemPoolTrimTo");
    if let Some(all) = pools().as_mut() {
        let here = all
            .pools
            .iter_mut()
            .filter(|(_, pool)| std::ptr::eq(pool.binding, binding));
        for (handle, pool) in here.filter(|(_, pool)| !pool.orphaned) {
            // SAFETY: a live pool.
            unsafe { trim(*handle as Handle, 0) };
            pool.settle(*handle);
        }
    }
    true
}

/// Takes a piece out of the books, to be freed.
pub fn take(pointer: DevicePtr) -> Option<Part> {
    pools().as_mut()?.parts.remove(&pointer)
}

/// It was not freed.
pub fn put(pointer: DevicePtr, part: Part) {
    pools().get_or_insert_default().parts.insert(pointer, part);
}

/// A piece was freed.
pub fn freed(part: Part) {
    let mut all = pools();
    let Some(all) = all.as_mut() else {
        return;
    };
    let Some(pool) = all.pools.get_mut(&part.pool) else {
        return;
    };
    match (pool.orphaned, &mut pool.charge) {
        (true, Some(charge)) => {
            let left = charge.bytes().saturating_sub(part.bytes);
            charge.correct(left);
            if left == 0 {
                all.pools.remove(&part.pool);
            }
        }
        _ => {
            pool.settle(part.pool);
        }
    }
}

/// Has `next` allocate from a pool, and zeroes what it gave, in the stream's order.
fn allocate(
    pointer: *mut DevicePtr,
    bytes: usize,
    pool: Result<usize, Code>,
    stream: Handle,
    binding: &'static Binding,
    next: impl FnOnce() -> Code,
) -> Code {
    let pool = match pool {
        Ok(pool) => pool,
        Err(code) => return code,
    };
    if pointer.is_null() {
        return INVALID_VALUE;
    }
    // Captured, it would become memory that a graph takes at its launch.
    if captures(stream) {
        return STREAM_CAPTURE_UNSUPPORTED;
    }
    ANY.store(true, Relaxed);
    refresh(binding);
    // The worst that may happen is that the pool grows by all of it.
    let Some(charge) = Charge::take(binding, rounded(bytes as u64)) else {
        return OUT_OF_MEMORY;
    };
    let code = next();
    if code != SUCCESS {
        drop(charge);
        refresh(binding);
        return code;
    }
    // SAFETY: not null; the driver wrote it.
    let at = unsafe { *pointer };
    let fits = {
        let mut all = pools();
        let all = all.get_or_insert_default();
        all.parts.insert(
            at,
            Part {
                pool,
                bytes: rounded(bytes as u64),
            },
        );
        let fresh = || Pool {
            binding,
            charge: None,
            orphaned: false,
        };
        let pool_here = all.pools.entry(pool).or_insert_with(fresh);
        pool_here.absorb(charge);
        pool_here.settle(pool)
    };
    let set: unsafe extern "C" fn(DevicePtr, u8, usize, Handle) -> Code = real!("cuMemsetD8Async");
    let code = match fits {
        // SAFETY: memory the driver just gave for this stream, of this size.
        true => command(stream, Work::Bytes(bytes as u64), || unsafe {
            set(at, 0, bytes, stream)
        }),
        false => OUT_OF_MEMORY,
    };
    if code != SUCCESS {
        let free: unsafe extern "C" fn(DevicePtr, Handle) -> Code = real!("cuMemFreeAsync");
        // SAFETY: allocated just now, given to nobody.
        unsafe {
            free(at, stream);
            *pointer = 0;
        }
        let part = take(at);
        part.into_iter().for_each(freed);
        trim(binding);
    }
    code
}

fn of_device(device: i32) -> Result<usize, Code> {
    let ask: unsafe extern "C" fn(*mut Handle, i32) -> Code = real!("cuDeviceGetMemPool");
    let mut pool: Handle = std::ptr::null_mut();
    // SAFETY: room for the answer.
    match unsafe { ask(&mut pool, device) } {
        SUCCESS => Ok(pool as usize),
        code => Err(code),
    }
}

/// The hooks that come in two forms: for the default stream, and for the calling thread's.
macro_rules! in_two_forms {
    ($($alloc:ident $alloc_name:literal, $from:ident $from_name:literal, $free:ident $free_name:literal,
       $wait:ident $wait_name:literal, $per_thread:literal;)*) => {$(
        unsafe extern "C" fn $alloc(pointer: *mut DevicePtr, bytes: usize, stream: Handle) -> Code {
            let next: unsafe extern "C" fn(*mut DevicePtr, usize, Handle) -> Code = real!($alloc_name);
            guarded!(UNKNOWN, {
                let ours = own(stream, $per_thread);
                match of_stream(ours) {
                    Ok(binding) => allocate(pointer, bytes, of_device(binding.device), ours, binding, || {
                        // SAFETY: the caller's own arguments.
                        unsafe { next(pointer, bytes, stream) }
                    }),
                    Err(code) => code,
                }
            })
        }

        unsafe extern "C" fn $from(pointer: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle) -> Code {
            type Next = unsafe extern "C" fn(*mut DevicePtr, usize, Handle, Handle) -> Code;
            let next: Next = real!($from_name);
            guarded!(UNKNOWN, {
                let ours = own(stream, $per_thread);
                match of_stream(ours) {
                    Ok(binding) => allocate(pointer, bytes, Ok(pool as usize), ours, binding, || {
                        // SAFETY: the caller's own arguments.
                        unsafe { next(pointer, bytes, pool, stream) }
                    }),
                    Err(code) => code,
                }
            })
        }

        unsafe extern "C" fn $free(pointer: DevicePtr, stream: Handle) -> Code {
            let next: unsafe extern "C" fn(DevicePtr, Handle) -> Code = real!($free_name);
            guarded!(UNKNOWN, {
                let part = take(pointer);
                // SAFETY: the caller's own arguments.
                let code = unsafe { next(pointer, stream) };
                match (code, part) {
                    (SUCCESS, Some(part)) => freed(part),
                    (_, Some(part)) => put(pointer, part),
                    _ => {}
                }
                code
            })
        }

        unsafe extern "C" fn $wait(stream: Handle) -> Code {
            let next: unsafe extern "C" fn(Handle) -> Code = real!($wait_name);
            // SAFETY: the caller's own argument.
            let code = unsafe { next(stream) };
            guarded!(UNKNOWN, {
                refresh_all();
                code
            })
        }
    )*};
}

in_two_forms! {
    alloc "cuMemAllocAsync", alloc_from "cuMemAllocFromPoolAsync", free "cuMemFreeAsync",
        wait_for_stream "cuStreamSynchronize", false;
    alloc_per_thread "cuMemAllocAsync_ptsz", alloc_from_per_thread "cuMemAllocFromPoolAsync_ptsz",
        free_per_thread "cuMemFreeAsync_ptsz", wait_for_stream_per_thread "cuStreamSynchronize_ptsz", true;
}

unsafe extern "C" fn wait_for_context() -> Code {
    let next: unsafe extern "C" fn() -> Code = real!("cuCtxSynchronize");
    // SAFETY: no arguments.
    let code = unsafe { next() };
    guarded!(UNKNOWN, {
        refresh_all();
        code
    })
}

unsafe extern "C" fn wait_for_event(event: Handle) -> Code {
    let next: unsafe extern "C" fn(Handle) -> Code = real!("cuEventSynchronize");
    // SAFETY: the caller's own argument.
    let code = unsafe { next(event) };
    guarded!(UNKNOWN, {
        refresh_all();
        code
    })
}

/// A pool of host memory is nobody's charge; one of a device that is not the job's is not made.
unsafe extern "C" fn create(pool: *mut Handle, properties: *const PoolProps) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, *const PoolProps) -> Code = real!("cuMemPoolCreate");
    guarded!(UNKNOWN, {
        if pool.is_null() || properties.is_null() {
            return INVALID_VALUE;
        }
        // SAFETY: not null, and the caller's own.
        let location = unsafe { (*properties).location };
        let of = (location.kind == LOCATION_DEVICE).then(|| binding(location.id));
        if let Some(Err(code)) = of {
            return code;
        }
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(pool, properties) };
        if let (SUCCESS, Some(Ok(binding))) = (code, of) {
            let fresh = Pool {
                binding,
                charge: None,
                orphaned: false,
            };
            // SAFETY: the driver wrote it.
            let handle = unsafe { *pool } as usize;
            pools().get_or_insert_default().pools.insert(handle, fresh);
            ANY.store(true, Relaxed);
        }
        code
    })
}

unsafe extern "C" fn destroy(pool: Handle) -> Code {
    let next: unsafe extern "C" fn(Handle) -> Code = real!("cuMemPoolDestroy");
    guarded!(UNKNOWN, {
        // SAFETY: the caller's own argument.
        let code = unsafe { next(pool) };
        if code == SUCCESS
            && let Some(all) = pools().as_mut()
            && let Some(mut gone) = all.pools.remove(&(pool as usize))
        {
            // What is still out lives until it is freed. The handle may mean another pool by then.
            let orphan = usize::MAX - pool as usize;
            let mut out = 0;
            for part in all.parts.values_mut().filter(|part| part.pool == pool as usize) {
                part.pool = orphan;
                out += part.bytes;
            }
            if let Some(charge) = gone.charge.as_mut().filter(|_| out > 0) {
                charge.correct(out.min(charge.bytes()));
                gone.orphaned = true;
                all.pools.insert(orphan, gone);
            }
        }
        code
    })
}

unsafe extern "C" fn trim_to(pool: Handle, keep: usize) -> Code {
    let next: unsafe extern "C" fn(Handle, usize) -> Code = real!("cuMemPoolTrimTo");
    guarded!(UNKNOWN, {
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(pool, keep) };
        refresh_all();
        code
    })
}

unsafe extern "C" fn set_attribute(pool: Handle, which: u32, value: *mut c_void) -> Code {
    let next: Attribute = real!("cuMemPoolSetAttribute");
    guarded!(UNKNOWN, {
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(pool, which, value) };
        refresh_all();
        code
    })
}
