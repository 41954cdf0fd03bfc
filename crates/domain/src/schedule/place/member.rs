//! Why a gang finds no place: how many of its members there is room for, now and ever.
//!
//! Called by `gang.rs` and `explain.rs`.

use std::collections::BTreeSet;

use super::explain::{none_now, words};
use super::wall::offered;
use crate::id::TenantId;
use crate::refusal::{Code, Refusal};
use crate::schedule::fleet::{Gpu, Node, NodeStatus};
use crate::schedule::volume::VolumeNeeds;
use crate::state::State;
use crate::workload::spec::Demand;

pub(super) fn in_part(state: &State, demand: &Demand, members: u32, most: usize) -> Refusal {
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
    .hint(
        "it starts, whole, when running jobs end or give way, or when a node joins; or ask for fewer or smaller members",
    )
}

/// Whether all nodes of the fleet, empty, could hold the members together, where one member fits.
pub(super) fn refuse_beyond_fleet(
    state: &State,
    tenant: Option<TenantId>,
    demand: &Demand,
    volumes: VolumeNeeds,
) -> Result<(), Refusal> {
    let wanted = u64::from(demand.nodes);
    if wanted == 1 {
        return Ok(());
    }
    let room = |class: Option<&str>| {
        let will_do =
            |node: &&Node| volumes.could_be_met_by(node) && node.admits(tenant, demand.region.as_deref());
        let nodes = state.fleet.nodes().filter(will_do);
        let each = nodes.map(|node| when_empty(node, demand, class));
        if volumes.is_empty() {
            each.sum()
        } else {
            each.max().unwrap_or(0)
        }
    };
    let most = classes(state, demand).into_iter().map(room).max().unwrap_or(0);
    if most >= wanted {
        return Ok(());
    }
    let on = if volumes.is_empty() {
        "the whole fleet"
    } else {
        "one node, where its volumes are,"
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
    seats(&slices, demand.gpus, most)
}

/// For how many members, `most` at most, GPUs have enough slices, each GPU so many. A member has its slices on GPUs apart,
/// so no GPU serves more members than there are.
pub(crate) fn seats(slices: &[u64], gpus: u32, most: u64) -> u64 {
    let serves = |members: u64| {
        let given: u64 = slices.iter().map(|slices| (*slices).min(members)).sum();
        given >= members * u64::from(gpus)
    };
    (1..=most)
        .take_while(|&members| serves(members))
        .last()
        .unwrap_or(0)
}

/// Whether the device, empty, could hold one slice of the demand.
pub(super) fn could_hold(gpu: &Gpu, demand: &Demand) -> bool {
    let level = offered(&gpu.facts, demand, demand.isolation, false);
    level.is_some_and(|level| level >= demand.isolation)
        && demand.vram_mib <= gpu.facts.vram_mib
        && demand.takes(&gpu.facts.class, &gpu.facts.model)
}
