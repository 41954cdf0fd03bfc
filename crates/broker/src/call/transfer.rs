//! Buffers read, written, copied, filled, moved. The tenant's side packs blocks, so here the host's side of a
//! transfer is always one span without gaps.

use tenure_wire::{Frame, Id, Order, Span};

use super::command::{Answered, command};
use super::create::range;
use super::{Done, Here};
use crate::abi::{Handle, INVALID_MEM_OBJECT, INVALID_VALUE};
use crate::driver::cl;
use crate::fault::Fault;
use crate::format::rect_reach;
use crate::object::{Context, Memory};

const NO_ORIGIN: [usize; 3] = [0; 3];

pub fn sizes(sides: [u64; 3]) -> [usize; 3] {
    sides.map(|side| side as usize)
}

pub fn read(here: Here<'_>, frame: Frame, order: &Order, buffer: Id, at: u64, to: Span) -> Done {
    let buffer = here.table.memory(buffer)?;
    range(&buffer, at, to.bytes)?;
    let address = here.address(to)?;
    let of = [&*buffer.context];
    command(here, frame, order, Answered::WhenEnded, &of, |given| {
        let (queue, blocks, count, waits, event) = given;
        // SAFETY: live handles; the range lies within the buffer and the span within its region, which stays mapped
        // until the queue's commands have ended.
        unsafe {
            (cl().read_buffer)(
                queue,
                buffer.live.get(),
                blocks,
                at as usize,
                to.bytes as usize,
                address.cast(),
                count,
                waits,
                event,
            )
        }
    })
}

/// Somebody who wants an answer waits for the end: he copies into the span again.
pub fn write(here: Here<'_>, frame: Frame, order: &Order, buffer: Id, at: u64, from: Span) -> Done {
    let buffer = here.table.memory(buffer)?;
    range(&buffer, at, from.bytes)?;
    let address = here.address(from)?;
    let of = [&*buffer.context];
    command(here, frame, order, Answered::WhenEnded, &of, |given| {
        let (queue, blocks, count, waits, event) = given;
        // SAFETY: as in `read`.
        unsafe {
            (cl().write_buffer)(
                queue,
                buffer.live.get(),
                blocks,
                at as usize,
                from.bytes as usize,
                address.cast(),
                count,
                waits,
                event,
            )
        }
    })
}

/// Checks a block of a buffer, and that it is as long as its packed bytes.
fn block(
    memory: &Memory,
    origin: &[u64; 3],
    region: &[u64; 3],
    row: u64,
    slice: u64,
    packed: Option<Span>,
) -> Result<(), Fault> {
    if memory.image().is_some() {
        return Err(Fault::Code(INVALID_MEM_OBJECT));
    }
    let reach = rect_reach(origin, region, row, slice).ok_or(Fault::Code(INVALID_VALUE))?;
    let bytes = crate::format::block_bytes(region, 1);
    if reach > memory.bytes || packed.is_some_and(|span| bytes != Some(span.bytes)) {
        return Err(Fault::Code(INVALID_VALUE));
    }
    Ok(())
}

pub fn read_rect(
    here: Here<'_>,
    frame: Frame,
    order: &Order,
    buffer: Id,
    origin: [u64; 3],
    region: [u64; 3],
    row: u64,
    slice: u64,
    to: Span,
) -> Done {
    let buffer = here.table.memory(buffer)?;
    block(&buffer, &origin, &region, row, slice, Some(to))?;
    let address = here.address(to)?;
    let (origin, region) = (sizes(origin), sizes(region));
    let of = [&*buffer.context];
    command(here, frame, order, Answered::WhenEnded, &of, |given| {
        let (queue, blocks, count, waits, event) = given;
        // SAFETY: live handles; the block lies within the buffer, and packed within the span.
        unsafe {
            (cl().read_rect)(
                queue,
                buffer.live.get(),
                blocks,
                origin.as_ptr(),
                NO_ORIGIN.as_ptr(),
                region.as_ptr(),
                row as usize,
                slice as usize,
                0,
                0,
                address.cast(),
                count,
                waits,
                event,
            )
        }
    })
}

pub fn write_rect(
    here: Here<'_>,
    frame: Frame,
    order: &Order,
    buffer: Id,
    origin: [u64; 3],
    region: [u64; 3],
    row: u64,
    slice: u64,
    from: Span,
) -> Done {
    let buffer = here.table.memory(buffer)?;
    block(&buffer, &origin, &region, row, slice, Some(from))?;
    let address = here.address(from)?;
    let (origin, region) = (sizes(origin), sizes(region));
    let of = [&*buffer.context];
    command(here, frame, order, Answered::WhenGiven, &of, |given| {
        let (queue, _, count, waits, event) = given;
        // SAFETY: as in `read_rect`.
        unsafe {
            (cl().write_rect)(
                queue,
                buffer.live.get(),
                0,
                origin.as_ptr(),
                NO_ORIGIN.as_ptr(),
                region.as_ptr(),
                row as usize,
                slice as usize,
                0,
                0,
                address.cast(),
                count,
                waits,
                event,
            )
        }
    })
}

pub fn copy(
    here: Here<'_>,
    frame: Frame,
    order: &Order,
    from: Id,
    to: Id,
    from_at: u64,
    to_at: u64,
    bytes: u64,
) -> Done {
    let (from, to) = (here.table.memory(from)?, here.table.memory(to)?);
    range(&from, from_at, bytes)?;
    range(&to, to_at, bytes)?;
    let of = [&*from.context, &*to.context];
    command(here, frame, order, Answered::WhenGiven, &of, |given| {
        let (queue, _, count, waits, event) = given;
        // SAFETY: live handles; both ranges lie within their buffers.
        unsafe {
            (cl().copy_buffer)(
                queue,
                from.live.get(),
                to.live.get(),
                from_at as usize,
                to_at as usize,
                bytes as usize,
                count,
                waits,
                event,
            )
        }
    })
}

pub fn copy_rect(
    here: Here<'_>,
    frame: Frame,
    order: &Order,
    from: Id,
    to: Id,
    from_at: [u64; 3],
    to_at: [u64; 3],
    region: [u64; 3],
    pitches: [u64; 4],
) -> Done {
    let (from, to) = (here.table.memory(from)?, here.table.memory(to)?);
    block(&from, &from_at, &region, pitches[0], pitches[1], None)?;
    block(&to, &to_at, &region, pitches[2], pitches[3], None)?;
    let (from_at, to_at, region) = (sizes(from_at), sizes(to_at), sizes(region));
    let of = [&*from.context, &*to.context];
    command(here, frame, order, Answered::WhenGiven, &of, |given| {
        let (queue, _, count, waits, event) = given;
        // SAFETY: live handles; both blocks lie within their buffers.
        unsafe {
            (cl().copy_rect)(
                queue,
                from.live.get(),
                to.live.get(),
                from_at.as_ptr(),
                to_at.as_ptr(),
                region.as_ptr(),
                pitches[0] as usize,
                pitches[1] as usize,
                pitches[2] as usize,
                pitches[3] as usize,
                count,
                waits,
                event,
            )
        }
    })
}

pub fn fill(
    here: Here<'_>,
    frame: Frame,
    order: &Order,
    buffer: Id,
    pattern: &[u8],
    at: u64,
    bytes: u64,
) -> Done {
    let buffer = here.table.memory(buffer)?;
    range(&buffer, at, bytes)?;
    let length = pattern.len() as u64;
    let known = length.is_power_of_two() && length <= 128;
    if !known || !at.is_multiple_of(length) || !bytes.is_multiple_of(length) {
        return Err(Fault::Code(INVALID_VALUE));
    }
    let of = [&*buffer.context];
    command(here, frame, order, Answered::WhenGiven, &of, |given| {
        let (queue, _, count, waits, event) = given;
        // SAFETY: live handles; the range lies within the buffer; the driver copies the pattern.
        unsafe {
            (cl().fill_buffer)(
                queue,
                buffer.live.get(),
                pattern.as_ptr().cast(),
                pattern.len(),
                at as usize,
                bytes as usize,
                count,
                waits,
                event,
            )
        }
    })
}

pub fn migrate(here: Here<'_>, frame: Frame, order: &Order, objects: &[Id], flags: u64) -> Done {
    let objects = objects
        .iter()
        .map(|id| here.table.memory(*id))
        .collect::<Result<Vec<_>, _>>()?;
    let handles: Vec<Handle> = objects.iter().map(|object| object.live.get()).collect();
    if handles.is_empty() {
        return Err(Fault::Code(INVALID_VALUE));
    }
    let of: Vec<&Context> = objects.iter().map(|object| &*object.context).collect();
    command(here, frame, order, Answered::WhenGiven, &of, |given| {
        let (queue, _, count, waits, event) = given;
        // SAFETY: live handles in a list of the length said.
        unsafe {
            (cl().migrate)(
                queue,
                handles.len() as u32,
                handles.as_ptr(),
                flags,
                count,
                waits,
                event,
            )
        }
    })
}
