//! The watch: one thread for each device that sees commands end. It waits for the driver's events, since a callback in
//! the program's stream would hold the stream up, and would be taken down by whoever captures it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::abi::{Code, Handle, NOT_READY, SUCCESS};
use super::bind::{bindings, within};
use super::flight::{Flight, forget_events};
use super::real;
use super::zero::beside_captures;
use crate::gate::Front;

/// How often it looks where commands of several streams may end in any order.
const LOOK: Duration = Duration::from_micros(100);
/// How long a context that is going waits for what it still has on the device.
const LAST_WAIT: Duration = Duration::from_secs(2);

struct Watch {
    device: i32,
    airborne: Mutex<Airborne>,
    changed: Condvar,
}

#[derive(Default)]
struct Airborne {
    flights: VecDeque<Flight>,
    /// Taken out of the list, and not done with yet.
    landing: usize,
}

static WATCHES: Mutex<Vec<&'static Watch>> = Mutex::new(Vec::new());

fn watch_of(device: i32) -> &'static Watch {
    let mut all = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(watch) = all.iter().find(|watch| watch.device == device) {
        return watch;
    }
    let watch: &'static Watch = Box::leak(Box::new(Watch {
        device,
        airborne: Mutex::default(),
        changed: Condvar::new(),
    }));
    crate::gate::without_signals(|| {
        let thread = std::thread::Builder::new().name("tenure-guard".into());
        // Without the thread nothing would ever be seen to end; the gate bounds its waits, and goes on unpaid for.
        let _ = thread.spawn(move || watch.keep());
    });
    all.push(watch);
    watch
}

/// Sees to it that a command is noticed when it ends.
pub fn watch(flight: Flight) {
    let watch = watch_of(flight.binding.device);
    watch.airborne().flights.push_back(flight);
    watch.changed.notify_all();
}

/// A context is going: what it has on the device is waited for, and our events in it are forgotten.
pub fn settle(context: usize) {
    let wait: unsafe extern "C" fn() -> Code = real!("cuCtxSynchronize");
    // SAFETY: no arguments; the context is the thread's own just now.
    unsafe { wait() };
    for binding in bindings() {
        let watch = watch_of(binding.device);
        let busy = |all: &mut Airborne| {
            all.landing > 0 || all.flights.iter().any(|flight| flight.context == context)
        };
        let waited = watch
            .changed
            .wait_timeout_while(watch.airborne(), LAST_WAIT, busy)
            .unwrap_or_else(PoisonError::into_inner);
        let mut left = waited.0;
        let (gone, stay): (Vec<Flight>, Vec<Flight>) = left
            .flights
            .drain(..)
            .partition(|flight| flight.context == context);
        left.flights.extend(stay);
        drop(left);
        gone.into_iter().for_each(Flight::land);
    }
    forget_events(context);
}

impl Watch {
    fn airborne(&self) -> MutexGuard<'_, Airborne> {
        self.airborne.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self) {
        // What this thread asks must not break what the program's threads capture.
        beside_captures(|| {
            loop {
                let next = {
                    let mut all = self.airborne();
                    while all.flights.is_empty() {
                        all = self.changed.wait(all).unwrap_or_else(PoisonError::into_inner);
                    }
                    let oldest = &all.flights[0];
                    let one_stream = all.flights.iter().all(|flight| flight.stream == oldest.stream);
                    one_stream.then_some((oldest.context, oldest.events.ended))
                };
                match next {
                    // In one stream the oldest ends first.
                    Some((context, event)) => {
                        let wait: unsafe extern "C" fn(Handle) -> Code = real!("cuEventSynchronize");
                        // SAFETY: an event of ours; contexts wait for us before they go.
                        within(context as Handle, || unsafe { wait(event as Handle) });
                    }
                    None => std::thread::sleep(LOOK),
                }
                self.land_ended();
            }
        });
    }

    fn land_ended(&self) {
        let ended: Vec<Flight> = {
            let mut all = self.airborne();
            let (ended, still): (Vec<_>, Vec<_>) = all.flights.drain(..).partition(has_ended);
            all.flights = still.into();
            all.landing = ended.len();
            ended
        };
        ended.into_iter().for_each(Flight::land);
        self.airborne().landing = 0;
        self.changed.notify_all();
    }
}

fn query(context: usize, event: usize) -> Option<Code> {
    let ask: unsafe extern "C" fn(Handle) -> Code = real!("cuEventQuery");
    // SAFETY: an event of ours; contexts wait for us before they go.
    within(context as Handle, || unsafe { ask(event as Handle) })
}

/// An error is an end too: the context is broken, and nothing of it will be told any more.
fn has_ended(flight: &Flight) -> bool {
    query(flight.context, flight.events.ended) != Some(NOT_READY)
}

/// The gate's view of one device's commands.
pub struct Flights {
    device: i32,
}

impl Flights {
    pub fn of(device: i32) -> Flights {
        Flights { device }
    }
}

impl Front for Flights {
    fn oldest_runs(&self) -> bool {
        beside_captures(|| {
            let all = watch_of(self.device).airborne();
            let oldest = all.flights.front();
            oldest.is_none_or(|oldest| query(oldest.context, oldest.events.begun) == Some(SUCCESS))
        })
    }

    /// Every command has an event, and the watch waits for it.
    fn look_for_finished(&self) {}
}
