//! How stated bands turned out, beside the bands a bare count of past waits would have given.

use std::fmt;

use serde::Serialize;
use tenure_domain::forecast::wait::Band;

use super::figure::{mean, quantile};
use super::naive::{self, Drawn};
use super::trace::Job;

/// Share of starts inside their bands, and how wide those were.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Worth {
    pub inside: f64,
    pub width_mean_s: f64,
    pub width_median_s: u64,
}

impl Worth {
    fn of(told: impl Iterator<Item = (Band, u64)>) -> Worth {
        let (mut inside, mut widths) = (0, Vec::new());
        for (band, wait_s) in told {
            inside += usize::from(band.holds(wait_s));
            widths.push(band.width_s());
        }
        widths.sort_unstable();
        Worth {
            inside: inside as f64 / widths.len().max(1) as f64,
            width_mean_s: mean(&widths),
            width_median_s: quantile(&widths, 0.5),
        }
    }
}

/// Ours and the naive bands over the same jobs.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Beside {
    pub jobs: usize,
    pub ours: Worth,
    pub naive: Worth,
    /// The naive band drawn from jobs with about as many GPUs.
    pub naive_of_size: Worth,
    /// One band for all, from the 10th to the 90th percentile of their waits, known only afterwards: it does hold 80 %.
    pub hindsight: Worth,
    /// Our mean and median width over the naive band's; none where that has no width.
    pub mean_ratio: Option<f64>,
    pub median_ratio: Option<f64>,
    pub mean_ratio_of_size: Option<f64>,
    pub median_ratio_of_size: Option<f64>,
    pub mean_ratio_hindsight: Option<f64>,
}

/// How the stated bands turned out.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Kept {
    /// Share of jobs said to start at once.
    pub at_once: f64,
    /// Every job; the naive bands are drawn from every wait.
    pub all: Beside,
    /// Those that did not start at once; the naive bands are drawn from such waits alone.
    pub waited: Beside,
    /// The same for the first and the second half of them.
    pub waited_by_half: [Beside; 2],
}

impl Kept {
    pub fn of(stated: &[Band], jobs: &[Job]) -> Kept {
        let every: Vec<usize> = (0..jobs.len()).collect();
        let waited: Vec<usize> = (0..jobs.len()).filter(|&id| jobs[id].wait_s() > 0).collect();
        let from_all = naive::bands(jobs, Drawn::FromAll);
        let from_waiting = naive::bands(jobs, Drawn::FromWaiting);
        let of_size = naive::bands(jobs, Drawn::FromWaitingOfSize);
        let beside = |among: &[usize], naive: &[Band], of_size: &[Band]| {
            let worth = |bands: &[Band]| Worth::of(among.iter().map(|&id| (bands[id], jobs[id].wait_s())));
            let (ours, naive, naive_of_size) = (worth(stated), worth(naive), worth(of_size));
            let mut waits: Vec<u64> = among.iter().map(|&id| jobs[id].wait_s()).collect();
            waits.sort_unstable();
            let afterwards = Band {
                from_s: quantile(&waits, 0.1),
                to_s: quantile(&waits, 0.9),
            };
            let hindsight = Worth::of(waits.iter().map(|&wait_s| (afterwards, wait_s)));
            let ratio = |ours: f64, theirs: f64| (theirs > 0.0).then(|| ours / theirs);
            let medians = |theirs: &Worth| ratio(ours.width_median_s as f64, theirs.width_median_s as f64);
            Beside {
                jobs: among.len(),
                mean_ratio: ratio(ours.width_mean_s, naive.width_mean_s),
                median_ratio: medians(&naive),
                mean_ratio_of_size: ratio(ours.width_mean_s, naive_of_size.width_mean_s),
                median_ratio_of_size: medians(&naive_of_size),
                mean_ratio_hindsight: ratio(ours.width_mean_s, hindsight.width_mean_s),
                hindsight,
                ours,
                naive,
                naive_of_size,
            }
        };
        let (first, second) = waited.split_at(waited.len() / 2);
        let at_once = stated.iter().filter(|band| **band == Band::AT_ONCE).count();
        Kept {
            at_once: at_once as f64 / jobs.len().max(1) as f64,
            all: beside(&every, &from_all, &from_all),
            waited: beside(&waited, &from_waiting, &of_size),
            waited_by_half: [first, second].map(|half| beside(half, &from_waiting, &of_size)),
        }
    }
}

impl fmt::Display for Worth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} % inside, width mean {:.0} s, median {} s",
            100.0 * self.inside,
            self.width_mean_s,
            self.width_median_s
        )
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let halves = &self.waited_by_half;
        let sets = [
            ("of all jobs", &self.all),
            ("of those that waited", &self.waited),
            ("  first half", &halves[0]),
            ("  second half", &halves[1]),
        ];
        for (name, beside) in sets {
            write!(
                f,
                "\n  {name} ({}): ours {}; naive {}; by size {}; in hindsight {}",
                beside.jobs, beside.ours, beside.naive, beside.naive_of_size, beside.hindsight
            )?;
        }
        Ok(())
    }
}
