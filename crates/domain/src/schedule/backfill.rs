//! Backfill: a job that nothing gives way to is promised the room that run-time limits will have made at the latest.
//!
//! Those behind it in the queue start meanwhile wherever they end before that, or take nothing of what it needs; so
//! small jobs fill the gap and the large one does not wait for ever. The promise is a bound, not a forecast: the job
//! starts earlier wherever it fits. Few hold one at a time, the first in the queue, and each is reckoned once.
//! A gang is promised room for all its members from one moment on (`several.rs`). Deliberately absent: quota, which frees
//! up by other rules than rooms do. Called by `pass.rs`.

mod several;

use super::allocation::Allocation;
use super::calendar::{Promise, Stay, ends_by, mask, named};
use super::fleet::{Gpu, Node, NodeStatus};
use super::order::precede::precedes;
use super::pass::Ask;
use super::place::{Place, places_on};
use super::volume::VolumeNeeds;
use crate::event::Event;
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::time::Time;
use crate::workload::job::Job;
use crate::workload::spec::Demand;

/// Promises of this kind at once.
const PROMISES: usize = 4;
/// Nodes looked at for the earliest room, and of those, how many are tried in earnest.
const NODES: usize = 512;
const TRIED: usize = 8;

/// Promises a waiting job the earliest room, if it is among the first that wait for some.
pub(super) fn reserve(state: &State, job: &Job, waits: &Refusal, at: Time) -> Vec<Event> {
    let for_room = matches!(waits.code, Code::NoCapacity | Code::VolumeUnavailable);
    if !for_room {
        return Vec::new();
    }
    let held = state.calendar.iter().filter(|promise| !promise.evicts());
    let held = held.filter_map(|promise| Some(Ask::of(state.jobs.get(&promise.job)?)));
    let held: Vec<Ask<'_>> = held.collect();
    let mut events = Vec::new();
    if held.len() >= PROMISES {
        let last = held
            .into_iter()
            .reduce(|last, one| match precedes(state, &last, &one, at) {
                true => one,
                false => last,
            });
        let Some(last) = last.filter(|last| precedes(state, &Ask::of(job), last, at)) else {
            return Vec::new();
        };
        events.push(Event::PromiseWithdrawn {
            job: last.job,
            why: format!(
                "{} goes first and waits for room too",
                named(state, job.id, last.owner)
            ),
        });
    }
    match earliest(state, &Ask::of(job), at) {
        Some((from, places, needs)) => events.push(Event::JobPromised {
            promise: Promise::of(&Ask::of(job), needs, places, from, Promise::lapses(from)),
        }),
        None => return Vec::new(),
    }
    events
}

/// When and where run-time limits will have made room for the job, everybody else staying as long as they may.
pub(super) fn earliest(state: &State, ask: &Ask<'_>, at: Time) -> Option<(Time, Vec<Place>, VolumeNeeds)> {
    let (needs, demand) = (VolumeNeeds::of(state, ask.volumes).ok()?, &ask.spec.demand);
    if demand.nodes > 1 {
        let (from, places) = several::earliest(state, ask, needs, at)?;
        return Some((from, places, needs));
    }
    let nodes = will_do(state, ask, needs);
    let mut nodes: Vec<(Time, &Node)> = nodes
        .into_iter()
        .filter_map(|node| Some((guess(state, node, demand, at)?, node)))
        .collect();
    nodes.sort_by_key(|(time, node)| (*time, node.id));
    let tried = nodes.into_iter().take(TRIED);
    let found = tried.filter_map(|(_, node)| when(state, node, ask, needs, at));
    let (from, place) = found.min_by_key(|(from, place)| (*from, place.node))?;
    Some((from, vec![place], needs))
}

/// Nodes that would do but for their room.
fn will_do<'a>(state: &'a State, ask: &Ask<'_>, needs: VolumeNeeds) -> Vec<&'a Node> {
    let demand = &ask.spec.demand;
    let tenant = state.tree.tenant_of(ask.owner);
    let up = |node: &&Node| {
        node.status == NodeStatus::Up
            && node.admits(tenant, demand.region.as_deref())
            && needs.are_met_by(node)
    };
    // Where not all are looked at each job begins elsewhere, so that not all look at the same.
    let some = state.fleet.some_nodes(demand.class.as_deref(), ask.job.0, NODES);
    some.into_iter().filter(up).collect()
}

/// When enough of the node's GPUs will have been cleared; none if it never has enough.
fn guess(state: &State, node: &Node, demand: &Demand, at: Time) -> Option<Time> {
    if node.cpu_milli < demand.cpu_milli || node.memory_mib < demand.memory_mib {
        return None;
    }
    if demand.gpus == 0 {
        return Some(at);
    }
    let of_class = |gpu: &&Gpu| demand.takes(&gpu.facts.class, &gpu.facts.model);
    let cleared = |gpu: &Gpu| {
        let holders = gpu
            .holders
            .iter()
            .filter_map(|holder| state.fleet.allocation(*holder));
        let ends = holders.map(|allocation| ends_by(state, allocation, at));
        ends.max().unwrap_or(at)
    };
    let gpus = node.gpus.iter().filter(|gpu| gpu.present).filter(of_class);
    let mut times: Vec<Time> = gpus.map(cleared).collect();
    times.sort_unstable();
    times.get(demand.gpus as usize - 1).copied()
}

/// When the job fits on this node, the others leaving one by one as their limits say.
fn when(state: &State, node: &Node, ask: &Ask<'_>, needs: VolumeNeeds, at: Time) -> Option<(Time, Place)> {
    let mut leaving: Vec<(Time, &Allocation)> = state
        .fleet
        .allocations_on(node.id)
        .map(|allocation| (ends_by(state, allocation, at).max(at), allocation))
        .collect();
    leaving.sort_by_key(|(time, allocation)| (*time, allocation.id));
    let mut then = node.clone();
    let fits = |then: &Node| {
        let mut open = then.clone();
        mask(state, &mut open, Stay::of(*ask, at).for_ever(), at);
        places_on(state, &open, ask.owner, ask.spec, needs)
            .into_iter()
            .next()
    };
    if let Some(place) = fits(&then) {
        return Some((at, place));
    }
    leaving.into_iter().find_map(|(time, allocation)| {
        then.without(allocation, false);
        fits(&then).map(|place| (time, place))
    })
}
