//! The index of the fleet: the board, with one row for each node and class of its GPUs, kept current with the nodes.
//!
//! A memo, and no part of the state: everything in it follows from the nodes and from what was seen, whichever way they
//! came about, so that who has it and who must make it anew give the same answers. That is why reading it may bring it
//! up to date although the state is only lent: a change of a node is noted, and whoever asks next looks at the nodes
//! that changed. A copy of the state starts without; so does one that was read from a snapshot.
//!
//! Nodes whose GPUs of one class are not alike, or that hardware cuts into parts, are not on the board but in a set of
//! their own, which is looked at node by node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use super::board::block;
use super::board::row::GpuRoom;
use super::board::shape::Classes;
use super::board::{Bench, Board};
use super::fleet::{Fleet, Gpu, Node, NodeStatus};
use super::part;
use super::place::company::Companies;
use super::seen::is_of_one_tenant;
use crate::id::{GpuId, NodeId, TenantId};

/// See the module. Equal to any other, since it says nothing that the nodes do not.
#[derive(Default)]
pub struct Index(Mutex<Memo>);

impl Clone for Index {
    fn clone(&self) -> Index {
        Index::default()
    }
}

impl PartialEq for Index {
    fn eq(&self, _: &Index) -> bool {
        true
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Index")
    }
}

impl Index {
    /// A node changed, came or went.
    pub(super) fn changed(&mut self, node: NodeId) {
        let memo = self.0.get_mut().unwrap_or_else(|broken| broken.into_inner());
        memo.changed(node);
    }

    /// Nothing is known any more.
    pub(super) fn forget(&mut self) {
        *self = Index::default();
    }

    /// The memo, up to date with the fleet it is of.
    pub(super) fn of<'a>(&'a self, fleet: &Fleet) -> MutexGuard<'a, Memo> {
        let mut memo = self.0.lock().unwrap_or_else(|broken| {
            // Who panicked may have left it half changed.
            self.0.clear_poison();
            let mut memo = broken.into_inner();
            *memo = Memo::default();
            memo
        });
        memo.catch_up(fleet);
        memo
    }
}

/// What the index knows.
#[derive(Default)]
pub(super) struct Memo {
    pub board: Board,
    /// Where each row is.
    pub nodes: Vec<Seat>,
    /// Nodes that are looked at one by one for GPUs.
    pub odd: BTreeSet<NodeId>,
    /// Who is on the GPUs that were looked at.
    pub companies: Companies,
    rows: BTreeMap<NodeId, Known>,
    /// The nodes that have GPUs of each class.
    classes: BTreeMap<Box<str>, BTreeSet<NodeId>>,
    /// The nodes that have a GPU of an identity, by its hash: what is found is compared in the end.
    uuids: BTreeSet<(u64, NodeId)>,
    regions: BTreeMap<Box<str>, u16>,
    blocks: BTreeMap<Box<str>, u16>,
    pools: BTreeMap<TenantId, u16>,
    /// Nodes that changed since; meaningless before the first look.
    changed: Vec<NodeId>,
    started: bool,
    scored_by: u64,
}

/// The node of a row, and the first of its GPUs that are in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seat {
    pub node: NodeId,
    pub first: usize,
}

/// What is known of one node.
#[derive(Debug, Default)]
struct Known {
    rows: Vec<usize>,
    classes: BTreeSet<Box<str>>,
    /// Its GPUs, and the hashes of their identities.
    gpus: Vec<(GpuId, u64)>,
}

impl Memo {
    fn changed(&mut self, node: NodeId) {
        if self.started && self.changed.last() != Some(&node) {
            self.changed.push(node);
            // To look at every node once is less work than this.
            if self.changed.len() > 2 * self.rows.len() + 1024 {
                *self = Memo::default();
            }
        }
    }

    fn catch_up(&mut self, fleet: &Fleet) {
        if !std::mem::replace(&mut self.started, true) {
            for node in fleet.nodes() {
                self.take_in(fleet, node.id);
            }
        }
        let changed = std::mem::take(&mut self.changed);
        for &node in &changed {
            self.take_in(fleet, node);
        }
        self.changed = changed;
        self.changed.clear();
        let moved = fleet.seen().mix().moved();
        if self.scored_by != moved {
            self.scored_by = moved;
            self.board.score_by(fleet.seen().mix().often());
        }
    }

    fn take_in(&mut self, fleet: &Fleet, id: NodeId) {
        let mut known = self.rows.remove(&id).unwrap_or_default();
        let node = fleet.node(id);
        let (benches, odd) = node.map_or_else(Default::default, |node| self.benches(fleet, node));
        let same = known.rows.len() == benches.len()
            && known.rows.iter().zip(&benches).all(|(&row, (first, bench))| {
                self.nodes[row].first == *first && self.board.is_as(row, bench)
            });
        if same {
            for (&row, (_, bench)) in known.rows.iter().zip(&benches) {
                self.board
                    .set(row, bench.cpu_milli, bench.memory_mib, &bench.gpus);
            }
        } else {
            known.rows.drain(..).for_each(|row| self.board.leave(row));
            for (first, bench) in &benches {
                let row = self.board.join(bench);
                let seat = Seat {
                    node: id,
                    first: *first,
                };
                match self.nodes.get_mut(row) {
                    Some(old) => *old = seat,
                    None => self.nodes.push(seat),
                }
                known.rows.push(row);
            }
        }
        self.identify(id, node, &mut known);
        if !same || odd || self.odd.contains(&id) {
            self.list(id, node, &mut known, odd);
        }
        if node.is_some() {
            self.rows.insert(id, known);
        }
    }

    /// Lists the node by its GPUs' identities. A GPU's id stands for one identity.
    fn identify(&mut self, id: NodeId, node: Option<&Node>, known: &mut Known) {
        let gpus = node.map_or(&[][..], |node| &node.gpus);
        if gpus
            .iter()
            .map(|gpu| gpu.id)
            .eq(known.gpus.iter().map(|(gpu, _)| *gpu))
        {
            return;
        }
        for (gpu, hash) in known.gpus.drain(..) {
            self.uuids.remove(&(hash, id));
            self.companies.forget(gpu);
        }
        known
            .gpus
            .extend(gpus.iter().map(|gpu| (gpu.id, hash(&gpu.facts.uuid))));
        self.uuids.extend(known.gpus.iter().map(|(_, hash)| (*hash, id)));
    }

    /// Nodes that may have the GPU of this identity, all that do among them.
    pub fn with_uuid(&self, uuid: &str) -> impl Iterator<Item = NodeId> {
        let hash = hash(uuid);
        let found = self.uuids.range((hash, NodeId(0))..=(hash, NodeId(u64::MAX)));
        found.map(|(_, node)| *node)
    }

    /// Lists the node by its classes, and where it is looked at by itself.
    fn list(&mut self, id: NodeId, node: Option<&Node>, known: &mut Known, odd: bool) {
        match odd {
            true => self.odd.insert(id),
            false => self.odd.remove(&id),
        };
        let gpus = node.into_iter().flat_map(|node| &node.gpus);
        let now: BTreeSet<Box<str>> = gpus.map(|gpu| gpu.facts.class.clone()).collect();
        for class in known.classes.difference(&now) {
            if let Some(nodes) = self.classes.get_mut(class) {
                nodes.remove(&id);
                if nodes.is_empty() {
                    self.classes.remove(class);
                }
            }
        }
        for class in now.difference(&known.classes) {
            self.classes.entry(class.clone()).or_default().insert(id);
        }
        known.classes = now;
    }

    /// The node as rows, each with where its first GPU is; and whether its GPUs must be looked at one by one.
    fn benches(&mut self, fleet: &Fleet, node: &Node) -> (Vec<(usize, Bench)>, bool) {
        let up = node.status == NodeStatus::Up;
        let labels = &node.labels;
        let blank = Bench {
            class: Classes(0),
            vram_mib: 0,
            gpus: Vec::new(),
            cpu_milli: if up { node.free_cpu_milli() } else { 0 },
            memory_mib: if up { node.free_memory_mib() } else { 0 },
            node: node.id.0,
            block: labels
                .block
                .as_ref()
                .map(|block| number(&mut self.blocks, block).into()),
            region: labels
                .region
                .as_ref()
                .map_or(0, |region| number(&mut self.regions, region)),
            pool: node
                .held_for()
                .as_ref()
                .map_or(0, |tenant| number(&mut self.pools, tenant)),
        };
        let mut benches: Vec<(usize, Bench)> = Vec::new();
        for (at, gpu) in node.gpus.iter().enumerate() {
            if part::is_cut(&gpu.facts) {
                return (vec![(0, blank)], true);
            }
            let class = &gpu.facts.class;
            let known = benches
                .iter_mut()
                .find(|(first, _)| node.gpus[*first].facts.class == *class);
            let (first, bench) = match known {
                Some(known) => known,
                None => {
                    benches.push((
                        at,
                        Bench {
                            class: fleet.seen().class_of(&gpu.facts),
                            vram_mib: vram(gpu),
                            gpus: Vec::with_capacity(node.gpus.len()),
                            ..blank.clone()
                        },
                    ));
                    let last = benches.len() - 1;
                    &mut benches[last]
                }
            };
            if !are_alike(&node.gpus[*first], gpu) {
                return (vec![(0, blank)], true);
            }
            bench.gpus.push(room(gpu, up));
        }
        if benches.is_empty() {
            benches.push((0, blank));
        }
        (benches, false)
    }

    /// The number of a region; one that no row has where no node has it.
    pub fn region(&self, region: &str) -> u16 {
        self.regions.get(region).copied().unwrap_or(u16::MAX)
    }

    /// The number of a fabric block; that of none where no node told it.
    pub fn block(&self, block: Option<&str>) -> usize {
        let number = block.and_then(|block| self.blocks.get(block));
        number.map_or(block::NONE, |number| usize::from(*number))
    }

    /// The number of the nodes that are a tenant's alone; none where it has none.
    pub fn pool(&self, tenant: TenantId) -> Option<u16> {
        self.pools.get(&tenant).copied()
    }

    /// Classes of the fleet's GPUs, and the nodes that have each.
    pub fn classes(&self) -> &BTreeMap<Box<str>, BTreeSet<NodeId>> {
        &self.classes
    }
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Things are told apart by numbers from 1 on. Where there are more than numbers, some share one: numbers only narrow
/// the search, and the thing itself is compared in the end.
fn number<K: Ord + Clone>(known: &mut BTreeMap<K, u16>, thing: &K) -> u16 {
    if let Some(&number) = known.get(thing) {
        return number;
    }
    let new = u16::try_from(known.len() + 1).unwrap_or(u16::MAX);
    known.insert(thing.clone(), new);
    new
}

fn vram(gpu: &Gpu) -> u32 {
    u32::try_from(gpu.facts.vram_mib).unwrap_or(u32::MAX)
}

fn are_alike(one: &Gpu, other: &Gpu) -> bool {
    let (one, other) = (&one.facts, &other.facts);
    one.vram_mib == other.vram_mib
        && one.model == other.model
        && is_of_one_tenant(one) == is_of_one_tenant(other)
        && one.isolation.keys().eq(other.isolation.keys())
}

/// What is free of a GPU; nothing of one that takes no work.
fn room(gpu: &Gpu, up: bool) -> GpuRoom {
    if !up || !gpu.present || gpu.quarantine.is_some() {
        return GpuRoom::default();
    }
    GpuRoom {
        permille: u16::try_from(1000_u32.saturating_sub(gpu.used_permille)).unwrap_or(0),
        vram_mib: u32::try_from(gpu.facts.vram_mib.saturating_sub(gpu.used_vram_mib)).unwrap_or(u32::MAX),
    }
}
