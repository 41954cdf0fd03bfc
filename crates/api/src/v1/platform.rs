//! Prices and SKUs go over the wire as they are in `domain`; what stands here is the platform's own page.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Health {
    pub status: String,
    /// Leads, or follows another server.
    pub role: String,
    pub seq: u64,
    pub version: String,
}
