//! What is counted of a service: requests and how long they took. In memory of the leader; what an auditor needs of it
//! is journalled once a minute as counts by user.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_domain::id::UserId;
use tenure_domain::workload::service::ServiceUse;

/// Users told apart within a minute; a tenant has fewer who call at once.
const MAX_USERS: usize = 4096;

/// A service's counts since this server leads.
#[derive(Default)]
pub(super) struct Counts {
    pub arrived: AtomicU64,
    /// Answered to the end, whatever the answer.
    pub answered: AtomicU64,
    /// Answered with 5xx by a replica.
    pub failed: AtomicU64,
    /// No replica answered, or not to the end; not those whose caller left.
    pub lost: AtomicU64,
    /// Sent back because too many waited, or for too long.
    pub turned_away: AtomicU64,
    pub waited: Spans,
    pub took: Spans,
    /// Used since the last minute was journalled.
    used: Mutex<BTreeMap<UserId, ServiceUse>>,
}

impl Counts {
    /// Adds to what a user did.
    pub fn used(&self, user: UserId, lost: bool, bytes_in: u64, bytes_out: u64) {
        let mut all = self.used.lock().expect("short and without panics");
        if all.len() >= MAX_USERS && !all.contains_key(&user) {
            tracing::warn!(%user, "more users of one service in a minute than are told apart");
            return;
        }
        let kept = all.entry(user).or_insert_with(|| nothing(user));
        kept.requests += 1;
        kept.lost += u64::from(lost);
        kept.bytes_in += bytes_in;
        kept.bytes_out += bytes_out;
    }

    /// What is to be journalled.
    pub fn take_used(&self) -> Vec<ServiceUse> {
        let mut all = self.used.lock().expect("short and without panics");
        std::mem::take(&mut *all).into_values().collect()
    }

    /// What could not be journalled is counted on.
    pub fn put_back(&self, uses: Vec<ServiceUse>) {
        let mut all = self.used.lock().expect("short and without panics");
        for one in uses {
            let kept = all.entry(one.user).or_insert_with(|| nothing(one.user));
            kept.requests += one.requests;
            kept.lost += one.lost;
            kept.bytes_in += one.bytes_in;
            kept.bytes_out += one.bytes_out;
        }
    }
}

fn nothing(user: UserId) -> ServiceUse {
    ServiceUse {
        user,
        requests: 0,
        lost: 0,
        bytes_in: 0,
        bytes_out: 0,
    }
}

const STEPS: usize = 112;
/// Steps to a doubling.
const FINE: f64 = 4.0;

/// Lengths of time in steps that grow by a fifth, from 0.1 ms to seven hours.
pub(super) struct Spans([AtomicU64; STEPS]);

impl Default for Spans {
    fn default() -> Self {
        Spans([const { AtomicU64::new(0) }; STEPS])
    }
}

impl Spans {
    pub fn note(&self, span: Duration) {
        let tenths = span.as_secs_f64() * 10_000.0;
        let step = if tenths <= 1.0 {
            0.0
        } else {
            (tenths.log2() * FINE).ceil()
        };
        self.0[(step as usize).min(STEPS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// So many thousandths took no longer than this, in milliseconds; none where there were none.
    pub fn quantile_ms(&self, permille: u64) -> Option<f64> {
        let counts: Vec<u64> = self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let all: u64 = counts.iter().sum();
        let wanted = (all * permille).div_ceil(1000).max(1);
        let mut sum = 0;
        let step = counts.iter().position(|count| {
            sum += count;
            sum >= wanted
        })?;
        Some((step as f64 / FINE).exp2() / 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_step() {
        let spans = Spans::default();
        assert_eq!(spans.quantile_ms(500), None);
        (1..=1000).for_each(|ms| spans.note(Duration::from_millis(ms)));
        for (permille, exact) in [(500, 500.0), (990, 990.0), (1000, 1000.0)] {
            let said = spans.quantile_ms(permille).unwrap();
            assert!(said >= exact && said <= exact * 1.2, "{permille}: {said}");
        }
        spans.note(Duration::from_secs(1 << 30));
        spans.note(Duration::ZERO);
    }

    #[test]
    fn what_was_not_journalled_is_counted_on() {
        let counts = Counts::default();
        counts.used(UserId(1), false, 10, 20);
        let taken = counts.take_used();
        counts.used(UserId(1), true, 1, 2);
        counts.put_back(taken);
        let all = counts.take_used();
        assert_eq!(
            (all[0].requests, all[0].lost, all[0].bytes_in, all[0].bytes_out),
            (2, 1, 11, 22)
        );
        assert!(counts.take_used().is_empty());
    }
}
