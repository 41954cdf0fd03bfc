//! Queues without preemption: by arrival, and EASY backfill. Starts are predicted for both.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use tenure_domain::forecast::history::{History, Signature};
use tenure_domain::forecast::wait::Estimate;
use tenure_domain::id::TenantId;
use tenure_domain::time::Time;

use super::promise::Promises;
use super::trace::Job;

const HOUR_S: u64 = 3_600;
/// Four days' half-life stands for 4 / ln 2 days.
const LATELY_S: f64 = 4.0 * 86_400.0 / std::f64::consts::LN_2;
const DAY_S: u64 = 24 * HOUR_S;

/// The run-time limit backfill is told: the true run time rounded up to what people usually ask for.
pub(super) fn limit_s(run_s: u64) -> u64 {
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
    /// Waiting jobs by team and number of GPUs.
    queued: BTreeMap<(u32, u32), u32>,
    /// Those that started lately, by the same.
    lately: BTreeMap<(u32, u32), f64>,
    faded_at: u64,
    begun_at: u64,
    /// Up to which age a running job's run time is in the history.
    learnt_s: Vec<u64>,
    learnt_at: u64,
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
            queued: BTreeMap::new(),
            lately: BTreeMap::new(),
            faded_at: 0,
            begun_at: 0,
            learnt_s: Vec::new(),
            learnt_at: 0,
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
            self.history
                .ran(self.like[job], self.learnt_s[job], run_s, moment);
            self.history.ended(self.like[job], run_s, moment);
        }
    }

    fn arrive(&mut self, job: usize, now: u64) {
        let (team, gpus) = (self.jobs[job].team, self.jobs[job].gpus);
        let like = self
            .history
            .submitted(TenantId(u64::from(team)), gpus, Time(now as i64 * 1000));
        self.like.push(like);
        self.learnt_s.push(0);
        self.learn_running(now);
        let at_once = self.queue.is_empty() && gpus <= self.free;
        let estimate = (!at_once).then(|| Estimate::rough(self.estimate_s(now)));
        self.promises.state(&self.jobs[job], estimate, now);
        *self.queued.entry((team, gpus)).or_default() += 1;
        self.queue.push_back(job);
    }

    /// What runs is learnt from too, once an hour.
    fn learn_running(&mut self, now: u64) {
        if now < self.learnt_at + HOUR_S {
            return;
        }
        self.learnt_at = now;
        for &(_, job) in &self.limits {
            let age_s = now - self.jobs[job].started.unwrap_or(now);
            self.history
                .ran(self.like[job], self.learnt_s[job], age_s, Time(now as i64 * 1000));
            self.learnt_s[job] = age_s;
        }
    }

    /// The work ahead by the pace at which work was begun lately. Work is measured by the same means on both sides,
    /// so what is wrong with them cancels.
    fn estimate_s(&mut self, now: u64) -> u64 {
        self.fade(now);
        let work = |(team, gpus): (u32, u32), count: f64| {
            self.history.mean_s(TenantId(u64::from(team)), gpus) * f64::from(gpus) * count
        };
        let queued: f64 = self
            .queued
            .iter()
            .map(|(&like, &count)| work(like, f64::from(count)))
            .sum();
        let begun: f64 = self.lately.iter().map(|(&like, &count)| work(like, count)).sum();
        // Counts that fade by half every four days stand for this long, once there were so many days.
        let over_s = LATELY_S.min((now - self.begun_at) as f64).max(3_600.0);
        let pace = (begun / over_s).clamp(0.25 * f64::from(self.gpus), 2.0 * f64::from(self.gpus));
        (queued / pace) as u64 + 60
    }

    fn fade(&mut self, now: u64) {
        let steps = ((now - self.faded_at) / (6 * HOUR_S)).min(1_000);
        if steps > 0 {
            // The sixteenth root of one half: six hours of four days.
            let factor = (0..steps).fold(1.0, |factor, _| factor * 0.957_603_280_698_573_6);
            self.lately.values_mut().for_each(|count| *count *= factor);
            self.faded_at = now;
        }
    }

    fn start(&mut self, job: usize, now: u64) {
        let Job {
            gpus, run_s, team, ..
        } = self.jobs[job];
        self.jobs[job].started = Some(now);
        self.free -= gpus;
        self.ends.push(Reverse((now + run_s, job)));
        self.limits.insert((now + limit_s(run_s), job));
        if self.begun_at == 0 {
            (self.begun_at, self.faded_at) = (now, now);
        }
        *self.lately.entry((team, gpus)).or_default() += 1.0;
        if let Some(count) = self.queued.get_mut(&(team, gpus)) {
            *count -= 1;
        }
        self.promises.started(job, &self.jobs[job], now);
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
