//! Cgroups for seats: those that an ended run left as good as new, else ones to be made.
//!
//! INVARIANT: cgroups are given back when the end of their run is written down and its thin parent is gone, never before:
//! whatever is still done to the run by its record must not reach the next one in its place. What had devices is not used
//! again, for drivers, filters and whoever sets aside or limits anew know devices' users by their cgroups.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::isolate::cgroup::{self, Cgroups};
use crate::launch::Launch;
use crate::record::{Record, start_ticks};

/// As many as run at a time where jobs are short.
const MOST: usize = 256;
const PATIENCE: Duration = Duration::from_millis(100);

pub(super) struct Pool {
    cgroups: Cgroups,
    /// What the names of this agent's begin with.
    prefix: String,
    made: AtomicU64,
    emptied: Mutex<Vec<String>>,
}

/// The cgroups of a run, to be given back.
#[derive(Debug)]
pub(in crate::node) struct Left {
    name: String,
    again: bool,
}

impl Left {
    pub(super) fn of_launch(name: String, launch: &Launch) -> Left {
        Left {
            name,
            again: launch.order.devices.is_empty() && launch.worker.is_none(),
        }
    }

    /// Of a run that an older agent started; none where it has no cgroups.
    pub(in crate::node) fn of_record(record: &Record) -> Option<Left> {
        let name = record.cgroups.first()?.file_name()?.to_str()?.to_owned();
        let again = record
            .subject
            .as_ref()
            .is_some_and(|subject| subject.devices == 0);
        Some(Left { name, again })
    }
}

impl Pool {
    pub(super) fn new(cgroups: Cgroups, prefix: &str) -> Pool {
        let own = std::process::id() as i32;
        Pool {
            cgroups,
            // A process's number may come again, but not at the same tick.
            prefix: format!("{prefix}{own}-{}-", start_ticks(own).unwrap_or(0)),
            made: AtomicU64::new(0),
            emptied: Mutex::default(),
        }
    }

    /// What the next seat's cgroups are called.
    pub(super) fn next(&self) -> String {
        let emptied = self.emptied.lock().unwrap_or_else(PoisonError::into_inner).pop();
        emptied.unwrap_or_else(|| {
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            format!("{}{number}", self.prefix)
        })
    }

    /// Takes the cgroups of a run that is over, or removes them.
    pub(super) fn give_back(&self, left: Left) {
        let renewed = left.again && self.has_room() && self.cgroups.renew(&left.name).is_ok();
        if renewed {
            let mut emptied = self.emptied.lock().unwrap_or_else(PoisonError::into_inner);
            emptied.push(left.name);
        } else {
            self.remove(&left.name);
        }
    }

    pub(super) fn remove(&self, name: &str) {
        cgroup::end(&self.cgroups.dirs(name), PATIENCE);
    }

    fn has_room(&self) -> bool {
        self.emptied.lock().unwrap_or_else(PoisonError::into_inner).len() < MOST
    }
}
