//! The exchange: offers, bids, purchases, leases, the book and the price index; the operator's terms.
//!
//! Deliberately absent: deciding anything; a purchase that is only shown is decided as a real one and not written. What
//! others offer is shown without who they are; a lease names both sides to both of them.

pub mod lease;
pub mod offer;
pub mod order;
pub mod price;

use tenure_domain::State as Platform;
use tenure_domain::id::TenantId;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;

use super::scope::id_in;
use crate::auth::Caller;
use crate::http::fail::{Answer, Fail};

/// The scope that trades: as said, or the caller's tenant.
fn trader(state: &Platform, caller: &Caller, scope: Option<&str>) -> Answer<ScopeId> {
    let scope = match scope {
        Some(scope) => id_in(scope, "/scope", "a scope")?,
        None => state
            .tree
            .tenant_of(ScopeId::User(caller.user))
            .map(ScopeId::Tenant)
            .ok_or_else(|| Fail::invalid("/scope", "say who trades: the caller is of no tenant"))?,
    };
    caller.may(state, Action::MarketTrade, scope)?;
    Ok(scope)
}

/// The tenant that sells, if the caller may trade for it.
fn seller(state: &Platform, caller: &Caller, scope: Option<&str>) -> Answer<TenantId> {
    match trader(state, caller, scope)? {
        ScopeId::Tenant(tenant) => Ok(tenant),
        _ => Err(Fail::invalid("/scope", "only a tenant sells").hint("give the id of a tenant")),
    }
}

/// The scope whose trade is listed: as asked, or the caller's tenant, or everything to those above all tenants.
fn listed(state: &Platform, caller: &Caller, scope: Option<&str>) -> Answer<ScopeId> {
    let scope = match scope {
        // As in a path: what cannot be an id is as absent as what nobody has.
        Some(scope) => scope.parse().map_err(|_| Fail::not_found())?,
        None => state
            .tree
            .tenant_of(ScopeId::User(caller.user))
            .map_or(ScopeId::Platform, ScopeId::Tenant),
    };
    caller.may(state, Action::CostRead, scope)?;
    Ok(scope)
}

/// The domain's names of fields, as the body has them.
fn fields(mut fail: Fail) -> Fail {
    for error in &mut fail.problem.errors {
        let name = match error.pointer.as_str() {
            "/price" => "/price_micros",
            "/floor" => "/floor_micros",
            "/kind/expires" => "/expires",
            _ => continue,
        };
        error.pointer = name.to_owned();
    }
    fail
}

fn buyers(
    names: Option<&std::collections::BTreeSet<String>>,
) -> Answer<Option<std::collections::BTreeSet<TenantId>>> {
    let ids = names.map(|names| {
        let ids = names.iter().map(|name| id_in(name, "/buyers", "a tenant"));
        ids.collect::<Answer<_>>()
    });
    ids.transpose()
}
