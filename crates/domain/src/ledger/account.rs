//! Accounts and postings.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::rate::UNIT;
use crate::id::{SubscriberId, TenantId};
use crate::money::Micros;

/// Who owes or is owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccountId {
    /// What a tenant owes the platform (negative) or has paid ahead (positive).
    Tenant(TenantId),
    /// What the platform earned.
    Revenue,
    /// Jobs of the platform's own staff.
    Internal,
    /// Paid for leases that have not ended; never below zero.
    Escrow,
    /// What a subscriber owes its tenant (negative) or has paid ahead (positive).
    Subscriber(SubscriberId),
    /// What a tenant earned from its subscribers.
    Resale(TenantId),
    /// The platform's part of what tenants ask of their subscribers.
    Fee,
    /// Credits, refunds and corrections: what was given, or taken back.
    Adjustment,
    /// Money that came from outside, where an invoice was paid.
    Outside,
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccountId::Tenant(tenant) => tenant.fmt(f),
            AccountId::Revenue => f.write_str("revenue"),
            AccountId::Internal => f.write_str("internal"),
            AccountId::Escrow => f.write_str("escrow"),
            AccountId::Subscriber(subscriber) => subscriber.fmt(f),
            AccountId::Resale(tenant) => write!(f, "resale:{tenant}"),
            AccountId::Fee => f.write_str("fee"),
            AccountId::Adjustment => f.write_str("adjustment"),
            AccountId::Outside => f.write_str("outside"),
        }
    }
}

impl FromStr for AccountId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "revenue" => Ok(AccountId::Revenue),
            "internal" => Ok(AccountId::Internal),
            "escrow" => Ok(AccountId::Escrow),
            "fee" => Ok(AccountId::Fee),
            "adjustment" => Ok(AccountId::Adjustment),
            "outside" => Ok(AccountId::Outside),
            _ => named(text).ok_or_else(|| "not an account".into()),
        }
    }
}

fn named(text: &str) -> Option<AccountId> {
    if let Some(tenant) = text.strip_prefix("resale:") {
        return tenant.parse().ok().map(AccountId::Resale);
    }
    let tenant = text.parse().ok().map(AccountId::Tenant);
    tenant.or_else(|| text.parse().ok().map(AccountId::Subscriber))
}

impl Serialize for AccountId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            AccountId::Tenant(tenant) => tenant.serialize(serializer),
            AccountId::Subscriber(subscriber) => subscriber.serialize(serializer),
            AccountId::Revenue => serializer.serialize_str("revenue"),
            AccountId::Fee => serializer.serialize_str("fee"),
            _ => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for AccountId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One transfer: `amount` leaves `from` and reaches `to`, so every transfer sums to zero by construction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posting {
    pub from: AccountId,
    pub to: AccountId,
    pub amount: Micros,
}

/// What an account has and what of it is spoken for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    pub posted: Micros,
    pub held: Micros,
    /// Parts of micros that ended allocations left over, in units of `rate::UNIT`; collected with the next charge, so
    /// that nothing is gained by many short jobs.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub crumbs: u64,
}

fn is_nothing(crumbs: &u64) -> bool {
    *crumbs == 0
}

impl Balance {
    /// Whole micros among its crumbs.
    pub fn swept(&self) -> Micros {
        Micros((i128::from(self.crumbs) / UNIT) as i64)
    }
}

/// All accounts of the platform.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Accounts(BTreeMap<AccountId, Balance>);

impl Accounts {
    pub fn get(&self, id: AccountId) -> Balance {
        self.0.get(&id).copied().unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (AccountId, Balance)> {
        self.0.iter().map(|(&id, &balance)| (id, balance))
    }

    /// Zero at every moment; anything else is a bug in the ledger.
    pub fn sum(&self) -> i128 {
        self.0.values().map(|balance| i128::from(balance.posted.0)).sum()
    }

    pub(crate) fn post(&mut self, posting: &Posting) {
        // INVARIANT: the two sides change by the same amount, so the sum over all accounts stays zero.
        self.0.entry(posting.from).or_default().posted.0 -= posting.amount.0;
        self.0.entry(posting.to).or_default().posted.0 += posting.amount.0;
    }

    pub(crate) fn leave_crumb(&mut self, id: AccountId, crumb: u64) {
        if crumb > 0 {
            let balance = self.0.entry(id).or_default();
            balance.crumbs = balance.crumbs.saturating_add(crumb);
        }
    }

    pub(crate) fn sweep(&mut self, id: AccountId, swept: Micros) {
        let balance = self.0.entry(id).or_default();
        let units = i128::from(swept.0) * UNIT;
        let left = i128::from(balance.crumbs) - units;
        // INVARIANT: no more is swept up than lies there.
        balance.crumbs = u64::try_from(left).expect("INVARIANT: swept was left");
    }

    pub(crate) fn hold(&mut self, id: AccountId, amount: Micros) {
        self.0.entry(id).or_default().held.0 += amount.0;
    }

    pub(crate) fn release(&mut self, id: AccountId, amount: Micros) {
        let balance = self.0.entry(id).or_default();
        balance.held.0 -= amount.0;
        assert!(balance.held.0 >= 0, "INVARIANT: released was held");
    }
}
