//! Nodes: joining, what they have, losing and returning them, their keys.

use std::collections::BTreeMap;

use super::Case;
use crate::actor::Actor;
use crate::event::Event;
use crate::id::{GpuId, JobId, JoinTokenId, NodeId, TenantId};
use crate::market::check::{is_same_claim, is_to_be_asked};
use crate::name;
use crate::refusal::{Code, Refusal};
use crate::schedule::fleet::{Inventory, Node, NodeStatus};
use crate::schedule::label::Labels;
use crate::state::JoinToken;
use crate::tenancy::key::Digest;
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::member::MemberEnd;

const MAX_JOIN_TOKENS: usize = 10_000;
/// Of one tenant, so that none uses up what others need.
const MAX_TENANT_JOIN_TOKENS: usize = 100;

impl Case<'_> {
    fn node(&self, id: NodeId) -> Result<&Node, Refusal> {
        self.state.fleet.node(id).ok_or_else(Refusal::not_found)
    }

    /// A node may speak for itself alone; people need the right over nodes; Tenure itself may always.
    pub(super) fn may_for_node(&self, id: NodeId) -> Result<&Node, Refusal> {
        match &self.command.by {
            Actor::Node(by) if *by != id => return Err(Refusal::not_found()),
            Actor::User { .. } => self.may_manage_node(id)?,
            _ => {}
        }
        self.node(id)
    }

    /// The platform's people have a right over every node, a tenant's over those it brought. Who has neither is told the
    /// same of any node, be there one or not.
    fn may_manage_node(&self, id: NodeId) -> Result<(), Refusal> {
        let owner = self.state.fleet.node(id).and_then(|node| node.owner);
        if let Some(tenant) = owner
            && self.may(Action::NodeManage, ScopeId::Tenant(tenant)).is_ok()
        {
            return Ok(());
        }
        self.may(Action::NodeManage, ScopeId::Platform)
    }

    pub(super) fn create_join_token(
        &mut self,
        digest: Digest,
        expires: Time,
        tenant: Option<TenantId>,
    ) -> Result<Vec<Event>, Refusal> {
        let scope = tenant.map_or(ScopeId::Platform, ScopeId::Tenant);
        self.state.tree.find(scope)?;
        self.may(Action::NodeManage, scope)?;
        if let Some(suspended) = self.state.tree.suspended_above(scope) {
            let title = self.state.tree.title(suspended.id);
            return Err(Refusal::new(Code::Suspended, format!("{title} is suspended")));
        }
        if expires <= self.command.at {
            return Err(Refusal::invalid(
                "/expires",
                "the token would have expired already",
            ));
        }
        let tokens = self.state.join_tokens.values();
        let live: Vec<_> = tokens.filter(|token| token.expires > self.command.at).collect();
        let own = live.iter().filter(|token| token.tenant == tenant).count();
        let most = match tenant {
            Some(_) => MAX_TENANT_JOIN_TOKENS,
            None => MAX_JOIN_TOKENS,
        };
        if own >= most {
            return Err(
                Refusal::new(Code::WrongPhase, format!("{most} join tokens are unused already"))
                    .hint("let some expire"),
            );
        }
        Ok(vec![Event::JoinTokenCreated {
            token: JoinTokenId(self.ids.take()),
            digest,
            expires,
            tenant,
        }])
    }

    pub(super) fn join_node(
        &mut self,
        token: Digest,
        name: &str,
        key: Digest,
    ) -> Result<Vec<Event>, Refusal> {
        let known = self
            .state
            .join_tokens
            .iter()
            .find(|(_, known)| known.digest == token && known.expires > self.command.at);
        // Of a tenant that was closed since, a token is as good as none.
        let known = known.filter(|(_, known)| {
            let tenant = known.tenant.map(ScopeId::Tenant);
            tenant.is_none_or(|tenant| self.state.tree.get(tenant).is_some())
        });
        let Some((&token, &JoinToken { tenant: owner, .. })) = known else {
            return Err(
                Refusal::new(Code::BadJoinToken, "the join token is unknown, used or expired")
                    .hint("make a new one with `tenure node token`"),
            );
        };
        name::check(name, "/name")?;
        if self.state.fleet.nodes().any(|node| &*node.name == name) {
            return Err(
                Refusal::new(Code::NameTaken, format!("a node named {name} exists"))
                    .field("/name")
                    .hint("give another name, or remove the old node"),
            );
        }
        if self.state.fleet.nodes().any(|node| node.keys.contains(&key)) {
            return Err(
                Refusal::new(Code::ContradictoryReport, "another node has this key")
                    .hint("was the disk cloned? remove the agent's key and join again"),
            );
        }
        Ok(vec![Event::NodeJoined {
            node: NodeId(self.ids.take()),
            name: name.into(),
            key,
            token,
            owner,
        }])
    }

    pub(super) fn report_inventory(
        &mut self,
        id: NodeId,
        inventory: &Inventory,
    ) -> Result<Vec<Event>, Refusal> {
        let node = self.may_for_node(id)?;
        inventory.check()?;
        let (fleet, mut fresh) = (&self.state.fleet, self.ids.clone());
        let mut gpus = Vec::with_capacity(inventory.gpus.len());
        for facts in &inventory.gpus {
            let mut elsewhere = fleet.nodes_with(&facts.uuid).into_iter();
            let holder = elsewhere.find(|other| other.id != id && other.status != NodeStatus::Lost);
            if let Some(holder) = holder {
                return Err(Refusal::new(
                    Code::ContradictoryReport,
                    format!("GPU {} is on node {} too", facts.uuid, holder.name),
                )
                .field("/gpus/uuid"));
            }
            let known = node.gpus.iter().find(|gpu| gpu.facts.uuid == facts.uuid);
            gpus.push(known.map_or_else(|| GpuId(fresh.take()), |gpu| gpu.id));
        }
        for gpu in node.gpus.iter().filter(|gpu| !gpu.holders.is_empty()) {
            let now = inventory.gpus.iter().find(|facts| facts.uuid == gpu.facts.uuid);
            if now.is_some_and(|facts| facts.vram_mib < gpu.used_vram_mib) {
                return Err(Refusal::new(
                    Code::ContradictoryReport,
                    format!("GPU {} shrank below what is in use of it", gpu.facts.uuid),
                )
                .field("/gpus/vram_mib"));
            }
        }
        let same = node.cpu_milli == inventory.cpu_milli
            && node.holds_images(&inventory.images)
            && node.memory_mib == inventory.memory_mib
            && node.volume_mib == inventory.volume_mib
            && node.gpus.iter().filter(|gpu| gpu.present).count() == inventory.gpus.len()
            && inventory
                .gpus
                .iter()
                .all(|facts| node.gpus.iter().any(|gpu| gpu.present && *gpu.facts == *facts));
        if same {
            return Ok(vec![]);
        }
        let asked = self.to_be_asked(node, inventory, &gpus);
        let due = self
            .command
            .at
            .plus_ms(self.state.market.terms.check_answer_s * SECOND_MS);
        let questions = asked.into_iter().map(|gpu| Event::GpuCheckAsked {
            node: id,
            gpu,
            number: fresh.take(),
            due,
        });
        let questions: Vec<Event> = questions.collect();
        let mut events = vec![Event::NodeInventoried {
            node: id,
            inventory: inventory.clone(),
            gpus,
        }];
        events.extend(questions);
        Ok(events)
    }

    /// GPUs that have to show what they are: those a tenant brought from when they are first seen, so that it may list
    /// them at once, and any that were asked before and of which something else is said now.
    fn to_be_asked(&self, node: &Node, inventory: &Inventory, gpus: &[GpuId]) -> Vec<GpuId> {
        let (market, at) = (&self.state.market, self.command.at);
        let each = inventory.gpus.iter().zip(gpus);
        let asked = each.filter(|(facts, gpu)| {
            let same = node
                .gpu(**gpu)
                .is_some_and(|known| is_same_claim(&known.facts, facts));
            match market.gpu_check(**gpu) {
                Some(check) if same => {
                    node.owner.is_some() && check.passed.is_none() && is_to_be_asked(Some(check), at)
                }
                Some(_) => true,
                None => node.owner.is_some(),
            }
        });
        asked.map(|(_, gpu)| *gpu).collect()
    }

    /// The node's lease ran out: its work is given up and goes back to the queue.
    pub(super) fn lose_node(&mut self, id: NodeId) -> Result<Vec<Event>, Refusal> {
        let node = self.may_for_node(id)?;
        if node.status == NodeStatus::Lost {
            return Ok(vec![]);
        }
        let title = node.name.clone();
        let mut events = vec![Event::NodeLost { node: id }];
        let mut lost: BTreeMap<JobId, Vec<_>> = BTreeMap::new();
        for allocation in self.state.fleet.allocations_on(id) {
            let why = format!("node {title} was lost");
            let end = MemberEnd::Lost { why };
            lost.entry(allocation.job).or_default().push((allocation, end));
        }
        for (job, ends) in lost {
            events.extend(self.ended(&self.state.jobs[&job], &ends));
        }
        Ok(events)
    }

    pub(super) fn return_node(&self, id: NodeId) -> Result<Vec<Event>, Refusal> {
        let node = self.may_for_node(id)?;
        Ok(if node.status == NodeStatus::Lost {
            vec![Event::NodeReturned { node: id }]
        } else {
            vec![]
        })
    }

    pub(super) fn cordon_node(&self, id: NodeId) -> Result<Vec<Event>, Refusal> {
        self.may_manage_node(id)?;
        let node = self.node(id)?;
        match node.status {
            NodeStatus::Cordoned => Ok(vec![]),
            NodeStatus::Up => Ok(vec![Event::NodeCordoned { node: id }]),
            NodeStatus::Lost => Err(
                Refusal::new(Code::WrongPhase, format!("node {} is lost", node.name))
                    .hint("remove it, or wait for its return"),
            ),
        }
    }

    pub(super) fn uncordon_node(&self, id: NodeId) -> Result<Vec<Event>, Refusal> {
        self.may_manage_node(id)?;
        Ok(if self.node(id)?.status == NodeStatus::Cordoned {
            vec![Event::NodeUncordoned { node: id }]
        } else {
            vec![]
        })
    }

    /// What runs there goes on, whoever the node is dedicated to now.
    pub(super) fn label_node(
        &self,
        id: NodeId,
        labels: &Labels,
        revision: Option<u64>,
    ) -> Result<Vec<Event>, Refusal> {
        self.may(Action::NodeManage, ScopeId::Platform)?;
        let node = self.node(id)?;
        labels.check()?;
        if revision.is_some_and(|read| read != node.revision) {
            return Err(
                Refusal::new(Code::RevisionMismatch, "the node was changed since you read it")
                    .hint("read it again and repeat the change"),
            );
        }
        if let Some(tenant) = labels.dedicated {
            let known = self.state.tree.get(ScopeId::Tenant(tenant)).is_some();
            if !known {
                return Err(Refusal::invalid("/dedicated", "there is no such tenant")
                    .hint("`tenure tenant list` shows them"));
            }
        }
        let owner = node.owner.map(ScopeId::Tenant);
        let owner = owner.filter(|owner| self.state.tree.get(*owner).is_some());
        if let Some(owner) = owner
            && labels.dedicated != node.owner
        {
            let title = self.state.tree.title(owner);
            return Err(Refusal::invalid(
                "/dedicated",
                format!("{title} brought this node, and it is nobody else's"),
            ));
        }
        Ok(if node.labels == *labels {
            vec![]
        } else {
            vec![Event::NodeLabelled {
                node: id,
                labels: labels.clone(),
            }]
        })
    }

    pub(super) fn add_node_key(&self, id: NodeId, key: Digest) -> Result<Vec<Event>, Refusal> {
        let node = self.may_for_node(id)?;
        if node.keys.contains(&key) {
            return Ok(vec![]);
        }
        if node.keys.len() >= 2 {
            return Err(Refusal::new(
                Code::WrongPhase,
                format!("node {} has two keys already", node.name),
            )
            .hint("revoke the older one first"));
        }
        if self.state.fleet.nodes().any(|other| other.keys.contains(&key)) {
            return Err(Refusal::new(
                Code::ContradictoryReport,
                "another node has this key",
            ));
        }
        Ok(vec![Event::NodeKeyAdded { node: id, key }])
    }

    pub(super) fn revoke_node_key(&self, id: NodeId, key: Digest) -> Result<Vec<Event>, Refusal> {
        let node = self.may_for_node(id)?;
        if !node.keys.contains(&key) {
            return Err(Refusal::not_found());
        }
        Ok(vec![Event::NodeKeyRevoked { node: id, key }])
    }

    pub(super) fn remove_node(&self, id: NodeId) -> Result<Vec<Event>, Refusal> {
        self.may_manage_node(id)?;
        let node = self.node(id)?;
        if !node.allocations.is_empty() {
            return Err(Refusal::new(
                Code::JobsStillLive,
                format!("{} jobs run on node {}", node.allocations.len(), node.name),
            )
            .hint("cordon it and wait, or stop the jobs"));
        }
        let kept = self.state.volumes.on(id).filter(|volume| !volume.removed).count();
        if kept > 0 {
            return Err(Refusal::new(
                Code::VolumesStillThere,
                format!(
                    "{kept} volumes are on node {}, and would be lost with it",
                    node.name
                ),
            )
            .hint("copy what is needed and remove the volumes"));
        }
        // Whatever it had not erased yet goes with it.
        let erased = self.state.volumes.on(id).map(|volume| Event::VolumeErased {
            volume: volume.id,
            scope: volume.scope,
            node: id,
        });
        Ok(erased.chain([Event::NodeRemoved { node: id }]).collect())
    }
}
