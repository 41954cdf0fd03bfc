//! The board: what is free in the fleet, ranked for every shape of request, so that a place is found without looking
//! at the fleet.
//!
//! Each shape that is asked for has a ranking of all rows by how little waste it would add there. A change of a node
//! is noted; a ranking catches up with the changes when its shape is next asked for, row by row. The mix is learnt
//! from arrivals; when it moved, rankings are made anew. Pure: no clock, no chance; equal scores are settled by a
//! number fixed for the node.
//!
//! Deliberately absent: quota, prices, tenants and isolation. Who calls it takes the first candidate that its own
//! rules allow.

pub mod block;
pub mod choose;
pub mod mix;
pub mod rank;
pub mod row;
pub mod shape;
#[cfg(test)]
mod tests;
pub mod waste;

use std::collections::BTreeMap;

use block::Blocks;
use mix::{Mix, Often};
use rank::Ranking;
use row::{GpuRoom, Row};
use shape::{Classes, Shape};
use waste::{Kind, Waste};

/// Shapes that keep a ranking; the one longest not asked for goes first.
const RANKINGS_MAX: usize = 256;
/// Scores are in steps of 16 thousandths of a GPU; finer differences are within what the mix is known to.
const STEP_BITS: u32 = 16 + 4;
const SCORE_BITS: u32 = 12;
const TIE_BITS: u32 = 32 - SCORE_BITS;
/// The score of a place that is neither good nor bad.
const MIDDLE: u32 = 1 << (SCORE_BITS - 1);

/// A node's GPUs of one kind, as they come to the board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bench {
    pub class: Classes,
    /// Memory of each GPU.
    pub vram_mib: u32,
    pub gpus: Vec<GpuRoom>,
    pub cpu_milli: u32,
    pub memory_mib: u64,
    /// Identity of the node, for settling equal scores.
    pub node: u64,
    pub block: Option<u32>,
    /// As in `Shape`; zero where the node told none.
    pub region: u16,
    pub pool: u16,
}

/// Where a shape would go: a row and its GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    pub row: usize,
    pub gpus: Vec<u16>,
}

#[derive(Debug, Clone, Default)]
pub struct Board {
    rows: Vec<Row>,
    gpus: Vec<GpuRoom>,
    /// Of each GPU, the scarcer of its two sides.
    shares: Vec<u16>,
    kinds: Vec<Kind>,
    /// For each kind; none before anything was learnt.
    wastes: Vec<Waste>,
    /// What the board was told itself; who keeps a mix of its own says `score_by`.
    mix: Mix,
    often: Vec<Often>,
    /// The mix, or how much there is of a kind, is another than in `wastes`.
    stale: bool,
    /// Rows in the order of their changes, the first being change `log_from`.
    log: Vec<u32>,
    log_from: u64,
    rankings: Vec<Kept>,
    by_shape: BTreeMap<Shape, usize>,
    asked: u64,
    /// Rows whose node told a fabric block.
    blocks: usize,
    /// Rows that nobody has, by their number of GPUs.
    vacant: BTreeMap<u16, Vec<usize>>,
}

/// A ranking, how far it has caught up, and when it was last asked for.
#[derive(Debug, Clone)]
struct Kept {
    shape: Shape,
    ranking: Ranking,
    seen: Option<u64>,
    asked: u64,
    /// Where a gang asked for the shape.
    blocks: Option<Box<Blocks>>,
}

/// A number for settling ties that neither name nor age of the node tell.
fn tie(node: u64) -> u32 {
    let mut mixed = node.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> (64 - TIE_BITS)) as u32
}

impl Board {
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    pub fn gpus(&self, row: usize) -> &[GpuRoom] {
        of_row(&self.gpus, &self.rows[row])
    }

    pub fn row(&self, row: usize) -> &Row {
        &self.rows[row]
    }

    /// Bytes the board takes.
    pub fn size(&self) -> usize {
        let rankings: usize = self.rankings.iter().map(|kept| kept.ranking.size()).sum();
        self.rows.capacity() * size_of::<Row>()
            + self.gpus.capacity() * size_of::<GpuRoom>()
            + self.shares.capacity() * 2
            + self.log.capacity() * 4
            + rankings
    }

    /// Takes a node's GPUs of one kind; the row they are.
    pub fn join(&mut self, bench: &Bench) -> usize {
        let kind = self.kind(bench.class, bench.vram_mib);
        let gpus = u16::try_from(bench.gpus.len()).expect("INVARIANT: a node has at most 1,024 GPUs");
        self.supply(kind, |known| known + u64::from(gpus));
        let vacant = self.vacant.get_mut(&gpus).and_then(Vec::pop);
        let (row, first) = match vacant {
            Some(row) => (row, self.rows[row].first),
            None => {
                let first = u32::try_from(self.gpus.len()).expect("INVARIANT: fewer GPUs than 2^32");
                self.gpus
                    .resize(self.gpus.len() + bench.gpus.len(), GpuRoom::default());
                self.shares.resize(self.gpus.len(), 0);
                (self.rows.len(), first)
            }
        };
        let joined = Row {
            cpu_milli: bench.cpu_milli,
            memory_mib: bench.memory_mib,
            kind: u16::try_from(kind).expect("INVARIANT: fewer kinds of GPU than 65,536"),
            gpus,
            first,
            node: bench.node,
            tie: tie(bench.node),
            block: bench.block,
            region: bench.region,
            pool: bench.pool,
            whole: 0,
            most: 0,
            idle: 0,
            waste: 0,
            changed: 0,
        };
        match self.rows.get_mut(row) {
            Some(old) => *old = joined,
            None => self.rows.push(joined),
        }
        let range = self.rows[row].range();
        self.gpus[range].copy_from_slice(&bench.gpus);
        self.blocks += usize::from(bench.block.is_some());
        self.changed(row);
        row
    }

    /// Nobody told a block.
    pub fn is_flat(&self) -> bool {
        self.blocks == 0
    }

    /// Whether the bench, whatever is free of it, is what the row is.
    pub fn is_as(&self, row: usize, bench: &Bench) -> bool {
        let row = &self.rows[row];
        let kind = &self.kinds[usize::from(row.kind)];
        usize::from(row.gpus) == bench.gpus.len()
            && (row.gpus == 0 || (kind.class, kind.vram_mib) == (bench.class, bench.vram_mib))
            && (row.node, row.block) == (bench.node, bench.block)
            && (row.region, row.pool) == (bench.region, bench.pool)
    }

    /// Empties a row for whoever comes next with as many GPUs.
    pub fn leave(&mut self, row: usize) {
        let (kind, gpus) = (usize::from(self.rows[row].kind), self.rows[row].gpus);
        self.supply(kind, |known| known - u64::from(gpus));
        self.blocks -= usize::from(self.rows[row].block.take().is_some());
        self.set(row, 0, 0, &vec![GpuRoom::default(); usize::from(gpus)]);
        self.vacant.entry(gpus).or_default().push(row);
    }

    fn kind(&mut self, class: Classes, vram_mib: u32) -> usize {
        let known = self
            .kinds
            .iter()
            .position(|kind| kind.class == class && kind.vram_mib == vram_mib);
        known.unwrap_or_else(|| {
            let new = Kind {
                class,
                vram_mib,
                gpus: 0,
            };
            self.stale = true;
            // A kind of which there is nothing may still have rows without a GPU; they are of every kind alike.
            match self.kinds.iter().position(|kind| kind.gpus == 0) {
                Some(gone) => {
                    self.kinds[gone] = new;
                    gone
                }
                None => {
                    self.kinds.push(new);
                    self.kinds.len() - 1
                }
            }
        })
    }

    fn supply(&mut self, kind: usize, change: impl FnOnce(u64) -> u64) {
        let kind = &mut self.kinds[kind];
        let before = kind.supply();
        kind.gpus = change(kind.gpus);
        self.stale |= kind.supply() != before;
    }

    /// Says what is free on a row now.
    pub fn set(&mut self, row: usize, cpu_milli: u32, memory_mib: u64, gpus: &[GpuRoom]) {
        let at = self.rows[row].first as usize;
        assert_eq!(
            gpus.len(),
            usize::from(self.rows[row].gpus),
            "INVARIANT: a row keeps its GPUs"
        );
        self.gpus[at..at + gpus.len()].copy_from_slice(gpus);
        self.rows[row].cpu_milli = cpu_milli;
        self.rows[row].memory_mib = memory_mib;
        self.changed(row);
    }

    /// Gives the shape its place.
    pub fn take(&mut self, shape: &Shape, spot: &Spot) {
        let row = &mut self.rows[spot.row];
        // INVARIANT: nothing is given twice; a spot that no longer fits is a bug of the caller.
        assert!(row.could_hold(shape), "INVARIANT: a node is not over-committed");
        row.cpu_milli -= shape.cpu_milli;
        row.memory_mib -= shape.memory_mib;
        let (first, vram_mib) = (row.first as usize, self.kinds[usize::from(row.kind)].vram_mib);
        for &gpu in &spot.gpus {
            let room = &mut self.gpus[first + usize::from(gpu)];
            let fits = room.fits(shape) && (!shape.is_whole() || room.is_whole(vram_mib));
            assert!(fits, "INVARIANT: a GPU is not over-committed");
            *room = room.without(shape);
        }
        self.changed(spot.row);
    }

    /// Takes back what the shape had there.
    pub fn give_back(&mut self, shape: &Shape, spot: &Spot) {
        let row = &mut self.rows[spot.row];
        row.cpu_milli += shape.cpu_milli;
        row.memory_mib += shape.memory_mib;
        let (first, vram_mib) = (row.first as usize, self.kinds[usize::from(row.kind)].vram_mib);
        for &gpu in &spot.gpus {
            let room = &mut self.gpus[first + usize::from(gpu)];
            *room = GpuRoom {
                permille: room.permille + shape.permille,
                vram_mib: if shape.is_whole() {
                    vram_mib
                } else {
                    room.vram_mib + shape.vram_mib
                },
            };
            assert!(
                room.permille <= 1000 && room.vram_mib <= vram_mib,
                "INVARIANT: no more comes back than was given"
            );
        }
        self.changed(spot.row);
    }

    fn changed(&mut self, row: usize) {
        let kind = usize::from(self.rows[row].kind);
        let range = self.rows[row].range();
        let vram_mib = self.kinds[kind].vram_mib;
        let (gpus, shares) = (&self.gpus[range.clone()], &mut self.shares[range]);
        self.rows[row].reckon(gpus, shares, vram_mib, self.wastes.get(kind));
        self.rows[row].changed = self.log_from + self.log.len() as u64 + 1;
        self.log
            .push(u32::try_from(row).expect("INVARIANT: fewer rows than 2^32"));
        // Who is further behind than this looks at every row's own number instead.
        if self.log.len() > 2 * self.rows.len() + 1024 {
            let old = self.log.len() / 2;
            self.log.drain(..old);
            self.log_from += old as u64;
        }
    }

    /// Takes note of an arrival, for the mix. Once for each job, however often a place is asked for.
    pub fn learn(&mut self, shape: &Shape) {
        if self.mix.note(shape, self.rows.len()) {
            self.score_by(self.mix.often());
        }
    }

    /// Scores by this mix from now on.
    pub fn score_by(&mut self, often: Vec<Often>) {
        self.often = often;
        self.stale = true;
    }

    /// Makes the tables anew where they no longer say what there is and what is asked for.
    fn refresh(&mut self) {
        if !std::mem::take(&mut self.stale) {
            return;
        }
        let tables = |kind: &Kind| Waste::new(kind, &self.kinds, &self.often);
        self.wastes = match self.often.is_empty() {
            true => Vec::new(),
            false => self.kinds.iter().map(tables).collect(),
        };
        for row in &mut self.rows {
            let shares = of_row(&self.shares, row);
            row.reckon_waste(shares, self.wastes.get(usize::from(row.kind)));
        }
        for kept in &mut self.rankings {
            kept.seen = None;
        }
    }

    /// The rank of a row for a shape; 0 where it does not fit.
    fn rank(&self, row: usize, shape: &Shape) -> u32 {
        let row = &self.rows[row];
        if !row.could_hold(shape) {
            return 0;
        }
        let kind = &self.kinds[usize::from(row.kind)];
        if shape.gpus > 0 && (!kind.class.meets(shape.classes) || shape.permille > row.most) {
            return 0;
        }
        let gpus = of_row(&self.gpus, row);
        let shares = of_row(&self.shares, row);
        let waste = self.wastes.get(usize::from(row.kind));
        let Some(least) = choose::least_waste(row, gpus, shares, kind.vram_mib, shape, waste) else {
            return 0;
        };
        let score = if shape.gpus == 0 && row.gpus == 0 {
            // The tightest, and all of them before nodes with GPUs, which need their CPU.
            let left = u64::from(row.cpu_milli - shape.cpu_milli);
            2 * MIDDLE - 1 - fine_log(left).min(MIDDLE - 2)
        } else if shape.gpus == 0 && waste.is_none() {
            // Spread, as nobody knows yet how much CPU the GPUs will need.
            MIDDLE
        } else if waste.is_none() {
            let most = (1 << SCORE_BITS) - 1;
            u32::try_from(most - least.clamp(0, most - 1)).unwrap_or(1)
        } else {
            let score = ((row.waste - least) >> STEP_BITS) + i64::from(MIDDLE);
            score.clamp(1, (1 << SCORE_BITS) - 1) as u32
        };
        score << TIE_BITS | row.tie
    }

    /// The ranking of a shape, made or brought up to date.
    fn caught_up(&mut self, shape: &Shape) -> usize {
        self.refresh();
        let at = self.kept(shape);
        self.rankings[at].ranking.grow(self.rows.len());
        let now = self.log_from + self.log.len() as u64;
        let seen = self.rankings[at].seen;
        if seen == Some(now) {
            return at;
        }
        let mut ranking = std::mem::take(&mut self.rankings[at].ranking);
        match seen {
            None => {
                let mut same: Option<(usize, u32)> = None;
                let ranks = |row: usize| match same {
                    Some((like, rank)) if self.is_alike(like, row) => match rank {
                        0 => 0,
                        rank => rank >> TIE_BITS << TIE_BITS | self.rows[row].tie,
                    },
                    _ => {
                        let rank = self.rank(row, shape);
                        same = Some((row, rank));
                        rank
                    }
                };
                ranking.fill(ranks, self.rows.len());
            }
            Some(seen) if seen < self.log_from || now - seen > self.rows.len() as u64 / 4 => {
                for row in 0..self.rows.len() {
                    if self.rows[row].changed > seen {
                        ranking.set(row, self.rank(row, shape));
                    }
                }
            }
            Some(seen) => {
                let unseen = (seen - self.log_from) as usize;
                for (at, &row) in self.log.iter().enumerate().skip(unseen) {
                    let row = row as usize;
                    // Only its last change matters.
                    if self.rows[row].changed == self.log_from + at as u64 + 1 {
                        ranking.set(row, self.rank(row, shape));
                    }
                }
            }
        }
        let kept = &mut self.rankings[at];
        kept.ranking = ranking;
        kept.seen = Some(now);
        at
    }

    /// Two rows that any shape would find alike.
    fn is_alike(&self, one: usize, other: usize) -> bool {
        let (a, b) = (&self.rows[one], &self.rows[other]);
        a.kind == b.kind
            && a.cpu_milli == b.cpu_milli
            && a.memory_mib == b.memory_mib
            && a.idle == b.idle
            && a.region == b.region
            && a.pool == b.pool
            && self.gpus(one) == self.gpus(other)
    }

    fn kept(&mut self, shape: &Shape) -> usize {
        self.asked += 1;
        let asked = self.asked;
        if let Some(&at) = self.by_shape.get(shape) {
            self.rankings[at].asked = asked;
            return at;
        }
        let kept = Kept {
            shape: *shape,
            ranking: Ranking::new(self.rows.len()),
            seen: None,
            asked,
            blocks: None,
        };
        let at = if self.rankings.len() < RANKINGS_MAX {
            self.rankings.push(kept);
            self.rankings.len() - 1
        } else {
            let oldest = (0..self.rankings.len())
                .min_by_key(|&at| self.rankings[at].asked)
                .unwrap_or(0);
            let old = std::mem::replace(&mut self.rankings[oldest], kept);
            self.by_shape.remove(&old.shape);
            oldest
        };
        self.by_shape.insert(*shape, at);
        at
    }

    /// The best place for the shape now.
    pub fn best(&mut self, shape: &Shape) -> Option<Spot> {
        let at = self.caught_up(shape);
        let row = self.rankings[at].ranking.best()?;
        Some(self.spot(row, shape))
    }

    /// Every row that has room for the shape, the best first, and the score of each; with the board to look at meanwhile.
    pub fn best_first(&mut self, shape: &Shape) -> (&Board, impl Iterator<Item = (usize, u32)>) {
        let at = self.caught_up(shape);
        let board = &*self;
        let rows = board.rankings[at].ranking.best_first(|row| board.rows[row].node);
        (board, rows.map(|(row, rank)| (row, rank >> TIE_BITS)))
    }

    /// For how many members of the shape each fabric block has room; with the board to look at meanwhile.
    pub fn by_block(&mut self, shape: &Shape) -> (&Board, &Blocks) {
        let at = self.caught_up(shape);
        let mut blocks = self.rankings[at].blocks.take().unwrap_or_default();
        self.count(&self.rankings[at].ranking, shape, &mut blocks);
        self.rankings[at].blocks = Some(blocks);
        let board = &*self;
        let blocks = board.rankings[at].blocks.as_deref();
        (board, blocks.expect("INVARIANT: it was put there above"))
    }

    /// Brings the blocks up to date with the rows that changed.
    fn count(&self, ranking: &Ranking, shape: &Shape, blocks: &mut Blocks) {
        let seen = blocks.seen.replace(self.log_from + self.log.len() as u64);
        let mut set = |row: usize| {
            let fits = ranking.rank(row) > 0;
            let room = if fits { self.members(row, shape) } else { 0 };
            blocks.set(row, self.rows[row].block, room);
        };
        match seen {
            Some(seen) if seen >= self.log_from => {
                let unseen = (seen - self.log_from) as usize;
                self.log[unseen..].iter().for_each(|&row| set(row as usize));
            }
            _ => (0..self.rows.len())
                .filter(|&row| self.rows[row].changed > seen.unwrap_or(0))
                .for_each(set),
        }
    }

    /// How many members of the shape the row has room for, and never fewer.
    fn members(&self, row: usize, shape: &Shape) -> u32 {
        let gpus = self.gpus(row);
        let row = &self.rows[row];
        let by_cpu = row.cpu_milli / shape.cpu_milli.max(1);
        let by_memory = row.memory_mib / shape.memory_mib.max(1);
        let each = |gpu: &GpuRoom| {
            let by_share = u32::from(gpu.permille / shape.permille.max(1));
            by_share.min(gpu.vram_mib / shape.vram_mib.max(1))
        };
        let by_gpus = match shape.gpus {
            0 => u32::MAX,
            wanted if shape.is_whole() => u32::from(row.whole / wanted),
            wanted => gpus.iter().map(each).sum::<u32>() / u32::from(wanted),
        };
        by_cpu
            .min(by_gpus)
            .min(u32::try_from(by_memory).unwrap_or(u32::MAX))
    }

    /// The best of these rows for a shape that was asked for, so many at most, the best first.
    pub fn sorted(&self, shape: &Shape, mut rows: Vec<usize>, most: usize) -> Vec<usize> {
        if let Some(&at) = self.by_shape.get(shape) {
            let ranking = &self.rankings[at].ranking;
            let key = |row: &usize| (std::cmp::Reverse(ranking.rank(*row)), self.rows[*row].node);
            if rows.len() > most {
                rows.select_nth_unstable_by_key(most, key);
            }
            rows.truncate(most);
            rows.sort_unstable_by_key(key);
        }
        rows
    }

    /// Which GPUs of a row the shape would get, were these its rooms, and what that would cost in scores.
    pub fn choose(&self, row: usize, rooms: &[GpuRoom], shape: &Shape) -> Option<(Vec<u16>, i64)> {
        let (row, kind) = (&self.rows[row], usize::from(self.rows[row].kind));
        let (vram_mib, waste) = (self.kinds[kind].vram_mib, self.wastes.get(kind));
        let (gpus, shares) = (of_row(&self.gpus, row), of_row(&self.shares, row));
        let chosen = choose::gpus(row, rooms, shares, vram_mib, shape, waste)?;
        let cost = choose::cost(row, gpus, vram_mib, shape, waste, &chosen);
        let cost = if waste.is_some() { cost >> STEP_BITS } else { cost };
        Some((chosen, cost))
    }

    /// The GPUs of a row that nobody has anything of, were these its rooms, if they are large enough.
    pub fn whole(&self, row: usize, rooms: &[GpuRoom], shape: &Shape) -> Vec<usize> {
        let vram_mib = self.kinds[usize::from(self.rows[row].kind)].vram_mib;
        let whole = |at: &usize| rooms[*at].is_whole(vram_mib) && rooms[*at].fits(shape);
        (0..rooms.len()).filter(whole).collect()
    }

    /// A difference of scores that is next to none: a thirtieth of a GPU.
    pub fn nearly(&self) -> u32 {
        if self.wastes.is_empty() { 64 } else { 2 }
    }

    fn spot(&self, row: usize, shape: &Shape) -> Spot {
        let kind = usize::from(self.rows[row].kind);
        let vram_mib = self.kinds[kind].vram_mib;
        let shares = of_row(&self.shares, &self.rows[row]);
        let waste = self.wastes.get(kind);
        let gpus = choose::gpus(&self.rows[row], self.gpus(row), shares, vram_mib, shape, waste);
        Spot {
            row,
            gpus: gpus.expect("INVARIANT: only rows that fit are ranked"),
        }
    }
}

/// The logarithm in steps of a sixty-fourth.
fn fine_log(number: u64) -> u32 {
    let number = number + 64;
    let bits = number.ilog2();
    (bits - 6) * 64 + (number >> (bits - 6)) as u32 - 64
}

/// What a row has of something kept for each GPU.
fn of_row<'a, T>(each: &'a [T], row: &Row) -> &'a [T] {
    &each[row.range()]
}
