//! How many members of a gang a node would hold with some of its allocations gone: a guess, by shares, memory and CPU.
//!
//! Walls, labels and parts are left out, so that hundreds of nodes are put in order for little; whoever acts on a guess
//! places the members in earnest first. Asked by `evict/spread` and `backfill/several`.

use super::allocation::Allocation;
use super::fleet::{Gpu, Node};
use super::place::{seats, vram_wanted};
use crate::id::GpuId;
use crate::workload::spec::Demand;

/// What is free of a node.
pub(super) struct Rest<'a> {
    demand: &'a Demand,
    gpus: Vec<Free<'a>>,
    cpu_milli: u32,
    memory_mib: u64,
}

struct Free<'a> {
    gpu: &'a Gpu,
    permille: u64,
    vram_mib: u64,
}

impl<'a> Rest<'a> {
    pub fn of(node: &'a Node, demand: &'a Demand) -> Rest<'a> {
        let works = |gpu: &&Gpu| {
            gpu.present && gpu.quarantine.is_none() && demand.takes(&gpu.facts.class, &gpu.facts.model)
        };
        let free = |gpu: &'a Gpu| Free {
            gpu,
            permille: 1000_u64.saturating_sub(gpu.used_permille.into()),
            vram_mib: gpu.facts.vram_mib.saturating_sub(gpu.used_vram_mib),
        };
        Rest {
            demand,
            gpus: node.gpus.iter().filter(works).map(free).collect(),
            cpu_milli: node.free_cpu_milli(),
            memory_mib: node.free_memory_mib(),
        }
    }

    fn gpu(&mut self, id: GpuId) -> Option<&mut Free<'a>> {
        self.gpus.iter_mut().find(|free| free.gpu.id == id)
    }

    /// An allocation leaves, or is paused, which keeps its processes there.
    pub fn give_back(&mut self, allocation: &Allocation, pauses: bool) {
        for slice in allocation.slices.iter().filter(|_| !allocation.paused) {
            if let Some(free) = self.gpu(slice.gpu) {
                free.permille += u64::from(slice.compute_permille);
                free.vram_mib += slice.vram_mib;
            }
        }
        if !pauses {
            self.cpu_milli += allocation.cpu_milli;
            self.memory_mib += allocation.memory_mib;
        }
    }

    pub fn members(&self) -> u64 {
        let demand = self.demand;
        let by_cpu = u64::from(self.cpu_milli / demand.cpu_milli.max(1));
        let by_memory = self.memory_mib / demand.memory_mib.max(1);
        let most = by_cpu.min(by_memory).min(demand.nodes.into());
        if demand.gpus == 0 {
            return most;
        }
        let slices = self.gpus.iter().map(|free| {
            let by_vram = free.vram_mib / vram_wanted(free.gpu, demand).max(1);
            by_vram.min(free.permille / u64::from(demand.compute_permille.max(1)))
        });
        let slices: Vec<u64> = slices.collect();
        seats(&slices, demand.gpus, most)
    }
}
