//! The tree itself: finding scopes, walking up, and counting use along the way.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::scope::{Identity, Scope, ScopeId};
use crate::id::{TenantId, UserId};
use crate::refusal::Refusal;

/// All live scopes, with the indexes that find them.
///
/// Each has a seat and knows its parent's: every decision walks up several times, and a step up is one look.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Scope>", into = "Vec<Scope>")]
pub struct Tree {
    seats: Vec<Seat>,
    by_id: BTreeMap<ScopeId, u32>,
    /// Seats of scopes that were closed.
    vacant: Vec<u32>,
    children: BTreeMap<ScopeId, BTreeMap<Box<str>, ScopeId>>,
    identities: BTreeMap<Identity, Vec<UserId>>,
    /// Rises whenever a scope's own settings or its place may have changed.
    changes: u64,
}

#[derive(Debug, Clone)]
struct Seat {
    scope: Scope,
    /// INVARIANT: a scope is closed after all below it, so a parent's seat is its own as long as a child has one.
    parent: Option<u32>,
}

/// By what they hold; where each sits is nobody's matter.
impl PartialEq for Tree {
    fn eq(&self, other: &Tree) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl From<Vec<Scope>> for Tree {
    fn from(mut scopes: Vec<Scope>) -> Tree {
        let mut tree = Tree::default();
        // Parents before children.
        scopes.sort_by_key(|scope| scope.id);
        for scope in scopes {
            tree.insert(scope);
        }
        tree
    }
}

impl From<Tree> for Vec<Scope> {
    fn from(tree: Tree) -> Vec<Scope> {
        tree.iter().cloned().collect()
    }
}

impl Tree {
    pub fn get(&self, id: ScopeId) -> Option<&Scope> {
        Some(&self.seat(id)?.scope)
    }

    fn seat(&self, id: ScopeId) -> Option<&Seat> {
        self.by_id.get(&id).map(|&at| &self.seats[at as usize])
    }

    /// Something that is another whenever settings or places may be others.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The scope, or the same answer that a foreign one gets.
    pub fn find(&self, id: ScopeId) -> Result<&Scope, Refusal> {
        self.get(id).ok_or_else(Refusal::not_found)
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Scope> {
        self.by_id.values().map(|&at| &self.seats[at as usize].scope)
    }

    /// The scope and everything above it, from the leaf to the platform.
    pub fn chain(&self, id: ScopeId) -> impl Iterator<Item = &Scope> {
        let up = |seat: &&Seat| Some(&self.seats[seat.parent? as usize]);
        std::iter::successors(self.seat(id), up).map(|seat| &seat.scope)
    }

    /// Applies a change to the scope and every ancestor.
    pub fn for_chain(&mut self, id: ScopeId, mut change: impl FnMut(&mut Scope)) {
        let mut next = self.by_id.get(&id).copied();
        while let Some(at) = next {
            let seat = &mut self.seats[at as usize];
            change(&mut seat.scope);
            next = seat.parent;
        }
    }

    pub fn is_within(&self, id: ScopeId, ancestor: ScopeId) -> bool {
        self.chain(id).any(|scope| scope.id == ancestor)
    }

    /// The tenant that a scope belongs to; none for the platform and its own staff.
    pub fn tenant_of(&self, id: ScopeId) -> Option<TenantId> {
        self.chain(id).find_map(|scope| match scope.id {
            ScopeId::Tenant(tenant) => Some(tenant),
            _ => None,
        })
    }

    /// Slash-joined ids from the tenant down, by which history is searched: `ten_…/sub_…/usr_…`.
    pub fn path(&self, id: ScopeId) -> String {
        let mut ids: Vec<String> = self
            .chain(id)
            .filter(|scope| scope.id != ScopeId::Platform)
            .map(|scope| scope.id.to_string())
            .collect();
        ids.reverse();
        ids.join("/")
    }

    /// Slash-joined names from the tenant down, for people: `acme/research/ada`.
    pub fn title(&self, id: ScopeId) -> String {
        let mut names: Vec<&str> = self
            .chain(id)
            .filter(|scope| scope.id != ScopeId::Platform)
            .map(|scope| &*scope.name)
            .collect();
        if names.is_empty() {
            return "platform".into();
        }
        names.reverse();
        names.join("/")
    }

    pub fn children(&self, id: ScopeId) -> impl Iterator<Item = &Scope> {
        self.children
            .get(&id)
            .into_iter()
            .flat_map(|names| names.values())
            .filter_map(|&child| self.get(child))
    }

    pub fn child_named(&self, parent: ScopeId, name: &str) -> Option<ScopeId> {
        self.children.get(&parent)?.get(name).copied()
    }

    /// The scope and all below it, parents before children.
    pub fn subtree(&self, id: ScopeId) -> Vec<ScopeId> {
        let mut found: Vec<ScopeId> = self.get(id).map(|scope| scope.id).into_iter().collect();
        let mut next = 0;
        while next < found.len() {
            found.extend(self.children(found[next]).map(|child| child.id));
            next += 1;
        }
        found
    }

    pub fn users_of_identity(&self, identity: &Identity) -> &[UserId] {
        self.identities.get(identity).map_or(&[], Vec::as_slice)
    }

    pub fn suspended_above(&self, id: ScopeId) -> Option<&Scope> {
        self.chain(id).find(|scope| scope.suspended)
    }

    pub(crate) fn get_mut(&mut self, id: ScopeId) -> &mut Scope {
        self.changes += 1;
        let at = self.at(id);
        &mut self.seats[at].scope
    }

    fn at(&self, id: ScopeId) -> usize {
        let at = self.by_id.get(&id);
        *at.expect("INVARIANT: events name live scopes") as usize
    }

    pub(crate) fn insert(&mut self, scope: Scope) {
        if let Some(parent) = scope.parent {
            self.children
                .entry(parent)
                .or_default()
                .insert(scope.name.clone(), scope.id);
        }
        if let (ScopeId::User(user), Some(identity)) =
            (scope.id, scope.user.as_ref().and_then(|u| u.identity.clone()))
        {
            let users = self.identities.entry(identity).or_default();
            users.push(user);
            users.sort_unstable();
        }
        self.changes += 1;
        let (id, parent) = (scope.id, scope.parent);
        let parent = parent.and_then(|parent| self.by_id.get(&parent).copied());
        let seat = Seat { scope, parent };
        let at = match self.vacant.pop() {
            Some(at) => {
                self.seats[at as usize] = seat;
                at
            }
            None => {
                self.seats.push(seat);
                u32::try_from(self.seats.len() - 1).expect("INVARIANT: fewer scopes than numbers")
            }
        };
        self.by_id.insert(id, at);
    }

    pub(crate) fn remove(&mut self, id: ScopeId) -> Scope {
        assert!(
            !self.children.contains_key(&id),
            "INVARIANT: a scope is closed after all below it"
        );
        self.changes += 1;
        let at = self.at(id);
        self.by_id.remove(&id);
        self.vacant.push(at as u32);
        // The seat stays until the next scope takes it.
        let nobody = Scope::new(id, None, "", self.seats[at].scope.created);
        let scope = std::mem::replace(&mut self.seats[at].scope, nobody);
        self.unlist(scope.parent, &scope.name);
        if let (ScopeId::User(user), Some(identity)) =
            (id, scope.user.as_ref().and_then(|u| u.identity.as_ref()))
            && let Some(users) = self.identities.get_mut(identity)
        {
            users.retain(|&other| other != user);
            if users.is_empty() {
                self.identities.remove(identity);
            }
        }
        scope
    }

    fn unlist(&mut self, parent: Option<ScopeId>, name: &str) {
        let Some(parent) = parent else { return };
        if let Some(names) = self.children.get_mut(&parent) {
            names.remove(name);
            if names.is_empty() {
                self.children.remove(&parent);
            }
        }
    }

    /// Re-hangs a scope; the caller has moved its counts along the two chains.
    pub(crate) fn rehang(&mut self, id: ScopeId, parent: ScopeId) {
        self.changes += 1;
        let (at, above) = (self.at(id), self.at(parent));
        self.seats[at].parent = Some(above as u32);
        let scope = &mut self.seats[at].scope;
        let old = scope.parent.replace(parent);
        let name = scope.name.clone();
        self.unlist(old, &name);
        self.children.entry(parent).or_default().insert(name, id);
    }
}
