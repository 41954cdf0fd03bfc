//! An OpenCL loader that lies, for tests: `libopencl_liar.so` passes what discovery asks on to the real one, and tells of
//! twice the memory each device has. Whoever lists such a device claims what it is not.

use std::ffi::c_void;
use std::sync::OnceLock;

use libloading::Library;

type Handle = *mut c_void;
type GetInfo = unsafe extern "C" fn(Handle, u32, usize, *mut c_void, *mut usize) -> i32;

const GLOBAL_MEM_SIZE: u32 = 0x101f;

fn real() -> &'static Library {
    static REAL: OnceLock<Library> = OnceLock::new();
    // SAFETY: the loader and its drivers run their own start-up code, in a process apart.
    REAL.get_or_init(|| unsafe { Library::new("libOpenCL.so.1") }.expect("a loader"))
}

/// # Safety
/// As OpenCL says of the function of this name.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn clGetPlatformIDs(room: u32, list: *mut Handle, count: *mut u32) -> i32 {
    type Function = unsafe extern "C" fn(u32, *mut Handle, *mut u32) -> i32;
    // SAFETY: the type is the headers'; the caller's promise is handed on.
    unsafe { real().get::<Function>(b"clGetPlatformIDs").expect("it")(room, list, count) }
}

/// # Safety
/// As OpenCL says of the function of this name.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn clGetPlatformInfo(
    of: Handle,
    what: u32,
    room: usize,
    value: *mut c_void,
    length: *mut usize,
) -> i32 {
    // SAFETY: as above.
    unsafe { real().get::<GetInfo>(b"clGetPlatformInfo").expect("it")(of, what, room, value, length) }
}

/// # Safety
/// As OpenCL says of the function of this name.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn clGetDeviceIDs(
    of: Handle,
    kind: u64,
    room: u32,
    list: *mut Handle,
    count: *mut u32,
) -> i32 {
    type Function = unsafe extern "C" fn(Handle, u64, u32, *mut Handle, *mut u32) -> i32;
    // SAFETY: as above.
    unsafe { real().get::<Function>(b"clGetDeviceIDs").expect("it")(of, kind, room, list, count) }
}

/// # Safety
/// As OpenCL says of the function of this name.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn clGetDeviceInfo(
    of: Handle,
    what: u32,
    room: usize,
    value: *mut c_void,
    length: *mut usize,
) -> i32 {
    // SAFETY: as above.
    let status =
        unsafe { real().get::<GetInfo>(b"clGetDeviceInfo").expect("it")(of, what, room, value, length) };
    if status == 0 && what == GLOBAL_MEM_SIZE && !value.is_null() && room >= 8 {
        let bytes: *mut u64 = value.cast();
        // SAFETY: the driver has just written a number of this size there.
        unsafe { bytes.write_unaligned(bytes.read_unaligned().saturating_mul(2)) };
    }
    status
}
