//! A webhook: a receiver outside that is told what happens at a scope, as its owner may see it.
//!
//! Its URL and the key that signs for it are no business of the state: receivers' URLs often are secrets themselves. Both
//! lie in the erasable store under `secret`; here stands the URL's origin alone. Absent: sending, and how far that has
//! come (the server's `webhook` room).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::role::Action;
use super::scope::ScopeId;
use super::tree::Tree;
use crate::id::{SecretId, TenantId, UserId, WebhookId};
use crate::time::Time;

/// Every one of them looks at every event, so there are only so many.
pub const MAX_PER_SCOPE: usize = 16;
pub const MAX_PER_TENANT: usize = 64;
pub const MAX_ORIGIN_BYTES: usize = 300;
pub const MAX_WHY_BYTES: usize = 300;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    pub id: WebhookId,
    /// It is told what happens here and below.
    pub scope: ScopeId,
    pub name: String,
    /// It is told what this user may see.
    pub owner: UserId,
    /// Where the key it was made with was limited, so is what it is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<BTreeSet<Action>>,
    /// Scheme, host and port of its URL.
    pub origin: String,
    /// The kinds of events it is told; all where none is named.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub kinds: BTreeSet<String>,
    /// Under which its URL and keys lie in the store.
    pub secret: SecretId,
    /// Nothing up to this event is told any more.
    pub after: u64,
    pub created: Time,
    #[serde(default, skip_serializing_if = "Standing::is_active")]
    pub standing: Standing,
    pub revision: u64,
}

/// Whether it is told anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    #[default]
    Active,
    /// Somebody wants it so.
    Paused,
    /// Its receiver took nothing for too long, or wants nothing more.
    Failed { since: Time, why: String },
}

impl Standing {
    pub fn is_active(&self) -> bool {
        *self == Standing::Active
    }
}

/// All webhooks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<Webhook>", into = "Vec<Webhook>")]
pub struct Webhooks(BTreeMap<WebhookId, Webhook>);

impl From<Vec<Webhook>> for Webhooks {
    fn from(rows: Vec<Webhook>) -> Webhooks {
        Webhooks(rows.into_iter().map(|webhook| (webhook.id, webhook)).collect())
    }
}

impl From<Webhooks> for Vec<Webhook> {
    fn from(webhooks: Webhooks) -> Vec<Webhook> {
        webhooks.0.into_values().collect()
    }
}

impl Webhooks {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, id: WebhookId) -> Option<&Webhook> {
        self.0.get(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Webhook> {
        self.0.values()
    }

    pub fn of(&self, scope: ScopeId) -> impl Iterator<Item = &Webhook> {
        self.iter().filter(move |webhook| webhook.scope == scope)
    }

    /// Those of one tenant and all below it; of the platform itself where there is none.
    pub fn of_tenant<'a>(
        &'a self,
        tree: &'a Tree,
        tenant: Option<TenantId>,
    ) -> impl Iterator<Item = &'a Webhook> {
        self.iter()
            .filter(move |webhook| tree.tenant_of(webhook.scope) == tenant)
    }

    pub(crate) fn insert(&mut self, webhook: Webhook) {
        self.0.insert(webhook.id, webhook);
    }

    pub(crate) fn change(&mut self, id: WebhookId, change: impl FnOnce(&mut Webhook)) {
        let webhook = self
            .0
            .get_mut(&id)
            .expect("INVARIANT: events name known webhooks");
        change(webhook);
        webhook.revision += 1;
    }

    pub(crate) fn remove(&mut self, id: WebhookId) {
        self.0.remove(&id);
    }
}
