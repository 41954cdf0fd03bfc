//! Secrets by name. Values go in and never come out.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::secret_text::SecretText;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    #[schema(value_type = String, max_length = 65536)]
    pub value: SecretText,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SecretView {
    pub name: String,
    pub scope: String,
}
