//! Tasks: a job that is done in many parts at once. The job itself holds no device; each of its tasks is a job like any
//! other, which knows the job it is of.
//!
//! What is to be done next, and what a task's end means for the job, is the plan's; that tasks are made and that the job
//! ends with the last of them is decided in `decide/task`. Absent: where tasks run and what they cost, which is as for
//! any job.

pub mod cut;
pub mod pieces;
pub mod progress;
pub mod span;
pub mod words;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::pieces::Pieces;
use self::span::Span;
use super::Workload;
use super::segments::Segments;
use super::service::Serving;
use super::spec::JobSpec;
use crate::id::JobId;

/// Tasks of one job that wait at most: placement always has the next one, and the queue is not flooded.
pub const AHEAD: usize = 2;

/// Which part of a job another job is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The job it is a task of.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub of: JobId,
    /// Counted from 0 over all tasks of the job; no two have the same.
    pub number: u32,
    pub work: Work,
    /// How often its work failed before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What a task is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Frames or segments, by their places in the job's list.
    Pieces(Span),
    /// To answer a service's requests.
    Replica,
}

impl Work {
    /// The pieces it does; a replica does none.
    pub fn span(&self) -> Span {
        match self {
            Work::Pieces(span) => *span,
            Work::Replica => Span::new(0, 0),
        }
    }
}

/// The tasks of a job: those that live, and what is left to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tasks {
    /// How many were made; the number of the next.
    pub made: u32,
    /// Those that have not ended, by their numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub living: BTreeMap<u32, JobId>,
    pub plan: Plan,
}

/// What a job's tasks are for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plan {
    /// Every piece once.
    Pieces(Pieces),
    /// As many replicas as are wanted, for as long as the service lives.
    Service(Serving),
}

impl Tasks {
    /// The tasks of a job just submitted; none for a job that runs by itself.
    pub fn of(spec: &JobSpec) -> Option<Tasks> {
        if let Some(service) = spec.service.as_deref().filter(|_| spec.task.is_none()) {
            return Some(Tasks {
                made: 0,
                living: BTreeMap::new(),
                plan: Plan::Service(Serving::new(service.replicas)),
            });
        }
        let cut = spec.tasks.filter(|cut| !cut.whole && spec.task.is_none())?;
        let total = spec.workload.as_deref().and_then(Workload::pieces)?;
        // One that was not filled in is of a time when such jobs ran by themselves.
        cut.per_task?;
        Some(Tasks {
            made: 0,
            living: BTreeMap::new(),
            plan: Plan::Pieces(Pieces::new(total)),
        })
    }

    pub fn pieces(&self) -> &Pieces {
        match &self.plan {
            Plan::Pieces(pieces) => pieces,
            Plan::Service(_) => panic!("INVARIANT: nobody asks a service for pieces"),
        }
    }

    pub(crate) fn pieces_mut(&mut self) -> &mut Pieces {
        match &mut self.plan {
            Plan::Pieces(pieces) => pieces,
            Plan::Service(_) => panic!("INVARIANT: nobody asks a service for pieces"),
        }
    }

    /// What is known of a service; none of a job of pieces.
    pub fn serving(&self) -> Option<&Serving> {
        match &self.plan {
            Plan::Pieces(_) => None,
            Plan::Service(serving) => Some(serving),
        }
    }

    pub(crate) fn serving_mut(&mut self) -> Option<&mut Serving> {
        match &mut self.plan {
            Plan::Pieces(_) => None,
            Plan::Service(serving) => Some(serving),
        }
    }

    /// What the next task would do, of a job with this specification.
    pub fn next(&self, of: JobId, spec: &JobSpec) -> Option<Task> {
        let (work, tries) = match &self.plan {
            Plan::Pieces(pieces) => {
                let again = pieces.next(spec)?;
                (Work::Pieces(again.span), again.tries)
            }
            Plan::Service(serving) => (Work::Replica, serving.failures),
        };
        Some(Task {
            of,
            number: self.made,
            work,
            tries,
        })
    }

    /// A task was made.
    pub(crate) fn take(&mut self, id: JobId, task: &Task) {
        self.made = task.number + 1;
        self.living.insert(task.number, id);
        if let Plan::Pieces(pieces) = &mut self.plan {
            pieces.take(task.work.span());
        }
    }

    /// Nothing is left to be given out.
    pub fn is_given_out(&self) -> bool {
        match &self.plan {
            Plan::Pieces(pieces) => pieces.is_given_out(),
            Plan::Service(_) => false,
        }
    }
}

impl JobSpec {
    /// The specification of one of the job's tasks: the same job, for its part of the work.
    pub fn of_task(&self, task: &Task) -> JobSpec {
        let part = |workload: &Workload| match task.work {
            Work::Pieces(span) => part_of(workload, span),
            Work::Replica => workload.clone(),
        };
        JobSpec {
            workload: self.workload.as_deref().map(|workload| Box::new(part(workload))),
            tasks: None,
            task: Some(Box::new(task.clone())),
            ..self.clone()
        }
    }
}

/// The workload with so much of its pieces. What is not there is not cut.
fn part_of(workload: &Workload, span: Span) -> Workload {
    let mut part = workload.clone();
    match &mut part {
        Workload::Rendering(rendering) => {
            if let Some(frames) = rendering.frames.part(span.first, span.count) {
                rendering.frames = frames;
            }
        }
        Workload::Video(video) => {
            let frames = video.frames.as_ref();
            if let Some(frames) = frames.and_then(|frames| frames.part(span.first, span.count)) {
                video.frames = Some(frames);
            }
            video.segments = video.segments.map(|segments| Segments {
                duration_s: seconds(&segments, span).map_or(segments.duration_s, |(start, end)| end - start),
                ..segments
            });
        }
        _ => {}
    }
    part
}

/// From when to when a run of segments goes, in seconds from the beginning of the clip.
pub(crate) fn seconds(segments: &Segments, span: Span) -> Option<(u64, u64)> {
    let last = span.end().checked_sub(1)?;
    Some((segments.get(span.first)?.start_s, segments.get(last)?.end_s))
}

#[cfg(test)]
mod tests;
