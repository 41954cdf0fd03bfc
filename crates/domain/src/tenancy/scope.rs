//! A scope: one place in the tenancy tree — the platform, a tenant, a subscriber or a user.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::alert::Told;
use super::budget::{Budget, Spending};
use super::keeping::Keeping;
use super::lately::Used;
use super::leased::Leased;
use super::policy::Policy;
use super::role::Role;
use super::rule::Rules;
use super::share::Share;
use crate::id::{BadId, SubscriberId, TenantId, UserId};
use crate::meter::Amounts;
use crate::time::Time;

/// Names any scope. The platform is one per cell and needs no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeId {
    Platform,
    Tenant(TenantId),
    Subscriber(SubscriberId),
    User(UserId),
}

impl ScopeId {
    pub fn level(self) -> Level {
        match self {
            ScopeId::Platform => Level::Platform,
            ScopeId::Tenant(_) => Level::Tenant,
            ScopeId::Subscriber(_) => Level::Subscriber,
            ScopeId::User(_) => Level::User,
        }
    }
}

impl fmt::Display for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScopeId::Platform => f.write_str("platform"),
            ScopeId::Tenant(id) => id.fmt(f),
            ScopeId::Subscriber(id) => id.fmt(f),
            ScopeId::User(id) => id.fmt(f),
        }
    }
}

impl FromStr for ScopeId {
    type Err = BadId;
    fn from_str(text: &str) -> Result<Self, BadId> {
        if text == "platform" {
            return Ok(ScopeId::Platform);
        }
        let tenant = text.parse().map(ScopeId::Tenant);
        let subscriber = || text.parse().map(ScopeId::Subscriber);
        let user = || text.parse().map(ScopeId::User);
        tenant
            .or_else(|_| subscriber())
            .or_else(|_| user())
            .map_err(|_: BadId| BadId { expected: "a scope" })
    }
}

impl Serialize for ScopeId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ScopeId::Tenant(id) => id.serialize(serializer),
            ScopeId::Subscriber(id) => id.serialize(serializer),
            ScopeId::User(id) => id.serialize(serializer),
            ScopeId::Platform => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for ScopeId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The four levels, from the root down.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Platform,
    Tenant,
    Subscriber,
    User,
}

impl Level {
    /// Whether a scope of this level may stand under a parent of that one. Users may stand under any level
    /// above: staff of the platform, of a tenant, or of a subscriber. So a cycle cannot be written down.
    pub fn fits_under(self, parent: Level) -> bool {
        match self {
            Level::Platform => false,
            Level::Tenant => parent == Level::Platform,
            Level::Subscriber => parent == Level::Tenant,
            Level::User => parent != Level::User,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Level::Platform => "platform",
            Level::Tenant => "tenant",
            Level::Subscriber => "subscriber",
            Level::User => "user",
        }
    }
}

/// Whether a user is a person or a program.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserKind {
    Person,
    Service,
}

/// A login at an OIDC issuer that stands for a user.
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    pub issuer: String,
    pub subject: String,
}

/// What only users have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserFacts {
    pub kind: UserKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// A live scope. Closed ones leave the state for history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scope {
    pub id: ScopeId,
    pub parent: Option<ScopeId>,
    pub name: Box<str>,
    pub created: Time,
    pub suspended: bool,
    /// Rises with every change of the scope's own settings; the ETag of its routes.
    pub revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserFacts>,
    pub quota: Amounts,
    #[serde(default, skip_serializing_if = "Share::is_default")]
    pub share: Share,
    pub budgets: Vec<Budget>,
    pub policy: Policy,
    pub rules: Rules,
    /// Roles granted here, by user.
    pub roles: BTreeMap<UserId, BTreeSet<Role>>,
    /// In use by every job of this scope and below.
    pub used: Amounts,
    /// Money and GPU time spent and held by every job of this scope and below.
    pub spending: Spending,
    /// GPU time of this scope and below, fading.
    #[serde(default)]
    pub lately: Used,
    /// Quota taken of others and let to them for a time.
    #[serde(default, skip_serializing_if = "Leased::is_empty")]
    pub leased: Leased,
    /// Alerts of its budgets.
    #[serde(default, skip_serializing_if = "Told::is_empty")]
    pub told: Told,
    /// How long, and how much of, its jobs' logs are kept.
    #[serde(default, skip_serializing_if = "Keeping::is_default")]
    pub keeping: Keeping,
}

impl Scope {
    pub fn new(id: ScopeId, parent: Option<ScopeId>, name: &str, created: Time) -> Scope {
        Scope {
            id,
            parent,
            name: name.into(),
            created,
            suspended: false,
            revision: 1,
            user: None,
            quota: Amounts::default(),
            share: Share::default(),
            budgets: Vec::new(),
            policy: Policy::default(),
            rules: Rules::default(),
            roles: BTreeMap::new(),
            used: Amounts::default(),
            spending: Spending::default(),
            lately: Used::default(),
            leased: Leased::default(),
            told: Told::default(),
            keeping: Keeping::default(),
        }
    }
}
