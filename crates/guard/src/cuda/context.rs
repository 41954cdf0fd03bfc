//! Contexts: made on the job's devices only, each charged with what a context takes of the device; whatever is in one
//! goes with it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::abi::{Code, Handle, OUT_OF_MEMORY, SUCCESS, UNKNOWN};
use super::bind::{Binding, binding, within};
use super::charge::Charge;
use super::{array, external, linear, real, watch, zero};
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("cuCtxCreate", create as Entry),
    Hook("cuCtxCreate_v2", create_2 as Entry),
    Hook("cuCtxCreate_v3", create_3 as Entry),
    Hook("cuCtxCreate_v4", create_4 as Entry),
    Hook("cuCtxDestroy", destroy as Entry),
    Hook("cuCtxDestroy_v2", destroy_2 as Entry),
    Hook("cuDevicePrimaryCtxRetain", retain as Entry),
    Hook("cuDevicePrimaryCtxRelease", release as Entry),
    Hook("cuDevicePrimaryCtxRelease_v2", release_2 as Entry),
    Hook("cuDevicePrimaryCtxReset", reset as Entry),
    Hook("cuDevicePrimaryCtxReset_v2", reset_2 as Entry),
    Hook("cuGreenCtxCreate", create_green as Entry),
];

/// Contexts the program made, with what they are charged.
static MADE: Mutex<Option<HashMap<usize, Charge>>> = Mutex::new(None);

/// A device's own context: how often it is retained, and what it is charged.
struct Primary {
    context: usize,
    retained: u32,
    _charge: Charge,
}

static PRIMARY: Mutex<Option<HashMap<i32, Primary>>> = Mutex::new(None);

fn make(context: *mut Handle, device: i32, next: impl FnOnce() -> Code) -> Code {
    let charge = match take(device) {
        Ok((_, charge)) => charge,
        Err(code) => return code,
    };
    let code = next();
    if code == SUCCESS {
        // SAFETY: the driver wrote the context there.
        let made = unsafe { *context } as usize;
        let mut all = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        all.get_or_insert_default().insert(made, charge);
    }
    code
}

fn take(device: i32) -> Result<(&'static Binding, Charge), Code> {
    let binding = binding(device)?;
    let charge = Charge::take(binding, binding.context_bytes).ok_or(OUT_OF_MEMORY)?;
    Ok((binding, charge))
}

/// What the program left in a context is gone with it.
fn forget(context: usize) {
    zero::forget(context);
    linear::forget(context);
    array::forget(context);
    external::forget(context);
}

type Create2 = unsafe extern "C" fn(*mut Handle, u32, i32) -> Code;

unsafe extern "C" fn create(context: *mut Handle, flags: u32, device: i32) -> Code {
    let next: Create2 = real!("cuCtxCreate");
    guarded!(
        UNKNOWN,
        // SAFETY: the caller's own arguments.
        make(context, device, || unsafe { next(context, flags, device) })
    )
}

unsafe extern "C" fn create_2(context: *mut Handle, flags: u32, device: i32) -> Code {
    let next: Create2 = real!("cuCtxCreate_v2");
    guarded!(
        UNKNOWN,
        // SAFETY: the caller's own arguments.
        make(context, device, || unsafe { next(context, flags, device) })
    )
}

unsafe extern "C" fn create_3(
    context: *mut Handle,
    affinity: Handle,
    count: i32,
    flags: u32,
    device: i32,
) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, Handle, i32, u32, i32) -> Code = real!("cuCtxCreate_v3");
    guarded!(
        UNKNOWN,
        // SAFETY: the caller's own arguments.
        make(context, device, || unsafe {
            next(context, affinity, count, flags, device)
        })
    )
}

unsafe extern "C" fn create_4(context: *mut Handle, parameters: Handle, flags: u32, device: i32) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, Handle, u32, i32) -> Code = real!("cuCtxCreate_v4");
    guarded!(
        UNKNOWN,
        // SAFETY: the caller's own arguments.
        make(context, device, || unsafe {
            next(context, parameters, flags, device)
        })
    )
}

/// A green context is a part of the device's own, which is charged when it is retained.
unsafe extern "C" fn create_green(context: *mut Handle, parts: Handle, device: i32, flags: u32) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, Handle, i32, u32) -> Code = real!("cuGreenCtxCreate");
    guarded!(UNKNOWN, {
        match binding(device) {
            // SAFETY: the caller's own arguments.
            Ok(_) => unsafe { next(context, parts, device, flags) },
            Err(code) => code,
        }
    })
}

fn unmake(context: Handle, next: unsafe extern "C" fn(Handle) -> Code) -> Code {
    within(context, || watch::settle(context as usize));
    // SAFETY: the caller's own argument.
    let code = unsafe { next(context) };
    if code == SUCCESS {
        forget(context as usize);
        let mut all = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        all.as_mut().map(|all| all.remove(&(context as usize)));
    }
    code
}

unsafe extern "C" fn destroy(context: Handle) -> Code {
    guarded!(UNKNOWN, unmake(context, real!("cuCtxDestroy")))
}

unsafe extern "C" fn destroy_2(context: Handle) -> Code {
    guarded!(UNKNOWN, unmake(context, real!("cuCtxDestroy_v2")))
}

unsafe extern "C" fn retain(context: *mut Handle, device: i32) -> Code {
    let next: unsafe extern "C" fn(*mut Handle, i32) -> Code = real!("cuDevicePrimaryCtxRetain");
    guarded!(UNKNOWN, {
        let mut all = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.get_or_insert_default();
        let fresh = match all.contains_key(&device) {
            true => None,
            false => match take(device) {
                Ok((_, charge)) => Some(charge),
                Err(code) => return code,
            },
        };
        // SAFETY: the caller's own arguments.
        let code = unsafe { next(context, device) };
        if code == SUCCESS {
            // SAFETY: the driver wrote the context there.
            let made = unsafe { *context } as usize;
            if let Some(charge) = fresh {
                let primary = Primary {
                    context: made,
                    retained: 0,
                    _charge: charge,
                };
                all.insert(device, primary);
            }
            if let Some(primary) = all.get_mut(&device) {
                primary.retained += 1;
            }
        }
        code
    })
}

/// Lets a device's own context go, once or (`whole`) altogether.
fn let_go(device: i32, whole: bool, next: unsafe extern "C" fn(i32) -> Code) -> Code {
    let mut all = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    let held = all.get_or_insert_default().get(&device);
    let ends = held
        .filter(|primary| whole || primary.retained == 1)
        .map(|primary| primary.context);
    if let Some(context) = ends {
        within(context as Handle, || watch::settle(context));
    }
    // SAFETY: the caller's own argument.
    let code = unsafe { next(device) };
    if code != SUCCESS {
        return code;
    }
    if let Some(context) = ends {
        forget(context);
    }
    // Reset, it is still retained, and stays charged: it comes back at its next use.
    if let Some(all) = all.as_mut().filter(|_| !whole)
        && let Some(primary) = all.get_mut(&device)
    {
        primary.retained = primary.retained.saturating_sub(1);
        if primary.retained == 0 {
            all.remove(&device);
        }
    }
    code
}

unsafe extern "C" fn release(device: i32) -> Code {
    guarded!(UNKNOWN, let_go(device, false, real!("cuDevicePrimaryCtxRelease")))
}

unsafe extern "C" fn release_2(device: i32) -> Code {
    guarded!(
        UNKNOWN,
        let_go(device, false, real!("cuDevicePrimaryCtxRelease_v2"))
    )
}

unsafe extern "C" fn reset(device: i32) -> Code {
    guarded!(UNKNOWN, let_go(device, true, real!("cuDevicePrimaryCtxReset")))
}

unsafe extern "C" fn reset_2(device: i32) -> Code {
    guarded!(UNKNOWN, let_go(device, true, real!("cuDevicePrimaryCtxReset_v2")))
}
