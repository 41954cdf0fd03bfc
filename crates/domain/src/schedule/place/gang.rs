//! Gangs: places for several members of one job, all of them or none, on one fabric block where one holds them.
//!
//! All members get GPUs of one class, so that they run alike and are charged alike. What policies allow a job they
//! allow all of its members together.

use std::collections::BTreeMap;

use super::{Place, Search, on_cpu};
use crate::id::NodeId;
use crate::refusal::Refusal;
use crate::schedule::board::Board;
use crate::schedule::board::shape::Shape;
use crate::schedule::fleet::Node;
use crate::schedule::index::{Memo, Seat};
use crate::schedule::volume::VolumeNeeds;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::workload::spec::JobSpec;

/// Places for `members` of what the spec demands, or why there are not so many now. Volumes are on one node, and so is
/// a gang that has any.
pub fn gang_places(
    state: &State,
    owner: ScopeId,
    spec: &JobSpec,
    volumes: VolumeNeeds,
    members: u32,
) -> Result<Vec<Place>, Refusal> {
    let mut search = Search::new(state, owner, spec, volumes);
    let wanted = members as usize;
    search.wall.vram_mib_at_most /= u64::from(members.max(1));
    let mut index = state.fleet.index();
    let all: Vec<Box<str>> = match spec.demand.gpus {
        // Without a GPU there is one choice, of no class.
        0 => vec![Box::default()],
        _ => index.classes().keys().cloned().collect(),
    };
    let mut scattered = None;
    for class in &all {
        let others: Vec<Box<str>> = all.iter().filter(|other| *other != class).cloned().collect();
        let found = search.gang(&mut index, &others, wanted);
        match found {
            Some((places, true)) => return Ok(places),
            Some((places, false)) => scattered = scattered.or(Some(places)),
            None => {}
        }
    }
    drop(index);
    scattered.ok_or_else(|| search.none())
}

/// The fabric block of a node; nodes that told none have none in common.
type Block = Option<Box<str>>;

impl Search<'_> {
    /// Places for all members, and whether they have a block in common.
    fn gang(&self, index: &mut Memo, given: &[Box<str>], members: usize) -> Option<(Vec<Place>, bool)> {
        let mut blocks: BTreeMap<Block, Vec<Place>> = BTreeMap::new();
        for shape in self.shapes(index, given) {
            let ranked = self.state.fleet.seen().ranked_as(&self.asked, &shape);
            let (board, rows) = index.board.best_first(&ranked);
            let mut counted: Option<NodeId> = None;
            for (row, _) in rows {
                let seat = index.nodes[row];
                let Some(node) = self.state.fleet.node(seat.node) else {
                    continue;
                };
                // A node of several classes has its CPU in several rows.
                if shape.gpus == 0 && seat.first != 0 || counted.replace(node.id) == Some(node.id) {
                    continue;
                }
                let places = blocks.entry(node.labels.block.clone()).or_default();
                let more = members - places.len();
                places.extend(self.stack(board, row, seat, node, &shape, given, more));
                let common = node.labels.block.is_some() || board.is_flat();
                if common && places.len() == members {
                    let places = blocks.remove(&node.labels.block)?;
                    return Some((places, true));
                }
            }
        }
        for node in index.odd.iter().filter_map(|id| self.state.fleet.node(*id)) {
            let places = blocks.entry(node.labels.block.clone()).or_default();
            let more = members - places.len();
            places.extend(self.stack_odd(node, given, more));
            if node.labels.block.is_some() && places.len() == members {
                let places = blocks.remove(&node.labels.block)?;
                return Some((places, true));
            }
        }
        // As few blocks as can be: those that hold most, and nodes without one last.
        let mut blocks: Vec<(Block, Vec<Place>)> = blocks.into_iter().collect();
        blocks.sort_by_key(|(block, places)| (block.is_none(), std::cmp::Reverse(places.len())));
        let places: Vec<Place> = blocks
            .into_iter()
            .flat_map(|(_, places)| places)
            .take(members)
            .collect();
        (places.len() == members).then_some((places, false))
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
    fn stack(
        &self,
        board: &Board,
        row: usize,
        seat: Seat,
        node: &Node,
        shape: &Shape,
        given: &[Box<str>],
        members: usize,
    ) -> Vec<Place> {
        let mut places = Vec::new();
        if members == 0 || !board.row(row).could_hold(shape) || !self.node_will_do(node) {
            return places;
        }
        let by_memory =
            usize::try_from(node.free_memory_mib() / self.demand.memory_mib.max(1)).unwrap_or(members);
        let by_cpu = (node.free_cpu_milli() / self.demand.cpu_milli.max(1)) as usize;
        let most = members.min(by_cpu).min(by_memory);
        if shape.gpus == 0 {
            return self.if_enough(vec![on_cpu(node); most], members);
        }
        let Some(mut bank) = self.bank(board, row, seat, node, given) else {
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

    /// Members on a node that is not on the board. No two share a GPU there: what the first would make of it is known
    /// only when it is given.
    fn stack_odd(&self, node: &Node, given: &[Box<str>], members: usize) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        let mut left = node.clone();
        while places.len() < members && self.demand.gpus > 0 {
            let Some(place) = self.tightest([&left].into_iter(), given) else {
                break;
            };
            left.used_cpu_milli += self.demand.cpu_milli;
            left.used_memory_mib += self.demand.memory_mib;
            let taken =
                |gpu: &crate::schedule::fleet::Gpu| place.slices.iter().any(|slice| slice.gpu == gpu.id);
            left.gpus.retain(|gpu| !taken(gpu));
            places.push(place);
        }
        self.if_enough(places, members)
    }
}
