//! A ranking of rows: which one is best, found and kept current in steps logarithmic in their number.
//!
//! A tree of maxima, sixteen to a knot, so that a knot is one cache line. Rank 0 stands for a row that does not fit.

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

    /// All rows that fit, the best first.
    pub fn best_first(&self) -> BestFirst<'_> {
        let top = self.levels.len() - 1;
        let mut open = BinaryHeap::new();
        if self.levels[top][0] > 0 {
            open.push((self.levels[top][0], std::cmp::Reverse(0), top));
        }
        BestFirst { ranking: self, open }
    }
}

fn highest(knot: &[u32]) -> u32 {
    knot.iter().fold(0, |highest, &rank| highest.max(rank))
}

/// See `Ranking::best_first`. A knot is opened when it is the best left, so each step costs one knot a level.
#[derive(Debug)]
pub struct BestFirst<'a> {
    ranking: &'a Ranking,
    open: BinaryHeap<(u32, std::cmp::Reverse<usize>, usize)>,
}

impl Iterator for BestFirst<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        loop {
            let (_, std::cmp::Reverse(first), level) = self.open.pop()?;
            if level == 0 {
                return Some(first);
            }
            // `first` is the first row below the knot, so that equal ranks come in the order of their rows.
            let span = WIDTH.pow(u32::try_from(level - 1).unwrap_or(0));
            let below = &self.ranking.levels[level - 1];
            for within in 0..WIDTH {
                let at = first / span + within;
                if let Some(&rank) = below.get(at)
                    && rank > 0
                {
                    self.open.push((rank, std::cmp::Reverse(at * span), level - 1));
                }
            }
        }
    }
}
