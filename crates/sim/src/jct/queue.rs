//! Queues without preemption: by arrival, and EASY backfill. Starts are predicted for both.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use tenure_domain::forecast::history::{History, Signature};
use tenure_domain::id::TenantId;
use tenure_domain::time::Time;

use super::promise::Promises;
use super::trace::Job;

const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 24 * HOUR_S;

/// The run-time limit backfill is told: the true run time rounded up to what people usually ask for.
fn limit_s(run_s: u64) -> u64 {
    let usual = [
        HOUR_S / 2,
        HOUR_S,
        4 * HOUR_S,
        12 * HOUR_S,
        DAY_S,
        2 * DAY_S,
        4 * DAY_S,
        7 * DAY_S,
        14 * DAY_S,
        28 * DAY_S,
    ];
    usual
        .into_iter()
        .find(|&limit| run_s <= limit)
        .unwrap_or(60 * DAY_S)
}

pub fn fifo(jobs: &mut [Job], gpus: u32) -> Promises {
    Pool::new(jobs, gpus).run(false)
}

pub fn backfill(jobs: &mut [Job], gpus: u32) -> Promises {
    Pool::new(jobs, gpus).run(true)
}

struct Pool<'a> {
    jobs: &'a mut [Job],
    gpus: u32,
    free: u32,
    queue: VecDeque<usize>,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    /// When running jobs end by their limits.
    limits: BTreeSet<(u64, usize)>,
    history: History,
    like: Vec<Signature>,
    /// Run time expected at submission.
    expected_s: Vec<f64>,
    queued_gpu_s: f64,
    promises: Promises,
}

impl<'a> Pool<'a> {
    fn new(jobs: &'a mut [Job], gpus: u32) -> Self {
        Pool {
            jobs,
            gpus,
            free: gpus,
            queue: VecDeque::new(),
            ends: BinaryHeap::new(),
            limits: BTreeSet::new(),
            history: History::default(),
            like: Vec::new(),
            expected_s: Vec::new(),
            queued_gpu_s: 0.0,
            promises: Promises::default(),
        }
    }

    fn run(mut self, fill: bool) -> Promises {
        let mut next = 0;
        loop {
            let arrival = self.jobs.get(next).map(|job| job.at);
            let end = self.ends.peek().map(|Reverse((at, _))| *at);
            let Some(now) = arrival.into_iter().chain(end).min() else {
                return self.promises;
            };
            self.finish(now);
            while self.jobs.get(next).is_some_and(|job| job.at <= now) {
                self.arrive(next, now);
                next += 1;
            }
            while let Some(&first) = self
                .queue
                .front()
                .filter(|&&job| self.jobs[job].gpus <= self.free)
            {
                self.queue.pop_front();
                self.start(first, now);
            }
            if fill && self.free > 0 && self.queue.len() > 1 {
                self.fill(now);
            }
        }
    }

    fn finish(&mut self, now: u64) {
        while let Some(&Reverse((at, job))) = self.ends.peek().filter(|Reverse((at, _))| *at <= now) {
            self.ends.pop();
            let Job {
                gpus, run_s, started, ..
            } = self.jobs[job];
            self.free += gpus;
            self.jobs[job].done = at;
            self.limits.remove(&(started.unwrap_or(at) + limit_s(run_s), job));
            let moment = Time(at as i64 * 1000);
            self.history.ran(self.like[job], 0, run_s, moment);
            self.history.ended(self.like[job], run_s, moment);
        }
    }

    fn arrive(&mut self, job: usize, now: u64) {
        let (team, gpus) = (self.jobs[job].team, self.jobs[job].gpus);
        let like = self
            .history
            .submitted(TenantId(u64::from(team)), gpus, Time(now as i64 * 1000));
        self.like.push(like);
        self.expected_s.push(self.history.hazard(like).rest_s(0));
        let at_once = self.queue.is_empty() && gpus <= self.free;
        let estimate = (!at_once).then(|| self.estimate_s(now));
        self.promises.state(estimate);
        self.queued_gpu_s += self.expected_s[job] * f64::from(gpus);
        self.queue.push_back(job);
    }

    /// The work ahead by the whole pool's pace.
    fn estimate_s(&self, now: u64) -> u64 {
        let running: f64 = (self.limits.iter())
            .map(|&(_, job)| {
                let ran = (now - self.jobs[job].started.unwrap_or(now)) as f64;
                // What outlived its expectation is taken to need as long again.
                let rest = if self.expected_s[job] > ran {
                    self.expected_s[job] - ran
                } else {
                    ran
                };
                rest * f64::from(self.jobs[job].gpus)
            })
            .sum();
        ((self.queued_gpu_s + running) / f64::from(self.gpus)) as u64 + 1
    }

    fn start(&mut self, job: usize, now: u64) {
        let Job { gpus, run_s, at, .. } = self.jobs[job];
        self.jobs[job].started = Some(now);
        self.free -= gpus;
        self.ends.push(Reverse((now + run_s, job)));
        self.limits.insert((now + limit_s(run_s), job));
        self.queued_gpu_s -= self.expected_s[job] * f64::from(gpus);
        self.promises.started(job, now - at);
    }

    fn fill(&mut self, now: u64) {
        let first = self.queue[0];
        let (mut reserved_at, mut spare, mut room) = (u64::MAX, 0, self.free);
        for &(at, job) in &self.limits {
            room += self.jobs[job].gpus;
            if room >= self.jobs[first].gpus {
                (reserved_at, spare) = (at, room - self.jobs[first].gpus);
                break;
            }
        }
        let waiting = std::mem::take(&mut self.queue);
        for (n, job) in waiting.into_iter().enumerate() {
            let Job { gpus, run_s, .. } = self.jobs[job];
            let in_time = now + limit_s(run_s) <= reserved_at;
            if n > 0 && gpus <= self.free && (in_time || gpus <= spare) {
                if !in_time {
                    spare -= gpus;
                }
                self.start(job, now);
            } else {
                self.queue.push_back(job);
            }
        }
    }
}
