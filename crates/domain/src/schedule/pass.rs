//! A pass over the queue, in commands of bounded work: each starts at most one job.

use std::cmp::Reverse;
use std::ops::Bound;

use super::admit::{admit, resumed, within_limits};
use super::allocation::Allocation;
use super::calendar::{self, Stay, leaves_promised};
use super::place::{has_room_again, places};
use super::volume::{VolumeNeeds, bind};
use super::{backfill, evict};
use crate::event::Event;
use crate::id::{AllocationId, Ids, JobId, VolumeId};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::{Job, Phase};
use crate::workload::spec::{JobSpec, Priority};

/// Room is made or promised to the first of the queue.
const FIRST: usize = 32;

/// Where a waiting job stands in the queue: higher priority first, then who came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey(pub Reverse<Priority>, pub JobId);

impl QueueKey {
    pub fn of(job: &Job) -> Option<QueueKey> {
        let waits = match job.phase {
            Phase::Queued => true,
            Phase::Paused => job.pause.is_none(),
            _ => false,
        };
        waits.then_some(QueueKey(Reverse(job.spec.priority), job.id))
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

/// Starts the first job after the cursor that can start, among at most `limit`. For one that cannot, room is made or
/// promised where that is possible, in the order of the queue.
pub fn step(state: &State, cursor: Option<QueueKey>, limit: usize, ids: &mut Ids, at: Time) -> Vec<Event> {
    let lapsed = calendar::lapsed(state, at);
    if !lapsed.is_empty() {
        return lapsed;
    }
    for QueueKey(_, id) in after(state, cursor).take(limit) {
        let job = &state.jobs[&id];
        let events = go(state, job, ids, at).unwrap_or_else(|waits| promise(state, job, &waits, at));
        if !events.is_empty() {
            return events;
        }
    }
    Vec::new()
}

/// What can be done for a job that found no room: others give way to it, or it is told when there will be.
fn promise(state: &State, job: &Job, waits: &Refusal, at: Time) -> Vec<Event> {
    if job.phase != Phase::Queued {
        return Vec::new();
    }
    let kept = state.calendar.of(job.id);
    if let Some(kept) = kept.filter(|kept| kept.evicts()) {
        return evict::in_vain(state, kept, waits);
    }
    // Work is bounded: for those further back nobody is asked before they come to the front.
    if !state.queue.iter().take(FIRST).any(|first| first.1 == job.id) {
        return Vec::new();
    }
    let room = evict::make_room(state, &Ask::of(job), waits, at);
    match (kept, room.is_empty()) {
        (None, true) => backfill::reserve(state, job, waits, at),
        (None, false) => room,
        (Some(_), true) => Vec::new(),
        (Some(_), false) => {
            let why = "others give way to it now".into();
            let withdrawn = Event::PromiseWithdrawn { job: job.id, why };
            std::iter::once(withdrawn).chain(room).collect()
        }
    }
}

/// Starts a queued job or resumes a paused one, or says what it waits for.
pub fn go(state: &State, job: &Job, ids: &mut Ids, at: Time) -> Result<Vec<Event>, Refusal> {
    match job.phase {
        Phase::Paused => resume(state, job, at),
        _ => start(state, &Ask::of(job), ids, at),
    }
}

/// Gives a paused job the GPUs it had, in the size they have, if they have room for it again and all that a new job
/// would have to fit is met.
pub fn resume(state: &State, job: &Job, at: Time) -> Result<Vec<Event>, Refusal> {
    if job.resume_after.is_some_and(|after| after > at) {
        return Err(
            Refusal::new(Code::NoCapacity, "its node could not resume it just now")
                .hint("it is tried again in a moment; its events say what the node said"),
        );
    }
    let owner = ScopeId::User(job.owner);
    let allocation = job
        .allocation
        .and_then(|id| state.fleet.allocation(id))
        .expect("INVARIANT: what is paused has a place");
    within_limits(state, owner, &job.spec)?;
    let stay = Stay::of(job.id, &job.spec, at);
    let class = has_room_again(state, owner, &job.spec.demand, allocation, stay)?;
    let admission = resumed(state, job, allocation, class, at)?;
    leaves_promised(state, job.id, owner, &admission, at)?;
    Ok(vec![Event::JobResuming {
        job: job.id,
        admission,
        slices: allocation.slices.clone(),
    }])
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
    let stay = Stay::of(job, spec, at);
    for place in places(state, owner, spec, VolumeNeeds::of(state, volumes)?, stay, at)? {
        let vram_mib = place.slices.iter().map(|slice| slice.vram_mib).sum();
        let given = place.spec(spec);
        let admitted = admit(state, owner, &given, place.class.as_deref(), vram_mib, at)
            .and_then(|admission| leaves_promised(state, job, owner, &admission, at).map(|()| admission));
        match admitted {
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
                    paused: false,
                    ran_before_ms: 0,
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
