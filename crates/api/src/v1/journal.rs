//! The journal's head and proofs from it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A signed statement of how long the journal is and what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeadView {
    /// Which platform's journal it is.
    pub platform: String,
    pub seq: u64,
    /// Hash of the last event, hexadecimal.
    pub hash: String,
    /// Root of the Merkle tree over all events, hexadecimal.
    pub root: String,
    pub at_ms: i64,
    pub key_id: String,
    /// Ed25519 over the head, hexadecimal.
    pub signature: String,
    /// The public key, hexadecimal.
    pub public_key: String,
}

/// Shows that one event is in the journal under a head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProofView {
    /// The event's exact line.
    pub line: String,
    pub index: u64,
    pub size: u64,
    pub path: Vec<String>,
    pub head: HeadView,
}
