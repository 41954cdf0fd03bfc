//! What rules are asked of trades: one side of one, as far as it is known (`Trade` in the schema). Asked by `market/allow`.

use cedar_policy::{Context, Request, RestrictedExpression};

use super::{Asked, HOUSE, entities, forbidden, hour_utc, long, text, uid};
use crate::id::{TenantId, UserId};
use crate::money::Micros;
use crate::refusal::Refusal;
use crate::tenancy::role::Action;
use crate::tenancy::scope::{Scope, ScopeId};
use crate::tenancy::tree::Tree;
use crate::time::Time;
use crate::workload::spec::Isolation;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Buy,
    Sell,
}

/// A trade from one side. What is not known yet is absent.
#[derive(Debug, Clone, Copy)]
pub struct Deal<'a> {
    pub side: Side,
    /// Who gave the order.
    pub by: Option<UserId>,
    /// Whose it is.
    pub scope: ScopeId,
    pub counterparty: Option<TenantId>,
    pub class: &'a str,
    pub region: Option<&'a str>,
    pub isolation: Option<Isolation>,
    pub price: Micros,
    pub gpu_milli: u64,
    pub duration_s: u64,
    /// What it adds to the money that is bound.
    pub binds: Option<Micros>,
    pub at: Time,
}

impl Deal<'_> {
    /// With what is bound at the scope whose rules are asked.
    fn context(&self, holder: &Scope) -> Context {
        let micros = |money: Micros| long(u64::try_from(money.0).unwrap_or(0));
        let side = match self.side {
            Side::Buy => "buy",
            Side::Sell => "sell",
        };
        let tenant = |id: TenantId| RestrictedExpression::new_entity_uid(uid("Scope", ScopeId::Tenant(id)));
        let bound = |more: Micros| micros(Micros(holder.leased.bound.0.saturating_add(more.0)));
        let known = [
            ("side", Some(text(side))),
            ("counterparty", self.counterparty.map(tenant)),
            ("class", Some(text(self.class))),
            ("region", self.region.map(text)),
            ("isolation", self.isolation.map(|level| text(level.as_str()))),
            ("price_micros", Some(micros(self.price))),
            ("gpu_milli", Some(long(self.gpu_milli))),
            ("duration_s", Some(long(self.duration_s))),
            ("bound_micros", self.binds.map(bound)),
            ("hour_utc", Some(hour_utc(self.at))),
        ];
        let pairs = known
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Context::from_pairs(pairs).expect("distinct attributes")
    }
}

/// Asks the rules that speak of trades, from the scope up to the platform. Where none does, it has cost a look at each scope.
pub fn check(tree: &Tree, deal: &Deal<'_>) -> Result<(), Refusal> {
    if tree.chain(deal.scope).all(|scope| !scope.rules.are_of_trades()) {
        return Ok(());
    }
    // Whoever gave the order may have left since.
    let by = deal.by.filter(|user| tree.get(ScopeId::User(*user)).is_some());
    let principal = by.map_or_else(|| uid("User", HOUSE), |user| uid("User", user));
    let other = deal.counterparty.map(ScopeId::Tenant);
    let scopes: Vec<ScopeId> = [deal.scope].into_iter().chain(other).collect();
    let mut entities = Some(entities(tree, by, &scopes));
    for holder in tree.chain(deal.scope).filter(|scope| scope.rules.are_of_trades()) {
        let request = Request::new(
            principal.clone(),
            uid("Action", Action::MarketTrade.as_str()),
            uid("Scope", deal.scope),
            deal.context(holder),
            None,
        );
        let asked = Asked {
            request: request.expect("no schema to violate"),
            entities: entities.take().expect("it is put back"),
        };
        if let Some(which) = asked.forbidden_by(&holder.rules) {
            return Err(forbidden(tree, &which, holder.id, Action::MarketTrade));
        }
        entities = Some(asked.entities);
    }
    Ok(())
}
