//! Founding the platform, its prices and its SKUs.

use super::Case;
use crate::event::Event;
use crate::id::{KeyId, UserId};
use crate::ledger::price::Prices;
use crate::name;
use crate::refusal::{Code, Refusal};
use crate::tenancy::key::{Digest, Key};
use crate::tenancy::role::{Action, Role};
use crate::tenancy::scope::{ScopeId, UserFacts, UserKind};
use crate::workload::spec::Sku;

impl Case<'_> {
    pub(super) fn found(
        &mut self,
        platform: &str,
        owner: &str,
        key: Digest,
        prices: &Prices,
    ) -> Result<Vec<Event>, Refusal> {
        if !self.state.tree.is_empty() {
            return Err(Refusal::new(
                Code::AlreadyFounded,
                "the platform was set up before",
            ));
        }
        name::check(platform, "/platform")?;
        name::check(owner, "/owner")?;
        prices.check()?;
        let user = UserId(self.ids.take());
        let facts = UserFacts {
            kind: UserKind::Person,
            identity: None,
        };
        let key = Key {
            id: KeyId(self.ids.take()),
            user,
            label: "first".into(),
            digest: key,
            created: self.command.at,
            expires: None,
            allow: None,
        };
        Ok(vec![
            Event::PlatformFounded {
                name: platform.into(),
                prices: prices.clone(),
            },
            Event::ScopeCreated {
                scope: ScopeId::User(user),
                parent: ScopeId::Platform,
                name: owner.into(),
                user: Some(facts),
            },
            Event::RoleGranted {
                scope: ScopeId::Platform,
                user,
                role: Role::Owner,
            },
            Event::KeyCreated { key },
        ])
    }

    pub(super) fn set_prices(&self, prices: &Prices) -> Result<Vec<Event>, Refusal> {
        self.may(Action::PriceSet, ScopeId::Platform)?;
        prices.check()?;
        if prices.currency != self.state.prices.currency {
            return Err(Refusal::invalid(
                "/currency",
                format!(
                    "the platform's currency is {} and stays so",
                    self.state.prices.currency
                ),
            ));
        }
        Ok(vec![Event::PricesSet {
            prices: prices.clone(),
        }])
    }

    pub(super) fn define_sku(&self, sku: &Sku) -> Result<Vec<Event>, Refusal> {
        self.may(Action::PriceSet, ScopeId::Platform)?;
        sku.check()?;
        Ok(vec![Event::SkuDefined { sku: sku.clone() }])
    }

    pub(super) fn remove_sku(&self, name: &str) -> Result<Vec<Event>, Refusal> {
        self.may(Action::PriceSet, ScopeId::Platform)?;
        if !self.state.skus.contains_key(name) {
            return Err(Refusal::not_found());
        }
        Ok(vec![Event::SkuRemoved { name: name.into() }])
    }
}
