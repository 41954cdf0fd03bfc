//! Properties of the board under random streams: it answers as a look at every row would, and gives nothing twice.

use super::*;

/// The same numbers for the same seed.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

fn whole(gpus: usize, vram_mib: u32) -> Vec<GpuRoom> {
    vec![
        GpuRoom {
            permille: 1000,
            vram_mib,
        };
        gpus
    ]
}

fn bench(node: u64, class: u8, vram_mib: u32, gpus: usize, cpu_milli: u32) -> Bench {
    Bench {
        class: Classes::one(class),
        vram_mib,
        gpus: whole(gpus, vram_mib),
        cpu_milli,
        memory_mib: 256 << 10,
        node,
        block: None,
        region: 0,
        pool: 0,
    }
}

fn fleet(random: &mut Seeded, rows: u64) -> Board {
    let mut board = Board::default();
    for node in 0..rows {
        let class = random.one_of(&[0, 1]);
        let gpus = random.one_of(&[0, 1, 2, 4, 8]);
        let cpu = random.one_of(&[8, 32, 64, 96]) * 1000;
        let mut bench = bench(node, class, [16_384, 81_920][usize::from(class)], gpus, cpu);
        bench.block = random.one_of(&[None, Some(1), Some(2), Some(3)]);
        board.join(&bench);
    }
    board
}

fn ask(random: &mut Seeded) -> Shape {
    let permille = random.one_of(&[0, 100, 190, 330, 470, 500, 810, 1000, 1000]);
    let gpus = if permille == 1000 {
        random.one_of(&[1, 1, 1, 2, 4, 8])
    } else {
        random.one_of(&[0, 1, 1, 1, 1, 2])
    };
    Shape {
        cpu_milli: random.one_of(&[1000, 3152, 8000, 11_300, 20_000]),
        memory_mib: random.one_of(&[1024, 16_384, 65_536]),
        gpus,
        permille: if gpus == 0 { 0 } else { permille },
        vram_mib: if gpus == 0 || permille == 1000 {
            0
        } else {
            random.one_of(&[0, 2048, 8192, 24_000])
        },
        classes: random.one_of(&[Classes::ANY, Classes::ANY, Classes::one(0), Classes::one(1)]),
        ..Shape::default()
    }
}

/// What a look at every row finds: the first row of the highest rank.
fn by_scan(board: &Board, shape: &Shape) -> Option<usize> {
    let ranked = (0..board.rows()).map(|row| (board.rank(row, shape), row));
    let best = ranked.filter(|(rank, _)| *rank > 0);
    best.max_by_key(|&(rank, row)| (rank, std::cmp::Reverse(row)))
        .map(|(_, row)| row)
}

/// Whether the row has room, told without the board's shortcuts.
fn has_room(board: &Board, row: usize, shape: &Shape) -> bool {
    let (room, kind) = (&board.rows[row], &board.kinds[usize::from(board.rows[row].kind)]);
    let fitting = board.gpus(row).iter().filter(|gpu| {
        let enough = gpu.permille >= shape.permille && gpu.vram_mib >= shape.vram_mib;
        enough && (shape.permille < 1000 || gpu.vram_mib == kind.vram_mib)
    });
    room.cpu_milli >= shape.cpu_milli
        && room.memory_mib >= shape.memory_mib
        && (shape.gpus == 0 || kind.class.meets(shape.classes) && fitting.count() >= usize::from(shape.gpus))
}

#[test]
fn the_index_answers_as_a_look_at_every_row_does() {
    for seed in 0..24 {
        let mut random = Seeded(seed);
        let rows = 1 + random.below(90);
        let mut board = fleet(&mut random, rows);
        let mut held: Vec<(Shape, Spot)> = Vec::new();
        let asks: Vec<Shape> = (0..20).map(|_| ask(&mut random)).collect();
        for step in 0..600 {
            if !held.is_empty() && random.below(4) == 0 {
                let (shape, spot) = held.swap_remove(random.below(held.len() as u64) as usize);
                board.give_back(&shape, &spot);
                continue;
            }
            let shape = random.one_of(&asks);
            board.learn(&shape);
            let spot = board.best(&shape);
            let expected = by_scan(&board, &shape);
            assert_eq!(
                spot.as_ref().map(|spot| spot.row),
                expected,
                "seed {seed} step {step} {shape:?}"
            );
            let anywhere = (0..board.rows()).any(|row| has_room(&board, row, &shape));
            assert_eq!(spot.is_some(), anywhere, "seed {seed} step {step} {shape:?}");
            if let Some(spot) = spot {
                assert_eq!(spot.gpus.len(), usize::from(shape.gpus));
                board.take(&shape, &spot);
                held.push((shape, spot));
            }
        }
    }
}

#[test]
fn what_is_held_and_what_is_free_make_the_whole() {
    for seed in 100..112 {
        let mut random = Seeded(seed);
        let mut board = fleet(&mut random, 30);
        let before: Vec<(u32, Vec<GpuRoom>)> = (0..board.rows())
            .map(|row| (board.rows[row].cpu_milli, board.gpus(row).to_vec()))
            .collect();
        let mut held: Vec<(Shape, Spot)> = Vec::new();
        for _ in 0..400 {
            let shape = ask(&mut random);
            board.learn(&shape);
            if let Some(spot) = board.best(&shape) {
                board.take(&shape, &spot);
                held.push((shape, spot));
            }
        }
        for (row, (cpu, gpus)) in before.iter().enumerate() {
            let here = || held.iter().filter(|(_, spot)| spot.row == row);
            let used: u32 = here().map(|(shape, _)| shape.cpu_milli).sum();
            assert_eq!(board.rows[row].cpu_milli + used, *cpu);
            for (at, gpu) in gpus.iter().enumerate() {
                let on = here().filter(|(_, spot)| spot.gpus.iter().any(|&gpu| usize::from(gpu) == at));
                let permille: u16 = on.map(|(shape, _)| shape.permille).sum();
                assert_eq!(board.gpus(row)[at].permille + permille, gpu.permille);
            }
        }
        for (shape, spot) in held {
            board.give_back(&shape, &spot);
        }
        for (row, (cpu, gpus)) in before.iter().enumerate() {
            assert_eq!(
                (board.rows[row].cpu_milli, board.gpus(row)),
                (*cpu, gpus.as_slice())
            );
        }
    }
}

#[test]
fn candidates_come_best_first_and_each_once() {
    let mut random = Seeded(7);
    let mut board = fleet(&mut random, 70);
    for _ in 0..300 {
        let shape = ask(&mut random);
        board.learn(&shape);
        let rows: Vec<usize> = board.best_first(&shape).1.map(|(row, _)| row).collect();
        let mut expected: Vec<usize> = (0..board.rows())
            .filter(|&row| board.rank(row, &shape) > 0)
            .collect();
        expected.sort_by_key(|&row| (std::cmp::Reverse(board.rank(row, &shape)), row));
        assert_eq!(rows, expected);
        if let Some(spot) = board.best(&shape) {
            board.take(&shape, &spot);
        }
    }
}

fn gpus(gpus: u16, cpu_milli: u32) -> Shape {
    Shape {
        cpu_milli,
        memory_mib: 1024,
        gpus,
        permille: 1000,
        vram_mib: 0,
        classes: Classes::ANY,
        ..Shape::default()
    }
}

#[test]
fn asks_with_much_cpu_leave_nodes_with_little_to_others() {
    let mut board = Board::default();
    let rich = board.join(&bench(1, 0, 16_384, 2, 104_000));
    let poor = board.join(&bench(2, 0, 16_384, 2, 12_000));
    for _ in 0..64 {
        board.learn(&gpus(1, 16_000));
        board.learn(&gpus(1, 4000));
    }
    assert_eq!(board.best(&gpus(1, 16_000)).map(|spot| spot.row), Some(rich));
    assert_eq!(board.best(&gpus(1, 4000)).map(|spot| spot.row), Some(poor));
}

#[test]
fn a_class_others_insist_on_is_kept_for_them() {
    let mut board = Board::default();
    board.join(&bench(1, 0, 16_384, 2, 64_000));
    let plenty: Vec<usize> = (2..10)
        .map(|node| board.join(&bench(node, 1, 16_384, 8, 256_000)))
        .collect();
    let insisting = Shape {
        classes: Classes::one(0),
        ..gpus(1, 8000)
    };
    for _ in 0..64 {
        board.learn(&insisting);
        board.learn(&gpus(1, 8000));
    }
    let spot = board.best(&gpus(1, 8000)).expect("there is room");
    assert!(plenty.contains(&spot.row));
}

#[test]
fn rows_of_nodes_that_left_are_given_to_those_that_come() {
    for seed in 300..306 {
        let mut random = Seeded(seed);
        let mut board = fleet(&mut random, 20);
        let mut living: Vec<usize> = (0..board.rows()).collect();
        let mut most = board.rows();
        for node in 100..700 {
            let shape = ask(&mut random);
            board.learn(&shape);
            assert_eq!(board.best(&shape).map(|spot| spot.row), by_scan(&board, &shape));
            if !living.is_empty() && random.below(2) == 0 {
                board.leave(living.swap_remove(random.below(living.len() as u64) as usize));
            } else {
                let gpus = random.one_of(&[0, 1, 2, 4, 8]);
                let row = board.join(&bench(node, random.one_of(&[0, 1, 2]), 81_920, gpus, 64_000));
                assert!(!living.contains(&row), "two nodes on one row");
                living.push(row);
                most = most.max(living.len());
            }
            let empty = |row: &usize| board.rows[*row].cpu_milli == 0 && board.rows[*row].whole == 0;
            assert!(
                (0..board.rows())
                    .filter(|row| !living.contains(row))
                    .all(|row| empty(&row))
            );
        }
        assert!(board.rows() <= most * 5, "{} rows for {most} nodes", board.rows());
    }
}

#[test]
fn what_fits_a_shape_fits_the_coarser_one() {
    let mut random = Seeded(11);
    for _ in 0..2000 {
        let shape = Shape {
            cpu_milli: random.below(200_000) as u32,
            memory_mib: random.below(1 << 30),
            gpus: random.below(2000) as u16,
            permille: 1 + random.below(1000) as u16,
            vram_mib: random.below(200_000) as u32,
            ..Shape::default()
        };
        let coarse = shape.coarse();
        assert!(coarse.cpu_milli <= shape.cpu_milli && coarse.memory_mib <= shape.memory_mib);
        assert!(coarse.gpus <= shape.gpus && coarse.vram_mib <= shape.vram_mib);
        assert!(coarse.permille <= shape.permille && coarse.is_whole() == shape.is_whole());
        assert_eq!(coarse.coarse(), coarse);
        assert!((shape.gpus == 0) == (coarse.gpus == 0));
    }
}
