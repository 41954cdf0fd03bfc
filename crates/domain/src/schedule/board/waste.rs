//! Waste: how much of a node's idle GPU the mix could not use. A place is good when it adds little.
//!
//! Four terms, all from the mix that was seen:
//! - fragments: idle GPU that a random ask could not use now, for its size or for want of CPU;
//! - remainder: what stays idle on a GPU that random asks fill until none fits;
//! - starved: idle GPU that runs out of CPU before it is used up, had every ask the same CPU per GPU;
//! - scarce: a class that many asks insist on is kept for them, so that using it counts as a loss.
//!
//! Tables are made once for each kind of GPU when the mix is learnt; they are whole numbers, so that the same state
//! gives the same place on every machine.

use super::mix::Often;
use super::shape::Classes;

/// Fixed point: thousandths of a GPU times this.
pub const ONE: i64 = 1 << 16;

const REMAINDER: f64 = 0.2;
const STARVED: f64 = 0.4;
const SCARCE: f64 = 0.3;
/// Groups of asks by their GPU per CPU.
const RATIOS: usize = 8;
/// Whole GPUs asked for together are told apart up to this number.
const TOGETHER: usize = 17;

/// A kind of GPU, and how much of it there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub class: Classes,
    pub vram_mib: u32,
    pub gpus: u64,
}

/// The tables of one kind of GPU.
#[derive(Debug, Clone)]
pub struct Waste {
    /// Amounts of CPU that asks need, rising.
    cpu_steps: Vec<u32>,
    /// For each free share, how many of the sizes asked for fit.
    size_step: Box<[u8]>,
    sizes: usize,
    /// For each step of CPU and size, the part of such a share that asks could not use.
    unusable: Vec<i32>,
    /// For each free share.
    remainder: Box<[i64]>,
    /// For each step of CPU and number of whole GPUs, what asks for several could use of one of them.
    together: Vec<i64>,
    ratios: [(i64, i64); RATIOS],
}

fn fixed(value: f64) -> i64 {
    (value * ONE as f64).round() as i64
}

impl Kind {
    /// How much of it there is, in steps of a sixteenth: a node more or less is no reason to score anew.
    pub fn supply(&self) -> u64 {
        let drop = (u64::BITS - self.gpus.leading_zeros()).saturating_sub(5);
        self.gpus >> drop << drop
    }
}

impl Waste {
    pub fn new(kind: &Kind, kinds: &[Kind], mix: &[Often]) -> Waste {
        let takes = |often: &&Often| often.shape.classes.meets(kind.class);
        let size = |often: &Often| often.shape.size(kind.vram_mib);
        let usable = || mix.iter().filter(takes).filter(|often| size(often) <= 1000);
        let mut cpu_steps: Vec<u32> = usable().map(|often| often.shape.cpu_milli).collect();
        cpu_steps.sort_unstable();
        cpu_steps.dedup();
        let mut steps: Vec<u16> = usable().map(size).collect();
        steps.sort_unstable();
        steps.dedup();
        let size_step = (0..=1000).map(|free| {
            let fitting = steps.partition_point(|&size| size <= free);
            u8::try_from(fitting).unwrap_or(u8::MAX)
        });
        let sizes = steps.len().min(255) + 1;
        let all: f64 = mix.iter().map(|often| often.weight).sum();
        let price = SCARCE * pressure(kind, kinds, mix);
        let several = |often: &Often| often.shape.gpus > 1 && often.shape.is_whole();
        // What fits at a step of CPU and of size: what appears there first, and all that fits below.
        let mut fitting = vec![vec![0.0; sizes]; cpu_steps.len() + 1];
        let mut in_whole = vec![[0.0; TOGETHER]; cpu_steps.len() + 1];
        for often in usable() {
            let cpu = cpu_steps.partition_point(|&step| step <= often.shape.cpu_milli);
            if several(often) {
                in_whole[cpu][usize::from(often.shape.gpus).min(TOGETHER - 1)] += often.weight * 1000.0;
            } else {
                let at = steps.partition_point(|&step| step <= size(often)).min(sizes - 1);
                fitting[cpu][at] += often.weight;
            }
        }
        let mut unusable = Vec::new();
        let mut together = Vec::new();
        for cpu in 0..fitting.len() {
            if let ([.., before], [now, ..]) = fitting.split_at_mut(cpu) {
                now.iter_mut()
                    .zip(before)
                    .for_each(|(now, before)| *now += *before);
            }
            if let ([.., before], [now, ..]) = in_whole.split_at_mut(cpu) {
                now.iter_mut()
                    .zip(before)
                    .for_each(|(now, before)| *now += *before);
            }
            let mut fits = 0.0;
            for weight in &fitting[cpu] {
                fits += weight;
                unusable.push(i32::try_from(fixed(all - fits - price)).unwrap_or(i32::MAX));
            }
            let mut usable = 0.0;
            for weight in &in_whole[cpu] {
                usable += weight;
                together.push(fixed(usable));
            }
        }
        let sized: Vec<(usize, f64)> = usable()
            .map(|often| (usize::from(size(often)).max(1), often.weight))
            .collect();
        let demands = usable().map(|often| {
            let gpu = f64::from(often.shape.gpus) * f64::from(size(often));
            (gpu / f64::from(often.shape.cpu_milli.max(1)), often.weight)
        });
        Waste {
            cpu_steps,
            size_step: size_step.collect(),
            sizes,
            unusable,
            remainder: remainders(&sized),
            together,
            ratios: ratios(demands.collect()),
        }
    }

    pub fn cpu_step(&self, cpu_milli: u32) -> usize {
        self.cpu_steps.partition_point(|&step| step <= cpu_milli)
    }

    /// The waste on one GPU with this free share.
    pub fn of_gpu(&self, cpu_step: usize, free: u16) -> i64 {
        let free = usize::from(free);
        let step = usize::from(self.size_step[free]);
        free as i64 * i64::from(self.unusable[cpu_step * self.sizes + step]) + self.remainder[free]
    }

    /// The waste of a node beyond that of its GPUs by themselves.
    pub fn of_node(&self, cpu_step: usize, cpu_milli: u32, idle: u32, whole: usize) -> i64 {
        let together = self.together[cpu_step * TOGETHER + whole.min(TOGETHER - 1)];
        let idle = i64::from(idle) * ONE;
        let starved = |&(weight, ratio): &(i64, i64)| {
            let short = (idle - i64::from(cpu_milli) * ratio).max(0);
            ((short >> 8) * weight) >> 8
        };
        self.ratios.iter().map(starved).sum::<i64>() - whole as i64 * together
    }
}

/// How hard asks that insist on this class press on it, against how hard all asks press on all GPUs.
fn pressure(kind: &Kind, kinds: &[Kind], mix: &[Often]) -> f64 {
    let supply = |classes: Classes| -> f64 {
        let taken = kinds.iter().filter(|kind| kind.class.meets(classes));
        taken.map(Kind::supply).sum::<u64>() as f64
    };
    let gpu = |often: &Often| {
        let size = f64::from(often.shape.size(kind.vram_mib).min(1000));
        often.weight * f64::from(often.shape.gpus) * size
    };
    let insisting = mix
        .iter()
        .filter(|often| often.shape.classes != Classes::ANY && often.shape.classes.meets(kind.class));
    let on_kind: f64 = insisting
        .map(|often| gpu(often) / supply(often.shape.classes).max(1.0))
        .sum();
    let on_all: f64 = mix.iter().map(gpu).sum::<f64>() / supply(Classes::ANY).max(1.0);
    if on_all > 0.0 { on_kind / on_all } else { 0.0 }
}

/// For each free share, what stays idle when asks drawn from the mix fill it until none fits.
fn remainders(sized: &[(usize, f64)]) -> Box<[i64]> {
    let mut stays = vec![0.0_f64; 1001];
    for free in 1..=1000 {
        let (mut left, mut fitting) = (0.0, 0.0);
        for &(size, weight) in sized.iter().filter(|(size, _)| *size <= free) {
            left += weight * stays[free - size];
            fitting += weight;
        }
        stays[free] = if fitting > 0.0 {
            left / fitting
        } else {
            free as f64
        };
    }
    stays.into_iter().map(|left| fixed(left * REMAINDER)).collect()
}

/// Asks in groups of equal weight by GPU per CPU, as (weight, ratio).
fn ratios(mut demands: Vec<(f64, f64)>) -> [(i64, i64); RATIOS] {
    demands.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let all: f64 = demands.iter().map(|(_, weight)| weight).sum();
    let mut groups = [(0.0, 0.0); RATIOS];
    let mut before = 0.0;
    for (ratio, weight) in demands {
        let middle = (before + weight / 2.0) / all;
        let group = ((middle * RATIOS as f64) as usize).min(RATIOS - 1);
        groups[group].0 += weight;
        groups[group].1 += weight * ratio;
        before += weight;
    }
    groups.map(|(weight, sum)| {
        if weight > 0.0 {
            (fixed(weight * STARVED), fixed(sum / weight))
        } else {
            (0, 0)
        }
    })
}
