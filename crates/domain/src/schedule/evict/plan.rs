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

/// What a plan costs: the highest priority it touches, what is lost, how many leave, where.
type PlanCost = (Option<Priority>, u64, usize, Option<NodeId>);

impl Plan<'_> {
    pub fn loss(&self) -> u64 {
        self.victims.iter().map(|victim| victim.loss).sum()
    }

    /// When its victims have left.
    pub fn gone_by(&self, at: Time) -> Time {
        gone_by(&self.victims, at)
    }

    /// Least first: nobody of a priority that need not be touched, then least lost, then fewest.
    pub fn cost(&self) -> PlanCost {
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

/// The cheapest of these plans. Nodes where even the least that any plan there could cost is more than a plan already
/// found are not tried: to try one costs as much as to place several jobs.
pub(super) fn cheapest<'a>(
    state: &'a State,
    ask: &Ask<'_>,
    needs: VolumeNeeds,
    candidates: &'a Candidates<'a>,
    at: Time,
) -> Option<Plan<'a>> {
    let nodes = promising(state, ask, candidates).into_iter();
    let mut nodes: Vec<(PlanCost, NodeId)> = nodes
        .map(|node| (at_least(state, ask, node, candidates), node))
        .collect();
    nodes.sort_unstable();
    let mut best: Option<Plan<'a>> = None;
    for (least, node) in nodes {
        if best.as_ref().is_some_and(|best| best.cost() <= least) {
            break;
        }
        let found = plan(state, ask, needs, node, candidates, at);
        best = best.into_iter().chain(found).min_by_key(Plan::cost);
    }
    best
}

/// What no plan on this node can cost less than: by shares of GPUs alone, the cheapest of them taken, parts of jobs too.
fn at_least(state: &State, ask: &Ask<'_>, node: NodeId, candidates: &Candidates<'_>) -> PlanCost {
    let lacking = lacking_milli(state, ask, node);
    // (priority, loss, what leaves the GPUs with it)
    let mut rows: Vec<(Priority, u64, u64)> = candidates
        .on(node)
        .map(|candidate| {
            let milli = candidate.milli_on(node);
            (candidate.job.spec.priority, candidate.loss, milli)
        })
        .collect();
    let mut left = lacking;
    // By priority: how high one has to go.
    rows.sort_unstable();
    let enough = rows.iter().find(|(_, _, milli)| {
        left = left.saturating_sub(*milli);
        left == 0
    });
    let priority = enough.map(|(priority, ..)| *priority);
    let smallest = rows.iter().map(|(_, loss, _)| *loss).min().unwrap_or(0);
    // By loss for what it frees: how much is lost, the last one in part.
    rows.retain(|(_, _, milli)| *milli > 0);
    rows.sort_unstable_by(|a, b| {
        let cross = |loss: u64, milli: u64| u128::from(loss) * u128::from(milli);
        cross(a.1, b.2).cmp(&cross(b.1, a.2))
    });
    let (mut left, mut loss) = (lacking, 0_u64);
    for (_, of_one, milli) in &rows {
        let taken = left.min(*milli);
        let part = u128::from(*of_one) * u128::from(taken) / u128::from(*milli);
        loss = loss.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
        left -= taken;
    }
    // By size: how few.
    rows.sort_unstable_by_key(|(_, _, milli)| std::cmp::Reverse(*milli));
    let (mut left, mut fewest) = (lacking, 0);
    for (_, _, milli) in &rows {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(*milli);
        fewest += 1;
    }
    (priority, loss.max(smallest), fewest.max(1), Some(node))
}

/// What the node lacks for the job, in shares of the GPUs it takes.
fn lacking_milli(state: &State, ask: &Ask<'_>, node: NodeId) -> u64 {
    let demand = &ask.spec.demand;
    let gpus = state.fleet.node(node).into_iter().flat_map(|node| &node.gpus);
    let gpus = gpus.filter(|gpu| demand.takes(&gpu.facts.class, &gpu.facts.model));
    let free: u64 = gpus.map(|gpu| 1000 - u64::from(gpu.used_permille)).sum();
    demand.gpu_milli().saturating_sub(free)
}

/// The nodes where the least seems to be lost, by shares of GPUs alone.
fn promising(state: &State, ask: &Ask<'_>, candidates: &Candidates<'_>) -> Vec<NodeId> {
    let mut nodes: Vec<(Option<Priority>, u64, NodeId)> = Vec::new();
    for id in candidates.nodes() {
        let node = state.fleet.node(id);
        if node.is_none_or(|node| node.status != NodeStatus::Up) {
            continue;
        }
        let mut lacking = lacking_milli(state, ask, id);
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
    let take = |order: &[&'a Candidate<'a>]| {
        let first = fits(order.get(..1)?).map(|found| (1, found));
        let enough = first.or_else(|| {
            // Where it fits with nobody there, it may with fewer gone.
            fits(order)?;
            (2..=order.len()).find_map(|n| Some((n, fits(&order[..n])?)))
        });
        let (enough, mut found) = enough?;
        let mut victims = order[..enough].to_vec();
        spare_needless(&mut victims, |left| fits(left).map(|fits| found = fits).is_some());
        let (places, admission) = found;
        Some(Plan {
            victims,
            places,
            admission,
        })
    };
    let by_cost: Vec<&Candidate<'_>> = candidates.on(node).collect();
    let plan = take(&by_cost)?;
    if plan.cost() == at_least(state, ask, node, candidates) {
        return Some(plan);
    }
    let mut by_gpu = by_cost.clone();
    by_gpu.sort_by_cached_key(|candidate| {
        let slices = candidate.on(node).flat_map(|allocation| &allocation.slices);
        slices
            .map(|slice| (clearing(&by_cost, slice.gpu), slice.gpu))
            .min()
    });
    [Some(plan), take(&by_gpu)]
        .into_iter()
        .flatten()
        .min_by_key(Plan::cost)
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
fn spare_needless(victims: &mut Vec<&Candidate<'_>>, mut enough: impl FnMut(&[&Candidate<'_>]) -> bool) {
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
