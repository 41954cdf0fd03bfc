//! The cheapest set of jobs on one node whose leaving makes a job fit there: one job, or all members of a gang.
//!
//! Sets are taken by cost, and by what it costs to clear a GPU; then whoever is not needed is let be. Called by `evict.rs`
//! and, for jobs that only move, by `gather.rs`. Absent: room over several nodes (`spread.rs`).

use super::NODES;
use super::candidate::{Candidate, Candidates};
use crate::id::{GpuId, JobId, NodeId};
use crate::schedule::admit::admit_without;
use crate::schedule::calendar::{Stay, mask};
use crate::schedule::fleet::{Node, NodeStatus};
use crate::schedule::pass::Ask;
use crate::schedule::place::{Members, Place, gang_classes, places_on};
use crate::schedule::volume::VolumeNeeds;
use crate::state::State;
use crate::time::Time;
use crate::workload::job::{Admission, Job};
use crate::workload::spec::{JobSpec, Priority};

/// Who leaves, and what the job gets for it: a place for each member.
pub(in crate::schedule) struct Plan<'a> {
    pub victims: Vec<&'a Candidate<'a>>,
    pub places: Vec<Place>,
    pub admission: Admission,
}

impl Plan<'_> {
    pub fn loss(&self) -> u64 {
        self.victims.iter().map(|victim| victim.loss).sum()
    }

    /// When its victims have left.
    pub fn gone_by(&self, at: Time) -> Time {
        gone_by(&self.victims, at)
    }

    /// Least first: nobody of a priority that need not be touched, then least lost, then fewest.
    pub fn cost(&self) -> (Option<Priority>, u64, usize, Option<NodeId>) {
        let priority = self.victims.iter().map(|victim| victim.job.spec.priority).max();
        let node = self.places.first().map(|place| place.node);
        (priority, self.loss(), self.victims.len(), node)
    }
}

/// When these have left, or the promise lapses.
pub(super) fn gone_by(victims: &[&Candidate<'_>], at: Time) -> Time {
    super::left_by(victims.iter().map(|victim| victim.job), at)
}

/// The best plan for each node that seems worth a try.
pub(super) fn plans<'a>(
    state: &'a State,
    ask: &'a Ask<'_>,
    needs: VolumeNeeds,
    candidates: &'a Candidates<'a>,
    at: Time,
) -> impl Iterator<Item = Plan<'a>> {
    let nodes = promising(state, ask, candidates).into_iter();
    nodes.filter_map(move |node| plan(state, ask, needs, node, candidates, at))
}

/// The nodes where the least seems to be lost, by shares of GPUs alone.
fn promising(state: &State, ask: &Ask<'_>, candidates: &Candidates<'_>) -> Vec<NodeId> {
    let demand = &ask.spec.demand;
    let mut nodes: Vec<(Option<Priority>, u64, NodeId)> = Vec::new();
    for id in candidates.nodes() {
        let Some(node) = state.fleet.node(id).filter(|node| node.status == NodeStatus::Up) else {
            continue;
        };
        let gpus = node.gpus.iter();
        let gpus = gpus.filter(|gpu| demand.takes(&gpu.facts.class, &gpu.facts.model));
        let free: u64 = gpus.map(|gpu| 1000 - u64::from(gpu.used_permille)).sum();
        let mut lacking = demand.gpu_milli().saturating_sub(free);
        let (mut loss, mut priority) = (0_u64, None);
        for candidate in candidates.on(id) {
            loss = loss.saturating_add(candidate.loss);
            priority = priority.max(Some(candidate.job.spec.priority));
            lacking = lacking.saturating_sub(candidate.milli_on(id));
            if lacking == 0 {
                nodes.push((priority, loss, id));
                break;
            }
        }
    }
    nodes.sort_unstable();
    nodes.truncate(NODES);
    nodes.into_iter().map(|(_, _, id)| id).collect()
}

/// The cheapest set found on this node: taken by cost, and by what it costs to clear a GPU.
fn plan<'a>(
    state: &State,
    ask: &Ask<'_>,
    needs: VolumeNeeds,
    node: NodeId,
    candidates: &'a Candidates<'a>,
    at: Time,
) -> Option<Plan<'a>> {
    let fits = |gone: &[&Candidate<'_>]| fits(state, ask, needs, node, gone, at);
    let by_cost: Vec<&Candidate<'_>> = candidates.on(node).collect();
    fits(&by_cost)?;
    let mut by_gpu = by_cost.clone();
    by_gpu.sort_by_key(|candidate| {
        let slices = candidate.on(node).flat_map(|allocation| &allocation.slices);
        slices
            .map(|slice| (clearing(&by_cost, slice.gpu), slice.gpu))
            .min()
    });
    let plans = [by_cost, by_gpu].into_iter().filter_map(|order| {
        let enough = (1..=order.len()).find(|&n| fits(&order[..n]).is_some())?;
        let mut victims = order[..enough].to_vec();
        spare_needless(&mut victims, |left| fits(left).is_some());
        let (places, admission) = fits(&victims)?;
        Some(Plan {
            victims,
            places,
            admission,
        })
    });
    plans.min_by_key(Plan::cost)
}

/// What is lost if every candidate leaves this GPU.
fn clearing(candidates: &[&Candidate<'_>], gpu: GpuId) -> u64 {
    let on = |candidate: &&&Candidate<'_>| {
        let mut slices = candidate.allocations.iter().flat_map(|one| &one.slices);
        slices.any(|slice| slice.gpu == gpu)
    };
    candidates.iter().filter(on).map(|candidate| candidate.loss).sum()
}

/// Lets go of whoever is not needed, dearest first.
fn spare_needless(victims: &mut Vec<&Candidate<'_>>, enough: impl Fn(&[&Candidate<'_>]) -> bool) {
    let mut dearest: Vec<(Priority, u64, JobId)> = victims
        .iter()
        .map(|victim| (victim.job.spec.priority, victim.loss, victim.job.id))
        .collect();
    dearest.sort_unstable();
    for (_, _, id) in dearest.into_iter().rev() {
        let left: Vec<&Candidate<'_>> = victims.iter().copied().filter(|v| v.job.id != id).collect();
        if !left.is_empty() && enough(&left) {
            *victims = left;
        }
    }
}

/// Where the job would be on this node with these gone, and what it would be admitted with.
fn fits(
    state: &State,
    ask: &Ask<'_>,
    needs: VolumeNeeds,
    node: NodeId,
    gone: &[&Candidate<'_>],
    at: Time,
) -> Option<(Vec<Place>, Admission)> {
    let mut node = state.fleet.node(node)?.clone();
    for candidate in gone {
        candidate.leave(&mut node);
    }
    // It stays from when they have left: what is promised to others for later must not meet that either.
    mask(state, &mut node, Stay::of(*ask, gone_by(gone, at)), at);
    let jobs: Vec<&Job> = gone.iter().map(|candidate| candidate.job).collect();
    all_on(state, &node, ask, needs).into_iter().find_map(|places| {
        let admission = admit_without(state, ask, &places, &jobs, at).ok()?;
        Some((places, admission))
    })
}

/// Places for all members on this node, one choice for each GPU class.
fn all_on(state: &State, node: &Node, ask: &Ask<'_>, needs: VolumeNeeds) -> Vec<Vec<Place>> {
    if ask.spec.demand.nodes == 1 {
        let places = places_on(state, node, ask.owner, ask.spec, needs);
        return places.into_iter().map(|place| vec![place]).collect();
    }
    let whole = |spec: JobSpec| {
        let places = Members::of(state, ask.owner, &spec, needs).on(node);
        (places.len() == spec.demand.nodes as usize).then_some(places)
    };
    let classes = gang_classes(state, ask.spec).into_iter();
    classes.filter_map(whole).collect()
}
