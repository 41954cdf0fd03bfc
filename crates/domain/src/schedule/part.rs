//! Parts: which piece of a device that hardware cuts a slice is to be, and where on the device it lies.
//!
//! Pure. What kinds there are and where each may lie is what the driver told (`hardware.rs`); nothing here knows a
//! model. The smallest kind that is enough is taken, at the place that leaves most room for large ones. Deliberately
//! absent: making the part, which is the agent's. Called by `place.rs`.

use super::fleet::{Gpu, GpuFacts};
use super::hardware::{PartChoice, PartProfile, Partitioning, Placement};
use crate::state::State;
use crate::workload::spec::{Demand, Isolation};

/// A part, and what comes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    pub choice: PartChoice,
    pub memory_mib: u64,
    pub compute_permille: u16,
}

/// How a device is cut, if parts of it can be given.
fn cut(facts: &GpuFacts) -> Option<&Partitioning> {
    if !facts.isolation.contains_key(&Isolation::Partition) {
        return None;
    }
    let how = facts.hardware.as_ref()?.partitioning.as_ref()?;
    (!how.profiles.is_empty()).then_some(how)
}

/// Whether the device can be cut, so that what is given on it must be asked of.
pub fn is_cut(facts: &GpuFacts) -> bool {
    cut(facts).is_some()
}

/// Compute slices of the whole device, as its largest kind has them.
fn all_slices(how: &Partitioning) -> u32 {
    how.profiles
        .iter()
        .map(|profile| profile.slices)
        .max()
        .unwrap_or(0)
}

/// Whether the VRAM alone says which part: whoever asks for a part and for memory takes the compute it comes with.
fn by_memory(demand: &Demand) -> bool {
    demand.isolation == Isolation::Partition && demand.vram_mib > 0 && demand.compute_permille == 1000
}

/// Whether the demand is for less than the whole device.
pub fn wants_part(demand: &Demand) -> bool {
    demand.compute_permille < 1000 || by_memory(demand)
}

fn is_enough(profile: &PartProfile, all: u32, demand: &Demand) -> bool {
    // A seventh is 142.86 thousandths: who asks for 143 means a seventh.
    let permille = (u64::from(profile.slices) * 1000).div_ceil(u64::from(all.max(1)));
    let compute = by_memory(demand) || permille >= u64::from(demand.compute_permille);
    compute && profile.memory_mib >= demand.vram_mib
}

/// Whether a part of the device, empty, would be enough.
pub fn could(facts: &GpuFacts, demand: &Demand) -> bool {
    cut(facts).is_some_and(|how| {
        let all = all_slices(how);
        let placed = |profile: &&PartProfile| !profile.placements.is_empty();
        how.profiles
            .iter()
            .filter(placed)
            .any(|profile| is_enough(profile, all, demand))
    })
}

/// Slices that living allocations have of this device: their parts, or none for one that is a share.
fn living<'a>(state: &'a State, gpu: &'a Gpu) -> impl Iterator<Item = Option<&'a PartChoice>> {
    gpu.holders
        .iter()
        .filter_map(|holder| state.fleet.allocations.get(holder))
        .flat_map(|allocation| &allocation.slices)
        .filter(|slice| slice.gpu == gpu.id)
        .map(|slice| slice.part.as_ref())
}

/// Whether somebody has a part of the device, so that nobody gets a share of it.
pub fn is_parted(state: &State, gpu: &Gpu) -> bool {
    living(state, gpu).any(|part| part.is_some())
}

/// The part of this device the demand gets now.
pub fn choose(state: &State, gpu: &Gpu, demand: &Demand) -> Option<Chosen> {
    let how = cut(&gpu.facts)?;
    // A share and a part of one device would lie on the same memory.
    let parts: Option<Vec<&PartChoice>> = living(state, gpu).collect();
    pick(how, &parts?, demand)
}

/// The smallest kind that is enough, at the place that leaves the most for others; `parts` are given already.
pub fn pick(how: &Partitioning, parts: &[&PartChoice], demand: &Demand) -> Option<Chosen> {
    let all = all_slices(how);
    let mut enough: Vec<&PartProfile> = how
        .profiles
        .iter()
        .filter(|profile| is_enough(profile, all, demand))
        .collect();
    enough.sort_by_key(|profile| {
        let size = profile.placements.iter().map(|place| place.size).max();
        // What comes with extra engines is kept for when nothing else is left.
        let extra = profile.name.contains(['+', '-']);
        (size, profile.slices, extra, profile.memory_mib, profile.id)
    });
    enough.into_iter().find_map(|profile| {
        let places = profile.placements.iter().copied();
        let legal = places.filter(|place| is_legal(how, parts, profile, *place));
        let best = legal.max_by_key(|place| (left_over(how, parts, *place), place.start))?;
        Some(Chosen {
            choice: PartChoice {
                profile: profile.name.clone(),
                id: profile.id,
                placement: best,
            },
            memory_mib: profile.memory_mib,
            compute_permille: u16::try_from(u64::from(profile.slices) * 1000 / u64::from(all.max(1)))
                .unwrap_or(1000),
        })
    })
}

fn is_free(how: &Partitioning, parts: &[&PartChoice], place: Placement) -> bool {
    let foreign = how.parts.iter().filter_map(|part| part.placement);
    let given = parts.iter().map(|part| part.placement);
    !foreign
        .chain(how.taken.iter().map(|taken| taken.placement))
        .chain(given)
        .any(|other| other.overlaps(place))
}

/// INVARIANT: a part lies where the driver said its kind may, over nothing else, and no kind is there more often than
/// the device holds it.
fn is_legal(how: &Partitioning, parts: &[&PartChoice], profile: &PartProfile, place: Placement) -> bool {
    let of_others = how
        .parts
        .iter()
        .filter(|part| part.profile == profile.name)
        .count();
    let of_kind = parts
        .iter()
        .copied()
        .chain(&how.taken)
        .filter(|part| part.id == profile.id)
        .count()
        + of_others;
    // Where all are of one kind, they are of the kind that is there.
    let one_kind = !how.uniform || parts.iter().all(|part| part.id == profile.id);
    one_kind && of_kind < profile.count as usize && is_free(how, parts, place)
}

/// How often each kind would still fit with this place taken, the largest kinds first.
fn left_over(how: &Partitioning, parts: &[&PartChoice], taken: Placement) -> Vec<usize> {
    let mut kinds: Vec<&PartProfile> = how.profiles.iter().collect();
    let size = |profile: &PartProfile| profile.placements.first().map_or(0, |place| place.size);
    kinds.sort_by_key(|profile| std::cmp::Reverse((size(profile), profile.slices)));
    let open = |profile: &PartProfile| {
        let places = profile.placements.iter().copied();
        places
            .filter(|place| !place.overlaps(taken) && is_free(how, parts, *place))
            .count()
    };
    kinds.into_iter().map(open).collect()
}
