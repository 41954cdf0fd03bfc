//! The book of a job's pieces: which were made, which failed for good, which are to be done again, and how many were
//! never given out. Every piece is in one of them, or with one living task.
//!
//! Absent: who works on which (each task knows), and when a task is made (`decide/task`).

use serde::{Deserialize, Serialize};

use super::span::{Span, Spans};
use crate::workload::Workload;
use crate::workload::spec::JobSpec;

/// A run of pieces whose task failed is done again in so many parts, until what fails is alone. Halves would do the
/// others over and over; one at a time would start as many programs as there are pieces.
const PARTS: u64 = 8;

/// Pieces to be done again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Again {
    pub span: Span,
    /// How often one that is alone failed.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub tries: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces {
    pub total: u64,
    /// Those from this place on were never given out.
    pub given: u64,
    /// Given back by their tasks; what came first goes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<Again>,
    #[serde(default, skip_serializing_if = "Spans::is_empty")]
    pub done: Spans,
    /// Failed as often as they may.
    #[serde(default, skip_serializing_if = "Spans::is_empty")]
    pub failed: Spans,
    /// Runs of pieces that were to be done again because a task failed.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub retries: u32,
    /// Run time of the tasks that succeeded.
    pub done_ms: u64,
    /// What they were charged.
    pub done_micros: i64,
}

impl Pieces {
    pub fn new(total: u64) -> Pieces {
        Pieces {
            total,
            ..Pieces::default()
        }
    }

    pub fn is_given_out(&self) -> bool {
        self.again.is_empty() && self.given == self.total
    }

    /// What the next task would do: what was begun before goes first. A run never passes the end of a range of frames,
    /// so that it has one first, one last and one step.
    pub(super) fn next(&self, spec: &JobSpec) -> Option<Again> {
        if let Some(again) = self.again.first() {
            return Some(*again);
        }
        let most = spec.tasks.and_then(|cut| cut.per_task).unwrap_or(1);
        let left = self.total - self.given;
        let frames = spec.workload.as_deref().and_then(Workload::frame_list);
        let within = frames.map_or(left, |frames| frames.left_in_range(self.given));
        let count = most.min(left).min(within);
        (count > 0).then(|| Again {
            span: Span::new(self.given, count),
            tries: 0,
        })
    }

    /// A task has them now.
    pub(super) fn take(&mut self, span: Span) {
        if let Some(at) = self.again.iter().position(|again| again.span == span) {
            self.again.remove(at);
            return;
        }
        // INVARIANT: what was never given out is given out in order.
        assert_eq!(span.first, self.given, "INVARIANT: {span:?} is not next");
        self.given = span.end();
    }

    /// Its task succeeded.
    pub(crate) fn made(&mut self, span: Span, ran_ms: u64, micros: i64) {
        self.done.add(span);
        self.done_ms += ran_ms;
        self.done_micros += micros;
    }

    /// Its task did not.
    pub(crate) fn returned(&mut self, again: &[Again], failed: Option<Span>, withdrawn: bool) {
        if !withdrawn {
            self.retries += u32::try_from(again.len()).unwrap_or(u32::MAX);
        }
        self.again.extend_from_slice(again);
        if let Some(failed) = failed {
            self.failed.add(failed);
        }
    }

    /// What is done again after a task failed, and what is not any more: a piece fails for good when it failed alone as
    /// often as it may be tried.
    pub fn after_failure(had: Again, most_tries: u32) -> (Vec<Again>, Option<Span>) {
        let Again { span, tries } = had;
        if span.count > 1 {
            let parts = span.split(PARTS).map(|span| Again { span, tries: 0 });
            return (parts.collect(), None);
        }
        match tries + 1 {
            tries if tries >= most_tries => (Vec::new(), Some(span)),
            tries => (vec![Again { span, tries }], None),
        }
    }
}
