//! How functions are exported, and the numbers all of them share.

use std::ffi::c_void;

pub type Code = i32;
pub type Handle = *mut c_void;

pub const SUCCESS: Code = 0;
pub const INVALID_VALUE: Code = 1;
pub const OUT_OF_MEMORY: Code = 2;
pub const NOT_INITIALIZED: Code = 3;
pub const INVALID_DEVICE: Code = 101;
pub const INVALID_CONTEXT: Code = 201;
pub const INVALID_HANDLE: Code = 400;
pub const NOT_FOUND: Code = 500;
pub const NOT_READY: Code = 600;

/// Functions of the driver's own names.
macro_rules! exports {
    ($($name:ident($($arg:ident: $kind:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $kind),*) -> $crate::export::Code $body
    )*};
}
pub(crate) use exports;

/// Writes an answer where the caller wants it.
pub fn give<T>(to: *mut T, value: T) -> Code {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: not null, and room for the answer as the caller of a driver's function promises.
    unsafe { to.write(value) };
    SUCCESS
}

/// Reads what the caller passed by address.
pub fn given<T: Copy>(from: *const T) -> Option<T> {
    // SAFETY: not null, and a value as the caller of a driver's function promises.
    (!from.is_null()).then(|| unsafe { from.read_unaligned() })
}

/// The answer of a step that may fail.
pub fn code(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(SUCCESS)
}
