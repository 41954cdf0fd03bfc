//! What was seen of one kind of job: by age, how long jobs ran there and how many ended there.
//!
//! Jobs still running count with the time they have run, so long ones weigh before they finish: from finished jobs
//! alone everything would look short.

use serde::{Deserialize, Serialize};

use super::age::{BANDS, band_of, end_s, start_s};
use crate::time::Time;

/// The fourth root of one half: old evidence fades in quarter steps of its half-life.
const QUARTER: f64 = 0.840_896_415_253_714_6;

/// A job's end speaks a little for the neighbouring ages too.
const TO_NEIGHBOUR: f64 = 0.2;

/// Run time and ends by age.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    pub ran_s: Vec<f64>,
    pub ended: Vec<f64>,
    faded: Time,
}

impl Default for Evidence {
    fn default() -> Self {
        Evidence {
            ran_s: vec![0.0; BANDS],
            ended: vec![0.0; BANDS],
            faded: Time(0),
        }
    }
}

impl Evidence {
    /// A job went from one age to another.
    pub fn ran(&mut self, from_s: u64, to_s: u64) {
        let mut band = band_of(from_s);
        let mut from_s = from_s;
        while from_s < to_s {
            let until = if band + 1 == BANDS {
                to_s
            } else {
                to_s.min(end_s(band))
            };
            self.ran_s[band] += (until - from_s) as f64;
            from_s = until;
            band = (band + 1).min(BANDS - 1);
        }
    }

    /// A job ended at this age.
    pub fn ended(&mut self, age_s: u64) {
        let band = band_of(age_s);
        self.ended[band] += 1.0 - 2.0 * TO_NEIGHBOUR;
        self.ended[band.saturating_sub(1)] += TO_NEIGHBOUR;
        self.ended[(band + 1).min(BANDS - 1)] += TO_NEIGHBOUR;
    }

    /// Lets evidence lose half its weight every `half_life_ms`.
    pub fn fade(&mut self, half_life_ms: u64, at: Time) {
        let step_ms = (half_life_ms / 4).max(1);
        let steps = at.since_ms(self.faded) / step_ms;
        if steps == 0 {
            return;
        }
        // What came before the first fading has no age to lose; after 40 half-lives nothing is left.
        let factor = (0..steps.min(160)).fold(1.0, |factor, _| factor * QUARTER);
        let weights = self.ran_s.iter_mut().chain(&mut self.ended);
        weights.for_each(|weight| *weight *= factor);
        self.faded = at;
    }

    /// The mean hazard per second within a band, should it be asked alone; for reports.
    pub fn rate(&self, band: usize) -> Option<f64> {
        (self.ran_s[band] > 0.0).then(|| self.ended[band] / self.ran_s[band])
    }

    pub fn total_s(&self) -> f64 {
        self.ran_s.iter().sum()
    }

    /// The middle of a band, where the rule of thumb is asked.
    pub fn middle_s(band: usize) -> f64 {
        0.5 * (start_s(band) + end_s(band)) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_time_is_counted_once_whatever_the_steps() {
        let (mut whole, mut steps) = (Evidence::default(), Evidence::default());
        whole.ran(0, 100_000);
        for from in (0..100_000).step_by(777) {
            steps.ran(from, (from + 777).min(100_000));
        }
        assert_eq!(whole.ran_s, steps.ran_s);
        assert_eq!(whole.total_s(), 100_000.0);
    }

    #[test]
    fn an_end_counts_as_one() {
        for age in [0, 19, 20, 5_000, u64::MAX] {
            let mut evidence = Evidence::default();
            evidence.ended(age);
            assert!((evidence.ended.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn evidence_fades_by_half() {
        let mut evidence = Evidence::default();
        evidence.ran(0, 1_000);
        evidence.fade(1_000, Time(1_000));
        assert!((evidence.total_s() - 500.0).abs() < 1e-9);
        evidence.fade(1_000, Time(1_100));
        assert!(
            (evidence.total_s() - 500.0).abs() < 1e-9,
            "not before its next quarter"
        );
    }
}
