//! `cuGetProcAddress`: the newest form of a function that the version asked for knows.

use std::ffi::{CStr, CString, c_char, c_void};

use crate::export::{Code, INVALID_VALUE, NOT_FOUND, SUCCESS, exports, give};

/// Forms newer than the second, and second ones newer than CUDA 3.2, by the version that brought them.
const SINCE: &[(&str, i32)] = &[
    ("cuCtxCreate_v3", 11_040),
    ("cuCtxCreate_v4", 12_050),
    ("cuGetProcAddress_v2", 12_000),
    ("cuDevicePrimaryCtxRelease_v2", 11_000),
    ("cuDevicePrimaryCtxReset_v2", 11_000),
    ("cuIpcOpenMemHandle_v2", 11_000),
];

const PER_THREAD: u64 = 2;

fn own(name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: this library by an address in it, already loaded; then one of its symbols.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        libc::dladdr(SINCE.as_ptr().cast(), &mut info);
        let library = libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        let found = libc::dlsym(library, name.as_ptr());
        libc::dlclose(library);
        (!found.is_null()).then_some(found)
    }
}

fn find(name: &str, version: i32, flags: u64) -> Option<*mut c_void> {
    let mut forms: Vec<String> = (2..=4).rev().map(|form| format!("{name}_v{form}")).collect();
    forms.push(name.to_owned());
    forms.into_iter().find_map(|form| {
        let since = SINCE
            .iter()
            .find(|(known, _)| *known == form)
            .map_or(0, |(_, since)| *since);
        let per_thread = (flags & PER_THREAD != 0)
            .then(|| own(&format!("{form}_ptsz")))
            .flatten();
        per_thread.or_else(|| own(&form)).filter(|_| version >= since)
    })
}

fn look(symbol: *const c_char, to: *mut *mut c_void, version: i32, flags: u64) -> Code {
    if symbol.is_null() || to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: a C string, as the caller promises.
    let name = unsafe { CStr::from_ptr(symbol) }.to_str().unwrap_or("");
    match find(name, version, flags) {
        Some(found) => give(to, found),
        None => {
            give(to, std::ptr::null_mut());
            NOT_FOUND
        }
    }
}

exports! {
    cuGetProcAddress(symbol: *const c_char, to: *mut *mut c_void, version: i32, flags: u64) {
        look(symbol, to, version, flags)
    }
    cuGetProcAddress_v2(symbol: *const c_char, to: *mut *mut c_void, version: i32, flags: u64, status: *mut u32) {
        let code = look(symbol, to, version, flags);
        if !status.is_null() {
            give(status, u32::from(code != SUCCESS));
        }
        code
    }
    // A function of a driver newer than any list.
    cuDoubleUnlisted() { SUCCESS }
}
