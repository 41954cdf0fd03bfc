//! Images.

use std::ffi::c_void;

use tenure_wire::{Id, Request, Subject};

use crate::abi::{
    Handle, INVALID_IMAGE_DESCRIPTOR, INVALID_IMAGE_FORMAT_DESCRIPTOR, INVALID_MEM_OBJECT, INVALID_PROPERTY,
    INVALID_VALUE, MEM_USE_HOST_PTR,
};
use crate::bulk::Bulk;
use crate::context::Context;
use crate::device::ask;
use crate::export::{answer, bytes_of, done, list, made, put};
use crate::link::{Remote, parts};
use crate::memory::{Memory, check_flags, sent_flags};
use crate::object::{get, hold};
use crate::pending::Block;

/// What makes a memory object an image.
pub struct Picture {
    pub kind: u32,
    pub sides: [u64; 3],
    pub element: u64,
    format: [u32; 2],
}

impl Picture {
    /// A region as rows of bytes, for pitches a caller gives; zero means without gaps.
    pub fn block(&self, region: &[u64; 3], row_pitch: usize, slice_pitch: usize) -> Result<Block, i32> {
        const ARRAY_1D: u32 = 0x10F5;
        let row_bytes = region[0]
            .checked_mul(self.element)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or(INVALID_VALUE)?;
        let row = if row_pitch == 0 { row_bytes } else { row_pitch };
        // A one-dimensional array has its slices where a picture has its rows.
        let lines = if self.kind == ARRAY_1D && slice_pitch != 0 {
            slice_pitch
        } else {
            row
        };
        let rows = region[1] as usize;
        let slice = match slice_pitch {
            0 => lines.checked_mul(rows).ok_or(INVALID_VALUE)?,
            _ if self.kind == ARRAY_1D => lines.checked_mul(rows).ok_or(INVALID_VALUE)?,
            pitch => pitch,
        };
        if lines < row_bytes {
            return Err(INVALID_VALUE);
        }
        Ok(Block {
            row_bytes,
            rows,
            slices: region[2] as usize,
            row_pitch: lines,
            slice_pitch: slice,
        })
    }

    pub fn check(&self, origin: &[u64; 3], region: &[u64; 3]) -> Result<(), i32> {
        let within = (0..3).all(|axis| {
            region[axis] > 0
                && origin[axis]
                    .checked_add(region[axis])
                    .is_some_and(|end| end <= self.sides[axis])
        });
        if within { Ok(()) } else { Err(INVALID_VALUE) }
    }
}

/// `cl_image_desc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Descriptor {
    kind: u32,
    width: usize,
    height: usize,
    depth: usize,
    array: usize,
    row: usize,
    slice: usize,
    mips: u32,
    samples: u32,
    of: Handle,
}

/// # Safety
/// The arguments are those of `clCreateImage`.
unsafe fn new(
    context: Handle,
    flags: u64,
    format: *const u32,
    descriptor: *const Descriptor,
    host: *mut c_void,
) -> Result<Handle, i32> {
    // SAFETY: as promised.
    let (context, format, descriptor) =
        unsafe { (hold::<Context>(context)?, list(format, 2), list(descriptor, 1)) };
    let &[order, channel] = format else {
        return Err(INVALID_IMAGE_FORMAT_DESCRIPTOR);
    };
    let &[shape] = descriptor else {
        return Err(INVALID_IMAGE_DESCRIPTOR);
    };
    check_flags(flags, host)?;
    let of = match shape.of.is_null() {
        true => None,
        // SAFETY: as promised.
        false => Some(unsafe { hold::<Memory>(shape.of)? }),
    };
    let sides = match shape.kind {
        0x10F4 | 0x10F6 => [shape.width, 1, 1],
        0x10F1 => [shape.width, shape.height, 1],
        0x10F2 => [shape.width, shape.height, shape.depth],
        0x10F5 => [shape.width, shape.array, 1],
        0x10F3 => [shape.width, shape.height, shape.array],
        _ => return Err(INVALID_IMAGE_DESCRIPTOR),
    }
    .map(|side| side as u64);
    let element = element_bytes(order, channel).ok_or(INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
    let mut picture = Picture {
        kind: shape.kind,
        sides,
        element,
        format: [order, channel],
    };
    let link = context.remote.link;
    let room = match host.is_null() {
        true => None,
        false => {
            let block = picture
                .block(&sides, shape.row, shape.slice)
                .map_err(|_| INVALID_IMAGE_DESCRIPTOR)?;
            let room = Bulk::room(link, block.bytes())?;
            // SAFETY: the program's memory holds the whole image with the pitches it gave; the room all its bytes.
            unsafe { block.pack(host.cast(), room.start()) };
            Some(room)
        }
    };
    let pitches = if of.is_some() {
        [shape.row, shape.slice]
    } else {
        [0; 2]
    };
    let (remote, reply) = Remote::make(link, |id| Request::Image {
        id,
        context: context.remote.id,
        flags: sent_flags(flags),
        order,
        channel,
        shape: [
            shape.kind.into(),
            shape.width as u64,
            shape.height as u64,
            shape.depth as u64,
            shape.array as u64,
            pitches[0] as u64,
            pitches[1] as u64,
            shape.mips.into(),
            shape.samples.into(),
        ],
        of: of.as_ref().map_or(Id::NONE, |of| of.remote.id),
        from: room.as_ref().map(|room| room.span),
    })?;
    picture.element = parts(&reply)?;
    let bytes = sides.iter().product::<u64>() * picture.element;
    let used = if flags & MEM_USE_HOST_PTR != 0 {
        host as usize
    } else {
        0
    };
    let mut memory = Memory::new(remote, context, flags, bytes, used);
    memory.picture = Some(picture);
    memory.of = of.map(|of| (of, 0));
    Ok(memory.give())
}

/// Bytes of a pixel; none for a format that is not known.
fn element_bytes(order: u32, channel: u32) -> Option<u64> {
    let channels = match order {
        0x10B0 | 0x10B1 | 0x10B8 | 0x10B9 | 0x10BD => 1,
        0x10B2 | 0x10B3 | 0x10BA => 2,
        0x10B4 | 0x10BB | 0x10BC | 0x10BF => 3,
        0x10B5..=0x10B7 | 0x10C0..=0x10C3 => 4,
        _ => return None,
    };
    Some(match channel {
        0x10D0 | 0x10D2 | 0x10D7 | 0x10DA => channels,
        0x10D1 | 0x10D3 | 0x10D8 | 0x10DB | 0x10DD => channels * 2,
        0x10D9 | 0x10DC | 0x10DE => channels * 4,
        0x10D4 | 0x10D5 => 2,
        0x10D6 | 0x10E0 => 4,
        _ => return None,
    })
}

pub unsafe extern "C" fn create(
    context: Handle,
    flags: u64,
    format: *const u32,
    descriptor: *const Descriptor,
    host: *mut c_void,
    code: *mut i32,
) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe { made(code, || new(context, flags, format, descriptor, host)) }
}

pub unsafe extern "C" fn create_with_properties(
    context: Handle,
    properties: *const u64,
    flags: u64,
    format: *const u32,
    descriptor: *const Descriptor,
    host: *mut c_void,
    code: *mut i32,
) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || match list(properties, 1) {
            [] | [0] => new(context, flags, format, descriptor, host),
            _ => Err(INVALID_PROPERTY),
        })
    }
}

pub unsafe extern "C" fn create_2d(
    context: Handle,
    flags: u64,
    format: *const u32,
    width: usize,
    height: usize,
    row: usize,
    host: *mut c_void,
    code: *mut i32,
) -> Handle {
    let descriptor = Descriptor {
        kind: 0x10F1,
        width,
        height,
        depth: 0,
        array: 0,
        row,
        slice: 0,
        mips: 0,
        samples: 0,
        of: std::ptr::null_mut(),
    };
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe { made(code, || new(context, flags, format, &descriptor, host)) }
}

pub unsafe extern "C" fn create_3d(
    context: Handle,
    flags: u64,
    format: *const u32,
    width: usize,
    height: usize,
    depth: usize,
    row: usize,
    slice: usize,
    host: *mut c_void,
    code: *mut i32,
) -> Handle {
    let descriptor = Descriptor {
        kind: 0x10F2,
        width,
        height,
        depth,
        array: 0,
        row,
        slice,
        mips: 0,
        samples: 0,
        of: std::ptr::null_mut(),
    };
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe { made(code, || new(context, flags, format, &descriptor, host)) }
}

pub unsafe extern "C" fn get_info(
    image: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let memory = unsafe { get::<Memory>(image)? };
        let picture = memory.picture.as_ref().ok_or(INVALID_MEM_OBJECT)?;
        let bytes = match param {
            0x1110 => bytes_of(&picture.format),
            0x1118 => bytes_of(&[memory
                .of
                .as_ref()
                .map_or(std::ptr::null_mut(), |(of, _)| of.handle())]),
            _ => {
                let remote = &memory.remote;
                ask(remote.link, Subject::Image, remote.id, 0, 0, param, Vec::new())?
            }
        };
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}

pub unsafe extern "C" fn get_formats(
    context: Handle,
    flags: u64,
    kind: u32,
    entries: u32,
    formats: *mut [u32; 2],
    count: *mut u32,
) -> i32 {
    done(|| {
        if entries == 0 && !formats.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: as the caller of an OpenCL function promises.
        let context = unsafe { get::<Context>(context)? };
        let reply = context.remote.link.call(&Request::Formats {
            context: context.remote.id,
            flags: sent_flags(flags),
            kind,
        })?;
        let words: Vec<u32> = parts(&reply)?;
        // SAFETY: as the caller of an OpenCL function promises; no more than `entries` are written.
        unsafe {
            put(count, words.len() as u32 / 2);
            if !formats.is_null() {
                for (place, pair) in words.chunks_exact(2).take(entries as usize).enumerate() {
                    *formats.add(place) = [pair[0], pair[1]];
                }
            }
        }
        Ok(())
    })
}
