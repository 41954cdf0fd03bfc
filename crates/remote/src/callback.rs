//! Callbacks of events: a thread of ours hears the broker's notices and calls the program back.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tenure_wire::{Malformed, Notice, Request};

use crate::abi::{Handle, OUT_OF_RESOURCES};
use crate::event::Event;
use crate::link::{Link, lock};
use crate::object::Object;

pub type Notify = unsafe extern "C" fn(Handle, i32, *mut c_void);

struct Waiting {
    event: Arc<Object<Event>>,
    wanted: i32,
    notify: Notify,
    data: *mut c_void,
}

// SAFETY: the program's own address, handed back to it.
unsafe impl Send for Waiting {}

#[derive(Default)]
pub struct Callbacks {
    waiting: Mutex<HashMap<u64, Waiting>>,
    next: AtomicU64,
    listens: AtomicBool,
    /// Notices for the thread: token and status.
    came: Mutex<VecDeque<(u64, i32)>>,
}

impl Callbacks {
    /// Whether the thread runs.
    pub fn listens(&self) -> bool {
        self.listens.load(SeqCst)
    }

    /// Has the program called when an event gets as far as `wanted`.
    pub fn set(
        link: &'static Link,
        event: Arc<Object<Event>>,
        wanted: i32,
        notify: Notify,
        data: *mut c_void,
    ) -> Result<(), i32> {
        let callbacks = &link.callbacks;
        if !callbacks.listens.swap(true, SeqCst) {
            let started = std::thread::Builder::new()
                .name("tenure-remote".into())
                .spawn(move || listen(link));
            if started.is_err() {
                callbacks.listens.store(false, SeqCst);
                return Err(OUT_OF_RESOURCES);
            }
        }
        let token = callbacks.next.fetch_add(1, SeqCst);
        let request = Request::Notify {
            event: event.id(),
            status: wanted,
            token,
        };
        let waiting = Waiting {
            event,
            wanted,
            notify,
            data,
        };
        lock(&callbacks.waiting).insert(token, waiting);
        link.call(&request).map(|_| ()).inspect_err(|_| {
            lock(&callbacks.waiting).remove(&token);
        })
    }

    fn take(&self, token: u64) -> Option<Waiting> {
        lock(&self.waiting).remove(&token)
    }
}

fn listen(link: &'static Link) {
    loop {
        let heard = take_in(link);
        let next = lock(&link.callbacks.came).pop_front();
        if let Some((token, status)) = next {
            if let Some(waiting) = link.callbacks.take(token) {
                let _ = link.pendings.settle(link);
                waiting.call(status);
            }
            continue;
        }
        if heard.is_err() || link.side().await_notice().is_err() || !link.alive() {
            break;
        }
    }
    // Nothing will come any more: everybody who waits is told that it failed.
    let rest: Vec<Waiting> = lock(&link.callbacks.waiting)
        .drain()
        .map(|(_, one)| one)
        .collect();
    for waiting in rest {
        waiting.call(OUT_OF_RESOURCES);
    }
}

impl Waiting {
    fn call(self, status: i32) {
        let status = if status < 0 { status } else { self.wanted };
        // SAFETY: the program's own function, called as the specification says, with an event that we hold.
        unsafe { (self.notify)(self.event.handle(), status, self.data) };
    }
}

/// Takes in all notices: prints what kernels printed, and lays the rest aside for the thread.
fn take_in(link: &'static Link) -> Result<(), Malformed> {
    // Held while printing, so that whoever comes later finds it printed.
    let mut came = lock(&link.callbacks.came);
    while let Some(notice) = link.side().notice()? {
        match notice {
            Notice::Event { token, status } => came.push_back((token, status)),
            Notice::Text(text) => print(&text),
        }
    }
    Ok(())
}

fn print(text: &[u8]) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text).and_then(|()| out.flush());
}

/// Prints what came of kernels' words by now.
pub fn print_what_came(link: &'static Link) {
    let _ = take_in(link);
    if link.callbacks.listens() && !lock(&link.callbacks.came).is_empty() {
        link.side().rouse();
    }
}
