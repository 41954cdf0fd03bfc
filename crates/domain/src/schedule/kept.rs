//! Room that is kept for booked windows: what of a node a stay may use that would last into one.
//!
//! A window that is being cleared or open keeps its very GPUs; one that is to come keeps as many as it will need, first
//! those whose jobs will have ended by then. Jobs whose limit ends before its start run there until then. Whole-node
//! windows keep the node. Whoever is in a window itself is not kept out of it. Absent: how a window comes about
//! (`booking/`) and how its owner's jobs get in (`attach.rs`). Asked by `calendar.rs` wherever it is asked for room.

use std::collections::{BTreeMap, BTreeSet};

use super::calendar::{Stay, ends_by};
use super::fleet::{Gpu, Node};
use crate::booking::record::{Booking, Size, Window, WindowPhase};
use crate::booking::timeline::Timeline;
use crate::id::{GpuId, NodeId};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::time::{HOUR_MS, Time};

/// Windows that begin later than this keep nobody out yet: who is there then leaves when they are cleared.
const AHEAD_MS: u64 = 24 * HOUR_MS;

fn is_in(state: &State, stay: Stay<'_>, booking: &Booking, window: &Window) -> bool {
    if !state.tree.is_within(stay.ask.owner, booking.scope) {
        return false;
    }
    if stay.ask.spec.booking == Some(booking.id) {
        return true;
    }
    let job = state.jobs.get(&stay.ask.job).filter(|_| window.is_open());
    let mut allocations = job.into_iter().flat_map(|job| job.allocations());
    allocations.any(|id| {
        let allocation = state.fleet.allocation(id);
        allocation.is_some_and(|allocation| {
            let mut slices = allocation.slices.iter();
            slices.any(|slice| window.gpus.contains(&(allocation.node, slice.gpu)))
        })
    })
}

/// Nodes of which something may be kept from this stay; `mask` says what.
pub(super) fn nodes(state: &State, stay: Stay<'_>, at: Time) -> BTreeSet<NodeId> {
    let until = stay.until.min(at.plus_ms(AHEAD_MS));
    state.bookings.nodes_before(until).collect()
}

/// Takes from a node, as it is or as it might be, what is kept from this stay.
pub(super) fn mask(state: &State, node: &mut Node, stay: Stay<'_>, at: Time) {
    if state.bookings.is_empty() {
        return;
    }
    let mut own: BTreeSet<GpuId> = BTreeSet::new();
    let mut coming: BTreeMap<&str, (Timeline, Time)> = BTreeMap::new();
    let until = stay.until.min(at.plus_ms(AHEAD_MS));
    let there = state.bookings.on(node.id, until);
    for (booking, window) in there.filter(|(booking, window)| !is_in(state, stay, booking, window)) {
        let here = window.seats.iter().filter(|seat| seat.node == node.id);
        for seat in here {
            if matches!(booking.size_in(window), Size::Nodes { .. }) {
                node.gpus.clear();
                (node.used_cpu_milli, node.used_memory_mib) = (node.cpu_milli, node.memory_mib);
                return;
            }
            if window.phase == WindowPhase::Booked {
                let (line, first) = coming
                    .entry(&seat.class)
                    .or_insert_with(|| (Timeline::default(), window.start));
                line.add(window.start, window.end, seat.gpus.into());
                *first = window.start.min(*first);
            } else {
                own.extend(
                    window
                        .gpus
                        .iter()
                        .filter(|(of, _)| *of == node.id)
                        .map(|(_, gpu)| *gpu),
                );
            }
        }
    }
    node.gpus.retain(|gpu| !own.contains(&gpu.id));
    for (class, (line, first)) in coming {
        let kept = line.peak(Time(i64::MIN), Time(i64::MAX));
        let mut ranked: Vec<(u8, GpuId)> = node
            .gpus
            .iter()
            .filter(|gpu| *gpu.facts.class == *class)
            .map(|gpu| (rank(state, gpu, first, at), gpu.id))
            .collect();
        ranked.sort_unstable();
        let kept: BTreeSet<GpuId> = ranked
            .into_iter()
            .take(kept as usize)
            .map(|(_, gpu)| gpu)
            .collect();
        node.gpus.retain(|gpu| !kept.contains(&gpu.id));
    }
}

/// Which GPUs a coming window is best kept: those that are busy now and free then, idle ones, and only then the others.
fn rank(state: &State, gpu: &Gpu, first: Time, at: Time) -> u8 {
    let holders = gpu.holders.iter().filter_map(|id| state.fleet.allocation(*id));
    let last = holders.map(|allocation| ends_by(state, allocation, at)).max();
    match last {
        Some(last) if last <= first => 0,
        None => 1,
        Some(_) => 2,
    }
}

/// Refuses a paused job the GPU it had, where that is a window's now.
pub(super) fn has_again(state: &State, node: NodeId, gpu: GpuId, stay: Stay<'_>) -> Result<(), Refusal> {
    // INVARIANT: windows that are not live have no GPUs yet.
    let mut live = state.bookings.live();
    let kept = live
        .any(|(booking, window)| window.gpus.contains(&(node, gpu)) && !is_in(state, stay, booking, window));
    if !kept {
        return Ok(());
    }
    Err(Refusal::new(Code::Promised, "the GPU it had is booked now")
        .hint("it resumes when the window is over"))
}
