//! Tasks: what follows for a job from what becomes of its tasks, and for them from what becomes of it.
//!
//! Every decision passes through here on its way out: whatever ended a task, or let it begin, its job's next tasks are
//! made in the same breath, and the job ends with the last of them. Nothing outside of deciding looks after a job of tasks.

use std::collections::{BTreeMap, BTreeSet};

use super::Case;
use crate::event::Event;
use crate::id::{JobId, UserId};
use crate::refusal::{Code, Refusal};
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::{Job, Outcome, PauseReason, Phase, StopReason};
use crate::workload::roster::Roster;
use crate::workload::spec::JobSpec;
use crate::workload::task::cut::MAX_PARALLEL;
use crate::workload::task::pieces::{Again, Pieces};
use crate::workload::task::progress::named;
use crate::workload::task::{AHEAD, Tasks};

/// What was decided about one job of tasks and its tasks, and what that made of them.
pub(super) struct Family {
    tasks: Tasks,
    /// Of its living tasks, those that wait.
    waiting: BTreeSet<JobId>,
    /// And those that are being stopped for good.
    leaving: BTreeSet<JobId>,
    stop: Option<StopReason>,
    paused: bool,
    /// A task of it runs, and it did not before.
    begins: bool,
    /// What was decided of the job itself.
    stops: bool,
    pauses: bool,
    resumes: bool,
    ended: Vec<(JobId, Outcome)>,
}

impl Case<'_> {
    /// The events, and those that follow from them for jobs of tasks.
    pub(super) fn follow(&mut self, mut events: Vec<Event>) -> Vec<Event> {
        let submitted = events.iter().find_map(|event| match event {
            Event::JobSubmitted { job, owner, spec, .. } => {
                Tasks::of(spec).map(|tasks| (*job, *owner, spec.clone(), tasks))
            }
            _ => None,
        });
        if let Some((job, owner, spec, tasks)) = submitted {
            let mut family = Family::new(tasks);
            let most = self.most_tasks(owner);
            self.make(job, &spec, most, &mut family, &mut events);
            return events;
        }
        let (state, families) = (self.state, self.families(&events));
        for (id, family) in families {
            self.settle(&state.jobs[&id], family, &mut events);
        }
        events
    }

    /// The jobs of tasks that some event is about, as they are after it.
    fn families(&self, events: &[Event]) -> BTreeMap<JobId, Family> {
        let mut families = BTreeMap::new();
        for event in events {
            let (Event::JobPlaced { job, .. }
            | Event::JobRunning { job }
            | Event::JobRequeued { job, .. }
            | Event::JobPausing { job, .. }
            | Event::JobWanted { job }
            | Event::JobStopping { job, .. }
            | Event::ServiceScaled { job, .. }
            | Event::ReplicaFailed { job, .. }
            | Event::JobEnded { job, .. }) = event
            else {
                continue;
            };
            let Some(job) = self.state.jobs.get(job) else {
                continue;
            };
            let parent = match job.is_parent() {
                true => Some(job),
                false => job.parent().and_then(|parent| self.state.jobs.get(&parent)),
            };
            let Some(parent) = parent else { continue };
            let family = families
                .entry(parent.id)
                .or_insert_with(|| Family::of(parent, &self.state.jobs));
            match job.is_parent() {
                true => family.note(event, self.command.at),
                false => family.note_task(job, parent, event),
            }
        }
        families
    }

    /// What follows for one of them.
    fn settle(&mut self, parent: &Job, mut family: Family, events: &mut Vec<Event>) {
        let spec = &parent.spec;
        let id = parent.id;
        if family.begins {
            events.push(Event::JobRunning { job: id });
        }
        for (task, outcome) in std::mem::take(&mut family.ended) {
            self.task_ended(parent, task, &outcome, false, &mut family, events);
        }
        let fail_fast = spec.tasks.is_some_and(|cut| cut.fail_fast);
        if fail_fast && family.stop.is_none() && !family.tasks.pieces().failed.is_empty() {
            (family.stop, family.stops) = (Some(StopReason::MemberFailed), true);
            events.push(Event::JobStopping {
                job: id,
                reason: StopReason::MemberFailed,
            });
        }
        // What comes back to the queue of a job that is to stop or to pause does not start again.
        let halts = family.stop.is_some() || family.paused;
        if family.stops || family.pauses || halts && !family.waiting.is_empty() {
            self.withdraw(parent, &mut family, events);
        }
        if family.resumes {
            let paused = family.living(&self.state.jobs);
            let asked = paused.filter(|task| task.phase == Phase::Paused && task.pause.is_some());
            events.extend(asked.map(|task| Event::JobWanted { job: task.id }));
        }
        if family.stop.is_none() && !family.paused {
            let most = self.most_tasks(parent.owner);
            self.make(id, spec, most, &mut family, events);
        }
        let over = family.stop.is_some() || family.tasks.is_given_out();
        if over && family.tasks.living.is_empty() {
            events.push(Event::JobEnded {
                job: id,
                outcome: verdict(spec, &family),
            });
        }
    }

    /// What becomes of the pieces of a task that ended.
    fn task_ended(
        &self,
        parent: &Job,
        id: JobId,
        outcome: &Outcome,
        withdrawn: bool,
        family: &mut Family,
        events: &mut Vec<Event>,
    ) {
        let Some(task) = self.state.jobs.get(&id).and_then(|job| job.spec.task.as_deref()) else {
            return;
        };
        family.tasks.living.remove(&task.number);
        family.waiting.remove(&id);
        family.leaving.remove(&id);
        if let Some(serving) = family.tasks.serving_mut() {
            serving.ended(self.command.at, self.state.jobs[&id].ran_ms, outcome);
            return;
        }
        let had = Again {
            span: task.work.span(),
            tries: task.tries,
        };
        if *outcome == Outcome::Succeeded {
            family.tasks.pieces_mut().made(had.span, 0, 0);
            return;
        }
        if family.stop.is_some() {
            return;
        }
        let tries = parent.spec.tasks.map_or(1, |cut| cut.tries());
        let (again, failed) = match withdrawn {
            true => (vec![had], None),
            false => Pieces::after_failure(had, tries),
        };
        family.tasks.pieces_mut().returned(&again, failed, withdrawn);
        events.push(Event::PiecesReturned {
            job: parent.id,
            task: id,
            again,
            failed,
            withdrawn,
        });
    }

    /// The job is to stop or to pause: its tasks that wait end here, and those that have begun are told to.
    fn withdraw(&self, parent: &Job, family: &mut Family, events: &mut Vec<Event>) {
        let living: Vec<&Job> = family.living(&self.state.jobs).collect();
        for task in living {
            if family.waiting.contains(&task.id) {
                let outcome = Outcome::Cancelled;
                events.push(Event::JobEnded {
                    job: task.id,
                    outcome: outcome.clone(),
                });
                self.task_ended(parent, task.id, &outcome, true, family, events);
            } else if family.stops {
                let told = task.stop.is_some_and(|reason| reason != StopReason::Evicted);
                if !told {
                    events.push(Event::JobStopping {
                        job: task.id,
                        reason: StopReason::Cancelled,
                    });
                }
            } else if family.pauses && self.can_be_set_aside(task) {
                events.push(Event::JobPausing {
                    job: task.id,
                    reason: PauseReason::Asked,
                });
            }
        }
    }

    fn can_be_set_aside(&self, task: &Job) -> bool {
        let paused = task.phase == Phase::Paused && task.pause.is_none();
        let allocation = task
            .sole_allocation()
            .and_then(|id| self.state.fleet.allocation(id));
        paused
            || task.phase == Phase::Running
                && allocation.is_some_and(|allocation| super::can_pause(self.state, task, allocation))
    }

    /// Makes tasks while there is something to be done and room for one more in the queue.
    pub(super) fn make(
        &mut self,
        of: JobId,
        spec: &JobSpec,
        most: u32,
        family: &mut Family,
        events: &mut Vec<Event>,
    ) {
        let most = match family.tasks.serving() {
            Some(serving) if !serving.may_start(self.command.at) => 0,
            // Those that are on their way out do not serve.
            Some(serving) => serving.wanted.min(most) as usize + family.leaving.len(),
            None => spec.tasks.map_or(1, |cut| cut.parallel()).min(most) as usize,
        };
        while family.tasks.living.len() < most && family.waiting.len() < AHEAD {
            let Some(task) = family.tasks.next(of, spec) else {
                return;
            };
            let job = JobId(self.ids.take());
            family.tasks.take(job, &task);
            family.waiting.insert(job);
            events.push(Event::TaskSubmitted { job, task });
        }
    }

    /// How many tasks of one job the policies above its owner allow now.
    pub(super) fn most_tasks(&self, owner: UserId) -> u32 {
        self.policy_tasks(owner).unwrap_or(MAX_PARALLEL)
    }

    pub(super) fn policy_tasks(&self, owner: UserId) -> Option<u32> {
        let above = self.state.tree.chain(ScopeId::User(owner));
        above.filter_map(|scope| scope.policy.max_parallel_tasks).min()
    }

    /// Refuses what is done with one program, and not with a job of many.
    pub(super) fn one_program(&self, job: &Job) -> Result<(), Refusal> {
        if !job.is_parent() {
            return Ok(());
        }
        Err(Refusal::new(
            Code::WrongPhase,
            "it is a job of tasks, each with a program of its own",
        )
        .hint(format!("`tenure tasks {}` lists them; name one of them", job.id)))
    }
}

impl Family {
    fn new(tasks: Tasks) -> Family {
        Family {
            tasks,
            waiting: BTreeSet::new(),
            leaving: BTreeSet::new(),
            stop: None,
            paused: false,
            begins: false,
            stops: false,
            pauses: false,
            resumes: false,
            ended: Vec::new(),
        }
    }

    pub(super) fn of(parent: &Job, jobs: &Roster) -> Family {
        let tasks = parent.tasks.as_deref().expect("INVARIANT: a parent has tasks");
        let mut family = Family::new(tasks.clone());
        let waiting = tasks.jobs(jobs).filter(|task| task.phase == Phase::Queued);
        family.waiting = waiting.map(|task| task.id).collect();
        let leaving = tasks.jobs(jobs).filter(|task| task.is_leaving());
        family.leaving = leaving.map(|task| task.id).collect();
        family.stop = parent.stop;
        family.paused = parent.phase == Phase::Paused;
        family
    }

    fn living<'a>(&self, jobs: &'a Roster) -> impl Iterator<Item = &'a Job> + use<'a> {
        let ids: Vec<JobId> = self.tasks.living.values().copied().collect();
        ids.into_iter().filter_map(|id| jobs.get(&id))
    }

    /// Something was decided of the job itself.
    fn note(&mut self, event: &Event, at: Time) {
        match (event, self.tasks.serving_mut()) {
            (Event::ServiceScaled { replicas, wanted, .. }, Some(serving)) => {
                serving.scaled(*replicas, *wanted)
            }
            (Event::ReplicaFailed { why, .. }, Some(serving)) => serving.failed(at, 0, why.clone()),
            _ => {}
        }
        match event {
            Event::JobStopping { reason, .. } => (self.stop, self.stops) = (Some(*reason), true),
            Event::JobPausing { .. } => (self.paused, self.pauses) = (true, true),
            Event::JobWanted { .. } => (self.paused, self.resumes) = (false, true),
            _ => {}
        }
    }

    /// Something was decided of one of its tasks.
    fn note_task(&mut self, task: &Job, parent: &Job, event: &Event) {
        match event {
            Event::JobPlaced { .. } => self.waiting.retain(|id| *id != task.id),
            Event::JobRequeued { .. } => self.waiting.extend([task.id]),
            Event::JobRunning { .. } => self.begins = parent.phase == Phase::Queued,
            Event::JobStopping { reason, .. } if *reason != StopReason::Evicted => {
                self.leaving.insert(task.id);
            }
            Event::JobEnded { outcome, .. } => self.ended.push((task.id, outcome.clone())),
            _ => {}
        }
    }
}

/// How a job ends with the last of its tasks.
fn verdict(spec: &JobSpec, family: &Family) -> Outcome {
    if family.tasks.serving().is_some() {
        return Outcome::Cancelled;
    }
    let failed = &family.tasks.pieces().failed;
    match family.stop {
        Some(StopReason::Cancelled) => Outcome::Cancelled,
        _ if failed.is_empty() => Outcome::Succeeded,
        _ => Outcome::TasksFailed {
            pieces: named(spec, failed),
            count: failed.count(),
        },
    }
}
