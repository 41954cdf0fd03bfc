//! Accounts and postings.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::TenantId;
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
}

impl fmt::Display for AccountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AccountId::Tenant(tenant) => tenant.fmt(f),
            AccountId::Revenue => f.write_str("revenue"),
            AccountId::Internal => f.write_str("internal"),
        }
    }
}

impl FromStr for AccountId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "revenue" => Ok(AccountId::Revenue),
            "internal" => Ok(AccountId::Internal),
            _ => text
                .parse()
                .map(AccountId::Tenant)
                .map_err(|_| "not an account".into()),
        }
    }
}

impl Serialize for AccountId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
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

    pub(crate) fn hold(&mut self, id: AccountId, amount: Micros) {
        self.0.entry(id).or_default().held.0 += amount.0;
    }

    pub(crate) fn release(&mut self, id: AccountId, amount: Micros) {
        let balance = self.0.entry(id).or_default();
        balance.held.0 -= amount.0;
        assert!(balance.held.0 >= 0, "INVARIANT: released was held");
    }
}
