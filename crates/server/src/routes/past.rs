//! What has left the live state still belongs to the place it stood at: the path history keeps of it.

use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Refusal, State};

use crate::auth::Caller;

/// The deepest scope of a path that still stands there; the platform where none does.
pub(super) fn anchor(state: &State, path: &str) -> ScopeId {
    let mut rest = path;
    while !rest.is_empty() {
        let last = rest.rsplit('/').next().unwrap_or(rest);
        if let Ok(scope) = last.parse::<ScopeId>()
            && state.tree.path(scope) == rest
        {
            return scope;
        }
        rest = rest.rsplit_once('/').map_or("", |(above, _)| above);
    }
    ScopeId::Platform
}

/// May the caller do this to something of `owner` that ended at `path`? An owner that moved inside its tenant
/// keeps what is its own; into another tenant it takes nothing along.
pub(super) fn may(
    caller: &Caller,
    state: &State,
    action: Action,
    owner: ScopeId,
    path: &str,
) -> Result<(), Refusal> {
    let tenant = path.split('/').next().and_then(|first| first.parse().ok());
    if state.tree.get(owner).is_some()
        && state.tree.tenant_of(owner) == tenant
        && caller.may(state, action, owner).is_ok()
    {
        return Ok(());
    }
    caller.may(state, action, anchor(state, path))
}
