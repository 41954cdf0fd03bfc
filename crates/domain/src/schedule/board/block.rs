//! Blocks: for how many members of a gang each fabric block has room, kept for the shapes that gangs ask for.
//!
//! Never too few: CPU, memory and GPUs are counted, walls and volumes are not, so who asks looks exactly at the rows of
//! the blocks that could do, and at no others. Brought up to date as a ranking is, by the rows that changed. Called by
//! the board.

/// Rows that told no block.
pub const NONE: usize = 0;

/// Room by row and by block. Blocks are counted from 1 on.
#[derive(Debug, Clone, Default)]
pub struct Blocks {
    /// Of each row, its block and how many members it has room for.
    rows: Vec<(u32, u32)>,
    /// Of each block, how many members it has room for, and the rows it has.
    sums: Vec<(u64, Vec<u32>)>,
    /// How many rows have room for so many members.
    with_room: std::collections::BTreeMap<u32, usize>,
    /// How far it has caught up with the board's changes.
    pub seen: Option<u64>,
}

impl Blocks {
    pub fn set(&mut self, row: usize, block: Option<u32>, room: u32) {
        let block = block.unwrap_or(NONE as u32);
        if self.rows.len() <= row {
            self.rows.resize(row + 1, (NONE as u32, 0));
        }
        if self.sums.len() <= block as usize {
            self.sums.resize(block as usize + 1, (0, Vec::new()));
        }
        let (old_block, old_room) = std::mem::replace(&mut self.rows[row], (block, room));
        if old_room > 0 {
            let (sum, rows) = &mut self.sums[old_block as usize];
            *sum -= u64::from(old_room);
            if room == 0 || old_block != block {
                rows.retain(|known| *known as usize != row);
            }
            if let Some(count) = self.with_room.get_mut(&old_room) {
                *count -= 1;
                if *count == 0 {
                    self.with_room.remove(&old_room);
                }
            }
        }
        if room > 0 {
            let (sum, rows) = &mut self.sums[block as usize];
            *sum += u64::from(room);
            if old_room == 0 || old_block != block {
                rows.push(row as u32);
            }
            *self.with_room.entry(room).or_default() += 1;
        }
    }

    /// For how many members a block has room at most.
    pub fn room(&self, block: usize) -> u64 {
        self.sums.get(block).map_or(0, |(sum, _)| *sum)
    }

    /// One more than the last block.
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// The rows of a block that have room.
    pub fn rows(&self, block: usize) -> impl Iterator<Item = usize> {
        let rows = self.sums.get(block).map_or(&[][..], |(_, rows)| rows);
        rows.iter().map(|row| *row as usize)
    }

    /// The rows that may have room for so many members each.
    pub fn with_room(&self, members: u32) -> impl Iterator<Item = usize> {
        let any = self.with_room.range(members..).next().is_some();
        let rows = if any { &self.rows[..] } else { &[] };
        let rows = rows.iter().enumerate();
        rows.filter(move |(_, (_, room))| *room >= members)
            .map(|(row, _)| row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_are_those_of_the_rows(changes in proptest::collection::vec((0usize..20, 0u32..4, 0u32..4), 0..100)) {
            let mut blocks = Blocks::default();
            let mut plain = [(None, 0); 20];
            for (row, block, room) in changes {
                let block = (block > 0).then_some(block);
                blocks.set(row, block, room);
                plain[row] = (block, room);
                for of in 0..4_u32 {
                    let here = |(_, (block, room)): &(usize, &(Option<u32>, u32))| block.unwrap_or(0) == of && *room > 0;
                    let rows: Vec<usize> = plain.iter().enumerate().filter(here).map(|(row, _)| row).collect();
                    let mut told: Vec<usize> = blocks.rows(of as usize).collect();
                    told.sort_unstable();
                    prop_assert_eq!(&told, &rows);
                    let sum: u32 = rows.iter().map(|row| plain[*row].1).sum();
                    prop_assert_eq!(blocks.room(of as usize), u64::from(sum));
                }
                for members in 1..5 {
                    let rows = plain.iter().enumerate().filter(|(_, (_, room))| *room >= members);
                    prop_assert!(blocks.with_room(members).eq(rows.map(|(row, _)| row)));
                }
            }
        }
    }
}
