//! When a waiting job will start: a band stated at submission, and how the bands before it are made to keep their word.
//!
//! An estimate of the wait (work ahead by the pool's pace) is turned into a band by how past estimates of about its
//! size turned out. Afterwards the share of bands kept is steered to the one promised (adaptive conformal
//! prediction), so it holds even when the estimates drift.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::time::{HOUR_MS, Time};

/// Seconds after submission between which a job is said to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Band {
    pub from_s: u64,
    pub to_s: u64,
}

impl Band {
    pub const AT_ONCE: Band = Band { from_s: 0, to_s: 0 };

    pub fn holds(self, wait_s: u64) -> bool {
        (self.from_s..=self.to_s).contains(&wait_s)
    }

    pub fn width_s(self) -> u64 {
        self.to_s - self.from_s
    }
}

/// Estimates are judged among those within a factor of four of their size.
const SIZES: usize = 14;

/// How many past estimates are judged by, for each size. Of those that turn out in one hour only the first counts:
/// neighbours in the queue turn out alike, and a thousand of them tell no more than one.
const KEPT: usize = 24 * 21;
const APART_MS: u64 = HOUR_MS;

/// Of a hundred bands this many shall hold the start; a little above the promise of 80.
const TARGET: f64 = 0.82;

/// How fast a band answers to having been wrong.
const STEP: f64 = 0.02;

/// What became of past estimates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Actual wait over estimate, in thousandths, latest last; by size of the estimate.
    turned_out: Vec<VecDeque<u64>>,
    /// The share of past outcomes left out below and above; steered.
    below: Vec<f64>,
    above: Vec<f64>,
    last: Vec<Time>,
    late: Vec<Time>,
}

impl Default for Waits {
    fn default() -> Self {
        Waits {
            turned_out: vec![(0..=20).map(|n| 500 + 50 * n).collect(); SIZES],
            below: vec![(1.0 - TARGET) / 2.0; SIZES],
            above: vec![(1.0 - TARGET) / 2.0; SIZES],
            last: vec![Time(i64::MIN); SIZES],
            late: vec![Time(i64::MIN); SIZES],
        }
    }
}

fn size_of(estimate_s: u64) -> usize {
    (estimate_s.max(1).ilog2() as usize / 2).min(SIZES - 1)
}

impl Waits {
    /// The band for an estimated wait. Without experience estimates are taken to be half to one and a half times right.
    pub fn band(&self, estimate_s: u64) -> Band {
        let size = size_of(estimate_s);
        let past = &self.turned_out[size];
        let mut sorted: Vec<u64> = past.iter().copied().collect();
        sorted.sort_unstable();
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share.clamp(0.0, 1.0)) as usize];
        let scaled = |ratio: u64| estimate_s.max(1).saturating_mul(ratio) / 1000;
        let from_s = scaled(at(self.below[size]));
        // One second more than the ratio says, which was rounded down.
        let to_s = scaled(at(1.0 - self.above[size]) + 1) + 1;
        Band {
            from_s,
            to_s: to_s.max(from_s),
        }
    }

    /// A job for which `band` was stated started after `wait_s`.
    pub fn started(&mut self, estimate_s: u64, band: Band, wait_s: u64, at: Time) {
        if self.turned_out(estimate_s, wait_s, at) && wait_s <= band.to_s {
            self.steer(estimate_s, wait_s < band.from_s, false);
        }
    }

    /// A job still waits at the end of its band. Known long before it starts, so bands widen at once.
    pub fn overdue(&mut self, estimate_s: u64, at: Time) {
        let size = size_of(estimate_s);
        if at.since_ms(self.late[size]) >= APART_MS {
            self.late[size] = at;
            self.steer(estimate_s, false, true);
        }
    }

    fn turned_out(&mut self, estimate_s: u64, wait_s: u64, at: Time) -> bool {
        let size = size_of(estimate_s);
        if at.since_ms(self.last[size]) < APART_MS {
            return false;
        }
        self.last[size] = at;
        let past = &mut self.turned_out[size];
        past.push_back(wait_s.saturating_mul(1000) / estimate_s.max(1));
        if past.len() > KEPT {
            past.pop_front();
        }
        true
    }

    fn steer(&mut self, estimate_s: u64, early: bool, late: bool) {
        let size = size_of(estimate_s);
        let miss = (1.0 - TARGET) / 2.0;
        let steer = |left_out: &mut f64, missed: bool| {
            *left_out = (*left_out + STEP * (miss - if missed { 1.0 } else { 0.0 })).clamp(0.0, 0.45);
        };
        steer(&mut self.below[size], early);
        steer(&mut self.above[size], late);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of ratios without chance: a linear congruence.
    fn ratios(n: usize) -> impl Iterator<Item = u64> {
        (0..n as u64).scan(7_u64, |x, _| {
            *x = (*x * 1_103_515_245 + 12_345) % 2_147_483_648;
            Some(500 + (*x >> 8) % 1_000)
        })
    }

    fn kept(waits: &mut Waits, stream: impl Iterator<Item = (u64, u64)>) -> f64 {
        let (mut held, mut all) = (0, 0);
        for (n, (estimate, wait)) in stream.enumerate() {
            let at = Time(n as i64 * HOUR_MS as i64);
            let band = waits.band(estimate);
            held += usize::from(band.holds(wait));
            all += 1;
            if wait > band.to_s {
                waits.overdue(estimate, at);
            }
            waits.started(estimate, band, wait, at);
        }
        held as f64 / f64::from(all)
    }

    #[test]
    fn four_bands_in_five_keep_their_word() {
        let mut waits = Waits::default();
        let stream = ratios(5_000).map(|ratio| (10_000, 10 * ratio));
        let share = kept(&mut waits, stream);
        assert!((0.78..0.90).contains(&share), "{share}");
        assert!(
            waits.band(10_000).width_s() < 10_000,
            "and are narrower than all that was seen"
        );
    }

    #[test]
    fn they_do_so_when_waits_drift_away_from_the_estimate() {
        let mut waits = Waits::default();
        let stream = ratios(20_000)
            .enumerate()
            .map(|(n, ratio)| (10_000, 10 * ratio * (1_000 + n as u64) / 4_000));
        let share = kept(&mut waits, stream);
        assert!(share > 0.76, "{share}");
    }
}
