//! Walls: what policies and neighbours ask of a device that a job would share, and at which level it could be given.
//!
//! Deliberately absent: room. Called by `place.rs` for each device it thinks of.

use std::collections::BTreeSet;

use super::company::Company;
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
    /// VRAM of the whole job that policies allow.
    pub vram_mib_at_most: u64,
    words: Words,
}

impl Wall {
    pub fn of(state: &State, owner: ScopeId, demand: &Demand) -> Wall {
        let words = Words::of(state, owner);
        let most = state.tree.chain(owner);
        let most = most.filter_map(|scope| scope.policy.max_vram_mib_per_job).min();
        Wall {
            owner,
            tenant: words.tenant,
            at_least: words.at_least.max(demand.isolation),
            vram_mib_at_most: most.unwrap_or(u64::MAX),
            words,
        }
    }

    /// Whether it shares devices with other tenants at `guarded`.
    pub fn shares_guarded(&self) -> bool {
        self.words.shares_guarded
    }

    /// Whether every policy above accepts jobs of this other tenant on a device of ours.
    pub fn share_with(&self, other: Option<TenantId>) -> bool {
        let named = self.words.share_with.as_ref();
        named.is_none_or(|tenants| other.is_some_and(|other| tenants.contains(&other)))
    }
}

/// What the policies above an owner say of neighbours, gathered on one way up.
pub(super) struct Words {
    pub tenant: Option<TenantId>,
    /// The weakest level they accept, of the job itself and of its neighbours.
    pub at_least: Isolation,
    /// The nearest word on sharing devices with other tenants at `guarded`; silence means no.
    pub shares_guarded: bool,
    /// The other tenants that every policy accepts; none where no policy names any.
    pub share_with: Option<BTreeSet<TenantId>>,
}

impl Words {
    pub fn of(state: &State, owner: ScopeId) -> Words {
        let mut words = Words {
            tenant: None,
            at_least: Isolation::Guarded,
            shares_guarded: false,
            share_with: None,
        };
        let mut shares_guarded = None;
        for scope in state.tree.chain(owner) {
            if let ScopeId::Tenant(tenant) = scope.id {
                words.tenant = Some(tenant);
            }
            let policy = &scope.policy;
            words.at_least = policy
                .min_isolation
                .map_or(words.at_least, |level| words.at_least.max(level));
            shares_guarded = shares_guarded.or(policy.share_guarded);
            words.share_with = Words::both(words.share_with, policy.share_with.as_ref());
        }
        words.shares_guarded = shares_guarded.unwrap_or(false);
        words
    }

    /// The tenants that both accept, where either names any.
    pub fn both(
        one: Option<BTreeSet<TenantId>>,
        other: Option<&BTreeSet<TenantId>>,
    ) -> Option<BTreeSet<TenantId>> {
        match (one, other) {
            (one, None) => one,
            (None, Some(other)) => Some(other.clone()),
            (Some(one), Some(other)) => Some(one.intersection(other).copied().collect()),
        }
    }
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
    let offered = level_offered(state, gpu, demand, wall)?;
    accepted_by(&Company::of(state, gpu), gpu, wall, offered)
}

/// The level that everybody on the GPU accepts beside them.
pub(super) fn accepted_by<'a>(
    company: &Company,
    gpu: &Gpu,
    wall: &Wall,
    (level, why): (Isolation, &'a str),
) -> Option<(Isolation, &'a str)> {
    let agrees = company.agrees(wall, level, is_of_one_tenant(&gpu.facts));
    agrees.then_some((level, why))
}

/// The strongest level this GPU gives the demand, whoever is on it.
pub(super) fn level_offered<'a>(
    state: &State,
    gpu: &'a Gpu,
    demand: &Demand,
    wall: &Wall,
) -> Option<(Isolation, &'a str)> {
    let level = offered_now(state, gpu, demand, wall)?;
    let why = gpu.facts.isolation.get(&level)?;
    if level < wall.at_least {
        return None;
    }
    // A program is under the service of one such device only.
    if is_of_one_tenant(&gpu.facts) && level == Isolation::Guarded && demand.gpus > 1 {
        return None;
    }
    Some((level, why.as_str()))
}
