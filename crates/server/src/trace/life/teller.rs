//! One event of one job: which stage it ends, which it begins, and what is told with that.

use tenure_domain::id::{AllocationId, JobId};
use tenure_domain::schedule::allocation::Allocation;
use tenure_domain::workload::job::{Outcome, PauseReason, StopReason};
use tenure_domain::{Event, State, Time};

use super::super::id::{Ids, name};
use super::super::span::{Attributes, Kind, Moment, Span, Value, ns};
use super::stage::{self, Attempt, Open, Stage};
use super::{Life, MAX_MOMENTS, about};

/// Tells of one job what one event means.
pub(super) struct Teller<'a> {
    ids: &'a Ids,
    job: JobId,
    at: Time,
    life: &'a mut Life,
    told: &'a mut Vec<Span>,
}

impl<'a> Teller<'a> {
    pub fn of(ids: &'a Ids, job: JobId, at: Time, life: &'a mut Life, told: &'a mut Vec<Span>) -> Teller<'a> {
        Teller {
            ids,
            job,
            at,
            life,
            told,
        }
    }

    pub fn take(&mut self, state: &State, event: &Event) {
        let stage = self.life.stage.as_ref().map(|open| open.stage);
        match event {
            Event::JobPlaced {
                allocation, others, ..
            } => {
                let known = self.life.attempt.as_ref().map(|attempt| attempt.number);
                if known == Some(allocation.attempt) && stage.is_some_and(|stage| stage != Stage::Queued) {
                    return;
                }
                if stage.is_none() && allocation.attempt == 1 {
                    self.life.stage = Some(Open::new(Stage::Queued, self.life.submitted));
                }
                self.life.attempt_number = allocation.attempt;
                self.close(None);
                let all: Vec<&Allocation> = [allocation].into_iter().chain(others).collect();
                self.life.attempt = Some(Attempt::of(state, allocation.attempt, &all, all.len()));
                self.open(Stage::Starting);
            }
            Event::JobStarting { .. } => self.note("received by node", vec![]),
            Event::MemberRunning { allocation, .. } => self.member_runs(*allocation, None),
            Event::JobRunning { .. } if stage != Some(Stage::Running) => {
                if stage.is_none()
                    && let Some(attempt) = &self.life.attempt
                {
                    self.life.stage = Some(Open::new(Stage::Starting, attempt.placed));
                }
                self.go(Stage::Running);
                self.members_run(None);
            }
            Event::JobPausing { reason, .. } => {
                let reason = match reason {
                    PauseReason::Asked => "asked",
                    PauseReason::Preempted => "preempted",
                };
                self.note_attempt("pausing", vec![("tenure.pause.reason", Value::text(reason))]);
                match stage {
                    _ if self.life.is_parent => self.go(Stage::Paused),
                    Some(Stage::Paused | Stage::Pausing) => {}
                    _ => self.go(Stage::Pausing),
                }
            }
            Event::JobPaused { .. } => self.go(Stage::Paused),
            Event::JobWanted { .. } if self.life.is_parent => {
                let runs = state.jobs.get(&self.job).is_some_and(|job| job.started.is_some());
                self.go(if runs { Stage::Running } else { Stage::Queued });
            }
            Event::JobWanted { .. } => self.note("wanted", vec![]),
            Event::JobResuming { .. } => self.go(Stage::Resuming),
            Event::JobKept { .. } => self.go(match stage {
                Some(Stage::Resuming) => Stage::Paused,
                _ => Stage::Running,
            }),
            Event::JobResized { .. } => self.note("resized", vec![]),
            Event::JobPromised { promise } => {
                let victims = Value::Number(promise.victims.len() as i64);
                self.note("promised room", vec![("tenure.promise.victims", victims)]);
            }
            Event::JobStopping { reason, .. } => self.stop(*reason, stage),
            Event::JobRequeued { .. } if stage != Some(Stage::Queued) => {
                let gave_way = self
                    .life
                    .attempt
                    .as_ref()
                    .is_some_and(|attempt| attempt.gives_way);
                let error = (!gave_way).then(|| "the attempt was lost".to_owned());
                let result = if gave_way { "gave_way" } else { "lost" };
                self.close(error.as_deref());
                self.end_attempt(
                    vec![("tenure.attempt.result", Value::text(result))],
                    error.as_deref(),
                );
                self.life.attempt_number += 1;
                self.open(Stage::Queued);
            }
            _ => {}
        }
    }

    fn stop(&mut self, reason: StopReason, stage: Option<Stage>) {
        let text = stage::stop_reason(reason);
        let attributes = vec![("tenure.stop.reason", Value::text(text))];
        if let Some(attempt) = &mut self.life.attempt {
            attempt.gives_way = reason == StopReason::Evicted;
        }
        match (stage, reason) {
            (Some(Stage::Stopping), _) => return self.note("told to stop", attributes),
            (_, StopReason::Evicted) => self.note_attempt("evicted", vec![]),
            _ => {}
        }
        self.go(Stage::Stopping);
        if let Some(open) = &mut self.life.stage {
            open.attributes = attributes;
        }
    }

    pub fn end(&mut self, state: &State, outcome: &Outcome) {
        let (attributes, error) = stage::outcome(outcome);
        // Whether it ran is its own affair: one too short to be seen running started all the same.
        let failed_to_start = matches!(outcome, Outcome::NotStarted { .. });
        self.close(error.as_deref().filter(|_| failed_to_start));
        self.end_attempt(attributes.clone(), error.as_deref());
        let began_ns = ns(self.life.submitted).min(self.life.asked_ns.unwrap_or(u64::MAX));
        let mut all = about(state, self.job, &self.life.whose);
        all.push((
            "tenure.attempts",
            Value::Number(i64::from(self.life.attempt_number)),
        ));
        all.extend(attributes);
        let context = self.life.context;
        self.told.push(Span {
            trace: context.trace,
            id: context.job,
            parent: context.caller,
            parent_is_remote: context.caller.is_some(),
            name: name::JOB,
            kind: Kind::Internal,
            began_ns,
            ended_ns: ns(self.at),
            attributes: all,
            moments: Vec::new(),
            link: context.of,
            error,
        });
    }

    /// Ends what it was in, and begins another.
    fn go(&mut self, stage: Stage) {
        self.close(None);
        self.open(stage);
    }

    fn open(&mut self, stage: Stage) {
        self.life.stage = Some(Open::new(stage, self.at));
    }

    fn close(&mut self, error: Option<&str>) {
        let Some(open) = self.life.stage.take() else {
            return;
        };
        let which = match open.stage {
            // Nodes tell what is below it before it ends.
            Stage::Starting => 0,
            _ => open.since.0.unsigned_abs(),
        };
        let name = open.stage.name();
        let mut attributes = open.attributes;
        if open.stage == Stage::Queued {
            attributes.extend(open.waits_for);
        }
        let below_attempt = open.stage != Stage::Queued;
        self.tell(
            (name, which),
            open.since,
            attributes,
            open.moments,
            below_attempt,
            error,
        );
    }

    fn end_attempt(&mut self, result: Attributes, error: Option<&str>) {
        self.members_run(error);
        let Some(attempt) = self.life.attempt.take() else {
            return;
        };
        let mut attributes = attempt.attributes;
        attributes.extend(result);
        self.tell(
            (name::ATTEMPT, 0),
            attempt.placed,
            attributes,
            attempt.moments,
            false,
            error,
        );
    }

    fn members_run(&mut self, error: Option<&str>) {
        let Some(attempt) = &self.life.attempt else { return };
        let left: Vec<AllocationId> = attempt.members.keys().copied().collect();
        for member in left {
            self.member_runs(member, error);
        }
    }

    /// A member of a gang runs, or never will.
    fn member_runs(&mut self, allocation: AllocationId, error: Option<&str>) {
        let Some(attempt) = &mut self.life.attempt else {
            return;
        };
        let Some(member) = attempt.members.remove(&allocation) else {
            return;
        };
        let (placed, number) = (attempt.placed, attempt.number);
        let starting = self.ids.span(self.job, name::STARTING, number, 0);
        let mut span = self.span(
            (name::MEMBER, u64::from(member.number)),
            placed,
            member.attributes,
            Vec::new(),
            error,
        );
        span.parent = Some(starting);
        self.told.push(span);
    }

    fn tell(
        &mut self,
        named: (&'static str, u64),
        since: Time,
        attributes: Attributes,
        moments: Vec<Moment>,
        below_attempt: bool,
        error: Option<&str>,
    ) {
        let mut span = self.span(named, since, attributes, moments, error);
        if let Some(attempt) = self.life.attempt.as_ref().filter(|_| below_attempt) {
            span.parent = Some(self.ids.span(self.job, name::ATTEMPT, attempt.number, 0));
        }
        self.told.push(span);
    }

    /// A span that ends now, below the job's.
    fn span(
        &self,
        (name, which): (&'static str, u64),
        since: Time,
        mut attributes: Attributes,
        moments: Vec<Moment>,
        error: Option<&str>,
    ) -> Span {
        let number = self.life.attempt_number;
        attributes.push(("tenure.job.id", Value::text(self.job)));
        attributes.push(("tenure.attempt", Value::Number(i64::from(number))));
        let context = self.life.context;
        Span {
            trace: context.trace,
            id: self.ids.span(self.job, name, number, which),
            parent: Some(context.job),
            parent_is_remote: false,
            name,
            kind: Kind::Internal,
            began_ns: ns(since),
            ended_ns: ns(self.at),
            attributes,
            moments,
            link: None,
            error: error.map(str::to_owned),
        }
    }

    fn note(&mut self, name: &'static str, attributes: Attributes) {
        if let Some(open) = &mut self.life.stage {
            open.note(self.at, name, attributes);
        }
    }

    fn note_attempt(&mut self, name: &'static str, attributes: Attributes) {
        if let Some(attempt) = &mut self.life.attempt
            && attempt.moments.len() < MAX_MOMENTS
        {
            attempt.moments.push(Moment {
                at: self.at,
                name,
                attributes,
            });
        }
    }
}
