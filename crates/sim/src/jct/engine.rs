//! The pool under a preemptive order: at every arrival, end and review, the best ranked that fit run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use tenure_domain::forecast::room::{self, Ahead, Leaves};
use tenure_domain::forecast::wait::Estimate;

use super::promise::Promises;
use super::trace::Job;

/// Where there is no room in sight: as long as a month's run time.
const NEVER_S: u64 = 30 * 86_400;

/// Where a waiting job stands; the least goes first.
pub type Key = (u8, u64, u64, usize);

/// A job as the order sees it. It may look at `job.run_s` only if it is clairvoyant.
#[derive(Debug, Clone)]
pub struct Live {
    pub id: usize,
    /// Run time so far, restarts not counted.
    pub age_s: u64,
    /// Since when its age is as stated; later than now while it restarts.
    pub since: u64,
    pub placed: u64,
    pub running: bool,
    pub evicted: Vec<u64>,
    epoch: u32,
    key: Key,
}

impl Live {
    pub fn age_at(&self, now: u64) -> u64 {
        self.age_s
            + if self.running {
                now.saturating_sub(self.since)
            } else {
                0
            }
    }
}

/// A queue order.
pub trait Order {
    fn arrive(&mut self, _job: &Job, _id: usize, _now: u64) {}
    /// Called whenever a job's age is brought up to date; `to_s` is its age now.
    fn ran(&mut self, _id: usize, _from_s: u64, _to_s: u64, _now: u64) {}
    fn ended(&mut self, _job: &Job, _id: usize, _now: u64) {}
    fn key(&mut self, job: &Job, live: &Live, now: u64) -> Key;
    /// Which jobs that never ran rank alike; none if each stands for itself.
    fn kind(&self, _id: usize) -> Option<usize> {
        None
    }
    /// At which age a running job is to be ranked anew.
    fn review_s(&self, _job: &Job, _age_s: u64) -> Option<u64> {
        None
    }
    /// Whether running jobs are ranked anew at every turn.
    fn moves(&self) -> bool {
        false
    }
    /// How often everything is ranked anew.
    fn refresh_s(&self) -> Option<u64> {
        None
    }
    /// Who of `running` gives way to `job`, `free` GPUs being idle; none if it would not fit.
    fn victims(
        &self,
        job: usize,
        free: u32,
        running: &[usize],
        jobs: &[Job],
        lives: &[Live],
        now: u64,
    ) -> Option<Vec<usize>>;
    fn predicts(&self) -> bool {
        false
    }
    /// When `running` leaves, as far as `job` may know: by itself, or made to for it.
    fn leaves(&self, running: usize, _job: usize, jobs: &[Job], _lives: &[Live], _now: u64) -> Leaves {
        Leaves {
            gpus: u64::from(jobs[running].gpus),
            in_s: NEVER_S,
            at_most_s: NEVER_S,
        }
    }
    /// For how many seconds the other will run, from when it has room, as far as `job` may know.
    fn runs_s(&self, _other: usize, _job: usize, _jobs: &[Job], _lives: &[Live], _now: u64) -> u64 {
        0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    End,
    Review,
}

struct Pool<'a> {
    jobs: &'a mut [Job],
    lives: Vec<Live>,
    free: u32,
    restart_s: u64,
    waiting: BTreeMap<u32, BTreeSet<Key>>,
    /// Waiting jobs that never ran, by kind.
    fresh: BTreeMap<usize, BTreeSet<usize>>,
    running: Vec<usize>,
    events: BinaryHeap<Reverse<(u64, What, usize, u32)>>,
    order: &'a mut dyn Order,
    promises: Promises,
}

pub fn run(jobs: &mut [Job], gpus: u32, restart_s: u64, order: &mut dyn Order) -> Option<Promises> {
    let predicts = order.predicts();
    let mut pool = Pool {
        lives: Vec::with_capacity(jobs.len()),
        jobs,
        free: gpus,
        restart_s,
        waiting: BTreeMap::new(),
        fresh: BTreeMap::new(),
        running: Vec::new(),
        events: BinaryHeap::new(),
        order,
        promises: Promises::default(),
    };
    pool.run();
    predicts.then_some(pool.promises)
}

impl Pool<'_> {
    fn run(&mut self) {
        let (mut next, mut refreshed, mut retry) = (0, 0, u64::MAX);
        loop {
            let arrival = self.jobs.get(next).map(|job| job.at);
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let Some(now) = arrival.into_iter().chain(event).min() else {
                assert!(
                    self.waiting.values().all(BTreeSet::is_empty),
                    "everything that fits the pool ends"
                );
                return;
            };
            let now = now.min(retry);
            while let Some(&Reverse((at, what, id, epoch))) =
                self.events.peek().filter(|Reverse((at, ..))| *at <= now)
            {
                self.events.pop();
                if self.lives[id].epoch == epoch {
                    match what {
                        What::End => self.end(id, at),
                        What::Review => self.review(id, now),
                    }
                }
            }
            let first = next;
            while self.jobs.get(next).is_some_and(|job| job.at <= now) {
                self.arrive(next, now);
                next += 1;
            }
            if self
                .order
                .refresh_s()
                .is_some_and(|every| now >= refreshed + every)
            {
                refreshed = now;
                self.refresh(now);
            } else if self.order.moves() {
                self.rank_running(now);
            }
            let blocked = self.pass(now);
            if self.order.predicts() {
                (first..next).for_each(|id| self.state(id, now));
            }
            // Who may not be evicted yet may be later, without anything else happening.
            retry = if blocked && self.order.refresh_s().is_some() {
                now + 600
            } else {
                u64::MAX
            };
        }
    }

    fn arrive(&mut self, id: usize, now: u64) {
        self.order.arrive(&self.jobs[id], id, now);
        self.lives.push(Live {
            id,
            age_s: 0,
            since: now,
            placed: now,
            running: false,
            evicted: Vec::new(),
            epoch: 0,
            key: (0, 0, 0, id),
        });
        let key = self.order.key(&self.jobs[id], &self.lives[id], now);
        self.lives[id].key = key;
        let gpus = self.jobs[id].gpus;
        self.waiting.entry(gpus).or_default().insert(key);
        if let Some(kind) = self.order.kind(id) {
            self.fresh.entry(kind).or_default().insert(id);
            self.rank_alike(kind, now);
        }
    }

    /// Ranks the jobs of one kind anew, once something was learnt of it: as a pass over the queue does.
    fn rank_alike(&mut self, kind: usize, now: u64) {
        let fresh: Vec<usize> = self.fresh.get(&kind).into_iter().flatten().copied().collect();
        for id in fresh {
            let before = self.lives[id].key;
            let key = self.order.key(&self.jobs[id], &self.lives[id], now);
            if key == before {
                // The others rank as this one does.
                break;
            }
            self.lives[id].key = key;
            if let Some(keys) = self.waiting.get_mut(&self.jobs[id].gpus) {
                keys.remove(&before);
                keys.insert(key);
            }
        }
    }

    /// What is told to one that was just submitted and tried.
    fn state(&mut self, id: usize, now: u64) {
        let waits = self.jobs[id].started.is_none();
        let estimate = waits.then(|| self.estimate(id, now));
        self.promises.state(&self.jobs[id], estimate, now);
    }

    fn estimate(&self, id: usize, now: u64) -> Estimate {
        let (key, gpus) = (self.lives[id].key, self.jobs[id].gpus);
        let leaves = |&other: &usize| self.order.leaves(other, id, self.jobs, &self.lives, now);
        let leaving: Vec<Leaves> = self.running.iter().map(leaves).collect();
        let mut first: Vec<Key> = (self.waiting.iter())
            .filter(|(size, _)| **size <= gpus)
            .flat_map(|(_, keys)| keys.range(..key))
            .copied()
            .collect();
        first.sort_unstable();
        let ahead = |&(.., other): &Key| Ahead {
            gpus: u64::from(self.jobs[other].gpus),
            for_s: self.order.runs_s(other, id, self.jobs, &self.lives, now),
        };
        let ahead: Vec<Ahead> = first.iter().map(ahead).collect();
        let found = room::estimate(u64::from(gpus), u64::from(self.free), &leaving, &ahead);
        found.unwrap_or(Estimate::rough(NEVER_S))
    }

    /// Brings a job's age up to date and lets the order learn of it.
    fn touch(&mut self, id: usize, now: u64) {
        let live = &mut self.lives[id];
        let age = live.age_at(now);
        if age > live.age_s {
            self.order.ran(id, live.age_s, age, now);
            live.age_s = age;
            live.since = now;
        }
    }

    fn leave(&mut self, id: usize, now: u64) {
        self.touch(id, now);
        self.running.retain(|&other| other != id);
        self.free += self.jobs[id].gpus;
        let live = &mut self.lives[id];
        live.running = false;
        live.epoch += 1;
    }

    fn end(&mut self, id: usize, at: u64) {
        self.leave(id, at);
        debug_assert_eq!(self.lives[id].age_s, self.jobs[id].run_s);
        self.jobs[id].done = at;
        self.order.ended(&self.jobs[id], id, at);
        if let Some(kind) = self.order.kind(id) {
            self.rank_alike(kind, at);
        }
    }

    fn review(&mut self, id: usize, now: u64) {
        self.touch(id, now);
        self.lives[id].key = self.order.key(&self.jobs[id], &self.lives[id], now);
        self.plan_review(id, now);
    }

    fn plan_review(&mut self, id: usize, now: u64) {
        let live = &self.lives[id];
        if let Some(age) = self.order.review_s(&self.jobs[id], live.age_s) {
            let at = live.since.max(now) + (age - live.age_s).max(1);
            self.events.push(Reverse((at, What::Review, id, live.epoch)));
        }
    }

    fn rank_running(&mut self, now: u64) {
        for n in 0..self.running.len() {
            let id = self.running[n];
            self.touch(id, now);
            self.lives[id].key = self.order.key(&self.jobs[id], &self.lives[id], now);
        }
    }

    fn refresh(&mut self, now: u64) {
        self.rank_running(now);
        for keys in self.waiting.values_mut() {
            for (_, _, _, id) in std::mem::take(keys) {
                let key = self.order.key(&self.jobs[id], &self.lives[id], now);
                self.lives[id].key = key;
                keys.insert(key);
            }
        }
    }

    /// Starts whoever is best and fits, evicting where the order says so. True if somebody waits.
    fn pass(&mut self, now: u64) -> bool {
        let mut given_up = BTreeSet::new();
        loop {
            let heads = (self.waiting.iter()).filter(|(gpus, _)| !given_up.contains(*gpus));
            let Some((&gpus, &key)) = heads
                .filter_map(|(gpus, keys)| Some((gpus, keys.first()?)))
                .min_by_key(|head| *head.1)
            else {
                return !given_up.is_empty();
            };
            let id = key.3;
            if gpus > self.free {
                match self
                    .order
                    .victims(id, self.free, &self.running, self.jobs, &self.lives, now)
                {
                    Some(victims) => victims.into_iter().for_each(|victim| self.evict(victim, now)),
                    None => {
                        given_up.insert(gpus);
                        continue;
                    }
                }
            }
            self.waiting.get_mut(&gpus).map(|keys| keys.remove(&key));
            self.start(id, now);
        }
    }

    fn evict(&mut self, id: usize, now: u64) {
        self.leave(id, now);
        self.jobs[id].evictions += 1;
        let live = &mut self.lives[id];
        live.evicted.retain(|then| then + 3_600 > now);
        live.evicted.push(now);
        let key = self.order.key(&self.jobs[id], &self.lives[id], now);
        self.lives[id].key = key;
        self.waiting.entry(self.jobs[id].gpus).or_default().insert(key);
    }

    fn start(&mut self, id: usize, now: u64) {
        let job = &mut self.jobs[id];
        let again = job.started.is_some();
        if !again {
            job.started = Some(now);
            let fresh = self.order.kind(id).and_then(|kind| self.fresh.get_mut(&kind));
            fresh.map(|fresh| fresh.remove(&id));
            if self.order.predicts() {
                self.promises.started(id, job, now);
            }
        }
        self.free = self
            .free
            .checked_sub(job.gpus)
            .expect("INVARIANT: never over-committed");
        let live = &mut self.lives[id];
        live.running = true;
        live.epoch += 1;
        live.placed = now;
        live.since = now + if again { self.restart_s } else { 0 };
        let ends = live.since + job.run_s - live.age_s;
        self.events.push(Reverse((ends, What::End, id, live.epoch)));
        self.running.push(id);
        self.plan_review(id, now);
    }
}

/// Positions in the order, for those that evict the worst ranked first.
pub fn worst_first(
    job: usize,
    free: u32,
    running: &[usize],
    jobs: &[Job],
    lives: &[Live],
) -> Option<Vec<usize>> {
    let mine = lives[job].key;
    let behind = |id: &usize| (lives[*id].key.0, lives[*id].key.1) > (mine.0, mine.1);
    let mut behind: Vec<usize> = running.iter().copied().filter(behind).collect();
    let mut lacking = jobs[job].gpus.saturating_sub(free);
    if behind.iter().map(|&id| jobs[id].gpus).sum::<u32>() < lacking {
        return None;
    }
    behind.sort_unstable_by_key(|&id| Reverse(lives[id].key));
    let mut chosen = Vec::new();
    for id in behind {
        if lacking == 0 {
            break;
        }
        lacking = lacking.saturating_sub(jobs[id].gpus);
        chosen.push(id);
    }
    let mut freed: u32 = chosen.iter().map(|&id| jobs[id].gpus).sum();
    let needed = jobs[job].gpus.saturating_sub(free);
    chosen.retain(|&id| {
        let needless = freed - jobs[id].gpus >= needed;
        freed -= if needless { jobs[id].gpus } else { 0 };
        !needless
    });
    Some(chosen)
}
