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

/// Run time and ends by age, as far as anything was seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    #[serde(with = "to_the_bit")]
    ran_s: Vec<f64>,
    #[serde(with = "to_the_bit")]
    ended: Vec<f64>,
    faded: Time,
}

/// Numbers as their bits: text would not give every last digit back, and copies of the state would part.
mod to_the_bit {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(numbers: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(numbers.iter().map(|number| number.to_bits()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        let bits = Vec::<u64>::deserialize(deserializer)?;
        Ok(bits.into_iter().map(f64::from_bits).collect())
    }
}

fn at(numbers: &mut Vec<f64>, band: usize) -> &mut f64 {
    if numbers.len() <= band {
        numbers.resize(band + 1, 0.0);
    }
    &mut numbers[band]
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
            *at(&mut self.ran_s, band) += (until - from_s) as f64;
            from_s = until;
            band = (band + 1).min(BANDS - 1);
        }
    }

    /// A job ended at this age.
    pub fn ended(&mut self, age_s: u64) {
        let band = band_of(age_s);
        *at(&mut self.ended, band) += 1.0 - 2.0 * TO_NEIGHBOUR;
        *at(&mut self.ended, band.saturating_sub(1)) += TO_NEIGHBOUR;
        *at(&mut self.ended, (band + 1).min(BANDS - 1)) += TO_NEIGHBOUR;
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

    pub fn is_empty(&self) -> bool {
        self.ran_s.is_empty() && self.ended.is_empty()
    }

    /// Run time and ends by band, each as far as anything was seen.
    pub fn by_band(&self) -> (&[f64], &[f64]) {
        (&self.ran_s, &self.ended)
    }

    pub fn ends(&self) -> f64 {
        self.ended.iter().sum()
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
            assert!((evidence.ends() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn what_is_written_down_is_read_to_the_bit() {
        let mut evidence = Evidence::default();
        evidence.ran(0, 12_345);
        evidence.ended(12_345);
        evidence.fade(1_000, Time(777));
        let text = serde_json::to_string(&evidence).expect("text");
        assert_eq!(
            serde_json::from_str::<Evidence>(&text).expect("evidence"),
            evidence
        );
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
