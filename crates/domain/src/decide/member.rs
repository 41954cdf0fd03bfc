//! Members: how what their nodes say of each makes the job start, run and end, as one.
//!
//! A job with one member ends with it. Of a gang every member's coming and going is a fact of its own; the first that
//! does not end well has the rest stopped by the common way out, and the job ends, or returns to the queue, once, when
//! the last is gone.

use super::Case;
use crate::event::Event;
use crate::schedule::allocation::Allocation;
use crate::workload::job::{Job, Outcome, Phase, StopReason};
use crate::workload::member::{MemberEnd, MemberPhase};

impl Case<'_> {
    pub(super) fn starting(&self, allocation: &Allocation, job: &Job) -> Vec<Event> {
        if job.phase != Phase::Placed {
            return vec![];
        }
        self.came(allocation, job, MemberPhase::Starting)
    }

    pub(super) fn running(&self, allocation: &Allocation, job: &Job) -> Vec<Event> {
        match job.phase {
            Phase::Resuming => vec![Event::JobRunning { job: job.id }],
            Phase::Placed | Phase::Starting => self.came(allocation, job, MemberPhase::Running),
            _ => vec![],
        }
    }

    /// The member is further than it was; the job is as far as the last of its members.
    fn came(&self, allocation: &Allocation, job: &Job, phase: MemberPhase) -> Vec<Event> {
        let (id, number) = (job.id, allocation.member as usize);
        let mut events = Vec::new();
        if job.is_gang() {
            if job.members[number].phase >= phase {
                return vec![];
            }
            let allocation = allocation.id;
            events.push(match phase {
                MemberPhase::Running => Event::MemberRunning { job: id, allocation },
                _ => Event::MemberStarting { job: id, allocation },
            });
        }
        let phases = job.members.iter().enumerate().map(
            |(which, member)| {
                if which == number { phase } else { member.phase }
            },
        );
        match phases.min() {
            Some(MemberPhase::Placed) | None => {}
            Some(MemberPhase::Starting) if job.phase == Phase::Placed => {
                events.push(Event::JobStarting { job: id })
            }
            Some(MemberPhase::Starting) => {}
            Some(MemberPhase::Running | MemberPhase::Ended) => events.push(Event::JobRunning { job: id }),
        }
        events
    }

    /// Members ended, all on one node and at once; with the last of the job, the job does.
    pub(super) fn ended(&self, job: &Job, ends: &[(&Allocation, MemberEnd)]) -> Vec<Event> {
        let mut events = Vec::new();
        if job.is_gang() {
            events.extend(ends.iter().map(|(allocation, end)| Event::MemberEnded {
                job: job.id,
                allocation: allocation.id,
                end: end.clone(),
            }));
        }
        // INVARIANT: the first that did not end well is what apply notes of the events above.
        let failed_now = ends.iter().find(|(_, end)| !end.is_success());
        let known = job.failed.and_then(|number| {
            let end = job.members[number as usize].end.as_ref()?;
            Some((number, end))
        });
        let first = known.or(failed_now.map(|(allocation, end)| (allocation.member, end)));
        if job.living().count() == ends.len() {
            events.push(self.verdict(job, first));
        } else if let (None, Some((_, end))) = (job.stop, first) {
            events.push(Event::JobStopping {
                job: job.id,
                reason: stops_the_rest(end),
            });
        } else if job.stop.is_none() && matches!(job.phase, Phase::Placed | Phase::Starting) {
            // It was the only one the others were ahead of.
            let ended = |number: u32| ends.iter().any(|(allocation, _)| allocation.member == number);
            let mut others = job.living().filter(|(number, _)| !ended(*number));
            if others.all(|(_, member)| member.phase == MemberPhase::Running) {
                events.push(Event::JobRunning { job: job.id });
            }
        }
        events
    }

    /// What becomes of a job with no member left; `first` is the member that did not end well before any other.
    fn verdict(&self, job: &Job, first: Option<(u32, &MemberEnd)>) -> Event {
        let ended = |outcome| Event::JobEnded { job: job.id, outcome };
        let by = first.and_then(|(_, end)| match end {
            MemberEnd::Exited { by, .. } => *by,
            MemberEnd::NotStarted { .. } | MemberEnd::Lost { .. } => None,
        });
        let member = |number: u32| job.is_gang().then_some(number);
        match (job.stop.or(by), first) {
            (Some(StopReason::Cancelled), _) => ended(Outcome::Cancelled),
            (Some(StopReason::RunTime), _) => ended(Outcome::TimedOut),
            (Some(StopReason::OverLimit), _) => ended(Outcome::OverLimit),
            // Giving way is no fault, and uses up no attempt, even where a node is lost meanwhile. A gang that lost a
            // member first is stopped by the same word.
            (Some(StopReason::Evicted), end) if job.stop.is_some() && !job.lost_member() => {
                let why = match end {
                    Some((_, MemberEnd::Lost { why })) => why.clone(),
                    _ => "it was evicted".into(),
                };
                requeued(job, why)
            }
            (_, Some((_, MemberEnd::Lost { why }))) => self.attempt_lost(job, why.clone()),
            (Some(StopReason::Evicted), _) => self.attempt_lost(job, "it was evicted".into()),
            (Some(StopReason::MemberFailed) | None, None) => ended(Outcome::Succeeded),
            (_, Some((number, MemberEnd::NotStarted { why }))) => ended(Outcome::NotStarted {
                why: why.clone(),
                member: member(number),
            }),
            (
                _,
                Some((
                    number,
                    &MemberEnd::Exited {
                        exit_code, signal, ..
                    },
                )),
            ) => ended(Outcome::Failed {
                exit_code,
                signal,
                member: member(number),
            }),
        }
    }

    /// What becomes of a job whose attempt ended by no fault of its own.
    fn attempt_lost(&self, job: &Job, why: String) -> Event {
        if job.tries() >= job.spec.max_attempts {
            let attempts = job.tries();
            return Event::JobEnded {
                job: job.id,
                outcome: Outcome::GaveUp { attempts },
            };
        }
        requeued(job, why)
    }
}

fn requeued(job: &Job, why: String) -> Event {
    Event::JobRequeued {
        job: job.id,
        why,
        vram_mib: None,
    }
}

/// Why the others are stopped when one ended so. An eviction returns the job to the queue, whoever was evicted.
fn stops_the_rest(end: &MemberEnd) -> StopReason {
    match end {
        MemberEnd::Exited { by: Some(by), .. } => *by,
        MemberEnd::Exited { by: None, .. } | MemberEnd::NotStarted { .. } => StopReason::MemberFailed,
        MemberEnd::Lost { .. } => StopReason::Evicted,
    }
}
