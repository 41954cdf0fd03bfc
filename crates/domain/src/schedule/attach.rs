//! Jobs in booked windows: on the window's very GPUs, whose price the booking pays.
//!
//! A job that names a booking runs in its windows and nowhere else; any other job of the booking's owner is tried there
//! first. Quotas count it as any other, but nothing is lent or borrowed for it. Called by `pass.rs`.

use std::borrow::Cow;

use super::admit;
use super::allocation::{Allocation, Slice};
use super::fleet::{Node, NodeStatus};
use super::pass::Ask;
use super::place::{Place, places_on};
use super::volume::VolumeNeeds;
use crate::booking::inside::has_slices;
use crate::booking::record::{Booking, Window};
use crate::id::{AllocationId, BookingId};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::time::Time;
use crate::workload::job::{Admission, Job};
use crate::workload::spec::JobSpec;

/// Where a job's members would be in a window, and what they are admitted with; none where it has no part in one.
pub(super) fn start(
    state: &State,
    ask: &Ask<'_>,
    at: Time,
) -> Result<Option<(Vec<Place>, Admission)>, Refusal> {
    if state.bookings.is_empty() && ask.spec.booking.is_none() {
        return Ok(None);
    }
    let needs = VolumeNeeds::of(state, ask.volumes)?;
    let mut waits = None;
    for (booking, window) in windows(state, ask) {
        let Some(places) = places(state, ask, window, needs, at) else {
            continue;
        };
        let slices = places.iter().flat_map(|place| &place.slices);
        if !has_slices(state, booking, window, ask.job, slices) {
            continue;
        }
        match admitted(state, ask, booking.id, &places, at) {
            Ok(admission) => return Ok(Some((places, admission))),
            Err(refusal) => waits = Some(refusal),
        }
    }
    match (ask.spec.booking, waits) {
        (None, _) => Ok(None),
        (Some(_), Some(waits)) => Err(waits),
        (Some(id), None) => Err(closed(state, ask, id)),
    }
}

/// Open windows this job may run in.
fn windows<'a>(state: &'a State, ask: &'a Ask<'_>) -> impl Iterator<Item = (&'a Booking, &'a Window)> {
    let named = ask.spec.booking;
    let open = state
        .bookings
        .live()
        .filter(|(_, window)| window.is_open() && window.down.is_none());
    open.filter(move |(booking, _)| {
        named.map_or(ask.spec.demand.gpus > 0, |id| id == booking.id)
            && state.tree.is_within(ask.owner, booking.scope)
    })
}

/// A place for every member on the window's GPUs, or none.
fn places(state: &State, ask: &Ask<'_>, window: &Window, needs: VolumeNeeds, at: Time) -> Option<Vec<Place>> {
    let mut nodes: Vec<Node> = Vec::new();
    for (id, _) in &window.gpus {
        if nodes.iter().any(|node| node.id == *id) {
            continue;
        }
        let node = state.fleet.node(*id).filter(|node| node.status == NodeStatus::Up);
        let Some(mut node) = node.cloned() else { continue };
        node.gpus.retain(|gpu| window.gpus.contains(&(*id, gpu.id)));
        nodes.push(node);
    }
    let mut places = Vec::new();
    for member in 0..ask.spec.demand.nodes {
        let found = nodes.iter_mut().find_map(|node| {
            let place = places_on(state, node, ask.owner, ask.spec, needs)
                .into_iter()
                .next()?;
            node.with(&trial(ask, member, &place, at));
            Some(place)
        });
        places.push(found?);
    }
    Some(places)
}

/// What the place would be as an allocation, to look for the next beside it.
fn trial(ask: &Ask<'_>, member: u32, place: &Place, at: Time) -> Allocation {
    Allocation {
        id: AllocationId(u64::from(member)),
        job: ask.job,
        node: place.node,
        attempt: ask.attempt,
        member,
        slices: place.slices.clone(),
        cpu_milli: ask.spec.demand.cpu_milli,
        memory_mib: ask.spec.demand.memory_mib,
        isolation: place.isolation,
        isolation_why: String::new(),
        placed: at,
        resized: false,
        paused: false,
        ran_before_ms: 0,
        metered_ms: 0,
        crumb: 0,
        resale_crumb: 0,
        used: None,
        crowded_ms: 0,
    }
}

fn admitted(
    state: &State,
    ask: &Ask<'_>,
    id: BookingId,
    places: &[Place],
    at: Time,
) -> Result<Admission, Refusal> {
    let vram_mib = places
        .iter()
        .flat_map(|place| &place.slices)
        .map(|slice| slice.vram_mib)
        .sum();
    let first = &places[0];
    let share = |place: &&Place| place.slices.iter().map(|slice| slice.compute_permille).max();
    let given = places.iter().max_by_key(share).unwrap_or(first).spec(ask.spec);
    admit::admit_booked(
        state,
        ask.owner,
        &booked(&given, id),
        first.class.as_deref(),
        vram_mib,
        at,
    )
}

/// The job as it is charged in a window of this booking.
pub(super) fn booked(spec: &JobSpec, id: BookingId) -> Cow<'_, JobSpec> {
    if spec.booking == Some(id) {
        return Cow::Borrowed(spec);
    }
    let mut spec = spec.clone();
    spec.booking = Some(id);
    Cow::Owned(spec)
}

/// The paused job as it is charged where its allocation is: in an open window of its owner's the booking pays, elsewhere
/// it does itself. One that names a booking waits for its windows.
pub(super) fn spec_at<'a>(
    state: &State,
    job: &'a Job,
    allocation: &Allocation,
) -> Result<Cow<'a, JobSpec>, Refusal> {
    let (ask, slices) = (Ask::of(job), &allocation.slices);
    let within = |window: &Window| {
        let mut slices = slices.iter();
        slices.all(|slice| window.gpus.contains(&(allocation.node, slice.gpu)))
    };
    let mut open = windows(state, &ask).filter(|(_, window)| within(window));
    let open = open.find(|(booking, window)| has_slices(state, booking, window, job.id, slices.iter()));
    match (open, job.spec.booking) {
        (Some((booking, _)), _) => Ok(booked(&job.spec, booking.id)),
        (None, Some(id)) => Err(closed(state, &ask, id)),
        (None, None) => Ok(Cow::Borrowed(&job.spec)),
    }
}

/// A running job in another size as it is charged, if its window has the slices for it.
pub(super) fn resized<'a>(
    state: &State,
    job: &Job,
    spec: &'a JobSpec,
    slices: &[Slice],
) -> Result<Cow<'a, JobSpec>, Refusal> {
    let paying = job.admission.as_ref().and_then(|admission| admission.booking);
    let Some(booking) = paying.and_then(|id| state.bookings.get(id)) else {
        return Ok(Cow::Borrowed(spec));
    };
    let there = |window: &Window| {
        let has = |slice: &Slice| window.gpus.iter().any(|(_, gpu)| *gpu == slice.gpu);
        window.is_open() && slices.iter().all(has)
    };
    let window = booking.windows.iter().find(|window| there(window));
    let fits = |window: &Window| has_slices(state, booking, window, job.id, slices.iter());
    if window.is_some_and(|window| !fits(window)) {
        return Err(Refusal::new(
            Code::NoCapacity,
            "the window it runs in has no more slices for it",
        ));
    }
    Ok(booked(spec, booking.id))
}

/// Why a job that names a booking does not run.
fn closed(state: &State, ask: &Ask<'_>, id: BookingId) -> Refusal {
    let booking = state.bookings.get(id);
    let booking = booking.filter(|booking| state.tree.is_within(ask.owner, booking.scope));
    let Some(booking) = booking else {
        return Refusal::new(Code::BookingClosed, "the booking it is attached to is over")
            .hint("stop it and submit it anew, without the booking or with another");
    };
    if booking.windows.iter().any(Window::is_open) {
        return Refusal::new(
            Code::BookingClosed,
            "there is no room for it in the booking's window now",
        )
        .hint("it starts when jobs in the window end");
    }
    let next = booking.windows.iter().map(|window| window.start).min();
    let when = next.map_or_else(
        || "when it is renewed".to_owned(),
        |start| format!("at {}", start.rfc3339()),
    );
    Refusal::new(Code::BookingClosed, "no window of its booking is open now")
        .hint(format!("the next one begins {when}"))
}
