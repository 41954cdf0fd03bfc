//! One call: which function does it, and what becomes of a command that failed while nobody waited.

mod command;
pub mod create;
pub mod event;
pub mod image;
mod info;
pub mod kernel;
pub mod program;
mod transfer;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use tenure_wire::{Frame, Order, Request};

use crate::connection::Connection;
use crate::fault::Fault;
use crate::object::{Event, Object};

/// What a call comes to.
pub enum Answer {
    Now(Vec<u8>),
    /// Somebody else answers, or has.
    Later,
}

pub const DONE: Answer = Answer::Now(Vec::new());

type Done = Result<Answer, Fault>;
type Here<'a> = &'a Arc<Connection>;

pub fn perform(here: Here<'_>, frame: Frame, request: Request) -> Done {
    use Request as R;
    match request {
        R::Devices {} => Ok(info::devices()),
        R::Ask {
            subject,
            object,
            device,
            index,
            param,
            input,
            into,
        } => info::ask(here, subject, object, device, index, param, &input, into),
        R::Release { id } => {
            here.release(id);
            Ok(DONE)
        }
        R::Formats { context, flags, kind } => image::formats(here, context, flags, kind),
        R::Context { id, devices } => create::context(here, id, devices),
        R::Queue {
            id,
            context,
            device,
            properties,
            extra,
        } => create::queue(here, id, context, device, properties, extra),
        R::Buffer {
            id,
            context,
            flags,
            bytes,
            from,
        } => create::buffer(here, id, context, flags, bytes, from),
        R::Part {
            id,
            buffer,
            flags,
            at,
            bytes,
        } => create::part(here, id, buffer, flags, at, bytes),
        R::Image {
            id,
            context,
            flags,
            order,
            channel,
            shape,
            of,
            from,
        } => image::create(here, id, context, flags, order, channel, shape, of, from),
        R::Sampler {
            id,
            context,
            normalized,
            addressing,
            filter,
        } => create::sampler(here, id, context, [normalized, addressing, filter]),
        R::Source { id, context, text } => program::source(here, id, context, text),
        R::Binary {
            id,
            context,
            devices,
            binaries,
        } => program::binary(here, id, context, devices, &binaries),
        R::Intermediate { id, context, code } => program::intermediate(here, id, context, code),
        R::BuiltIn {
            id,
            context,
            devices,
            names,
        } => program::built_in(here, id, context, devices, names),
        R::Build {
            program,
            devices,
            options,
        } => program::build(here, frame, program, devices, options),
        R::Compile {
            program,
            devices,
            options,
            headers,
            names,
        } => program::compile(here, frame, program, devices, options, &headers, names),
        R::Link {
            id,
            context,
            devices,
            options,
            programs,
        } => program::link(here, frame, id, context, devices, options, &programs),
        R::Specialize {
            program,
            number,
            value,
        } => program::specialize(here, program, number, value),
        R::Binaries { program, place, into } => program::binaries(here, program, place, into),
        R::Kernel { id, program, name } => kernel::create(here, id, program, name),
        R::Kernels { program, ids } => kernel::create_all(here, program, &ids),
        R::CloneKernel { id, kernel } => kernel::clone(here, id, kernel),
        R::Argue { kernel, place, value } => kernel::argue(here, kernel, place, value),
        R::UserEvent { id, context } => event::user(here, id, context),
        R::SetUserEvent { event, status } => event::set_user(here, event, status),
        R::Wait { events } => event::wait(here, frame, &events),
        R::Ended { events } => event::ended(here, &events),
        R::Notify { event, status, token } => event::notify(here, event, status, token),
        R::Flush { queue } => command::flush(here, queue),
        R::Finish { queue } => command::finish(here, frame, queue),
        R::Timer { device } => info::timer(device),
        command => ordered(here, frame, command),
    }
}

fn ordered(here: Here<'_>, frame: Frame, request: Request) -> Done {
    use Request as R;
    macro_rules! order {
        ($order:ident, $done:expr) => {{
            let done: Done = $done;
            settle(here, frame, &$order, done)
        }};
    }
    match request {
        R::Launch {
            order,
            kernel,
            sides,
            offset,
            global,
            local,
        } => {
            order!(
                order,
                kernel::launch(here, frame, &order, kernel, sides, offset, global, local)
            )
        }
        R::Read {
            order,
            buffer,
            at,
            to,
        } => order!(order, transfer::read(here, frame, &order, buffer, at, to)),
        R::Write {
            order,
            buffer,
            at,
            from,
        } => order!(order, transfer::write(here, frame, &order, buffer, at, from)),
        R::ReadRect {
            order,
            buffer,
            origin,
            region,
            row,
            slice,
            to,
        } => order!(
            order,
            transfer::read_rect(here, frame, &order, buffer, origin, region, row, slice, to)
        ),
        R::WriteRect {
            order,
            buffer,
            origin,
            region,
            row,
            slice,
            from,
        } => order!(
            order,
            transfer::write_rect(here, frame, &order, buffer, origin, region, row, slice, from)
        ),
        R::Copy {
            order,
            from,
            to,
            from_at,
            to_at,
            bytes,
        } => order!(
            order,
            transfer::copy(here, frame, &order, from, to, from_at, to_at, bytes)
        ),
        R::CopyRect {
            order,
            from,
            to,
            from_at,
            to_at,
            region,
            pitches,
        } => order!(
            order,
            transfer::copy_rect(here, frame, &order, from, to, from_at, to_at, region, pitches)
        ),
        R::Fill {
            order,
            buffer,
            pattern,
            at,
            bytes,
        } => order!(
            order,
            transfer::fill(here, frame, &order, buffer, &pattern, at, bytes)
        ),
        R::ReadImage {
            order,
            image,
            origin,
            region,
            to,
        } => order!(order, image::read(here, frame, &order, image, origin, region, to)),
        R::WriteImage {
            order,
            image,
            origin,
            region,
            from,
        } => order!(
            order,
            image::write(here, frame, &order, image, origin, region, from)
        ),
        R::CopyImage {
            order,
            from,
            to,
            from_at,
            to_at,
            region,
        } => order!(
            order,
            image::copy(here, frame, &order, from, to, from_at, to_at, region)
        ),
        R::ImageToBuffer {
            order,
            from,
            to,
            origin,
            region,
            at,
        } => order!(
            order,
            image::to_buffer(here, frame, &order, from, to, origin, region, at)
        ),
        R::BufferToImage {
            order,
            from,
            to,
            at,
            origin,
            region,
        } => order!(
            order,
            image::from_buffer(here, frame, &order, from, to, at, origin, region)
        ),
        R::FillImage {
            order,
            image,
            color,
            origin,
            region,
        } => order!(
            order,
            image::fill(here, frame, &order, image, &color, origin, region)
        ),
        R::Migrate {
            order,
            objects,
            flags,
        } => order!(order, transfer::migrate(here, frame, &order, &objects, flags)),
        R::Marker { order } => order!(order, command::marker(here, frame, &order)),
        R::Barrier { order } => order!(order, command::barrier(here, frame, &order)),
        _ => Err(Fault::Broken),
    }
}

/// A command nobody waits for that failed: its event says so, and so does the next wait on its queue.
fn settle(here: Here<'_>, frame: Frame, order: &Order, done: Done) -> Done {
    let Err(Fault::Code(code)) = done else {
        return done;
    };
    if frame.wants_reply() {
        return done;
    }
    let queue = here.table.queue(order.queue).ok();
    if let Some(queue) = &queue {
        let _ = queue.failed.compare_exchange(0, code, SeqCst, SeqCst);
    }
    if !order.event.is_none() {
        here.table
            .put(order.event, Object::Event(Arc::new(Event::failed(queue, code))))?;
    }
    Ok(DONE)
}
