//! Modules and the kernels every module has: `spin` keeps the device busy for some microseconds, `add` adds two
//! vectors. Also what is passed on with many and with floating arguments, to be found again.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::export::{Code, Handle, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, SUCCESS, exports, give, given};
use crate::stream::enqueue;

const SPIN: usize = 0x51;
const ADD: usize = 0x52;

/// The parameter at `place`, of the type the kernel says.
fn parameter<T: Copy>(parameters: *const *const c_void, place: usize) -> Option<T> {
    let at: *const c_void = given(parameters.wrapping_add(place))?;
    given(at.cast())
}

fn launch(function: usize, on: Handle, parameters: *const *const c_void) -> Code {
    match function {
        SPIN => {
            let Some(micros) = parameter::<u32>(parameters, 0) else {
                return INVALID_VALUE;
            };
            enqueue(on, move || spin(Duration::from_micros(micros.into())))
        }
        ADD => {
            let address = |place| parameter::<u64>(parameters, place);
            let (Some(a), Some(b), Some(to), Some(count)) = (
                address(0),
                address(1),
                address(2),
                parameter::<u32>(parameters, 3),
            ) else {
                return INVALID_VALUE;
            };
            enqueue(on, move || {
                for place in 0..u64::from(count) {
                    let element = |base: u64| (base + 4 * place) as *mut f32;
                    // SAFETY: three vectors of so many elements, as the launch says.
                    unsafe { *element(to) = *element(a) + *element(b) };
                }
            })
        }
        _ => INVALID_HANDLE,
    }
}

/// The kernel of a name, which every module and every library has.
fn named(to: *mut Handle, name: *const c_char) -> Code {
    if name.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: a C string, as the caller promises.
    match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"spin" => give(to, SPIN as Handle),
        b"add" => give(to, ADD as Handle),
        _ => NOT_FOUND,
    }
}

/// Busy for so long by the clock; asleep but for the end, so that the machine's own load matters little.
fn spin(length: Duration) {
    let until = Instant::now() + length;
    if let Some(most) = length.checked_sub(Duration::from_micros(200)) {
        std::thread::sleep(most);
    }
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    sides: [u32; 6],
    shared: u32,
    stream: Handle,
    attributes: Handle,
    count: u32,
}

fn launch_by(config: *const Config, function: usize, parameters: *const *const c_void) -> Code {
    match given(config) {
        Some(config) => launch(function, config.stream, parameters),
        None => INVALID_VALUE,
    }
}

fn per_thread(on: Handle) -> Handle {
    if on.is_null() { 2 as Handle } else { on }
}

/// What `cuTexRefSetMipmapLevelClamp` was given last.
static CLAMP: Mutex<(f32, f32)> = Mutex::new((0.0, 0.0));

type Parameters = *const *const c_void;

exports! {
    cuModuleLoadData(to: *mut Handle, _image: *const c_void) { give(to, 0x40 as Handle) }
    cuModuleLoadDataEx(to: *mut Handle, _image: Handle, _count: u32, _options: Handle, _values: Handle) {
        give(to, 0x40 as Handle)
    }
    cuModuleUnload(_module: Handle) { SUCCESS }
    cuLibraryLoadData(
        to: *mut Handle, _image: Handle, _options: Handle, _values: Handle, _count: u32, _library_options: Handle,
        _library_values: Handle, _library_count: u32,
    ) { give(to, 0x41 as Handle) }
    cuLibraryUnload(_library: Handle) { SUCCESS }
    cuLibraryGetKernel(to: *mut Handle, _library: Handle, name: *const c_char) { named(to, name) }
    cuModuleGetFunction(to: *mut Handle, _module: Handle, name: *const c_char) { named(to, name) }
    cuLaunchKernel(
        function: usize, _gx: u32, _gy: u32, _gz: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32, on: Handle,
        parameters: Parameters, _extra: Handle,
    ) { launch(function, on, parameters) }
    cuLaunchKernel_ptsz(
        function: usize, _gx: u32, _gy: u32, _gz: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32, on: Handle,
        parameters: Parameters, _extra: Handle,
    ) { launch(function, per_thread(on), parameters) }
    cuLaunchKernelEx(config: *const Config, function: usize, parameters: Parameters, _extra: Handle) {
        launch_by(config, function, parameters)
    }
    cuLaunchKernelEx_ptsz(config: *const Config, function: usize, parameters: Parameters, _extra: Handle) {
        launch_by(config, function, parameters)
    }
    cuLaunchCooperativeKernel(
        function: usize, _gx: u32, _gy: u32, _gz: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32, on: Handle,
        parameters: Parameters,
    ) { launch(function, on, parameters) }
    cuLaunchCooperativeKernel_ptsz(
        function: usize, _gx: u32, _gy: u32, _gz: u32, _bx: u32, _by: u32, _bz: u32, _shared: u32, on: Handle,
        parameters: Parameters,
    ) { launch(function, per_thread(on), parameters) }
    // Not linked: all eight arguments are written where the last points.
    cuLinkAddData_v2(
        state: u64, kind: u32, data: u64, size: usize, name: u64, count: u32, options: u64, values: *mut [u64; 7],
    ) {
        give(values, [state, kind.into(), data, size as u64, name, count.into(), options])
    }
    cuTexRefSetMipmapLevelClamp(_reference: Handle, least: f32, most: f32) {
        *CLAMP.lock().unwrap() = (least, most);
        SUCCESS
    }
    cuTexRefGetMipmapLevelClamp(least: *mut f32, most: *mut f32, _reference: Handle) {
        let (from, to) = *CLAMP.lock().unwrap();
        give(least, from);
        give(most, to)
    }
}
