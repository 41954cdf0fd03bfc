//! Which of the driver's devices are the job's, each with its gate. Found once, when the program first looks for
//! devices; on any doubt there are none.

use std::ffi::c_void;
use std::sync::OnceLock;

use super::abi::{DEVICE_UUID, Handle, PLATFORM_NAME, SUCCESS};
use super::command::Flights;
use super::local::Local;
use super::next;
use crate::config::{self, Mapping, Selector};
use crate::gate::Gate;

/// One device of the job.
pub struct Binding {
    pub platform: Handle,
    pub device: Handle,
    pub gate: Gate,
    pub local: Local,
}

// SAFETY: handles are names to be passed to the driver, which is thread-safe.
unsafe impl Send for Binding {}
// SAFETY: as above.
unsafe impl Sync for Binding {}

type GetPlatformIds = unsafe extern "C" fn(u32, *mut Handle, *mut u32) -> i32;
type GetDeviceIds = unsafe extern "C" fn(Handle, u64, u32, *mut Handle, *mut u32) -> i32;
pub type GetInfo = unsafe extern "C" fn(Handle, u32, usize, *mut c_void, *mut usize) -> i32;

static BINDINGS: OnceLock<Vec<Binding>> = OnceLock::new();

/// The job's devices.
pub fn bindings() -> &'static [Binding] {
    BINDINGS.get_or_init(|| match find() {
        Ok(bindings) => {
            // SAFETY: a plain function, alive as long as the process: loaders do not unload layers.
            unsafe { libc::atexit(at_exit) };
            bindings
        }
        Err(why) => {
            crate::say(&format!("no device is given: {why}"));
            Vec::new()
        }
    })
}

pub fn binding(device: Handle) -> Option<&'static Binding> {
    bindings().iter().find(|binding| binding.device == device)
}

pub extern "C" fn at_exit() {
    for binding in BINDINGS.get().map_or(&[][..], Vec::as_slice) {
        binding.gate.at_exit();
    }
}

fn find() -> Result<Vec<Binding>, String> {
    let mappings = config::from_environment()?;
    let platforms = platforms();
    let mut bindings: Vec<Binding> = Vec::new();
    for mapping in mappings {
        let (platform, device) = select(&mapping, &platforms)?;
        if bindings.iter().any(|other| other.device == device) {
            return Err("two pages stand for one device".into());
        }
        let gate = Gate::join(mapping.page.clone(), mapping.slice, Box::new(Flights::of(device)))
            .map_err(|error| format!("{}: {error}", mapping.page.display()))?;
        bindings.push(Binding {
            platform,
            device,
            gate,
            local: Local::default(),
        });
    }
    Ok(bindings)
}

fn select(mapping: &Mapping, platforms: &[Handle]) -> Result<(Handle, Handle), String> {
    let lacking = || format!("the driver has no device {:?}", mapping.device);
    let on = |platform: Handle, device: usize| {
        let device = devices(platform).get(device).copied();
        device.map(|device| (platform, device)).ok_or_else(lacking)
    };
    match &mapping.device {
        Selector::Place { platform, device } => on(*platforms.get(*platform).ok_or_else(lacking)?, *device),
        Selector::Named { platform, device } => {
            let named = |handle: &&Handle| {
                let name = bytes_of(next!("clGetPlatformInfo"), **handle, PLATFORM_NAME);
                String::from_utf8_lossy(&name).trim_end_matches('\0') == platform
            };
            on(*platforms.iter().find(named).ok_or_else(lacking)?, *device)
        }
        Selector::Uuid(uuid) => platforms
            .iter()
            .flat_map(|platform| devices(*platform).into_iter().map(|device| (*platform, device)))
            .find(|(_, device)| {
                let found = bytes_of(next!("clGetDeviceInfo"), *device, DEVICE_UUID);
                found.iter().map(|byte| format!("{byte:02x}")).collect::<String>() == *uuid
            })
            .ok_or_else(lacking),
    }
}

fn platforms() -> Vec<Handle> {
    let next: GetPlatformIds = next!("clGetPlatformIDs");
    let mut handles = [std::ptr::null_mut(); 64];
    let mut count = 0;
    // SAFETY: room for as many handles as we say.
    let code = unsafe { next(handles.len() as u32, handles.as_mut_ptr(), &mut count) };
    let found = if code == SUCCESS {
        (count as usize).min(handles.len())
    } else {
        0
    };
    handles[..found].to_vec()
}

fn devices(platform: Handle) -> Vec<Handle> {
    let next: GetDeviceIds = next!("clGetDeviceIDs");
    let mut handles = [std::ptr::null_mut(); 256];
    let mut count = 0;
    let all = 0xFFFF_FFFF;
    // SAFETY: room for as many handles as we say.
    let code = unsafe {
        next(
            platform,
            all,
            handles.len() as u32,
            handles.as_mut_ptr(),
            &mut count,
        )
    };
    let found = if code == SUCCESS {
        (count as usize).min(handles.len())
    } else {
        0
    };
    handles[..found].to_vec()
}

/// What the driver answers to one of its `clGet…Info` questions; empty when it does not.
pub fn bytes_of(ask: GetInfo, object: Handle, param: u32) -> Vec<u8> {
    let mut size = 0;
    // SAFETY: a question for the size only.
    if unsafe { ask(object, param, 0, std::ptr::null_mut(), &mut size) } != SUCCESS || size > 1 << 24 {
        return Vec::new();
    }
    let mut answer = vec![0u8; size];
    // SAFETY: room for `size` bytes.
    let code = unsafe {
        ask(
            object,
            param,
            size,
            answer.as_mut_ptr().cast(),
            std::ptr::null_mut(),
        )
    };
    if code == SUCCESS { answer } else { Vec::new() }
}

/// The same for an answer of one fixed size.
pub fn value_of<T: Copy + Default>(ask: GetInfo, object: Handle, param: u32) -> Option<T> {
    let mut value = T::default();
    // SAFETY: room for a T; used for integers and handles only.
    let code = unsafe {
        ask(
            object,
            param,
            size_of::<T>(),
            (&raw mut value).cast(),
            std::ptr::null_mut(),
        )
    };
    (code == SUCCESS).then_some(value)
}
