//! Jobs that waited past the bound. They go first, whatever their class, and what falls free of what they wait for goes to
//! nobody else for a while: a large job would starve behind small ones for ever if it were only asked first.
//!
//! Absent: the bound itself, which the platform's share says. Asked by `walk`, and when a job is submitted.

use crate::id::JobId;
use crate::schedule::queue::Queue;
use crate::state::State;
use crate::time::{HOUR_MS, Time};
use crate::workload::job::Job;
use crate::workload::spec::{Demand, JobSpec, Priority};

/// How long room is kept for an aged job. It ends: a job that no node can hold any more must not idle the cell.
const KEPT_MS: u64 = 24 * HOUR_MS;

/// How many aged jobs of a class a submission is held against.
const LOOKED_AT: usize = 16;

/// What a job waited so far, in all; time it ran between evictions does not count.
pub fn waited_ms(job: &Job, at: Time) -> u64 {
    at.since_ms(job.submitted).saturating_sub(job.ran_ms)
}

/// Whether room is kept for the job.
pub fn is_kept_for(job: &Job, bound_ms: u64, at: Time) -> bool {
    (bound_ms..bound_ms.saturating_add(KEPT_MS)).contains(&waited_ms(job, at))
}

/// For how much longer room is kept for the job.
pub fn kept_ms(job: &Job, bound_ms: u64, at: Time) -> u64 {
    (bound_ms.saturating_add(KEPT_MS)).saturating_sub(waited_ms(job, at))
}

/// Whether the other could take what the aged one waits for.
pub fn competes(aged: &Demand, other: &Demand) -> bool {
    let same_class = match (&aged.class, &other.class) {
        (Some(aged), Some(other)) => aged == other,
        _ => true,
    };
    aged.gpus == 0 || other.gpus > 0 && same_class
}

/// An aged job that a new one would get in the way of, were it started before its turn.
pub fn ahead_of(state: &State, spec: &JobSpec, at: Time) -> Option<JobId> {
    let bound_ms = state.aged_ms();
    let aged = |queue: &Queue, class: Priority| -> Option<JobId> {
        queue.arrivals(class, None).take(LOOKED_AT).find(|id| {
            let job = &state.jobs[id];
            is_kept_for(job, bound_ms, at) && competes(&job.spec.demand, &spec.demand)
        })
    };
    let mut classes = Priority::ALL.iter().rev().copied();
    classes.find_map(|class| aged(&state.queue, class))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(class: Option<&str>, gpus: u32) -> Demand {
        Demand {
            gpus,
            class: class.map(Into::into),
            ..Demand::default()
        }
    }

    #[test]
    fn only_who_wants_the_same_competes() {
        let aged = on(Some("H100"), 8);
        assert!(competes(&aged, &on(Some("H100"), 1)));
        assert!(competes(&aged, &on(None, 1)));
        assert!(!competes(&aged, &on(Some("L40S"), 1)));
        assert!(!competes(&aged, &on(None, 0)));
        assert!(competes(&on(None, 1), &on(Some("L40S"), 1)));
        assert!(
            competes(&on(None, 0), &on(Some("L40S"), 1)),
            "CPU is wanted by all"
        );
    }
}
