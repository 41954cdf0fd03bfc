//! From evidence to a rank: how likely a job of this age is to end soon, and what a completion costs.
//!
//! The rank is Gittins's: over every amount of further run time, the least expected run time paid per completion. It
//! is the order that completes most for the time spent when only the distribution of run times is known. Evidence
//! of a narrow kind of job corrects that of the wider kind, first over two octaves of age, then by band, each
//! as strongly as there is evidence.

use super::age::{BANDS, band_of, end_s, start_s};
use super::evidence::Evidence;

/// The rule: a job of age `t` is as likely to end before `2t` as any other of its age. Nothing is known.
fn rule(band: usize) -> f64 {
    1.0 / Evidence::middle_s(band).max(60.0)
}

/// How many bands are corrected together before each by itself.
const TOGETHER: usize = 8;

/// How much evidence it takes to move half way from what the wider kind says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Doubt {
    /// Ends over two octaves of age.
    pub wide: f64,
    /// Ends within one band.
    pub narrow: f64,
}

/// Ends per second of run time, by age.
#[derive(Debug, Clone, PartialEq)]
pub struct Hazard {
    per_s: [f64; BANDS],
}

impl Default for Hazard {
    fn default() -> Self {
        let mut per_s = [0.0; BANDS];
        for (band, rate) in per_s.iter_mut().enumerate() {
            *rate = rule(band);
        }
        Hazard { per_s }
    }
}

/// The chance to outlive an expected number of ends; `(1 + x/8)^-8` instead of `e^-x`, whose last digits differ
/// between machines.
fn outlives(expected_ends: f64) -> f64 {
    let root = 1.0 + expected_ends / 8.0;
    let fourth = (root * root) * (root * root);
    1.0 / (fourth * fourth)
}

impl Hazard {
    /// Corrects by what was seen of a narrower kind of job.
    pub fn corrected(mut self, seen: &Evidence, doubt: Doubt) -> Hazard {
        if seen.is_empty() {
            return self;
        }
        // Past the last age that was seen nothing is corrected.
        let (ran_s, ended) = seen.by_band();
        let last = ran_s.len().max(ended.len()).min(BANDS);
        let (mut ran, mut ends) = ([0.0; BANDS], [0.0; BANDS]);
        ran[..ran_s.len().min(BANDS)].copy_from_slice(&ran_s[..ran_s.len().min(BANDS)]);
        ends[..ended.len().min(BANDS)].copy_from_slice(&ended[..ended.len().min(BANDS)]);
        for first in (0..last).step_by(TOGETHER) {
            let bands = first..(first + TOGETHER).min(BANDS);
            let (mut ended, mut expected) = (0.0, 0.0);
            for band in bands.clone() {
                ended += ends[band];
                expected += ran[band] * self.per_s[band];
            }
            let factor = (ended + doubt.wide) / (expected + doubt.wide);
            self.per_s[bands].iter_mut().for_each(|rate| *rate *= factor);
        }
        let bands = self.per_s.iter_mut().zip(&ran).zip(&ends).take(last);
        for ((rate, ran), ends) in bands {
            // One division instead of two; the same as `(ends + narrow) / (ran + narrow / rate)`.
            *rate *= (ends + doubt.narrow) / (ran * *rate + doubt.narrow);
        }
        self
    }

    /// The least expected run time per completion from this age on, paying `overhead_s` first; seconds.
    pub fn cost_s(&self, age_s: u64, overhead_s: u64) -> f64 {
        let (mut alive, mut spent, mut best) = (1.0, overhead_s as f64, f64::MAX);
        for step in self.steps(age_s) {
            let after = outlives(step.rate * step.length_s);
            spent += alive * (1.0 - after) / step.rate;
            alive *= after;
            best = best.min(spent / (1.0 - alive));
            if alive < 1e-4 {
                break;
            }
        }
        best
    }

    /// The run time still expected of a job of this age, counted to a month at most.
    pub fn rest_s(&self, age_s: u64) -> f64 {
        let (mut alive, mut spent) = (1.0, 0.0);
        for step in self.steps(age_s) {
            let after = outlives(step.rate * step.length_s);
            spent += alive * (1.0 - after) / step.rate;
            alive *= after;
        }
        spent
    }

    /// After how much more run time a job of this age is still running with no more than this chance.
    pub fn lasts_s(&self, age_s: u64, chance: f64) -> u64 {
        let (mut alive, mut spent_s) = (1.0, 0.0);
        for step in self.steps(age_s) {
            let after = alive * outlives(step.rate * step.length_s);
            if after <= chance {
                // Within the step the chance falls about evenly.
                let part = (alive - chance) / (alive - after).max(f64::MIN_POSITIVE);
                return (spent_s + step.length_s * part) as u64;
            }
            alive = after;
            spent_s += step.length_s;
        }
        spent_s as u64
    }

    /// The further run time that falls to a draw among all of them.
    pub fn drawn_s(&self, age_s: u64, draw: u32) -> u64 {
        self.lasts_s(age_s, (f64::from(draw) + 0.5) / 4_294_967_296.0)
    }

    fn steps(&self, age_s: u64) -> impl Iterator<Item = Step> {
        (band_of(age_s)..BANDS).map(move |band| Step {
            rate: self.per_s[band],
            length_s: end_s(band).saturating_sub(start_s(band).max(age_s)) as f64,
        })
    }
}

struct Step {
    rate: f64,
    length_s: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBT: Doubt = Doubt {
        wide: 1.0,
        narrow: 2.0,
    };

    fn seen(ages_s: &[u64]) -> Evidence {
        let mut evidence = Evidence::default();
        for &age in ages_s {
            evidence.ran(0, age);
            evidence.ended(age);
        }
        evidence
    }

    #[test]
    fn knowing_nothing_the_least_attained_goes_first() {
        let rule = Hazard::default();
        let ages = [100, 1_000, 10_000, 100_000, 1_000_000];
        assert!(ages.map(|age| rule.cost_s(age, 0)).is_sorted());
    }

    #[test]
    fn short_kinds_rank_before_long_kinds() {
        let short = Hazard::default().corrected(&seen(&[60; 50]), DOUBT);
        let long = Hazard::default().corrected(&seen(&[80_000; 50]), DOUBT);
        assert!(short.cost_s(0, 0) < Hazard::default().cost_s(0, 0) * 2.0);
        assert!(long.cost_s(0, 0) > 20.0 * short.cost_s(0, 0));
    }

    #[test]
    fn near_the_usual_end_a_job_ranks_better_than_half_way() {
        let usual = Hazard::default().corrected(&seen(&[80_000; 50]), DOUBT);
        assert!(usual.cost_s(70_000, 0) < usual.cost_s(20_000, 0));
        assert!(usual.cost_s(70_000, 0) < usual.cost_s(200_000, 0));
    }

    #[test]
    fn jobs_that_run_on_make_their_kind_look_longer() {
        let mut running = Evidence::default();
        for _ in 0..20 {
            running.ran(0, 500_000);
        }
        let after = Hazard::default().corrected(&running, DOUBT);
        assert!(after.rest_s(10_000) > Hazard::default().rest_s(10_000));
    }

    #[test]
    fn overhead_is_paid_before_anything() {
        let rule = Hazard::default();
        assert!(rule.cost_s(1_000, 600) > rule.cost_s(1_000, 0) + 500.0);
    }
}
