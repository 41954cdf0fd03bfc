//! What each tenant's jobs did: all of them, by number of GPUs, lately, and those submitted in one burst.
//!
//! Jobs submitted within minutes of one another are mostly one experiment with several settings and run alike;
//! so the first of a burst to end tells much about the rest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::evidence::Evidence;
use super::hazard::{Doubt, Hazard};
use crate::id::TenantId;
use crate::time::{HOUR_MS, Time};

/// A longer pause between submissions begins another burst.
const BURST_PAUSE_MS: u64 = 10 * 60_000;

/// Bursts remembered for each tenant, the oldest of the number of GPUs with most of them being forgotten first.
const BURSTS_KEPT: usize = 512;

/// Numbers of GPUs told apart for each tenant; what was submitted longest ago is forgotten first.
const SIZES_KEPT: usize = 64;

/// What "lately" means.
const LATELY_HALF_LIFE_MS: u64 = 72 * HOUR_MS;

/// The mean run time of which nothing is known, and how many ends it takes to say otherwise.
const USUAL_S: f64 = 4.0 * 3_600.0;
const FEW_ENDS: f64 = 2.0;

const OF_TENANT: Doubt = Doubt {
    wide: 2.0,
    narrow: 2.0,
};
const OF_SIZE: Doubt = Doubt {
    wide: 2.0,
    narrow: 5.0,
};
const OF_LATELY: Doubt = Doubt {
    wide: 2.0,
    narrow: 5.0,
};
const OF_BURST: Doubt = Doubt {
    wide: 1.0,
    narrow: 1.0,
};

/// Which jobs are like this one, as far as run times go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Signature {
    pub tenant: TenantId,
    pub gpus: u32,
    pub burst: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct OfSize {
    ever: Evidence,
    lately: Evidence,
    bursts: BTreeMap<u64, Evidence>,
    last_burst: u64,
    last_submitted: Time,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct OfTenant {
    ever: Evidence,
    sizes: BTreeMap<u32, OfSize>,
}

impl OfTenant {
    fn forget(&mut self) {
        if self.sizes.len() > SIZES_KEPT {
            let oldest = self.sizes.iter().min_by_key(|(_, size)| size.last_submitted);
            let oldest = oldest.map(|(&gpus, _)| gpus);
            oldest.map(|gpus| self.sizes.remove(&gpus));
        }
        let bursts: usize = self.sizes.values().map(|size| size.bursts.len()).sum();
        if bursts > BURSTS_KEPT
            && let Some(most) = self.sizes.values_mut().max_by_key(|size| size.bursts.len())
        {
            most.bursts.pop_first();
        }
    }
}

/// Everything learnt about run times. INVARIANT: a forecast reads the entry of its own tenant alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    tenants: BTreeMap<TenantId, OfTenant>,
}

impl History {
    /// A job was submitted; says which others are like it.
    pub fn submitted(&mut self, tenant: TenantId, gpus: u32, at: Time) -> Signature {
        let of = self.tenants.entry(tenant).or_default();
        let size = of.sizes.entry(gpus).or_default();
        let begins = size.bursts.is_empty() || at.since_ms(size.last_submitted) > BURST_PAUSE_MS;
        size.last_submitted = at;
        if begins {
            size.last_burst += 1;
            size.bursts.insert(size.last_burst, Evidence::default());
        }
        let burst = size.last_burst;
        if begins {
            of.forget();
        }
        Signature { tenant, gpus, burst }
    }

    /// A tenant is gone.
    pub fn forget(&mut self, tenant: TenantId) {
        self.tenants.remove(&tenant);
    }

    /// A job like these went from one age to another.
    pub fn ran(&mut self, of: Signature, from_s: u64, to_s: u64, at: Time) {
        if from_s < to_s {
            self.each(of, at, |evidence| evidence.ran(from_s, to_s));
        }
    }

    /// A job like these ended by itself at this age. Ends by eviction or cancel are none: they only stop the run.
    pub fn ended(&mut self, of: Signature, age_s: u64, at: Time) {
        self.each(of, at, |evidence| evidence.ended(age_s));
    }

    pub fn hazard(&self, of: Signature) -> Hazard {
        let mut hazard = Hazard::default();
        let Some(tenant) = self.tenants.get(&of.tenant) else {
            return hazard;
        };
        hazard = hazard.corrected(&tenant.ever, OF_TENANT);
        let Some(size) = tenant.sizes.get(&of.gpus) else {
            return hazard;
        };
        hazard = hazard
            .corrected(&size.ever, OF_SIZE)
            .corrected(&size.lately, OF_LATELY);
        match size.bursts.get(&of.burst) {
            Some(burst) => hazard.corrected(burst, OF_BURST),
            None => hazard,
        }
    }

    /// The mean run time of jobs like this one, what still runs counted with the time it has run.
    pub fn mean_s(&self, tenant: TenantId, gpus: u32) -> f64 {
        let mean =
            |seen: &Evidence, else_s: f64| (seen.total_s() + FEW_ENDS * else_s) / (seen.ends() + FEW_ENDS);
        let Some(of) = self.tenants.get(&tenant) else {
            return USUAL_S;
        };
        let usual = mean(&of.ever, USUAL_S);
        of.sizes.get(&gpus).map_or(usual, |size| mean(&size.ever, usual))
    }

    fn each(&mut self, of: Signature, at: Time, change: impl Fn(&mut Evidence)) {
        let tenant = self.tenants.entry(of.tenant).or_default();
        change(&mut tenant.ever);
        let Some(size) = tenant.sizes.get_mut(&of.gpus) else {
            return;
        };
        change(&mut size.ever);
        size.lately.fade(LATELY_HALF_LIFE_MS, at);
        change(&mut size.lately);
        if let Some(burst) = size.bursts.get_mut(&of.burst) {
            change(burst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(history: &mut History, tenant: u64, gpus: u32, age_s: u64, at: Time) -> Signature {
        let of = history.submitted(TenantId(tenant), gpus, at);
        history.ran(of, 0, age_s, at);
        history.ended(of, age_s, at);
        of
    }

    #[test]
    fn one_tenants_history_never_informs_another() {
        let mut alone = History::default();
        let of = finish(&mut alone, 1, 8, 500, Time(0));
        let mut among = alone.clone();
        for n in 0..500 {
            finish(&mut among, 2, 8, 90_000 + n, Time(0));
        }
        assert_eq!(alone.hazard(of), among.hazard(of));
    }

    #[test]
    fn the_first_of_a_burst_tells_about_the_rest() {
        let mut history = History::default();
        for n in 0..50 {
            finish(&mut history, 1, 8, 300, Time(n * 3_600_000));
        }
        let at = Time(100 * 3_600_000);
        let mates: Vec<Signature> = (0..4)
            .map(|n| history.submitted(TenantId(1), 8, at.plus_ms(n * 1_000)))
            .collect();
        assert!(mates.windows(2).all(|pair| pair[0] == pair[1]));
        let before = history.hazard(mates[3]).cost_s(0, 0);
        for mate in &mates[..3] {
            history.ran(*mate, 0, 200_000, at);
            history.ended(*mate, 200_000, at);
        }
        assert!(history.hazard(mates[3]).cost_s(0, 0) > before);
        let later = history.submitted(TenantId(1), 8, at.plus_ms(BURST_PAUSE_MS + 4_000));
        assert_ne!(later, mates[3]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut history = History::default();
        for n in 0..2_000 {
            history.submitted(TenantId(1), 1, Time(n * 3_600_000));
        }
        for n in 0..2_000 {
            history.submitted(TenantId(1), n as u32 % 100, Time(n * 3_600_000));
        }
        let sizes = &history.tenants[&TenantId(1)].sizes;
        assert_eq!(sizes.len(), SIZES_KEPT);
        assert!(sizes.values().map(|size| size.bursts.len()).sum::<usize>() <= BURSTS_KEPT);
    }
}
