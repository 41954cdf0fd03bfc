//! Events: the tenant's own, waited for, looked at, and told of when they get somewhere.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use tenure_wire::{Field, Frame, Id, Notice};

use super::command::answer_later;
use super::create::made;
use super::{Answer, DONE, Done, Here};
use crate::abi::{
    COMPLETE, EVENT_EXECUTION_STATUS, EXEC_STATUS_ERROR_IN_WAIT_LIST, Handle, INVALID_CONTEXT, INVALID_EVENT,
    INVALID_OPERATION, INVALID_VALUE, OUT_OF_RESOURCES, SUCCESS,
};
use crate::connection::Connection;
use crate::driver::{ask_number, cl};
use crate::fault::{Fault, checked};
use crate::object::{Event, Live, Object};
use crate::print;

/// The most notices promised at once: what the ring of notices holds.
const NOTICES_MOST: u64 = 32 << 10;

pub fn user(here: Here<'_>, id: Id, context: Id) -> Done {
    here.table.free(id)?;
    let context = here.table.context(context)?;
    // SAFETY: a live context.
    let handle = made(|code| unsafe { (cl().create_user_event)(context.live.get(), code) })?;
    let event = Event::user(handle, context);
    here.open_events.fetch_add(1, SeqCst);
    here.table.put(id, Object::Event(Arc::new(event)))?;
    Ok(DONE)
}

pub fn set_user(here: Here<'_>, id: Id, status: i32) -> Done {
    let event = here.table.event(id)?;
    if !event.user {
        return Err(Fault::Code(INVALID_EVENT));
    }
    if status > COMPLETE {
        return Err(Fault::Code(INVALID_VALUE));
    }
    match here.set(&event, status) {
        true => Ok(DONE),
        false => Err(Fault::Code(INVALID_OPERATION)),
    }
}

/// What an event says of itself.
pub fn status(event: &Event) -> Result<i32, Fault> {
    let handle = event.live.get();
    if handle.is_null() {
        return Ok(event.status.load(SeqCst));
    }
    ask_number(|size, value, there| {
        // SAFETY: a live event; room for `size` bytes.
        unsafe { (cl().get_event_info)(handle, EVENT_EXECUTION_STATUS, size, value, there) }
    })
    .map_err(Fault::Code)
}

pub fn wait(here: Here<'_>, frame: Frame, ids: &[Id]) -> Done {
    let events = ids
        .iter()
        .map(|id| here.table.event(*id))
        .collect::<Result<Vec<_>, _>>()?;
    let mut contexts = events.iter().filter_map(|event| event.context.as_ref());
    if let Some(first) = contexts.next()
        && contexts.any(|other| !other.is(first))
    {
        return Err(Fault::Code(INVALID_CONTEXT));
    }
    let mut code = SUCCESS;
    let mut held = Vec::new();
    for event in &events {
        let handle = event.live.get();
        if handle.is_null() {
            if event.status.load(SeqCst) < 0 {
                code = EXEC_STATUS_ERROR_IN_WAIT_LIST;
            }
            continue;
        }
        held.push(Live::retained(handle, cl().retain_event, cl().release_event));
        if let Some(queue) = &event.queue {
            // SAFETY: a live queue.
            unsafe { (cl().flush)(queue.live.get()) };
        }
    }
    let wait = move || {
        let handles: Vec<Handle> = held.iter().map(Live::get).collect();
        let waited = match handles.is_empty() {
            true => SUCCESS,
            // SAFETY: live events in a list of the length said.
            false => unsafe { (cl().wait_for_events)(handles.len() as u32, handles.as_ptr()) },
        };
        if waited == SUCCESS { code } else { waited }
    };
    if here.may_wait(frame) {
        let code = wait();
        print::hand_over(here);
        checked(code).map(|()| DONE)
    } else {
        answer_later(here, frame, wait)
    }
}

/// Which have ended, well or badly.
pub fn ended(here: Here<'_>, ids: &[Id]) -> Done {
    let mut ended = Vec::with_capacity(ids.len());
    for id in ids {
        let event = here.table.event(*id)?;
        ended.push(u8::from(status(&event)? <= COMPLETE));
    }
    let mut reply = Vec::new();
    ended.put(&mut reply);
    Ok(Answer::Now(reply))
}

/// A notice that was promised.
struct Promise {
    connection: Arc<Connection>,
    token: u64,
}

impl Promise {
    fn keep(self, status: i32) {
        self.connection.promised.fetch_sub(1, SeqCst);
        let notice = Notice::Event {
            token: self.token,
            status,
        };
        self.connection.side.tell(&notice);
    }
}

pub fn notify(here: Here<'_>, id: Id, wanted: i32, token: u64) -> Done {
    let event = here.table.event(id)?;
    if !(0..=2).contains(&wanted) {
        return Err(Fault::Code(INVALID_VALUE));
    }
    if here.promised.fetch_add(1, SeqCst) >= NOTICES_MOST {
        here.promised.fetch_sub(1, SeqCst);
        return Err(Fault::Code(OUT_OF_RESOURCES));
    }
    let promise = Promise {
        connection: here.clone(),
        token,
    };
    let handle = event.live.get();
    if handle.is_null() {
        promise.keep(event.status.load(SeqCst));
        return Ok(DONE);
    }
    let data = Box::into_raw(Box::new(promise));
    // SAFETY: a live event; the data is freed by the callback, which the driver calls once.
    let code = unsafe { (cl().set_event_callback)(handle, wanted, came, data.cast()) };
    if code != SUCCESS {
        // SAFETY: the driver did not take it.
        drop(unsafe { Box::from_raw(data) });
        here.promised.fetch_sub(1, SeqCst);
        return Err(Fault::Code(code));
    }
    if let Some(queue) = &event.queue {
        // SAFETY: a live queue.
        unsafe { (cl().flush)(queue.live.get()) };
    }
    Ok(DONE)
}

unsafe extern "C" fn came(_event: Handle, status: i32, data: *mut c_void) {
    let _ = std::panic::catch_unwind(|| {
        // SAFETY: made in `notify`, handed back once.
        unsafe { Box::from_raw(data.cast::<Promise>()) }.keep(status);
    });
}
