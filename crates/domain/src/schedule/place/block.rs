//! Gangs where nodes told their fabric blocks: the block with the least room to spare that holds them all.
//!
//! The board knows for how many members each block has room at most (`board/block`), so only the rows of blocks that
//! could do are looked at exactly, whatever the size of the fleet. Where no block holds the gang, it goes onto as few
//! as it can. Deliberately absent: fleets that told no block (`gang.rs`, which calls this).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::gang::{Block, fewest};
use super::{Place, Search};
use crate::schedule::board::block::NONE;
use crate::schedule::board::shape::Shape;
use crate::schedule::index::Memo;

/// So many nodes that may hold the whole gang are looked at for one that does.
const LOOK_MAX: usize = 256;

/// Nodes of one block, each with places for some members.
type Nodes = Vec<Vec<Place>>;

impl Search<'_> {
    /// As `gang` says.
    pub(super) fn gang_in_blocks(
        &self,
        index: &mut Memo,
        given: &[Box<str>],
        members: usize,
    ) -> Result<(Vec<Place>, bool), usize> {
        let shapes: Vec<Shape> = self.shapes(index, given).collect();
        if let Some(places) = self.on_one_row(index, given, &shapes, members) {
            return Ok((places, true));
        }
        let mut odd: BTreeMap<Block, Nodes> = BTreeMap::new();
        for node in self.off_board(index) {
            let here = self.stack_odd(node, given, members);
            if here.len() == members {
                return Ok((here, true));
            }
            if !here.is_empty() {
                odd.entry(node.labels.block.clone()).or_default().push(here);
            }
        }
        // For how many members there may be room in each block, on the board and off it.
        let mut rooms: Vec<u64> = Vec::new();
        for shape in &shapes {
            let ranked = self.state.fleet.seen().ranked_as(&self.asked, shape);
            let (_, blocks) = index.board.by_block(&ranked);
            rooms.resize(rooms.len().max(blocks.len()), 0);
            for (block, room) in rooms.iter_mut().enumerate().take(blocks.len()) {
                *room += blocks.room(block);
            }
        }
        let mut odd: BTreeMap<usize, Nodes> = odd
            .into_iter()
            .map(|(block, nodes)| (index.block(block.as_deref()), nodes))
            .collect();
        for (&block, nodes) in &odd {
            rooms.resize(rooms.len().max(block + 1), 0);
            rooms[block] += nodes.iter().map(Vec::len).sum::<usize>() as u64;
        }
        let enough = |room: &u64| *room >= members as u64;
        let mut holding: Vec<(u64, usize)> = (NONE + 1..rooms.len())
            .map(|block| (rooms[block], block))
            .filter(|(room, _)| enough(room))
            .collect();
        holding.sort_unstable();
        let mut seen: BTreeMap<usize, Nodes> = BTreeMap::new();
        for (_, block) in holding {
            let mut nodes = self.in_block(index, given, &shapes, block, members);
            nodes.extend(odd.remove(&block).into_iter().flatten());
            if room(&nodes) >= members {
                return Ok((fewest(nodes, members), true));
            }
            seen.insert(block, nodes);
        }
        // As few blocks as can be: those that hold most, and nodes without one last.
        let mut order: Vec<usize> = (0..rooms.len()).filter(|&block| rooms[block] > 0).collect();
        order.sort_by_key(|&block| (block == NONE, Reverse(rooms[block]), block));
        let mut places = Vec::new();
        for block in order {
            let missing = members - places.len();
            let nodes = seen.remove(&block).unwrap_or_else(|| {
                let mut nodes = self.in_block(index, given, &shapes, block, missing);
                nodes.extend(odd.remove(&block).into_iter().flatten());
                nodes
            });
            places.extend(fewest(nodes, missing));
            if places.len() == members {
                return Ok((places, false));
            }
        }
        Err(places.len())
    }

    /// All members on the best row that holds them.
    fn on_one_row(
        &self,
        index: &mut Memo,
        given: &[Box<str>],
        shapes: &[Shape],
        members: usize,
    ) -> Option<Vec<Place>> {
        let wanted = u32::try_from(members).ok()?;
        for shape in shapes {
            let ranked = self.state.fleet.seen().ranked_as(&self.asked, shape);
            let (board, blocks) = index.board.by_block(&ranked);
            let rows: Vec<usize> = blocks.with_room(wanted).collect();
            for row in board.sorted(&ranked, rows, LOOK_MAX) {
                let seat = index.nodes[row];
                let Some(node) = self.state.fleet.node(seat.node) else {
                    continue;
                };
                let companies = &mut index.companies;
                let here = self.stack(board, row, seat, node, shape, given, members, companies);
                if here.len() == members {
                    return Some(here);
                }
            }
        }
        None
    }

    /// What the rows of a block hold of the gang, the best first. Once they are enough no more are looked at but those
    /// that might need fewer nodes.
    fn in_block(
        &self,
        index: &mut Memo,
        given: &[Box<str>],
        shapes: &[Shape],
        block: usize,
        members: usize,
    ) -> Nodes {
        let mut nodes = Vec::new();
        let mut found = 0;
        for shape in shapes {
            let ranked = self.state.fleet.seen().ranked_as(&self.asked, shape);
            let (board, blocks) = index.board.by_block(&ranked);
            let rows: Vec<usize> = blocks.rows(block).collect();
            for row in board.sorted(&ranked, rows, usize::MAX) {
                if found >= members && nodes.len() >= LOOK_MAX {
                    break;
                }
                let seat = index.nodes[row];
                let Some(node) = self.state.fleet.node(seat.node) else {
                    continue;
                };
                // A node of several classes has its CPU in several rows.
                if shape.gpus == 0 && seat.first != 0 {
                    continue;
                }
                let companies = &mut index.companies;
                let here = self.stack(board, row, seat, node, shape, given, members, companies);
                found += here.len();
                if !here.is_empty() {
                    nodes.push(here);
                }
            }
        }
        nodes
    }
}

fn room(nodes: &[Vec<Place>]) -> usize {
    nodes.iter().map(Vec::len).sum()
}
