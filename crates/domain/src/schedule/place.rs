//! Placement: which slices a job gets. Best fit: the node, and on it the GPUs, that leave the least over.
//!
//! Pure: the same state gives the same placement. Nothing here looks at prices or quota.

use std::borrow::Cow;

use super::allocation::{Allocation, Slice};
use super::calendar::{Stay, against, masked, named};
use super::fleet::{Gpu, GpuFacts, Node, NodeStatus};
use super::part;
use super::volume::VolumeNeeds;
use crate::id::{NodeId, TenantId};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::image::ImageName;
use crate::workload::spec::{Demand, Isolation, JobSpec};

/// Where a job would go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub node: NodeId,
    pub slices: Vec<Slice>,
    pub class: Option<Box<str>>,
    pub isolation: Isolation,
    pub isolation_why: String,
}

impl Place {
    /// The job as it is counted and charged here: a part comes with the compute it has, asked for or not.
    pub fn spec<'a>(&self, asked: &'a JobSpec) -> Cow<'a, JobSpec> {
        let parts = self.slices.iter().filter(|slice| slice.part.is_some());
        match parts.map(|slice| slice.compute_permille).max() {
            Some(given) if given != asked.demand.compute_permille => {
                let mut spec = asked.clone();
                spec.demand.compute_permille = given;
                Cow::Owned(spec)
            }
            _ => Cow::Borrowed(asked),
        }
    }
}

/// What the tenants' policies ask of a device shared with others.
struct Wall {
    owner: ScopeId,
    tenant: Option<TenantId>,
    at_least: Isolation,
    shares_guarded: bool,
    /// VRAM of the whole job that policies allow.
    vram_mib_at_most: u64,
}

impl Wall {
    fn of(state: &State, owner: ScopeId, demand: &Demand) -> Wall {
        Wall {
            owner,
            tenant: state.tree.tenant_of(owner),
            at_least: at_least(state, owner, demand),
            shares_guarded: consents(state, owner),
            vram_mib_at_most: state
                .tree
                .chain(owner)
                .filter_map(|scope| scope.policy.max_vram_mib_per_job)
                .min()
                .unwrap_or(u64::MAX),
        }
    }
}

/// The weakest level that policies and the job accept, of the job itself and of its neighbours.
fn at_least(state: &State, owner: ScopeId, demand: &Demand) -> Isolation {
    let policies = state
        .tree
        .chain(owner)
        .filter_map(|scope| scope.policy.min_isolation);
    policies.max().unwrap_or(Isolation::Guarded).max(demand.isolation)
}

/// The nearest word above on sharing devices with other tenants at `guarded`; silence means no.
fn consents(state: &State, owner: ScopeId) -> bool {
    state
        .tree
        .chain(owner)
        .find_map(|scope| scope.policy.share_guarded)
        .unwrap_or(false)
}

/// Whether every policy above accepts jobs of this other tenant on a device of ours.
fn shares_with(state: &State, owner: ScopeId, other: Option<TenantId>) -> bool {
    state.tree.chain(owner).all(|scope| {
        let named = scope.policy.share_with.as_ref();
        named.is_none_or(|tenants| other.is_some_and(|other| tenants.contains(&other)))
    })
}

fn allows_class(state: &State, owner: ScopeId, class: &str) -> bool {
    state.tree.chain(owner).all(|scope| {
        scope
            .policy
            .classes
            .as_ref()
            .is_none_or(|classes| classes.contains(class))
    })
}

/// Every place the job could go now, one for each GPU class, best first; or why there is none.
pub fn places(
    state: &State,
    owner: ScopeId,
    spec: &JobSpec,
    volumes: VolumeNeeds,
    stay: Stay,
    at: Time,
) -> Result<Vec<Place>, Refusal> {
    let demand = &spec.demand;
    let wall = Wall::of(state, owner, demand);
    let image = spec
        .image
        .as_deref()
        .and_then(|image| Some(image.parse::<ImageName>().ok()?.key()));
    // The whole fleet is looked at, so nothing is built for a node before it is the best of its class.
    let mut best: Vec<Candidate<'_>> = Vec::new();
    let mut classes: Vec<(&str, bool)> = Vec::new();
    let mut fitting = Vec::new();
    let takes_volumes = |node: &&Node| node.status == NodeStatus::Up && volumes.are_met_by(node);
    let promised = masked(state, stay, at);
    let nodes = state
        .fleet
        .nodes()
        .map(|node| promised.get(&node.id).unwrap_or(node));
    for node in nodes.filter(takes_volumes) {
        let cpu_left = node
            .cpu_milli
            .checked_sub(node.used_cpu_milli)
            .and_then(|left| left.checked_sub(demand.cpu_milli));
        let memory_left = node
            .memory_mib
            .checked_sub(node.used_memory_mib)
            .and_then(|left| left.checked_sub(demand.memory_mib));
        let (Some(cpu_left), Some(_)) = (cpu_left, memory_left) else {
            continue;
        };
        let lacks_image = image.as_deref().is_some_and(|image| !node.images.contains(image));
        if demand.gpus == 0 {
            offer(
                &mut best,
                Candidate {
                    left: u64::from(cpu_left),
                    lacks_image,
                    node,
                    class: None,
                },
            );
            continue;
        }
        let mut last = None;
        for class in node
            .gpus
            .iter()
            .map(|gpu| &*gpu.facts.class)
            .filter(|class| demand.class.as_deref().is_none_or(|wanted| wanted == *class))
        {
            // GPUs of one class stand together on nearly every node; asking about a class again only costs time.
            if last.replace(class) == Some(class) {
                continue;
            }
            let known = classes
                .iter()
                .find(|(known, _)| *known == class)
                .map(|(_, allowed)| *allowed);
            let allowed = known.unwrap_or_else(|| {
                classes.push((class, allows_class(state, owner, class)));
                classes[classes.len() - 1].1
            });
            if !allowed {
                continue;
            }
            if let Some(left) = fit(state, node, class, demand, &wall, &mut fitting) {
                offer(
                    &mut best,
                    Candidate {
                        left,
                        lacks_image,
                        node,
                        class: Some(class),
                    },
                );
            }
        }
    }
    if best.is_empty() {
        return Err(volumes.explain(state).unwrap_or_else(|| none_now(state, demand)));
    }
    best.sort_by_key(|candidate| (candidate.rank(), candidate.node.id));
    let places = best.iter().filter_map(|candidate| match candidate.class {
        None => Some(on_cpu(candidate.node)),
        Some(class) => on_node(state, candidate.node, class, demand, &wall),
    });
    Ok(places.collect())
}

/// The places a job could have on this node, as it is or as it might be, one for each GPU class.
pub(super) fn places_on(
    state: &State,
    node: &Node,
    owner: ScopeId,
    demand: &Demand,
    volumes: VolumeNeeds,
) -> Vec<Place> {
    let enough = node.status == NodeStatus::Up
        && volumes.are_met_by(node)
        && node.used_cpu_milli.saturating_add(demand.cpu_milli) <= node.cpu_milli
        && node.used_memory_mib.saturating_add(demand.memory_mib) <= node.memory_mib;
    if !enough {
        return vec![];
    }
    if demand.gpus == 0 {
        return vec![on_cpu(node)];
    }
    let wall = Wall::of(state, owner, demand);
    let mut classes: Vec<&str> = node.gpus.iter().map(|gpu| &*gpu.facts.class).collect();
    classes.sort_unstable();
    classes.dedup();
    let wanted = |class: &&str| {
        demand.class.as_deref().is_none_or(|wanted| wanted == *class) && allows_class(state, owner, class)
    };
    let places = classes
        .into_iter()
        .filter(wanted)
        .filter_map(|class| on_node(state, node, class, demand, &wall));
    places.collect()
}

struct Candidate<'a> {
    /// What would be left over; less is better.
    left: u64,
    /// The job's image would have to be fetched; decides only between places that are equal otherwise.
    lacks_image: bool,
    node: &'a Node,
    class: Option<&'a str>,
}

impl Candidate<'_> {
    fn rank(&self) -> (u64, bool) {
        (self.left, self.lacks_image)
    }
}

/// Keeps the tightest place of each class.
fn offer<'a>(best: &mut Vec<Candidate<'a>>, candidate: Candidate<'a>) {
    match best.iter_mut().find(|known| known.class == candidate.class) {
        Some(known) if candidate.rank() < known.rank() => *known = candidate,
        Some(_) => {}
        None => best.push(candidate),
    }
}

fn on_cpu(node: &Node) -> Place {
    Place {
        node: node.id,
        slices: Vec::new(),
        class: None,
        isolation: Isolation::Guarded,
        isolation_why: "no device is given; CPU, memory and time are limited by the node's kernel".into(),
    }
}

/// VRAM a demand takes of this GPU: a whole one comes with all of it.
pub(crate) fn vram_wanted(gpu: &Gpu, demand: &Demand) -> u64 {
    if demand.compute_permille == 1000 {
        gpu.facts.vram_mib
    } else {
        demand.vram_mib
    }
}

/// The slice of this GPU that the demand would get now, by room alone.
fn sliced(state: &State, gpu: &Gpu, demand: &Demand, wall: &Wall) -> Option<Slice> {
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
fn left(gpu: &Gpu, slice: &Slice, demand: &Demand) -> Option<u64> {
    let share = (1000 - gpu.used_permille).checked_sub(slice.compute_permille.into())?;
    let free = gpu.facts.vram_mib.saturating_sub(gpu.used_vram_mib);
    let vram = free.checked_sub(slice.vram_mib.max(demand.vram_mib))?;
    Some(vram * 1000 / gpu.facts.vram_mib + u64::from(share))
}

fn allows_vram(slice: &Slice, demand: &Demand, wall: &Wall) -> bool {
    slice.vram_mib.saturating_mul(demand.gpus.into()) <= wall.vram_mib_at_most
}

/// The tightest GPUs of the class on this node, as (what is left, which), if there are enough; and what is left in all.
fn fit(
    state: &State,
    node: &Node,
    class: &str,
    demand: &Demand,
    wall: &Wall,
    fitting: &mut Vec<(u64, usize)>,
) -> Option<u64> {
    fitting.clear();
    for (which, gpu) in node.gpus.iter().enumerate() {
        if *gpu.facts.class != *class {
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

fn on_node(state: &State, node: &Node, class: &str, demand: &Demand, wall: &Wall) -> Option<Place> {
    let mut fitting = Vec::new();
    fit(state, node, class, demand, wall, &mut fitting)?;
    let gpus = || fitting.iter().map(|&(_, which)| &node.gpus[which]);
    let (isolation, why) = gpus()
        .filter_map(|gpu| level(state, gpu, demand, wall))
        .min_by_key(|(level, _)| *level)?;
    let slices: Vec<Slice> = gpus()
        .map(|gpu| sliced(state, gpu, demand, wall))
        .collect::<Option<_>>()?;
    let kinds: Vec<&str> = slices
        .iter()
        .filter_map(|slice| Some(slice.part.as_ref()?.profile.as_str()))
        .collect();
    Some(Place {
        node: node.id,
        class: Some(class.into()),
        isolation,
        isolation_why: if kinds.is_empty() {
            why.into()
        } else {
            format!("{}: {why}", kinds.join(", "))
        },
        slices,
    })
}

/// The strongest level at which the device could give the demand. A device that also gives shares is cut for whom
/// nothing weaker will do, and for the others once it is `parted`.
fn offered(facts: &GpuFacts, demand: &Demand, at_least: Isolation, parted: bool) -> Option<Isolation> {
    let has = |level| facts.isolation.contains_key(&level);
    let shares = has(Isolation::Fenced) || has(Isolation::Guarded);
    let cuts = (at_least == Isolation::Partition || !shares || parted) && part::could(facts, demand);
    if cuts && part::wants_part(demand) {
        return Some(Isolation::Partition);
    }
    let gives = |level: &Isolation| match level {
        Isolation::Exclusive => demand.compute_permille == 1000 && !parted,
        Isolation::Partition => cuts,
        Isolation::Fenced | Isolation::Guarded => !parted,
    };
    facts.isolation.keys().rev().copied().find(gives)
}

fn offered_now(state: &State, gpu: &Gpu, demand: &Demand, wall: &Wall) -> Option<Isolation> {
    let parted = part::is_cut(&gpu.facts) && part::is_parted(state, gpu);
    offered(&gpu.facts, demand, wall.at_least, parted)
}

/// The strongest level this GPU gives the demand, if it satisfies everybody on it.
fn level<'a>(state: &State, gpu: &'a Gpu, demand: &Demand, wall: &Wall) -> Option<(Isolation, &'a str)> {
    let level = offered_now(state, gpu, demand, wall)?;
    let why = gpu.facts.isolation.get(&level)?;
    let one_tenant = gpu
        .facts
        .hardware
        .as_ref()
        .is_some_and(|hardware| hardware.one_tenant);
    // A program is under the service of one such device only.
    if one_tenant && level == Isolation::Guarded && demand.gpus > 1 {
        return None;
    }
    let neighbours_agree = gpu.holders.iter().all(|holder| {
        let neighbour = &state.fleet.allocations[holder];
        let Some(job) = state.jobs.get(&neighbour.job) else {
            return false;
        };
        let owner = ScopeId::User(job.owner);
        let strong_enough =
            neighbour.isolation >= wall.at_least && level >= at_least(state, owner, &job.spec.demand);
        let tenant = state.tree.tenant_of(owner);
        let accept = shares_with(state, wall.owner, tenant) && shares_with(state, owner, wall.tenant);
        let agree = (level >= Isolation::Fenced && neighbour.isolation >= Isolation::Fenced)
            || (!one_tenant && wall.shares_guarded && consents(state, owner));
        strong_enough && (tenant == wall.tenant || accept && agree)
    });
    (level >= wall.at_least && neighbours_agree).then_some((level, why.as_str()))
}

/// The class of the GPUs that a paused allocation had, if all of them have room for it again.
pub fn has_room_again<'a>(
    state: &'a State,
    owner: ScopeId,
    demand: &Demand,
    allocation: &Allocation,
    stay: Stay,
) -> Result<&'a str, Refusal> {
    let wall = Wall::of(state, owner, demand);
    let node = state.fleet.node(allocation.node).ok_or_else(Refusal::not_found)?;
    if node.status == NodeStatus::Lost {
        return Err(none_now(state, demand));
    }
    let mut class = None;
    for slice in &allocation.slices {
        let gpu = node
            .gpu(slice.gpu)
            .filter(|gpu| gpu.present && gpu.quarantine.is_none());
        let Some(gpu) = gpu else {
            return Err(Refusal::new(
                Code::NoCapacity,
                format!("a GPU it had on {} takes no work now", node.name),
            )
            .hint("it resumes when the GPU is back in service; or stop it and submit it anew"));
        };
        let mut promises = against(state, node.id, stay);
        if let Some(to) = promises.find(|promise| promise.slices.iter().any(|kept| kept.gpu == gpu.id)) {
            return Err(Refusal::new(
                Code::Promised,
                format!(
                    "the GPU it had on {} is promised to {}",
                    node.name,
                    named(state, to.job, owner)
                ),
            )
            .hint("it resumes when jobs there end"));
        }
        if left(gpu, slice, demand).is_none() {
            return Err(Refusal::new(
                Code::NoCapacity,
                format!("the GPU it had on {} has no room for it now", node.name),
            )
            .hint("it resumes when jobs there end"));
        }
        if level(state, gpu, demand, &wall).is_none_or(|(level, _)| level < allocation.isolation) {
            return Err(Refusal::new(
                Code::NotShared,
                format!(
                    "those now on the GPU it had on {} and this job's tenant have not agreed to share it",
                    node.name
                ),
            )
            .hint("it resumes when jobs there end"));
        }
        class = Some(&*gpu.facts.class);
    }
    class.ok_or_else(Refusal::not_found)
}

/// Whether any device of the fleet, empty, could hold one GPU of the demand; an empty fleet might grow.
pub fn refuse_beyond_fleet(state: &State, demand: &Demand, volumes: VolumeNeeds) -> Result<(), Refusal> {
    let mut nodes = state.fleet.nodes().filter(|node| node.cpu_milli > 0).peekable();
    if nodes.peek().is_none() {
        return Ok(());
    }
    let fits = |node: &Node| {
        let gpus = node.gpus.iter().filter(|gpu| {
            offered(&gpu.facts, demand, demand.isolation, false)
                .is_some_and(|level| level >= demand.isolation)
                && demand.vram_mib <= gpu.facts.vram_mib
                && demand
                    .class
                    .as_deref()
                    .is_none_or(|class| class == &*gpu.facts.class)
        });
        demand.cpu_milli <= node.cpu_milli
            && demand.memory_mib <= node.memory_mib
            && gpus.count() >= demand.gpus as usize
    };
    if nodes.any(|node| volumes.could_be_met_by(node) && fits(node)) {
        return Ok(());
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

/// Why a job finds no place now: no room, or room behind a wall.
pub fn explain(state: &State, owner: ScopeId, spec: &JobSpec, volumes: VolumeNeeds) -> Refusal {
    let demand = &spec.demand;
    let wall = Wall::of(state, owner, demand);
    let wanted = |gpu: &&Gpu| {
        let of_class = demand
            .class
            .as_deref()
            .is_none_or(|class| class == &*gpu.facts.class);
        of_class && sliced(state, gpu, demand, &wall).is_some()
    };
    let roomy = state.fleet.nodes().find(|node| {
        node.status == NodeStatus::Up
            && volumes.are_met_by(node)
            && node.used_cpu_milli.saturating_add(demand.cpu_milli) <= node.cpu_milli
            && node.used_memory_mib.saturating_add(demand.memory_mib) <= node.memory_mib
            && node.gpus.iter().filter(wanted).count() >= demand.gpus as usize
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

fn none_now(state: &State, demand: &Demand) -> Refusal {
    if state.fleet.nodes().all(|node| node.status != NodeStatus::Up) {
        return Refusal::new(Code::NoNodes, "no node is up").hint("it starts when a node joins or returns");
    }
    Refusal::new(
        Code::NoCapacity,
        format!("no node has {} free now", words(demand)),
    )
    .hint("it starts when running jobs end, or when a node joins")
}

fn words(demand: &Demand) -> String {
    let mut words = format!(
        "{}.{:03} CPU and {} MiB memory",
        demand.cpu_milli / 1000,
        demand.cpu_milli % 1000,
        demand.memory_mib
    );
    if demand.gpus > 0 {
        let class = demand.class.as_deref().unwrap_or("any class");
        words = format!(
            "{} × {} ‰ of a GPU ({class}) with {} MiB VRAM, {words}",
            demand.gpus, demand.compute_permille, demand.vram_mib
        );
    }
    words
}
