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
    /// Nobody can give a job any more.
    over: bool,
}

type Shared = (Mutex<State>, Condvar);

/// Ends the threads with the connection: a tenant that comes and goes must not leave a crowd of idle ones.
#[derive(Default)]
struct Crew(Arc<Shared>);

impl Drop for Crew {
    fn drop(&mut self) {
        lock(&self.0.0).over = true;
        self.0.1.notify_all();
    }
}

#[derive(Default)]
pub struct Helpers(Arc<Crew>);

#[cfg(any(test, feature = "trial"))]
impl Helpers {
    /// The same threads for another connection.
    pub fn share(&self) -> Helpers {
        Helpers(self.0.clone())
    }

    /// What its threads hold as long as any lives.
    #[cfg(test)]
    pub fn threads(&self) -> std::sync::Weak<impl Send + use<>> {
        Arc::downgrade(&self.0.0)
    }

    /// Whether nothing is being done.
    pub fn is_quiet(&self) -> bool {
        let state = lock(&self.0.0.0);
        state.waiting.is_empty() && state.idle == state.threads
    }
}

impl Helpers {
    /// Has a job done. False: there is too much of it already.
    pub fn give(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let crew = &self.0.0;
        let mut state = lock(&crew.0);
        if state.waiting.len() >= WAITING_MOST {
            return false;
        }
        state.waiting.push_back(Box::new(job));
        if state.idle >= state.waiting.len() || state.threads >= THREADS_MOST {
            crew.1.notify_one();
            return true;
        }
        let shared = crew.clone();
        let started = std::thread::Builder::new()
            .name("helper".into())
            .spawn(move || work(&shared));
        match started {
            Ok(_) => state.threads += 1,
            Err(_) if state.threads > 0 => crew.1.notify_one(),
            Err(_) => {
                state.waiting.pop_back();
                return false;
            }
        }
        true
    }
}

fn work(shared: &Shared) {
    let mut state = lock(&shared.0);
    loop {
        if let Some(job) = state.waiting.pop_front() {
            drop(state);
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            state = lock(&shared.0);
            continue;
        }
        if state.over {
            state.threads -= 1;
            return;
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
