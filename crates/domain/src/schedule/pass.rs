//! A pass over the queue, in commands of bounded work: each starts at most one job.

use std::cmp::Reverse;
use std::ops::Bound;

use super::admit::{admit, within_limits};
use super::allocation::Allocation;
use super::place::places;
use super::volume::{VolumeNeeds, bind};
use crate::event::Event;
use crate::id::{AllocationId, Ids, JobId, VolumeId};
use crate::refusal::Refusal;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::{Job, Phase};
use crate::workload::spec::{JobSpec, Priority};

/// Where a waiting job stands in the queue: higher priority first, then who came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey(pub Reverse<Priority>, pub JobId);

impl QueueKey {
    pub fn of(job: &Job) -> Option<QueueKey> {
        (job.phase == Phase::Queued).then_some(QueueKey(Reverse(job.spec.priority), job.id))
    }
}

fn after(state: &State, cursor: Option<QueueKey>) -> impl Iterator<Item = QueueKey> {
    let from = cursor.map_or(Bound::Unbounded, Bound::Excluded);
    state.queue.range((from, Bound::Unbounded)).copied()
}

/// Where the next step of the pass goes on, after a step from `cursor` found none; none at the queue's end.
pub fn next_cursor(state: &State, cursor: Option<QueueKey>, limit: usize) -> Option<QueueKey> {
    let mut examined = after(state, cursor);
    let last = examined.by_ref().take(limit.max(1)).last()?;
    examined.next().map(|_| last)
}

/// Starts the first job after the cursor that can start, among at most `limit`.
pub fn step(state: &State, cursor: Option<QueueKey>, limit: usize, ids: &mut Ids, at: Time) -> Vec<Event> {
    for QueueKey(_, id) in after(state, cursor).take(limit) {
        if let Ok(events) = start(state, &Ask::of(&state.jobs[&id]), ids, at) {
            return events;
        }
    }
    Vec::new()
}

/// A job that wants to start, known already or just submitted.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    pub owner: ScopeId,
    pub spec: &'a JobSpec,
    pub volumes: &'a [VolumeId],
    pub job: JobId,
    pub attempt: u32,
}

impl<'a> Ask<'a> {
    pub fn of(job: &'a Job) -> Ask<'a> {
        Ask {
            owner: ScopeId::User(job.owner),
            spec: &job.spec,
            volumes: &job.volumes,
            job: job.id,
            attempt: job.attempt,
        }
    }
}

/// Admits and places one job together, binding its new volumes to the place, or says what it waits for.
pub fn start(state: &State, ask: &Ask<'_>, ids: &mut Ids, at: Time) -> Result<Vec<Event>, Refusal> {
    let Ask {
        owner,
        spec,
        volumes,
        job,
        attempt,
    } = *ask;
    // Quota over everything is asked first: it is cheap, and it is the answer users most often need. What a job
    // costs is known only with the class it gets.
    within_limits(state, owner, spec)?;
    if spec.demand.gpus == 0 || spec.demand.class.is_some() {
        admit(
            state,
            owner,
            spec,
            spec.demand.class.as_deref(),
            spec.demand.vram_total_mib(),
            at,
        )?;
    }
    let mut waits_for = Refusal::not_found();
    for place in places(state, owner, spec, VolumeNeeds::of(state, volumes)?)? {
        let vram_mib = place.slices.iter().map(|slice| slice.vram_mib).sum();
        let given = place.spec(spec);
        match admit(state, owner, &given, place.class.as_deref(), vram_mib, at) {
            Err(refusal) => waits_for = refusal,
            Ok(admission) => {
                let allocation = Allocation {
                    id: AllocationId(ids.take()),
                    job,
                    node: place.node,
                    attempt,
                    slices: place.slices,
                    cpu_milli: spec.demand.cpu_milli,
                    memory_mib: spec.demand.memory_mib,
                    isolation: place.isolation,
                    isolation_why: place.isolation_why,
                    placed: at,
                    resized: false,
                    metered_ms: 0,
                    used: None,
                };
                let mut events = vec![Event::JobAdmitted { job, admission }];
                events.extend(bind(state, volumes, place.node));
                events.push(Event::JobPlaced { job, allocation });
                return Ok(events);
            }
        }
    }
    Err(waits_for)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_by_priority_and_then_by_arrival() {
        let key = |priority, job| QueueKey(Reverse(priority), JobId(job));
        let mut keys = [
            key(Priority::Low, 1),
            key(Priority::Urgent, 9),
            key(Priority::Normal, 2),
            key(Priority::Urgent, 3),
            key(Priority::High, 8),
        ];
        keys.sort();
        assert_eq!(keys.map(|key| key.1.0), [3, 9, 8, 2, 1]);
    }
}
