//! The lines of one priority class by whose turn it is: a tree like that of the scopes, each knowing its first.
//!
//! Siblings compare by what they used for their weight, so that two jobs are told apart where their chains part: a
//! tenant gets its share whatever goes on inside others, and divides it among its own by the same rule. A start changes
//! the keys of one chain alone. Absent: which lines there are (`queue`), whether a job fits. Kept by `walk`.

use std::collections::{BTreeMap, BTreeSet};

use super::key::{Band, Key, share_of};
use crate::id::{JobId, UserId};
use crate::meter::{Meter, Resource};
use crate::schedule::queue::Need;
use crate::state::State;
use crate::tenancy::scope::{Scope, ScopeId};
use crate::time::Time;

/// What runs counts as if it had run for this part of the half-life already, so that what was started a moment ago
/// is not forgotten until it is metered.
const RUNNING_PART: u64 = 16;

/// GPU time a scope is held to have had: what it used lately, and what it is using.
pub fn claim_gpu_ms(scope: &Scope, half_life_ms: u64, at: Time) -> u64 {
    let in_use = scope.used.get(&Meter::all(Resource::GpuMilli)).unwrap_or(0);
    let running = u128::from(in_use) * u128::from(half_life_ms / RUNNING_PART) / 1000;
    let running = u64::try_from(running).unwrap_or(u64::MAX);
    scope.lately.gpu_ms(half_life_ms, at).saturating_add(running)
}

/// One line as the order sees it.
#[derive(Debug, Clone)]
pub struct Line {
    pub user: UserId,
    pub need: Need,
}

#[derive(Debug, Clone)]
enum What {
    Scope(ScopeId),
    Line(Box<Line>),
}

#[derive(Debug, Clone)]
struct Branch {
    what: What,
    parent: usize,
    /// Its place among its siblings; none while nothing waits below it.
    key: Option<Key>,
    below: BTreeSet<(Key, usize)>,
}

/// Names a line within one [`Standings`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineAt(usize);

const ROOT: usize = 0;

/// Lines in their order.
#[derive(Debug, Clone)]
pub struct Standings {
    branches: Vec<Branch>,
    scopes: BTreeMap<ScopeId, usize>,
}

impl Default for Standings {
    fn default() -> Self {
        Standings {
            branches: vec![Branch::of(What::Scope(ScopeId::Platform), ROOT)],
            scopes: [(ScopeId::Platform, ROOT)].into(),
        }
    }
}

impl Branch {
    fn of(what: What, parent: usize) -> Branch {
        Branch {
            what,
            parent,
            key: None,
            below: BTreeSet::new(),
        }
    }
}

impl Standings {
    /// The line whose turn it is.
    pub fn first(&self) -> Option<(LineAt, &Line, Band)> {
        let mut at = ROOT;
        loop {
            let (key, below) = *self.branches[at].below.first()?;
            at = below;
            if let What::Line(line) = &self.branches[at].what {
                return Some((LineAt(at), line, key.band));
            }
        }
    }

    pub fn add(&mut self, state: &State, at: Time, line: Line, (band, rank, job): (Band, u64, JobId)) {
        let parent = self.scope(state, ScopeId::User(line.user));
        self.branches.push(Branch::of(What::Line(Box::new(line)), parent));
        self.set(
            state,
            at,
            LineAt(self.branches.len() - 1),
            Some((band, rank, job)),
        );
    }

    /// Gives a line its place anew, after its first job changed or its scopes' use did; none takes it out.
    pub fn set(
        &mut self,
        state: &State,
        at: Time,
        LineAt(mut which): LineAt,
        first: Option<(Band, u64, JobId)>,
    ) {
        let mut key = first.map(|(band, rank, job)| Key {
            band,
            share: 0,
            rank,
            job,
        });
        let half_life_ms = state.half_life_ms();
        loop {
            let branch = &mut self.branches[which];
            let (before, parent) = (std::mem::replace(&mut branch.key, key), branch.parent);
            if which == ROOT {
                return;
            }
            let siblings = &mut self.branches[parent].below;
            if before != key {
                if let Some(before) = before {
                    siblings.remove(&(before, which));
                }
                siblings.extend(key.map(|key| (key, which)));
            }
            let best = siblings.first().map(|(key, _)| *key);
            let What::Scope(scope) = self.branches[parent].what else {
                return;
            };
            let scope = state.tree.get(scope);
            let share = scope.map_or(0, |scope| {
                share_of(claim_gpu_ms(scope, half_life_ms, at), scope.share.weight)
            });
            key = best.map(|best| Key { share, ..best });
            which = parent;
        }
    }

    fn scope(&mut self, state: &State, id: ScopeId) -> usize {
        if let Some(&known) = self.scopes.get(&id) {
            return known;
        }
        let parent = state.tree.get(id).and_then(|scope| scope.parent);
        let parent = parent.map_or(ROOT, |parent| self.scope(state, parent));
        self.branches.push(Branch::of(What::Scope(id), parent));
        let at = self.branches.len() - 1;
        self.scopes.insert(id, at);
        at
    }
}
