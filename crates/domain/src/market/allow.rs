//! What the policies and rules above a scope allow it to buy or sell, and with whom. The refusal names the scope whose they are.
//!
//! The fields of a policy are the quick settings; what they cannot say, rules do (`tenancy/rule/trade`). Both are asked as an
//! order is given, and again for each offer that it would be filled from, however long it has waited.

use crate::id::{TenantId, UserId};
use crate::market::fill::Want;
use crate::market::offer::{Offer, OfferSpec, price_of};
use crate::money::Micros;
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::rule::trade::{Deal, Side, check};
use crate::tenancy::scope::ScopeId;
use crate::tenancy::trade::TradePolicy;
use crate::time::{SECOND_MS, Time};
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

/// Whether a class may be traded; and whether any rule above speaks of trades, which is told on the same way up.
fn of_class(state: &State, scope: ScopeId, class: &str) -> Result<bool, Refusal> {
    let mut ruled = false;
    for place in state.tree.chain(scope) {
        ruled |= place.rules.are_of_trades();
        let classes = place.policy.classes.as_ref();
        if classes.is_some_and(|classes| !classes.contains(class)) {
            let sentence = format!("GPU class {class} is not allowed");
            return Err(refuse(state, place.id, "/class", sentence));
        }
    }
    Ok(ruled)
}

/// Whether a scope may bid like this at all; with whom is asked of each offer. `binds` is what it adds to the money that is bound,
/// where that is known.
pub fn may_buy(state: &State, want: &Want<'_>, binds: Option<Micros>) -> Result<(), Refusal> {
    let (scope, spec) = (want.scope, want.spec);
    living(state, scope)?;
    let ruled = of_class(state, scope, &spec.class)?;
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
    if ruled {
        may_bind(state, want, binds)
    } else {
        Ok(())
    }
}

/// Whether the rules above it let a scope bind so much money for this bid.
pub fn may_bind(state: &State, want: &Want<'_>, binds: Option<Micros>) -> Result<(), Refusal> {
    let spec = want.spec;
    let deal = Deal {
        side: Side::Buy,
        by: want.by,
        scope: want.scope,
        counterparty: None,
        class: &spec.class,
        region: spec.region.as_deref(),
        isolation: spec.min_isolation,
        price: spec.price,
        gpu_milli: want.gpu_milli,
        duration_s: spec.duration_s,
        binds,
        at: want.at,
    };
    check(&state.tree, &deal)
}

pub fn may_sell(
    state: &State,
    seller: TenantId,
    spec: &OfferSpec,
    by: Option<UserId>,
    at: Time,
) -> Result<(), Refusal> {
    let scope = ScopeId::Tenant(seller);
    living(state, scope)?;
    let ruled = of_class(state, scope, &spec.class)?;
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
    if !ruled {
        return Ok(());
    }
    let deal = Deal {
        side: Side::Sell,
        by,
        scope,
        counterparty: None,
        class: &spec.class,
        region: spec.region.as_deref(),
        isolation: Some(spec.isolation),
        price: spec.price,
        gpu_milli: spec.gpu_milli,
        duration_s: spec.max_lease_s,
        binds: None,
        at,
    };
    check(&state.tree, &deal)
}

fn below(state: &State, of: ScopeId, level: Isolation, least: Isolation) -> Refusal {
    let (level, least) = (level.as_str(), least.as_str());
    let sentence = format!("isolation {level} is below the {least} asked for");
    refuse(state, of, "/isolation", sentence)
}

/// Whether the policies and rules on both sides allow this want so much of this offer.
pub fn may_trade(state: &State, want: &Want<'_>, offer: &Offer, gpu_milli: u64) -> Result<(), Refusal> {
    let buyer = want.buyer;
    let mut ruled = false;
    for place in state.tree.chain(want.scope) {
        ruled |= place.rules.are_of_trades();
        let (of, Some(policy)) = (place.id, place.policy.trade.as_deref()) else {
            continue;
        };
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
    for place in state.tree.chain(ScopeId::Tenant(offer.seller)) {
        ruled |= place.rules.are_of_trades();
        let (of, Some(policy)) = (place.id, place.policy.trade.as_deref()) else {
            continue;
        };
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
    living(state, ScopeId::Tenant(offer.seller))?;
    if ruled {
        by_rules(state, want, offer, gpu_milli)
    } else {
        Ok(())
    }
}

fn by_rules(state: &State, want: &Want<'_>, offer: &Offer, gpu_milli: u64) -> Result<(), Refusal> {
    let spec = &offer.spec;
    // Of a bid that waits all it may cost is held already.
    let held = want.bid.is_some_and(|bid| state.market.bid(bid).is_some());
    let binds = if held {
        Micros::ZERO
    } else {
        price_of(
            spec.price,
            gpu_milli,
            want.spec.duration_s.saturating_mul(SECOND_MS),
        )
    };
    let buys = Deal {
        side: Side::Buy,
        by: want.by,
        scope: want.scope,
        counterparty: Some(offer.seller),
        class: &spec.class,
        region: spec.region.as_deref(),
        isolation: Some(spec.isolation),
        price: spec.price,
        gpu_milli,
        duration_s: want.spec.duration_s,
        binds: Some(binds),
        at: want.at,
    };
    check(&state.tree, &buys)?;
    let sells = Deal {
        side: Side::Sell,
        by: offer.by,
        scope: ScopeId::Tenant(offer.seller),
        counterparty: Some(want.buyer),
        binds: None,
        ..buys
    };
    check(&state.tree, &sells)
}
