//! Placement: which slices a job gets. Best fit: the node, and on it the GPUs, that leave the least over.
//!
//! Pure: the same state gives the same placement. Nothing here looks at prices or quota.

use super::allocation::Slice;
use super::fleet::{Gpu, Node, NodeStatus};
use crate::id::{NodeId, TenantId};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
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

/// What the tenants' policies ask of a device shared with others.
struct Wall {
    tenant: Option<TenantId>,
    at_least: Isolation,
    shares_guarded: bool,
    /// VRAM of the whole job that policies allow.
    vram_mib_at_most: u64,
}

impl Wall {
    fn of(state: &State, owner: ScopeId, demand: &Demand) -> Wall {
        Wall {
            tenant: state.tree.tenant_of(owner),
            at_least: at_least(state, owner, demand),
            shares_guarded: consents(state, owner),
            vram_mib_at_most: state.tree.chain(owner).filter_map(|scope| scope.policy.max_vram_mib_per_job).min().unwrap_or(u64::MAX),
        }
    }
}

/// The weakest level that policies and the job accept, of the job itself and of its neighbours.
fn at_least(state: &State, owner: ScopeId, demand: &Demand) -> Isolation {
    let policies = state.tree.chain(owner).filter_map(|scope| scope.policy.min_isolation);
    policies.max().unwrap_or(Isolation::Guarded).max(demand.isolation)
}

/// The nearest word above on sharing devices with other tenants at `guarded`; silence means no.
fn consents(state: &State, owner: ScopeId) -> bool {
    state.tree.chain(owner).find_map(|scope| scope.policy.share_guarded).unwrap_or(false)
}

fn allows_class(state: &State, owner: ScopeId, class: &str) -> bool {
    state.tree.chain(owner).all(|scope| scope.policy.classes.as_ref().is_none_or(|classes| classes.contains(class)))
}

/// Every place the job could go now, one for each GPU class, best first; or why there is none.
pub fn places(state: &State, owner: ScopeId, spec: &JobSpec) -> Result<Vec<Place>, Refusal> {
    let demand = &spec.demand;
    let wall = Wall::of(state, owner, demand);
    let mut best: Vec<(u64, Place)> = Vec::new();
    for node in state.fleet.nodes().filter(|node| node.status == NodeStatus::Up) {
        let cpu_left = node.cpu_milli.checked_sub(node.used_cpu_milli).and_then(|left| left.checked_sub(demand.cpu_milli));
        let memory_left = node.memory_mib.checked_sub(node.used_memory_mib).and_then(|left| left.checked_sub(demand.memory_mib));
        let (Some(cpu_left), Some(_)) = (cpu_left, memory_left) else { continue };
        if demand.gpus == 0 {
            offer(&mut best, u64::from(cpu_left), on_cpu(node));
            continue;
        }
        for class in classes(node, demand).filter(|class| allows_class(state, owner, class)) {
            if let Some((left, place)) = on_node(state, node, class, demand, &wall) {
                offer(&mut best, left, place);
            }
        }
    }
    best.sort_by_key(|(left, place)| (*left, place.node));
    if best.is_empty() { Err(none_now(state, demand)) } else { Ok(best.into_iter().map(|(_, place)| place).collect()) }
}

/// Keeps the tightest place of each class.
fn offer(best: &mut Vec<(u64, Place)>, left: u64, place: Place) {
    match best.iter_mut().find(|(_, known)| known.class == place.class) {
        Some((known_left, known)) if left < *known_left => {
            *known_left = left;
            *known = place;
        }
        Some(_) => {}
        None => best.push((left, place)),
    }
}

fn classes<'a>(node: &'a Node, demand: &'a Demand) -> impl Iterator<Item = &'a str> {
    let mut seen: Vec<&str> = Vec::new();
    node.gpus.iter().map(|gpu| &*gpu.facts.class).filter(move |class| {
        let fresh = !seen.contains(class);
        seen.push(class);
        fresh && demand.class.as_deref().is_none_or(|wanted| wanted == *class)
    })
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
fn vram_wanted(gpu: &Gpu, demand: &Demand) -> u64 {
    if demand.compute_permille == 1000 { gpu.facts.vram_mib } else { demand.vram_mib }
}

fn on_node(state: &State, node: &Node, class: &str, demand: &Demand, wall: &Wall) -> Option<(u64, Place)> {
    let candidates = node.gpus.iter().filter(|gpu| gpu.present && *gpu.facts.class == *class);
    let mut fitting: Vec<(u64, &Gpu, (Isolation, String))> = candidates
        .filter_map(|gpu| {
            let free_share = 1000 - gpu.used_permille;
            let free_vram = gpu.facts.vram_mib.checked_sub(gpu.used_vram_mib)?;
            let enough = u32::from(demand.compute_permille) <= free_share && vram_wanted(gpu, demand).max(demand.vram_mib) <= free_vram
                && vram_wanted(gpu, demand).saturating_mul(demand.gpus.into()) <= wall.vram_mib_at_most;
            let level = enough.then(|| level(state, gpu, demand, wall)).flatten()?;
            let left = (free_vram - vram_wanted(gpu, demand)) * 1000 / gpu.facts.vram_mib + u64::from(free_share - u32::from(demand.compute_permille));
            Some((left, gpu, level))
        })
        .collect();
    fitting.sort_by_key(|(left, gpu, _)| (*left, gpu.id));
    let wanted = demand.gpus as usize;
    if fitting.len() < wanted {
        return None;
    }
    fitting.truncate(wanted);
    let left = fitting.iter().map(|(left, ..)| left).sum();
    let (isolation, isolation_why) = fitting.iter().map(|(_, _, level)| level).min_by_key(|(level, _)| *level)?.clone();
    let slices = fitting.iter().map(|(_, gpu, _)| Slice {
        gpu: gpu.id,
        vram_mib: vram_wanted(gpu, demand),
        compute_permille: demand.compute_permille,
    });
    Some((left, Place { node: node.id, slices: slices.collect(), class: Some(class.into()), isolation, isolation_why }))
}

/// Whether a device that offers this level gives it to a slice, or only to a whole GPU.
fn gives(level: Isolation, whole: bool) -> bool {
    match level {
        Isolation::Exclusive => whole,
        Isolation::Partition => false,
        Isolation::Fenced | Isolation::Guarded => true,
    }
}

/// The strongest level this GPU gives the demand, if it satisfies everybody on it.
fn level(state: &State, gpu: &Gpu, demand: &Demand, wall: &Wall) -> Option<(Isolation, String)> {
    let whole = demand.compute_permille == 1000;
    let (&level, why) = gpu.facts.isolation.iter().rev().find(|(level, _)| gives(**level, whole))?;
    let foreign_alone = gpu.holders.iter().all(|holder| {
        let neighbour = &state.fleet.allocations[holder];
        let Some(job) = state.jobs.get(&neighbour.job) else { return false };
        let owner = ScopeId::User(job.owner);
        let strong_enough = neighbour.isolation >= wall.at_least && level >= at_least(state, owner, &job.spec.demand);
        let may_meet = state.tree.tenant_of(owner) == wall.tenant
            || (level >= Isolation::Fenced && neighbour.isolation >= Isolation::Fenced)
            || (wall.shares_guarded && consents(state, owner));
        strong_enough && may_meet
    });
    let shared_below = level >= wall.at_least && foreign_alone;
    shared_below.then(|| (level, why.clone()))
}

/// Whether any device of the fleet, empty, could hold one GPU of the demand; an empty fleet might grow.
pub fn refuse_beyond_fleet(state: &State, demand: &Demand) -> Result<(), Refusal> {
    let mut nodes = state.fleet.nodes().filter(|node| node.cpu_milli > 0).peekable();
    if nodes.peek().is_none() {
        return Ok(());
    }
    let fits = |node: &Node| {
        let gpus = node.gpus.iter().filter(|gpu| {
            let whole = demand.compute_permille == 1000;
            let walled = gpu.facts.isolation.keys().any(|level| gives(*level, whole) && *level >= demand.isolation);
            walled && demand.vram_mib <= gpu.facts.vram_mib && demand.class.as_deref().is_none_or(|class| class == &*gpu.facts.class)
        });
        demand.cpu_milli <= node.cpu_milli && demand.memory_mib <= node.memory_mib && gpus.count() >= demand.gpus as usize
    };
    if nodes.any(fits) {
        return Ok(());
    }
    Err(Refusal::new(Code::ExceedsFleet, format!("no node has {} together", words(demand)))
        .field("/demand")
        .hint("ask for less, or for another class; `tenure node list` shows what there is"))
}

fn none_now(state: &State, demand: &Demand) -> Refusal {
    if state.fleet.nodes().all(|node| node.status != NodeStatus::Up) {
        return Refusal::new(Code::NoNodes, "no node is up").hint("it starts when a node joins or returns");
    }
    Refusal::new(Code::NoCapacity, format!("no node has {} free now", words(demand))).hint("it starts when running jobs end, or when a node joins")
}

fn words(demand: &Demand) -> String {
    let mut words = format!("{}.{:03} CPU and {} MiB memory", demand.cpu_milli / 1000, demand.cpu_milli % 1000, demand.memory_mib);
    if demand.gpus > 0 {
        let class = demand.class.as_deref().unwrap_or("any class");
        words = format!("{} × {} ‰ of a GPU ({class}) with {} MiB VRAM, {words}", demand.gpus, demand.compute_permille, demand.vram_mib);
    }
    words
}
