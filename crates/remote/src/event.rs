//! Events. Whatever tells the program that one ended goes through [`Pendings::settle`](crate::pending) first.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};

use tenure_wire::{Id, Request, Subject};

use crate::abi::{
    COMPLETE, EXEC_STATUS_ERROR_IN_WAIT_LIST, Handle, INVALID_CONTEXT, INVALID_EVENT, INVALID_OPERATION,
    INVALID_VALUE, OUT_OF_RESOURCES, PROFILING_INFO_NOT_AVAILABLE, SUBMITTED,
};
use crate::callback::{Callbacks, Notify, print_what_came};
use crate::context::Context;
use crate::device::ask;
use crate::export::{answer, bytes_of, done, list, made};
use crate::link::Remote;
use crate::object::{self, Kind, Object, get, hold};
use crate::queue::Queue;

pub struct Event {
    remote: Arc<Remote>,
    context: Arc<Object<Context>>,
    /// None: the program's own.
    queue: Option<Arc<Object<Queue>>>,
    command: u32,
    /// The last status heard of.
    known: AtomicI32,
    /// A user event that was set.
    set: AtomicBool,
}

impl Kind for Event {
    const MARK: u32 = 0x4556_454e;
    const INVALID: i32 = INVALID_EVENT;
}

impl Event {
    pub fn of_command(remote: Arc<Remote>, queue: Arc<Object<Queue>>, command: u32) -> Event {
        Event {
            remote,
            context: queue.context.clone(),
            queue: Some(queue),
            command,
            known: AtomicI32::new(3),
            set: AtomicBool::new(false),
        }
    }

    pub fn id(&self) -> Id {
        self.remote.id
    }

    pub fn context(&self) -> &Object<Context> {
        &self.context
    }

    fn status(&self) -> Result<i32, i32> {
        let known = self.known.load(SeqCst);
        if known <= COMPLETE || (self.queue.is_none() && !self.set.load(SeqCst)) {
            return Ok(known);
        }
        let link = self.remote.link;
        let bytes = ask(link, Subject::Event, self.remote.id, 0, 0, 0x11D3, Vec::new())?;
        let status = bytes
            .try_into()
            .map(i32::from_ne_bytes)
            .map_err(|_| OUT_OF_RESOURCES)?;
        if status <= COMPLETE {
            link.pendings.settle(link)?;
        }
        self.known.store(status, SeqCst);
        Ok(status)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.queue.is_none() && !self.set.load(SeqCst) {
            self.remote.link.open_events.fetch_sub(1, SeqCst);
        }
    }
}

pub unsafe extern "C" fn create_user(context: Handle, code: *mut i32) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let context = hold::<Context>(context)?;
            let (remote, _) = Remote::make(context.remote.link, |id| Request::UserEvent {
                id,
                context: context.remote.id,
            })?;
            context.remote.link.open_events.fetch_add(1, SeqCst);
            Ok(Object::give(Object::new(Event {
                remote: Arc::new(remote),
                context,
                queue: None,
                command: 0x1204,
                known: AtomicI32::new(SUBMITTED),
                set: AtomicBool::new(false),
            })))
        })
    }
}

pub unsafe extern "C" fn set_user_status(event: Handle, status: i32) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let event = unsafe { get::<Event>(event)? };
        if event.queue.is_some() {
            return Err(INVALID_EVENT);
        }
        if status > COMPLETE {
            return Err(INVALID_VALUE);
        }
        if event.set.swap(true, SeqCst) {
            return Err(INVALID_OPERATION);
        }
        let link = event.remote.link;
        event.known.store(status, SeqCst);
        let done = link.call(&Request::SetUserEvent {
            event: event.remote.id,
            status,
        });
        link.open_events.fetch_sub(1, SeqCst);
        done.map(|_| ())
    })
}

pub unsafe extern "C" fn wait(count: u32, events: *const Handle) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let events = unsafe {
            list(events, count as usize)
                .iter()
                .map(|event| get::<Event>(*event))
                .collect::<Result<Vec<_>, _>>()?
        };
        let first = *events.first().ok_or(INVALID_VALUE)?;
        let same = |event: &&Object<Event>| std::ptr::eq(event.context(), first.context());
        if !events.iter().all(same) {
            return Err(INVALID_CONTEXT);
        }
        let link = first.remote.link;
        let open: Vec<Id> = events
            .iter()
            .filter(|event| event.known.load(SeqCst) > COMPLETE)
            .map(|event| event.remote.id)
            .collect();
        if !open.is_empty() {
            let waited = link.call(&Request::Wait { events: open });
            print_what_came(link);
            link.pendings.settle(link)?;
            waited?;
            for event in &events {
                if event.known.load(SeqCst) > COMPLETE {
                    event.known.store(COMPLETE, SeqCst);
                }
            }
        }
        match events.iter().any(|event| event.known.load(SeqCst) < 0) {
            true => Err(EXEC_STATUS_ERROR_IN_WAIT_LIST),
            false => Ok(()),
        }
    })
}

pub unsafe extern "C" fn get_info(
    event: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let event = unsafe { get::<Event>(event)? };
        let bytes = match param {
            0x11D0 => bytes_of(&[event
                .queue
                .as_ref()
                .map_or(std::ptr::null_mut(), |queue| queue.handle())]),
            0x11D1 => bytes_of(&[event.command]),
            0x11D2 => bytes_of(&[event.references()]),
            0x11D3 => bytes_of(&[event.status()?]),
            0x11D4 => bytes_of(&[event.context.handle()]),
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}

pub unsafe extern "C" fn get_profiling_info(
    event: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let event = unsafe { get::<Event>(event)? };
        if event.queue.is_none() {
            return Err(PROFILING_INFO_NOT_AVAILABLE);
        }
        let remote = &event.remote;
        let bytes = ask(remote.link, Subject::Profile, remote.id, 0, 0, param, Vec::new())?;
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}

pub unsafe extern "C" fn retain(event: Handle) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe { object::retain::<Event>(event) })
}

pub unsafe extern "C" fn release(event: Handle) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe { object::release::<Event>(event) }.map(|_| ()))
}

pub unsafe extern "C" fn set_callback(
    event: Handle,
    wanted: i32,
    notify: Option<Notify>,
    data: *mut c_void,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let event = unsafe { hold::<Event>(event)? };
        let notify = notify.ok_or(INVALID_VALUE)?;
        if !(COMPLETE..=SUBMITTED).contains(&wanted) {
            return Err(INVALID_VALUE);
        }
        let link = event.remote.link;
        Callbacks::set(link, event, wanted, notify, data)
    })
}
