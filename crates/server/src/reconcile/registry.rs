//! What the local engine asks about nodes and their keys, answered from the view and the controller.

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};
use tenure_api::token;
use tenure_domain::id::NodeId;
use tenure_domain::refusal::{Code, Refusal};
use tenure_domain::tenancy::key::Digest;
use tenure_domain::{Actor, Wish};
use tenure_engine::local::Registry;

use crate::controller::{Controller, NotDone};

/// Nodes by their keys.
pub struct Enrolment {
    controller: Controller,
}

impl Enrolment {
    pub fn new(controller: Controller) -> Enrolment {
        Enrolment { controller }
    }

    async fn wish(&self, by: Actor, wish: Wish) -> Result<u64, Refusal> {
        match self.controller.submit(by, wish, None, None).await {
            Ok(accepted) => Ok(accepted.ids),
            Err(NotDone::Refused(refusal)) => Err(refusal),
            Err(NotDone::NotLeading) => {
                Err(Refusal::new(Code::WrongPhase, "this server does not lead").hint("try another server"))
            }
        }
    }
}

#[async_trait]
impl Registry for Enrolment {
    async fn join(&self, token: &str, name: &str, key: Digest) -> Result<NodeId, Refusal> {
        let unknown = |_| {
            Refusal::new(Code::BadJoinToken, "the join token is not one")
                .hint("make a new one with `tenure node token`")
        };
        let bytes = token::read(token::Kind::Join, token).map_err(unknown)?;
        let token = Digest(Sha256::digest(bytes).into());
        self.wish(
            Actor::System,
            Wish::JoinNode {
                token,
                name: name.to_owned(),
                key,
            },
        )
        .await
        .map(NodeId)
    }

    async fn node_of(&self, key: &Digest) -> Option<NodeId> {
        let state = self.controller.view().read();
        state
            .fleet
            .nodes()
            .find(|node| node.keys.contains(key))
            .map(|node| node.id)
    }

    async fn rotate(&self, node: NodeId, new_key: Digest) -> Result<(), Refusal> {
        self.wish(Actor::Node(node), Wish::AddNodeKey { node, key: new_key })
            .await
            .map(drop)
    }

    async fn retire_old_keys(&self, node: NodeId, used: Digest) {
        let old: Vec<Digest> = {
            let state = self.controller.view().read();
            state
                .fleet
                .node(node)
                .map(|node| node.keys.iter().copied().filter(|key| *key != used).collect())
                .unwrap_or_default()
        };
        for key in old {
            if let Err(refusal) = self
                .wish(Actor::Node(node), Wish::RevokeNodeKey { node, key })
                .await
            {
                tracing::warn!(%node, %refusal, "an old node key was not retired");
            }
        }
    }
}
