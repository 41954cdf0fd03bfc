//! Buffers and parts of buffers. The broker's driver never sees the program's memory: what a buffer begins with is
//! copied, and a host pointer the program wants used is filled when it maps the buffer.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use tenure_wire::Request;

use crate::abi::{
    Handle, INVALID_BUFFER_SIZE, INVALID_HOST_PTR, INVALID_MEM_OBJECT, INVALID_OPERATION, INVALID_PROPERTY,
    INVALID_VALUE, MEM_ALLOC_HOST_PTR, MEM_COPY_HOST_PTR, MEM_READ_ONLY, MEM_READ_WRITE, MEM_USE_HOST_PTR,
    MEM_WRITE_ONLY, MISALIGNED_SUB_BUFFER_OFFSET,
};
use crate::bulk::{Bulk, Room};
use crate::context::{Context, Farewell, farewell};
use crate::device;
use crate::export::{answer, bytes_of, done, list, made};
use crate::image::Picture;
use crate::kernel::LIVING;
use crate::link::{Remote, lock};
use crate::map::Mapping;
use crate::object::{self, Kind, Object, get, hold};

pub const HOST_WRITE_ONLY: u64 = 1 << 7;
pub const HOST_READ_ONLY: u64 = 1 << 8;
pub const HOST_NO_ACCESS: u64 = 1 << 9;
const ACCESS: u64 = MEM_READ_WRITE | MEM_WRITE_ONLY | MEM_READ_ONLY;
const HOST_ACCESS: u64 = HOST_WRITE_ONLY | HOST_READ_ONLY | HOST_NO_ACCESS;
const HOST_MEMORY: u64 = MEM_USE_HOST_PTR | MEM_ALLOC_HOST_PTR | MEM_COPY_HOST_PTR;

pub struct Memory {
    pub remote: Remote,
    pub context: Arc<Object<Context>>,
    pub flags: u64,
    pub bytes: u64,
    /// The program's own memory, if it wants that used.
    pub host: usize,
    /// What it is a part of, and from where; or what an image is made from.
    pub of: Option<(Arc<Object<Memory>>, u64)>,
    pub picture: Option<Picture>,
    pub mappings: Mutex<Vec<Mapping>>,
    pub properties: Vec<u64>,
    farewells: Mutex<Vec<Farewell>>,
}

impl Kind for Memory {
    const MARK: u32 = 0x4d45_4d4f;
    const INVALID: i32 = INVALID_MEM_OBJECT;
}

impl Memory {
    pub fn new(remote: Remote, context: Arc<Object<Context>>, flags: u64, bytes: u64, host: usize) -> Memory {
        Memory {
            remote,
            context,
            flags,
            bytes,
            host,
            of: None,
            picture: None,
            mappings: Mutex::default(),
            properties: Vec::new(),
            farewells: Mutex::default(),
        }
    }

    /// Gives it out to the program.
    pub fn give(self) -> Handle {
        let handle = Object::give(Object::new(self));
        LIVING.add(handle);
        handle
    }

    pub fn readable(&self) -> Result<(), i32> {
        match self.flags & (HOST_WRITE_ONLY | HOST_NO_ACCESS) {
            0 => Ok(()),
            _ => Err(INVALID_OPERATION),
        }
    }

    pub fn writable(&self) -> Result<(), i32> {
        match self.flags & (HOST_READ_ONLY | HOST_NO_ACCESS) {
            0 => Ok(()),
            _ => Err(INVALID_OPERATION),
        }
    }

    /// Whether a range lies within this buffer.
    pub fn range(&self, at: u64, bytes: u64) -> Result<(), i32> {
        if self.picture.is_some() {
            return Err(INVALID_MEM_OBJECT);
        }
        match at.checked_add(bytes) {
            Some(end) if bytes > 0 && end <= self.bytes => Ok(()),
            _ => Err(INVALID_VALUE),
        }
    }
}

/// Flags that go together, and agree with whether there is a host pointer.
pub fn check_flags(flags: u64, host: *mut c_void) -> Result<(), i32> {
    let known = ACCESS | HOST_ACCESS | HOST_MEMORY | 1 << 12;
    let many = |flags: u64| flags.count_ones() > 1;
    if flags & !known != 0 || many(flags & ACCESS) || many(flags & HOST_ACCESS) {
        return Err(INVALID_VALUE);
    }
    if flags & MEM_USE_HOST_PTR != 0 && flags & (MEM_ALLOC_HOST_PTR | MEM_COPY_HOST_PTR) != 0 {
        return Err(INVALID_VALUE);
    }
    let wants_host = flags & (MEM_USE_HOST_PTR | MEM_COPY_HOST_PTR) != 0;
    if wants_host == host.is_null() {
        return Err(INVALID_HOST_PTR);
    }
    Ok(())
}

/// The flags the broker is told: what concerns the host is settled here.
pub fn sent_flags(flags: u64) -> u64 {
    flags & !(HOST_ACCESS | HOST_MEMORY)
}

pub unsafe extern "C" fn create_buffer(
    context: Handle,
    flags: u64,
    size: usize,
    host: *mut c_void,
    code: *mut i32,
) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe { made(code, || new(context, flags, size, host, Vec::new())) }
}

pub unsafe extern "C" fn create_buffer_with_properties(
    context: Handle,
    properties: *const u64,
    flags: u64,
    size: usize,
    host: *mut c_void,
    code: *mut i32,
) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let listed: Vec<u64> = list(properties, 1).to_vec();
            match listed.first() {
                None | Some(0) => new(context, flags, size, host, listed),
                Some(_) => Err(INVALID_PROPERTY),
            }
        })
    }
}

/// # Safety
/// The arguments are those of `clCreateBuffer`.
unsafe fn new(
    context: Handle,
    flags: u64,
    size: usize,
    host: *mut c_void,
    properties: Vec<u64>,
) -> Result<Handle, i32> {
    // SAFETY: as promised.
    let context = unsafe { hold::<Context>(context)? };
    if size == 0 {
        return Err(INVALID_BUFFER_SIZE);
    }
    check_flags(flags, host)?;
    let link = context.remote.link;
    let bytes = size as u64;
    let room: Option<Room> = match host.is_null() {
        true => None,
        false => {
            let room = Bulk::room(link, bytes)?;
            // SAFETY: as many bytes as the program said are at `host`, and as many fit the room.
            unsafe { std::ptr::copy_nonoverlapping(host.cast(), room.start(), size) };
            Some(room)
        }
    };
    let (remote, _) = Remote::make(link, |id| Request::Buffer {
        id,
        context: context.remote.id,
        flags: sent_flags(flags),
        bytes,
        from: room.as_ref().map(|room| room.span),
    })?;
    let used = if flags & MEM_USE_HOST_PTR != 0 {
        host as usize
    } else {
        0
    };
    let mut memory = Memory::new(remote, context, flags, bytes, used);
    memory.properties = properties;
    Ok(memory.give())
}

pub unsafe extern "C" fn create_part(
    buffer: Handle,
    flags: u64,
    kind: u32,
    region: *const c_void,
    code: *mut i32,
) -> Handle {
    const REGION: u32 = 0x1220;
    const BASE_ALIGN: u32 = 0x1019;
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let of = hold::<Memory>(buffer)?;
            if of.picture.is_some() || of.of.is_some() {
                return Err(INVALID_MEM_OBJECT);
            }
            let &[at, size] = list(region.cast::<usize>(), 2) else {
                return Err(INVALID_VALUE);
            };
            if kind != REGION || flags & HOST_MEMORY != 0 {
                return Err(INVALID_VALUE);
            }
            if size == 0 {
                return Err(INVALID_BUFFER_SIZE);
            }
            of.range(at as u64, size as u64)?;
            let link = of.remote.link;
            let device = of.context.devices[0].number;
            let align = device::ask(
                link,
                tenure_wire::Subject::Device,
                tenure_wire::Id::NONE,
                device,
                0,
                BASE_ALIGN,
                Vec::new(),
            )?;
            let align = align.try_into().map(u32::from_ne_bytes).unwrap_or(8) / 8;
            if !(at as u64).is_multiple_of(align.max(1).into()) {
                return Err(MISALIGNED_SUB_BUFFER_OFFSET);
            }
            // What is not said is as in the whole.
            let own = |mask: u64| {
                if flags & mask != 0 {
                    flags & mask
                } else {
                    of.flags & mask
                }
            };
            let flags = own(ACCESS) | own(HOST_ACCESS) | of.flags & HOST_MEMORY;
            let (remote, _) = Remote::make(link, |id| Request::Part {
                id,
                buffer: of.remote.id,
                flags: flags & ACCESS,
                at: at as u64,
                bytes: size as u64,
            })?;
            let host = if of.host != 0 { of.host + at } else { 0 };
            let mut memory = Memory::new(remote, of.context.clone(), flags, size as u64, host);
            memory.of = Some((of, at as u64));
            Ok(memory.give())
        })
    }
}

pub unsafe extern "C" fn retain(memory: Handle) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe { object::retain::<Memory>(memory) })
}

pub unsafe extern "C" fn release(memory: Handle) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        if let Some(last) = unsafe { object::release::<Memory>(memory)? } {
            LIVING.remove(memory);
            farewell(&last.farewells, memory);
        }
        Ok(())
    })
}

pub unsafe extern "C" fn set_destructor(
    memory: Handle,
    notify: Option<unsafe extern "C" fn(Handle, *mut c_void)>,
    data: *mut c_void,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let memory = unsafe { get::<Memory>(memory)? };
        lock(&memory.farewells).push((notify.ok_or(INVALID_VALUE)?, data as usize));
        Ok(())
    })
}

pub unsafe extern "C" fn get_info(
    memory: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    const BUFFER: u32 = 0x10F0;
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let memory = unsafe { get::<Memory>(memory)? };
        let bytes = match param {
            0x1100 => bytes_of(&[memory.picture.as_ref().map_or(BUFFER, |picture| picture.kind)]),
            0x1101 => bytes_of(&[memory.flags]),
            0x1102 => bytes_of(&[memory.bytes as usize]),
            0x1103 => bytes_of(&[memory.host]),
            0x1104 => bytes_of(&[lock(&memory.mappings).len() as u32]),
            0x1105 => bytes_of(&[memory.references()]),
            0x1106 => bytes_of(&[memory.context.handle()]),
            0x1107 => bytes_of(&[memory
                .of
                .as_ref()
                .map_or(std::ptr::null_mut(), |(of, _)| of.handle())]),
            0x1108 => bytes_of(&[memory.of.as_ref().map_or(0, |(_, at)| *at as usize)]),
            // No shared virtual memory.
            0x1109 => bytes_of(&[0u32]),
            0x110A => bytes_of(&memory.properties),
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}
