//! Starting one waiting job, or resuming it. Which one is tried when is `order/walk`'s matter.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::admit::{admit, admit_parent, admit_within_limits, resumed, within_limits};
use super::allocation::Allocation;
use super::calendar::{Promised, Stay, leaves_promised, masked};
use super::place::{Members, Place, gang_places, given, has_room_again, places};
use super::volume::{VolumeNeeds, bind};
use super::{attach, backfill, evict, gather, relieve};
use crate::event::Event;
use crate::id::{AllocationId, Ids, JobId, VolumeId};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::{Admission, Job, Phase};
use crate::workload::spec::{JobSpec, Priority};

/// A waiting job by priority and arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey(pub Reverse<Priority>, pub JobId);

impl QueueKey {
    pub fn of(job: &Job) -> Option<QueueKey> {
        let waits = match job.phase {
            // Its tasks wait, each for itself.
            _ if job.is_parent() => false,
            Phase::Queued => true,
            Phase::Paused => job.pause.is_none(),
            _ => false,
        };
        waits.then_some(QueueKey(Reverse(job.spec.priority), job.id))
    }
}

/// Tries one waiting job: starts it, or says what it waits for. One that waits no longer is let be.
pub fn step(state: &State, id: JobId, ids: &mut Ids, at: Time) -> Result<Vec<Event>, Refusal> {
    match state.jobs.get(&id) {
        Some(job) if QueueKey::of(job).is_some() => go(state, job, ids, at),
        _ => Ok(vec![]),
    }
}

/// What can be done for a queued job that found no room: others give way to it, or it is promised what there will be.
pub fn promise(state: &State, id: JobId, ids: &mut Ids, at: Time) -> Vec<Event> {
    let queued = state.jobs.get(&id).filter(|job| job.phase == Phase::Queued);
    let Some(job) = queued.filter(|job| !job.is_parent()) else {
        return Vec::new();
    };
    let waits = match start(state, &Ask::of(job), ids, at) {
        Ok(started) => return started,
        Err(waits) => waits,
    };
    let kept = state.calendar.of(job.id);
    if let Some(kept) = kept.filter(|kept| kept.evicts()) {
        return evict::in_vain(state, kept, &waits);
    }
    // Nobody's leaving helps a task whose job may not begin.
    if admit_parent(state, &job.spec, job.id, at).is_err() {
        return Vec::new();
    }
    let mut room = evict::make_room(state, &Ask::of(job), &waits, at);
    if room.is_empty() {
        room = gather::gather(state, &Ask::of(job), &waits, at);
    }
    match (kept, room.is_empty()) {
        (None, true) => backfill::reserve(state, job, &waits, at),
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
        .sole_allocation()
        .and_then(|id| state.fleet.allocation(id))
        .expect("INVARIANT: what is paused has a place");
    let parent = admit_parent(state, &job.spec, job.id, at)?;
    within_limits(state, owner, &job.spec)?;
    let stay = Stay::of(Ask::of(job), at);
    let class = has_room_again(state, owner, &job.spec.demand, allocation, stay)?;
    let admission = resumed(state, job, allocation, class, at)?;
    leaves_promised(state, job.id, owner, &admission, at)?;
    let resuming = Event::JobResuming {
        job: job.id,
        admission,
        slices: allocation.slices.clone(),
    };
    Ok(parent.into_iter().chain([resuming]).collect())
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

/// Admits and places one job together, all its members or none, binding its new volumes to the place, or says what it waits for.
pub fn start(state: &State, ask: &Ask<'_>, ids: &mut Ids, at: Time) -> Result<Vec<Event>, Refusal> {
    let Ask {
        owner,
        spec,
        volumes,
        job,
        ..
    } = *ask;
    let parent = admit_parent(state, spec, job, at)?;
    if let Some((places, admission)) = attach::start(state, ask, at)? {
        return Ok(placed(state, ask, parent, places, admission, ids, at));
    }
    // Quota over everything is asked first: it is cheap, and it is the answer users most often need. What a job
    // costs is known only with the class it gets.
    let (class, vram_mib) = (spec.demand.class.as_deref(), spec.demand.vram_total_mib());
    let known = match spec.demand.gpus == 0 || class.is_some() {
        true => Some(admit(state, owner, spec, class, vram_mib, at)?),
        false => within_limits(state, owner, spec).map(|()| None)?,
    };
    let needs = VolumeNeeds::of(state, volumes)?;
    let mut waits_for = Refusal::not_found();
    let promised = masked(state, Stay::of(*ask, at), at);
    for places in choices(state, ask, needs, &promised)? {
        let first = &places[0];
        let (given, given_mib) = given(&places, spec);
        let given_class = first.class.as_deref();
        let admitted = match (&known, &given) {
            (Some(known), Cow::Borrowed(_)) if (given_class, given_mib) == (class, vram_mib) => {
                Ok(known.clone())
            }
            (_, Cow::Borrowed(_)) => admit_within_limits(state, owner, spec, given_class, given_mib, at),
            (_, Cow::Owned(given)) => admit(state, owner, given, given_class, given_mib, at),
        };
        let admitted = admitted
            .and_then(|admission| leaves_promised(state, job, owner, &admission, at).map(|()| admission));
        match admitted {
            Err(refusal) => waits_for = refusal,
            Ok(admission) => {
                return Ok(placed(state, ask, parent, places, admission, ids, at));
            }
        }
    }
    Err(waits_for)
}

/// The events of a start: admitted, its new volumes bound, its members placed.
fn placed(
    state: &State,
    ask: &Ask<'_>,
    parent: Option<Event>,
    places: Vec<Place>,
    admission: Admission,
    ids: &mut Ids,
    at: Time,
) -> Vec<Event> {
    let Ask {
        spec, job, attempt, ..
    } = *ask;
    let mut events: Vec<Event> = parent.into_iter().collect();
    events.push(Event::JobAdmitted { job, admission });
    events.extend(bind(state, ask.volumes, places[0].node));
    let mut allocations = (0..).zip(places).map(|(member, place)| Allocation {
        id: AllocationId(ids.take()),
        job,
        node: place.node,
        attempt,
        member,
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
        crumb: 0,
        resale_crumb: 0,
        used: None,
        crowded_ms: 0,
    });
    events.extend(allocations.next().map(|allocation| Event::JobPlaced {
        job,
        allocation,
        others: allocations.collect(),
    }));
    events
}

/// Where all members could go, one choice for each GPU class, best first, each looked for when it is asked for.
fn choices<'a>(
    state: &'a State,
    ask: &Ask<'a>,
    volumes: VolumeNeeds,
    promised: &'a Promised,
) -> Result<Box<dyn Iterator<Item = Vec<Place>> + 'a>, Refusal> {
    let Ask { owner, spec, .. } = *ask;
    let members = spec.demand.nodes;
    let moves_to = relieve::moves_to(state, ask, volumes, promised);
    if !moves_to.is_empty() {
        return Ok(Box::new(moves_to.into_iter().map(|place| vec![place])));
    }
    if members == 1 {
        let choices = places(state, owner, spec, volumes, promised)?;
        return Ok(Box::new(choices.map(|place| vec![place])));
    }
    // What is kept for a gang is the room that is sure.
    let kept = state.calendar.of(ask.job);
    let kept = kept.and_then(|kept| Members::of(state, owner, spec, volumes).in_rooms(kept, promised));
    let anywhere = move || gang_choices(state, owner, spec, volumes, promised);
    match kept {
        Some(kept) => {
            let anywhere = std::iter::once_with(anywhere).flatten().flatten();
            Ok(Box::new(std::iter::once(kept).chain(anywhere)))
        }
        None => Ok(Box::new(anywhere()?)),
    }
}

/// Where a gang could go, one choice for each class.
fn gang_choices<'a>(
    state: &'a State,
    owner: ScopeId,
    spec: &'a JobSpec,
    volumes: VolumeNeeds,
    promised: &'a Promised,
) -> Result<impl Iterator<Item = Vec<Place>> + 'a, Refusal> {
    let best = gang_places(state, owner, spec, volumes, promised)?;
    // The class it would get first may be one that its quota or budget has no more of.
    let first = best[0].class.clone();
    let mut classes: BTreeSet<&str> = BTreeSet::new();
    if spec.demand.gpus > 0 && spec.demand.class.is_none() {
        let gpus = state.fleet.nodes().flat_map(|node| &node.gpus);
        classes = gpus.map(|gpu| &*gpu.facts.class).collect();
    }
    classes.retain(|class| Some(*class) != first.as_deref());
    let others = classes.into_iter().filter_map(move |class| {
        let mut of_class = spec.clone();
        of_class.demand.class = Some(class.into());
        gang_places(state, owner, &of_class, volumes, promised).ok()
    });
    Ok(std::iter::once(best).chain(others))
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
