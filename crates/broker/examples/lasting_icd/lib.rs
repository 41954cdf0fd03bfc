//! A test double: an OpenCL driver whose device's memory, global and local, outlives the processes that used it, as
//! a GPU's does and a processor's does not. Nothing is ever cleared.
//!
//! The device is a file named by `TENURE_LASTING_DEVICE`. It compiles nothing: its programs have the kernels of
//! `kernel.rs`, whatever their source. `TENURE_LASTING_FAULT` makes it a broken one: `stuck` memory keeps one word
//! whatever is written, `small` gives less memory than it says, `slow` takes its time over a marker.

#[allow(dead_code)]
#[path = "../../../remote/src/abi.rs"]
mod abi;
mod event;
mod kernel;
mod memory;
mod queue;

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use abi::{ENTRIES, Handle, INVALID_OPERATION, INVALID_VALUE, NAMES, SUCCESS};
use kernel::{Argument, Kernel};
use memory::{COMPUTE_UNITS, LOCAL_BYTES, Memory, memory};

type Entry = *const c_void;

struct Table([Entry; ENTRIES]);
// SAFETY: addresses of functions.
unsafe impl Sync for Table {}
// SAFETY: as above.
unsafe impl Send for Table {}

static TABLE: std::sync::LazyLock<Table> = std::sync::LazyLock::new(|| Table(NAMES.map(entry)));

/// Every object begins with the table's address, for the loader.
#[repr(C)]
struct Object<T> {
    table: *const Entry,
    value: T,
}

fn made<T>(value: T) -> Handle {
    let table = TABLE.0.as_ptr();
    Box::into_raw(Box::new(Object { table, value })).cast()
}

/// # Safety
/// A live handle of this kind.
unsafe fn of<'a, T>(handle: Handle) -> &'a mut T {
    // SAFETY: as promised.
    unsafe { &mut (*handle.cast::<Object<T>>()).value }
}

/// # Safety
/// A handle of this kind, which is not used again.
unsafe fn drop_of<T>(handle: Handle) -> i32 {
    // SAFETY: as promised; it was made by `made`.
    drop(unsafe { Box::from_raw(handle.cast::<Object<T>>()) });
    SUCCESS
}

struct Buffer {
    at: usize,
    bytes: usize,
    gone: Vec<event::Gone>,
}

struct Fixed(Handle);
// SAFETY: never changed once made.
unsafe impl Sync for Fixed {}
// SAFETY: as above.
unsafe impl Send for Fixed {}

static PLATFORM: std::sync::LazyLock<Fixed> = std::sync::LazyLock::new(|| Fixed(made(())));
static DEVICE: std::sync::LazyLock<Fixed> = std::sync::LazyLock::new(|| Fixed(made(())));

macro_rules! entries {
    ($($name:literal => $function:path),* $(,)?) => {
        fn entry(name: &str) -> Entry {
            match name {
                $($name => $function as Entry,)*
                _ => refuse as Entry,
            }
        }
    };
}

entries! {
    "clGetPlatformIDs" => clIcdGetPlatformIDsKHR,
    "clGetPlatformInfo" => clGetPlatformInfo,
    "clGetDeviceIDs" => device_ids,
    "clGetDeviceInfo" => device_info,
    "clRetainDevice" => keep,
    "clReleaseDevice" => keep,
    "clCreateContext" => create_context,
    "clRetainContext" => keep,
    "clReleaseContext" => keep,
    "clCreateCommandQueue" => queue::create,
    "clRetainCommandQueue" => queue::retain,
    "clReleaseCommandQueue" => queue::release,
    "clFlush" => keep,
    "clFinish" => keep,
    "clCreateBuffer" => create_buffer,
    "clReleaseMemObject" => release_buffer,
    "clEnqueueReadBuffer" => read_buffer,
    "clEnqueueWriteBuffer" => write_buffer,
    "clEnqueueFillBuffer" => fill_buffer,
    "clCreateProgramWithSource" => create_program,
    "clBuildProgram" => build_program,
    "clReleaseProgram" => keep,
    "clCreateKernel" => create_kernel,
    "clReleaseKernel" => release_kernel,
    "clSetKernelArg" => set_argument,
    "clEnqueueNDRangeKernel" => launch,
    "clEnqueueMarkerWithWaitList" => queue::marker,
    "clRetainEvent" => keep,
    "clReleaseEvent" => keep,
    "clGetEventInfo" => event::info,
    "clSetEventCallback" => event::set_callback,
    "clSetMemObjectDestructorCallback" => event::when_gone,
    "clGetExtensionFunctionAddress" => clGetExtensionFunctionAddress,
}

extern "C" fn refuse() -> i32 {
    INVALID_OPERATION
}

extern "C" fn keep(_object: Handle) -> i32 {
    SUCCESS
}

/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void {
    // SAFETY: as promised.
    match unsafe { CStr::from_ptr(name) }.to_str() {
        Ok("clIcdGetPlatformIDsKHR") => clIcdGetPlatformIDsKHR as *mut c_void,
        Ok(name) if NAMES.contains(&name) => entry(name).cast_mut(),
        _ => null_mut(),
    }
}

/// # Safety
/// As OpenCL has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clIcdGetPlatformIDsKHR(room: u32, into: *mut Handle, count: *mut u32) -> i32 {
    // SAFETY: as promised.
    unsafe { one(PLATFORM.0, room, into, count) }
}

unsafe extern "C" fn device_ids(
    _platform: Handle,
    _kind: u64,
    room: u32,
    into: *mut Handle,
    count: *mut u32,
) -> i32 {
    // SAFETY: as OpenCL has it.
    unsafe { one(DEVICE.0, room, into, count) }
}

unsafe fn one(handle: Handle, room: u32, into: *mut Handle, count: *mut u32) -> i32 {
    // SAFETY: the caller's pointers are valid or null, with the room said.
    unsafe {
        if room > 0 && !into.is_null() {
            *into = handle;
        }
        if !count.is_null() {
            *count = 1;
        }
    }
    SUCCESS
}

/// # Safety
/// As OpenCL has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetPlatformInfo(
    _platform: Handle,
    what: u32,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    let text = match what {
        0x0900 => "FULL_PROFILE\0",
        0x0901 => "OpenCL 1.2 lasting\0",
        0x0902 => "Lasting\0",
        0x0903 => "Tenure\0",
        0x0904 => "cl_khr_icd\0",
        0x0920 => "LAST\0",
        _ => return INVALID_VALUE,
    };
    // SAFETY: as promised.
    unsafe { answer(text.as_bytes(), size, value, there) }
}

unsafe extern "C" fn device_info(
    _device: Handle,
    what: u32,
    size: usize,
    value: *mut c_void,
    there: *mut usize,
) -> i32 {
    let total = Memory::promised() as u64;
    let bytes: Vec<u8> = match what {
        0x1000 => 4u64.to_ne_bytes().into(),
        0x1002 => (COMPUTE_UNITS as u32).to_ne_bytes().into(),
        0x1004 => 64usize.to_ne_bytes().into(),
        0x1010 | 0x101f => total.to_ne_bytes().into(),
        // Memory of its own.
        0x1022 => 1u32.to_ne_bytes().into(),
        0x1023 => (LOCAL_BYTES as u64).to_ne_bytes().into(),
        0x1027 => 1u32.to_ne_bytes().into(),
        0x102b => b"Lasting memory\0".to_vec(),
        0x102c => b"Tenure\0".to_vec(),
        0x102d | 0x102f => b"OpenCL 1.2 lasting\0".to_vec(),
        0x1030 => b"\0".to_vec(),
        0x1031 => (PLATFORM.0 as usize).to_ne_bytes().into(),
        _ => return INVALID_VALUE,
    };
    // SAFETY: as OpenCL has it.
    unsafe { answer(&bytes, size, value, there) }
}

unsafe fn answer(bytes: &[u8], size: usize, value: *mut c_void, there: *mut usize) -> i32 {
    // SAFETY: the caller's pointers are valid or null, with the room said.
    unsafe {
        if !there.is_null() {
            *there = bytes.len();
        }
        if !value.is_null() {
            if size < bytes.len() {
                return INVALID_VALUE;
            }
            value.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len());
        }
    }
    SUCCESS
}

unsafe fn said(code: *mut i32, what: i32) {
    if !code.is_null() {
        // SAFETY: valid as OpenCL has it.
        unsafe { *code = what };
    }
}

unsafe extern "C" fn create_context(
    _properties: *const isize,
    _devices: u32,
    _device: *const Handle,
    _notify: Handle,
    _with: Handle,
    code: *mut i32,
) -> Handle {
    // SAFETY: as OpenCL has it.
    unsafe { said(code, SUCCESS) };
    made(())
}

unsafe extern "C" fn create_buffer(
    _context: Handle,
    flags: u64,
    bytes: usize,
    host: *const u8,
    code: *mut i32,
) -> Handle {
    const COPY: u64 = 1 << 5;
    let place = memory().take(bytes);
    // SAFETY: as OpenCL has it; the place has room for what is copied.
    unsafe {
        said(code, if place.is_some() { SUCCESS } else { -4 });
        if let Some(at) = place.filter(|_| flags & COPY != 0 && !host.is_null()) {
            memory().start().add(at).copy_from(host, bytes);
        }
    }
    let gone = Vec::new();
    place.map_or(null_mut(), |at| made(Buffer { at, bytes, gone }))
}

unsafe extern "C" fn release_buffer(buffer: Handle) -> i32 {
    // SAFETY: a live buffer, not used again.
    unsafe {
        memory().give_back(of::<Buffer>(buffer).at);
        for (call, with) in std::mem::take(&mut of::<Buffer>(buffer).gone).into_iter().rev() {
            call(buffer, with);
        }
        drop_of::<Buffer>(buffer)
    }
}

unsafe extern "C" fn read_buffer(
    _queue: Handle,
    buffer: Handle,
    _blocking: u32,
    from: usize,
    size: usize,
    into: *mut u8,
    _waits: u32,
    _wait: *const Handle,
    event: *mut Handle,
) -> i32 {
    // SAFETY: a live buffer; room as OpenCL has it.
    unsafe {
        let Buffer { at, bytes, .. } = of::<Buffer>(buffer);
        if from + size > *bytes {
            return INVALID_VALUE;
        }
        into.copy_from(memory().start().add(*at + from), size);
    }
    // SAFETY: as OpenCL has it.
    unsafe { event::ended(event) };
    SUCCESS
}

unsafe extern "C" fn write_buffer(
    _queue: Handle,
    buffer: Handle,
    _blocking: u32,
    to: usize,
    size: usize,
    from: *const u8,
    _waits: u32,
    _wait: *const Handle,
    event: *mut Handle,
) -> i32 {
    // SAFETY: a live buffer; room as OpenCL has it.
    unsafe {
        let Buffer { at, bytes, .. } = of::<Buffer>(buffer);
        if to + size > *bytes {
            return INVALID_VALUE;
        }
        memory().start().add(*at + to).copy_from(from, size);
    }
    // SAFETY: as OpenCL has it.
    unsafe { event::ended(event) };
    SUCCESS
}

unsafe extern "C" fn fill_buffer(
    _queue: Handle,
    buffer: Handle,
    pattern: *const u8,
    width: usize,
    to: usize,
    size: usize,
    _waits: u32,
    _wait: *const Handle,
    event: *mut Handle,
) -> i32 {
    // SAFETY: a live buffer; a pattern as wide as is said.
    unsafe {
        let Buffer { at, bytes, .. } = of::<Buffer>(buffer);
        if to + size > *bytes || width == 0 {
            return INVALID_VALUE;
        }
        for step in (0..size).step_by(width) {
            memory().start().add(*at + to + step).copy_from(pattern, width);
        }
    }
    // SAFETY: as OpenCL has it.
    unsafe { event::ended(event) };
    SUCCESS
}

unsafe extern "C" fn create_program(
    _context: Handle,
    _count: u32,
    _texts: *const *const c_char,
    _lengths: *const usize,
    code: *mut i32,
) -> Handle {
    // SAFETY: as OpenCL has it.
    unsafe { said(code, SUCCESS) };
    made(())
}

extern "C" fn build_program(
    _program: Handle,
    _devices: u32,
    _device: *const Handle,
    _options: *const c_char,
    _notify: Handle,
    _with: Handle,
) -> i32 {
    SUCCESS
}

unsafe extern "C" fn create_kernel(_program: Handle, name: *const c_char, code: *mut i32) -> Handle {
    // SAFETY: a C string, as OpenCL has it.
    let kernel = unsafe { CStr::from_ptr(name) }
        .to_str()
        .ok()
        .and_then(Kernel::named);
    // SAFETY: as OpenCL has it.
    unsafe { said(code, if kernel.is_some() { SUCCESS } else { -46 }) };
    kernel.map_or(null_mut(), made)
}

unsafe extern "C" fn release_kernel(kernel: Handle) -> i32 {
    // SAFETY: a live kernel, not used again.
    unsafe { drop_of::<Kernel>(kernel) }
}

unsafe extern "C" fn set_argument(kernel: Handle, index: u32, size: usize, value: *const u8) -> i32 {
    let argument = if value.is_null() {
        Argument::Local(size)
    } else {
        let mut bytes = [0; 8];
        let width = size.min(8);
        // SAFETY: as many bytes as are said, and no more than there is room for.
        unsafe { bytes.as_mut_ptr().copy_from(value, width) };
        Argument::Number(u64::from_ne_bytes(bytes))
    };
    // SAFETY: a live kernel.
    unsafe { of::<Kernel>(kernel) }.set(index as usize, argument)
}

unsafe extern "C" fn launch(
    _queue: Handle,
    kernel: Handle,
    _dimensions: u32,
    _offset: *const usize,
    items: *const usize,
    group: *const usize,
    _waits: u32,
    _wait: *const Handle,
    event: *mut Handle,
) -> i32 {
    // SAFETY: a live kernel; sizes as OpenCL has them.
    unsafe {
        event::ended(event);
        let size = if group.is_null() { 64 } else { *group };
        of::<Kernel>(kernel).run((*items).div_ceil(size), |handle| {
            // SAFETY: kernels take buffers where their source says so.
            let buffer = of::<Buffer>(handle as Handle);
            (buffer.at, buffer.bytes)
        })
    }
}
