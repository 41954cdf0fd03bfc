//! Energy: what a device says it used is shared out, to the last millijoule, among those who were on it.
//!
//! By how long the device worked for each since the last look; while it worked for nobody, by their shares of it. What it
//! used while nobody was on it is nobody's. Counters are kept in a file, so that what was used while no agent looked is
//! metered by the next one. Deliberately absent: reading devices (`outside`), and devices cut into parts, whose counter says
//! nothing of each.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenure_domain::id::AllocationId;

use crate::record::write_whole;

const FILE: &str = "energy.json";

/// Somebody on a device: how long it has worked for them so far, and their share of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Present {
    pub allocation: AllocationId,
    pub busy_ns: u64,
    pub weight_permille: u64,
}

/// Who is on each device.
pub type OnDevices = BTreeMap<String, Vec<Present>>;

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Energy {
    /// As each device's counter stood at the last look.
    counters: BTreeMap<String, u64>,
    /// Likewise the work for each of those on it.
    busy: BTreeMap<String, BTreeMap<AllocationId, u64>>,
    used_mj: BTreeMap<AllocationId, u64>,
    #[serde(skip)]
    dir: Option<PathBuf>,
}

impl Energy {
    pub fn open(state_dir: &Path) -> Energy {
        let read = std::fs::read(state_dir.join(FILE));
        let known: Option<Energy> = read.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Energy {
            dir: Some(state_dir.to_owned()),
            ..known.unwrap_or_default()
        }
    }

    /// Takes note of a device's counter. One that is lower than before has begun anew.
    pub fn note(&mut self, uuid: &str, counter_mj: u64, present: &[Present]) {
        let last = self.counters.insert(uuid.to_owned(), counter_mj);
        let grown = last.and_then(|last| counter_mj.checked_sub(last)).unwrap_or(0);
        let now = present.iter().map(|one| (one.allocation, one.busy_ns)).collect();
        let before: BTreeMap<AllocationId, u64> = self.busy.insert(uuid.to_owned(), now).unwrap_or_default();
        let worked = present.iter().map(|one| {
            let before = before.get(&one.allocation).copied().unwrap_or(0);
            one.busy_ns.saturating_sub(before)
        });
        let mut weights: Vec<u64> = worked.collect();
        if weights.iter().all(|&weight| weight == 0) {
            weights = present.iter().map(|one| one.weight_permille.max(1)).collect();
        }
        for (one, part) in present.iter().zip(parts(grown, &weights)) {
            *self.used_mj.entry(one.allocation).or_default() += part;
        }
    }

    pub fn used_mj(&self, id: AllocationId) -> Option<u64> {
        self.used_mj.get(&id).copied()
    }

    /// It has ended, and what it used is written down.
    pub fn forget(&mut self, id: AllocationId) {
        self.used_mj.remove(&id);
    }

    /// Not synced: after a loss of power nobody is on a device any more.
    pub fn keep(&self) -> io::Result<()> {
        match &self.dir {
            Some(dir) => write_whole(dir, FILE, &serde_json::to_vec(self)?),
            None => Ok(()),
        }
    }
}

/// The whole in parts as these weights are; what does not divide goes to the heaviest.
fn parts(whole: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|&weight| u128::from(weight)).sum();
    let part = |&weight: &u64| (u128::from(whole) * u128::from(weight) / sum.max(1)) as u64;
    let mut parts: Vec<u64> = weights.iter().map(part).collect();
    let rest = whole - parts.iter().sum::<u64>();
    let heaviest = (0..weights.len()).max_by_key(|&at| weights[at]);
    if let Some(at) = heaviest {
        parts[at] += rest;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(id: u64, busy_ns: u64, weight_permille: u64) -> Present {
        Present {
            allocation: AllocationId(id),
            busy_ns,
            weight_permille,
        }
    }

    #[test]
    fn every_millijoule_is_somebodys_while_somebody_is_there() {
        let mut energy = Energy::default();
        energy.note("gpu", 1_000_000, &[]);
        energy.note("gpu", 1_000_500, &[]);
        let mut counter = 1_000_500;
        let mut busy = [0, 0, 0];
        for step in 0..1000u64 {
            counter += step * 7 % 13;
            for (at, busy) in busy.iter_mut().enumerate() {
                *busy += step * (at as u64 + 3) % 5;
            }
            let present = [on(1, busy[0], 300), on(2, busy[1], 300), on(3, busy[2], 400)];
            energy.note("gpu", counter, &present);
        }
        let sum: u64 = (1..=3).filter_map(|id| energy.used_mj(AllocationId(id))).sum();
        assert_eq!(
            sum,
            counter - 1_000_500,
            "what was used before anybody came is nobody's"
        );
        // A driver that was loaded anew counts from nothing.
        energy.note("gpu", 10, &[on(1, busy[0], 300)]);
        energy.note("gpu", 15, &[on(1, busy[0], 300)]);
        let after: u64 = (1..=3).filter_map(|id| energy.used_mj(AllocationId(id))).sum();
        assert_eq!(after, sum + 5);
    }

    #[test]
    fn who_worked_pays_and_if_nobody_did_by_share() {
        assert_eq!(parts(100, &[1, 0]), [100, 0]);
        assert_eq!(parts(10, &[300, 700]), [3, 7]);
        assert_eq!(parts(1, &[500, 500]).iter().sum::<u64>(), 1);
        assert_eq!(parts(7, &[]), [] as [u64; 0]);
    }
}
