//! Login through an OIDC issuer: the client brings an ID token and gets a key of limited life.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::secret_text::SecretText;

/// Where and as whom to log in; absent fields mean that only keys are taken here.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LoginView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    #[schema(value_type = String, max_length = 16384)]
    pub id_token: SecretText,
    /// The nonce the login was started with.
    #[schema(max_length = 200)]
    pub nonce: String,
    /// Which user, where the login stands for several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}
