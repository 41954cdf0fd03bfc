//! A ranking of rows: which one is best, found and kept current in steps logarithmic in their number.
//!
//! A tree of maxima, sixteen to a knot, so that a knot is one cache line. Rank 0 stands for a row that does not fit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const WIDTH: usize = 16;

#[derive(Debug, Clone, Default)]
pub struct Ranking {
    /// From the leaves up; each level has a whole number of knots.
    levels: Vec<Vec<u32>>,
}

impl Ranking {
    pub fn new(rows: usize) -> Ranking {
        let mut levels = Vec::new();
        let mut wide = rows.max(1);
        loop {
            levels.push(vec![0; wide.next_multiple_of(WIDTH)]);
            wide = wide.div_ceil(WIDTH);
            if wide == 1 {
                levels.push(vec![0; 1]);
                return Ranking { levels };
            }
        }
    }

    pub fn rank(&self, row: usize) -> u32 {
        self.levels[0][row]
    }

    /// Makes room for more rows, which rank 0. In doubling steps, so that rows that come one by one cost little.
    pub fn grow(&mut self, rows: usize) {
        if self.levels.first().is_some_and(|leaves| rows <= leaves.len()) {
            return;
        }
        let mut wider = Ranking::new(rows.next_power_of_two());
        if let Some(leaves) = self.levels.first() {
            wider.fill(|row| leaves[row], leaves.len());
        }
        *self = wider;
    }

    /// Bytes it takes.
    pub fn size(&self) -> usize {
        self.levels.iter().map(|level| level.capacity() * 4).sum()
    }

    pub fn set(&mut self, row: usize, rank: u32) {
        let mut at = row;
        let mut new = rank;
        for level in 0..self.levels.len() - 1 {
            let old = std::mem::replace(&mut self.levels[level][at], new);
            if old == new {
                return;
            }
            let above = self.levels[level + 1][at / WIDTH];
            let knot = at / WIDTH * WIDTH;
            new = if new >= above {
                new
            } else if old < above {
                return;
            } else {
                highest(&self.levels[level][knot..knot + WIDTH])
            };
            at /= WIDTH;
        }
        let last = self.levels.len() - 1;
        self.levels[last][0] = new;
    }

    /// Ranks of all rows, written at once.
    pub fn fill(&mut self, rank: impl FnMut(usize) -> u32, rows: usize) {
        let mut rank = rank;
        for row in 0..rows {
            self.levels[0][row] = rank(row);
        }
        for level in 1..self.levels.len() {
            let (below, above) = self.levels.split_at_mut(level);
            let knots = below[level - 1].chunks_exact(WIDTH);
            for (at, knot) in knots.enumerate() {
                above[0][at] = highest(knot);
            }
        }
    }

    /// The first row of the highest rank.
    pub fn best(&self) -> Option<usize> {
        let top = self.levels.len() - 1;
        (self.levels[top][0] > 0).then(|| self.descend(top, 0))
    }

    fn descend(&self, from: usize, at: usize) -> usize {
        let mut at = at;
        for level in (0..from).rev() {
            let rank = self.levels[level + 1][at];
            let knot = &self.levels[level][at * WIDTH..(at + 1) * WIDTH];
            let within = knot.iter().position(|&below| below == rank);
            at = at * WIDTH + within.expect("INVARIANT: a knot above is the highest below");
        }
        at
    }

    /// All rows that fit, the best first; equal ranks by the number `settle` gives the row, the lowest first.
    pub fn best_first<F: Fn(usize) -> u64>(&self, settle: F) -> BestFirst<'_, F> {
        let top = self.levels.len() - 1;
        let mut open = BinaryHeap::new();
        if self.levels[top][0] > 0 {
            open.push((self.levels[top][0], top, Reverse(0), 0));
        }
        BestFirst {
            ranking: self,
            settle,
            open,
        }
    }
}

fn highest(knot: &[u32]) -> u32 {
    knot.iter().fold(0, |highest, &rank| highest.max(rank))
}

/// See `Ranking::best_first`. A knot is opened when it is the best left, so each step costs one knot a level.
#[derive(Debug)]
pub struct BestFirst<'a, F> {
    ranking: &'a Ranking,
    settle: F,
    /// Rank, level, what settles equal ones, and where in the level. Of equal ranks knots are opened before rows are
    /// given, so that all rows of a rank are there when the first is.
    open: BinaryHeap<(u32, usize, Reverse<u64>, usize)>,
}

impl<F: Fn(usize) -> u64> Iterator for BestFirst<'_, F> {
    /// The row and its rank.
    type Item = (usize, u32);

    fn next(&mut self) -> Option<(usize, u32)> {
        loop {
            let (rank, level, _, at) = self.open.pop()?;
            if level == 0 {
                return Some((at, rank));
            }
            let below = self.ranking.levels[level - 1].iter().enumerate();
            for (at, &rank) in below.skip(at * WIDTH).take(WIDTH) {
                if rank > 0 {
                    let settled = if level == 1 { (self.settle)(at) } else { 0 };
                    self.open.push((rank, level - 1, Reverse(settled), at));
                }
            }
        }
    }
}
