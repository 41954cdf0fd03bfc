//! Threads for what takes long, so that a connection's other calls go on meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::object::lock;

/// The most threads of one connection, and the most that waits for one.
const THREADS_MOST: usize = 96;
const WAITING_MOST: usize = 1024;
/// A thread with nothing to do ends after this.
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    idle: usize,
    threads: usize,
}

#[derive(Default)]
pub struct Helpers(Arc<(Mutex<State>, Condvar)>);

impl Helpers {
    /// Has a job done. False: there is too much of it already.
    pub fn give(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let mut state = lock(&self.0.0);
        if state.waiting.len() >= WAITING_MOST {
            return false;
        }
        state.waiting.push_back(Box::new(job));
        if state.idle >= state.waiting.len() || state.threads >= THREADS_MOST {
            self.0.1.notify_one();
            return true;
        }
        let shared = self.0.clone();
        let started = std::thread::Builder::new()
            .name("helper".into())
            .spawn(move || work(&shared));
        match started {
            Ok(_) => state.threads += 1,
            Err(_) if state.threads > 0 => self.0.1.notify_one(),
            Err(_) => {
                state.waiting.pop_back();
                return false;
            }
        }
        true
    }
}

fn work(shared: &(Mutex<State>, Condvar)) {
    let mut state = lock(&shared.0);
    loop {
        if let Some(job) = state.waiting.pop_front() {
            drop(state);
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            state = lock(&shared.0);
            continue;
        }
        state.idle += 1;
        let (back, timed_out) = shared
            .1
            .wait_timeout(state, IDLE)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        state = back;
        state.idle -= 1;
        if timed_out.timed_out() && state.waiting.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}
