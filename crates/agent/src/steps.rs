//! What starting an allocation took, step by step: told once to the server, for those whose job belongs to a trace.
//!
//! The agent's own steps are kept in memory, those of the thin parent in its record. All are by the node's monotonic
//! clock, and told as how long ago they were. An agent started anew has forgotten its own, and tells nothing of that start.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tenure_api::channel::{FromAgent, MAX_STEPS, Order, StartStep, Took};
use tenure_domain::id::AllocationId;

use crate::clock;
use crate::record::Record;

/// Starts under way that are kept; of more, the oldest are forgotten.
const MAX_STARTS: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub step: StartStep,
    pub began_us: u64,
    pub ended_us: u64,
}

impl Step {
    /// One that ends now.
    pub fn since(step: StartStep, began_us: u64) -> Step {
        Step {
            step,
            began_us,
            ended_us: clock::monotonic_us(),
        }
    }

    fn told(self, now_us: u64) -> Took {
        Took {
            step: self.step,
            ended_ago_us: now_us.saturating_sub(self.ended_us),
            took_us: self.ended_us.saturating_sub(self.began_us),
        }
    }
}

#[derive(Default)]
pub struct Steps(Mutex<BTreeMap<AllocationId, Vec<Step>>>);

impl Steps {
    fn starts(&self) -> MutexGuard<'_, BTreeMap<AllocationId, Vec<Step>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on the steps of this start are kept, if they are to be told.
    pub fn begin(&self, order: &Order) {
        if !order.is_traced() {
            return;
        }
        let mut starts = self.starts();
        starts.insert(order.allocation, Vec::new());
        while starts.len() > MAX_STARTS {
            starts.pop_first();
        }
    }

    /// A step that ends now.
    pub fn note(&self, id: AllocationId, step: StartStep, began_us: u64) {
        if let Some(steps) = self.starts().get_mut(&id) {
            steps.push(Step::since(step, began_us));
        }
    }

    pub fn time<T>(&self, id: AllocationId, step: StartStep, work: impl FnOnce() -> T) -> T {
        let began_us = clock::monotonic_us();
        let came_to = work();
        self.note(id, step, began_us);
        came_to
    }

    /// What is to be told of a start that has come to its end; nothing a second time.
    pub fn tell(&self, record: &Record) -> Option<FromAgent> {
        let own = self.starts().remove(&record.allocation)?;
        let now_us = clock::monotonic_us();
        let steps: Vec<Took> = own
            .into_iter()
            .chain(record.steps.iter().copied())
            .map(|step| step.told(now_us))
            .take(MAX_STEPS)
            .collect();
        (!steps.is_empty()).then_some(FromAgent::Started {
            allocation: record.allocation,
            steps,
        })
    }

    pub fn forget(&self, id: AllocationId) {
        self.starts().remove(&id);
    }
}
