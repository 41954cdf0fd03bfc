//! A device under scrub or check: found by name, with a context, a queue and pieces of memory of its own.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use crate::abi::{Handle, SUCCESS};
use crate::driver::{ask, ask_number, cl, driver};

const PLATFORM_NAME: u32 = 0x0902;
const DEVICE_TYPE: u32 = 0x1000;
const MAX_COMPUTE_UNITS: u32 = 0x1002;
const MAX_WORK_GROUP_SIZE: u32 = 0x1004;
const MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
const GLOBAL_MEM_SIZE: u32 = 0x101F;
const LOCAL_MEM_SIZE: u32 = 0x1023;
const UUID: u32 = 0x106A;
const TYPE_CPU: u64 = 1 << 1;
const READ_WRITE: u64 = 1;

pub(crate) fn done(code: i32, what: &str) -> Result<(), String> {
    match code {
        SUCCESS => Ok(()),
        code => Err(format!("the driver could not {what}: {code}")),
    }
}

pub(crate) fn find(platform: &str, index: usize) -> Result<Handle, String> {
    let driver = driver();
    let number = driver.platforms.iter().position(|&handle| {
        let name = ask(|size, value, there| {
            // SAFETY: a platform of the driver's; room for `size` bytes.
            unsafe { (cl().get_platform_info)(handle, PLATFORM_NAME, size, value, there) }
        });
        name.is_ok_and(|name| String::from_utf8_lossy(&name).trim_end_matches('\0').trim() == platform)
    });
    let devices = driver.devices.iter();
    let device = number.and_then(|number| {
        devices
            .filter(|device| device.platform == number as u32)
            .nth(index)
    });
    device
        .map(|device| device.handle)
        .ok_or_else(|| format!("there is no device {index} of {platform:?}"))
}

fn number<T: Copy + Default>(device: Handle, what: u32) -> T {
    ask_number(|size, value, there| {
        // SAFETY: a device of the driver's; room for `size` bytes.
        unsafe { (cl().get_device_info)(device, what, size, value, there) }
    })
    .unwrap_or_default()
}

pub(crate) fn is_processor(device: Handle) -> bool {
    number::<u64>(device, DEVICE_TYPE) & TYPE_CPU != 0
}

pub(crate) fn largest(device: Handle) -> u64 {
    number(device, MAX_MEM_ALLOC_SIZE)
}

/// What the driver says it has in all.
pub(crate) fn memory_bytes(device: Handle) -> u64 {
    number(device, GLOBAL_MEM_SIZE)
}

/// Its own identity, where its driver tells one (`cl_khr_device_uuid`).
pub(crate) fn identity(device: Handle) -> Option<[u8; 16]> {
    let bytes = ask(|size, value, there| {
        // SAFETY: a device of the driver's; room for `size` bytes.
        unsafe { (cl().get_device_info)(device, UUID, size, value, there) }
    });
    let bytes: [u8; 16] = bytes.ok()?.try_into().ok()?;
    (bytes != [0; 16]).then_some(bytes)
}

pub(crate) fn local_bytes(device: Handle) -> u64 {
    number(device, LOCAL_MEM_SIZE)
}

pub(crate) fn compute_units(device: Handle) -> u32 {
    number::<u32>(device, MAX_COMPUTE_UNITS).max(1)
}

pub(crate) fn group_size(device: Handle) -> usize {
    number::<usize>(device, MAX_WORK_GROUP_SIZE).clamp(1, 256)
}

pub(crate) struct Context {
    pub device: Handle,
    pub handle: Handle,
    pub queue: Handle,
}

impl Context {
    pub fn new(device: Handle) -> Result<Context, String> {
        let mut code = 0;
        // SAFETY: one device; no properties and no callback are allowed.
        let handle = unsafe { (cl().create_context)(null(), 1, &device, null(), null_mut(), &mut code) };
        done(code, "make a context")?;
        // SAFETY: a live context and its device.
        let queue = unsafe { (cl().create_queue)(handle, device, 0, &mut code) };
        let context = Context {
            device,
            handle,
            queue,
        };
        done(code, "make a queue")?;
        Ok(context)
    }

    /// Words of a piece, from one place on.
    pub fn read(&self, piece: &Piece, from: u64, words: usize) -> Result<Vec<u32>, String> {
        let mut seen = vec![0u32; words];
        let (at, size) = (from as usize * 4, words * 4);
        let into = seen.as_mut_ptr().cast();
        // SAFETY: live handles; the call blocks, and the list has room for what is read.
        let code =
            unsafe { (cl().read_buffer)(self.queue, piece.handle, 1, at, size, into, 0, null(), null_mut()) };
        done(code, "read memory")?;
        Ok(seen)
    }

    pub fn zero(&self, piece: &Piece) -> Result<(), String> {
        let (zero, size) = (0u32, piece.bytes as usize);
        let with: *const u32 = &zero;
        // SAFETY: live handles; the pattern is copied by the call.
        let code = unsafe {
            (cl().fill_buffer)(
                self.queue,
                piece.handle,
                with.cast(),
                4,
                0,
                size,
                0,
                null(),
                null_mut(),
            )
        };
        done(code, "zero memory")
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: live handles, each released once; of a queue that was not made there is none.
        unsafe {
            if !self.queue.is_null() {
                (cl().finish)(self.queue);
                (cl().release_queue)(self.queue);
            }
            (cl().release_context)(self.handle);
        }
    }
}

/// A run of device memory.
pub(crate) struct Piece {
    pub handle: Handle,
    pub bytes: u64,
}

impl Piece {
    /// Made and touched: some drivers find out only then that there is no memory.
    pub fn new(context: &Context, bytes: u64) -> Result<Piece, String> {
        let mut code = 0;
        // SAFETY: a live context; no host memory is given.
        let handle = unsafe {
            (cl().create_buffer)(
                context.handle,
                READ_WRITE,
                bytes as usize,
                null_mut::<c_void>(),
                &mut code,
            )
        };
        done(code, "give memory")?;
        let piece = Piece { handle, bytes };
        context.zero(&piece)?;
        // SAFETY: a live queue.
        done(unsafe { (cl().finish)(context.queue) }, "give memory")?;
        Ok(piece)
    }

    pub fn words(&self) -> u64 {
        self.bytes / 4
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // SAFETY: a live buffer, released once.
        unsafe { (cl().release_memory)(self.handle) };
    }
}
