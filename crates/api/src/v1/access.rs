//! Keys, roles, and who one is.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tenure_domain::id::{KeyId, UserId};
use tenure_domain::tenancy::role::{Action, Role};
use tenure_domain::tenancy::scope::ScopeId;
use utoipa::ToSchema;

use super::scope::ScopeView;
use super::time::Moment;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    #[schema(min_length = 1, max_length = 63, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    pub label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Moment>,
    /// Limits the key to these of its user's actions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<BTreeSet<Action>>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct KeyView {
    #[schema(value_type = String)]
    pub id: KeyId,
    #[schema(value_type = String)]
    pub user: UserId,
    pub label: String,
    pub created: Moment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Moment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<BTreeSet<Action>>,
}

/// A new key, with its secret: shown this once and never again.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct NewKey {
    #[serde(flatten)]
    pub key: KeyView,
    pub token: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantRole {
    pub user: String,
    pub role: Role,
}

/// A role somebody holds at a scope.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GrantView {
    #[schema(value_type = String)]
    pub scope: ScopeId,
    pub scope_path: String,
    #[schema(value_type = String)]
    pub user: UserId,
    pub user_path: String,
    pub role: Role,
}

/// Who the caller is and what they hold.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    pub user: ScopeView,
    pub grants: Vec<GrantView>,
    pub platform: String,
    pub version: String,
    /// Sequence number of the last event this answer knows of.
    pub seq: u64,
}
