//! What the policies above a scope allow it to buy or sell, and with whom. The refusal names the scope whose rule it is.

use crate::id::TenantId;
use crate::market::bid::BidSpec;
use crate::market::offer::{Offer, OfferSpec};
use crate::money::Micros;
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::tenancy::trade::TradePolicy;
use crate::workload::spec::Isolation;

fn refuse(state: &State, of: ScopeId, field: &'static str, sentence: String) -> Refusal {
    let title = state.tree.title(of);
    Refusal::new(
        Code::PolicyExcludes,
        format!("{sentence} by the policy of {title}"),
    )
    .field(field)
    .hint(format!("ask an operator of {title} to widen its policy"))
}

/// The policies above a scope that say something of trade.
fn above(state: &State, scope: ScopeId) -> impl Iterator<Item = (ScopeId, &TradePolicy)> {
    let chain = state.tree.chain(scope);
    chain.filter_map(|scope| Some((scope.id, scope.policy.trade.as_deref()?)))
}

fn living(state: &State, scope: ScopeId) -> Result<(), Refusal> {
    state.tree.suspended_above(scope).map_or(Ok(()), |suspended| {
        let title = state.tree.title(suspended.id);
        Err(Refusal::new(Code::Suspended, format!("{title} is suspended")))
    })
}

fn within_band(state: &State, of: ScopeId, policy: &TradePolicy, price: Micros) -> Result<(), Refusal> {
    let micros = u64::try_from(price.0).unwrap_or(0);
    if let Some(max) = policy.max_price_micros.filter(|max| micros > *max) {
        let max = Micros(i64::try_from(max).unwrap_or(i64::MAX));
        let sentence = format!("a price of {price} is above the {max} allowed");
        return Err(refuse(state, of, "/price", sentence));
    }
    Ok(())
}

fn of_class(state: &State, scope: ScopeId, class: &str) -> Result<(), Refusal> {
    for place in state.tree.chain(scope) {
        let classes = place.policy.classes.as_ref();
        if classes.is_some_and(|classes| !classes.contains(class)) {
            let sentence = format!("GPU class {class} is not allowed");
            return Err(refuse(state, place.id, "/class", sentence));
        }
    }
    Ok(())
}

/// Whether a scope may bid like this at all; with whom is asked of each offer.
pub fn may_buy(state: &State, scope: ScopeId, spec: &BidSpec) -> Result<(), Refusal> {
    living(state, scope)?;
    of_class(state, scope, &spec.class)?;
    for (of, policy) in above(state, scope) {
        if policy.may_buy == Some(false) {
            return Err(refuse(state, of, "/scope", "buying is not allowed".into()));
        }
        if let (Some(regions), Some(region)) = (&policy.regions, &spec.region)
            && !regions.contains(region)
        {
            let sentence = format!("buying in region {region} is not allowed");
            return Err(refuse(state, of, "/region", sentence));
        }
        within_band(state, of, policy, spec.price)?;
    }
    Ok(())
}

pub fn may_sell(state: &State, seller: TenantId, spec: &OfferSpec) -> Result<(), Refusal> {
    let scope = ScopeId::Tenant(seller);
    living(state, scope)?;
    for (of, policy) in above(state, scope) {
        if policy.may_sell == Some(false) {
            return Err(refuse(state, of, "/scope", "selling is not allowed".into()));
        }
        if let Some(least) = policy.min_isolation.filter(|least| spec.isolation < *least) {
            return Err(below(state, of, spec.isolation, least));
        }
        if let Some(min) = policy
            .min_price_micros
            .filter(|min| u64::try_from(spec.price.0).unwrap_or(0) < *min)
        {
            let min = Micros(i64::try_from(min).unwrap_or(i64::MAX));
            let sentence = format!("a price of {} is below the {min} allowed", spec.price);
            return Err(refuse(state, of, "/price", sentence));
        }
        within_band(state, of, policy, spec.price)?;
    }
    Ok(())
}

fn below(state: &State, of: ScopeId, level: Isolation, least: Isolation) -> Refusal {
    let (level, least) = (level.as_str(), least.as_str());
    let sentence = format!("isolation {level} is below the {least} asked for");
    refuse(state, of, "/isolation", sentence)
}

/// Whether the policies on both sides allow this scope this offer.
pub fn may_trade(state: &State, scope: ScopeId, buyer: TenantId, offer: &Offer) -> Result<(), Refusal> {
    for (of, policy) in above(state, scope) {
        let knows = policy.counterparties.as_ref();
        if knows.is_some_and(|all| !all.contains(&offer.seller)) {
            let title = state.tree.title(ScopeId::Tenant(offer.seller));
            return Err(refuse(
                state,
                of,
                "/scope",
                format!("buying of {title} is not allowed"),
            ));
        }
        if let Some(least) = policy.min_isolation.filter(|least| offer.spec.isolation < *least) {
            return Err(below(state, of, offer.spec.isolation, least));
        }
        let there = offer.spec.region.as_ref();
        if let Some(regions) = &policy.regions
            && there.is_none_or(|region| !regions.contains(region))
        {
            let sentence = format!(
                "buying in region {} is not allowed",
                there.map_or("(none)", |region| region)
            );
            return Err(refuse(state, of, "/region", sentence));
        }
    }
    for (of, policy) in above(state, ScopeId::Tenant(offer.seller)) {
        let knows = policy.counterparties.as_ref();
        if knows.is_some_and(|all| !all.contains(&buyer)) || policy.may_sell == Some(false) {
            let title = state.tree.title(ScopeId::Tenant(buyer));
            return Err(refuse(
                state,
                of,
                "/scope",
                format!("selling to {title} is not allowed"),
            ));
        }
    }
    living(state, ScopeId::Tenant(offer.seller))
}
