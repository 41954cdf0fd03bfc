//! Images: made, read, written, copied, filled. Host bytes are packed without gaps, as for buffers.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use tenure_wire::{Field, Frame, Id, Order, Span};

use super::command::{Answered, command};
use super::create::{HOST_FLAGS, made, range};
use super::transfer::sizes;
use super::{Answer, Done, Here};
use crate::abi::{
    Handle, IMAGE_FORMAT_MISMATCH, INVALID_CONTEXT, INVALID_HOST_PTR, INVALID_IMAGE_DESCRIPTOR,
    INVALID_IMAGE_FORMAT_DESCRIPTOR, INVALID_MEM_OBJECT, INVALID_VALUE, MEM_COPY_HOST_PTR,
    MEM_OBJECT_IMAGE1D_BUFFER, MEM_OBJECT_IMAGE2D,
};
use crate::driver::cl;
use crate::fault::{Fault, checked};
use crate::format::{block_bytes, element_bytes, sides, within};
use crate::object::{Context, Image, Live, Memory, Object, Shape};

/// `cl_image_desc`.
#[repr(C)]
struct Descriptor {
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

pub fn create(
    here: Here<'_>,
    id: Id,
    context: Id,
    flags: u64,
    order: u32,
    channel: u32,
    shape: [u64; 9],
    of: Id,
    from: Option<Span>,
) -> Done {
    here.table.free(id)?;
    let context = here.table.context(context)?;
    let of = match of.is_none() {
        true => None,
        false => Some(here.table.memory(of)?),
    };
    let element = element_bytes(order, channel).ok_or(Fault::Code(INVALID_IMAGE_FORMAT_DESCRIPTOR))?;
    let wrong = Fault::Code(INVALID_IMAGE_DESCRIPTOR);
    let sides = sides(&shape).ok_or(wrong)?;
    let bytes = block_bytes(&sides, element).ok_or(wrong)?;
    // Mip levels and samples would need functions that are not offered.
    if sides.iter().any(|side| *side > u64::from(u32::MAX)) || shape[7] != 0 || shape[8] != 0 {
        return Err(wrong);
    }
    if let Some(of) = &of {
        if !of.context.is(&context) {
            return Err(Fault::Code(INVALID_CONTEXT));
        }
        seen_as(of, &shape, &sides, element)?;
    } else if shape[0] == MEM_OBJECT_IMAGE1D_BUFFER || shape[5] != 0 || shape[6] != 0 {
        return Err(wrong);
    }
    let first = match from {
        Some(span) if span.bytes < bytes || of.is_some() => return Err(Fault::Code(INVALID_HOST_PTR)),
        Some(span) => here.address(span)?,
        None => std::ptr::null_mut(),
    };
    let image = Image {
        order,
        channel,
        shape,
        of,
        sides,
        element,
    };
    let memory = Memory {
        live: Live::new(make(&context, flags, &image, first)?, cl().release_memory),
        context,
        flags: flags & !HOST_FLAGS,
        bytes,
        shape: Shape::Image(image),
        store: Mutex::default(),
    };
    here.table.put(id, Object::Memory(Arc::new(memory)))?;
    let mut reply = Vec::new();
    element.put(&mut reply);
    Ok(Answer::Now(reply))
}

/// Whether memory may be seen as an image of this shape: all of the image lies within it.
fn seen_as(of: &Memory, shape: &[u64; 9], sides: &[u64; 3], element: u64) -> Result<(), Fault> {
    let [kind, .., row, slice, _, _] = *shape;
    let fits = match of.image() {
        // Through another format: pixel for pixel.
        Some(image) => {
            kind == MEM_OBJECT_IMAGE2D
                && image.shape[0] == kind
                && (image.sides, image.element) == (*sides, element)
                && (row, slice) == (0, 0)
        }
        None => {
            let packed = sides[0].checked_mul(element);
            let row = if row == 0 { packed } else { Some(row) };
            let reach = row.and_then(|row| row.checked_mul(sides[1]));
            matches!(kind, MEM_OBJECT_IMAGE2D | MEM_OBJECT_IMAGE1D_BUFFER)
                && slice == 0
                && row >= packed
                && reach.is_some_and(|reach| reach <= of.bytes)
        }
    };
    if fits {
        Ok(())
    } else {
        Err(Fault::Code(INVALID_IMAGE_DESCRIPTOR))
    }
}

/// `first`: where the packed pixels lie, or null.
pub fn make(context: &Context, flags: u64, image: &Image, first: *mut u8) -> Result<Handle, Fault> {
    let [kind, width, height, depth, array, row, slice, ..] = image.shape;
    let descriptor = Descriptor {
        kind: kind as u32,
        width: width as usize,
        height: height as usize,
        depth: depth as usize,
        array: array as usize,
        row: row as usize,
        slice: slice as usize,
        mips: 0,
        samples: 0,
        of: image.of.as_ref().map_or(std::ptr::null_mut(), |of| of.live.get()),
    };
    let format = [image.order, image.channel];
    let mut flags = flags & !HOST_FLAGS;
    if !first.is_null() {
        flags |= MEM_COPY_HOST_PTR;
    }
    // SAFETY: a live context; format and descriptor as the headers lay them out; `first` holds all packed pixels.
    made(|code| unsafe {
        (cl().create_image)(
            context.live.get(),
            flags,
            format.as_ptr().cast(),
            (&raw const descriptor).cast(),
            first.cast(),
            code,
        )
    })
}

pub fn formats(here: Here<'_>, context: Id, flags: u64, kind: u32) -> Done {
    let context = here.table.context(context)?;
    let mut count = 0;
    let ask = |room: u32, into: *mut c_void, count: *mut u32| {
        // SAFETY: a live context; room for as many formats as said.
        unsafe { (cl().get_image_formats)(context.live.get(), flags & !HOST_FLAGS, kind, room, into, count) }
    };
    checked(ask(0, std::ptr::null_mut(), &mut count))?;
    let mut words = vec![0u32; 2 * count.min(512) as usize];
    if !words.is_empty() {
        checked(ask(
            count.min(512),
            words.as_mut_ptr().cast(),
            std::ptr::null_mut(),
        ))?;
    }
    let mut reply = Vec::new();
    words.put(&mut reply);
    Ok(Answer::Now(reply))
}

/// The image, with a region of it that was checked.
fn region_of(
    here: Here<'_>,
    id: Id,
    origin: &[u64; 3],
    region: &[u64; 3],
    packed: Option<Span>,
) -> Result<Arc<Memory>, Fault> {
    let memory = here.table.memory(id)?;
    let image = memory.image().ok_or(Fault::Code(INVALID_MEM_OBJECT))?;
    let bytes = block_bytes(region, image.element);
    if !within(origin, region, &image.sides) || packed.is_some_and(|span| bytes != Some(span.bytes)) {
        return Err(Fault::Code(INVALID_VALUE));
    }
    Ok(memory)
}

pub fn read(
    here: Here<'_>,
    frame: Frame,
    order: &Order,
    image: Id,
    origin: [u64; 3],
    region: [u64; 3],
    to: Span,
) -> Done {
    let image = region_of(here, image, &origin, &region, Some(to))?;
    let address = here.address(to)?;
    let (origin, region) = (sizes(origin), sizes(region));
    let of = [&*image.context];
    command(here, frame, order, Answered::WhenEnded, &of, |given| {
        let (queue, blocks, count, waits, event) = given;
        // SAFETY: live handles; the region lies within the image, and packed within the span.
        unsafe {
            (cl().read_image)(
                queue,
                image.live.get(),
                blocks,
                origin.as_ptr(),
                region.as_ptr(),
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

pub fn write(
    here: Here<'_>,
    frame: Frame,
    order: &Order,
    image: Id,
    origin: [u64; 3],
    region: [u64; 3],
    from: Span,
) -> Done {
    let image = region_of(here, image, &origin, &region, Some(from))?;
    let address = here.address(from)?;
    let (origin, region) = (sizes(origin), sizes(region));
    let of = [&*image.context];
    command(here, frame, order, Answered::WhenGiven, &of, |given| {
        let (queue, _, count, waits, event) = given;
        // SAFETY: as in `read`.
        unsafe {
            (cl().write_image)(
                queue,
                image.live.get(),
                0,
                origin.as_ptr(),
                region.as_ptr(),
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
    from_at: [u64; 3],
    to_at: [u64; 3],
    region: [u64; 3],
) -> Done {
    let from = region_of(here, from, &from_at, &region, None)?;
    let to = region_of(here, to, &to_at, &region, None)?;
    let format = |memory: &Memory| memory.image().map(|image| (image.order, image.channel));
    if format(&from) != format(&to) {
        return Err(Fault::Code(IMAGE_FORMAT_MISMATCH));
    }
    let (from_at, to_at, region) = (sizes(from_at), sizes(to_at), sizes(region));
    let of = [&*from.context, &*to.context];
    command(here, frame, order, Answered::WhenGiven, &of, |given| {
        let (queue, _, count, waits, event) = given;
        // SAFETY: live handles; both regions lie within their images.
        unsafe {
            (cl().copy_image)(
                queue,
                from.live.get(),
                to.live.get(),
                from_at.as_ptr(),
                to_at.as_ptr(),
                region.as_ptr(),
                count,
                waits,
                event,
            )
        }
    })
}

/// The buffer's end of a copy to or from an image.
fn bytes_at(image: &Memory, buffer: &Memory, region: &[u64; 3], at: u64) -> Result<(), Fault> {
    let element = image.image().map_or(0, |image| image.element);
    let bytes = block_bytes(region, element).ok_or(Fault::Code(INVALID_VALUE))?;
    range(buffer, at, bytes)
}

pub fn to_buffer(
    here: Here<'_>,
    frame: Frame,
    order: &Order,
    from: Id,
    to: Id,
    origin: [u64; 3],
    region: [u64; 3],
    at: u64,
) -> Done {
    let from = region_of(here, from, &origin, &region, None)?;
    let to = here.table.memory(to)?;
    bytes_at(&from, &to, &region, at)?;
    let (origin, region) = (sizes(origin), sizes(region));
    let of = [&*from.context, &*to.context];
    command(here, frame, order, Answered::WhenGiven, &of, |given| {
        let (queue, _, count, waits, event) = given;
        // SAFETY: live handles; the region lies within the image and its bytes within the buffer.
        unsafe {
            (cl().image_to_buffer)(
                queue,
                from.live.get(),
                to.live.get(),
                origin.as_ptr(),
                region.as_ptr(),
                at as usize,
                count,
                waits,
                event,
            )
        }
    })
}

pub fn from_buffer(
    here: Here<'_>,
    frame: Frame,
    order: &Order,
    from: Id,
    to: Id,
    at: u64,
    origin: [u64; 3],
    region: [u64; 3],
) -> Done {
    let from = here.table.memory(from)?;
    let to = region_of(here, to, &origin, &region, None)?;
    bytes_at(&to, &from, &region, at)?;
    let (origin, region) = (sizes(origin), sizes(region));
    let of = [&*from.context, &*to.context];
    command(here, frame, order, Answered::WhenGiven, &of, |given| {
        let (queue, _, count, waits, event) = given;
        // SAFETY: as in `to_buffer`.
        unsafe {
            (cl().buffer_to_image)(
                queue,
                from.live.get(),
                to.live.get(),
                at as usize,
                origin.as_ptr(),
                region.as_ptr(),
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
    image: Id,
    color: &[u8],
    origin: [u64; 3],
    region: [u64; 3],
) -> Done {
    let image = region_of(here, image, &origin, &region, None)?;
    let color: [u8; 16] = color.try_into().map_err(|_| Fault::Code(INVALID_VALUE))?;
    let (origin, region) = (sizes(origin), sizes(region));
    let of = [&*image.context];
    command(here, frame, order, Answered::WhenGiven, &of, |given| {
        let (queue, _, count, waits, event) = given;
        // SAFETY: live handles; the region lies within the image; a color has sixteen bytes, which the driver copies.
        unsafe {
            (cl().fill_image)(
                queue,
                image.live.get(),
                color.as_ptr().cast(),
                origin.as_ptr(),
                region.as_ptr(),
                count,
                waits,
                event,
            )
        }
    })
}
