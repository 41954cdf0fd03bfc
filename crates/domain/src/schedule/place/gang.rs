//! Placing several members at once: all of them or none, on GPUs of one class.
//!
//! One node is preferred, then as few as possible; of those that serve, the one that is left the fullest. Members of a
//! job are of one tenant and may share a GPU beside one another, each with its own slice. Volumes are on one node,
//! so a job with volumes has all its members there.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::super::allocation::Allocation;
use super::super::fleet::{Fleet, Node, NodeStatus};
use super::super::volume::VolumeNeeds;
use super::{Place, could_hold, none_now, places, words};
use crate::audit::JobAudit;
use crate::id::{AllocationId, JobId, UserId};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::budget::Cost;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::{Job, Phase};
use crate::workload::spec::{Demand, JobSpec};

/// A place for each of `members`, in their order, members of one node beside one another; or why there is none now.
pub fn gang_places(
    state: &State,
    owner: ScopeId,
    spec: &JobSpec,
    volumes: VolumeNeeds,
    members: u32,
) -> Result<Vec<Place>, Refusal> {
    let wanted = members as usize;
    let mut room = Room::of(state, owner, spec);
    let mut best: Option<Vec<Vec<Place>>> = None;
    let mut most = 0;
    for class in classes(state, &spec.demand) {
        let mut of_class = spec.clone();
        of_class.demand.class = class.map(Into::into);
        let up = |node: &&Node| node.status == NodeStatus::Up && volumes.are_met_by(node);
        let up = state.fleet.nodes().filter(up);
        let mut nodes: Vec<Vec<Place>> = up
            .map(|node| room.on_node(state, node, &of_class, volumes, wanted))
            .collect();
        let room_on = nodes.iter().map(Vec::len);
        if volumes.are_any() {
            most = most.max(room_on.max().unwrap_or(0));
            nodes.retain(|places| places.len() == wanted);
        } else {
            most = most.max(room_on.sum());
            nodes.retain(|places| !places.is_empty());
        }
        if let Some(chosen) = fewest(nodes, wanted)
            && best.as_ref().is_none_or(|best| chosen.len() < best.len())
        {
            best = Some(chosen);
        }
    }
    match best {
        Some(nodes) => Ok(nodes.into_iter().flatten().collect()),
        None => Err(volumes
            .explain(state)
            .unwrap_or_else(|| in_part(state, &spec.demand, members, most))),
    }
}

/// The fewest nodes that hold all members together; the last of them holds as few more as it can.
fn fewest(mut nodes: Vec<Vec<Place>>, wanted: usize) -> Option<Vec<Vec<Place>>> {
    // Sorting is stable, so of equal nodes the first by id goes first.
    nodes.sort_by_key(|places| Reverse(places.len()));
    let mut chosen = Vec::new();
    let mut missing = wanted;
    while missing > 0 {
        let serving = nodes.iter().rposition(|places| places.len() >= missing);
        let which = match serving {
            Some(last) => {
                let tightest = nodes[last].len();
                nodes.iter().position(|places| places.len() == tightest)?
            }
            None if nodes.is_empty() => return None,
            None => 0,
        };
        let mut here = nodes.remove(which);
        here.truncate(missing);
        missing -= here.len();
        chosen.push(here);
    }
    Some(chosen)
}

/// The classes to try: each on its own, or none for a job without GPUs.
fn classes<'a>(state: &'a State, demand: &'a Demand) -> Vec<Option<&'a str>> {
    if demand.gpus == 0 {
        return vec![None];
    }
    if let Some(class) = demand.class.as_deref() {
        return vec![Some(class)];
    }
    let gpus = state.fleet.nodes().flat_map(|node| &node.gpus);
    let all: BTreeSet<&str> = gpus.map(|gpu| &*gpu.facts.class).collect();
    all.into_iter().map(Some).collect()
}

/// A state with one node at a time, in which members are put one after another as if they had been placed.
struct Room {
    alone: State,
    owner: ScopeId,
    gang: Job,
}

/// No job, allocation or command has these: ids are given from the small end.
const GANG: JobId = JobId(u64::MAX);

impl Room {
    fn of(state: &State, owner: ScopeId, spec: &JobSpec) -> Room {
        let alone = State {
            tree: state.tree.clone(),
            volumes: state.volumes.clone(),
            ..State::default()
        };
        let user = match owner {
            ScopeId::User(user) => user,
            _ => UserId(0),
        };
        Room {
            alone,
            owner,
            gang: waiting(user, spec),
        }
    }

    /// Places for as many members as the node has room for, at most `wanted`.
    fn on_node(
        &mut self,
        state: &State,
        node: &Node,
        spec: &JobSpec,
        volumes: VolumeNeeds,
        wanted: usize,
    ) -> Vec<Place> {
        let allocations = state.fleet.allocations_on(node.id);
        self.alone.jobs = allocations
            .filter_map(|allocation| state.jobs.get(&allocation.job))
            .map(|job| (job.id, job.clone()))
            .collect();
        self.alone.jobs.insert(GANG, self.gang.clone());
        self.alone.fleet = Fleet::alone(&state.fleet, node);
        let mut found = Vec::new();
        while found.len() < wanted {
            let Ok(Some(place)) =
                places(&self.alone, self.owner, spec, volumes).map(|places| places.into_iter().next())
            else {
                break;
            };
            let taken = taking(&place, spec, AllocationId(u64::MAX - found.len() as u64));
            self.alone.fleet.take(&taken);
            found.push(place);
        }
        found
    }
}

fn taking(place: &Place, spec: &JobSpec, id: AllocationId) -> Allocation {
    Allocation {
        id,
        job: GANG,
        node: place.node,
        attempt: 1,
        member: 0,
        slices: place.slices.clone(),
        cpu_milli: spec.demand.cpu_milli,
        memory_mib: spec.demand.memory_mib,
        isolation: place.isolation,
        isolation_why: String::new(),
        placed: Time::default(),
        resized: false,
        paused: false,
        ran_before_ms: 0,
        metered_ms: 0,
        used: None,
    }
}

fn waiting(owner: UserId, spec: &JobSpec) -> Job {
    Job {
        id: GANG,
        owner,
        spec: spec.clone().into(),
        volumes: vec![],
        alike: None,
        submitted: Time::default(),
        phase: Phase::Queued,
        since: Time::default(),
        attempt: 1,
        admission: None,
        members: vec![],
        failed: None,
        stop: None,
        pause: None,
        resume_after: None,
        started: None,
        charged: Cost::default(),
        ran_ms: 0,
        usage: None,
        audit: JobAudit::default(),
    }
}

fn in_part(state: &State, demand: &Demand, members: u32, most: usize) -> Refusal {
    if state.fleet.nodes().all(|node| node.status != NodeStatus::Up) {
        return none_now(state, demand);
    }
    Refusal::new(
        Code::NoCapacity,
        format!(
            "there is room now for {most} of its {members} members, each with {}",
            words(demand)
        ),
    )
    .hint("it starts, whole, when running jobs end or when a node joins; or ask for fewer or smaller members")
}

/// Whether all nodes of the fleet, empty, could hold the members together, where one member fits.
pub(super) fn refuse_beyond_fleet(
    state: &State,
    demand: &Demand,
    volumes: VolumeNeeds,
) -> Result<(), Refusal> {
    let wanted = u64::from(demand.nodes);
    if wanted == 1 {
        return Ok(());
    }
    let room = |class: Option<&str>| {
        let nodes = state.fleet.nodes().filter(|node| volumes.could_be_met_by(node));
        let each = nodes.map(|node| when_empty(node, demand, class));
        if volumes.are_any() {
            each.max().unwrap_or(0)
        } else {
            each.sum()
        }
    };
    let most = classes(state, demand).into_iter().map(room).max().unwrap_or(0);
    if most >= wanted {
        return Ok(());
    }
    let on = if volumes.are_any() {
        "one node, where its volumes are,"
    } else {
        "the whole fleet"
    };
    Err(Refusal::new(
        Code::ExceedsFleet,
        format!(
            "{on} has room for {most} of {wanted} members at most, each with {}",
            words(demand)
        ),
    )
    .field("/demand/nodes")
    .hint("ask for fewer or smaller members; `tenure node list` shows what there is"))
}

/// How many members the node could have if nothing were on it. Never too few.
fn when_empty(node: &Node, demand: &Demand, class: Option<&str>) -> u64 {
    let by_cpu = u64::from(node.cpu_milli / demand.cpu_milli.max(1));
    let by_memory = node.memory_mib / demand.memory_mib.max(1);
    let most = by_cpu.min(by_memory).min(demand.nodes.into());
    if demand.gpus == 0 {
        return most;
    }
    let slices: Vec<u64> = node
        .gpus
        .iter()
        .filter(|gpu| class.is_none_or(|class| class == &*gpu.facts.class) && could_hold(gpu, demand))
        .map(|gpu| {
            let by_vram = gpu.facts.vram_mib / demand.vram_mib.max(1);
            by_vram.min(1000 / u64::from(demand.compute_permille.max(1)))
        })
        .collect();
    // A member has its slices on GPUs apart, so no GPU serves more members than there are.
    let serves = |members: u64| {
        let given: u64 = slices.iter().map(|slices| (*slices).min(members)).sum();
        given >= members * u64::from(demand.gpus)
    };
    (1..=most)
        .take_while(|&members| serves(members))
        .last()
        .unwrap_or(0)
}
