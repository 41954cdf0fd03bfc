//! Bands to compare with: from the 10th to the 90th percentile of the waits that were over when a job was submitted.
//!
//! Of all jobs, of those that did not start at once, or of the latter with about as many GPUs. Computed after a
//! replay from what became of it, so it costs the replay nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tenure_domain::forecast::wait::Band;

use super::trace::Job;

/// With fewer waits than this of one size, those of every size are asked.
const FEW: usize = 20;

/// Whose waits a band is drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drawn {
    FromAll,
    FromWaiting,
    FromWaitingOfSize,
}

/// Waits by rank, counted so that a quantile is found in logarithmic time.
struct Counts {
    tree: Vec<usize>,
    total: usize,
}

impl Counts {
    fn new(ranks: usize) -> Counts {
        Counts {
            tree: vec![0; ranks.next_power_of_two() + 1],
            total: 0,
        }
    }

    fn add(&mut self, rank: usize) {
        self.total += 1;
        let mut at = rank + 1;
        while at < self.tree.len() {
            self.tree[at] += 1;
            at += at & at.wrapping_neg();
        }
    }

    /// The rank of the value below which this share lies; as `figure::quantile` counts.
    fn quantile(&self, share: f64) -> Option<usize> {
        let mut left = (self.total.checked_sub(1)? as f64 * share) as usize;
        let (mut at, mut step) = (0, self.tree.len() - 1);
        while step > 0 {
            if at + step < self.tree.len() && self.tree[at + step] <= left {
                at += step;
                left -= self.tree[at];
            }
            step /= 2;
        }
        Some(at)
    }
}

/// The band each job would have been told, in the order of the trace.
pub fn bands(jobs: &[Job], drawn: Drawn) -> Vec<Band> {
    let mut values: Vec<u64> = jobs.iter().map(Job::wait_s).collect();
    values.sort_unstable();
    values.dedup();
    let mut any = Counts::new(values.len());
    let mut of_size: Vec<Counts> = (0..32).map(|_| Counts::new(values.len())).collect();
    let size_of = |job: &Job| job.gpus.max(1).ilog2() as usize;
    let mut waiting: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut told = Vec::with_capacity(jobs.len());
    for (id, job) in jobs.iter().enumerate() {
        while let Some(&Reverse((_, over))) = waiting.peek().filter(|Reverse((at, _))| *at <= job.at) {
            waiting.pop();
            let wait_s = jobs[over].wait_s();
            if drawn == Drawn::FromAll || wait_s > 0 {
                let rank = values.partition_point(|value| *value < wait_s);
                any.add(rank);
                of_size[size_of(&jobs[over])].add(rank);
            }
        }
        let mine = &of_size[size_of(job)];
        let seen = match drawn {
            Drawn::FromWaitingOfSize if mine.total >= FEW => mine,
            _ => &any,
        };
        let at = |share| seen.quantile(share).map_or(0, |rank| values[rank]);
        told.push(Band {
            from_s: at(0.1),
            to_s: at(0.9),
        });
        waiting.push(Reverse((job.at + job.wait_s(), id)));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waited(at: u64, wait_s: u64, gpus: u32) -> Job {
        let mut job = Job::new(at, 1, gpus, 0);
        job.started = Some(at + wait_s);
        job
    }

    #[test]
    fn only_waits_that_are_over_are_known() {
        let mut jobs: Vec<Job> = (0..101).map(|n| waited(0, n, 1)).collect();
        jobs.push(waited(50, 0, 1));
        jobs.push(waited(1_000, 0, 1));
        let bands = bands(&jobs, Drawn::FromAll);
        assert_eq!(bands[0], Band { from_s: 0, to_s: 0 });
        assert_eq!(bands[101], Band { from_s: 5, to_s: 45 });
        assert_eq!(bands[102], Band { from_s: 9, to_s: 89 });
    }

    #[test]
    fn those_that_started_at_once_and_other_sizes_are_left_out_where_asked() {
        let mut jobs: Vec<Job> = (0..100).map(|_| waited(0, 0, 1)).collect();
        jobs.extend((0..50).map(|_| waited(0, 10, 1)));
        jobs.extend((0..50).map(|_| waited(0, 90, 8)));
        jobs.push(waited(1_000, 0, 8));
        let of = |drawn| bands(&jobs, drawn)[200];
        assert_eq!(of(Drawn::FromAll), Band { from_s: 0, to_s: 90 });
        assert_eq!(of(Drawn::FromWaiting), Band { from_s: 10, to_s: 90 });
        assert_eq!(of(Drawn::FromWaitingOfSize), Band { from_s: 90, to_s: 90 });
    }
}
