//! Roles and keys: who may do what, and nobody more than their grantor.

use std::collections::BTreeSet;

use super::grant_exceeds;
use crate::decide::Case;
use crate::event::Event;
use crate::id::{KeyId, UserId};
use crate::name;
use crate::refusal::{Code, Refusal};
use crate::tenancy::key::{Digest, Key};
use crate::tenancy::role::{Action, Role};
use crate::tenancy::scope::ScopeId;
use crate::time::Time;

const MAX_KEYS_PER_USER: usize = 100;

impl Case<'_> {
    /// Grants stay inside one tenant; only the platform's own staff may hold roles anywhere.
    pub(crate) fn grant_role(&self, scope: ScopeId, user: UserId, role: Role) -> Result<Vec<Event>, Refusal> {
        self.may(Action::RoleGrant, scope)?;
        let home = ScopeId::User(user);
        self.may(Action::ScopeRead, home)
            .map_err(|_| Refusal::invalid("/user", "there is no such user here"))?;
        self.may_grant(scope, role)?;
        let home_tenant = self.state.tree.tenant_of(home);
        if home_tenant.is_some() && home_tenant != self.state.tree.tenant_of(scope) {
            return Err(Refusal::invalid(
                "/user",
                "a tenant's user can hold roles only inside that tenant",
            ));
        }
        if scope.level() == crate::tenancy::scope::Level::User {
            return Err(Refusal::invalid(
                "/scope",
                "roles are granted at the platform, a tenant or a subscriber",
            ));
        }
        let held = self
            .state
            .tree
            .find(scope)?
            .roles
            .get(&user)
            .is_some_and(|roles| roles.contains(&role));
        Ok(if held {
            vec![]
        } else {
            vec![Event::RoleGranted { scope, user, role }]
        })
    }

    pub(crate) fn revoke_role(
        &self,
        scope: ScopeId,
        user: UserId,
        role: Role,
    ) -> Result<Vec<Event>, Refusal> {
        self.may(Action::RoleGrant, scope)?;
        self.may_grant(scope, role)?;
        let place = self.state.tree.find(scope)?;
        if !place.roles.get(&user).is_some_and(|roles| roles.contains(&role)) {
            return Err(Refusal::not_found());
        }
        if scope == ScopeId::Platform && role == Role::Owner {
            self.keep_an_owner(ScopeId::User(user))?;
        }
        Ok(vec![Event::RoleRevoked { scope, user, role }])
    }

    pub(crate) fn create_key(
        &mut self,
        user: UserId,
        label: &str,
        digest: Digest,
        expires: Option<Time>,
        allow: Option<&BTreeSet<Action>>,
    ) -> Result<Vec<Event>, Refusal> {
        self.may(Action::KeyManage, ScopeId::User(user))?;
        self.may_become(user)?;
        name::check(label, "/label")?;
        if expires.is_some_and(|expires| expires <= self.command.at) {
            return Err(Refusal::invalid("/expires", "the key would have expired already"));
        }
        if self.state.keys.by_digest(&digest).is_some() {
            return Err(
                Refusal::new(Code::ContradictoryReport, "another key has this digest").hint("make a new key"),
            );
        }
        if self.state.keys.of_user(user).count() >= MAX_KEYS_PER_USER {
            return Err(Refusal::new(
                Code::WrongPhase,
                format!("the user has {MAX_KEYS_PER_USER} keys already"),
            )
            .hint("revoke some first"));
        }
        // A limited key cannot make itself an unlimited one.
        if let crate::actor::Actor::User {
            allow: Some(mine), ..
        } = &self.command.by
            && allow.is_none_or(|asked| !asked.is_subset(mine))
        {
            return Err(grant_exceeds(
                "the key in use is limited, and a new one may not allow more",
            ));
        }
        let key = Key {
            id: KeyId(self.ids.take()),
            user,
            label: label.into(),
            digest,
            created: self.command.at,
            expires,
            allow: allow.cloned(),
        };
        Ok(vec![Event::KeyCreated { key }])
    }

    pub(crate) fn revoke_key(&self, id: KeyId) -> Result<Vec<Event>, Refusal> {
        let key = self.state.keys.get(id).ok_or_else(Refusal::not_found)?;
        self.may(Action::KeyManage, ScopeId::User(key.user))?;
        self.keep_an_owners_key(key)?;
        Ok(vec![Event::KeyRevoked { key: id }])
    }

    /// Refuses to revoke the last way an owner of the platform can still enter by.
    fn keep_an_owners_key(&self, leaving: &Key) -> Result<(), Refusal> {
        let roles = &self.state.tree.find(ScopeId::Platform)?.roles;
        let owns = |user: &UserId| roles.get(user).is_some_and(|roles| roles.contains(&Role::Owner));
        let enters = |user: UserId| {
            let home = ScopeId::User(user);
            let stands = self.state.tree.suspended_above(home).is_none();
            let logs_in = self
                .state
                .tree
                .find(home)
                .is_ok_and(|home| home.user.as_ref().is_some_and(|user| user.identity.is_some()));
            let has_key = self.state.keys.of_user(user).any(|key| {
                let valid = key.expires.is_none_or(|expires| expires > self.command.at);
                key.id != leaving.id && valid && key.allow.is_none()
            });
            stands && (logs_in || has_key)
        };
        if !owns(&leaving.user) || roles.keys().filter(|user| owns(user)).any(|user| enters(*user)) {
            return Ok(());
        }
        Err(Refusal::new(
            Code::LastOwner,
            "no owner of the platform could enter any more: this is the last full key of the last one",
        )
        .hint("make another key first"))
    }
}
