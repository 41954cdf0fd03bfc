//! Walls: what policies and neighbours ask of a device that a job would share, and at which level it could be given.
//!
//! Deliberately absent: room. Called by `place.rs` for each device it thinks of.

use crate::id::TenantId;
use crate::schedule::fleet::{Gpu, GpuFacts};
use crate::schedule::part;
use crate::schedule::seen::{Make, is_of_one_tenant};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::workload::spec::{Demand, Isolation};

/// What the tenants' policies ask of a device shared with others.
pub(super) struct Wall {
    pub owner: ScopeId,
    pub tenant: Option<TenantId>,
    pub at_least: Isolation,
    shares_guarded: bool,
    /// VRAM of the whole job that policies allow.
    pub vram_mib_at_most: u64,
}

impl Wall {
    pub fn of(state: &State, owner: ScopeId, demand: &Demand) -> Wall {
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

pub(super) fn allows_class(state: &State, owner: ScopeId, class: &str) -> bool {
    state.tree.chain(owner).all(|scope| {
        scope
            .policy
            .classes
            .as_ref()
            .is_none_or(|classes| classes.contains(class))
    })
}

/// The strongest level at which the device could give the demand. A device that also gives shares is cut for whom
/// nothing weaker will do, and for the others once it is `parted`.
pub(super) fn offered(
    facts: &GpuFacts,
    demand: &Demand,
    at_least: Isolation,
    parted: bool,
) -> Option<Isolation> {
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

pub(super) fn offered_now(state: &State, gpu: &Gpu, demand: &Demand, wall: &Wall) -> Option<Isolation> {
    let parted = part::is_cut(&gpu.facts) && part::is_parted(state, gpu);
    offered(&gpu.facts, demand, wall.at_least, parted)
}

/// Whether GPUs of this make, not cut, could ever be given to the demand behind its wall.
pub(super) fn could_give(make: &Make, demand: &Demand, wall: &Wall) -> bool {
    let gives = |level: &&Isolation| match level {
        Isolation::Exclusive => demand.compute_permille == 1000,
        Isolation::Partition => false,
        Isolation::Fenced | Isolation::Guarded => true,
    };
    let strongest = make.levels.iter().rev().find(gives);
    strongest.is_some_and(|level| *level >= wall.at_least)
}

/// The strongest level this GPU gives the demand, if it satisfies everybody on it.
pub(super) fn level<'a>(
    state: &State,
    gpu: &'a Gpu,
    demand: &Demand,
    wall: &Wall,
) -> Option<(Isolation, &'a str)> {
    let level = offered_now(state, gpu, demand, wall)?;
    let why = gpu.facts.isolation.get(&level)?;
    let one_tenant = is_of_one_tenant(&gpu.facts);
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
