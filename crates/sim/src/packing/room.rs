//! What is left of each machine while a replay fills it.

use super::trace::{Ask, Machine};

/// The most GPUs a machine of a replay has.
pub const GPUS_MAX: usize = 8;

/// A machine's free resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Room {
    pub cpu_milli: u32,
    pub memory_mib: u32,
    pub gpus: u8,
    pub model: u64,
    /// Free thousandths of each GPU; those beyond `gpus` are 0.
    pub free: [u16; GPUS_MAX],
    /// How many kinds of pod it holds, and which, for `clustering`: shares, one whole GPU, and so on.
    pub kinds: u16,
}

impl Room {
    pub fn of(machine: &Machine) -> Room {
        let gpus = machine.gpus.min(GPUS_MAX);
        let mut free = [0; GPUS_MAX];
        free[..gpus].fill(1000);
        Room {
            cpu_milli: machine.cpu_milli,
            memory_mib: machine.memory_mib,
            gpus: u8::try_from(gpus).expect("INVARIANT: at most GPUS_MAX"),
            model: machine.model,
            free,
            kinds: 0,
        }
    }

    pub fn free(&self) -> &[u16] {
        &self.free[..usize::from(self.gpus)]
    }

    pub fn idle_milli(&self) -> u32 {
        self.free.iter().map(|&free| u32::from(free)).sum()
    }

    pub fn whole(&self) -> usize {
        self.free.iter().filter(|&&free| free == 1000).count()
    }

    pub fn fits(&self, ask: &Ask) -> bool {
        let gpus = || self.free().iter().filter(|&&free| free >= ask.gpu_milli).count();
        self.cpu_milli >= ask.cpu_milli
            && self.memory_mib >= ask.memory_mib
            && (ask.gpus == 0 || self.model & ask.models != 0 && gpus() >= usize::from(ask.gpus))
    }

    /// Gives the ask its tightest GPUs.
    #[must_use]
    pub fn after_tightest(&self, ask: &Ask) -> Room {
        let mut after = self.after_host(ask);
        for _ in 0..ask.gpus {
            let tightest = (0..usize::from(self.gpus))
                .filter(|&gpu| after.free[gpu] >= ask.gpu_milli && after.free[gpu] == self.free[gpu])
                .min_by_key(|&gpu| after.free[gpu]);
            let Some(gpu) = tightest else { break };
            after.free[gpu] -= ask.gpu_milli;
        }
        after
    }

    /// Gives the ask this one GPU.
    #[must_use]
    pub fn after_share(&self, ask: &Ask, gpu: usize) -> Room {
        let mut after = self.after_host(ask);
        after.free[gpu] -= ask.gpu_milli;
        after
    }

    fn after_host(&self, ask: &Ask) -> Room {
        let mut after = *self;
        after.cpu_milli -= ask.cpu_milli;
        after.memory_mib -= ask.memory_mib;
        after.kinds |= kind(ask);
        after
    }
}

/// The bit of this kind of ask; CPU alone has none.
pub fn kind(ask: &Ask) -> u16 {
    match ask.gpus {
        0 => 0,
        1 if ask.gpu_milli < 1000 => 1,
        gpus => 1 << gpus.min(15),
    }
}
