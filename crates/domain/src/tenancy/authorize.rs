//! The one authorization function. Writes ask it inside `decide`, reads ask it on the published state.

use std::collections::BTreeSet;

use super::role::{Action, Role, permitted, permitted_to_self};
use super::rule;
use super::scope::ScopeId;
use super::tree::Tree;
use crate::actor::Actor;
use crate::id::UserId;
use crate::refusal::{Code, Refusal};
use crate::time::Time;
use crate::workload::spec::JobSpec;

/// Everything `user` may do at `scope`: by roles granted there or above, and to itself.
pub fn effective(tree: &Tree, user: UserId, scope: ScopeId) -> BTreeSet<Action> {
    let by_role = roles_at(tree, user, scope).flat_map(|role| permitted(role).iter().copied());
    let to_self = Action::ALL
        .iter()
        .copied()
        .filter(|&action| scope == ScopeId::User(user) && permitted_to_self(action));
    by_role.chain(to_self).collect()
}

/// Roles that reach `scope`: granted there or at any scope above it.
pub fn roles_at(tree: &Tree, user: UserId, scope: ScopeId) -> impl Iterator<Item = Role> {
    tree.chain(scope)
        .filter_map(move |place| place.roles.get(&user))
        .flatten()
        .copied()
}

/// May this actor do this here? A scope the actor cannot see answers exactly like one that does not exist.
pub fn authorize(
    tree: &Tree,
    actor: &Actor,
    action: Action,
    scope: ScopeId,
    ask: Option<&JobSpec>,
    at: Time,
) -> Result<(), Refusal> {
    let (user, allow) = match actor {
        Actor::User { user, allow, .. } => (user, allow),
        Actor::System => return tree.find(scope).map(|_| ()),
        // A node speaks for itself alone, and never through a role.
        Actor::Node(_) => return Err(Refusal::not_found()),
    };
    let visible = tree.get(scope).is_some() && tree.get(ScopeId::User(*user)).is_some();
    if !visible {
        return Err(Refusal::not_found());
    }
    let may = |action: Action| {
        (scope == ScopeId::User(*user) && permitted_to_self(action))
            || roles_at(tree, *user, scope).any(|role| permitted(role).contains(&action))
    };
    if !may(action) {
        return Err(if may(Action::ScopeRead) {
            not_permitted(action, tree, scope)
        } else {
            Refusal::not_found()
        });
    }
    if allow.as_ref().is_some_and(|allow| !allow.contains(&action)) {
        return Err(not_permitted(action, tree, scope)
            .hint("the key in use is limited to fewer actions; use another key"));
    }
    if let Some(suspended) = tree.suspended_above(ScopeId::User(*user)) {
        return Err(Refusal::new(
            Code::Suspended,
            format!("{} is suspended", tree.title(suspended.id)),
        )
        .hint("ask the operator who suspended it"));
    }
    rule::check(tree, *user, action, scope, ask, at)
}

fn not_permitted(action: Action, tree: &Tree, scope: ScopeId) -> Refusal {
    Refusal::new(
        Code::NotPermitted,
        format!(
            "{} needs a role that allows it at {}",
            action.as_str(),
            tree.title(scope)
        ),
    )
    .hint("ask an owner or operator there to grant one")
}
