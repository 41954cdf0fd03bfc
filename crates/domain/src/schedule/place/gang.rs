//! Gangs: places for several members of one job, all of them or none, on one fabric block where one holds them.
//!
//! All members get GPUs of one class, so that they run alike and are charged alike. What policies allow a job they
//! allow all of its members together.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::company::Companies;
use super::member::in_part;
use super::{Place, Search, on_cpu};
use crate::id::NodeId;
use crate::refusal::Refusal;
use crate::schedule::board::Board;
use crate::schedule::board::shape::Shape;
use crate::schedule::calendar::{Promise, Promised};
use crate::schedule::fleet::Node;
use crate::schedule::index::{Memo, Seat};
use crate::schedule::volume::VolumeNeeds;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::workload::spec::JobSpec;

/// Places for all members of what the spec demands, or why there are not so many now. Volumes are on one node, and so is
/// a gang that has any.
pub fn gang_places(
    state: &State,
    owner: ScopeId,
    spec: &JobSpec,
    volumes: VolumeNeeds,
    promised: &Promised,
) -> Result<Vec<Place>, Refusal> {
    let mut search = Search::new(state, owner, spec, volumes, promised);
    let members = spec.demand.nodes;
    let wanted = members as usize;
    search.wall.vram_mib_at_most /= u64::from(members.max(1));
    let mut index = state.fleet.index();
    let all: Vec<Box<str>> = match spec.demand.gpus {
        // Without a GPU there is one choice, of no class.
        0 => vec![Box::default()],
        _ => index.classes().keys().cloned().collect(),
    };
    let mut scattered = None;
    let mut most = 0;
    for class in &all {
        let others: Vec<Box<str>> = all.iter().filter(|other| *other != class).cloned().collect();
        let found = search.gang(&mut index, &others, wanted);
        match found {
            Ok((places, true)) => return Ok(places),
            Ok((places, false)) => scattered = scattered.or(Some(places)),
            Err(fewer) => most = most.max(fewer),
        }
    }
    drop(index);
    scattered.ok_or_else(|| {
        let for_volumes = volumes.explain(state);
        for_volumes.unwrap_or_else(|| in_part(state, &spec.demand, members, most))
    })
}

/// For how many members of what the spec demands, on GPUs of one class, there is room now.
pub fn gang_room(
    state: &State,
    owner: ScopeId,
    spec: &JobSpec,
    volumes: VolumeNeeds,
    promised: &Promised,
) -> usize {
    let mut search = Search::new(state, owner, spec, volumes, promised);
    search.wall.vram_mib_at_most /= u64::from(spec.demand.nodes.max(1));
    let wanted = spec.demand.nodes as usize;
    let found = search.gang(&mut state.fleet.index(), &[], wanted);
    found.map_or_else(|fewer| fewer, |_| wanted)
}

/// The classes of GPUs that all members could have, each on its own: the spec with each, or as it is where it says which.
pub fn gang_classes(state: &State, spec: &JobSpec) -> Vec<JobSpec> {
    if spec.demand.gpus == 0 || spec.demand.class.is_some() {
        return vec![spec.clone()];
    }
    let index = state.fleet.index();
    let of = |class: &Box<str>| {
        let mut spec = spec.clone();
        spec.demand.class = Some(class.clone());
        spec
    };
    index.classes().keys().map(of).collect()
}

static NO_PROMISES: Promised = Promised::new();

/// A gang that looks at nodes one by one, as they are or as they might be.
pub struct Members<'a>(Search<'a>);

impl<'a> Members<'a> {
    /// INVARIANT: a spec with GPUs names their class, or is asked about rooms of one, so that members are alike.
    pub fn of(state: &'a State, owner: ScopeId, spec: &'a JobSpec, volumes: VolumeNeeds) -> Members<'a> {
        let mut search = Search::new(state, owner, spec, volumes, &NO_PROMISES);
        search.wall.vram_mib_at_most /= u64::from(spec.demand.nodes.max(1));
        Members(search)
    }

    /// Places for as many members as the node holds.
    pub fn on(&self, node: &Node) -> Vec<Place> {
        self.0.stack_odd(node, &[], self.0.demand.nodes as usize)
    }

    /// Places for all members in the rooms of a promise, each on the GPUs kept for it; none if one of them does not fit.
    pub fn in_rooms(&self, promise: &Promise, promised: &Promised) -> Option<Vec<Place>> {
        let mut nodes: BTreeMap<NodeId, Node> = BTreeMap::new();
        let mut places = Vec::new();
        for (id, slices) in promise.rooms() {
            if let Entry::Vacant(entry) = nodes.entry(id) {
                let node = promised.get(&id).or_else(|| self.0.state.fleet.node(id))?;
                entry.insert(node.clone());
            }
            let left = nodes.get_mut(&id)?;
            let mut open = left.clone();
            open.gpus
                .retain(|gpu| slices.iter().any(|slice| slice.gpu == gpu.id));
            let place = self.0.tightest([&open].into_iter(), &[])?;
            self.0.take(left, &place);
            places.push(place);
        }
        (places.len() == self.0.demand.nodes as usize).then_some(places)
    }
}

/// So many nodes are looked at for a gang on few of them, once there is room for it.
const LOOK_MAX: usize = 256;

/// Places for `wanted` members, or all there are, on as few of the nodes as hold them; the last of them holds as few
/// more as it can.
pub(super) fn fewest(mut nodes: Vec<Vec<Place>>, wanted: usize) -> Vec<Place> {
    // Sorting is stable, so of equal nodes the better one goes first.
    nodes.sort_by_key(|places| Reverse(places.len()));
    let mut chosen = Vec::new();
    while chosen.len() < wanted && !nodes.is_empty() {
        let missing = wanted - chosen.len();
        let enough = nodes.partition_point(|places| places.len() >= missing);
        let which = match enough.checked_sub(1) {
            Some(last) => {
                let tightest = nodes[last].len();
                nodes.partition_point(|places| places.len() > tightest)
            }
            None => 0,
        };
        chosen.extend(nodes.remove(which).into_iter().take(missing));
    }
    chosen
}

/// The fabric block of a node; nodes that told none have none in common.
pub(super) type Block = Option<Box<str>>;

impl Search<'_> {
    /// Places for all members on as few nodes as hold them, and whether those have a block in common; or for how many
    /// there are places.
    fn gang(
        &self,
        index: &mut Memo,
        given: &[Box<str>],
        members: usize,
    ) -> Result<(Vec<Place>, bool), usize> {
        if !index.board.is_flat() {
            return self.gang_in_blocks(index, given, members);
        }
        let mut blocks: BTreeMap<Block, Vec<Vec<Place>>> = BTreeMap::new();
        let mut looked = 0;
        for shape in self.shapes(index, given) {
            let ranked = self.state.fleet.seen().ranked_as(&self.asked, &shape);
            let (board, rows) = index.board.best_first(&ranked);
            for (row, _) in rows {
                let seat = index.nodes[row];
                let Some(node) = self.state.fleet.node(seat.node) else {
                    continue;
                };
                // A node of several classes has its CPU in several rows.
                if shape.gpus == 0 && seat.first != 0 {
                    continue;
                }
                let here = self.stack(
                    board,
                    row,
                    seat,
                    node,
                    &shape,
                    given,
                    members,
                    &mut index.companies,
                );
                match here.len() {
                    0 => continue,
                    all if all == members => return Ok((here, true)),
                    _ => {}
                }
                let block = &node.labels.block;
                let nodes = blocks.entry(block.clone()).or_default();
                nodes.push(here);
                looked += 1;
                let common = block.is_some() || board.is_flat();
                if looked >= LOOK_MAX && common && nodes.iter().map(Vec::len).sum::<usize>() >= members {
                    return Ok((fewest(std::mem::take(nodes), members), true));
                }
            }
        }
        for node in self.off_board(index) {
            let here = self.stack_odd(node, given, members);
            if here.len() == members {
                return Ok((here, true));
            }
            blocks.entry(node.labels.block.clone()).or_default().push(here);
        }
        let room = |nodes: &[Vec<Place>]| nodes.iter().map(Vec::len).sum::<usize>();
        let flat = index.board.is_flat();
        let serving = blocks
            .iter_mut()
            .find(|(block, nodes)| (block.is_some() || flat) && room(nodes) >= members);
        if let Some((_, nodes)) = serving {
            return Ok((fewest(std::mem::take(nodes), members), true));
        }
        // As few blocks as can be: those that hold most, and nodes without one last.
        let mut blocks: Vec<(Block, Vec<Vec<Place>>)> = blocks.into_iter().collect();
        blocks.sort_by_key(|(block, nodes)| (block.is_none(), Reverse(room(nodes))));
        let mut places = Vec::new();
        for (_, nodes) in blocks {
            let missing = members - places.len();
            places.extend(fewest(nodes, missing));
        }
        match places.len() {
            enough if enough == members => Ok((places, false)),
            fewer => Err(fewer),
        }
    }

    /// Keeps what one node holds of the gang, unless volumes want all of it on one.
    fn if_enough(&self, places: Vec<Place>, wanted: usize) -> Vec<Place> {
        match self.volumes.is_empty() || places.len() == wanted {
            true => places,
            false => Vec::new(),
        }
    }

    /// Members on one row, each on what those before it left.
    #[expect(clippy::too_many_arguments, reason = "one call, and each is another thing")]
    pub(super) fn stack(
        &self,
        board: &Board,
        row: usize,
        seat: Seat,
        node: &Node,
        shape: &Shape,
        given: &[Box<str>],
        members: usize,
        companies: &mut Companies,
    ) -> Vec<Place> {
        let mut places = Vec::new();
        let promised = self.promised.contains_key(&node.id);
        if members == 0 || promised || !board.row(row).could_hold(shape) || !self.node_will_do(node) {
            return places;
        }
        let by_memory =
            usize::try_from(node.free_memory_mib() / self.demand.memory_mib.max(1)).unwrap_or(members);
        let by_cpu = (node.free_cpu_milli() / self.demand.cpu_milli.max(1)) as usize;
        let most = members.min(by_cpu).min(by_memory);
        if shape.gpus == 0 {
            return self.if_enough(vec![on_cpu(node); most], members);
        }
        let Some(mut bank) = self.bank(board, row, seat, node, given, companies) else {
            return places;
        };
        while places.len() < most
            && let Some((chosen, _)) = self.choose(&mut bank, shape)
            && let Some(place) = self.place(&bank, &chosen)
        {
            bank.take(&chosen, shape);
            places.push(place);
        }
        self.if_enough(places, members)
    }

    /// Members on a node that is not on the board, each on what those before it left. No two share a GPU that is cut:
    /// what the first would make of it is known only when it is given.
    pub(super) fn stack_odd(&self, node: &Node, given: &[Box<str>], members: usize) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        let mut left = node.clone();
        while places.len() < members {
            let Some(place) = self.tightest([&left].into_iter(), given) else {
                break;
            };
            self.take(&mut left, &place);
            places.push(place);
        }
        self.if_enough(places, members)
    }

    /// Takes what a member gets off what is left of its node.
    fn take(&self, left: &mut Node, place: &Place) {
        left.used_cpu_milli += self.demand.cpu_milli;
        left.used_memory_mib += self.demand.memory_mib;
        for slice in &place.slices {
            let at = left.gpus.iter().position(|gpu| gpu.id == slice.gpu);
            let at = at.expect("INVARIANT: places are on GPUs of their node");
            if slice.part.is_some() {
                left.gpus.remove(at);
            } else {
                left.gpus[at].used_vram_mib += slice.vram_mib;
                left.gpus[at].used_permille += u32::from(slice.compute_permille);
            }
        }
    }
}
