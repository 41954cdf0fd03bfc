//! Fitting: which GPUs of one node a demand gets, looked at one by one. For nodes that are not on the board, and for
//! whatever names its node.
//!
//! Called by `place.rs`; room and walls alone decide here, not how good a node is.

use super::Place;
use super::wall::{Wall, level, offered_now};
use crate::schedule::allocation::Slice;
use crate::schedule::fleet::{Gpu, Node};
use crate::schedule::part;
use crate::state::State;
use crate::workload::spec::{Demand, Isolation};

/// VRAM a demand takes of this GPU: a whole one comes with all of it.
pub(crate) fn vram_wanted(gpu: &Gpu, demand: &Demand) -> u64 {
    if demand.compute_permille == 1000 {
        gpu.facts.vram_mib
    } else {
        demand.vram_mib
    }
}

/// The slice of this GPU that the demand would get now, by room alone.
pub(super) fn sliced(state: &State, gpu: &Gpu, demand: &Demand, wall: &Wall) -> Option<Slice> {
    if !gpu.present || gpu.quarantine.is_some() {
        return None;
    }
    let slice = if offered_now(state, gpu, demand, wall)? == Isolation::Partition {
        let chosen = part::choose(state, gpu, demand)?;
        Slice {
            gpu: gpu.id,
            vram_mib: chosen.memory_mib,
            compute_permille: chosen.compute_permille,
            part: Some(chosen.choice),
        }
    } else {
        Slice {
            gpu: gpu.id,
            vram_mib: vram_wanted(gpu, demand),
            compute_permille: demand.compute_permille,
            part: None,
        }
    };
    left(gpu, &slice, demand).map(|_| slice)
}

/// What would be left of the GPU beside the slice, if it has room for it.
pub(super) fn left(gpu: &Gpu, slice: &Slice, demand: &Demand) -> Option<u64> {
    let share = (1000 - gpu.used_permille).checked_sub(slice.compute_permille.into())?;
    let free = gpu.facts.vram_mib.saturating_sub(gpu.used_vram_mib);
    let vram = free.checked_sub(slice.vram_mib.max(demand.vram_mib))?;
    Some(vram * 1000 / gpu.facts.vram_mib + u64::from(share))
}

pub(super) fn allows_vram(slice: &Slice, demand: &Demand, wall: &Wall) -> bool {
    slice.vram_mib.saturating_mul(demand.gpus.into()) <= wall.vram_mib_at_most
}

/// The tightest GPUs of the class on this node, as (what is left, which), if there are enough; and what is left in all.
pub(super) fn fit(
    state: &State,
    node: &Node,
    class: &str,
    demand: &Demand,
    wall: &Wall,
    fitting: &mut Vec<(u64, usize)>,
) -> Option<u64> {
    fitting.clear();
    for (which, gpu) in node.gpus.iter().enumerate() {
        if *gpu.facts.class != *class || !demand.takes(class, &gpu.facts.model) {
            continue;
        }
        let Some(slice) = sliced(state, gpu, demand, wall) else {
            continue;
        };
        if let Some(left) = left(gpu, &slice, demand)
            && allows_vram(&slice, demand, wall)
            && level(state, gpu, demand, wall).is_some()
        {
            fitting.push((left, which));
        }
    }
    let wanted = demand.gpus as usize;
    if fitting.len() < wanted {
        return None;
    }
    fitting.sort_unstable_by_key(|(left, which)| (*left, node.gpus[*which].id));
    fitting.truncate(wanted);
    Some(fitting.iter().map(|(left, _)| left).sum())
}

pub(super) fn on_node(
    state: &State,
    node: &Node,
    class: &str,
    demand: &Demand,
    wall: &Wall,
) -> Option<(u64, Place)> {
    let mut fitting = Vec::new();
    let left = fit(state, node, class, demand, wall, &mut fitting)?;
    let gpus = || fitting.iter().map(|&(_, which)| &node.gpus[which]);
    let slices: Vec<Slice> = gpus()
        .map(|gpu| sliced(state, gpu, demand, wall))
        .collect::<Option<_>>()?;
    let levels = gpus().filter_map(|gpu| level(state, gpu, demand, wall));
    let (isolation, why) = levels.min_by_key(|(level, _)| *level)?;
    let kinds: Vec<&str> = slices
        .iter()
        .filter_map(|slice| Some(slice.part.as_ref()?.profile.as_str()))
        .collect();
    let place = Place {
        node: node.id,
        class: Some(class.into()),
        isolation,
        isolation_why: if kinds.is_empty() {
            why.into()
        } else {
            format!("{}: {why}", kinds.join(", "))
        },
        slices,
    };
    Some((left, place))
}
