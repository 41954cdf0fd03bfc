//! The shapes of exports: one that answers with a code, one that answers with an object. A panic in either becomes a
//! code and never crosses into the caller. And what a caller's pointers hold.

use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{Handle, INVALID_VALUE, OUT_OF_RESOURCES, SUCCESS};

/// Runs the body of an export that answers with a code.
pub fn done(body: impl FnOnce() -> Result<(), i32>) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => OUT_OF_RESOURCES,
    }
}

/// Runs the body of an export that answers with an object, or any address.
///
/// # Safety
/// `code` is valid or null.
pub unsafe fn made(code: *mut i32, body: impl FnOnce() -> Result<Handle, i32>) -> Handle {
    let (handle, why) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(handle)) => (handle, SUCCESS),
        Ok(Err(why)) => (std::ptr::null_mut(), why),
        Err(_) => (std::ptr::null_mut(), OUT_OF_RESOURCES),
    };
    if !code.is_null() {
        // SAFETY: valid as promised.
        unsafe { *code = why };
    }
    handle
}

/// Answers a `clGet…Info` question with bytes.
///
/// # Safety
/// `value` has room for `size` bytes or is null; `size_ret` is valid or null.
pub unsafe fn answer(bytes: &[u8], size: usize, value: *mut c_void, size_ret: *mut usize) -> Result<(), i32> {
    if !value.is_null() {
        if size < bytes.len() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: room for `size` bytes, which is enough.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), bytes.len()) };
    }
    if !size_ret.is_null() {
        // SAFETY: valid as promised.
        unsafe { *size_ret = bytes.len() };
    }
    Ok(())
}

/// Writes where a caller wants something.
///
/// # Safety
/// `place` is valid or null.
pub unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: valid as promised.
        unsafe { place.write(value) };
    }
}

/// A caller's list.
///
/// # Safety
/// `start` is null or has `count` values.
pub unsafe fn list<'a, T>(start: *const T, count: usize) -> &'a [T] {
    if start.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: as promised.
    unsafe { std::slice::from_raw_parts(start, count) }
}

/// A caller's list of pairs ended by zero, with the end.
///
/// # Safety
/// `start` is null or such a list.
pub unsafe fn pairs<T: Copy + Default + PartialEq>(start: *const T) -> Vec<T> {
    let mut all = Vec::new();
    if start.is_null() {
        return all;
    }
    loop {
        // SAFETY: within the list, whose end is a zero; a name is followed by its value.
        unsafe {
            let name = *start.add(all.len());
            all.push(name);
            if name == T::default() {
                return all;
            }
            all.push(*start.add(all.len()));
        }
    }
}

/// A caller's three numbers.
///
/// # Safety
/// `start` is null or has three.
pub unsafe fn three(start: *const usize) -> Result<[u64; 3], i32> {
    // SAFETY: as promised.
    match unsafe { list(start, 3) } {
        [a, b, c] => Ok([*a as u64, *b as u64, *c as u64]),
        _ => Err(INVALID_VALUE),
    }
}

/// A caller's text; empty where there is none.
///
/// # Safety
/// `text` is null or a C string.
pub unsafe fn text(text: *const c_char) -> CString {
    if text.is_null() {
        return CString::default();
    }
    // SAFETY: as promised.
    unsafe { CStr::from_ptr(text) }.to_owned()
}

/// Numbers as the bytes of an answer.
pub fn bytes_of<T: Copy>(values: &[T]) -> Vec<u8> {
    // SAFETY: used for integers and handles, which have no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }.to_vec()
}
