//! The waiting jobs, by arrival and in lines. Derived from the jobs; a snapshot leaves it out.
//!
//! A line is the jobs of one user, priority class and need: what keeps its first job from starting keeps them all, so a
//! pass asks the first alone, however long the line. Absent: which line goes next (`order`), and what a
//! job waits for (`why`). Kept by `state/apply`, read by `order/walk`.

use std::cmp::Ordering;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::pass::QueueKey;
use crate::id::{BookingId, JobId, UserId};
use crate::workload::Workload;
use crate::workload::job::{Job, Phase};
use crate::workload::spec::{Demand, Isolation, JobSpec, Kind, Priority};

/// All that decides whether a user's job can start now: two jobs of equal need can or cannot alike.
#[derive(Debug, Clone)]
pub struct Need {
    spec: Arc<JobSpec>,
    /// The size of its model, and its frames: quotas and budgets count them.
    counted: (Option<u32>, u64),
    /// A job that is bound to a place, by its volumes or because it is paused there, is like no other; and tasks of one job
    /// wait for what it waits for.
    alone: Option<JobId>,
}

type Sizes<'a> = (u32, u16, u64, Option<&'a str>, u32, u64, Isolation, bool, u32);
type WhereTo<'a> = (Option<&'a str>, Option<&'a str>, Option<BookingId>);
type Terms<'a> = (Kind, Option<&'a str>, u64, u32, (Option<u32>, u64));

impl Need {
    pub fn of(job: &Job) -> Need {
        let bound = job.phase == Phase::Paused || !job.volumes.is_empty();
        let workload = job.spec.workload.as_deref();
        Need {
            spec: job.spec.clone(),
            counted: (workload.and_then(Workload::billions), job.spec.frames()),
            alone: bound.then_some(job.id).or(job.parent()),
        }
    }

    pub fn demand(&self) -> &Demand {
        &self.spec.demand
    }

    // Both are taken apart field by field, so that whoever adds one says here whether it matters.
    fn key(&self) -> (Sizes<'_>, WhereTo<'_>, Terms<'_>, Option<JobId>) {
        let JobSpec {
            name: _,
            labels: _,
            kind,
            priority: _,
            command: _,
            image: _,
            image_secret: _,
            env: _,
            secrets: _,
            volumes: _,
            workdir: _,
            sku,
            demand,
            stdin: _,
            tty: _,
            run_time_s,
            grace_s,
            max_attempts: _,
            restartable: _,
            booking,
            grow: _,
            workload: _,
            service: _,
            tasks: _,
            task: _,
        } = &*self.spec;
        let Demand {
            gpus,
            compute_permille,
            vram_mib,
            class,
            cpu_milli,
            memory_mib,
            isolation,
            capped,
            nodes,
            model,
            region,
        } = demand;
        let sizes = (
            *gpus,
            *compute_permille,
            *vram_mib,
            class.as_deref(),
            *cpu_milli,
            *memory_mib,
            *isolation,
            *capped,
            *nodes,
        );
        let where_to = (model.as_deref(), region.as_deref(), *booking);
        let terms = (*kind, sku.as_deref(), *run_time_s, *grace_s, self.counted);
        (sizes, where_to, terms, self.alone)
    }
}

impl Ord for Need {
    fn cmp(&self, other: &Need) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Need {
    fn partial_cmp(&self, other: &Need) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Need {
    fn eq(&self, other: &Need) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Need {}

type Lines = BTreeMap<Need, BTreeSet<JobId>>;

/// Every waiting job, twice: by arrival, and in its line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Queue {
    arrivals: BTreeSet<QueueKey>,
    lines: BTreeMap<(Reverse<Priority>, UserId), Lines>,
}

impl Queue {
    /// Takes a job in, if it waits.
    pub fn add(&mut self, job: &Job) {
        let Some(key) = QueueKey::of(job) else { return };
        self.arrivals.insert(key);
        let lines = self.lines.entry((key.0, job.owner)).or_default();
        lines.entry(Need::of(job)).or_default().insert(job.id);
    }

    /// Lets a job go; called before whatever ends its waiting is changed in it.
    pub fn remove(&mut self, job: &Job) {
        let Some(key) = QueueKey::of(job) else { return };
        self.arrivals.remove(&key);
        let (of_user, need) = ((key.0, job.owner), Need::of(job));
        let Some(lines) = self.lines.get_mut(&of_user) else {
            return;
        };
        if let Some(line) = lines.get_mut(&need) {
            line.remove(&job.id);
            if line.is_empty() {
                lines.remove(&need);
            }
        }
        if lines.is_empty() {
            self.lines.remove(&of_user);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.arrivals.is_empty()
    }

    pub fn len(&self) -> usize {
        self.arrivals.len()
    }

    pub fn contains(&self, job: &Job) -> bool {
        QueueKey::of(job).is_some_and(|key| self.arrivals.contains(&key))
    }

    /// By priority and arrival.
    pub fn iter(&self) -> impl Iterator<Item = QueueKey> {
        self.arrivals.iter().copied()
    }

    /// Jobs of a class by arrival, after one of them.
    pub fn arrivals(&self, class: Priority, after: Option<JobId>) -> impl Iterator<Item = JobId> {
        let key = |job| QueueKey(Reverse(class), job);
        let from = after.map_or(Bound::Included(key(JobId(0))), |job| Bound::Excluded(key(job)));
        let until = Bound::Included(key(JobId(u64::MAX)));
        self.arrivals.range((from, until)).map(|key| key.1)
    }

    /// Lines of a class by user and need, after one of them.
    pub fn lines<'a>(
        &'a self,
        class: Priority,
        after: Option<(UserId, &'a Need)>,
    ) -> impl Iterator<Item = (UserId, &'a Need, JobId)> {
        let first = after.map_or(UserId(0), |(user, _)| user);
        let users = (Reverse(class), first)..=(Reverse(class), UserId(u64::MAX));
        self.lines.range(users).flat_map(move |(&(_, user), lines)| {
            let from = match after {
                Some((last, need)) if last == user => Bound::Excluded(need),
                _ => Bound::Unbounded,
            };
            let rest = lines.range::<Need, _>((from, Bound::Unbounded));
            rest.filter_map(move |(need, line)| Some((user, need, *line.first()?)))
        })
    }

    /// The jobs of a line, by arrival.
    pub fn line(&self, class: Priority, user: UserId, need: &Need) -> impl Iterator<Item = JobId> {
        let lines = self.lines.get(&(Reverse(class), user));
        let line = lines.and_then(|lines| lines.get(need));
        line.into_iter().flatten().copied()
    }

    /// The first job of a line.
    pub fn head(&self, class: Priority, user: UserId, need: &Need) -> Option<JobId> {
        self.lines
            .get(&(Reverse(class), user))?
            .get(need)?
            .first()
            .copied()
    }
}

impl<'a> FromIterator<&'a Job> for Queue {
    fn from_iter<I: IntoIterator<Item = &'a Job>>(jobs: I) -> Queue {
        let mut queue = Queue::default();
        jobs.into_iter().for_each(|job| queue.add(job));
        queue
    }
}
