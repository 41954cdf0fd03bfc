//! Decisions per second of the board alone, on a fleet of a given size that is kept about nine tenths full.

use serde::Serialize;
use tenure_domain::schedule::board::row::GpuRoom;
use tenure_domain::schedule::board::shape::{Classes, Shape};
use tenure_domain::schedule::board::{Bench, Board, Spot};

use super::busy::Busy;
use super::generate;
use super::ours::shape;
use super::seeded::Seeded;

const VRAM_MIB: u32 = 1000;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    pub case: String,
    pub nodes: usize,
    pub gpus_per_node: usize,
    pub decisions: usize,
    pub decisions_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_node: Option<usize>,
    /// Processor time of all threads for each, in microseconds; the callers' is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor_us: Option<f64>,
}

pub fn fleet(nodes: usize, gpus: usize) -> Board {
    let mut board = Board::default();
    for node in 0..nodes {
        board.join(&Bench {
            class: Classes(1),
            vram_mib: VRAM_MIB,
            gpus: vec![
                GpuRoom {
                    permille: 1000,
                    vram_mib: VRAM_MIB,
                };
                gpus
            ],
            cpu_milli: 16_000 * u32::try_from(gpus).unwrap_or(u32::MAX / 16_000),
            memory_mib: 131_072 * gpus as u64,
            node: node as u64,
            block: None,
            region: 0,
            pool: 0,
        });
    }
    board
}

/// Fills nine tenths, then times one place given for one given back.
pub fn singles(nodes: usize, gpus: usize, decisions: usize) -> Line {
    let mut board = fleet(nodes, gpus);
    let mut random = Seeded::new(1);
    let mut held: Vec<(Shape, Spot)> = Vec::new();
    let mut given = 0;
    while given < nodes as u64 * gpus as u64 * 900 {
        let pod = generate::pod(&mut random);
        let wanted = shape(&pod);
        board.learn(&wanted);
        given += pod.total_milli();
        if let Some(spot) = board.best(&wanted) {
            board.take(&wanted, &spot);
            held.push((wanted, spot));
        }
    }
    let began = Busy::now();
    for _ in 0..decisions {
        let leaving = random.below(held.len());
        let (left, spot) = held.swap_remove(leaving);
        board.give_back(&left, &spot);
        let wanted = shape(&generate::pod(&mut random));
        board.learn(&wanted);
        if let Some(spot) = board.best(&wanted) {
            board.take(&wanted, &spot);
            held.push((wanted, spot));
        } else if let Some(spot) = board.best(&left) {
            board.take(&left, &spot);
            held.push((left, spot));
        }
    }
    line("singles", nodes, gpus, decisions, began, &board)
}

fn line(case: &str, nodes: usize, gpus: usize, decisions: usize, began: Busy, board: &Board) -> Line {
    Line {
        case: case.to_owned(),
        nodes,
        gpus_per_node: gpus,
        decisions,
        decisions_per_s: decisions as f64 / began.elapsed().as_secs_f64().max(1e-9),
        bytes_per_node: Some(board.size() / nodes.max(1)),
        processor_us: None,
    }
}
