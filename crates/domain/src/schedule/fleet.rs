//! The fleet: nodes and their GPUs, and how much of each is given away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::allocation::{Allocation, Slice};
use super::hardware::Hardware;
use super::index::{Index, Memo};
use super::label::Labels;
use super::seen::Seen;
use crate::id::{AllocationId, GpuId, NodeId, TenantId};
use crate::name;
use crate::refusal::Refusal;
use crate::tenancy::key::Digest;
use crate::time::Time;
use crate::workload::image::{ImageDigest, ImageName};
use crate::workload::spec::{Demand, Isolation};

/// The most images a node tells of; older ones may be there too.
pub const MAX_IMAGES: usize = 100;

/// A device as its node found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GpuFacts {
    /// The vendor's own identity of the device, unique in the world.
    pub uuid: String,
    pub vendor: String,
    pub model: String,
    /// What quotas and prices call it, such as `H100`.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub class: Box<str>,
    pub vram_mib: u64,
    /// Levels it can give, and for each why it can.
    pub isolation: BTreeMap<Isolation, String>,
    /// What its driver tells of it beyond that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Box<Hardware>>,
}

/// A machine as its agent found it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    pub cpu_milli: u32,
    pub memory_mib: u64,
    pub gpus: Vec<GpuFacts>,
    /// Container images it holds, newest use first: names in full, and digests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// Space set apart for volumes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub volume_mib: u64,
}

pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Inventory {
    pub fn check(&self) -> Result<(), Refusal> {
        if self.cpu_milli == 0 || self.memory_mib == 0 {
            return Err(Refusal::invalid(
                "/cpu_milli",
                "a node has at least some CPU and memory",
            ));
        }
        if self.gpus.len() > 1024 {
            return Err(Refusal::invalid("/gpus", "a node has at most 1024 GPUs"));
        }
        let mut uuids = BTreeSet::new();
        for gpu in &self.gpus {
            name::check(&gpu.class, "/gpus/class")?;
            name::check_text(&gpu.model, 200, "/gpus/model")?;
            name::check_text(&gpu.uuid, 200, "/gpus/uuid")?;
            if gpu.uuid.is_empty() || !uuids.insert(&gpu.uuid) {
                return Err(Refusal::invalid("/gpus/uuid", "each GPU has its own uuid"));
            }
            if gpu.vram_mib == 0 || gpu.vram_mib > 1 << 30 {
                return Err(Refusal::invalid(
                    "/gpus/vram_mib",
                    "a GPU has between 1 MiB and 1 PiB of memory",
                ));
            }
            gpu.hardware
                .as_ref()
                .map_or(Ok(()), |hardware| hardware.check())?;
        }
        if self.volume_mib > 1 << 40 {
            return Err(Refusal::invalid(
                "/volume_mib",
                "a node has at most 1 EiB for volumes",
            ));
        }
        if self.images.len() > MAX_IMAGES {
            return Err(Refusal::invalid(
                "/images",
                format!("a node tells of at most {MAX_IMAGES} images"),
            ));
        }
        for image in &self.images {
            let known = image.parse::<ImageDigest>().is_ok() || image.parse::<ImageName>().is_ok();
            if !known {
                return Err(Refusal::invalid(
                    "/images",
                    "an image is told of by its name or its digest",
                ));
            }
        }
        Ok(())
    }
}

/// A device and how much of it is given away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    pub id: GpuId,
    /// Shared by all copies of the node, of which there are many while others are thought away from it.
    pub facts: Arc<GpuFacts>,
    pub used_vram_mib: u64,
    pub used_permille: u32,
    /// Allocations with a slice of it.
    pub holders: Vec<AllocationId>,
    /// Seen at the node's last report.
    pub present: bool,
    /// Why it gets no work, until an operator releases it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<Box<str>>,
}

impl Gpu {
    /// A device that is gone is forgotten when nothing is on it any more, unless it must not come back unseen.
    pub(crate) fn is_known(&self) -> bool {
        self.present || !self.holders.is_empty() || self.quarantine.is_some()
    }

    /// INVARIANT: no device is given away twice.
    fn assert_not_over_committed(&self) {
        assert!(
            self.used_permille <= 1000 && self.used_vram_mib <= self.facts.vram_mib,
            "INVARIANT: {} over-committed",
            self.id
        );
    }
}

/// Whether a node takes work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeStatus {
    /// Reachable, takes work.
    Up,
    /// Its lease ran out: its work was given up, and it takes none until it is heard of.
    Lost,
    /// An operator took it out of service; what runs goes on.
    Cordoned,
}

/// A machine of the fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub name: Box<str>,
    pub joined: Time,
    pub status: NodeStatus,
    /// An operator took it out of service; remembered while it is lost.
    #[serde(default)]
    pub cordoned: bool,
    /// SHA-256 of the public keys the node may speak with; two while a key is rotated.
    pub keys: Vec<Digest>,
    pub cpu_milli: u32,
    pub memory_mib: u64,
    pub used_cpu_milli: u32,
    pub used_memory_mib: u64,
    pub gpus: Vec<Gpu>,
    /// Container images it holds, by name and by digest: a job that names one starts there without a download.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub images: BTreeSet<Box<str>>,
    pub allocations: BTreeSet<AllocationId>,
    /// Space set apart for volumes, and what those bound here take of it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub volume_mib: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub used_volume_mib: u64,
    /// What an operator said of it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The tenant that brought it, with a token of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<TenantId>,
    /// Only jobs of this tenant go there for a time, whoever it is dedicated to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub let_to: Option<TenantId>,
    /// The number of its last receipt that was taken note of.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_receipt: u64,
    pub revision: u64,
}

impl Node {
    pub(crate) fn new(id: NodeId, name: &str, key: Digest, joined: Time) -> Node {
        Node {
            id,
            name: name.into(),
            joined,
            status: NodeStatus::Up,
            cordoned: false,
            keys: vec![key],
            images: Default::default(),
            cpu_milli: 0,
            memory_mib: 0,
            used_cpu_milli: 0,
            used_memory_mib: 0,
            gpus: Vec::new(),
            allocations: Default::default(),
            volume_mib: 0,
            used_volume_mib: 0,
            labels: Labels::default(),
            owner: None,
            let_to: None,
            last_receipt: 0,
            revision: 1,
        }
    }

    /// Whose jobs alone go there.
    pub fn held_for(&self) -> Option<TenantId> {
        self.let_to.or(self.labels.dedicated)
    }

    /// Whether jobs of this tenant that ask for this region may come here.
    pub fn admits(&self, tenant: Option<TenantId>, region: Option<&str>) -> bool {
        self.held_for().is_none_or(|holder| Some(holder) == tenant) && self.labels.is_in(region)
    }

    /// Nothing, too, when it has less than is used.
    pub fn free_cpu_milli(&self) -> u32 {
        self.cpu_milli.saturating_sub(self.used_cpu_milli)
    }

    pub fn free_memory_mib(&self) -> u64 {
        self.memory_mib.saturating_sub(self.used_memory_mib)
    }

    fn take_inventory(&mut self, inventory: &Inventory, gpus: &[GpuId]) {
        self.cpu_milli = inventory.cpu_milli;
        self.memory_mib = inventory.memory_mib;
        self.volume_mib = inventory.volume_mib;
        self.images = inventory
            .images
            .iter()
            .map(|image| image.as_str().into())
            .collect();
        self.gpus.iter_mut().for_each(|gpu| gpu.present = false);
        for (facts, &gpu) in inventory.gpus.iter().zip(gpus) {
            match self.gpus.iter_mut().find(|known| known.id == gpu) {
                Some(known) => {
                    known.facts = Arc::new(facts.clone());
                    known.present = true;
                }
                None => self.gpus.push(Gpu {
                    id: gpu,
                    facts: Arc::new(facts.clone()),
                    used_vram_mib: 0,
                    used_permille: 0,
                    holders: vec![],
                    present: true,
                    quarantine: None,
                }),
            }
        }
        self.gpus.retain(Gpu::is_known);
    }

    pub fn gpu(&self, id: GpuId) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.id == id)
    }

    fn take_slices(&mut self, holder: AllocationId, slices: &[Slice]) {
        for slice in slices {
            let gpu = self
                .gpus
                .iter_mut()
                .find(|gpu| gpu.id == slice.gpu)
                .expect("INVARIANT: slices are of known GPUs");
            gpu.used_vram_mib += slice.vram_mib;
            gpu.used_permille += u32::from(slice.compute_permille);
            gpu.holders.push(holder);
            gpu.assert_not_over_committed();
        }
    }

    fn give_back_slices(&mut self, holder: AllocationId, slices: &[Slice]) {
        for slice in slices {
            let gpu = self
                .gpus
                .iter_mut()
                .find(|gpu| gpu.id == slice.gpu)
                .expect("INVARIANT: slices are of known GPUs");
            gpu.used_vram_mib -= slice.vram_mib;
            gpu.used_permille -= u32::from(slice.compute_permille);
            gpu.holders.retain(|&known| known != holder);
        }
        self.gpus.retain(Gpu::is_known);
    }

    /// The node as it might be: with this allocation gone, or paused, which keeps its processes there.
    pub(super) fn without(&mut self, allocation: &Allocation, paused: bool) {
        if !allocation.paused {
            self.give_back_slices(allocation.id, &allocation.slices);
        }
        if !paused {
            self.used_cpu_milli -= allocation.cpu_milli;
            self.used_memory_mib -= allocation.memory_mib;
            self.allocations.remove(&allocation.id);
        }
    }

    /// The node as it might be: with one more allocation.
    pub(super) fn with(&mut self, allocation: &Allocation) {
        self.used_cpu_milli += allocation.cpu_milli;
        self.used_memory_mib += allocation.memory_mib;
        self.allocations.insert(allocation.id);
        self.take_slices(allocation.id, &allocation.slices);
    }

    /// Nothing, too, when the space was cut below what is used.
    pub fn free_volume_mib(&self) -> u64 {
        self.volume_mib.saturating_sub(self.used_volume_mib)
    }

    /// Whether these are the images it is known to hold. Which was used last matters to the node alone.
    pub(crate) fn holds_images(&self, images: &[String]) -> bool {
        let told: BTreeSet<&str> = images.iter().map(String::as_str).collect();
        told.len() == self.images.len() && told.iter().all(|image| self.images.contains(*image))
    }
}

/// All nodes and living allocations.
///
/// INVARIANT: whatever changes a node tells the index, so nobody but these methods can.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    nodes: BTreeMap<NodeId, Node>,
    pub(crate) allocations: BTreeMap<AllocationId, Allocation>,
    #[serde(default)]
    seen: Seen,
    #[serde(skip)]
    index: Index,
}

impl Fleet {
    pub(super) fn seen(&self) -> &Seen {
        &self.seen
    }

    pub(super) fn index(&self) -> impl std::ops::DerefMut<Target = Memo> + '_ {
        self.index.of(self)
    }

    /// Restores what a snapshot leaves out, and what one of an older version did not know.
    pub(crate) fn rebuild_index(&mut self) {
        let facts = self.nodes.values().flat_map(|node| &node.gpus);
        self.seen.note_gpus(facts.map(|gpu| &*gpu.facts), &self.nodes);
        self.index.forget();
    }

    /// Takes note of what a submitted job asks for.
    pub(crate) fn note_ask(&mut self, demand: &Demand) {
        self.seen.note_ask(demand, self.nodes.len());
    }

    pub(crate) fn join(&mut self, node: Node) {
        self.index.changed(node.id);
        self.nodes.insert(node.id, node);
    }

    pub(crate) fn remove(&mut self, id: NodeId) {
        self.index.changed(id);
        self.nodes.remove(&id);
    }

    pub(crate) fn change_node(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        let node = self.node_mut(id);
        change(node);
        node.revision += 1;
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.index.changed(id);
        self.nodes
            .get_mut(&id)
            .expect("INVARIANT: events and allocations name known nodes")
    }

    pub(crate) fn inventory(&mut self, id: NodeId, inventory: &Inventory, gpus: &[GpuId]) {
        // A device seen here is no longer on a lost node that had it: nothing runs there.
        let lost = |other: &&mut Node| other.id != id && other.status == NodeStatus::Lost;
        for other in self.nodes.values_mut().filter(lost) {
            let before = other.gpus.len();
            other
                .gpus
                .retain(|gpu| !inventory.gpus.iter().any(|facts| facts.uuid == gpu.facts.uuid));
            if other.gpus.len() != before {
                self.index.changed(other.id);
            }
        }
        self.change_node(id, |node| node.take_inventory(inventory, gpus));
        self.seen.note_gpus(inventory.gpus.iter(), &self.nodes);
    }

    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// At most so many nodes, of those with GPUs of the class if one is named; a `turn` later, others.
    pub(super) fn some_nodes(&self, class: Option<&str>, turn: u64, most: usize) -> Vec<&Node> {
        let around = |all: usize| match all > most {
            true => (turn % all as u64) as usize,
            false => 0,
        };
        let Some(class) = class else {
            let first = around(self.nodes.len());
            let nodes = self.nodes.values();
            return nodes
                .clone()
                .skip(first)
                .chain(nodes.take(first))
                .take(most)
                .collect();
        };
        let index = self.index();
        let Some(ids) = index.classes().get(class) else {
            return Vec::new();
        };
        let first = around(ids.len());
        let ids = ids.iter().skip(first).chain(ids.iter().take(first)).take(most);
        ids.filter_map(|id| self.nodes.get(id)).collect()
    }

    /// The nodes that have the GPU of this identity.
    pub(crate) fn nodes_with(&self, uuid: &str) -> Vec<&Node> {
        let index = self.index();
        let nodes = index.with_uuid(uuid).filter_map(|id| self.nodes.get(&id));
        let has = |node: &&Node| node.gpus.iter().any(|gpu| gpu.present && gpu.facts.uuid == *uuid);
        nodes.filter(has).collect()
    }

    pub fn allocation(&self, id: AllocationId) -> Option<&Allocation> {
        self.allocations.get(&id)
    }

    pub fn allocations(&self) -> impl Iterator<Item = &Allocation> {
        self.allocations.values()
    }

    pub fn allocations_on(&self, node: NodeId) -> impl Iterator<Item = &Allocation> {
        self.nodes
            .get(&node)
            .into_iter()
            .flat_map(|node| &node.allocations)
            .filter_map(|id| self.allocations.get(id))
    }

    pub fn find_gpu_by_uuid(&self, uuid: &str) -> Option<(&Node, &Gpu)> {
        self.nodes.values().find_map(|node| {
            node.gpus
                .iter()
                .find(|gpu| gpu.facts.uuid == uuid)
                .map(|gpu| (node, gpu))
        })
    }

    pub(crate) fn take(&mut self, allocation: &Allocation) {
        self.node_mut(allocation.node).with(allocation);
        self.allocations.insert(allocation.id, allocation.clone());
    }

    /// Takes the GPUs from an allocation that keeps its place on the node.
    pub(crate) fn set_aside(&mut self, id: AllocationId) {
        let (node, allocation) = self.at(id);
        allocation.paused = true;
        node.give_back_slices(id, &allocation.slices);
    }

    /// Gives it GPUs of its node again.
    pub(crate) fn take_up(&mut self, id: AllocationId, slices: &[Slice]) {
        let (node, allocation) = self.at(id);
        allocation.paused = false;
        allocation.ran_before_ms = allocation.metered_ms;
        allocation.slices = slices.to_vec();
        node.take_slices(id, slices);
    }

    fn at(&mut self, id: AllocationId) -> (&mut Node, &mut Allocation) {
        let allocation = self
            .allocations
            .get_mut(&id)
            .expect("INVARIANT: events name living allocations");
        self.index.changed(allocation.node);
        let node = self
            .nodes
            .get_mut(&allocation.node)
            .expect("INVARIANT: allocations stand on known nodes");
        (node, allocation)
    }

    /// Changes the size of an allocation's slices, each on its own GPU.
    pub(crate) fn resize(&mut self, id: AllocationId, slices: &[Slice]) {
        let (node, allocation) = self.at(id);
        let before = std::mem::replace(&mut allocation.slices, slices.to_vec());
        allocation.resized = true;
        for (old, new) in before.iter().zip(slices) {
            let gpu = node
                .gpus
                .iter_mut()
                .find(|gpu| gpu.id == old.gpu && gpu.id == new.gpu)
                .expect("INVARIANT: slices are of known GPUs");
            gpu.used_vram_mib = gpu.used_vram_mib - old.vram_mib + new.vram_mib;
            gpu.used_permille =
                gpu.used_permille - u32::from(old.compute_permille) + u32::from(new.compute_permille);
            gpu.assert_not_over_committed();
        }
    }

    pub(crate) fn give_back(&mut self, id: AllocationId) -> Allocation {
        let allocation = self
            .allocations
            .remove(&id)
            .expect("INVARIANT: only living allocations end");
        let node = self.node_mut(allocation.node);
        node.used_cpu_milli -= allocation.cpu_milli;
        node.used_memory_mib -= allocation.memory_mib;
        node.allocations.remove(&id);
        if !allocation.paused {
            node.give_back_slices(id, &allocation.slices);
        }
        allocation
    }
}
