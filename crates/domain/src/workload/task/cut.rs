//! How a job is cut into tasks: what its user says of it, and what is chosen where nothing is said.

use serde::{Deserialize, Serialize};

use super::words;
use crate::refusal::Refusal;
use crate::workload::Workload;
use crate::workload::derive::Derivation;
use crate::workload::spec::JobSpec;

/// Tasks of one job at once, and in all.
pub const MAX_PARALLEL: u32 = 1024;
pub const MAX_TASKS: u64 = 10_000;
const MAX_TRIES: u32 = 100;
const DEFAULT_TRIES: u32 = 3;
/// A task is so long that starting it costs little, and so short that losing it does.
const LONG_MS: u64 = 300_000;
/// Tasks at once that pieces are shared out for, where nobody says how many there are to be.
const USUAL_PARALLEL: u32 = 16;

/// What a job's user says of its tasks; what is absent is chosen when it is submitted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// How many tasks there are at once at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u32>,
    /// How many frames or segments a task does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_task: Option<u64>,
    /// How often a frame or segment is tried before the job does without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
    /// The first frame or segment that fails for good ends the job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_fast: bool,
    /// Not cut at all: one program does everything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
}

impl Cut {
    pub fn tries(&self) -> u32 {
        self.tries.unwrap_or(DEFAULT_TRIES)
    }

    pub fn parallel(&self) -> u32 {
        self.parallel.unwrap_or(MAX_PARALLEL)
    }
}

/// Refuses what cannot be cut so.
pub(crate) fn check(spec: &JobSpec) -> Result<(), Refusal> {
    let Some(cut) = &spec.tasks else { return Ok(()) };
    let refuse = |field: &str, why: String| Err(Refusal::invalid(format!("/tasks/{field}"), why));
    if spec.workload.as_deref().and_then(Workload::pieces).is_none() {
        return Err(
            Refusal::invalid("/tasks", "only frames and segments are cut into tasks")
                .hint("say which frames, or how long the clip is"),
        );
    }
    if cut
        .parallel
        .is_some_and(|parallel| parallel == 0 || parallel > MAX_PARALLEL)
    {
        return refuse("parallel", format!("a job has 1 to {MAX_PARALLEL} tasks at once"));
    }
    if cut.per_task == Some(0) {
        return refuse("per_task", "a task does at least one frame or segment".into());
    }
    if cut.tries.is_some_and(|tries| tries == 0 || tries > MAX_TRIES) {
        return refuse(
            "tries",
            format!("a frame or segment is tried 1 to {MAX_TRIES} times"),
        );
    }
    let said = cut.parallel.is_some() || cut.per_task.is_some() || cut.tries.is_some() || cut.fail_fast;
    if cut.whole && said {
        return refuse("whole", "a job that is not cut has no tasks to speak of".into());
    }
    Ok(())
}

/// Cuts a job of frames or segments that did not ask to be left whole. `most` is how many tasks at once the policies
/// above it allow.
pub(crate) fn fill(spec: &mut JobSpec, derivation: &Derivation, most: Option<u32>) -> Result<(), Refusal> {
    let Some(workload) = spec.workload.as_deref() else {
        return Ok(());
    };
    let cut = spec.tasks.unwrap_or_default();
    let Some(pieces) = workload.pieces().filter(|_| !cut.whole) else {
        return Ok(());
    };
    let fixed = [(spec.stdin, "/stdin"), (spec.tty, "/tty")];
    if let Some((_, field)) = fixed.into_iter().find(|(said, _)| *said) {
        return Err(Refusal::invalid(
            field,
            "a job of tasks has many programs, and nobody is at one of them",
        )
        .hint("leave it whole, with `--whole`"));
    }
    let alone = words::check(&spec.command, workload)?;
    if let (Some(per_task), Some(word)) = (cut.per_task.filter(|&per_task| per_task > 1), alone) {
        return Err(Refusal::invalid(
            "/tasks/per_task",
            format!("the command says {{{word}}}, which is one alone, and a task would do {per_task}"),
        )
        .hint("say {frames}, or {first} and {last}, or {start} and {end}"));
    }
    let least = pieces.div_ceil(MAX_TASKS);
    if cut.per_task.is_some_and(|per_task| per_task < least) || alone.is_some() && least > 1 {
        return Err(Refusal::invalid(
            "/tasks/per_task",
            format!("{pieces} pieces are more than {MAX_TASKS} tasks; each does at least {least}"),
        ));
    }
    let chosen = match (alone, each_ms(derivation, pieces)) {
        (Some(_), _) | (None, None) => 1,
        (None, Some(each_ms)) => (LONG_MS / each_ms.max(1)).max(1),
    };
    // As many as there are at once have something to do.
    let wide = u64::from(
        cut.parallel
            .unwrap_or(USUAL_PARALLEL)
            .min(most.unwrap_or(u32::MAX)),
    );
    let chosen = chosen.min(pieces.div_ceil(wide)).max(least);
    spec.tasks = Some(Cut {
        per_task: Some(cut.per_task.unwrap_or(chosen).min(pieces)),
        parallel: cut.parallel.or(most.map(|most| most.min(MAX_PARALLEL))),
        tries: Some(cut.tries()),
        ..cut
    });
    Ok(())
}

/// How long one piece is expected to take.
fn each_ms(derivation: &Derivation, pieces: u64) -> Option<u64> {
    derivation.run_ms.map(|run_ms| run_ms.div_ceil(pieces.max(1)))
}

impl JobSpec {
    /// How long one of its tasks takes, where all of it takes so long.
    pub(crate) fn share_of_task(&self, run_ms: u64) -> u64 {
        let cut = self.tasks.filter(|cut| !cut.whole).and_then(|cut| cut.per_task);
        let pieces = self.workload.as_deref().and_then(Workload::pieces);
        match cut.zip(pieces.filter(|&pieces| pieces > 0)) {
            Some((per_task, pieces)) => run_ms.div_ceil(pieces).saturating_mul(per_task),
            None => run_ms,
        }
    }
}
