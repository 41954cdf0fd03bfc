//! Which GPUs are a window's: those of its seats from which the least has to leave, or others where these broke.
//!
//! Chosen when a window is cleared, and anew when it loses one. Absent: having anybody leave. Called by `advance.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{rooms, vram_of};
use super::record::{Booking, Size, Window};
use super::shelf::{Seat, Take};
use crate::id::{GpuId, NodeId};
use crate::schedule::allocation::Allocation;
use crate::schedule::calendar::ends_by;
use crate::schedule::fleet::{Gpu, NodeStatus};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::Job;

/// Whether the job may use what its scope booked.
pub(super) fn is_own(state: &State, booking: &Booking, job: &Job) -> bool {
    state.tree.is_within(ScopeId::User(job.owner), booking.scope)
}

pub(super) fn works(state: &State, (node, gpu): (NodeId, GpuId)) -> bool {
    let node = state
        .fleet
        .node(node)
        .filter(|node| node.status == NodeStatus::Up);
    let gpu = node.and_then(|node| node.gpu(gpu));
    gpu.is_some_and(|gpu| gpu.present && gpu.quarantine.is_none())
}

/// Living allocations on a device, with their jobs.
pub(super) fn holders<'a>(state: &'a State, gpu: &'a Gpu) -> impl Iterator<Item = (&'a Job, &'a Allocation)> {
    let holders = gpu.holders.iter().filter_map(|id| state.fleet.allocation(*id));
    holders.filter_map(|allocation| Some((state.jobs.get(&allocation.job)?, allocation)))
}

/// GPUs that other windows have now, and until when.
pub(super) fn others(state: &State, booking: &Booking, window: &Window) -> BTreeMap<GpuId, Time> {
    let live = state.bookings.live();
    let others = live.filter(|(of, other)| (of.id, other.of) != (booking.id, window.of));
    let mut ends = BTreeMap::new();
    for (_, other) in others {
        for (_, gpu) in &other.gpus {
            let end = ends.entry(*gpu).or_insert(other.end);
            *end = other.end.max(*end);
        }
    }
    ends
}

/// The GPUs of these seats from which the least has to leave; none if there are not enough.
fn choose(
    state: &State,
    booking: &Booking,
    window: &Window,
    seats: &[Seat],
    chosen: &BTreeSet<GpuId>,
    at: Time,
) -> Option<Vec<(NodeId, GpuId)>> {
    let others = others(state, booking, window);
    let mut gpus = Vec::new();
    for seat in seats {
        let node = state
            .fleet
            .node(seat.node)
            .filter(|node| node.status == NodeStatus::Up)?;
        let free = node.gpus.iter().filter(|gpu| *gpu.facts.class == *seat.class);
        let free = free.filter(|gpu| gpu.present && gpu.quarantine.is_none());
        let free = free.filter(|gpu| !chosen.contains(&gpu.id));
        // What another window has until this one begins is had, but only where there is nothing else.
        let free = free.filter(|gpu| others.get(&gpu.id).is_none_or(|end| *end <= window.start));
        let mut ranked: Vec<(bool, u64, GpuId)> = free
            .map(|gpu| {
                let stay = holders(state, gpu).filter(|(job, _)| !is_own(state, booking, job));
                let lost =
                    stay.map(
                        |(job, allocation)| match ends_by(state, allocation, at) > window.start {
                            true => {
                                1 + at
                                    .since_ms(job.since)
                                    .saturating_mul(allocation.slices.len() as u64)
                            }
                            false => 0,
                        },
                    );
                (
                    others.contains_key(&gpu.id),
                    lost.fold(0, u64::saturating_add),
                    gpu.id,
                )
            })
            .collect();
        ranked.sort_unstable();
        if ranked.len() < seat.gpus as usize {
            return None;
        }
        gpus.extend(
            ranked
                .into_iter()
                .take(seat.gpus as usize)
                .map(|(_, _, gpu)| (seat.node, gpu)),
        );
    }
    Some(gpus)
}

/// Seats, and the very GPUs of them.
pub(super) type Chosen = (Vec<Seat>, Vec<(NodeId, GpuId)>);

/// The same on these seats, or on others where these are not to be had any more.
pub(super) fn choose_anywhere(
    state: &State,
    booking: &Booking,
    window: &Window,
    chosen: &BTreeSet<GpuId>,
    at: Time,
) -> Option<Chosen> {
    if let Some(gpus) = choose(state, booking, window, &window.seats, chosen, at) {
        return Some((window.seats.clone(), gpus));
    }
    let spec = &booking.spec;
    let size = booking.size_of(window.of);
    let take = size.take(vram_of(state, &spec.class));
    let mut rooms = rooms(state, booking.scope, &spec.class, spec.region.as_deref());
    // What it has itself, it has already: only rooms without a seat of its own are asked, the others are kept.
    let from = window.start.max(at);
    let own = |node: NodeId| window.seats.iter().any(|seat| seat.node == node);
    let sound =
        |seat: &&Seat| choose(state, booking, window, std::slice::from_ref(*seat), chosen, at).is_some();
    let sound: Vec<Seat> = window.seats.iter().filter(sound).cloned().collect();
    rooms.retain(|room| !own(room.node));
    let seats = match (size, take) {
        (Size::Gpus { spread: false, .. }, _) => {
            state
                .bookings
                .shelf()
                .seats(&rooms, &spec.class, take, from, window.end, &[])?
        }
        _ => {
            let mut seats = sound.clone();
            for broken in window.seats.iter().filter(|seat| !sound.contains(seat)) {
                let take = match size {
                    Size::Nodes { .. } => Take::Nodes(1),
                    _ => Take::Spread(broken.gpus),
                };
                let instead =
                    state
                        .bookings
                        .shelf()
                        .seats(&rooms, &broken.class, take, from, window.end, &[])?;
                rooms.retain(|room| instead.iter().all(|seat| seat.node != room.node));
                seats.extend(instead);
            }
            seats
        }
    };
    let gpus = choose(state, booking, window, &seats, chosen, at)?;
    Some((seats, gpus))
}
