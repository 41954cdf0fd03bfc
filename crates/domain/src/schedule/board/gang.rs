//! Gangs: several members of one shape, all placed or none, in as few fabric blocks as can be.

use std::collections::BTreeMap;

use super::shape::Shape;
use super::{Board, Spot, choose, of_row};

impl Board {
    /// Places for all members, or none. One block that holds them all is taken, the fullest such; otherwise the blocks
    /// with the most room, and nodes that told no block last. Nothing is taken yet.
    pub fn gang(&mut self, shape: &Shape, members: usize) -> Option<Vec<Spot>> {
        let at = self.caught_up(shape);
        let board = &*self;
        let mut blocks: BTreeMap<Option<u32>, Block> = BTreeMap::new();
        let mut enough = None;
        for (row, _) in board.rankings[at].ranking.best_first(|row| board.rows[row].node) {
            let holds = board.holds(row, shape, members);
            let key = board.rows[row].block;
            let block = blocks.entry(key).or_default();
            block.rows.push((row, holds));
            block.holds += holds;
            // Without blocks the best rows are simply taken as they come.
            if key.is_none() && block.holds >= members && board.is_flat() {
                enough = Some(key);
                break;
            }
        }
        let whole = blocks
            .iter()
            .filter(|(key, block)| key.is_some() && block.holds >= members);
        let tightest = whole
            .min_by_key(|(key, block)| (block.holds, **key))
            .map(|(key, _)| *key);
        let mut order: Vec<Option<u32>> = match enough.or(tightest) {
            Some(key) => vec![key],
            None => blocks.keys().copied().collect(),
        };
        order.sort_by_key(|key| (key.is_none(), std::cmp::Reverse(blocks[key].holds)));
        let mut spots = Vec::with_capacity(members);
        for (row, holds) in order.iter().flat_map(|key| &blocks[key].rows) {
            let wanted = (members - spots.len()).min(*holds);
            spots.extend(board.stack(*row, shape, wanted));
            if spots.len() == members {
                return Some(spots);
            }
        }
        None
    }

    /// Nobody told a block.
    pub fn is_flat(&self) -> bool {
        self.blocks == 0
    }

    /// How many members the row holds at once, up to `most`.
    fn holds(&self, row: usize, shape: &Shape, most: usize) -> usize {
        let room = &self.rows[row];
        let by_cpu = room
            .cpu_milli
            .checked_div(shape.cpu_milli)
            .map_or(most, |fits| fits as usize);
        let by_memory = room.memory_mib.checked_div(shape.memory_mib);
        let by_memory = by_memory.map_or(most, |fits| usize::try_from(fits).unwrap_or(most));
        let by_gpu = match usize::from(shape.gpus) {
            0 => most,
            gpus if shape.is_whole() => usize::from(room.whole) / gpus,
            gpus => {
                // Members may share GPUs, but slices of one member are on different ones; counted with care.
                let slots = self.gpus(row).iter().map(|gpu| {
                    let by_vram = gpu
                        .vram_mib
                        .checked_div(shape.vram_mib)
                        .map_or(most, |fits| fits as usize);
                    let by_share = gpu.permille.checked_div(shape.permille).map_or(most, usize::from);
                    by_vram.min(by_share).min(most)
                });
                slots.sum::<usize>() / gpus
            }
        };
        by_cpu.min(by_memory).min(by_gpu).min(most)
    }

    /// Spots for as many members on one row as fit one after another.
    fn stack(&self, row: usize, shape: &Shape, members: usize) -> Vec<Spot> {
        let kind = usize::from(self.rows[row].kind);
        let vram_mib = self.kinds[kind].vram_mib;
        let mut room = self.rows[row].clone();
        let mut gpus = self.gpus(row).to_vec();
        let mut shares = of_row(&self.shares, &self.rows[row]).to_vec();
        let mut spots = Vec::new();
        while spots.len() < members && room.could_hold(shape) {
            let Some(chosen) = choose::gpus(&room, &gpus, &shares, vram_mib, shape, self.wastes.get(kind))
            else {
                break;
            };
            for &gpu in &chosen {
                gpus[usize::from(gpu)] = gpus[usize::from(gpu)].without(shape);
            }
            room.cpu_milli -= shape.cpu_milli;
            room.memory_mib -= shape.memory_mib;
            room.reckon(&gpus, &mut shares, vram_mib, self.wastes.get(kind));
            spots.push(Spot { row, gpus: chosen });
        }
        spots
    }
}

/// Rows of one block, the best first, and how many members they hold.
#[derive(Debug, Default)]
struct Block {
    rows: Vec<(usize, usize)>,
    holds: usize,
}
