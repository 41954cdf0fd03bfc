//! Mapping: the program gets the address of a span, filled by a read, and written back when it unmaps. Where it wants
//! its own memory used, that is filled and read instead.

use std::ffi::c_void;

use tenure_wire::{Order, Request, Span};

use crate::abi::{Handle, INVALID_MEM_OBJECT, INVALID_VALUE, MAP_INVALIDATE, MAP_READ, MAP_WRITE};
use crate::bulk::{Bulk, Room};
use crate::command::Command;
use crate::export::{done, made, put, three};
use crate::link::lock;
use crate::memory::Memory;
use crate::object::get;
use crate::pending::{Block, Pending};
use crate::transfer::{read_block, write_block};

/// One mapping of a memory object.
pub struct Mapping {
    address: usize,
    /// What the program looks at; none where it is its own memory.
    room: Option<Room>,
    flags: u64,
    part: Part,
}

/// What is mapped.
#[derive(Clone, Copy)]
enum Part {
    Range {
        at: u64,
        bytes: u64,
    },
    Region {
        origin: [u64; 3],
        region: [u64; 3],
        block: Block,
    },
}

impl Part {
    fn block(self) -> Block {
        match self {
            Part::Range { bytes, .. } => Block::line(bytes as usize),
            Part::Region { block, .. } => block,
        }
    }

    fn read(self, memory: &Memory, order: Order, to: Span) -> Request {
        match self {
            Part::Range { at, .. } => Request::Read {
                order,
                buffer: memory.remote.id,
                at,
                to,
            },
            Part::Region { origin, region, .. } => Request::ReadImage {
                order,
                image: memory.remote.id,
                origin,
                region,
                to,
            },
        }
    }

    fn write(self, memory: &Memory, order: Order, from: Span) -> Request {
        match self {
            Part::Range { at, .. } => Request::Write {
                order,
                buffer: memory.remote.id,
                at,
                from,
            },
            Part::Region { origin, region, .. } => Request::WriteImage {
                order,
                image: memory.remote.id,
                origin,
                region,
                from,
            },
        }
    }
}

fn check(memory: &Memory, flags: u64) -> Result<(), i32> {
    let writes = flags & (MAP_WRITE | MAP_INVALIDATE) != 0;
    if flags & !(MAP_READ | MAP_WRITE | MAP_INVALIDATE) != 0
        || (flags & MAP_INVALIDATE != 0 && flags & (MAP_READ | MAP_WRITE) != 0)
    {
        return Err(INVALID_VALUE);
    }
    if flags & MAP_READ != 0 {
        memory.readable()?;
    }
    if writes {
        memory.writable()?;
    }
    Ok(())
}

/// Maps a part; `host`: where it lies in the program's own memory, or zero.
fn map(
    command: &Command,
    memory: &Memory,
    blocking: bool,
    flags: u64,
    part: Part,
    host: usize,
) -> Result<Handle, i32> {
    let link = command.link();
    let mut mapping = Mapping {
        address: host,
        room: None,
        flags,
        part,
    };
    if host != 0 {
        if flags & MAP_INVALIDATE != 0 {
            command.post(|order| Request::Marker { order })?;
        } else {
            read_block(command, blocking, host as *mut u8, part.block(), |order, to| {
                part.read(memory, order, to)
            })?;
        }
    } else {
        let room = Bulk::room(link, part.block().bytes())?;
        let span = room.span;
        mapping.address = room.start() as usize;
        if flags & MAP_INVALIDATE != 0 {
            command.post(|order| Request::Marker { order })?;
        } else if blocking {
            command.call(|order| part.read(memory, order, span))?;
            link.pendings.settle(link)?;
        } else {
            command.post(|order| part.read(memory, order, span))?;
        }
        mapping.room = Some(room);
    }
    let address = mapping.address as Handle;
    lock(&memory.mappings).push(mapping);
    Ok(address)
}

pub unsafe extern "C" fn map_buffer(
    queue: Handle,
    buffer: Handle,
    blocking: u32,
    flags: u64,
    at: usize,
    size: usize,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
    code: *mut i32,
) -> *mut c_void {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let command = Command::new(queue, count, waits, event, 0x11FB)?;
            let buffer = get::<Memory>(buffer)?;
            command.same_context(buffer)?;
            check(buffer, flags)?;
            buffer.range(at as u64, size as u64)?;
            let part = Part::Range {
                at: at as u64,
                bytes: size as u64,
            };
            let host = if buffer.host != 0 { buffer.host + at } else { 0 };
            map(&command, buffer, blocking != 0, flags, part, host)
        })
    }
}

pub unsafe extern "C" fn map_image(
    queue: Handle,
    image: Handle,
    blocking: u32,
    flags: u64,
    origin: *const usize,
    region: *const usize,
    row_pitch: *mut usize,
    slice_pitch: *mut usize,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
    code: *mut i32,
) -> *mut c_void {
    const IMAGE_1D_ARRAY: u32 = 0x10F5;
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let command = Command::new(queue, count, waits, event, 0x11FC)?;
            let image = get::<Memory>(image)?;
            command.same_context(image)?;
            check(image, flags)?;
            let picture = image.picture.as_ref().ok_or(INVALID_MEM_OBJECT)?;
            let (origin, region) = (three(origin)?, three(region)?);
            picture.check(&origin, &region)?;
            let layered = picture.sides[2] > 1 || picture.kind == IMAGE_1D_ARRAY;
            if row_pitch.is_null() || (slice_pitch.is_null() && layered) {
                return Err(INVALID_VALUE);
            }
            // In the program's own memory rows lie as in the whole image.
            let (block, host) = match image.host {
                0 => (picture.block(&region, 0, 0)?, 0),
                host => {
                    let whole = picture.block(&picture.sides, 0, 0)?;
                    let block = picture.block(&region, whole.row_pitch, whole.slice_pitch)?;
                    let start = origin[2] as usize * whole.slice_pitch
                        + origin[1] as usize * whole.row_pitch
                        + (origin[0] * picture.element) as usize;
                    (block, host + start)
                }
            };
            put(row_pitch, block.row_pitch);
            let slice = match layered {
                false => 0,
                true if picture.kind == IMAGE_1D_ARRAY => block.row_pitch,
                true => block.slice_pitch,
            };
            put(slice_pitch, slice);
            let part = Part::Region {
                origin,
                region,
                block,
            };
            map(&command, image, blocking != 0, flags, part, host)
        })
    }
}

pub unsafe extern "C" fn unmap(
    queue: Handle,
    memory: Handle,
    address: *mut c_void,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, memory) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x11FD)?,
                get::<Memory>(memory)?,
            )
        };
        command.same_context(memory)?;
        let mut mappings = lock(&memory.mappings);
        let place = mappings
            .iter()
            .position(|mapping| mapping.address == address as usize)
            .ok_or(INVALID_VALUE)?;
        let mapping = mappings.remove(place);
        drop(mappings);
        let part = mapping.part;
        let writes = mapping.flags & (MAP_WRITE | MAP_INVALIDATE) != 0;
        match (mapping.room, writes) {
            (None, true) => write_block(&command, address.cast(), part.block(), |order, from| {
                part.write(memory, order, from)
            }),
            (None, false) => command.post(|order| Request::Marker { order }),
            (Some(room), writes) => {
                let span = room.span;
                let event = command.post_with_event(|order| match writes {
                    true => part.write(memory, order, span),
                    false => Request::Marker { order },
                })?;
                command.give(event.clone());
                let link = command.link();
                link.pendings
                    .add(link, Pending::new(event, command.queue.remote.id, room, None));
                Ok(())
            }
        }
    })
}
