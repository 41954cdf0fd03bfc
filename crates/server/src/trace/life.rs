//! Jobs through their lives as spans: what each event begins and ends.
//!
//! A job is one span, below it each wait in the queue and each attempt, below an attempt what it went through. A span is
//! told of when it ends. Kept here is of each living job what has begun and not ended; a server that has just begun to
//! lead finds that in the state. What people and nodes wrote in words is left out: it may be of what a job runs.

mod stage;
mod teller;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_domain::id::{AllocationId, JobId, UserId};
use tenure_domain::refusal::Refusal;
use tenure_domain::schedule::allocation::Allocation;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{DoneJob, Job, Phase, StopReason};
use tenure_domain::workload::member::MemberPhase;
use tenure_domain::workload::spec::JobSpec;
use tenure_domain::workload::task::Tasks;
use tenure_domain::workload::trace::TraceParent;
use tenure_domain::{Event, State, Time};

use super::id::{Context, Ids};
use super::span::{Attributes, Span, Value};
use stage::{Attempt, Open, Stage};
use teller::Teller;

/// What happened while a span lasted, as far as it is kept.
const MAX_MOMENTS: usize = 16;
/// Nodes of a gang that are told by name.
const MAX_NODES: usize = 32;
/// What a job waits for is asked again so often.
const ASK_AGAIN: Duration = Duration::from_secs(30);

pub(super) struct Lives {
    ids: Arc<Ids>,
    live: HashMap<JobId, Life>,
    /// Whom to ask what they wait for, and when; the next first. Those that were asked wait longer, and for themselves.
    waiting: VecDeque<(Instant, JobId)>,
    asked: VecDeque<(Instant, JobId)>,
    look: Duration,
}

/// One living job of which is told.
struct Life {
    context: Context,
    /// What it was submitted with.
    caller: Option<TraceParent>,
    whose: Whose,
    submitted: Time,
    /// When the request came, where this server saw it.
    asked_ns: Option<u64>,
    /// Which try this is, or the next will be.
    attempt_number: u32,
    stage: Option<Open>,
    attempt: Option<Attempt>,
    /// It is done in tasks, and has no attempts.
    is_parent: bool,
}

/// Who submitted what; of a task, its job's, and which it is.
#[derive(Clone)]
struct Whose {
    owner: UserId,
    spec: Arc<JobSpec>,
    task: Option<(JobId, u32)>,
}

impl Whose {
    fn of(owner: UserId, spec: &Arc<JobSpec>) -> Whose {
        Whose {
            owner,
            spec: spec.clone(),
            task: spec.task.as_ref().map(|task| (task.of, task.number)),
        }
    }
}

impl Lives {
    pub fn new(ids: Arc<Ids>, look: Duration) -> Lives {
        Lives {
            ids,
            live: HashMap::new(),
            waiting: VecDeque::new(),
            asked: VecDeque::new(),
            look,
        }
    }

    pub fn knows(&self, job: JobId) -> bool {
        self.live.contains_key(&job)
    }

    fn insert(
        &mut self,
        job: JobId,
        whose: Whose,
        (caller, of): (Option<TraceParent>, Option<(JobId, Option<TraceParent>)>),
        submitted: Time,
    ) -> Option<&mut Life> {
        let context = self.ids.context(job, caller, of);
        if !context.is_sampled {
            return None;
        }
        let life = Life {
            context,
            caller,
            whose,
            submitted,
            asked_ns: None,
            attempt_number: 1,
            stage: None,
            attempt: None,
            is_parent: false,
        };
        Some(self.live.entry(job).insert_entry(life).into_mut())
    }

    /// Takes in a job that lives already, as it is.
    pub fn adopt(&mut self, state: &State, job: &Job) {
        let of = job.parent().map(|of| {
            let caller = state.jobs.get(&of).and_then(|of| of.trace);
            (of, caller)
        });
        let look = Instant::now() + self.look;
        let place = (job.trace, of);
        let Some(life) = self.insert(job.id, Whose::of(job.owner, &job.spec), place, job.submitted) else {
            return;
        };
        life.is_parent = job.is_parent();
        life.attempt_number = job.attempt;
        let mut living: Vec<&Allocation> = job
            .allocations()
            .filter_map(|id| state.fleet.allocation(id))
            .collect();
        living.sort_by_key(|allocation| allocation.member);
        if let Some(first) = living.first() {
            let mut attempt = Attempt::of(state, job.attempt, &living, job.members.len());
            attempt.gives_way = job.stop == Some(StopReason::Evicted);
            let runs = |id: AllocationId| {
                let mut members = job.members.iter();
                members.any(|member| member.allocation == id && member.phase >= MemberPhase::Running)
            };
            attempt.members.retain(|id, _| !runs(*id));
            life.attempt = Some(attempt);
            let placed = first.placed;
            life.stage = Some(match job.phase {
                Phase::Placed | Phase::Starting => Open::new(Stage::Starting, placed),
                phase => Open::new(Stage::of(phase), job.since),
            });
            return;
        }
        life.stage = Some(Open::new(Stage::of(job.phase), job.since));
        if job.phase == Phase::Queued {
            self.waiting.push_back((look, job.id));
        }
    }

    /// Takes in a job as it was before events that are about to be told, `lost` attempts among them, as far as what came
    /// after tells: since when it was where it was is known only of the first wait, and of an attempt that goes on.
    pub fn adopt_from_after(&mut self, state: &State, job: After<'_>, lost: u32) {
        let (id, owner, spec, trace, submitted) = match job {
            After::Live(job) => (job.id, job.owner, &job.spec, job.trace, job.submitted),
            After::Done(job) => (job.id, job.owner, &job.spec, job.trace, job.submitted),
        };
        let of = spec.task.as_ref().map(|task| {
            let caller = state.jobs.get(&task.of).and_then(|of| of.trace);
            (task.of, caller)
        });
        let Some(life) = self.insert(id, Whose::of(owner, spec), (trace, of), submitted) else {
            return;
        };
        match job {
            After::Live(job) => {
                life.is_parent = job.is_parent();
                let placed = job.allocations().filter_map(|id| state.fleet.allocation(id));
                let placed: Vec<&Allocation> = placed.collect();
                if lost == 0 && !placed.is_empty() {
                    life.attempt = Some(Attempt::of(state, job.attempt, &placed, job.members.len()));
                }
                life.attempt_number = job.attempt.saturating_sub(lost).max(1);
            }
            After::Done(job) => {
                life.is_parent = job.tasks.is_some();
                life.attempt_number = job.attempts.saturating_sub(lost).max(1);
            }
        }
    }

    /// The request that submitted it came then.
    pub fn asked(&mut self, job: JobId, began_ns: u64) {
        if let Some(life) = self.live.get_mut(&job) {
            life.asked_ns = Some(began_ns);
        }
    }

    /// A job that has waited for a while: what for has to be asked.
    pub fn next_to_ask(&mut self, now: Instant) -> Option<JobId> {
        let waits = |life: &Life| {
            let open = life.stage.as_ref();
            open.is_some_and(|open| open.stage == Stage::Queued)
        };
        for queue in [&mut self.waiting, &mut self.asked] {
            while let Some((due, job)) = queue.front().copied()
                && due <= now
            {
                queue.pop_front();
                if self.live.get(&job).is_some_and(waits) {
                    return Some(job);
                }
            }
        }
        None
    }

    pub fn waits_for(&mut self, job: JobId, at: Time, reason: &Refusal) {
        let open = self.live.get_mut(&job).and_then(|life| life.stage.as_mut());
        let Some(open) = open.filter(|open| open.stage == Stage::Queued) else {
            return;
        };
        let attributes = vec![
            ("tenure.waiting.code", Value::text(reason.code.as_str())),
            ("tenure.waiting.reason", Value::text(&reason.sentence)),
        ];
        if open.waits_for != attributes {
            open.note(at, "waiting", attributes.clone());
            open.waits_for = attributes;
        }
        self.asked.push_back((Instant::now() + ASK_AGAIN, job));
    }

    /// Tells of what ended with an event.
    pub fn take(&mut self, state: &State, at: Time, event: &Event, told: &mut Vec<Span>) {
        match event {
            Event::JobSubmitted {
                job,
                owner,
                spec,
                trace,
                ..
            } if !self.knows(*job) => {
                if let Some(life) = self.insert(*job, Whose::of(*owner, spec), (*trace, None), at) {
                    life.is_parent = Tasks::of(spec).is_some();
                    life.stage = Some(Open::new(Stage::Queued, at));
                    self.waiting.push_back((Instant::now() + self.look, *job));
                }
            }
            Event::TaskSubmitted { job, task } if !self.knows(*job) => {
                let Some(parent) = self.live.get(&task.of) else {
                    return;
                };
                let of = Some((task.of, parent.caller));
                let whose = Whose {
                    task: Some((task.of, task.number)),
                    ..parent.whose.clone()
                };
                let life = Life {
                    context: self.ids.context(*job, None, of),
                    caller: None,
                    whose,
                    submitted: at,
                    asked_ns: None,
                    attempt_number: 1,
                    stage: Some(Open::new(Stage::Queued, at)),
                    attempt: None,
                    is_parent: false,
                };
                self.live.insert(*job, life);
                self.waiting.push_back((Instant::now() + self.look, *job));
            }
            Event::JobEnded { job, outcome } => {
                if let Some(mut life) = self.live.remove(job) {
                    Teller::of(&self.ids, *job, at, &mut life, told).end(state, outcome);
                }
            }
            _ => {
                let Some(job) = subject(event) else { return };
                let Some(life) = self.live.get_mut(&job) else {
                    return;
                };
                Teller::of(&self.ids, job, at, life, told).take(state, event);
                if matches!(event, Event::JobRequeued { .. }) {
                    self.waiting.push_back((Instant::now() + self.look, job));
                }
            }
        }
    }
}

/// A job as it is after what is to be told.
#[derive(Clone, Copy)]
pub(super) enum After<'a> {
    Live(&'a Job),
    Done(&'a DoneJob),
}

/// Whose span an event begins, ends or is part of.
pub(super) fn subject(event: &Event) -> Option<JobId> {
    match event {
        Event::JobPlaced { job, .. }
        | Event::JobStarting { job }
        | Event::JobRunning { job }
        | Event::JobStopping { job, .. }
        | Event::MemberRunning { job, .. }
        | Event::JobResized { job, .. }
        | Event::JobPausing { job, .. }
        | Event::JobPaused { job }
        | Event::JobWanted { job }
        | Event::JobResuming { job, .. }
        | Event::JobKept { job, .. }
        | Event::JobRequeued { job, .. }
        | Event::JobEnded { job, .. } => Some(*job),
        Event::JobPromised { promise } => Some(promise.job),
        _ => None,
    }
}

/// What is said of a job as a whole.
fn about(state: &State, job: JobId, whose: &Whose) -> Attributes {
    let Whose { owner, spec, task } = whose;
    let mut about = vec![
        ("tenure.job.id", Value::text(job)),
        ("tenure.job.name", Value::text(&spec.name)),
        ("tenure.job.kind", Value::text(spec.kind.as_str())),
        ("tenure.job.priority", Value::text(spec.priority.as_str())),
        ("tenure.user.id", Value::text(owner)),
    ];
    if let Some(tenant) = state.tree.tenant_of(ScopeId::User(*owner)) {
        about.push(("tenure.tenant.id", Value::text(tenant)));
        if let Some(scope) = state.tree.get(ScopeId::Tenant(tenant)) {
            about.push(("tenure.tenant", Value::text(&scope.name)));
        }
    }
    if let Some(sku) = &spec.sku {
        about.push(("tenure.job.sku", Value::text(sku)));
    }
    if let Some((of, number)) = task {
        about.push(("tenure.task.of", Value::text(of)));
        about.push(("tenure.task.number", Value::Number(i64::from(*number))));
    }
    about
}
