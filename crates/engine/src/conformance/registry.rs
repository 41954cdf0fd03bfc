//! A registry in memory, for tests: tokens, nodes and their keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tenure_api::token::{self, Kind};
use tenure_domain::id::NodeId;
use tenure_domain::refusal::{Code, Refusal};
use tenure_domain::tenancy::key::Digest;

use crate::local::Registry;

#[derive(Default)]
pub struct MemoryRegistry {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    tokens: BTreeSet<String>,
    keys: BTreeMap<Digest, NodeId>,
    nodes: u64,
    joins: u32,
}

impl MemoryRegistry {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A token good for one join.
    pub fn issue(&self, seed: u8) -> String {
        let text = token::write(Kind::Join, &[seed; 32]).reveal().to_owned();
        self.inner().tokens.insert(text.clone());
        text
    }

    /// Takes a node's keys away.
    pub fn revoke(&self, node: NodeId) {
        self.inner().keys.retain(|_, of| *of != node);
    }

    pub fn keys_of(&self, node: NodeId) -> Vec<Digest> {
        self.inner()
            .keys
            .iter()
            .filter(|(_, of)| **of == node)
            .map(|(key, _)| *key)
            .collect()
    }

    /// How many joins were taken.
    pub fn joins(&self) -> u32 {
        self.inner().joins
    }
}

#[async_trait]
impl Registry for MemoryRegistry {
    async fn join(&self, token: &str, _name: &str, key: Digest) -> Result<NodeId, Refusal> {
        let mut inner = self.inner();
        if !inner.tokens.remove(token) {
            return Err(Refusal::new(
                Code::BadJoinToken,
                "the join token is unknown, used or expired",
            ));
        }
        inner.nodes += 1;
        inner.joins += 1;
        let node = NodeId(inner.nodes);
        inner.keys.insert(key, node);
        Ok(node)
    }

    async fn node_of(&self, key: &Digest) -> Option<NodeId> {
        self.inner().keys.get(key).copied()
    }

    async fn rotate(&self, node: NodeId, new_key: Digest) -> Result<(), Refusal> {
        self.inner().keys.insert(new_key, node);
        Ok(())
    }

    async fn retire_old_keys(&self, node: NodeId, used: Digest) {
        self.inner().keys.retain(|key, of| *of != node || *key == used);
    }
}
