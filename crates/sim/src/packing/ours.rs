//! The domain's board in the published protocol. It knows of the pods only what has arrived.

use tenure_domain::schedule::board::row::GpuRoom;
use tenure_domain::schedule::board::shape::{Classes, Shape};
use tenure_domain::schedule::board::{Bench, Board};

use super::replay::{Outcome, Tally};
use super::seeded::Seeded;
use super::trace::{Ask, Fleet};

/// The trace tells shares only, so each GPU has as many MiB as thousandths.
const VRAM_MIB: u32 = 1000;

pub fn shape(ask: &Ask) -> Shape {
    Shape {
        cpu_milli: ask.cpu_milli,
        memory_mib: ask.memory_mib.into(),
        gpus: ask.gpus,
        permille: ask.gpu_milli,
        vram_mib: ask.gpu_milli.into(),
        classes: Classes(ask.models),
        ..Shape::default()
    }
}

/// The fleet with nothing on it. Ties are settled by names, which are drawn anew for each seed.
pub fn board(fleet: &Fleet, seed: u64) -> Board {
    let mut names = Seeded::new(seed ^ 0x006e_616d_6573);
    let mut board = Board::default();
    for machine in &fleet.machines {
        board.join(&Bench {
            class: Classes(machine.model),
            vram_mib: VRAM_MIB,
            gpus: vec![
                GpuRoom {
                    permille: 1000,
                    vram_mib: VRAM_MIB,
                };
                machine.gpus
            ],
            cpu_milli: machine.cpu_milli,
            memory_mib: machine.memory_mib.into(),
            node: names.number(),
            block: None,
            region: 0,
            pool: 0,
        });
    }
    board
}

pub fn replay(board: &mut Board, fleet: &Fleet, arrivals: &[Ask]) -> Outcome {
    let mut tally = Tally::new(fleet);
    for ask in arrivals {
        let shape = shape(ask);
        board.learn(&shape);
        let spot = board.best(&shape);
        if let Some(spot) = &spot {
            board.take(&shape, spot);
        }
        tally.note(ask, spot.is_some());
    }
    tally.outcome()
}
