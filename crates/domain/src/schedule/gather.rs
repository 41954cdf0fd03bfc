//! Room that is there but scattered: the fewest restartable jobs that, started anew elsewhere, make another one fit.
//!
//! Moved is only who said that it can be (`restartable`: it saves its state when it is told to end), has run its
//! guaranteed time, is of no higher priority, and has a place to go to now, all movers together with the job they
//! move for. And only if the wait that is saved outweighs what the moves cost. A mover keeps its place in the queue and
//! is promised nothing: whoever wants its new room was there before it was free. Absent: jobs that leave because
//! others go first (`evict.rs`). Called by `pass.rs`.

use std::collections::BTreeSet;

use super::allocation::Allocation;
use super::backfill::earliest;
use super::calendar::{Promised, Stay, masked};
use super::evict::{self, Candidate, Plan, RESTART_MS};
use super::pass::Ask;
use super::place::places;
use super::volume::VolumeNeeds;
use crate::event::Event;
use crate::id::NodeId;
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::job::Job;

/// Jobs moved for one other at most.
const MOVES: usize = 4;
/// What is saved has to outweigh the cost so many times: a forecast is a guess, a restart is not.
pub(super) const CLEARLY: u64 = 2;

/// Has the fewest jobs move that make the one that asks fit; nothing where that is not worth it.
pub(super) fn gather(state: &State, ask: &Ask<'_>, waits: &Refusal, at: Time) -> Vec<Event> {
    let scattered = matches!(waits.code, Code::NoCapacity | Code::NotShared) && ask.spec.demand.gpus > 0;
    if !scattered || evict::too_many(state) {
        return Vec::new();
    }
    let Ok(needs) = VolumeNeeds::of(state, ask.volumes) else {
        return Vec::new();
    };
    let candidates = evict::movable(state, ask, at);
    if candidates.is_empty() {
        return Vec::new();
    }
    let saved = saved_milli_ms(state, ask, at);
    let plans = evict::plans(state, ask, needs, &candidates, at);
    let worth = plans.filter(|plan| {
        plan.victims.len() <= MOVES
            && plan.loss().saturating_mul(CLEARLY) <= saved
            && all_go_elsewhere(state, ask, plan, at)
    });
    let fewest = worth.min_by_key(|plan| (plan.victims.len(), plan.cost()));
    fewest.map_or_else(Vec::new, |plan| evict::carry_out(ask, needs, plan, at))
}

/// The wait that ends with the move, for all it asks for. Limits say when room is there at the latest; half of that is
/// what is reckoned with.
fn saved_milli_ms(state: &State, ask: &Ask<'_>, at: Time) -> u64 {
    let limit_ms = ask.spec.run_time_s.saturating_mul(SECOND_MS);
    let waits_ms = earliest(state, ask, at).map_or(limit_ms, |(from, ..)| from.since_ms(at));
    (waits_ms / 2).saturating_mul(ask.spec.demand.gpu_milli())
}

/// What a move costs the job: its grace, in which it saves its state, and the start, for all its GPUs.
pub(super) fn cost_milli_ms(job: &Job) -> u64 {
    let ms = RESTART_MS + u64::from(job.spec.grace_s) * SECOND_MS;
    ms.saturating_mul(job.spec.demand.gpu_milli().max(1))
}

/// Whether the movers find room, one after the other, the job they move for being where it is to be.
fn all_go_elsewhere(state: &State, ask: &Ask<'_>, plan: &Plan<'_>, at: Time) -> bool {
    let nodes: BTreeSet<NodeId> = plan.places.iter().map(|place| place.node).collect();
    let mut taken = Promised::new();
    for id in nodes {
        let Some(mut here) = state.fleet.node(id).cloned() else {
            return false;
        };
        plan.victims.iter().for_each(|victim| victim.leave(&mut here));
        for place in plan.places.iter().filter(|place| place.node == id) {
            // Whose neighbour one becomes matters to walls, so no mover goes onto its GPUs.
            here.gpus
                .retain(|gpu| !place.slices.iter().any(|slice| slice.gpu == gpu.id));
            here.used_cpu_milli += ask.spec.demand.cpu_milli;
            here.used_memory_mib += ask.spec.demand.memory_mib;
        }
        taken.insert(id, here);
    }
    let gone_by = plan.gone_by(at);
    plan.victims
        .iter()
        .all(|victim| goes(state, victim, &mut taken, gone_by).is_some())
}

/// Finds a mover its place and takes that.
fn goes(state: &State, victim: &Candidate<'_>, taken: &mut Promised, at: Time) -> Option<()> {
    let job = victim.job;
    let needs = VolumeNeeds::of(state, &job.volumes).ok()?;
    let mut open = masked(state, Stay::of(Ask::of(job), at), at);
    for (id, node) in taken.iter() {
        open.insert(*id, node.clone());
    }
    let owner = ScopeId::User(job.owner);
    let mut found = places(state, owner, &job.spec, needs, &open).ok()?;
    let class = job.admission.as_ref()?.hold.class.as_deref();
    let place = found.find(|place| place.class.as_deref() == class)?;
    let mut node = open
        .remove(&place.node)
        .or_else(|| state.fleet.node(place.node).cloned())?;
    node.with(&Allocation {
        node: place.node,
        slices: place.slices,
        ..Allocation::clone(victim.allocations.first()?)
    });
    taken.insert(place.node, node);
    Some(())
}
