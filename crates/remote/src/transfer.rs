//! Reads and writes between the program's memory and the device, through spans shared with the broker.
//!
//! A write nobody waits for has done with the program's memory once that is copied, so it never waits for the device;
//! a long one goes in pieces, of which the broker moves one while the next is copied here. Long transfers the program
//! waits for are in `piece`.

use std::ffi::c_void;
use std::sync::Arc;

use tenure_wire::Request;

use crate::abi::{Handle, INVALID_MEM_OBJECT, INVALID_VALUE};
use crate::bulk::Bulk;
use crate::callback::print_what_came;
use crate::command::Command;
use crate::export::{done, three};
use crate::link::Remote;
use crate::memory::Memory;
use crate::object::get;
use crate::pending::{Block, CopyOut, Pending};
use crate::piece::{self, LONG};

/// Pieces of long writes nobody waits for.
const PIECE: usize = 2 << 20;

/// Sends one read of a whole span; blocking, the bytes are there afterwards.
pub fn read_block(
    command: &Command,
    blocking: bool,
    to: *mut u8,
    block: Block,
    request: impl FnOnce(tenure_wire::Order, tenure_wire::Span) -> Request,
) -> Result<(), i32> {
    let link = command.link();
    let room = Bulk::room(link, block.bytes())?;
    let span = room.span;
    if blocking {
        let done = command.call(|order| request(order, span));
        print_what_came(link);
        done?;
        // SAFETY: the span holds the packed bytes now; the program gave room for the block.
        unsafe { block.unpack(room.start(), to) };
        return link.pendings.settle(link);
    }
    let event = command.post_with_event(|order| request(order, span))?;
    command.give(event.clone());
    let copy = Some(CopyOut { to, block });
    link.pendings
        .add(link, Pending::new(event, command.queue.remote.id, room, copy));
    Ok(())
}

/// Sends one write of a packed block, whose span is used again once it has ended.
pub fn write_block(
    command: &Command,
    from: *const u8,
    block: Block,
    request: impl FnOnce(tenure_wire::Order, tenure_wire::Span) -> Request,
) -> Result<(), i32> {
    command.give(send_block(command, from, block, request)?);
    Ok(())
}

/// The same, without giving the program the event.
fn send_block(
    command: &Command,
    from: *const u8,
    block: Block,
    request: impl FnOnce(tenure_wire::Order, tenure_wire::Span) -> Request,
) -> Result<Arc<Remote>, i32> {
    let link = command.link();
    let reach = block.slice_pitch.saturating_mul(block.slices);
    link.pendings.await_overlap(link, from, reach)?;
    let room = Bulk::room(link, block.bytes())?;
    let span = room.span;
    // SAFETY: the program's memory holds the block; the room has its bytes' size.
    unsafe { block.pack(from, room.start()) };
    let event = command.post_with_event(|order| request(order, span))?;
    let pending = Pending::new(event.clone(), command.queue.remote.id, room, None);
    link.pendings.add(link, pending);
    Ok(event)
}

pub unsafe extern "C" fn read(
    queue: Handle,
    buffer: Handle,
    blocking: u32,
    at: usize,
    size: usize,
    to: *mut c_void,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, buffer) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x11F3)?,
                get::<Memory>(buffer)?,
            )
        };
        command.same_context(buffer)?;
        buffer.range(at as u64, size as u64)?;
        buffer.readable()?;
        if to.is_null() {
            return Err(INVALID_VALUE);
        }
        let id = buffer.remote.id;
        if blocking != 0 && size > LONG && command.takes_pieces() {
            let request = |order, done, to| Request::Read {
                order,
                buffer: id,
                at: at as u64 + done,
                to,
            };
            // SAFETY: room for so many bytes, as the caller of an OpenCL function promises.
            return unsafe { piece::read(&command, size, to.cast(), request) };
        }
        read_block(
            &command,
            blocking != 0,
            to.cast(),
            Block::line(size),
            |order, to| Request::Read {
                order,
                buffer: id,
                at: at as u64,
                to,
            },
        )
    })
}

pub unsafe extern "C" fn write(
    queue: Handle,
    buffer: Handle,
    blocking: u32,
    at: usize,
    size: usize,
    from: *const c_void,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, buffer) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x11F4)?,
                get::<Memory>(buffer)?,
            )
        };
        command.same_context(buffer)?;
        buffer.range(at as u64, size as u64)?;
        buffer.writable()?;
        if from.is_null() {
            return Err(INVALID_VALUE);
        }
        let id = buffer.remote.id;
        let request = |order, done: u64, from| Request::Write {
            order,
            buffer: id,
            at: at as u64 + done,
            from,
        };
        let in_pieces = size > LONG && command.takes_pieces();
        if in_pieces && blocking != 0 {
            command
                .link()
                .pendings
                .await_overlap(command.link(), from.cast(), size)?;
            // SAFETY: so many bytes are there, as the caller of an OpenCL function promises.
            return unsafe { piece::write(&command, size, from.cast(), request) };
        }
        let piece = if in_pieces { PIECE } else { size };
        let mut last = None;
        for done in (0..size).step_by(piece.max(1)) {
            let length = piece.min(size - done);
            // SAFETY: within what the program said it has there.
            let start = unsafe { from.cast::<u8>().add(done) };
            let request = |order, from| request(order, done as u64, from);
            last = Some(send_block(&command, start, Block::line(length), request)?);
        }
        if let Some(event) = last {
            command.give(event);
        }
        Ok(())
    })
}

/// The rows of a block in the program's memory, and where it begins.
fn host_block(origin: [u64; 3], region: [u64; 3], row: usize, slice: usize) -> Result<(Block, usize), i32> {
    let sides = region.map(|side| side as usize);
    if sides.contains(&0) {
        return Err(INVALID_VALUE);
    }
    let row = if row == 0 { sides[0] } else { row };
    let least = row.checked_mul(sides[1]).ok_or(INVALID_VALUE)?;
    let slice = if slice == 0 { least } else { slice };
    if row < sides[0] || slice < least || !slice.is_multiple_of(row) {
        return Err(INVALID_VALUE);
    }
    let start = (origin[2] as usize)
        .checked_mul(slice)
        .and_then(|at| at.checked_add((origin[1] as usize).checked_mul(row)?))
        .and_then(|at| at.checked_add(origin[0] as usize))
        .ok_or(INVALID_VALUE)?;
    let block = Block {
        row_bytes: sides[0],
        rows: sides[1],
        slices: sides[2],
        row_pitch: row,
        slice_pitch: slice,
    };
    Ok((block, start))
}

pub unsafe extern "C" fn read_rect(
    queue: Handle,
    buffer: Handle,
    blocking: u32,
    buffer_origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    buffer_row: usize,
    buffer_slice: usize,
    host_row: usize,
    host_slice: usize,
    to: *mut c_void,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, buffer, origin, host, region) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x1201)?,
                get::<Memory>(buffer)?,
                three(buffer_origin)?,
                three(host_origin)?,
                three(region)?,
            )
        };
        command.same_context(buffer)?;
        buffer.readable()?;
        let (block, start) = host_block(host, region, host_row, host_slice)?;
        if to.is_null() {
            return Err(INVALID_VALUE);
        }
        reach(buffer, origin, region, buffer_row, buffer_slice)?;
        // SAFETY: the block begins there in what the program has.
        let to = unsafe { to.cast::<u8>().add(start) };
        read_block(&command, blocking != 0, to, block, |order, to| {
            Request::ReadRect {
                order,
                buffer: buffer.remote.id,
                origin,
                region,
                row: buffer_row as u64,
                slice: buffer_slice as u64,
                to,
            }
        })
    })
}

pub unsafe extern "C" fn write_rect(
    queue: Handle,
    buffer: Handle,
    _blocking: u32,
    buffer_origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    buffer_row: usize,
    buffer_slice: usize,
    host_row: usize,
    host_slice: usize,
    from: *const c_void,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, buffer, origin, host, region) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x1202)?,
                get::<Memory>(buffer)?,
                three(buffer_origin)?,
                three(host_origin)?,
                three(region)?,
            )
        };
        command.same_context(buffer)?;
        buffer.writable()?;
        let (block, start) = host_block(host, region, host_row, host_slice)?;
        if from.is_null() {
            return Err(INVALID_VALUE);
        }
        reach(buffer, origin, region, buffer_row, buffer_slice)?;
        // SAFETY: the block begins there in what the program has.
        let from = unsafe { from.cast::<u8>().add(start) };
        write_block(&command, from, block, |order, from| Request::WriteRect {
            order,
            buffer: buffer.remote.id,
            origin,
            region,
            row: buffer_row as u64,
            slice: buffer_slice as u64,
            from,
        })
    })
}

/// Whether a block lies within a buffer.
fn reach(buffer: &Memory, origin: [u64; 3], region: [u64; 3], row: usize, slice: usize) -> Result<(), i32> {
    if buffer.picture.is_some() {
        return Err(INVALID_MEM_OBJECT);
    }
    let (block, start) = host_block(origin, region, row, slice)?;
    let last = (block.slices - 1)
        .checked_mul(block.slice_pitch)
        .and_then(|at| at.checked_add((block.rows - 1).checked_mul(block.row_pitch)?))
        .and_then(|at| at.checked_add(block.row_bytes)?.checked_add(start))
        .ok_or(INVALID_VALUE)?;
    if last as u64 <= buffer.bytes {
        Ok(())
    } else {
        Err(INVALID_VALUE)
    }
}

pub unsafe extern "C" fn read_image(
    queue: Handle,
    image: Handle,
    blocking: u32,
    origin: *const usize,
    region: *const usize,
    row: usize,
    slice: usize,
    to: *mut c_void,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, image, origin, region) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x11F6)?,
                get::<Memory>(image)?,
                three(origin)?,
                three(region)?,
            )
        };
        command.same_context(image)?;
        image.readable()?;
        let picture = image.picture.as_ref().ok_or(INVALID_MEM_OBJECT)?;
        picture.check(&origin, &region)?;
        let block = picture.block(&region, row, slice)?;
        if to.is_null() {
            return Err(INVALID_VALUE);
        }
        read_block(&command, blocking != 0, to.cast(), block, |order, to| {
            Request::ReadImage {
                order,
                image: image.remote.id,
                origin,
                region,
                to,
            }
        })
    })
}

pub unsafe extern "C" fn write_image(
    queue: Handle,
    image: Handle,
    _blocking: u32,
    origin: *const usize,
    region: *const usize,
    row: usize,
    slice: usize,
    from: *const c_void,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, image, origin, region) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x11F7)?,
                get::<Memory>(image)?,
                three(origin)?,
                three(region)?,
            )
        };
        command.same_context(image)?;
        image.writable()?;
        let picture = image.picture.as_ref().ok_or(INVALID_MEM_OBJECT)?;
        picture.check(&origin, &region)?;
        let block = picture.block(&region, row, slice)?;
        if from.is_null() {
            return Err(INVALID_VALUE);
        }
        write_block(&command, from.cast(), block, |order, from| Request::WriteImage {
            order,
            image: image.remote.id,
            origin,
            region,
            from,
        })
    })
}
