//! How far a job of tasks is, when it is likely to be done and what a piece costs, from its book and its living tasks.

use serde::{Deserialize, Serialize};

use super::Tasks;
use super::pieces::Pieces;
use super::span::{Span, Spans};
use crate::workload::Workload;
use crate::workload::derive::{DemandBasis, Derivation};
use crate::workload::frames::Frames;
use crate::workload::job::{Job, Phase};
use crate::workload::roster::Roster;
use crate::workload::spec::JobSpec;

/// Pieces named one by one, or in runs, in a sentence; more are counted.
const NAMED: usize = 50;

/// Pieces by where they are; the four add up to all, but for what a job that is being stopped leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    pub total: u64,
    pub done: u64,
    /// With tasks that have a place.
    pub running: u64,
    pub waiting: u64,
    pub failed: u64,
    /// Tasks that have a place.
    pub tasks_running: u32,
    pub tasks_waiting: u32,
}

/// What a time to come rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EtaBasis {
    /// So many pieces of this very job.
    Done { pieces: u64 },
    /// So many runs of others like it.
    Measured { runs: u32 },
    /// What the job says of a piece.
    Said,
}

impl EtaBasis {
    pub fn words(self) -> String {
        match self {
            EtaBasis::Done { pieces: 1 } => "by the one that is done".into(),
            EtaBasis::Done { pieces } => format!("by the {pieces} that are done"),
            EtaBasis::Measured { runs } => format!("measured over {runs} runs"),
            EtaBasis::Said => "by what the job says of each".into(),
        }
    }
}

/// When a job of tasks is likely to be done, were as many tasks to run as do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eta {
    pub left_ms: u64,
    pub basis: EtaBasis,
}

impl Progress {
    pub fn of<'a>(pieces: &Pieces, living: impl Iterator<Item = &'a Job>) -> Progress {
        let mut progress = Progress {
            total: pieces.total,
            done: pieces.done.count(),
            failed: pieces.failed.count(),
            waiting: pieces.total - pieces.given
                + pieces.again.iter().map(|again| again.span.count).sum::<u64>(),
            ..Progress::default()
        };
        for job in living {
            let count = job.spec.task.as_ref().map_or(0, |task| task.work.span().count);
            match job.phase {
                Phase::Queued => {
                    progress.waiting += count;
                    progress.tasks_waiting += 1;
                }
                _ => {
                    progress.running += count;
                    progress.tasks_running += 1;
                }
            }
        }
        progress
    }

    /// None while nothing tells.
    pub fn eta(&self, pieces: &Pieces, derivation: Option<&Derivation>) -> Option<Eta> {
        let said = || {
            let derivation = derivation?;
            let each_ms = derivation.run_ms?.div_ceil(self.total.max(1));
            let basis = match derivation.measured.and_then(|measured| measured.each_ms) {
                Some(each) => EtaBasis::Measured { runs: each.runs },
                None if derivation.basis == DemandBasis::Rule => EtaBasis::Said,
                None => return None,
            };
            Some((each_ms, basis))
        };
        let own = (self.done > 0 && pieces.done_ms > 0).then(|| {
            let basis = EtaBasis::Done { pieces: self.done };
            (pieces.done_ms.div_ceil(self.done), basis)
        });
        let (each_ms, basis) = own.or_else(said)?;
        let left = self.waiting + self.running;
        // Of what runs half is done, one with another.
        let halves = (2 * self.waiting + self.running).min(2 * left);
        let wide = u64::from(self.tasks_running.max(1));
        Some(Eta {
            left_ms: (each_ms / 2).max(1).saturating_mul(halves) / wide,
            basis,
        })
    }
}

impl Pieces {
    /// What one piece that was made cost, failed tries not counted.
    pub fn each_micros(&self) -> Option<i64> {
        let done = i64::try_from(self.done.count()).ok().filter(|done| *done > 0)?;
        Some(self.done_micros / done)
    }
}

/// What a job's pieces are called.
pub fn one(spec: &JobSpec) -> &'static str {
    match spec.workload.as_deref().and_then(Workload::frame_list) {
        Some(_) => "frame",
        None => "segment",
    }
}

/// Pieces by the numbers their user knows: frames as lists have them, segments counted from 0.
pub fn named(spec: &JobSpec, places: &Spans) -> String {
    let frames = spec.workload.as_deref().and_then(Workload::frame_list);
    let mut words: Vec<String> = Vec::new();
    for span in places.iter() {
        if words.len() == NAMED {
            words.push("…".into());
            break;
        }
        words.push(numbers(frames, span));
    }
    words.join(",")
}

/// The pieces of a task.
pub fn pieces_of(spec: &JobSpec) -> String {
    match (
        spec.workload.as_deref().and_then(Workload::frame_list),
        &spec.task,
    ) {
        (Some(frames), _) => frames.to_string(),
        (None, Some(task)) => numbers(None, task.work.span()),
        (None, None) => String::new(),
    }
}

fn numbers(frames: Option<&Frames>, span: Span) -> String {
    if let Some(part) = frames.and_then(|frames| frames.part(span.first, span.count)) {
        return part.to_string();
    }
    match span.count {
        1 => span.first.to_string(),
        _ => format!("{}-{}", span.first, span.end() - 1),
    }
}

impl Tasks {
    /// The living tasks among all jobs.
    pub fn jobs<'a>(&'a self, jobs: &'a Roster) -> impl Iterator<Item = &'a Job> {
        self.living.values().filter_map(|id| jobs.get(id))
    }
}
