//! The way of every command to the driver, and waiting for a queue.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use tenure_wire::{Frame, Id, Order};

use super::{Answer, DONE, Done, Here};
use crate::abi::{
    EXEC_STATUS_ERROR_IN_WAIT_LIST, Handle, INVALID_CONTEXT, INVALID_EVENT_WAIT_LIST, OUT_OF_RESOURCES,
    SUCCESS,
};
use crate::driver::cl;
use crate::fault::{Fault, checked};
use crate::object::{Context, Event, Live, Object, Queue};
use crate::print;

/// When a command with a reply is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    WhenGiven,
    WhenEnded,
}

/// The handles of what a command waits for. Events that ended are left out; one that failed fails the command.
fn waits(here: Here<'_>, context: &Context, ids: &[Id]) -> Result<Vec<Handle>, Fault> {
    let mut handles = Vec::with_capacity(ids.len());
    for id in ids {
        let event = here
            .table
            .event(*id)
            .map_err(|_| Fault::Code(INVALID_EVENT_WAIT_LIST))?;
        match event.live.get() {
            handle if !handle.is_null() => {
                if !event.context.as_ref().is_some_and(|own| own.is(context)) {
                    return Err(Fault::Code(INVALID_CONTEXT));
                }
                handles.push(handle);
            }
            _ if event.status.load(SeqCst) < 0 => return Err(Fault::Code(EXEC_STATUS_ERROR_IN_WAIT_LIST)),
            _ => {}
        }
    }
    Ok(handles)
}

/// What a command gets beside its own arguments: queue, whether to block, wait list, place for the event.
pub type Given = (Handle, u32, u32, *const Handle, *mut Handle);

/// Brings a command to the driver. `of` are the contexts of what it uses; `call` is the driver's function.
pub fn command(
    here: Here<'_>,
    frame: Frame,
    order: &Order,
    answered: Answered,
    of: &[&Context],
    call: impl FnOnce(Given) -> i32,
) -> Done {
    let queue = here.table.queue(order.queue)?;
    if of.iter().any(|context| !context.is(&queue.context)) {
        return Err(Fault::Code(INVALID_CONTEXT));
    }
    let waits = waits(here, &queue.context, &order.waits)?;
    if !order.event.is_none() {
        here.table.free(order.event)?;
    }
    let ends = frame.wants_reply() && answered == Answered::WhenEnded;
    let blocks = ends && here.may_wait(frame);
    let mut event: Handle = std::ptr::null_mut();
    let place = if !order.event.is_none() || (ends && !blocks) {
        &raw mut event
    } else {
        std::ptr::null_mut()
    };
    let list = if waits.is_empty() {
        std::ptr::null()
    } else {
        waits.as_ptr()
    };
    checked(call((
        queue.live.get(),
        blocks.into(),
        waits.len() as u32,
        list,
        place,
    )))?;
    let waited = (ends && !blocks).then(|| {
        // SAFETY: a live queue.
        unsafe { (cl().flush)(queue.live.get()) };
        Live::retained(event, cl().retain_event, cl().release_event)
    });
    if !order.event.is_none() {
        let event = Event::new(event, Some(queue.clone()));
        here.table.put(order.event, Object::Event(Arc::new(event)))?;
    } else if !event.is_null() {
        drop(Live::new(event, cl().release_event));
    }
    match waited {
        Some(waited) => answer_later(here, frame, move || {
            let handle = waited.get();
            // SAFETY: a live event, held by this closure.
            let code = unsafe { (cl().wait_for_events)(1, &handle) };
            outcome(&queue, code)
        }),
        None if ends => {
            print::hand_over(here);
            checked(outcome(&queue, SUCCESS)).map(|()| DONE)
        }
        None => Ok(DONE),
    }
}

/// The code a wait on a queue answers with: an earlier failure nobody was told comes first.
pub fn outcome(queue: &Queue, code: i32) -> i32 {
    match queue.failed.swap(0, SeqCst) {
        0 => code,
        failed => failed,
    }
}

/// Has a helper do what takes long, and answer with the code it gives.
pub fn answer_later(here: Here<'_>, frame: Frame, job: impl FnOnce() -> i32 + Send + 'static) -> Done {
    let connection = here.clone();
    let given = here.helpers.give(move || {
        let code = job();
        print::hand_over(&connection);
        connection.side.answer(frame, code, &[]);
    });
    if given {
        Ok(Answer::Later)
    } else {
        Err(Fault::Code(OUT_OF_RESOURCES))
    }
}

pub fn flush(here: Here<'_>, queue: Id) -> Done {
    let queue = here.table.queue(queue)?;
    // SAFETY: a live queue.
    checked(unsafe { (cl().flush)(queue.live.get()) }).map(|()| DONE)
}

pub fn finish(here: Here<'_>, frame: Frame, queue: Id) -> Done {
    let queue = here.table.queue(queue)?;
    let held = Live::retained(queue.live.get(), cl().retain_queue, cl().release_queue);
    let finish = move || {
        // SAFETY: a live queue, held by this closure.
        let code = unsafe { (cl().finish)(held.get()) };
        outcome(&queue, code)
    };
    if here.may_wait(frame) {
        let code = finish();
        print::hand_over(here);
        checked(code).map(|()| DONE)
    } else {
        answer_later(here, frame, finish)
    }
}

pub fn marker(here: Here<'_>, frame: Frame, order: &Order) -> Done {
    command(here, frame, order, Answered::WhenGiven, &[], |given| {
        let (queue, _, count, waits, event) = given;
        // SAFETY: live handles of the table; the list lives for the call.
        unsafe { (cl().marker)(queue, count, waits, event) }
    })
}

pub fn barrier(here: Here<'_>, frame: Frame, order: &Order) -> Done {
    command(here, frame, order, Answered::WhenGiven, &[], |given| {
        let (queue, _, count, waits, event) = given;
        // SAFETY: as above.
        unsafe { (cl().barrier)(queue, count, waits, event) }
    })
}
