//! Which GPUs are a window's: those of its seats from which the least has to leave, or others where these broke.
//!
//! Chosen when a window is cleared, and anew when it loses one. Absent: having anybody leave. Called by `advance.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{rooms, vram_of};
use super::record::{Booking, Size, Window};
use super::shelf::{Seat, Shelf, Take};
use super::zone::Wall;
use crate::id::{BookingId, GpuId, NodeId};
use crate::schedule::allocation::Allocation;
use crate::schedule::calendar::ends_by;
use crate::schedule::fleet::{Gpu, Node, NodeStatus};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::Job;

/// Whether the job may use what its scope booked.
pub(super) fn is_own(state: &State, booking: &Booking, job: &Job) -> bool {
    state.tree.is_within(ScopeId::User(job.owner), booking.scope)
}

/// Whether the node takes work, and that of the booking's owner.
fn admits(state: &State, booking: &Booking, node: &Node) -> bool {
    let tenant = state.tree.tenant_of(booking.scope);
    node.status == NodeStatus::Up && node.admits(tenant, booking.spec.region.as_deref())
}

pub(super) fn works(state: &State, booking: &Booking, (node, gpu): (NodeId, GpuId)) -> bool {
    let node = state.fleet.node(node).filter(|node| admits(state, booking, node));
    let gpu = node.and_then(|node| node.gpu(gpu));
    gpu.is_some_and(|gpu| gpu.present && gpu.quarantine.is_none())
}

/// Living allocations on a device, with their jobs.
pub(super) fn holders<'a>(state: &'a State, gpu: &'a Gpu) -> impl Iterator<Item = (&'a Job, &'a Allocation)> {
    let holders = gpu.holders.iter().filter_map(|id| state.fleet.allocation(*id));
    holders.filter_map(|allocation| Some((state.jobs.get(&allocation.job)?, allocation)))
}

/// GPUs that windows have now, and until when: gathered once for all that is decided at a moment.
pub(super) struct Had {
    gpus: BTreeMap<GpuId, Vec<(BookingId, Wall, Time)>>,
}

impl Had {
    pub fn now(state: &State) -> Had {
        let mut gpus: BTreeMap<GpuId, Vec<(BookingId, Wall, Time)>> = BTreeMap::new();
        for (booking, window) in state.bookings.live() {
            for (_, gpu) in &window.gpus {
                let had = gpus.entry(*gpu).or_default();
                had.push((booking.id, window.of, window.end));
            }
        }
        Had { gpus }
    }

    /// Until when another window than this one has a GPU, if one does.
    pub fn by_others(&self, gpu: GpuId, booking: &Booking, window: &Window) -> Option<Time> {
        let all = self.gpus.get(&gpu).into_iter().flatten();
        let others = all.filter(|(id, of, _)| (*id, *of) != (booking.id, window.of));
        others.map(|(.., end)| *end).max()
    }
}

/// The GPUs of these seats from which the least has to leave; none if there are not enough.
fn choose(
    state: &State,
    booking: &Booking,
    window: &Window,
    seats: &[Seat],
    chosen: &BTreeSet<GpuId>,
    had: &Had,
    at: Time,
) -> Option<Vec<(NodeId, GpuId)>> {
    let others = |gpu: &Gpu| had.by_others(gpu.id, booking, window);
    let mut gpus = Vec::new();
    for seat in seats {
        let node = state
            .fleet
            .node(seat.node)
            .filter(|node| admits(state, booking, node))?;
        let free = node.gpus.iter().filter(|gpu| *gpu.facts.class == *seat.class);
        let free = free.filter(|gpu| gpu.present && gpu.quarantine.is_none());
        let free = free.filter(|gpu| !chosen.contains(&gpu.id));
        // What another window has until this one begins is had, but only where there is nothing else.
        let free = free.filter(|gpu| others(gpu).is_none_or(|end| end <= window.start));
        // What it has it keeps: its owner's jobs are there.
        let has = |gpu: &Gpu| window.gpus.contains(&(seat.node, gpu.id));
        let mut ranked: Vec<(bool, bool, u64, GpuId)> = free
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
                    !has(gpu),
                    others(gpu).is_some(),
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
                .map(|(.., gpu)| (seat.node, gpu)),
        );
    }
    Some(gpus)
}

/// Seats, and the very GPUs of them.
pub(super) type Chosen = (Vec<Seat>, Vec<(NodeId, GpuId)>);

/// The same on these seats, or on others where these are not to be had any more.
pub(super) fn choose_anywhere(
    state: &State,
    shelf: &Shelf,
    booking: &Booking,
    window: &Window,
    chosen: &BTreeSet<GpuId>,
    had: &Had,
    at: Time,
) -> Option<Chosen> {
    if let Some(gpus) = choose(state, booking, window, &window.seats, chosen, had, at) {
        return Some((window.seats.clone(), gpus));
    }
    let spec = &booking.spec;
    let size = booking.size_in(window);
    let take = size.take(vram_of(state, &spec.class));
    let mut rooms = rooms(state, booking.scope, &spec.class, spec.region.as_deref());
    // What it has itself, it has already: only rooms without a seat of its own are asked, the others are kept.
    let from = window.start.max(at);
    let own = |node: NodeId| window.seats.iter().any(|seat| seat.node == node);
    let sound = |seat: &&Seat| {
        choose(
            state,
            booking,
            window,
            std::slice::from_ref(*seat),
            chosen,
            had,
            at,
        )
        .is_some()
    };
    let sound: Vec<Seat> = window.seats.iter().filter(sound).cloned().collect();
    rooms.retain(|room| !own(room.node));
    let seats = match (size, take) {
        (Size::Gpus { spread: false, .. }, _) => {
            shelf.seats(&rooms, &spec.class, take, from, window.end, &[])?
        }
        _ => {
            let mut seats = sound.clone();
            for broken in window.seats.iter().filter(|seat| !sound.contains(seat)) {
                let take = match size {
                    Size::Nodes { .. } => Take::Nodes(1),
                    _ => Take::Spread(broken.gpus),
                };
                let instead = shelf.seats(&rooms, &broken.class, take, from, window.end, &[])?;
                rooms.retain(|room| instead.iter().all(|seat| seat.node != room.node));
                seats.extend(instead);
            }
            seats
        }
    };
    let gpus = choose(state, booking, window, &seats, chosen, had, at)?;
    Some((seats, gpus))
}
