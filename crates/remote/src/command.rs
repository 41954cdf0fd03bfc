//! Commands: what all have in common, and those that move nothing between the program and the device.

use std::ffi::c_void;
use std::sync::Arc;

use tenure_wire::{Id, Order, Request};

use crate::abi::{
    Handle, INVALID_CONTEXT, INVALID_EVENT, INVALID_EVENT_WAIT_LIST, INVALID_MEM_OBJECT, INVALID_VALUE,
};
use crate::event::Event;
use crate::export::{done, list, put, three};
use crate::link::{Link, Remote};
use crate::memory::Memory;
use crate::object::{Object, get, hold};
use crate::queue::Queue;

/// A command about to be sent.
pub struct Command {
    pub queue: Arc<Object<Queue>>,
    waits: Vec<Id>,
    wanted: *mut Handle,
    kind: u32,
}

impl Command {
    /// # Safety
    /// The arguments are those a caller of an OpenCL function gave.
    pub unsafe fn new(
        queue: Handle,
        count: u32,
        waits: *const Handle,
        event: *mut Handle,
        kind: u32,
    ) -> Result<Command, i32> {
        if (count == 0) != waits.is_null() {
            return Err(INVALID_EVENT_WAIT_LIST);
        }
        // SAFETY: as promised.
        unsafe {
            let queue = hold::<Queue>(queue)?;
            let waits = list(waits, count as usize)
                .iter()
                .map(|event| {
                    let event = get::<Event>(*event).map_err(|_| INVALID_EVENT_WAIT_LIST)?;
                    match std::ptr::eq(event.context(), &*queue.context) {
                        true => Ok(event.id()),
                        false => Err(INVALID_CONTEXT),
                    }
                })
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Command {
                queue,
                waits,
                wanted: event,
                kind,
            })
        }
    }

    pub fn link(&self) -> &'static Link {
        self.queue.remote.link
    }

    pub fn wants_event(&self) -> bool {
        !self.wanted.is_null()
    }

    /// Whether it may go in pieces: nobody asks for an event, or the last piece's stands for all.
    pub fn takes_pieces(&self) -> bool {
        !self.wants_event() || self.queue.takes_pieces()
    }

    /// The order of it, with or without an event.
    pub fn order(&self, event: Id) -> Order {
        Order {
            queue: self.queue.remote.id,
            event,
            waits: self.waits.clone(),
        }
    }

    /// Whether a memory object belongs to the queue's context.
    pub fn same_context(&self, memory: &Memory) -> Result<(), i32> {
        match std::ptr::eq(&*memory.context, &*self.queue.context) {
            true => Ok(()),
            false => Err(INVALID_CONTEXT),
        }
    }

    /// Sends the command without waiting; the event goes where the program wants it.
    pub fn post(&self, request: impl FnOnce(Order) -> Request) -> Result<(), i32> {
        if !self.wants_event() {
            return self.link().post(&request(self.order(Id::NONE)));
        }
        let event = self.post_with_event(request)?;
        self.give(event);
        Ok(())
    }

    /// Sends the command without waiting, with an event in any case.
    pub fn post_with_event(&self, request: impl FnOnce(Order) -> Request) -> Result<Arc<Remote>, i32> {
        let id = self.link().new_id();
        self.link().post(&request(self.order(id)))?;
        let link = self.link();
        Ok(Arc::new(Remote { link, id }))
    }

    /// Sends the command and waits for the broker's answer.
    pub fn call(&self, request: impl FnOnce(Order) -> Request) -> Result<(), i32> {
        if !self.wants_event() {
            return self.link().call(&request(self.order(Id::NONE))).map(|_| ());
        }
        let (event, _) = Remote::make(self.link(), |id| request(self.order(id)))?;
        self.give(Arc::new(event));
        Ok(())
    }

    /// Gives the program an event, if it wants one.
    pub fn give(&self, event: Arc<Remote>) {
        if self.wants_event() {
            let event = Event::of_command(event, self.queue.clone(), self.kind);
            // SAFETY: valid as the caller of an OpenCL function promises.
            unsafe { put(self.wanted, Object::give(Object::new(event))) };
        }
    }
}

pub unsafe extern "C" fn copy_buffer(
    queue: Handle,
    from: Handle,
    to: Handle,
    from_at: usize,
    to_at: usize,
    size: usize,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    const MEM_COPY_OVERLAP: i32 = -8;
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, from, to) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x11F5)?,
                get::<Memory>(from)?,
                get::<Memory>(to)?,
            )
        };
        command.same_context(from)?;
        command.same_context(to)?;
        let (from_at, to_at, bytes) = (from_at as u64, to_at as u64, size as u64);
        from.range(from_at, bytes)?;
        to.range(to_at, bytes)?;
        if std::ptr::eq(from, to) && from_at < to_at + bytes && to_at < from_at + bytes {
            return Err(MEM_COPY_OVERLAP);
        }
        command.post(|order| Request::Copy {
            order,
            from: from.remote.id,
            to: to.remote.id,
            from_at,
            to_at,
            bytes,
        })
    })
}

pub unsafe extern "C" fn copy_rect(
    queue: Handle,
    from: Handle,
    to: Handle,
    from_at: *const usize,
    to_at: *const usize,
    region: *const usize,
    from_row: usize,
    from_slice: usize,
    to_row: usize,
    to_slice: usize,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, from, to, from_at, to_at, region) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x1203)?,
                get::<Memory>(from)?,
                get::<Memory>(to)?,
                three(from_at)?,
                three(to_at)?,
                three(region)?,
            )
        };
        command.same_context(from)?;
        command.same_context(to)?;
        let pitches = [from_row, from_slice, to_row, to_slice].map(|pitch| pitch as u64);
        // Rare, and refused for many reasons: so with an answer.
        command.call(|order| Request::CopyRect {
            order,
            from: from.remote.id,
            to: to.remote.id,
            from_at,
            to_at,
            region,
            pitches,
        })
    })
}

pub unsafe extern "C" fn fill_buffer(
    queue: Handle,
    buffer: Handle,
    pattern: *const c_void,
    length: usize,
    at: usize,
    size: usize,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, buffer, pattern) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x1207)?,
                get::<Memory>(buffer)?,
                list(pattern.cast::<u8>(), length),
            )
        };
        command.same_context(buffer)?;
        buffer.range(at as u64, size as u64)?;
        let known = length.is_power_of_two() && length <= 128 && !pattern.is_empty();
        if !known || !at.is_multiple_of(length) || !size.is_multiple_of(length) {
            return Err(INVALID_VALUE);
        }
        command.post(|order| Request::Fill {
            order,
            buffer: buffer.remote.id,
            pattern: pattern.to_vec(),
            at: at as u64,
            bytes: size as u64,
        })
    })
}

fn picture(memory: &Memory) -> Result<&crate::image::Picture, i32> {
    memory.picture.as_ref().ok_or(INVALID_MEM_OBJECT)
}

pub unsafe extern "C" fn copy_image(
    queue: Handle,
    from: Handle,
    to: Handle,
    from_at: *const usize,
    to_at: *const usize,
    region: *const usize,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, from, to, from_at, to_at, region) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x11F8)?,
                get::<Memory>(from)?,
                get::<Memory>(to)?,
                three(from_at)?,
                three(to_at)?,
                three(region)?,
            )
        };
        picture(from)?.check(&from_at, &region)?;
        picture(to)?.check(&to_at, &region)?;
        command.call(|order| Request::CopyImage {
            order,
            from: from.remote.id,
            to: to.remote.id,
            from_at,
            to_at,
            region,
        })
    })
}

pub unsafe extern "C" fn image_to_buffer(
    queue: Handle,
    from: Handle,
    to: Handle,
    origin: *const usize,
    region: *const usize,
    at: usize,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, from, to, origin, region) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x11F9)?,
                get::<Memory>(from)?,
                get::<Memory>(to)?,
                three(origin)?,
                three(region)?,
            )
        };
        picture(from)?.check(&origin, &region)?;
        command.call(|order| Request::ImageToBuffer {
            order,
            from: from.remote.id,
            to: to.remote.id,
            origin,
            region,
            at: at as u64,
        })
    })
}

pub unsafe extern "C" fn buffer_to_image(
    queue: Handle,
    from: Handle,
    to: Handle,
    at: usize,
    origin: *const usize,
    region: *const usize,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, from, to, origin, region) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x11FA)?,
                get::<Memory>(from)?,
                get::<Memory>(to)?,
                three(origin)?,
                three(region)?,
            )
        };
        picture(to)?.check(&origin, &region)?;
        command.call(|order| Request::BufferToImage {
            order,
            from: from.remote.id,
            to: to.remote.id,
            at: at as u64,
            origin,
            region,
        })
    })
}

pub unsafe extern "C" fn fill_image(
    queue: Handle,
    image: Handle,
    color: *const c_void,
    origin: *const usize,
    region: *const usize,
    count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises: a color has sixteen bytes.
        let (command, image, color, origin, region) = unsafe {
            (
                Command::new(queue, count, waits, event, 0x1208)?,
                get::<Memory>(image)?,
                list(color.cast::<u8>(), 16),
                three(origin)?,
                three(region)?,
            )
        };
        picture(image)?.check(&origin, &region)?;
        if color.is_empty() {
            return Err(INVALID_VALUE);
        }
        command.call(|order| Request::FillImage {
            order,
            image: image.remote.id,
            color: color.to_vec(),
            origin,
            region,
        })
    })
}

pub unsafe extern "C" fn migrate(
    queue: Handle,
    count: u32,
    objects: *const Handle,
    flags: u64,
    wait_count: u32,
    waits: *const Handle,
    event: *mut Handle,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let (command, objects) = unsafe {
            let objects = list(objects, count as usize)
                .iter()
                .map(|object| get::<Memory>(*object).map(|object| object.remote.id))
                .collect::<Result<Vec<_>, _>>()?;
            (Command::new(queue, wait_count, waits, event, 0x1206)?, objects)
        };
        if objects.is_empty() || flags & !3 != 0 {
            return Err(INVALID_VALUE);
        }
        command.post(|order| Request::Migrate {
            order,
            objects,
            flags,
        })
    })
}

pub unsafe extern "C" fn marker(queue: Handle, count: u32, waits: *const Handle, event: *mut Handle) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let command = unsafe { Command::new(queue, count, waits, event, 0x11FE)? };
        command.post(|order| Request::Marker { order })
    })
}

pub unsafe extern "C" fn barrier(queue: Handle, count: u32, waits: *const Handle, event: *mut Handle) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let command = unsafe { Command::new(queue, count, waits, event, 0x1205)? };
        command.post(|order| Request::Barrier { order })
    })
}

pub unsafe extern "C" fn old_marker(queue: Handle, event: *mut Handle) -> i32 {
    if event.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    unsafe { marker(queue, 0, std::ptr::null(), event) }
}

pub unsafe extern "C" fn old_barrier(queue: Handle) -> i32 {
    // SAFETY: the caller's own argument.
    unsafe { barrier(queue, 0, std::ptr::null(), std::ptr::null_mut()) }
}

pub unsafe extern "C" fn old_wait(queue: Handle, count: u32, events: *const Handle) -> i32 {
    if count == 0 || events.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's own arguments.
    match unsafe { barrier(queue, count, events, std::ptr::null_mut()) } {
        INVALID_EVENT_WAIT_LIST => INVALID_EVENT,
        code => code,
    }
}
