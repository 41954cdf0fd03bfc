//! Memory pools: charged with what each pool has reserved, not with what the program has of it, so that a pool hides
//! nothing. Pools give memory back at their own time, so what they have is asked for again wherever it may have
//! changed: after allocating, freeing, trimming and waiting, before memory is told of, and before it is refused.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::abi::{
    Code, DevicePtr, Handle, INVALID_VALUE, LOCATION_DEVICE, MEMPOOL_RESERVED_CURRENT, PoolProps, SUCCESS,
    UNKNOWN,
};
use super::bind::{Binding, binding, bindings};
use super::charge::Charge;
use super::real;
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("cuMemPoolCreate", create as Entry),
    Hook("cuMemPoolDestroy", destroy as Entry),
    Hook("cuMemPoolTrimTo", trim_to as Entry),
    Hook("cuMemPoolSetAttribute", set_attribute as Entry),
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

pub fn refresh_all() {
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

/// From here on pools are looked at.
pub fn begin() {
    ANY.store(true, Relaxed);
}

/// A piece of `bytes` came of a pool, for which `charge` was taken. False: the pool took more than the slice has.
pub fn add(pool: usize, at: DevicePtr, bytes: u64, charge: Charge, binding: &'static Binding) -> bool {
    let mut all = pools();
    let all = all.get_or_insert_default();
    all.parts.insert(at, Part { pool, bytes });
    let fresh = || Pool {
        binding,
        charge: None,
        orphaned: false,
    };
    let here = all.pools.entry(pool).or_insert_with(fresh);
    here.absorb(charge);
    here.settle(pool)
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
            begin();
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
