//! Taking back what was lent: a job within its scopes' nominal quota of a class may have jobs of other scopes leave that
//! borrow of that class.
//!
//! Two scopes are compared where the chains of two jobs part: only there one lends to the other. Nobody is asked for
//! more than a scope borrows, but a job is one piece: what straddles the nominal quota leaves whole. Absent: rank and
//! bounds (`victim`). Asked by `evict`.

use std::collections::BTreeMap;

use super::lend::{Footing, footing_by, meter, use_by};
use crate::id::{JobId, NodeId};
use crate::schedule::calendar;
use crate::schedule::pass::Ask;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::workload::job::Job;

/// Who lent how much of which class, so far not taken back.
pub struct Reclaim {
    job: JobId,
    /// The evictor's scopes, lowest first.
    chain: Vec<ScopeId>,
    /// Classes it is within nominal quota of.
    classes: Vec<Box<str>>,
    /// What a scope borrows beyond what was taken back on a node: most plans are about one node.
    left_milli: BTreeMap<(NodeId, ScopeId, Box<str>), u64>,
    borrowed_milli: BTreeMap<(ScopeId, Box<str>), u64>,
}

/// Of what a borrower's job would be taken back.
pub struct Lent {
    pub scope: ScopeId,
    pub class: Box<str>,
    /// What the scope borrows in all.
    pub borrowed_milli: u64,
}

impl Reclaim {
    pub fn by(state: &State, ask: &Ask<'_>) -> Reclaim {
        let demand = &ask.spec.demand;
        let used = |scope: &_| calendar::used(state, scope, ask.job);
        let sure = |class: &str| {
            footing_by(state, ask.owner, class, demand.gpu_milli(), used) == Ok(Footing::Nominal)
        };
        let nominal = state.tree.chain(ask.owner).flat_map(|scope| scope.sure_classes());
        let mut classes: Vec<Box<str>> = nominal
            .filter(|class| demand.class.as_ref().is_none_or(|wanted| wanted == *class))
            .cloned()
            .collect();
        classes.sort_unstable();
        classes.dedup();
        classes.retain(|class| sure(class));
        Reclaim {
            job: ask.job,
            chain: state.tree.chain(ask.owner).map(|scope| scope.id).collect(),
            classes,
            left_milli: BTreeMap::new(),
            borrowed_milli: BTreeMap::new(),
        }
    }

    /// Whether the job may take anything back.
    pub fn is_due(&self) -> bool {
        !self.classes.is_empty()
    }

    /// Whether the job runs, on this node, on what its scope borrows from one of ours.
    pub fn lent_to(&mut self, state: &State, job: &Job, node: NodeId) -> Option<Lent> {
        let class = job.admission.as_ref()?.hold.class.as_deref()?;
        if !self.classes.iter().any(|known| **known == *class) {
            return None;
        }
        let mut parted = None;
        let mut theirs = state.tree.chain(ScopeId::User(job.owner));
        let common = theirs.find_map(|scope| {
            let at = self.chain.iter().position(|ours| *ours == scope.id);
            if at.is_none() {
                parted = Some(scope);
            }
            at
        })?;
        let (scope, ours) = (parted?, self.chain[common.checked_sub(1)?]);
        state.tree.get(ours)?.is_sure_of(class).then_some(())?;
        let of = (scope.id, Box::from(class));
        let borrowed_milli = *self.borrowed_milli.entry(of.clone()).or_insert_with(|| {
            let used = |scope: &_| {
                calendar::used(state, scope, self.job)
                    .get(&meter(class))
                    .unwrap_or(0)
            };
            use_by(scope, class, used).map_or(0, |of_scope| of_scope.borrowed_milli())
        });
        let left = self
            .left_milli
            .entry((node, of.0, of.1))
            .or_insert(borrowed_milli);
        (*left > 0).then(|| Lent {
            scope: scope.id,
            class: class.into(),
            borrowed_milli,
        })
    }

    /// The job is asked to leave this node for what it was lent.
    pub fn take_back(&mut self, lent: &Lent, node: NodeId, job: &Job) {
        if let Some(left) = self.left_milli.get_mut(&(node, lent.scope, lent.class.clone())) {
            *left = left.saturating_sub(job.spec.demand.gpu_milli());
        }
    }
}
