//! Tenants, subscribers and users.

use serde::{Deserialize, Serialize};
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{Identity, Level, ScopeId, UserKind};
use utoipa::ToSchema;

use super::time::Moment;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTenant {
    #[schema(min_length = 1, max_length = 63, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    pub name: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSubscriber {
    /// The tenant it belongs to.
    pub tenant: String,
    #[schema(min_length = 1, max_length = 63, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    pub name: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateUser {
    /// The subscriber, tenant or `platform` it belongs to.
    pub parent: String,
    #[schema(min_length = 1, max_length = 63, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    pub name: String,
    #[serde(default = "person")]
    pub kind: UserKind,
    /// A login that stands for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// A role at the parent, granted at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

fn person() -> UserKind {
    UserKind::Person
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveScope {
    /// The new parent.
    pub parent: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetIdentity {
    pub identity: Option<Identity>,
}

/// A tenant, a subscriber, a user, or the platform.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ScopeView {
    #[schema(value_type = String)]
    pub id: ScopeId,
    pub level: Level,
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ScopeId>,
    pub name: String,
    /// Names from the tenant down, such as `acme/research/ada`.
    pub path: String,
    pub created: Moment,
    pub suspended: bool,
    /// Goes up with each change; send it as If-Match.
    pub revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<UserKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}
