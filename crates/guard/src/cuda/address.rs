//! `cuGetProcAddress`: what the driver gives out is recognised by its address, whatever name, version and variant it
//! was asked for by, and ours is given in its place.

use std::ffi::{CStr, c_char};

use super::abi::{Code, NOT_FOUND, SUCCESS, UNKNOWN};
use super::{NAMES, REAL, hooked, leads_to, real};
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[
    Hook("cuGetProcAddress", get as Entry),
    Hook("cuGetProcAddress_v2", get_2 as Entry),
    Hook("cuGetProcAddress_v2_ptsz", get_2_per_thread as Entry),
];

/// What the query of the later form says when there is no such function.
const SYMBOL_NOT_FOUND: u32 = 1;

/// What to give out where the driver gave `found` for `name`; none: nothing.
fn instead(name: &str, found: usize) -> Option<Entry> {
    let real = REAL.get()?;
    // One function may have several names; if any of them is ours to answer, we do.
    let names = || {
        NAMES
            .iter()
            .zip(real)
            .filter(|(_, address)| **address == found)
            .map(|(name, _)| *name)
    };
    if let Some(hook) = names().find_map(|known| hooked().find(|hook| hook.0 == known)) {
        return Some(hook.1);
    }
    if let Some(known) = names().next() {
        return Some(leads_to(known, found));
    }
    // A variant the driver does not export by a name of its own: of a function whose every form we pass on.
    let family = |known: &str| known == name || known.strip_prefix(name).is_some_and(is_variant);
    let known = NAMES.iter().any(|known| family(known));
    let guarded = hooked().any(|hook| family(hook.0));
    (known && !guarded).then_some(found as Entry)
}

/// Whether a name goes on with a version, a variant, or both.
fn is_variant(rest: &str) -> bool {
    let rest = rest
        .strip_suffix("_ptsz")
        .or(rest.strip_suffix("_ptds"))
        .unwrap_or(rest);
    rest.is_empty()
        || rest
            .strip_prefix("_v")
            .is_some_and(|version| version.parse::<u32>().is_ok())
}

/// # Safety
/// `symbol` is a C string, `function` has room for the answer, `status` too or is null.
unsafe fn replace(code: Code, symbol: *const c_char, function: *mut Entry, status: *mut u32) -> Code {
    // SAFETY: as promised.
    unsafe {
        if code != SUCCESS || symbol.is_null() || function.is_null() || (*function).is_null() {
            return code;
        }
        let name = CStr::from_ptr(symbol).to_str().unwrap_or("");
        match instead(name, *function as usize) {
            Some(entry) => *function = entry,
            None => {
                *function = std::ptr::null();
                if status.is_null() {
                    return NOT_FOUND;
                }
                *status = SYMBOL_NOT_FOUND;
            }
        }
        code
    }
}

unsafe extern "C" fn get(symbol: *const c_char, function: *mut Entry, version: i32, flags: u64) -> Code {
    let next: unsafe extern "C" fn(*const c_char, *mut Entry, i32, u64) -> Code = real!("cuGetProcAddress");
    guarded!(UNKNOWN, {
        // SAFETY: the caller's own arguments.
        unsafe {
            let code = next(symbol, function, version, flags);
            replace(code, symbol, function, std::ptr::null_mut())
        }
    })
}

type Next = unsafe extern "C" fn(*const c_char, *mut Entry, i32, u64, *mut u32) -> Code;

unsafe extern "C" fn get_2(
    symbol: *const c_char,
    function: *mut Entry,
    version: i32,
    flags: u64,
    status: *mut u32,
) -> Code {
    let next: Next = real!("cuGetProcAddress_v2");
    guarded!(UNKNOWN, {
        // SAFETY: the caller's own arguments.
        unsafe {
            replace(
                next(symbol, function, version, flags, status),
                symbol,
                function,
                status,
            )
        }
    })
}

unsafe extern "C" fn get_2_per_thread(
    symbol: *const c_char,
    function: *mut Entry,
    version: i32,
    flags: u64,
    status: *mut u32,
) -> Code {
    let next: Next = real!("cuGetProcAddress_v2_ptsz");
    guarded!(UNKNOWN, {
        // SAFETY: the caller's own arguments.
        unsafe {
            replace(
                next(symbol, function, version, flags, status),
                symbol,
                function,
                status,
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::is_variant;

    #[test]
    fn versions_and_variants_are_told_from_other_names() {
        for rest in ["", "_v2", "_ptsz", "_v3_ptds"] {
            assert!(is_variant(rest), "{rest}");
        }
        for rest in ["Async", "_v", "_vx", "Host_v2"] {
            assert!(!is_variant(rest), "{rest}");
        }
    }
}
