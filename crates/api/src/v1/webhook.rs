//! Webhooks: receivers outside that are told what happens.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tenure_domain::id::{UserId, WebhookId};
use utoipa::{IntoParams, ToSchema};

use super::time::Moment;
use crate::secret_text::SecretText;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateWebhook {
    /// It is told what happens here and below, as far as the caller may see it.
    pub scope: String,
    pub name: String,
    /// http or https, at a public address unless the operator listed the host. Never shown again but for its origin.
    #[schema(value_type = String)]
    pub url: SecretText,
    /// Kinds of events, as the event stream names them; all where none is named.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub kinds: BTreeSet<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WebhookView {
    #[schema(value_type = String)]
    pub id: WebhookId,
    pub scope: String,
    pub scope_path: String,
    pub name: String,
    /// It is told what this user may see.
    #[schema(value_type = String)]
    pub owner: UserId,
    pub owner_path: String,
    /// Scheme, host and port of its URL; the rest is kept with its key.
    pub origin: String,
    pub kinds: BTreeSet<String>,
    pub created: Moment,
    pub standing: WebhookStanding,
    /// Why it failed, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    pub delivery: DeliveryView,
    pub revision: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookStanding {
    Active,
    /// Its receiver did not take the last event; it is tried again.
    Retrying,
    Paused,
    /// Its receiver took nothing for a day, or wants nothing more; nothing is sent until it is resumed.
    Failed,
}

/// How far it has come.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeliveryView {
    /// Events its receiver took.
    pub delivered: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success: Option<Moment>,
    /// Everything up to this event is done with.
    pub done: u64,
    /// So many events of the journal are still to be looked at.
    pub behind: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<FailingView>,
}

/// An event that its receiver did not take yet.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FailingView {
    pub event: u64,
    pub since: Moment,
    pub tries: u32,
    pub next_try: Moment,
    pub why: String,
}

/// A webhook, and what its receiver checks signatures with, shown this once.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NewWebhook {
    pub webhook: WebhookView,
    /// `whsec_` and the key in base64.
    #[schema(value_type = String)]
    pub secret: SecretText,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateWebhook {
    /// For so long what is sent is signed with the old key too; 0 ends it at once, absent means a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 604800)]
    pub keep_old_s: Option<u64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeWebhook {
    /// Does not tell what happened meanwhile.
    #[serde(default)]
    pub skip: bool,
}

/// What became of a test event.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PingView {
    pub taken: bool,
    /// The status its receiver answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    pub took_ms: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WebhookQuery {
    /// Webhooks of this scope and below; absent means all the caller may manage.
    pub scope: Option<String>,
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}
