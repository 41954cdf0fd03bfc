//! Contexts.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use tenure_wire::Request;

use crate::abi::{
    DEVICE_NOT_FOUND, Handle, INVALID_CONTEXT, INVALID_DEVICE, INVALID_PLATFORM, INVALID_PROPERTY,
    INVALID_VALUE,
};
use crate::device::{self, Device, Platform};
use crate::export::{answer, bytes_of, done, list, made, pairs};
use crate::link::{Remote, link, lock};
use crate::object::{self, Kind, Object, get, hold};

/// A function the program wants called when an object goes.
pub type Farewell = (unsafe extern "C" fn(Handle, *mut c_void), usize);

/// Calls them, the last that was set first.
pub fn farewell(farewells: &Mutex<Vec<Farewell>>, handle: Handle) {
    for (notify, data) in std::mem::take(&mut *lock(farewells)).into_iter().rev() {
        // SAFETY: the program's own function with its own data.
        unsafe { notify(handle, data as *mut c_void) };
    }
}

pub struct Context {
    pub remote: Remote,
    pub devices: Vec<Arc<Object<Device>>>,
    properties: Vec<isize>,
    farewells: Mutex<Vec<Farewell>>,
}

impl Kind for Context {
    const MARK: u32 = 0x434f_4e54;
    const INVALID: i32 = INVALID_CONTEXT;
}

impl Context {
    /// Numbers of the devices a caller lists; all of the context's where it lists none.
    pub fn numbers(&self, listed: &[Handle]) -> Result<Vec<u32>, i32> {
        listed
            .iter()
            .map(|handle| {
                // SAFETY: as the caller of an OpenCL function promises.
                let number = unsafe { get::<Device>(*handle)? }.number;
                match self.devices.iter().any(|device| device.number == number) {
                    true => Ok(number),
                    false => Err(INVALID_DEVICE),
                }
            })
            .collect()
    }
}

const PLATFORM: isize = 0x1084;
const INTEROP_USER_SYNC: isize = 0x1085;

fn platform_in(properties: &[isize]) -> Result<Option<Handle>, i32> {
    let mut platform = None;
    for pair in properties.chunks_exact(2) {
        match pair[0] {
            PLATFORM => platform = Some(pair[1] as Handle),
            INTEROP_USER_SYNC => {}
            _ => return Err(INVALID_PROPERTY),
        }
    }
    Ok(platform)
}

fn new(devices: Vec<Arc<Object<Device>>>, properties: Vec<isize>) -> Result<Handle, i32> {
    let numbers: Vec<u32> = devices.iter().map(|device| device.number).collect();
    let (remote, _) = Remote::make(link()?, |id| Request::Context { id, devices: numbers })?;
    Ok(Object::give(Object::new(Context {
        remote,
        devices,
        properties,
        farewells: Mutex::default(),
    })))
}

pub unsafe extern "C" fn create(
    properties: *const isize,
    count: u32,
    devices: *const Handle,
    _notify: *const c_void,
    _data: *mut c_void,
    code: *mut i32,
) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            if devices.is_null() || count == 0 {
                return Err(INVALID_VALUE);
            }
            let properties = pairs(properties);
            if let Some(platform) = platform_in(&properties)? {
                get::<Platform>(platform).map_err(|_| INVALID_PLATFORM)?;
            }
            let devices = list(devices, count as usize)
                .iter()
                .map(|device| hold::<Device>(*device))
                .collect::<Result<Vec<_>, _>>()?;
            new(devices, properties)
        })
    }
}

pub unsafe extern "C" fn create_from_type(
    properties: *const isize,
    kind: u64,
    _notify: *const c_void,
    _data: *mut c_void,
    code: *mut i32,
) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let properties = pairs(properties);
            let platform = match platform_in(&properties)? {
                Some(platform) => Some(get::<Platform>(platform).map_err(|_| INVALID_PLATFORM)?),
                None => None,
            };
            let devices = device::of_kind(platform, kind)?;
            if devices.is_empty() {
                return Err(DEVICE_NOT_FOUND);
            }
            new(devices, properties)
        })
    }
}

pub unsafe extern "C" fn retain(context: Handle) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe { object::retain::<Context>(context) })
}

pub unsafe extern "C" fn release(context: Handle) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        if let Some(last) = unsafe { object::release::<Context>(context)? } {
            farewell(&last.farewells, context);
        }
        Ok(())
    })
}

pub unsafe extern "C" fn get_info(
    context: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let context = unsafe { get::<Context>(context)? };
        let handles: Vec<Handle> = context.devices.iter().map(|device| device.handle()).collect();
        let bytes = match param {
            0x1080 => bytes_of(&[context.references()]),
            0x1081 => bytes_of(&handles),
            0x1082 => bytes_of(&context.properties),
            0x1083 => bytes_of(&[handles.len() as u32]),
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}

pub unsafe extern "C" fn set_destructor(
    context: Handle,
    notify: Option<unsafe extern "C" fn(Handle, *mut c_void)>,
    data: *mut c_void,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let context = unsafe { get::<Context>(context)? };
        lock(&context.farewells).push((notify.ok_or(INVALID_VALUE)?, data as usize));
        Ok(())
    })
}
