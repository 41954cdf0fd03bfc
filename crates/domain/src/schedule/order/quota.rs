//! Nominal quota per GPU class: what a scope is sure of, what it may borrow of others' idle share, and what it
//! lends.
//!
//! Lent capacity comes back: a scope within its nominal quota may reclaim from those who borrow, never more than it
//! lacks. Absent: hard quotas, which `admit` keeps whatever is idle.

pub use crate::tenancy::share::Nominal;

/// A scope's quota and what it uses of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    pub nominal: Nominal,
    pub used_milli: u64,
}

impl Use {
    /// What others may use of this scope's nominal quota now.
    pub fn lent_milli(self) -> u64 {
        let idle = self.nominal.gpu_milli.saturating_sub(self.used_milli);
        idle.min(self.nominal.lend_milli.unwrap_or(u64::MAX))
    }

    pub fn borrowed_milli(self) -> u64 {
        self.used_milli.saturating_sub(self.nominal.gpu_milli)
    }
}

/// How a request stands to the quotas of a scope and its siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// Within nominal: may reclaim what others borrowed.
    Nominal,
    /// Beyond it, and others lend enough.
    Borrows,
    /// Beyond what it may borrow at all.
    BorrowLimit { missing_milli: u64 },
    /// Others need theirs, or do not lend enough.
    NotLent { missing_milli: u64 },
}

/// Asks for `ask_milli` more for `scope`, beside its siblings of the same parent.
pub fn stand(scope: Use, ask_milli: u64, siblings: &[Use]) -> Stand {
    let after = Use {
        used_milli: scope.used_milli.saturating_add(ask_milli),
        ..scope
    };
    let borrowed = after.borrowed_milli();
    if borrowed == 0 {
        return Stand::Nominal;
    }
    let most = scope.nominal.borrow_milli.unwrap_or(u64::MAX);
    if borrowed > most {
        return Stand::BorrowLimit {
            missing_milli: borrowed - most,
        };
    }
    let lent: u64 = siblings.iter().map(|other| other.lent_milli()).sum();
    let taken: u64 = siblings.iter().map(|other| other.borrowed_milli()).sum();
    let left = lent.saturating_sub(taken);
    if borrowed > left {
        Stand::NotLent {
            missing_milli: borrowed - left,
        }
    } else {
        Stand::Borrows
    }
}

/// What each sibling must give back so that `ask_milli` within nominal fit, `free_milli` being idle: from the one
/// furthest above its nominal quota first, and no more than it borrowed.
pub fn reclaim(ask_milli: u64, free_milli: u64, siblings: &[Use]) -> Option<Vec<u64>> {
    let mut back = vec![0; siblings.len()];
    let mut lacking = ask_milli.saturating_sub(free_milli);
    while lacking > 0 {
        let left = |at: usize| siblings[at].borrowed_milli() - back[at];
        let most = (0..siblings.len()).max_by_key(|&at| (left(at), std::cmp::Reverse(at)))?;
        if left(most) == 0 {
            return None;
        }
        // Down to the next lower borrower, so that all end level.
        let next = (0..siblings.len())
            .filter(|&at| at != most)
            .map(left)
            .filter(|&other| other < left(most))
            .max();
        let step = (left(most) - next.unwrap_or(0)).max(1).min(lacking);
        back[most] += step;
        lacking -= step;
    }
    Some(back)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scope(nominal: u64, used: u64) -> Use {
        Use {
            nominal: Nominal {
                gpu_milli: nominal,
                ..Nominal::default()
            },
            used_milli: used,
        }
    }

    #[test]
    fn borrowing_ends_where_lending_does() {
        let mut lender = scope(8_000, 2_000);
        assert_eq!(stand(scope(2_000, 1_000), 1_000, &[lender]), Stand::Nominal);
        assert_eq!(stand(scope(2_000, 2_000), 6_000, &[lender]), Stand::Borrows);
        assert_eq!(
            stand(scope(2_000, 2_000), 7_000, &[lender]),
            Stand::NotLent { missing_milli: 1_000 }
        );
        lender.nominal.lend_milli = Some(1_000);
        assert_eq!(
            stand(scope(2_000, 2_000), 2_000, &[lender]),
            Stand::NotLent { missing_milli: 1_000 }
        );
        let mut shy = scope(2_000, 2_000);
        shy.nominal.borrow_milli = Some(500);
        assert_eq!(
            stand(shy, 1_000, &[lender]),
            Stand::BorrowLimit { missing_milli: 500 }
        );
    }

    #[test]
    fn what_was_lent_comes_back_from_the_greatest_borrower() {
        let siblings = [scope(0, 3_000), scope(0, 1_000), scope(5_000, 5_000)];
        assert_eq!(reclaim(2_000, 0, &siblings), Some(vec![2_000, 0, 0]));
        assert_eq!(
            reclaim(3_000, 0, &siblings).map(|back| back.iter().sum()),
            Some(3_000_u64)
        );
        assert_eq!(
            reclaim(4_001, 0, &siblings),
            None,
            "nominal use is never reclaimed"
        );
        assert_eq!(
            reclaim(4_001, 1_000, &siblings).map(|back| back.iter().sum()),
            Some(3_001)
        );
    }

    proptest! {
        #[test]
        fn a_nominal_request_takes_back_only_what_is_borrowed(
            siblings in proptest::collection::vec((0u64..20, 0u64..20), 1..6), ask in 0u64..60, free in 0u64..20,
        ) {
            let siblings: Vec<Use> = siblings.into_iter().map(|(nominal, used)| scope(nominal, used)).collect();
            let borrowed: u64 = siblings.iter().map(|one| one.borrowed_milli()).sum();
            match reclaim(ask, free, &siblings) {
                None => prop_assert!(ask > free + borrowed),
                Some(back) => {
                    prop_assert_eq!(back.iter().sum::<u64>(), ask.saturating_sub(free));
                    prop_assert!(back.iter().zip(&siblings).all(|(back, one)| *back <= one.borrowed_milli()));
                }
            }
        }
    }
}
