//! Fair share as people read it: what a scope used lately over what it deserves among its siblings.
//!
//! A scope deserves, of what its parent's children used, the part its weight gives it among those that used or want
//! something. The order of the queue asks the same by parts alone (`key`, `standing`).

use super::standing::claim_gpu_ms;
use crate::state::State;
pub use crate::tenancy::lately::Used;
use crate::tenancy::scope::Scope;
use crate::time::Time;

/// One scope among its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    pub weight: u32,
    pub used_gpu_ms: u64,
    /// Of all siblings that run or wait for something, this one included.
    pub all_weights: u64,
    pub all_used_gpu_ms: u64,
}

impl Level {
    /// What it used over what it deserves: 1000 is its due, 2000 twice that.
    pub fn over_milli(self) -> u64 {
        let deserved = u128::from(self.all_used_gpu_ms) * u128::from(self.weight.max(1))
            / u128::from(self.all_weights.max(1));
        if deserved == 0 {
            return if self.used_gpu_ms == 0 { 0 } else { u64::MAX };
        }
        u64::try_from(u128::from(self.used_gpu_ms) * 1000 / deserved).unwrap_or(u64::MAX)
    }
}

/// A scope among its siblings as it stands now.
pub fn level_of(state: &State, scope: &Scope, at: Time) -> Level {
    let half_life_ms = state.half_life_ms();
    let mut level = Level {
        weight: scope.share.weight,
        used_gpu_ms: claim_gpu_ms(scope, half_life_ms, at),
        all_weights: 0,
        all_used_gpu_ms: 0,
    };
    let siblings: Vec<&Scope> = match scope.parent {
        Some(parent) => state.tree.children(parent).collect(),
        None => vec![scope],
    };
    for one in siblings {
        let used_gpu_ms = claim_gpu_ms(one, half_life_ms, at);
        if used_gpu_ms > 0 || one.id == scope.id || state.jobs_within(one.id).next().is_some() {
            level.all_weights += u64::from(one.share.weight);
            level.all_used_gpu_ms = level.all_used_gpu_ms.saturating_add(used_gpu_ms);
        }
    }
    level
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn level(weight: u32, used: u64, all_weights: u64, all_used: u64) -> Level {
        Level {
            weight,
            used_gpu_ms: used,
            all_weights,
            all_used_gpu_ms: all_used,
        }
    }

    #[test]
    fn weight_says_what_is_deserved() {
        assert_eq!(level(3, 300, 4, 400).over_milli(), 1000);
        assert_eq!(level(1, 300, 4, 400).over_milli(), 3000);
        assert_eq!(level(1, 0, 4, 0).over_milli(), 0);
    }

    proptest! {
        #[test]
        fn siblings_cannot_all_be_above_their_share(used in proptest::collection::vec(0u64..1 << 40, 2..8)) {
            let all: u64 = used.iter().sum();
            let over = used.iter().filter(|&&one| level(1, one, used.len() as u64, all).over_milli() > 1001);
            prop_assert!(all < 1000 || over.count() < used.len());
        }
    }
}
