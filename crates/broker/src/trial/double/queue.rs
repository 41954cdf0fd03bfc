//! Commands of the double: kept until somebody waits, flushes or asks, or until what they wait for is set; so that
//! everything they use must live as long as they do.

use std::ffi::c_void;

use super::{CHANGED, Inside, Key, State, Told, What, inside};
use crate::abi::{EXEC_STATUS_ERROR_IN_WAIT_LIST, Handle, SUCCESS};

type Run = Box<dyn FnOnce(&State) + Send>;

pub struct Command {
    run: Run,
    waits: Vec<Key>,
    event: Key,
    /// Given back when it has run.
    holds: Vec<Key>,
}

/// Listeners to tell once the driver is left.
#[must_use]
#[derive(Default)]
pub struct Tell(Vec<(Key, Told, usize, i32)>);

impl Tell {
    pub fn all(self) {
        for (event, told, data, status) in self.0 {
            // SAFETY: the worker's own callback and its data, told once.
            unsafe { told(event as Handle, status, data as *mut c_void) };
        }
    }
}

impl State {
    pub fn status(&mut self, event: Key) -> i32 {
        match &self.thing(event).what {
            What::Event { status, .. } => *status,
            _ => panic!("no event"),
        }
    }

    /// Ends an event.
    pub fn end(&mut self, event: Key, with: i32, tell: &mut Tell) {
        let What::Event { status, told, .. } = &mut self.thing(event).what else {
            panic!("no event");
        };
        assert!(*status > 0, "an event ends twice");
        *status = with;
        let listeners = std::mem::take(told);
        tell.0.extend(
            listeners
                .into_iter()
                .map(|(told, data)| (event, told, data, with)),
        );
        CHANGED.notify_all();
    }

    /// Runs whatever can run.
    pub fn pump(&mut self) -> Tell {
        let mut tell = Tell::default();
        let is_queue = |what: &What| matches!(what, What::Queue { .. });
        loop {
            let queues: Vec<Key> = self
                .things
                .iter()
                .filter(|(_, thing)| is_queue(&thing.what))
                .map(|(key, _)| *key)
                .collect();
            let ran = queues
                .into_iter()
                .any(|queue| self.things.contains_key(&queue) && self.run_one(queue, &mut tell));
            if !ran {
                return tell;
            }
        }
    }

    fn run_one(&mut self, queue: Key, tell: &mut Tell) -> bool {
        let What::Queue {
            out_of_order,
            waiting,
        } = &self.thing(queue).what
        else {
            return false;
        };
        let candidates = if *out_of_order {
            waiting.len()
        } else {
            waiting.len().min(1)
        };
        let waits: Vec<Vec<Key>> = waiting[..candidates]
            .iter()
            .map(|one| one.waits.clone())
            .collect();
        let ready = waits
            .iter()
            .position(|waits| waits.iter().all(|event| self.status(*event) <= 0));
        let Some(place) = ready else {
            return false;
        };
        let failed = waits[place].iter().any(|event| self.status(*event) < 0);
        let What::Queue { waiting, .. } = &mut self.thing(queue).what else {
            return false;
        };
        let command = waiting.remove(place);
        if !failed {
            (command.run)(self);
        }
        let status = if failed { EXEC_STATUS_ERROR_IN_WAIT_LIST } else { 0 };
        self.end(command.event, status, tell);
        command.waits.iter().for_each(|key| self.release(*key));
        command.holds.iter().for_each(|key| self.release(*key));
        // Those who are told see the event; it goes afterwards.
        if tell.0.iter().all(|(event, ..)| *event != command.event) {
            self.release(command.event);
        } else {
            tell.0.push((command.event, give_back, command.event, status));
        }
        true
    }

    fn is_done(&mut self, queue: Key) -> bool {
        match &self.thing(queue).what {
            What::Queue { waiting, .. } => waiting.is_empty(),
            _ => panic!("no queue"),
        }
    }
}

unsafe extern "C" fn give_back(_: Handle, _: i32, event: *mut c_void) {
    inside().release(event as Key);
}

/// What every command is given by the worker.
pub struct Order {
    pub queue: Handle,
    pub blocks: bool,
    pub count: u32,
    pub waits: *const Handle,
    pub event: *mut Handle,
}

/// Takes a command on; `uses` are the objects it touches.
pub fn enqueue(
    mut state: Inside,
    order: Order,
    uses: &[Handle],
    run: impl FnOnce(&State) + Send + 'static,
) -> i32 {
    let queue = order.queue as Key;
    let context = state.context_of(queue);
    assert!(matches!(state.thing(queue).what, What::Queue { .. }), "no queue");
    assert_eq!(
        order.count == 0,
        order.waits.is_null(),
        "a wait list as the headers want it"
    );
    let waits: Vec<Key> = match order.count {
        0 => Vec::new(),
        // SAFETY: a list of the length said.
        count => unsafe { std::slice::from_raw_parts(order.waits, count as usize) }
            .iter()
            .map(|wait| *wait as Key)
            .collect(),
    };
    for wait in &waits {
        state.status(*wait);
        assert_eq!(state.context_of(*wait), context, "an event of another context");
    }
    let mut holds: Vec<Key> = uses.iter().map(|key| *key as Key).collect();
    for used in &holds {
        assert_eq!(state.context_of(*used), context, "an object of another context");
    }
    holds.push(queue);
    holds.iter().chain(&waits).for_each(|key| state.retain(*key));
    let what = What::Event {
        status: 2,
        user: false,
        told: Vec::new(),
    };
    let event = state.make(what, context, &[]);
    if !order.event.is_null() {
        state.retain(event);
        // SAFETY: a place for a handle, as the worker said.
        unsafe { *order.event = event as Handle };
    }
    let command = Command {
        run: Box::new(run),
        waits,
        event,
        holds,
    };
    if let What::Queue { waiting, .. } = &mut state.thing(queue).what {
        waiting.push(command);
    }
    if order.blocks {
        state.retain(event);
        return wait(state, &[event], true);
    }
    SUCCESS
}

/// Waits until events have ended; gives them back if they are ours.
pub fn wait(mut state: Inside, events: &[Key], ours: bool) -> i32 {
    loop {
        state = state.pumped();
        if events.iter().all(|event| state.status(*event) <= 0) {
            break;
        }
        state = state.sleep();
    }
    let failed = events.iter().any(|event| state.status(*event) < 0);
    if ours {
        events.iter().for_each(|event| state.release(*event));
    }
    if failed {
        EXEC_STATUS_ERROR_IN_WAIT_LIST
    } else {
        SUCCESS
    }
}

pub fn finish(queue: Handle) -> i32 {
    let mut state = inside();
    loop {
        state = state.pumped();
        if state.is_done(queue as Key) {
            return SUCCESS;
        }
        state = state.sleep();
    }
}

impl Inside {
    /// Runs what can run and tells who listens, outside the driver.
    pub fn pumped(mut self) -> Inside {
        loop {
            let tell = self.pump();
            if tell.0.is_empty() {
                return self;
            }
            drop(self);
            tell.all();
            self = inside();
        }
    }

    fn sleep(self) -> Inside {
        let inner = CHANGED
            .wait(self.0)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        Inside(inner)
    }
}
