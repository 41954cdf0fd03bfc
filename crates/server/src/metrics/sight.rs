//! Whose figures a caller sees: all who may read metrics at the platform see the fleet; others see the jobs of the
//! scopes where they may, each asked once.

use std::collections::HashMap;

use tenure_domain::State;
use tenure_domain::id::{TenantId, UserId};
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;

use crate::auth::Caller;

pub(crate) struct Sight {
    caller: Caller,
    /// Sees the platform's own figures, and every device as a whole.
    pub fleet: bool,
    owners: HashMap<UserId, bool>,
}

impl Sight {
    pub fn of(state: &State, caller: Caller) -> Sight {
        Sight {
            fleet: caller.may(state, Action::MetricRead, ScopeId::Platform).is_ok(),
            caller,
            owners: HashMap::new(),
        }
    }

    /// Whether it sees the jobs of this user.
    pub fn owner(&mut self, state: &State, owner: UserId) -> bool {
        let caller = &self.caller;
        *self.owners.entry(owner).or_insert_with(|| {
            caller
                .may(state, Action::MetricRead, ScopeId::User(owner))
                .is_ok()
        })
    }

    /// Whether it sees a scope as a whole.
    pub fn scope(&self, state: &State, scope: ScopeId) -> bool {
        self.caller.may(state, Action::MetricRead, scope).is_ok()
    }

    /// Whether it sees a tenant as a whole.
    pub fn tenant(&self, state: &State, tenant: TenantId) -> bool {
        self.scope(state, ScopeId::Tenant(tenant))
    }

    /// The highest scopes whose jobs it may see; none below another.
    pub fn roots(&self, state: &State) -> Vec<ScopeId> {
        if self.fleet {
            return vec![ScopeId::Platform];
        }
        crate::routes::job::list::reached(state, &self.caller, Action::MetricRead)
    }
}
