//! Why a job finds no place: never, not now, or not behind the walls around it.
//!
//! Called by `decide` for what could never run, by `place.rs` for what cannot now, by `why.rs` for what somebody asks
//! about: the last looks behind the walls of the few nodes that have the most fitting room.

use std::collections::BTreeSet;

use super::Search;
use super::fit::{allows_vram, sliced};
use super::gang::gang_places;
use super::member::{self, could_hold};
use super::wall::{Wall, allows_class, level, offered_now};
use crate::id::NodeId;
use crate::refusal::{Code, Refusal};
use crate::schedule::calendar::Promised;
use crate::schedule::fleet::{Gpu, Node, NodeStatus};
use crate::schedule::volume::VolumeNeeds;
use crate::size::{mib, parts_of};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::workload::spec::{Demand, JobSpec};

/// Whether the fleet, empty, could hold the demand's members; an empty fleet might grow.
pub fn refuse_beyond_fleet(
    state: &State,
    owner: ScopeId,
    demand: &Demand,
    volumes: VolumeNeeds,
) -> Result<(), Refusal> {
    if state.fleet.nodes().all(|node| node.cpu_milli == 0) {
        return Ok(());
    }
    let tenant = state.tree.tenant_of(owner);
    let fits = |node: &Node| {
        let gpus = node.gpus.iter().filter(|gpu| could_hold(gpu, demand));
        node.admits(tenant, demand.region.as_deref())
            && demand.cpu_milli <= node.cpu_milli
            && demand.memory_mib <= node.memory_mib
            && (demand.gpus == 0 || gpus.count() >= demand.gpus as usize)
    };
    if any_with_class(state, demand, |node| volumes.could_be_met_by(node) && fits(node)) {
        return member::refuse_beyond_fleet(state, tenant, demand, volumes);
    }
    if let Some(refusal) = volumes.refuse_beyond_fleet(state, fits) {
        return Err(refusal);
    }
    Err(Refusal::new(
        Code::ExceedsFleet,
        format!("no node has {} together", words(demand)),
    )
    .field("/demand")
    .hint("ask for less, or for another class; `tenure node list` shows what there is"))
}

/// Whether a node is so, among those with the class that is asked for.
fn any_with_class(state: &State, demand: &Demand, is_so: impl Fn(&Node) -> bool) -> bool {
    if demand.gpus == 0 {
        return state.fleet.nodes().any(is_so);
    }
    let index = state.fleet.index();
    let is_one = |id: &NodeId| state.fleet.node(*id).is_some_and(&is_so);
    let any = |nodes: &BTreeSet<NodeId>| nodes.iter().any(is_one);
    match &demand.class {
        Some(class) => index.classes().get(class).is_some_and(any),
        None => index.classes().values().any(any),
    }
}

/// Why a job finds no place now: no room, or room behind a wall.
pub fn explain(state: &State, owner: ScopeId, spec: &JobSpec, volumes: VolumeNeeds) -> Refusal {
    let demand = &spec.demand;
    if demand.nodes > 1
        && let Err(refusal) = gang_places(state, owner, spec, volumes, &Promised::new())
    {
        return refusal;
    }
    let wall = Wall::of(state, owner, demand);
    let wanted = |gpu: &&Gpu| {
        demand.takes(&gpu.facts.class, &gpu.facts.model) && sliced(state, gpu, demand, &wall).is_some()
    };
    let promised = Promised::new();
    let search = Search::new(state, owner, spec, volumes, &promised);
    let roomy = search.roomy().into_iter().find(|node| {
        search.node_will_do(node) && node.gpus.iter().filter(wanted).count() >= demand.gpus as usize
    });
    let behind = roomy
        .into_iter()
        .flat_map(|node| node.gpus.iter().filter(wanted).map(move |gpu| (node, gpu)))
        .find_map(|(node, gpu)| {
            behind_wall(state, owner, gpu, demand, &wall).map(|(why, hint)| {
                let class = &gpu.facts.class;
                let sentence = format!("there is room on a GPU of {} ({class}), but {why}", node.name);
                Refusal::new(Code::NotShared, sentence).hint(hint)
            })
        });
    behind.unwrap_or_else(|| none_now(state, demand))
}

/// What keeps the demand from a GPU that has room for it, and what would change that.
fn behind_wall(
    state: &State,
    owner: ScopeId,
    gpu: &Gpu,
    demand: &Demand,
    wall: &Wall,
) -> Option<(String, &'static str)> {
    if !allows_class(state, owner, &gpu.facts.class) {
        let why = "a policy above does not allow that class".to_owned();
        return Some((
            why,
            "it starts when an allowed class is free, or when the policy is widened",
        ));
    }
    let slice = sliced(state, gpu, demand, wall)?;
    if !allows_vram(&slice, demand, wall) {
        let why = format!(
            "whole it has more VRAM than the {} MiB allowed per job",
            wall.vram_mib_at_most
        );
        return Some((why, "ask for a part of a GPU, or have the policy widened"));
    }
    if level(state, gpu, demand, wall).is_some() {
        return None;
    }
    if offered_now(state, gpu, demand, wall).is_none_or(|given| given < wall.at_least) {
        let why = format!(
            "it cannot be given at {}, which is asked for",
            wall.at_least.as_str()
        );
        return Some((why, "ask for a weaker isolation, or for a whole GPU"));
    }
    let why = "the tenants on it and this one have not agreed to share a device at that isolation".to_owned();
    Some((
        why,
        "it starts when a GPU without such neighbours is free, or when both tenants accept one another (`share_guarded`, `share_with`)",
    ))
}

pub(super) fn none_now(state: &State, demand: &Demand) -> Refusal {
    if state.fleet.nodes().all(|node| node.status != NodeStatus::Up) {
        return Refusal::new(Code::NoNodes, "no node is up").hint("it starts when a node joins or returns");
    }
    Refusal::new(
        Code::NoCapacity,
        format!("no node has {} free now", words(demand)),
    )
    .hint("it starts when running jobs end, or when a node joins")
}

pub(super) fn words(demand: &Demand) -> String {
    let host = format!(
        "{} CPU and {} memory",
        parts_of(u64::from(demand.cpu_milli), 1000),
        mib(demand.memory_mib)
    );
    let mut words = match demand.gpus {
        0 => host,
        _ => format!("{}, {host}", gpus(demand)),
    };
    if let Some(region) = &demand.region {
        words += &format!(" in region {region}");
    }
    words
}

/// What it asks of GPUs, as a person would say it.
fn gpus(demand: &Demand) -> String {
    let part = || format!("{} % of", parts_of(u64::from(demand.compute_permille), 10));
    let what = match (demand.gpus, demand.compute_permille) {
        (1, 1000) => "a whole GPU".to_owned(),
        (count, 1000) => format!("{count} whole GPUs"),
        (1, _) => format!("{} a GPU", part()),
        (count, _) => format!("{} each of {count} GPUs", part()),
    };
    let class = demand.class.as_deref().or(demand.model.as_deref());
    let class = class.unwrap_or("any class");
    match demand.vram_mib {
        0 => format!("{what} ({class})"),
        vram => format!("{what} ({class}) with {} VRAM", mib(vram)),
    }
}
