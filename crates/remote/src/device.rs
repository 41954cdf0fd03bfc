//! Platforms and devices: what the broker's driver says of them behind the guard, without what is not offered here.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use tenure_wire::{Field, Id, Reader, Request, Subject};

use crate::abi::{
    DEVICE_NOT_FOUND, Handle, INVALID_DEVICE, INVALID_PLATFORM, INVALID_VALUE, OUT_OF_RESOURCES,
    PLATFORM_NOT_FOUND,
};
use crate::bulk::Bulk;
use crate::export::{answer, bytes_of, done, put};
use crate::link::{Link, link, lock, parts};
use crate::object::{Kind, Object, get};

pub struct Platform {
    pub number: u32,
}

impl Kind for Platform {
    const MARK: u32 = 0x504c_4154;
    const INVALID: i32 = INVALID_PLATFORM;
}

pub struct Device {
    pub number: u32,
    pub platform: Arc<Object<Platform>>,
}

impl Kind for Device {
    const MARK: u32 = 0x4445_5649;
    const INVALID: i32 = INVALID_DEVICE;
}

/// All platforms and devices. They are never freed: programs and loaders keep their handles.
struct Known {
    platforms: Vec<Arc<Object<Platform>>>,
    devices: Vec<Arc<Object<Device>>>,
}

static KNOWN: Mutex<Option<Arc<Known>>> = Mutex::new(None);

fn known() -> Result<Arc<Known>, i32> {
    let link = link()?;
    if let Some(known) = &*lock(&KNOWN) {
        return Ok(known.clone());
    }
    let numbers: Vec<u32> = parts(&link.call(&Request::Devices {})?)?;
    let mut platforms: Vec<Arc<Object<Platform>>> = Vec::new();
    let mut devices = Vec::new();
    for (number, of) in numbers.into_iter().enumerate() {
        let platform = match platforms.iter().find(|platform| platform.number == of) {
            Some(platform) => platform.clone(),
            None => {
                platforms.push(Object::new(Platform { number: of }));
                platforms[platforms.len() - 1].clone()
            }
        };
        devices.push(Object::new(Device {
            number: number as u32,
            platform,
        }));
    }
    let mut place = lock(&KNOWN);
    Ok(place
        .get_or_insert(Arc::new(Known { platforms, devices }))
        .clone())
}

/// Asks the broker something, whatever the length of its answer.
pub fn ask(
    link: &'static Link,
    subject: Subject,
    object: Id,
    device: u32,
    index: u32,
    param: u32,
    input: Vec<u8>,
) -> Result<Vec<u8>, i32> {
    let mut room = None;
    // An answer may grow between two questions; it does not do so for ever.
    for _ in 0..4 {
        let reply = link.call(&Request::Ask {
            subject,
            object,
            device,
            index,
            param,
            input: input.clone(),
            into: room.as_ref().map(|room: &crate::bulk::Room| room.span),
        })?;
        let mut from = Reader::new(&reply);
        let length = from.take::<u64>().map_err(|_| OUT_OF_RESOURCES)?;
        let here = reply.len() as u64 - 8;
        if here == length {
            return Ok(reply[8..].to_vec());
        }
        if let Some(room) = &room
            && room.span.bytes >= length
        {
            let mut bytes = vec![0; length as usize];
            // SAFETY: the span holds at least so many bytes; the vector is private.
            unsafe { std::ptr::copy_nonoverlapping(room.start(), bytes.as_mut_ptr(), bytes.len()) };
            return Ok(bytes);
        }
        room = Some(Bulk::room(link, length)?);
    }
    Err(OUT_OF_RESOURCES)
}

/// The devices of a type on a platform, or on the first.
pub fn of_kind(platform: Option<&Object<Platform>>, kind: u64) -> Result<Vec<Arc<Object<Device>>>, i32> {
    const DEFAULT: u64 = 1;
    const ALL: u64 = 0xFFFF_FFFF;
    let known = known()?;
    let number = platform.map_or_else(
        || known.platforms.first().map_or(0, |platform| platform.number),
        |platform| platform.number,
    );
    let mut here = known
        .devices
        .iter()
        .filter(|device| device.platform.number == number)
        .cloned();
    match kind {
        DEFAULT => Ok(here.next().into_iter().collect()),
        ALL => Ok(here.collect()),
        _ => {
            const TYPE: u32 = 0x1000;
            let link = link()?;
            let mut found = Vec::new();
            for device in here {
                let own = ask(
                    link,
                    Subject::Device,
                    Id::NONE,
                    device.number,
                    0,
                    TYPE,
                    Vec::new(),
                )?;
                let own = own.try_into().map(u64::from_ne_bytes).unwrap_or(0);
                if own & kind != 0 {
                    found.push(device);
                }
            }
            Ok(found)
        }
    }
}

/// # Safety
/// `handles` has room for `entries` or is null; `count` is valid or null.
unsafe fn list_out(
    found: &[Handle],
    entries: u32,
    handles: *mut Handle,
    count: *mut u32,
    none: i32,
) -> Result<(), i32> {
    // SAFETY: as promised; no more than `entries` are written.
    unsafe {
        put(count, found.len() as u32);
        if !handles.is_null() {
            for (place, handle) in found.iter().take(entries as usize).enumerate() {
                *handles.add(place) = *handle;
            }
        }
    }
    if found.is_empty() { Err(none) } else { Ok(()) }
}

pub unsafe extern "C" fn get_platform_ids(entries: u32, platforms: *mut Handle, count: *mut u32) -> i32 {
    done(|| {
        if (entries == 0 && !platforms.is_null()) || (platforms.is_null() && count.is_null()) {
            return Err(INVALID_VALUE);
        }
        let found: Vec<Handle> = known()
            .map(|known| known.platforms.iter().map(|platform| platform.handle()).collect())
            .unwrap_or_default();
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { list_out(&found, entries, platforms, count, PLATFORM_NOT_FOUND) }
    })
}

pub unsafe extern "C" fn get_device_ids(
    platform: Handle,
    kind: u64,
    entries: u32,
    devices: *mut Handle,
    count: *mut u32,
) -> i32 {
    done(|| {
        if (entries == 0 && !devices.is_null()) || (devices.is_null() && count.is_null()) {
            return Err(INVALID_VALUE);
        }
        let platform = match platform.is_null() {
            true => None,
            // SAFETY: as the caller of an OpenCL function promises.
            false => Some(unsafe { get::<Platform>(platform)? }),
        };
        let found: Vec<Handle> = of_kind(platform, kind)?
            .iter()
            .map(|device| device.handle())
            .collect();
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { list_out(&found, entries, devices, count, DEVICE_NOT_FOUND) }
    })
}

pub unsafe extern "C" fn get_platform_info(
    platform: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    const ICD_SUFFIX: u32 = 0x0920;
    done(|| {
        let number = match platform.is_null() {
            true => known()?.platforms.first().map_or(0, |platform| platform.number),
            // SAFETY: as the caller of an OpenCL function promises.
            false => unsafe { get::<Platform>(platform)? }.number,
        };
        let bytes = match param {
            ICD_SUFFIX => b"TENURE\0".to_vec(),
            _ => ask(link()?, Subject::Platform, Id::NONE, 0, number, param, Vec::new())?,
        };
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}

/// What is told of a device without asking: handles, and what is not offered.
fn own_answer(device: &Object<Device>, param: u32) -> Option<Vec<u8>> {
    const PLATFORM: u32 = 0x1031;
    const PARENT: u32 = 0x1042;
    const REFERENCE_COUNT: u32 = 0x1047;
    const SVM_CAPABILITIES: u32 = 0x1053;
    const MAX_PIPE_ARGS: u32 = 0x1055;
    const PIPE_MAX_ACTIVE_RESERVATIONS: u32 = 0x1056;
    const PIPE_MAX_PACKET_SIZE: u32 = 0x1057;
    const PIPE_SUPPORT: u32 = 0x1071;
    match param {
        PLATFORM => Some(bytes_of(&[device.platform.handle()])),
        PARENT => Some(bytes_of(&[0usize])),
        REFERENCE_COUNT => Some(bytes_of(&[1u32])),
        SVM_CAPABILITIES => Some(bytes_of(&[0u64])),
        MAX_PIPE_ARGS | PIPE_MAX_ACTIVE_RESERVATIONS | PIPE_MAX_PACKET_SIZE | PIPE_SUPPORT => {
            Some(bytes_of(&[0u32]))
        }
        _ => None,
    }
}

pub unsafe extern "C" fn get_device_info(
    device: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let device = unsafe { get::<Device>(device)? };
        let bytes = match own_answer(device, param) {
            Some(bytes) => bytes,
            None => ask(
                link()?,
                Subject::Device,
                Id::NONE,
                device.number,
                0,
                param,
                Vec::new(),
            )?,
        };
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}

/// Root devices have no count.
pub unsafe extern "C" fn retain_device(device: Handle) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe { get::<Device>(device) }.map(|_| ()))
}

pub unsafe extern "C" fn release_device(device: Handle) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe { get::<Device>(device) }.map(|_| ()))
}

fn timers(device: Handle) -> Result<[u64; 2], i32> {
    // SAFETY: as the caller of an OpenCL function promises.
    let device = unsafe { get::<Device>(device)? }.number;
    let reply = link()?.call(&Request::Timer { device })?;
    <[u64; 2]>::take(&mut Reader::new(&reply)).map_err(|_| OUT_OF_RESOURCES)
}

pub unsafe extern "C" fn get_device_and_host_timer(
    device: Handle,
    on_device: *mut u64,
    on_host: *mut u64,
) -> i32 {
    done(|| {
        if on_device.is_null() || on_host.is_null() {
            return Err(INVALID_VALUE);
        }
        let [a, b] = timers(device)?;
        // SAFETY: valid as the caller of an OpenCL function promises.
        unsafe {
            put(on_device, a);
            put(on_host, b);
        }
        Ok(())
    })
}

pub unsafe extern "C" fn get_host_timer(device: Handle, on_host: *mut u64) -> i32 {
    done(|| {
        if on_host.is_null() {
            return Err(INVALID_VALUE);
        }
        let [_, b] = timers(device)?;
        // SAFETY: valid as the caller of an OpenCL function promises.
        unsafe { put(on_host, b) };
        Ok(())
    })
}
