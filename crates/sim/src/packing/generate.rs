//! A small fleet and pods in the manner of the published ones, for machines without the traces.

use super::seeded::Seeded;
use super::trace::{Ask, Fleet};

/// Machines by (how many of a hundred, CPU, memory, GPUs, model).
const MACHINES: [(usize, u32, u32, usize, &str); 4] = [
    (50, 96_000, 393_216, 8, "big"),
    (30, 104_000, 524_288, 2, "roomy"),
    (15, 16_000, 122_880, 2, "tight"),
    (5, 32_000, 131_072, 4, "middle"),
];

/// Pods by (how many of a hundred, CPU, memory, GPUs, thousandths).
const PODS: [(usize, u32, u32, u16, u16); 10] = [
    (13, 3152, 8192, 1, 810),
    (30, 11_300, 32_768, 1, 1000),
    (10, 4000, 16_384, 1, 1000),
    (9, 11_908, 24_576, 1, 470),
    (6, 4000, 12_288, 1, 320),
    (5, 8000, 16_384, 1, 650),
    (4, 4000, 8192, 1, 230),
    (8, 18_700, 65_536, 1, 1000),
    (1, 64_000, 262_144, 8, 1000),
    (14, 12_500, 57_344, 0, 0),
];

fn drawn<T: Copy>(random: &mut Seeded, table: &[T], weight: impl Fn(&T) -> usize) -> T {
    let mut left = random.below(table.iter().map(&weight).sum());
    for row in table {
        if left < weight(row) {
            return *row;
        }
        left -= weight(row);
    }
    table[0]
}

pub fn fleet(machines: usize, seed: u64) -> Fleet {
    let mut random = Seeded::new(seed);
    let mut fleet = Fleet::default();
    for _ in 0..machines {
        let (_, cpu, memory, gpus, model) = drawn(&mut random, &MACHINES, |row| row.0);
        fleet.push(cpu, memory, gpus, model);
    }
    fleet
}

/// One pod as the mix has them.
pub fn pod(random: &mut Seeded) -> Ask {
    let (_, cpu_milli, memory_mib, gpus, gpu_milli) = drawn(random, &PODS, |row| row.0);
    Ask {
        cpu_milli,
        memory_mib,
        gpus,
        gpu_milli,
        models: u64::MAX,
    }
}

/// Pods that ask for 98 % of the fleet.
pub fn pods(fleet: &Fleet, seed: u64) -> Vec<Ask> {
    let mut random = Seeded::new(seed);
    let until = fleet.gpu_milli() * 98 / 100;
    let mut pods = Vec::new();
    let mut asked = 0;
    while asked < until {
        let pod = pod(&mut random);
        asked += pod.total_milli();
        pods.push(pod);
    }
    pods
}
