//! Relief for a crowded GPU: a restartable job whose slice waits for others' turns longer than it works is started anew
//! on idle GPUs, where there are some.
//!
//! Crowded is measured, not reckoned: nodes say how long a slice worked and how long it waited, and only who was
//! crowded for minutes on end counts, beside a neighbour that was so too. A share is kept in any case; what is
//! gained is what the idle GPUs would have done, and it has to outweigh the move. The room is promised to the mover
//! itself. Absent: making slices smaller, for a share that was sold is not taken back. Called when use is metered.

use super::allocation::Allocation;
use super::calendar::{Promise, Promised, Stay, ends_by, mask};
use super::evict::{self, bounds};
use super::fleet::{Gpu, Node};
use super::gather::{CLEARLY, cost_milli_ms};
use super::pass::Ask;
use super::place::{Place, places_on};
use super::volume::VolumeNeeds;
use crate::event::{Charge, Event};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::{Job, Phase, StopReason};
use crate::workload::usage::Usage;

/// So long on end a slice has to have been crowded.
const CROWDED_MS: u64 = 5 * 60_000;
/// Nodes looked at for idle GPUs.
const NODES: usize = 4096;

/// Whether a slice wanted its device longer than it had it, in one metered interval.
pub(crate) fn is_crowded(used: &Usage) -> bool {
    used.waited_ms > used.busy_ms
}

/// Has one job of those just metered move to idle GPUs, if that is due.
pub(crate) fn relieve(state: &State, charges: &[Charge], at: Time) -> Vec<Event> {
    let crowded = |allocation: &Allocation| {
        let charge = charges.iter().find(|charge| charge.allocation == allocation.id);
        let now = charge.and_then(|charge| Some((charge.to_ms - charge.from_ms, charge.used.as_ref()?)));
        match now {
            Some((ms, used)) if is_crowded(used) => allocation.crowded_ms + ms >= CROWDED_MS,
            _ => false,
        }
    };
    let here = charges
        .iter()
        .filter_map(|charge| state.fleet.allocation(charge.allocation));
    let mut movers = here.filter(|allocation| crowded(allocation) && beside(state, allocation).any(&crowded));
    movers
        .find_map(|allocation| moved(state, allocation, at))
        .unwrap_or_default()
}

/// Whoever else has a slice of its GPUs.
fn beside<'a>(state: &'a State, allocation: &'a Allocation) -> impl Iterator<Item = &'a Allocation> {
    let node = state.fleet.node(allocation.node);
    let on = |gpu: &&Gpu| allocation.slices.iter().any(|slice| slice.gpu == gpu.id);
    let gpus = node.into_iter().flat_map(|node| &node.gpus).filter(on);
    let holders = gpus.flat_map(|gpu| &gpu.holders);
    let others = holders.filter(|holder| **holder != allocation.id);
    others.filter_map(|holder| state.fleet.allocation(*holder))
}

fn moved(state: &State, allocation: &Allocation, at: Time) -> Option<Vec<Event>> {
    let job = state.jobs.get(&allocation.job)?;
    let may = job.spec.restartable
        && !job.is_gang()
        && job.phase == Phase::Running
        && job.volumes.is_empty()
        && !evict::too_many(state)
        && evict::running(job, false, false).may_move(&bounds(state, ScopeId::User(job.owner), None), at);
    if !may || !is_worth_it(state, job, allocation, at) {
        return None;
    }
    let place = idle(state, job, at)?;
    let (ask, until) = (Ask::of(job), evict::left_by([job], at));
    let promise = Promise {
        victims: vec![job.id],
        admission: job.admission.clone(),
        ..Promise::of(&ask, VolumeNeeds::default(), vec![place], at, until)
    };
    Some(vec![
        Event::JobPromised { promise },
        Event::JobStopping {
            job: job.id,
            reason: StopReason::Evicted,
        },
    ])
}

/// It gets at most half of what it could have. Limits say how long it goes on at most; half of that is reckoned with.
fn is_worth_it(state: &State, job: &Job, allocation: &Allocation, at: Time) -> bool {
    let goes_on_ms = ends_by(state, allocation, at).since_ms(at) / 2;
    let gained = (goes_on_ms / 2).saturating_mul(job.spec.demand.gpu_milli());
    cost_milli_ms(job).saturating_mul(CLEARLY) <= gained
}

/// The first node with idle GPUs of the job's class that hold it.
fn idle(state: &State, job: &Job, at: Time) -> Option<Place> {
    let class = job.admission.as_ref()?.hold.class.as_deref()?;
    let needs = VolumeNeeds::of(state, &job.volumes).ok()?;
    let free = |gpu: &Gpu| gpu.present && gpu.holders.is_empty() && *gpu.facts.class == *class;
    let enough =
        |node: &&Node| node.gpus.iter().filter(|gpu| free(gpu)).count() >= job.spec.demand.gpus as usize;
    state.fleet.nodes().take(NODES).filter(enough).find_map(|node| {
        let mut open = node.clone();
        open.gpus.retain(free);
        mask(state, &mut open, Stay::of(Ask::of(job), at).for_ever(), at);
        let places = places_on(state, &open, ScopeId::User(job.owner), &job.spec, needs);
        places.into_iter().next()
    })
}

/// The places on the GPUs that a job which moves was promised; none for any other, or if they are gone.
pub(super) fn moves_to(
    state: &State,
    ask: &Ask<'_>,
    volumes: VolumeNeeds,
    promised: &Promised,
) -> Vec<Place> {
    let promise = state.calendar.of(ask.job).filter(|promise| promise.moves());
    let node = promise.and_then(|promise| state.fleet.node(promise.node));
    let Some((promise, node)) = promise.zip(node) else {
        return Vec::new();
    };
    let mut open = promised.get(&node.id).unwrap_or(node).clone();
    open.gpus
        .retain(|gpu| promise.slices.iter().any(|slice| slice.gpu == gpu.id));
    places_on(state, &open, ask.owner, ask.spec, volumes)
}
