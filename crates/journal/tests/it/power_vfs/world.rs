//! The disk of a machine between two power cuts: what is written, what is synced, what a cut leaves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::place::Chance;

pub(super) const SECTOR: usize = 512;
pub(super) const SHM_SLOTS: usize = 8;

pub type Disk = HashMap<String, Vec<u8>>;

pub(super) enum Op {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

#[derive(Default)]
pub(super) struct Node {
    /// What a reader sees.
    pub(super) content: Vec<u8>,
    /// What surely survives.
    pub(super) synced: Vec<u8>,
    pub(super) pending: Vec<Op>,
    /// Whether the directory surely knows of this file.
    pub(super) entered: bool,
    pub(super) locks: HashMap<usize, i32>,
    pub(super) shm: Vec<Vec<u8>>,
    pub(super) shm_shared: [Vec<usize>; SHM_SLOTS],
    pub(super) shm_exclusive: [Option<usize>; SHM_SLOTS],
}

pub enum Fault {
    DiskFull,
    SyncFails,
}

pub(super) struct State {
    pub(super) nodes: HashMap<String, Node>,
    /// Files removed since the directory was last synced.
    pub(super) removed: HashMap<String, Vec<u8>>,
    pub(super) fuse: Option<u32>,
    pub(super) chance: Chance,
    pub(super) after: Option<Disk>,
    pub(super) fault: Option<Fault>,
    pub(super) next_handle: usize,
}

pub struct World(Mutex<State>);

impl World {
    pub fn new(disk: Disk, seed: u64) -> Arc<World> {
        let nodes = disk.into_iter().map(|(name, content)| {
            let node = Node {
                synced: content.clone(),
                content,
                entered: true,
                ..Node::default()
            };
            (name, node)
        });
        Arc::new(World(Mutex::new(State {
            nodes: nodes.collect(),
            removed: HashMap::new(),
            fuse: None,
            chance: Chance(seed),
            after: None,
            fault: None,
            next_handle: 0,
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Power goes at the `ops`-th change to the disk from now.
    pub fn light(&self, ops: u32) {
        self.state().fuse = Some(ops);
    }

    pub fn is_dark(&self) -> bool {
        self.state().after.is_some()
    }

    /// Cuts the power, if it is not cut already, and returns what is on the disk.
    pub fn cut(&self) -> Disk {
        let mut state = self.state();
        if state.after.is_none() {
            state.cut();
        }
        state.after.clone().unwrap()
    }

    pub fn fault(&self, fault: Option<Fault>) {
        self.state().fault = fault;
    }

    /// Makes files of `dir` live in this world.
    pub fn mount(self: &Arc<World>, dir: &str) {
        super::register();
        worlds().insert(dir.to_owned(), self.clone());
    }
}

pub fn unmount(dir: &str) {
    worlds().remove(dir);
}

impl State {
    /// Counts one change to the disk; false when there is no power.
    pub(super) fn powered(&mut self) -> bool {
        if self.after.is_some() {
            return false;
        }
        match &mut self.fuse {
            Some(0) => {
                self.cut();
                false
            }
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }

    fn cut(&mut self) {
        let State {
            nodes,
            removed,
            chance,
            ..
        } = self;
        let mut disk = Disk::new();
        let mut names: Vec<_> = nodes.keys().cloned().collect();
        names.sort();
        for name in names {
            let node = &nodes[&name];
            if node.entered || !chance.one_in(3) {
                disk.insert(name.clone(), survivors(node, chance));
            }
        }
        let mut names: Vec<_> = removed.keys().cloned().collect();
        names.sort();
        for name in names {
            if !disk.contains_key(&name) && chance.one_in(2) {
                disk.insert(name.clone(), removed[&name].clone());
            }
        }
        self.after = Some(disk);
    }
}

/// One of the states a file may be in: all of the unsynced writes lost, a prefix kept, or each sector of
/// each write kept or lost by itself.
fn survivors(node: &Node, chance: &mut Chance) -> Vec<u8> {
    let mut content = node.synced.clone();
    let mode = chance.below(4);
    let prefix = chance.below(node.pending.len() + 1);
    for (at, op) in node.pending.iter().enumerate() {
        match (mode, op) {
            (0, _) => break,
            (1, _) if at >= prefix => break,
            (1, op) => apply(&mut content, op),
            (_, Op::Truncate(_)) if chance.one_in(2) => {}
            (_, op @ Op::Truncate(_)) => apply(&mut content, op),
            (_, Op::Write(offset, bytes)) => {
                let mut start = 0;
                while start < bytes.len() {
                    let end = bytes.len().min(start + SECTOR - (offset + start) % SECTOR);
                    if chance.one_in(2) {
                        apply(
                            &mut content,
                            &Op::Write(offset + start, bytes[start..end].to_vec()),
                        );
                    }
                    start = end;
                }
            }
        }
    }
    content
}

pub(super) fn apply(content: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write(offset, bytes) => {
            if content.len() < offset + bytes.len() {
                content.resize(offset + bytes.len(), 0);
            }
            content[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Op::Truncate(size) => content.resize(*size, 0),
    }
}

pub(super) fn worlds() -> MutexGuard<'static, HashMap<String, Arc<World>>> {
    static WORLDS: OnceLock<Mutex<HashMap<String, Arc<World>>>> = OnceLock::new();
    WORLDS.get_or_init(Mutex::default).lock().unwrap()
}
