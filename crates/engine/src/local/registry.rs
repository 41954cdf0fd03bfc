//! What the hub asks the server: who may join, and whose key this is.

use async_trait::async_trait;
use tenure_domain::id::NodeId;
use tenure_domain::refusal::Refusal;
use tenure_domain::tenancy::key::Digest;

/// The server's side of nodes and their keys. A key is the SHA-256 of its public key info (SPKI, DER).
#[async_trait]
pub trait Registry: Send + Sync {
    /// Takes a one-time token (`tnrj_…`, without the authority) and makes a node of it. `Ok` is journalled.
    async fn join(&self, token: &str, name: &str, key: Digest) -> Result<NodeId, Refusal>;

    /// Whose key it is; none for a revoked or unknown one.
    async fn node_of(&self, key: &Digest) -> Option<NodeId>;

    /// Adds a key to a node. Idempotent. `Ok` is journalled.
    async fn rotate(&self, node: NodeId, new_key: Digest) -> Result<(), Refusal>;

    /// The node has used this key, so its others are of no more use. Idempotent; may do nothing.
    async fn retire_old_keys(&self, node: NodeId, used: Digest);
}
