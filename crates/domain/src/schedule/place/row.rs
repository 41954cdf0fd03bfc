//! One row of the board, looked at for one job: which of its GPUs it gets, behind the walls of everybody on them.
//!
//! Long-running work and bursty work are kept apart where that costs next to nothing.

use super::company::Companies;
use super::fit::{allows_vram, vram_wanted};
use super::wall::{accepted_by, level_offered};
use super::{Place, Search, link, on_cpu};
use crate::schedule::allocation::Slice;
use crate::schedule::board::Board;
use crate::schedule::board::row::GpuRoom;
use crate::schedule::board::shape::Shape;
use crate::schedule::fleet::{Gpu, Node};
use crate::schedule::index::Seat;
use crate::workload::spec::{Isolation, Kind};

/// A place, and what there is against it.
pub(super) struct Found {
    pub place: Place,
    /// Long-running work would be beside bursty work.
    mixes: bool,
    /// The job's image would have to be fetched.
    lacks_image: bool,
}

impl Found {
    pub fn is_ideal(&self) -> bool {
        !self.mixes && !self.lacks_image
    }

    /// An image decides only between places that are equal otherwise.
    pub fn is_better_than(&self, other: &Found, equal: bool) -> bool {
        let quieter = other.mixes && !self.mixes;
        let nearer = other.lacks_image && !self.lacks_image;
        quieter || equal && nearer && self.mixes == other.mixes
    }
}

/// Work that comes in bursts and wants an answer at once; all other work runs long and uses whatever it gets.
pub(super) fn is_bursty(kind: Kind) -> bool {
    kind == Kind::Inference
}

/// A row as one node has it, and what is still free of it.
pub(super) struct Bank<'a> {
    board: &'a Board,
    row: usize,
    node: &'a Node,
    /// Its GPUs among the node's.
    which: Vec<usize>,
    rooms: Vec<GpuRoom>,
    /// What was found out of each GPU.
    known: Vec<Option<Regard<'a>>>,
    companies: &'a mut Companies,
}

/// How a GPU regards the job.
#[derive(Debug, Clone, Copy)]
enum Regard<'a> {
    BehindWall,
    Gives {
        level: Isolation,
        why: &'a str,
        /// Work of another kind is on it.
        mixes: bool,
    },
}

impl<'a> Bank<'a> {
    fn gpu(&self, at: usize) -> &'a Gpu {
        &self.node.gpus[self.which[at]]
    }

    /// Takes what the shape gets off what is free.
    pub fn take(&mut self, chosen: &[usize], shape: &Shape) {
        for &at in chosen {
            self.rooms[at] = self.rooms[at].without(shape);
        }
    }
}

impl<'a> Search<'a> {
    /// The place on this row, if there is one.
    pub(super) fn at_row(
        &self,
        board: &Board,
        row: usize,
        seat: Seat,
        shape: &Shape,
        given: &[Box<str>],
        companies: &mut Companies,
    ) -> Option<Found> {
        let node = self.state.fleet.node(seat.node)?;
        let promised = self.promised.contains_key(&node.id);
        if promised || !board.row(row).could_hold(shape) || !self.node_will_do(node) {
            return None;
        }
        let lacks_image = self.lacks_image(node);
        if shape.gpus == 0 {
            return Some(Found {
                place: on_cpu(node),
                mixes: false,
                lacks_image,
            });
        }
        let mut bank = self.bank(board, row, seat, node, given, companies)?;
        let (chosen, mixes) = self.choose(&mut bank, shape)?;
        Some(Found {
            place: self.place(&bank, &chosen)?,
            mixes,
            lacks_image,
        })
    }

    /// The row's GPUs, if they are of a kind the job takes: several kinds may share a bit.
    pub(super) fn bank<'b>(
        &self,
        board: &'b Board,
        row: usize,
        seat: Seat,
        node: &'b Node,
        given: &[Box<str>],
        companies: &'b mut Companies,
    ) -> Option<Bank<'b>> {
        let facts = &node.gpus.get(seat.first)?.facts;
        if !self.takes(&facts.class, &facts.model, given) {
            return None;
        }
        let rooms = board.gpus(row).to_vec();
        let of_class = (seat.first..node.gpus.len()).filter(|&at| node.gpus[at].facts.class == facts.class);
        let which: Vec<usize> = of_class.collect();
        assert_eq!(
            which.len(),
            rooms.len(),
            "INVARIANT: a row is the node's GPUs of one class"
        );
        Some(Bank {
            board,
            row,
            node,
            known: vec![None; rooms.len()],
            which,
            rooms,
            companies,
        })
    }

    /// The GPUs the shape gets, and whether they are beside work of another kind. GPUs behind a wall lose their room.
    pub(super) fn choose(&self, bank: &mut Bank<'_>, shape: &Shape) -> Option<(Vec<usize>, bool)> {
        if shape.is_whole() {
            let free = bank.board.whole(bank.row, &bank.rooms, shape);
            let free: Vec<usize> = free.into_iter().filter(|&at| self.accepts(bank, at)).collect();
            let gpus: Vec<&Gpu> = free.iter().map(|&at| bank.gpu(at)).collect();
            let chosen = link::choose(&gpus, shape.gpus.into())?;
            return Some((chosen.into_iter().map(|at| free[at]).collect(), false));
        }
        let (chosen, cost) = self.accepted(bank, shape)?;
        if !chosen.iter().any(|&at| self.mixes(bank, at)) {
            return Some((chosen, false));
        }
        let rooms = bank.rooms.clone();
        for at in 0..bank.rooms.len() {
            if bank.rooms[at].fits(shape) && self.mixes(bank, at) {
                bank.rooms[at] = GpuRoom::default();
            }
        }
        let quiet = self.accepted(bank, shape);
        bank.rooms = rooms;
        match quiet {
            Some((quiet, more)) if more <= cost + i64::from(bank.board.nearly()) => Some((quiet, false)),
            _ => Some((chosen, true)),
        }
    }

    /// The best GPUs that nobody on them minds, and what they cost.
    fn accepted(&self, bank: &mut Bank<'_>, shape: &Shape) -> Option<(Vec<usize>, i64)> {
        loop {
            let (chosen, cost) = bank.board.choose(bank.row, &bank.rooms, shape)?;
            let chosen: Vec<usize> = chosen.into_iter().map(usize::from).collect();
            let mut behind_wall = chosen.clone();
            behind_wall.retain(|&at| !self.accepts(bank, at));
            if behind_wall.is_empty() {
                return Some((chosen, cost));
            }
            for at in behind_wall {
                bank.rooms[at] = GpuRoom::default();
            }
        }
    }

    fn regard<'b>(&self, bank: &mut Bank<'b>, at: usize) -> Regard<'b> {
        if let Some(known) = bank.known[at] {
            return known;
        }
        let gpu = bank.gpu(at);
        let company = bank.companies.on(self.state, gpu);
        let mixes = company.mixes_with(is_bursty(self.spec.kind));
        let level = level_offered(self.state, gpu, self.demand, &self.wall)
            .and_then(|offered| accepted_by(company, gpu, &self.wall, offered));
        let allowed = level.filter(|_| allows_vram(&self.slice(gpu), self.demand, &self.wall));
        let regard = allowed.map_or(Regard::BehindWall, |(level, why)| Regard::Gives {
            level,
            why,
            mixes,
        });
        bank.known[at] = Some(regard);
        regard
    }

    fn accepts(&self, bank: &mut Bank<'_>, at: usize) -> bool {
        matches!(self.regard(bank, at), Regard::Gives { .. })
    }

    fn mixes(&self, bank: &mut Bank<'_>, at: usize) -> bool {
        matches!(self.regard(bank, at), Regard::Gives { mixes: true, .. })
    }

    fn slice(&self, gpu: &Gpu) -> Slice {
        Slice {
            gpu: gpu.id,
            vram_mib: vram_wanted(gpu, self.demand),
            compute_permille: self.demand.compute_permille,
            part: None,
        }
    }

    /// The place that these GPUs are, at the weakest level any of them gives.
    pub(super) fn place(&self, bank: &Bank<'_>, chosen: &[usize]) -> Option<Place> {
        let levels = chosen.iter().filter_map(|&at| match bank.known[at] {
            Some(Regard::Gives { level, why, .. }) => Some((level, why)),
            _ => None,
        });
        let (isolation, why) = levels.min_by_key(|(level, _)| *level)?;
        let gpus = || chosen.iter().map(|&at| bank.gpu(at));
        Some(Place {
            node: bank.node.id,
            slices: gpus().map(|gpu| self.slice(gpu)).collect(),
            class: gpus().next().map(|gpu| gpu.facts.class.clone()),
            isolation,
            isolation_why: why.into(),
        })
    }
}
