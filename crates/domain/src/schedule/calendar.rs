//! The calendar: room on nodes that is promised to a job, from when on.
//!
//! Two things make a promise: jobs that leave so that another fits (`evict.rs`; from now on), and the wait of a job
//! that nothing gives way to (`backfill.rs`; from when run-time limits make the room at the latest). Whoever else
//! wants a place there gets it only if its own limit ends before. A promised GPU is kept whole: a neighbour that came
//! meanwhile could stand behind another wall. A gang is promised room for all its members, on as many nodes as that
//! takes, and loses all of it where it loses some. Deliberately absent: who deserves a promise. Asked by `place.rs` for
//! room and by `pass.rs` for quota and money. What booked windows keep is asked
//! of `kept.rs` with it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::allocation::{Allocation, Slice};
use super::fleet::{Node, NodeStatus};
use super::kept;
use super::order::lend;
use super::order::precede::precedes;
use super::pass::Ask;
use super::place::Place;
use super::volume::VolumeNeeds;
use crate::event::Event;
use crate::id::{GpuId, JobId, NodeId};
use crate::meter::Amounts;
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::budget;
use crate::tenancy::scope::{Scope, ScopeId};
use crate::time::{SECOND_MS, Time};
use crate::workload::job::{Admission, Job, Phase};
use crate::workload::spec::JobSpec;

/// A promised start that is this late is looked for anew.
const LATE_MS: u64 = 600 * SECOND_MS;

/// Room kept for a job that waits: of its first member, and of the others of a gang, all of it or none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    pub job: JobId,
    pub node: NodeId,
    pub slices: Vec<Slice>,
    /// The room of a gang's other members, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Room>,
    /// Of each member.
    pub cpu_milli: u32,
    pub memory_mib: u64,
    /// For its volumes that are on no node yet.
    #[serde(default, skip_serializing_if = "super::fleet::is_zero")]
    pub volume_mib: u64,
    /// From when on the room is the job's.
    pub from: Time,
    /// It lapses if the job has not started by then.
    pub until: Time,
    /// Who gives way to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<JobId>,
    /// Quota and money that nobody else takes meanwhile, where others were made to leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
}

/// Where one member of a gang is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    pub node: NodeId,
    pub slices: Vec<Slice>,
}

impl Promise {
    /// A promise of these places, one for each member, that lapses at `until`; nobody leaves for it so far.
    pub(super) fn of(
        ask: &Ask<'_>,
        needs: VolumeNeeds,
        places: Vec<Place>,
        from: Time,
        until: Time,
    ) -> Promise {
        let mut rooms = places.into_iter().map(|place| Room {
            node: place.node,
            slices: place.slices,
        });
        let first = rooms.next().expect("INVARIANT: a job has a member");
        Promise {
            job: ask.job,
            node: first.node,
            slices: first.slices,
            others: rooms.collect(),
            cpu_milli: ask.spec.demand.cpu_milli,
            memory_mib: ask.spec.demand.memory_mib,
            volume_mib: needs.fresh_mib(),
            from,
            until,
            victims: Vec::new(),
            admission: None,
        }
    }

    /// Node and slices of each member, in their order.
    pub fn rooms(&self) -> impl Iterator<Item = (NodeId, &[Slice])> {
        let others = self.others.iter().map(|room| (room.node, &room.slices[..]));
        std::iter::once((self.node, &self.slices[..])).chain(others)
    }

    /// Whether some of the room is on this node.
    pub fn is_on(&self, node: NodeId) -> bool {
        self.rooms().any(|(on, _)| on == node)
    }

    /// Whether this GPU is kept for it.
    pub fn keeps(&self, gpu: GpuId) -> bool {
        let mut slices = self.rooms().flat_map(|(_, slices)| slices);
        slices.any(|slice| slice.gpu == gpu)
    }

    /// Whether others were made to leave for it; else it waits for them to end.
    pub fn evicts(&self) -> bool {
        !self.victims.is_empty()
    }

    /// Whether it is the job itself that leaves, to go there.
    pub fn moves(&self) -> bool {
        self.victims.contains(&self.job)
    }

    /// When the promise lapses that was given for a moment.
    pub(super) fn lapses(from: Time) -> Time {
        from.plus_ms(LATE_MS)
    }
}

/// All promises, of jobs and on nodes. Written down under the node of the first member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "BTreeMap<NodeId, Vec<Promise>>",
    into = "BTreeMap<NodeId, Vec<Promise>>"
)]
pub struct Calendar {
    promises: BTreeMap<JobId, Promise>,
    nodes: BTreeMap<NodeId, BTreeSet<JobId>>,
}

impl From<BTreeMap<NodeId, Vec<Promise>>> for Calendar {
    fn from(rows: BTreeMap<NodeId, Vec<Promise>>) -> Calendar {
        let mut calendar = Calendar::default();
        rows.into_values()
            .flatten()
            .for_each(|promise| calendar.insert(promise));
        calendar
    }
}

impl From<Calendar> for BTreeMap<NodeId, Vec<Promise>> {
    fn from(calendar: Calendar) -> Self {
        let mut rows: BTreeMap<NodeId, Vec<Promise>> = BTreeMap::new();
        for promise in calendar.promises.into_values() {
            rows.entry(promise.node).or_default().push(promise);
        }
        rows
    }
}

/// Nodes with promises, as one job may use them.
pub type Promised = BTreeMap<NodeId, Node>;

/// Who wants room, from when on, and until when at most.
#[derive(Debug, Clone, Copy)]
pub struct Stay<'a> {
    pub ask: Ask<'a>,
    pub at: Time,
    pub until: Time,
}

impl<'a> Stay<'a> {
    pub fn of(ask: Ask<'a>, at: Time) -> Stay<'a> {
        Stay {
            ask,
            at,
            until: at.plus_ms(limit_ms(ask.spec)),
        }
    }

    /// One that never ends, to find room that is promised to nobody at all.
    pub fn for_ever(self) -> Stay<'a> {
        Stay {
            until: Time(i64::MAX),
            ..self
        }
    }
}

fn limit_ms(spec: &JobSpec) -> u64 {
    (spec.run_time_s + u64::from(spec.grace_s)) * SECOND_MS
}

impl Calendar {
    pub fn is_empty(&self) -> bool {
        self.promises.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Promise> {
        self.promises.values()
    }

    /// The promises with room on this node.
    pub fn on(&self, node: NodeId) -> impl Iterator<Item = &Promise> {
        let jobs = self.nodes.get(&node).into_iter().flatten();
        jobs.filter_map(|job| self.promises.get(job))
    }

    pub fn of(&self, job: JobId) -> Option<&Promise> {
        self.promises.get(&job)
    }

    pub(crate) fn insert(&mut self, promise: Promise) {
        self.remove(promise.job);
        for (node, _) in promise.rooms() {
            self.nodes.entry(node).or_default().insert(promise.job);
        }
        self.promises.insert(promise.job, promise);
    }

    pub(crate) fn remove(&mut self, job: JobId) {
        let Some(promise) = self.promises.remove(&job) else {
            return;
        };
        for (node, _) in promise.rooms() {
            let Some(jobs) = self.nodes.get_mut(&node) else {
                continue;
            };
            jobs.remove(&job);
            if jobs.is_empty() {
                self.nodes.remove(&node);
            }
        }
    }

    /// The node is gone, and with it the whole of whatever was promised there in part.
    pub(crate) fn remove_node(&mut self, node: NodeId) {
        for job in self.nodes.get(&node).cloned().unwrap_or_default() {
            self.remove(job);
        }
    }
}

/// A job as others are told of it: by its id within its tenant, and not at all outside.
pub fn named(state: &State, job: JobId, to: ScopeId) -> String {
    let of = state.jobs.get(&job).map(|job| ScopeId::User(job.owner));
    let same = of.is_some_and(|of| state.tree.tenant_of(of) == state.tree.tenant_of(to));
    if same {
        job.to_string()
    } else {
        "another job".into()
    }
}

/// What keeps this stay from room of the node. Where nobody left for it, a promise binds only whoever goes after its
/// job: by priority class, fair share and arrival.
pub fn against<'a>(state: &'a State, node: NodeId, stay: Stay<'a>) -> impl Iterator<Item = &'a Promise> {
    let behind = move |promise: &Promise| {
        let first = state.jobs.get(&promise.job).map(Ask::of);
        stay.until == Time(i64::MAX) || first.is_some_and(|first| precedes(state, &first, &stay.ask, stay.at))
    };
    state.calendar.on(node).filter(move |promise| {
        promise.job != stay.ask.job && promise.from < stay.until && (promise.evicts() || behind(promise))
    })
}

/// When what runs there will have given its room back at the latest: by its limit, or by the grace of its stop.
pub fn ends_by(state: &State, allocation: &Allocation, at: Time) -> Time {
    let Some(job) = state.jobs.get(&allocation.job) else {
        return at;
    };
    let limit_ms = limit_ms(&job.spec);
    match job.phase {
        Phase::Running => job
            .since
            .plus_ms(limit_ms.saturating_sub(allocation.ran_before_ms)),
        Phase::Stopping => job.since.plus_ms(u64::from(job.spec.grace_s) * SECOND_MS),
        // What is to start has its whole time before it; what is paused for others goes on when it can.
        _ => at.plus_ms(limit_ms.saturating_sub(allocation.ran_before_ms)),
    }
}

/// The nodes with promises, as this stay may use them: promised GPUs are not there, and the rest is what is left.
pub fn masked(state: &State, stay: Stay<'_>, at: Time) -> Promised {
    let mut nodes = kept::nodes(state, stay, at);
    let promised = state.calendar.nodes.keys().copied();
    nodes.extend(promised.filter(|id| against(state, *id, stay).next().is_some()));
    let masked = nodes.into_iter().filter_map(|id| {
        let mut node = state.fleet.node(id)?.clone();
        mask(state, &mut node, stay, at);
        Some((id, node))
    });
    masked.collect()
}

/// Takes from a node, as it is or as it might be, what is promised to others for some of this stay.
pub(super) fn mask(state: &State, node: &mut Node, stay: Stay<'_>, at: Time) {
    kept::mask(state, node, stay, at);
    let promises: Vec<&Promise> = against(state, node.id, stay).collect();
    let Some(first) = promises.iter().map(|promise| promise.from).min() else {
        return;
    };
    let mut members = Vec::with_capacity(promises.len());
    for promise in &promises {
        let here = promise.rooms().filter(|(on, _)| *on == node.id);
        let kept: Vec<&[Slice]> = here.map(|(_, slices)| slices).collect();
        let keeps = |gpu| {
            kept.iter()
                .any(|slices| slices.iter().any(|slice| slice.gpu == gpu))
        };
        node.gpus.retain(|gpu| !keeps(gpu.id));
        members.push(kept.len());
    }
    let stays = |allocation: &&Allocation| {
        let leaving = state.jobs.get(&allocation.job).map(|job| job.phase) == Some(Phase::Stopping);
        !leaving && ends_by(state, allocation, at) > first
    };
    let (mut cpu_milli, mut memory_mib) = (0, 0);
    for allocation in state.fleet.allocations_on(node.id).filter(stays) {
        cpu_milli += allocation.cpu_milli;
        memory_mib += allocation.memory_mib;
    }
    for (promise, members) in promises.iter().zip(members) {
        cpu_milli = cpu_milli.saturating_add(promise.cpu_milli.saturating_mul(members as u32));
        memory_mib = memory_mib.saturating_add(promise.memory_mib.saturating_mul(members as u64));
        // Whoever has volumes has all its members where they are.
        node.used_volume_mib = node.used_volume_mib.saturating_add(promise.volume_mib);
    }
    node.used_cpu_milli = node.used_cpu_milli.max(cpu_milli);
    node.used_memory_mib = node.used_memory_mib.max(memory_mib);
}

/// Victims that have what they had when the promise was made. Of a gang that leaves, the last member gives the quota back.
pub fn leaving<'a>(state: &'a State, promise: &'a Promise) -> impl Iterator<Item = &'a Job> {
    let jobs = promise.victims.iter().filter_map(|id| state.jobs.get(id));
    jobs.filter(move |job| {
        let mut held = job.allocations().filter_map(|id| state.fleet.allocation(id));
        matches!(job.phase, Phase::Stopping | Phase::Pausing)
            && held.any(|allocation| allocation.placed <= promise.from && !allocation.paused)
    })
}

pub(super) fn is_above(state: &State, scope: ScopeId, job: &Job) -> bool {
    let mut chain = state.tree.chain(ScopeId::User(job.owner));
    chain.any(|above| above.id == scope)
}

/// What a scope will use once promised room is taken and those who leave for it are gone, `but` one job's promise.
pub(super) fn used(state: &State, scope: &Scope, but: JobId) -> Amounts {
    let mut used = scope.used.clone();
    // One that left for a promise, came back and leaves for another is counted once.
    let mut gone = BTreeSet::new();
    for promise in state.calendar.iter().filter(|promise| promise.job != but) {
        let Some((admission, job)) = promise.admission.as_ref().zip(state.jobs.get(&promise.job)) else {
            continue;
        };
        for victim in leaving(state, promise).filter(|victim| is_above(state, scope.id, victim)) {
            if let Some(held) = victim.admission.as_ref().filter(|_| gone.insert(victim.id)) {
                used.remove(&held.amounts);
            }
        }
        if is_above(state, scope.id, job) {
            used.add(&admission.amounts);
        }
    }
    used
}

/// Refuses what would take the quota or the money with which promised room is to be taken.
pub fn leaves_promised(
    state: &State,
    job: JobId,
    owner: ScopeId,
    admission: &Admission,
    at: Time,
) -> Result<(), Refusal> {
    let others = || {
        let others = state.calendar.iter().filter(|promise| promise.job != job);
        others.filter_map(|promise| Some((promise, promise.admission.as_ref()?)))
    };
    if others().next().is_none() {
        return Ok(());
    }
    for scope in state.tree.chain(owner) {
        let here = || {
            let of = |id: &JobId| {
                state
                    .jobs
                    .get(id)
                    .is_some_and(|job| is_above(state, scope.id, job))
            };
            others().filter(move |(promise, _)| of(&promise.job))
        };
        let Some((first, _)) = here().next() else {
            continue;
        };
        let kept = |what: &str| {
            let title = state.tree.title(scope.id);
            let sentence = format!(
                "what is left of the {what} of {title} is kept for {}, for which others give way",
                named(state, first.job, owner)
            );
            Refusal::new(Code::Promised, sentence).hint("it is tried again when that job has started")
        };
        if (scope.limits())
            .first_exceeded(&used(state, scope, job), &admission.amounts)
            .is_some()
        {
            return Err(kept("quota"));
        }
        let mut spending = scope.spending.clone();
        for (_, admission) in here() {
            spending.hold(&admission.hold.counted_as(), at, admission.hold.left);
        }
        let hold = &admission.hold;
        if budget::first_exceeded(&scope.budgets, &spending, &hold.counted_as(), hold.left, at).is_some() {
            return Err(kept("budget"));
        }
    }
    let hold = &admission.hold;
    let used = |scope: &Scope| used(state, scope, job);
    let lent = |class: &str| lend::footing_by(state, owner, class, hold.gpu_milli, used).map(drop);
    hold.class.as_deref().map_or(Ok(()), lent)
}

/// Promises that are kept for nothing now, withdrawn.
pub fn lapsed(state: &State, at: Time) -> Vec<Event> {
    let withdrawn = state.calendar.iter().filter_map(|promise| {
        let why = lapse(state, promise, at)?;
        Some(Event::PromiseWithdrawn {
            job: promise.job,
            why: why.into(),
        })
    });
    withdrawn.collect()
}

fn lapse(state: &State, promise: &Promise, at: Time) -> Option<&'static str> {
    let job = state.jobs.get(&promise.job)?;
    if at >= promise.until {
        return Some("the room was not free in time");
    }
    if state.tree.suspended_above(ScopeId::User(job.owner)).is_some() {
        return Some("the job may not start: a scope above it is suspended");
    }
    promise.rooms().find_map(|(node, slices)| {
        let node = state.fleet.node(node);
        let Some(node) = node.filter(|node| node.status == NodeStatus::Up) else {
            return Some("the node takes no work now");
        };
        let works = |slice: &Slice| {
            let gpu = node.gpu(slice.gpu);
            gpu.is_some_and(|gpu| gpu.present && gpu.quarantine.is_none())
        };
        (!slices.iter().all(works)).then_some("a promised GPU takes no work now")
    })
}
