//! Secrets by name. Values live in the erasable store; only references pass through here.

use crate::decide::Case;
use crate::event::Event;
use crate::id::SecretId;
use crate::name;
use crate::refusal::Refusal;
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;

impl Case<'_> {
    pub(crate) fn store_secret(
        &self,
        scope: ScopeId,
        name: &str,
        secret: SecretId,
    ) -> Result<Vec<Event>, Refusal> {
        self.may(Action::SecretWrite, scope)?;
        name::check(name, "/name")?;
        let replaced = self.state.secrets.get(&(scope, name.to_owned()));
        let erased = replaced.map(|&old| Event::SecretErased {
            scope,
            name: name.into(),
            secret: old,
        });
        let stored = Event::SecretStored {
            scope,
            name: name.into(),
            secret,
        };
        Ok(erased.into_iter().chain([stored]).collect())
    }

    pub(crate) fn erase_secret(&self, scope: ScopeId, name: &str) -> Result<Vec<Event>, Refusal> {
        self.may(Action::SecretWrite, scope)?;
        let secret = self
            .state
            .secrets
            .get(&(scope, name.to_owned()))
            .ok_or_else(Refusal::not_found)?;
        Ok(vec![Event::SecretErased {
            scope,
            name: name.into(),
            secret: *secret,
        }])
    }
}
