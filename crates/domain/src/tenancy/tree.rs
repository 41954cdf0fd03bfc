//! The tree itself: finding scopes, walking up, and counting use along the way.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::scope::{Identity, Scope, ScopeId};
use crate::id::{TenantId, UserId};
use crate::refusal::Refusal;

/// All live scopes, with the indexes that find them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Scope>", into = "Vec<Scope>")]
pub struct Tree {
    scopes: BTreeMap<ScopeId, Scope>,
    children: BTreeMap<ScopeId, BTreeMap<Box<str>, ScopeId>>,
    identities: BTreeMap<Identity, Vec<UserId>>,
}

impl From<Vec<Scope>> for Tree {
    fn from(scopes: Vec<Scope>) -> Tree {
        let mut tree = Tree::default();
        for scope in scopes {
            tree.insert(scope);
        }
        tree
    }
}

impl From<Tree> for Vec<Scope> {
    fn from(tree: Tree) -> Vec<Scope> {
        tree.scopes.into_values().collect()
    }
}

impl Tree {
    pub fn get(&self, id: ScopeId) -> Option<&Scope> {
        self.scopes.get(&id)
    }

    /// The scope, or the same answer that a foreign one gets.
    pub fn find(&self, id: ScopeId) -> Result<&Scope, Refusal> {
        self.get(id).ok_or_else(Refusal::not_found)
    }

    pub fn len(&self) -> usize {
        self.scopes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.scopes.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Scope> {
        self.scopes.values()
    }

    /// The scope and everything above it, from the leaf to the platform.
    pub fn chain(&self, id: ScopeId) -> impl Iterator<Item = &Scope> {
        std::iter::successors(self.get(id), |scope| {
            scope.parent.and_then(|parent| self.get(parent))
        })
    }

    /// Applies a change to the scope and every ancestor.
    pub fn for_chain(&mut self, id: ScopeId, mut change: impl FnMut(&mut Scope)) {
        let mut next = Some(id);
        while let Some(scope) = next.and_then(|id| self.scopes.get_mut(&id)) {
            change(scope);
            next = scope.parent;
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
        self.scopes
            .get_mut(&id)
            .expect("INVARIANT: events name live scopes")
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
        self.scopes.insert(scope.id, scope);
    }

    pub(crate) fn remove(&mut self, id: ScopeId) -> Scope {
        let scope = self
            .scopes
            .remove(&id)
            .expect("INVARIANT: events name live scopes");
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
        let scope = self
            .scopes
            .get_mut(&id)
            .expect("INVARIANT: events name live scopes");
        let old = scope.parent.replace(parent);
        let name = scope.name.clone();
        self.unlist(old, &name);
        self.children.entry(parent).or_default().insert(name, id);
    }
}
