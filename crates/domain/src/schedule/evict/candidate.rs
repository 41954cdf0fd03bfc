//! Who may be asked to leave: running jobs behind the evictor that have run their guaranteed time, and what their leaving
//! costs. A gang is one candidate on all its nodes: it leaves whole, and what is lost is lost for all its members.
//!
//! Absent: whether anybody fits then (`plan.rs`, `spread.rs`). Called by `evict.rs` and `gather.rs`.

use std::collections::BTreeMap;

use super::{CANDIDATES, LOOKED_AT, across_tenants, bounds, is_aged, longer_gives_way, running};
use crate::decide::can_pause;
use crate::id::{JobId, NodeId, TenantId};
use crate::schedule::allocation::Allocation;
use crate::schedule::fleet::Node;
use crate::schedule::gather::cost_milli_ms;
use crate::schedule::order::key::cost_gpu_s;
use crate::schedule::order::lend::use_of;
use crate::schedule::order::reclaim::{Lent, Reclaim};
use crate::schedule::pass::Ask;
use crate::schedule::victim::Evictor;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::Job;
use crate::workload::spec::Priority;

pub(in crate::schedule) struct Candidate<'a> {
    pub job: &'a Job,
    /// What it has, one for each living member, by node.
    pub allocations: Vec<&'a Allocation>,
    /// It would be paused, and keep its processes where they are.
    pub pauses: bool,
    /// Run time lost, for all its GPUs.
    pub loss: u64,
    /// What it is taken back of, where it may be asked as a borrower alone.
    pub lent: Option<Lent>,
}

impl<'a> Candidate<'a> {
    pub fn on(&self, node: NodeId) -> impl Iterator<Item = &'a Allocation> {
        let from = self
            .allocations
            .partition_point(|allocation| allocation.node < node);
        let here = self.allocations[from..].iter().copied();
        here.take_while(move |allocation| allocation.node == node)
    }

    /// The nodes it is on, each once.
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self
            .allocations
            .iter()
            .map(|allocation| allocation.node)
            .collect();
        nodes.dedup();
        nodes
    }

    /// Compute that its leaving gives back on this node.
    pub fn milli_on(&self, node: NodeId) -> u64 {
        let slices = self.on(node).flat_map(|allocation| &allocation.slices);
        slices.map(|slice| u64::from(slice.compute_permille)).sum()
    }

    /// Takes what it has off this node.
    pub fn leave(&self, node: &mut Node) {
        for allocation in self.on(node.id) {
            node.without(allocation, self.pauses);
        }
    }
}

/// All of them, and on each node who may be asked there, cheapest first.
#[derive(Default)]
pub(in crate::schedule) struct Candidates<'a> {
    all: Vec<Candidate<'a>>,
    nodes: BTreeMap<NodeId, Vec<usize>>,
}

impl<'a> Candidates<'a> {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn any_pauses(&self) -> bool {
        self.all.iter().any(|candidate| candidate.pauses)
    }

    pub fn all(&self) -> &[Candidate<'a>] {
        &self.all
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.keys().copied()
    }

    pub fn on(&self, node: NodeId) -> impl Iterator<Item = &Candidate<'a>> {
        let here = self.nodes.get(&node).into_iter().flatten();
        here.map(|&which| &self.all[which])
    }

    fn add(&mut self, candidate: Candidate<'a>, nodes: impl IntoIterator<Item = NodeId>) {
        for node in nodes {
            self.nodes.entry(node).or_default().push(self.all.len());
        }
        self.all.push(candidate);
    }

    fn sorted(mut self) -> Candidates<'a> {
        for (node, here) in &mut self.nodes {
            here.sort_by_key(|&which| {
                let candidate = &self.all[which];
                let per_milli = candidate.loss / candidate.milli_on(*node).max(1);
                (
                    candidate.job.spec.priority,
                    per_milli,
                    std::cmp::Reverse(candidate.job.id),
                )
            });
        }
        self
    }
}

/// Running jobs that may be asked to give way.
pub(super) fn candidates<'a>(state: &'a State, ask: &Ask<'_>, pausing: bool, at: Time) -> Candidates<'a> {
    let tenant = state.tree.tenant_of(ask.owner);
    let mut reclaim = Reclaim::by(state, ask);
    // One that waits is known by its like; of one that is only being submitted nothing is.
    let waiting = state.jobs.get(&ask.job);
    let sooner = longer_gives_way(state) && waiting.is_some();
    let evictor = Evictor {
        priority: ask.spec.priority,
        gpus: ask.spec.demand.gpus,
        cost_gpu_s: waiting.map_or(0.0, |job| cost_gpu_s(state, job, job.ran_ms)),
        nominal: reclaim.is_due(),
        aged: waiting.is_some_and(|job| is_aged(state, job, at)),
    };
    let mut found = Candidates::default();
    let asked = asked(state, tenant, &evictor, sooner).take(CANDIDATES);
    let across = across_tenants(state);
    for (of, job) in asked.filter_map(|(of, id)| Some((of, state.jobs.get(&id)?))) {
        let Some((allocations, first)) = held(state, job) else {
            continue;
        };
        let pauses = pausing && can_pause(state, job, first);
        let owner = ScopeId::User(job.owner);
        let ours = of == tenant || across;
        // Within a class only who loses nothing gives way to one that is done sooner.
        let longer =
            sooner && ours && job.spec.priority == evictor.priority && (pauses || job.spec.restartable);
        let preempts = longer || ours && job.spec.priority < evictor.priority;
        let mut candidate = Candidate {
            job,
            allocations,
            pauses,
            loss: 0,
            lent: None,
        };
        let mut nodes = candidate.nodes();
        let mut borrows = false;
        if !preempts {
            nodes.retain(|node| match reclaim.lent_to(state, job, *node) {
                Some(lent) => {
                    candidate.lent = Some(lent);
                    true
                }
                None => false,
            });
        } else {
            borrows = reclaim.lent_to(state, job, first.node).is_some();
        }
        borrows |= candidate.lent.is_some();
        let mut running = running(job, pauses, borrows);
        if longer {
            running.cost_gpu_s = cost_gpu_s(state, job, job.ran_ms);
            running.aged = is_aged(state, job, at);
            running.borrows |= !stands_on_nominal(state, job);
        }
        if nodes.is_empty() || !running.may_give_way(&evictor, &bounds(state, owner, Some(ask.owner)), at) {
            continue;
        }
        if let Some(lent) = &candidate.lent {
            nodes.iter().for_each(|node| reclaim.take_back(lent, *node, job));
        }
        let demand = &job.spec.demand;
        let cpu_milli = u64::from(demand.cpu_milli) * u64::from(demand.nodes);
        let weight = demand.gpu_milli() + cpu_milli / 100;
        candidate.loss = running.loss_ms(at).saturating_mul(weight.max(1));
        found.add(candidate, nodes);
    }
    found.sorted()
}

/// Running jobs that may be started anew elsewhere so that this one fits. A gang is not: all its members would move for
/// the room of one.
pub(in crate::schedule) fn movable<'a>(state: &'a State, ask: &Ask<'_>, at: Time) -> Candidates<'a> {
    let levels = Priority::ALL.iter().filter(|level| **level <= ask.spec.priority);
    let jobs = levels.flat_map(|level| {
        let of_level = state.running.iter().filter(move |((_, of), _)| of == level);
        of_level.flat_map(|(_, jobs)| jobs.iter().rev())
    });
    let mut found = Candidates::default();
    let jobs = jobs.take(LOOKED_AT).filter_map(|id| state.jobs.get(id));
    for job in jobs.filter(|job| job.spec.restartable).take(CANDIDATES) {
        let Some(allocation) = job.sole_allocation().and_then(|id| state.fleet.allocation(id)) else {
            continue;
        };
        let bounds = bounds(state, ScopeId::User(job.owner), Some(ask.owner));
        let may = job.volumes.is_empty()
            && !allocation.slices.is_empty()
            && running(job, false, false).may_move(&bounds, at);
        if may {
            let candidate = Candidate {
                job,
                allocations: vec![allocation],
                pauses: false,
                loss: cost_milli_ms(job),
                lent: None,
            };
            found.add(candidate, [allocation.node]);
        }
    }
    found.sorted()
}

/// What the job has, and the first of it.
fn held<'a>(state: &'a State, job: &'a Job) -> Option<(Vec<&'a Allocation>, &'a Allocation)> {
    let held = job.allocations().filter_map(|id| state.fleet.allocation(id));
    let mut held: Vec<&Allocation> = held.collect();
    let first = *held.first()?;
    held.sort_by_key(|allocation| allocation.node);
    Some((held, first))
}

/// Whether all that the job's scopes use of its class is theirs.
fn stands_on_nominal(state: &State, job: &Job) -> bool {
    let class = job
        .admission
        .as_ref()
        .and_then(|admission| admission.hold.class.as_deref());
    let Some(class) = class else { return false };
    let mut uses = state
        .tree
        .chain(ScopeId::User(job.owner))
        .filter_map(|scope| use_of(scope, class))
        .peekable();
    uses.peek().is_some() && uses.all(|of_scope| of_scope.borrowed_milli() == 0)
}

/// Whoever runs and could be behind the evictor, lowest priority first; last come first, but within the evictor's class,
/// where it is the long ones that are looked for, first come first.
fn asked(
    state: &State,
    tenant: Option<TenantId>,
    evictor: &Evictor,
    sooner: bool,
) -> impl Iterator<Item = (Option<TenantId>, JobId)> {
    let (everybody, nominal, priority) = (across_tenants(state), evictor.nominal, evictor.priority);
    Priority::ALL
        .iter()
        .copied()
        .filter(move |behind| *behind < priority || ((nominal || sooner) && *behind == priority))
        .flat_map(move |behind| {
            let tenants = state
                .running
                .iter()
                .filter(move |((of, level), _)| *level == behind && (everybody || nominal || *of == tenant));
            tenants.flat_map(move |((of, _), jobs)| {
                let first_come = (sooner && behind == priority).then(|| jobs.iter());
                let last_come = first_come.is_none().then(|| jobs.iter().rev());
                let jobs = first_come
                    .into_iter()
                    .flatten()
                    .chain(last_come.into_iter().flatten());
                jobs.map(|job| (*of, *job))
            })
        })
}
