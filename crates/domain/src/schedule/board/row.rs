//! Rows: the GPUs of one kind on one node, with what is free of them and of the node.
//!
//! A node with GPUs of two classes has two rows; its CPU and memory are then free in both. A node without GPUs has
//! one row with none.

use super::shape::{Shape, share};
use super::waste::Waste;

/// What is free of one GPU; nothing of one that takes no work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GpuRoom {
    pub permille: u16,
    pub vram_mib: u32,
}

impl GpuRoom {
    pub fn fits(&self, shape: &Shape) -> bool {
        self.permille >= shape.permille && self.vram_mib >= shape.vram_mib
    }

    /// The scarcer of its two sides, in thousandths.
    pub fn share(&self, vram_mib: u32) -> u16 {
        self.permille.min(share(self.vram_mib, vram_mib)).min(1000)
    }

    pub fn is_whole(&self, vram_mib: u32) -> bool {
        self.permille == 1000 && self.vram_mib == vram_mib
    }

    #[must_use]
    pub fn without(&self, shape: &Shape) -> GpuRoom {
        if shape.is_whole() {
            return GpuRoom::default();
        }
        GpuRoom {
            permille: self.permille - shape.permille,
            vram_mib: self.vram_mib - shape.vram_mib,
        }
    }
}

/// A row without its GPUs, and what follows from them.
#[derive(Debug, Clone)]
pub struct Row {
    pub cpu_milli: u32,
    pub memory_mib: u64,
    /// Which of the board's kinds.
    pub kind: u16,
    pub gpus: u16,
    /// Its first GPU among the board's.
    pub first: u32,
    /// Identity of its node.
    pub node: u64,
    /// Where equal scores are settled; fixed for the node, and unlike its name or its age.
    pub tie: u32,
    /// The fabric block, if the node told one.
    pub block: Option<u32>,
    pub region: u16,
    pub pool: u16,
    /// GPUs nobody has anything of.
    pub whole: u16,
    /// The most compute free on one GPU, in thousandths.
    pub most: u16,
    /// Free shares of all GPUs together.
    pub idle: u32,
    pub waste: i64,
    /// The change of the board that it had last.
    pub changed: u64,
}

impl Row {
    /// Its GPUs among the board's.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.first as usize..self.first as usize + usize::from(self.gpus)
    }

    /// Reckons anew what follows from the GPUs, and their shares.
    pub fn reckon(&mut self, gpus: &[GpuRoom], shares: &mut [u16], vram_mib: u32, waste: Option<&Waste>) {
        for (share, gpu) in shares.iter_mut().zip(gpus) {
            *share = gpu.share(vram_mib);
        }
        self.idle = shares.iter().copied().map(u32::from).sum();
        self.most = gpus.iter().map(|gpu| gpu.permille).max().unwrap_or(0);
        let whole = gpus.iter().filter(|gpu| gpu.is_whole(vram_mib)).count();
        self.whole = u16::try_from(whole).unwrap_or(u16::MAX);
        self.reckon_waste(shares, waste);
    }

    /// The waste alone, when the mix was learnt anew.
    pub fn reckon_waste(&mut self, shares: &[u16], waste: Option<&Waste>) {
        self.waste = waste.map_or(0, |waste| {
            let step = waste.cpu_step(self.cpu_milli);
            let of_gpus: i64 = shares.iter().map(|&free| waste.of_gpu(step, free)).sum();
            of_gpus + waste.of_node(step, self.cpu_milli, self.idle, self.whole.into())
        });
    }

    /// Whether the node's own resources are enough, and the GPUs are many enough to be looked at.
    pub fn could_hold(&self, shape: &Shape) -> bool {
        self.cpu_milli >= shape.cpu_milli
            && self.pool == shape.pool
            && (shape.region == 0 || self.region == shape.region)
            && self.memory_mib >= shape.memory_mib
            && (if shape.is_whole() { self.whole } else { self.gpus }) >= shape.gpus
    }

    /// The least waste the row would have with the shape on it, and on which GPU, for a shape that takes one or none.
    pub fn least_waste(
        &self,
        gpus: &[GpuRoom],
        shares: &[u16],
        vram_mib: u32,
        shape: &Shape,
        waste: &Waste,
    ) -> Option<(i64, usize)> {
        let cpu_milli = self.cpu_milli - shape.cpu_milli;
        let step = waste.cpu_step(cpu_milli);
        let whole = usize::from(self.whole);
        let now = || -> i64 { shares.iter().map(|&free| waste.of_gpu(step, free)).sum() };
        if shape.gpus == 0 {
            return Some((now() + waste.of_node(step, cpu_milli, self.idle, whole), 0));
        }
        if shape.is_whole() {
            let taken = usize::from(shape.gpus);
            let idle = self.idle - 1000 * u32::from(shape.gpus);
            let of_gpus = now() - taken as i64 * waste.of_gpu(step, 1000);
            let at = gpus.iter().position(|gpu| gpu.is_whole(vram_mib))?;
            return Some((of_gpus + waste.of_node(step, cpu_milli, idle, whole - taken), at));
        }
        let mut best: Option<(i64, usize)> = None;
        let mut same = None;
        let mut of_node = (u32::MAX, usize::MAX, 0);
        for (at, gpu) in gpus.iter().enumerate() {
            // Neighbours are often alike.
            if same == Some(*gpu) || !gpu.fits(shape) {
                continue;
            }
            same = Some(*gpu);
            let (before, after) = (shares[at], gpu.without(shape).share(vram_mib));
            let idle = self.idle - u32::from(before) + u32::from(after);
            let whole = whole - usize::from(gpu.is_whole(vram_mib));
            if (idle, whole) != (of_node.0, of_node.1) {
                of_node = (idle, whole, waste.of_node(step, cpu_milli, idle, whole));
            }
            let added = waste.of_gpu(step, after) - waste.of_gpu(step, before) + of_node.2;
            if best.is_none_or(|(least, _)| added < least) {
                best = Some((added, at));
            }
        }
        best.map(|(added, at)| (now() + added, at))
    }
}
