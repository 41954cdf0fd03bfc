//! Room for a job that found none: the cheapest set of running jobs on one node whose leaving really makes it fit.
//!
//! Who gives way, and how often, is said by `victim.rs` and the policies above the victim; what it costs is the work
//! lost. That the job fits is never reckoned: it is placed on the node with the victims gone, behind all walls, and
//! admitted with their quota back. A victim whose slices can be set aside is paused and loses nothing; any other is
//! stopped with its grace and returns to the queue. The room is promised, so that nobody else takes it meanwhile.
//! Deliberately absent: gangs, which neither make others leave nor are made to. Called by `pass.rs` and for submissions.

use std::collections::BTreeMap;

use super::admit::admit_without;
use super::allocation::Allocation;
use super::calendar::{Promise, Stay, leaving, mask};
use super::fleet::NodeStatus;
use super::gather::cost_milli_ms;
use super::order::reclaim::Reclaim;
use super::pass::Ask;
use super::place::{Place, places_on};
use super::victim::{Bounds, Evictor, Running};
use super::volume::VolumeNeeds;
use crate::decide::cannot_pause;
use crate::event::Event;
use crate::id::{JobId, NodeId, TenantId};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::job::{Admission, Evictions, Job, PauseReason, StopReason};
use crate::workload::spec::Priority;

/// Jobs asked to give way in one decision, lowest priority and last come first, and nodes tried with them gone.
const CANDIDATES: usize = 512;
const NODES: usize = 16;
/// Jobs looked at for some that may be moved.
const LOOKED_AT: usize = 4096;
/// Evictions under way at once.
const PROMISES: usize = 64;
/// What a restart is reckoned to cost, beside the work lost; and a pause.
pub(super) const RESTART_MS: u64 = 30 * SECOND_MS;
const PAUSE_MS: u64 = SECOND_MS;
/// Beyond its grace, what a node may take to free the room.
const LEAVE_MS: u64 = 120 * SECOND_MS;

/// What protects a running job, by the policies above it: the longest time, the fewest evictions.
pub fn bounds(state: &State, owner: ScopeId) -> Bounds {
    let mut bounds = Bounds::default();
    let policies = || state.tree.chain(owner).map(|scope| &scope.policy);
    if let Some(run_s) = policies().filter_map(|policy| policy.guaranteed_run_s).max() {
        bounds.guaranteed_ms = run_s.saturating_mul(SECOND_MS);
    }
    if let Some(most) = policies().filter_map(|policy| policy.max_evictions_per_job).min() {
        bounds.evictions_per_job = most;
    }
    if let Some(most) = policies()
        .filter_map(|policy| policy.max_evictions_per_hour)
        .min()
    {
        bounds.evictions_per_hour = most.min(Evictions::KEPT as u32);
    }
    bounds
}

pub(super) struct Candidate<'a> {
    pub(super) job: &'a Job,
    pub(super) allocation: &'a Allocation,
    /// It would be paused, and keep its processes where they are.
    pauses: bool,
    /// Run time lost, for all its GPUs.
    loss: u64,
}

/// Who leaves, and what the job gets for it.
pub(super) struct Plan<'a> {
    pub(super) victims: Vec<&'a Candidate<'a>>,
    pub(super) place: Place,
    admission: Admission,
}

impl Plan<'_> {
    /// Least first: nobody of a priority that need not be touched, then least lost, then fewest.
    pub(super) fn loss(&self) -> u64 {
        self.victims.iter().map(|victim| victim.loss).sum()
    }

    /// When its victims have left.
    pub(super) fn gone_by(&self, at: Time) -> Time {
        gone_by(&self.victims, at)
    }

    pub(super) fn cost(&self) -> (Option<Priority>, u64, usize, NodeId) {
        let priority = self.victims.iter().map(|victim| victim.job.spec.priority).max();
        (priority, self.loss(), self.victims.len(), self.place.node)
    }
}

/// Whether what a job waits for is something that others could give it by leaving.
pub(super) fn is_for_room(waits: &Refusal) -> bool {
    matches!(
        waits.code,
        Code::NoCapacity
            | Code::NotShared
            | Code::QuotaInUse
            | Code::BorrowLimit
            | Code::NotLent
            | Code::VolumeUnavailable
    )
}

/// Has the cheapest set of jobs leave and promises their room to the one that asks; nothing where it would still not
/// fit, or nobody is to give way to it.
pub fn make_room(state: &State, ask: &Ask<'_>, waits: &Refusal, at: Time) -> Vec<Event> {
    if !is_for_room(waits) || ask.spec.demand.nodes > 1 || too_many(state) {
        return Vec::new();
    }
    let Ok(needs) = VolumeNeeds::of(state, ask.volumes) else {
        return Vec::new();
    };
    for pausing in [true, false] {
        let candidates = candidates(state, ask, pausing, at);
        let best = plans(state, ask, needs, &candidates, at).min_by_key(Plan::cost);
        if let Some(best) = best {
            return carry_out(ask, needs, best, at);
        }
        // A pause keeps CPU and memory; where those are lacking, only a stop helps.
        if !candidates.values().flatten().any(|candidate| candidate.pauses) {
            break;
        }
    }
    Vec::new()
}

/// Whether as many evictions are under way as may be.
pub(super) fn too_many(state: &State) -> bool {
    state.calendar.iter().filter(|promise| promise.evicts()).count() >= PROMISES
}

/// The best plan for each node that seems worth a try.
pub(super) fn plans<'a>(
    state: &'a State,
    ask: &'a Ask<'_>,
    needs: VolumeNeeds,
    candidates: &'a BTreeMap<NodeId, Vec<Candidate<'a>>>,
    at: Time,
) -> impl Iterator<Item = Plan<'a>> {
    let nodes = promising(state, ask, candidates).into_iter();
    nodes.filter_map(move |node| plan(state, ask, needs, node, &candidates[&node], at))
}

pub(super) fn carry_out(ask: &Ask<'_>, needs: VolumeNeeds, plan: Plan<'_>, at: Time) -> Vec<Event> {
    let promise = Promise {
        job: ask.job,
        node: plan.place.node,
        slices: plan.place.slices,
        cpu_milli: ask.spec.demand.cpu_milli,
        memory_mib: ask.spec.demand.memory_mib,
        volume_mib: needs.fresh_mib(),
        from: at,
        until: gone_by(&plan.victims, at),
        victims: plan.victims.iter().map(|victim| victim.job.id).collect(),
        admission: Some(plan.admission),
    };
    let leave = plan.victims.iter().map(|victim| match victim.pauses {
        true => Event::JobPausing {
            job: victim.job.id,
            reason: PauseReason::Preempted,
        },
        false => Event::JobStopping {
            job: victim.job.id,
            reason: StopReason::Evicted,
        },
    });
    std::iter::once(Event::JobPromised { promise })
        .chain(leave)
        .collect()
}

/// When these have left, or the promise lapses.
fn gone_by(victims: &[&Candidate<'_>], at: Time) -> Time {
    left_by(victims.iter().map(|victim| victim.job), at)
}

/// When these jobs have left, or a promise of their room lapses.
pub(super) fn left_by<'a>(victims: impl IntoIterator<Item = &'a Job>, at: Time) -> Time {
    let grace_s = victims.into_iter().map(|job| job.spec.grace_s).max();
    at.plus_ms(u64::from(grace_s.unwrap_or(0)) * SECOND_MS + LEAVE_MS)
}

/// Withdraws a promise whose victims are gone and whose job does not start all the same.
pub(super) fn in_vain(state: &State, promise: &Promise, waits: &Refusal) -> Vec<Event> {
    if !promise.evicts() || leaving(state, promise).next().is_some() {
        return Vec::new();
    }
    vec![Event::PromiseWithdrawn {
        job: promise.job,
        why: format!("it does not fit after all: {}", waits.sentence),
    }]
}

/// Running jobs that may be asked to give way, by node, cheapest first.
fn candidates<'a>(
    state: &'a State,
    ask: &Ask<'_>,
    pausing: bool,
    at: Time,
) -> BTreeMap<NodeId, Vec<Candidate<'a>>> {
    let tenant = state.tree.tenant_of(ask.owner);
    let mut reclaim = Reclaim::by(state, ask);
    let evictor = Evictor {
        priority: ask.spec.priority,
        gpus: ask.spec.demand.gpus,
        cost_gpu_s: 0.0,
        nominal: reclaim.is_due(),
        aged: false,
    };
    let mut by_node: BTreeMap<NodeId, Vec<Candidate<'a>>> = BTreeMap::new();
    let asked = asked(state, tenant, &evictor).take(CANDIDATES);
    for job in asked.filter_map(|id| state.jobs.get(&id)) {
        let Some(allocation) = job.sole_allocation().and_then(|id| state.fleet.allocation(id)) else {
            continue;
        };
        let pauses = pausing && cannot_pause(state, job, allocation).is_none();
        let owner = ScopeId::User(job.owner);
        let own = state.tree.tenant_of(owner) == tenant || across_tenants(state);
        let preempts = own && job.spec.priority < evictor.priority;
        let lent = reclaim.lent_to(state, job, allocation.node);
        let running = running(job, pauses, lent.is_some(), at);
        if !(preempts || lent.is_some()) || !running.may_give_way(&evictor, &bounds(state, owner), at) {
            continue;
        }
        if let Some(lent) = lent.filter(|_| !preempts) {
            reclaim.take_back(lent, job);
        }
        let weight = job.spec.demand.gpu_milli() + u64::from(job.spec.demand.cpu_milli) / 100;
        by_node.entry(allocation.node).or_default().push(Candidate {
            job,
            allocation,
            pauses,
            loss: running.loss_ms(at).saturating_mul(weight.max(1)),
        });
    }
    sort(&mut by_node);
    by_node
}

/// Running jobs that may be started anew elsewhere so that this one fits, by node, cheapest first.
pub(super) fn movable<'a>(state: &'a State, ask: &Ask<'_>, at: Time) -> BTreeMap<NodeId, Vec<Candidate<'a>>> {
    let levels = Priority::ALL.iter().filter(|level| **level <= ask.spec.priority);
    let jobs = levels.flat_map(|level| {
        let of_level = state.running.iter().filter(move |((_, of), _)| of == level);
        of_level.flat_map(|(_, jobs)| jobs.iter().rev())
    });
    let mut by_node: BTreeMap<NodeId, Vec<Candidate<'a>>> = BTreeMap::new();
    let jobs = jobs.take(LOOKED_AT).filter_map(|id| state.jobs.get(id));
    for job in jobs.filter(|job| job.spec.restartable).take(CANDIDATES) {
        let Some(allocation) = job.sole_allocation().and_then(|id| state.fleet.allocation(id)) else {
            continue;
        };
        let may = job.volumes.is_empty()
            && !allocation.slices.is_empty()
            && running(job, false, false, at).may_move(&bounds(state, ScopeId::User(job.owner)), at);
        if may {
            by_node.entry(allocation.node).or_default().push(Candidate {
                job,
                allocation,
                pauses: false,
                loss: cost_milli_ms(job),
            });
        }
    }
    sort(&mut by_node);
    by_node
}

fn sort(by_node: &mut BTreeMap<NodeId, Vec<Candidate<'_>>>) {
    for here in by_node.values_mut() {
        here.sort_by_key(|candidate| {
            let per_milli = candidate.loss / candidate.job.spec.demand.gpu_milli().max(1);
            (
                candidate.job.spec.priority,
                per_milli,
                std::cmp::Reverse(candidate.job.id),
            )
        });
    }
}

/// Whoever runs and could be behind the evictor, lowest priority first, last come first.
fn asked(state: &State, tenant: Option<TenantId>, evictor: &Evictor) -> impl Iterator<Item = JobId> {
    let (everybody, nominal, priority) = (across_tenants(state), evictor.nominal, evictor.priority);
    Priority::ALL
        .iter()
        .copied()
        .filter(move |behind| *behind < priority || (nominal && *behind == priority))
        .flat_map(move |behind| {
            let tenants = state
                .running
                .iter()
                .filter(move |((of, level), _)| *level == behind && (everybody || nominal || *of == tenant));
            tenants.flat_map(|(_, jobs)| jobs.iter().rev().copied())
        })
}

pub(super) fn across_tenants(state: &State) -> bool {
    let platform = state.tree.get(ScopeId::Platform);
    platform.is_some_and(|platform| platform.policy.preempt_tenants == Some(true))
}

pub(super) fn running(job: &Job, pauses: bool, borrows: bool, at: Time) -> Running {
    Running {
        job: job.id,
        priority: job.spec.priority,
        gpus: job.spec.demand.gpus,
        started: job.since,
        // Who is restartable saves its state when it is told to end.
        safe: if job.spec.restartable { at } else { job.since },
        suspendable: pauses,
        restart_ms: if pauses { PAUSE_MS } else { RESTART_MS },
        cost_gpu_s: 0.0,
        borrows,
        evictions: job.evictions.count,
        last_evictions: job.evictions.last.clone(),
        aged: false,
    }
}

/// The nodes where the least seems to be lost, by shares of GPUs alone.
fn promising(state: &State, ask: &Ask<'_>, candidates: &BTreeMap<NodeId, Vec<Candidate<'_>>>) -> Vec<NodeId> {
    let demand = &ask.spec.demand;
    let mut nodes: Vec<(Option<Priority>, u64, NodeId)> = Vec::new();
    for (id, here) in candidates {
        let Some(node) = state.fleet.node(*id).filter(|node| node.status == NodeStatus::Up) else {
            continue;
        };
        let gpus = node.gpus.iter();
        let gpus = gpus.filter(|gpu| demand.takes(&gpu.facts.class, &gpu.facts.model));
        let free: u64 = gpus.map(|gpu| 1000 - u64::from(gpu.used_permille)).sum();
        let mut lacking = demand.gpu_milli().saturating_sub(free);
        let (mut loss, mut priority) = (0_u64, None);
        for candidate in here {
            loss = loss.saturating_add(candidate.loss);
            priority = priority.max(Some(candidate.job.spec.priority));
            lacking = lacking.saturating_sub(candidate.job.spec.demand.gpu_milli());
            if lacking == 0 {
                nodes.push((priority, loss, *id));
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
    candidates: &'a [Candidate<'a>],
    at: Time,
) -> Option<Plan<'a>> {
    let fits = |gone: &[&Candidate<'_>]| fits(state, ask, needs, node, gone, at);
    let by_cost: Vec<&Candidate<'_>> = candidates.iter().collect();
    fits(&by_cost)?;
    let mut by_gpu = by_cost.clone();
    by_gpu.sort_by_key(|candidate| {
        let slices = candidate.allocation.slices.iter();
        slices
            .map(|slice| (clearing(candidates, slice.gpu), slice.gpu))
            .min()
    });
    let plans = [by_cost, by_gpu].into_iter().filter_map(|order| {
        let enough = (1..=order.len()).find(|&n| fits(&order[..n]).is_some())?;
        let mut victims = order[..enough].to_vec();
        spare_needless(&mut victims, |left| fits(left).is_some());
        let (place, admission) = fits(&victims)?;
        Some(Plan {
            victims,
            place,
            admission,
        })
    });
    plans.min_by_key(Plan::cost)
}

/// What is lost if every candidate leaves this GPU.
fn clearing(candidates: &[Candidate<'_>], gpu: crate::id::GpuId) -> u64 {
    let on = |candidate: &&Candidate<'_>| candidate.allocation.slices.iter().any(|slice| slice.gpu == gpu);
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
) -> Option<(Place, Admission)> {
    let mut node = state.fleet.node(node)?.clone();
    for candidate in gone {
        node.without(candidate.allocation, candidate.pauses);
    }
    // It stays from when they have left: what is promised to others for later must not meet that either.
    mask(state, &mut node, Stay::of(*ask, gone_by(gone, at)), at);
    let jobs: Vec<&Job> = gone.iter().map(|candidate| candidate.job).collect();
    places_on(state, &node, ask.owner, ask.spec, needs)
        .into_iter()
        .find_map(|place| {
            let admission = admit_without(state, ask, &place, &jobs, at).ok()?;
            Some((place, admission))
        })
}
