//! A year of ordinary jobs, made up from a seed: what inference, training, rendering, sweeps, notebooks and crackers of
//! passwords do to their devices, with days and weeks, growth, updates, failures and trials among them.
//!
//! The figures are chosen wider than what is seen of such programs, not narrower: an alarm is tried on them.

use tenure_domain::audit::conduct::{Conduct, DeniedCall, KernelHash, KernelUse};
use tenure_domain::id::{AllocationId, JobId, UserId};

use crate::chance::Chance;

/// What sort of program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    Inference,
    Training,
    Rendering,
    Sweep,
    Notebook,
    Cracking,
    /// Serves more than its device holds: allocations are refused all day long.
    Crowded,
}

const SORTS: [Sort; 10] = [
    Sort::Inference,
    Sort::Inference,
    Sort::Training,
    Sort::Training,
    Sort::Rendering,
    Sort::Rendering,
    Sort::Sweep,
    Sort::Notebook,
    Sort::Cracking,
    Sort::Crowded,
];

/// One thing that somebody runs again and again.
pub struct Workload {
    pub owner: UserId,
    pub name: String,
    pub sort: Sort,
    begins: u64,
    jobs_per_day: f64,
    /// Of its program: launches and bytes a second, microseconds a launch, memory.
    launches_s: f64,
    busy_us: f64,
    in_per_launch: f64,
    out_per_launch: f64,
    peak: f64,
    /// Growth of its load in a day.
    growth: f64,
    kernels: Vec<u64>,
    update_every_days: f64,
    denied: Vec<u32>,
    denials: f64,
    /// Rendering: the shot and its size.
    shot: f64,
}

pub struct Year {
    pub chance: Chance,
    pub workloads: Vec<Workload>,
}

pub fn normal(chance: &mut Chance) -> f64 {
    let unit = |chance: &mut Chance| (chance.below(1 << 40) as f64 + 0.5) / (1u64 << 40) as f64;
    let (a, b) = (unit(chance), unit(chance));
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

/// A factor around one, `octaves` being one standard deviation.
fn around(chance: &mut Chance, octaves: f64) -> f64 {
    (normal(chance) * octaves).exp2()
}

fn between(chance: &mut Chance, least: f64, most: f64) -> f64 {
    least + (most - least) * chance.below(1 << 30) as f64 / (1u64 << 30) as f64
}

/// Some of the kernels are others now.
fn renew(kernels: &mut [u64], chance: &mut Chance, one_in: u64) {
    for kernel in kernels {
        if chance.one_in(one_in) {
            *kernel = chance.next();
        }
    }
}

/// Calls that programs try and do without: io_uring, performance counters, keyrings, namespaces, handles, BPF…
const TRIED: [u32; 9] = [425, 298, 250, 272, 155, 165, 304, 321, 323];

impl Workload {
    fn new(chance: &mut Chance, number: u64) -> Workload {
        let sort = chance.of(&SORTS);
        let (launches_s, busy_us, bytes_in, bytes_out, gib) = match sort {
            Sort::Inference | Sort::Crowded => (3000.0, 80.0, 2e3, 500.0, 12.0),
            Sort::Training => (800.0, 900.0, 4e5, 3e4, 20.0),
            Sort::Rendering => (60.0, 9000.0, 3e6, 4e5, 6.0),
            Sort::Sweep => (1500.0, 300.0, 5e4, 5e3, 4.0),
            Sort::Notebook => (400.0, 200.0, 1e5, 5e4, 2.0),
            Sort::Cracking => (50.0, 18_000.0, 2e5, 4e3, 1.0),
        };
        let count = match sort {
            Sort::Cracking => 1 + chance.below(4),
            _ => 4 + chance.below(26),
        };
        let tried = match chance.below(200) {
            // Somebody who runs container tools inside jobs.
            0 => 8,
            n => (n % 5) as usize,
        };
        Workload {
            owner: UserId(1 + number / 3),
            name: format!("work-{}", ["a", "b", "c"][(number % 3) as usize]),
            sort,
            // A third are there when the year begins, the others come during it.
            begins: if chance.one_in(3) { 0 } else { chance.below(330) },
            jobs_per_day: between(chance, 0.3, 3.0) * around(chance, 1.0),
            launches_s: launches_s * around(chance, 1.5),
            busy_us: busy_us * around(chance, 1.2),
            in_per_launch: bytes_in * around(chance, 2.0),
            out_per_launch: bytes_out * around(chance, 2.0),
            peak: gib * 1.074e9 * around(chance, 0.8),
            growth: normal(chance) * 0.004,
            kernels: (0..count).map(|_| chance.next()).collect(),
            update_every_days: between(chance, 4.0, 60.0),
            denied: TRIED[..tried].to_vec(),
            denials: between(chance, 0.0, 45.0),
            shot: 1.0,
        }
    }

    /// What days do to a program: new code, more data, a larger model.
    fn live_a_day(&mut self, chance: &mut Chance) {
        self.launches_s *= self.growth.exp2();
        if !chance.one_in(self.update_every_days.ceil() as u64) {
            return;
        }
        // New code has new kernels, mostly all of them; what it moves stays nearly the same.
        let part = chance.of(&[1, 3]);
        renew(&mut self.kernels, chance, part);
        // Kernels are fused or split: fewer and longer, or more and shorter.
        let fused = around(chance, 0.5);
        self.launches_s /= fused;
        self.busy_us *= fused;
        self.in_per_launch *= fused;
        self.out_per_launch *= fused;
        match chance.below(12) {
            // A larger model, or a smaller one in fewer bits.
            0 => {
                let size = around(chance, 1.0);
                self.peak *= size;
                self.busy_us *= size.sqrt();
            }
            // Other data.
            1 => self.in_per_launch *= around(chance, 1.0),
            // More is written out: longer answers, checkpoints more often.
            2 => self.out_per_launch *= around(chance, 1.0),
            // A larger batch.
            3 if self.sort == Sort::Training => {
                self.busy_us *= 2.0;
                self.in_per_launch *= 2.0;
                self.peak *= 1.6;
                self.launches_s /= 2.0;
            }
            // Another library, which tries for one more thing.
            4 if self.denied.len() < 6 => self.denied = TRIED[..self.denied.len() + 1].to_vec(),
            _ => {}
        }
    }

    fn jobs_today(&self, chance: &mut Chance, day: u64) -> u64 {
        if day < self.begins {
            return 0;
        }
        let weekend = day % 7 >= 5 && self.sort != Sort::Inference;
        let mean = self.jobs_per_day * if weekend { 0.3 } else { 1.0 };
        // Bursts: sweeps and shots come many at once.
        let burst = matches!(self.sort, Sort::Rendering | Sort::Sweep) && chance.one_in(6);
        let mean = if burst { mean * 4.0 } else { mean };
        let whole = mean.floor();
        whole as u64 + u64::from(between(chance, 0.0, 1.0) < mean - whole)
    }

    /// One ordinary run.
    pub fn run(&mut self, chance: &mut Chance, day: u64, job: u64) -> Conduct {
        let mut ran_s = between(chance, 20.0, 3600.0) * around(chance, 1.0);
        let (mut rate, mut busy_us) = (self.launches_s, self.busy_us);
        let (mut per_in, mut per_out, mut peak) = (self.in_per_launch, self.out_per_launch, self.peak);
        let (mut refusals, mut kernels) = (0, self.kernels.clone());
        match self.sort {
            Sort::Inference | Sort::Crowded => {
                // By the hour, and by what people ask.
                let hour = chance.below(24) as f64;
                rate *= 0.15 + 0.85 * (0.5 + 0.5 * ((hour - 15.0) / 24.0 * std::f64::consts::TAU).cos());
                rate *= around(chance, 0.5);
                per_out *= around(chance, 0.5);
                per_in *= around(chance, 0.5);
            }
            Sort::Training => {
                per_out *= around(chance, 0.8);
                rate *= around(chance, 0.3);
            }
            Sort::Rendering => {
                if chance.one_in(30) {
                    self.shot = around(chance, 1.2);
                    // Another shot has some shaders of its own.
                    renew(&mut kernels, chance, 3);
                    self.kernels.clone_from(&kernels);
                }
                // Heavy tails: one frame in many takes a hundred times as long.
                let weight = self.shot * (normal(chance) * 0.9).exp();
                busy_us *= weight * if chance.one_in(40) { 12.0 } else { 1.0 };
                per_in *= self.shot;
                ran_s = (ran_s * weight).min(40_000.0);
                rate /= weight.max(1.0);
            }
            Sort::Sweep => {
                let size = (chance.below(7) as f64 - 3.0).exp2();
                busy_us *= size;
                per_in *= size;
                peak *= size.sqrt();
                rate /= size.max(1.0);
                if size > 2.0 && chance.one_in(2) {
                    refusals = 1 + chance.below(60);
                }
                // Tuned for each size.
                for (place, kernel) in kernels.iter_mut().enumerate().filter(|(at, _)| at % 3 == 0) {
                    *kernel ^= (size.log2() as i64 + 9) as u64 * (place as u64 + 1);
                }
            }
            Sort::Notebook => {
                // Whatever comes to mind.
                rate *= around(chance, 1.8);
                busy_us *= around(chance, 1.5);
                per_in *= around(chance, 2.0);
                per_out *= around(chance, 2.0);
                peak *= around(chance, 1.0);
                renew(&mut kernels, chance, 2);
                refusals = if chance.one_in(10) { chance.below(40) } else { 0 };
            }
            Sort::Cracking => {
                // Tries sizes until one fits.
                refusals = chance.below(120);
                busy_us *= around(chance, 0.6);
            }
        }
        // Another model of device, with others beside it, and a cap of its own.
        busy_us *= chance.of(&[1.0, 1.0, 2.2, 0.45]) * around(chance, 0.15);
        rate *= between(chance, 0.5, 1.0);
        // Failed soon after its start, or was only tried out.
        match chance.below(100) {
            0..5 => ran_s = between(chance, 0.2, 8.0),
            5..10 => {
                ran_s = between(chance, 5.0, 30.0);
                rate *= between(chance, 0.01, 1.0);
                peak *= between(chance, 0.05, 1.0);
            }
            10..12 => refusals += 1 + chance.below(5),
            _ => {}
        }
        // A processor is busy at most all the time.
        rate = rate.min(0.97e6 / busy_us);
        let launches = (rate * ran_s).max(0.0) as u64;
        if self.sort == Sort::Crowded {
            refusals += launches / 5;
        }
        let opens = 1 + chance.below(4);
        let start_in = peak * between(chance, 0.3, 0.9);
        let mut conduct = Conduct {
            ran_ms: (ran_s * 1000.0) as u64,
            devices: 1,
            devices_opened: 1,
            opens,
            allocations: 20 + launches / 50,
            allocated_bytes: peak as u64 * 3,
            peak_bytes: peak as u64,
            launches,
            bytes_in: (start_in + per_in * launches as f64) as u64,
            bytes_out: (per_out * launches as f64) as u64,
            busy_ms: (busy_us * launches as f64 / 1000.0) as u64,
            throttled_ms: chance.below(1000),
            waited_ms: (day * 13 + job) % 5000,
            refusals,
            denials: opens * (self.denials * between(chance, 0.3, 1.5)) as u64,
            ..Conduct::new(AllocationId(job), JobId(job))
        };
        let count = kernels.len() as u64;
        conduct.add_kernels(kernels.into_iter().map(|hash| KernelUse {
            hash: KernelHash(hash),
            launches: launches / count + 1,
        }));
        let denied = self.denied.iter().map(|&call| DeniedCall {
            call,
            times: 1 + chance.below(2000),
        });
        conduct.set_denied_calls(denied.collect());
        conduct
    }
}

impl Year {
    /// Workloads enough for about `jobs` jobs.
    pub fn new(seed: u64, jobs: u64) -> Year {
        let mut chance = Chance::new(seed ^ 0x5eed);
        let workloads = (0..(jobs / 480).max(10))
            .map(|number| Workload::new(&mut chance, number))
            .collect();
        Year { chance, workloads }
    }

    /// Lives the year; `each` gets every job with its day, the number of its workload, and what it did.
    pub fn live(&mut self, mut each: impl FnMut(u64, usize, &mut Workload, Conduct, &mut Chance)) -> u64 {
        let mut job = 0;
        for day in 0..365 {
            for (number, workload) in self.workloads.iter_mut().enumerate() {
                if day >= workload.begins {
                    workload.live_a_day(&mut self.chance);
                }
                for _ in 0..workload.jobs_today(&mut self.chance, day) {
                    job += 1;
                    let conduct = workload.run(&mut self.chance, day, job);
                    each(day, number, workload, conduct, &mut self.chance);
                }
            }
        }
        job
    }
}
