//! The company on a GPU: what everybody on it has and asks of a newcomer, summed up by tenant.
//!
//! A hundred small slices of one GPU are a few tenants that ask one thing each, so a newcomer is held against those and
//! not against every holder and the policies above it. Kept with the index, which is a memo: an entry holds as long as
//! the same allocations came first and nothing in the tree was set anew; whoever came since is added, and anything
//! else is summed up afresh. Absent: room, and which level a device gives (`wall.rs`).

use std::collections::{BTreeMap, BTreeSet};

use super::row::is_bursty;
use super::wall::{Wall, Words};
use crate::id::{AllocationId, GpuId, TenantId};
use crate::schedule::fleet::Gpu;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::workload::spec::Isolation;

/// One tenant's jobs on a GPU, together.
#[derive(Debug)]
struct Party {
    tenant: Option<TenantId>,
    /// The weakest level that any of them has.
    weakest: Isolation,
    /// The strongest that any of them asks of its neighbours.
    at_least: Isolation,
    /// Whether all share with other tenants at `guarded`; and whether those do that are themselves below `fenced`.
    share_guarded: bool,
    weak_share_guarded: bool,
    /// The other tenants that all of them accept; none where no policy names any.
    share_with: Option<BTreeSet<TenantId>>,
}

impl Party {
    fn accepts(&self, other: Option<TenantId>) -> bool {
        let named = self.share_with.as_ref();
        named.is_none_or(|tenants| other.is_some_and(|other| tenants.contains(&other)))
    }
}

/// Everybody on one GPU.
#[derive(Debug, Default)]
pub(in crate::schedule) struct Company {
    holders: Vec<AllocationId>,
    parties: Vec<Party>,
    bursty: bool,
    steady: bool,
    /// Somebody is there of whom nothing is known.
    stranger: bool,
}

impl Company {
    pub fn of(state: &State, gpu: &Gpu) -> Company {
        let mut company = Company::default();
        gpu.holders.iter().for_each(|holder| company.add(state, *holder));
        company
    }

    fn add(&mut self, state: &State, holder: AllocationId) {
        self.holders.push(holder);
        let neighbour = &state.fleet.allocations[&holder];
        let Some(job) = state.jobs.get(&neighbour.job) else {
            self.stranger = true;
            return;
        };
        match is_bursty(job.spec.kind) {
            true => self.bursty = true,
            false => self.steady = true,
        }
        let words = Words::of(state, ScopeId::User(job.owner));
        let at_least = words.at_least.max(job.spec.demand.isolation);
        let shares_weak = words.shares_guarded || neighbour.isolation >= Isolation::Fenced;
        let Some(party) = self.parties.iter_mut().find(|party| party.tenant == words.tenant) else {
            self.parties.push(Party {
                tenant: words.tenant,
                weakest: neighbour.isolation,
                at_least,
                share_guarded: words.shares_guarded,
                weak_share_guarded: shares_weak,
                share_with: words.share_with,
            });
            return;
        };
        party.weakest = party.weakest.min(neighbour.isolation);
        party.at_least = party.at_least.max(at_least);
        party.share_guarded &= words.shares_guarded;
        party.weak_share_guarded &= shares_weak;
        party.share_with = Words::both(party.share_with.take(), words.share_with.as_ref());
    }

    /// Whether all accept somebody behind this wall at this level beside them, and it them.
    pub(super) fn agrees(&self, wall: &Wall, level: Isolation, one_tenant: bool) -> bool {
        let may_be_guarded = !one_tenant && wall.shares_guarded();
        let agrees = |party: &Party| {
            let strong_enough = party.weakest >= wall.at_least && level >= party.at_least;
            let agree = match level >= Isolation::Fenced {
                true => party.weakest >= Isolation::Fenced || (may_be_guarded && party.weak_share_guarded),
                false => may_be_guarded && party.share_guarded,
            };
            let accept = || wall.share_with(party.tenant) && party.accepts(wall.tenant);
            strong_enough && (party.tenant == wall.tenant || agree && accept())
        };
        !self.stranger && self.parties.iter().all(agrees)
    }

    /// Whether work of the other kind is among them.
    pub fn mixes_with(&self, bursty: bool) -> bool {
        match bursty {
            true => self.steady,
            false => self.bursty,
        }
    }
}

/// What is known of the GPUs that were looked at.
#[derive(Debug, Default)]
pub(in crate::schedule) struct Companies {
    of: BTreeMap<GpuId, Company>,
    /// The tree they were summed up by.
    changes: u64,
}

impl Companies {
    pub fn on(&mut self, state: &State, gpu: &Gpu) -> &Company {
        let changes = state.tree.changes();
        if std::mem::replace(&mut self.changes, changes) != changes {
            self.of.clear();
        }
        let company = self.of.entry(gpu.id).or_default();
        if !gpu.holders.starts_with(&company.holders) {
            *company = Company::default();
        }
        for holder in &gpu.holders[company.holders.len()..] {
            company.add(state, *holder);
        }
        company
    }

    pub fn forget(&mut self, gpu: GpuId) {
        self.of.remove(&gpu);
    }
}
