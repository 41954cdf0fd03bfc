//! Ids of traces and spans: worked out from what they are of, and never drawn. Whoever tells of a span again, after a
//! crash or from another server, tells of the same one; nothing has to be kept for that.

use sha2::{Digest, Sha256};
use tenure_domain::State;
use tenure_domain::id::JobId;
use tenure_domain::workload::job::Job;
use tenure_domain::workload::trace::{SpanId, TraceId, TraceParent};

use super::setting::Sampler;

/// What a job's spans are called, for their ids and for people.
pub(super) mod name {
    pub const JOB: &str = "job";
    pub const SUBMIT: &str = "POST /v1/jobs";
    pub const ATTEMPT: &str = "attempt";
    pub const MEMBER: &str = "member";
    pub const ORDER: &str = "order";
    pub const STARTING: &str = "starting";
}

/// A job's place among traces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub trace: TraceId,
    /// The span of the whole job.
    pub job: SpanId,
    /// Whoever submitted it was in this one.
    pub caller: Option<SpanId>,
    /// The job it is a task of, in a trace of its own.
    pub of: Option<(TraceId, SpanId)>,
    pub is_sampled: bool,
}

impl Context {
    /// As what is below a span is told of it.
    pub fn parent(&self, span: SpanId) -> TraceParent {
        TraceParent::new(self.trace, span, self.is_sampled)
    }
}

#[derive(Debug)]
pub(super) struct Ids {
    platform: String,
    sampler: Sampler,
}

impl Ids {
    pub fn new(platform: &str, sampler: Sampler) -> Ids {
        Ids {
            platform: platform.to_owned(),
            sampler,
        }
    }

    fn digest(&self, of: &str, job: JobId, numbers: [u64; 2]) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for text in ["tenure", &self.platform, of] {
            hasher.update(text.as_bytes());
            hasher.update([0]);
        }
        hasher.update(job.0.to_be_bytes());
        numbers
            .iter()
            .for_each(|number| hasher.update(number.to_be_bytes()));
        hasher.finalize().into()
    }

    fn own_trace(&self, job: JobId) -> TraceId {
        let bytes = first(&self.digest("trace", job, [0, 0]));
        // Once in so many that it was never seen.
        TraceId::new(bytes).unwrap_or_else(|| TraceId::new([1; 16]).expect("not of zeros"))
    }

    /// A span of a job: which attempt it is of, and what else tells it from those of its name.
    pub fn span(&self, job: JobId, name: &str, attempt: u32, which: u64) -> SpanId {
        let bytes = first(&self.digest(name, job, [u64::from(attempt), which]));
        SpanId::new(bytes).unwrap_or_else(|| SpanId::new([1; 8]).expect("not of zeros"))
    }

    /// A job's place, by what it was submitted with; `of` is the job it is a task of, and what that was submitted with.
    pub fn context(
        &self,
        job: JobId,
        caller: Option<TraceParent>,
        of: Option<(JobId, Option<TraceParent>)>,
    ) -> Context {
        let of = of.map(|(of, caller)| self.context(of, caller, None));
        let trace = caller.map_or_else(|| self.own_trace(job), |caller| caller.trace);
        Context {
            trace,
            job: self.span(job, name::JOB, 0, 0),
            caller: caller.map(|caller| caller.span),
            of: of.map(|of| (of.trace, of.job)),
            // Of a job and its tasks all are told, or none.
            is_sampled: of.map_or_else(|| self.sampler.takes(&trace, caller), |of| of.is_sampled),
        }
    }

    pub fn context_of(&self, state: &State, job: &Job) -> Context {
        let of = job.parent().map(|of| (of, caller_of(state, of)));
        self.context(job.id, job.trace, of)
    }
}

fn caller_of(state: &State, job: JobId) -> Option<TraceParent> {
    state.jobs.get(&job).and_then(|job| job.trace)
}

/// What a job was submitted with, or the job it is a task of.
pub(super) fn submitted_with(state: &State, job: &Job) -> Option<TraceParent> {
    job.trace
        .or_else(|| job.parent().and_then(|of| caller_of(state, of)))
}

fn first<const N: usize>(digest: &[u8; 32]) -> [u8; N] {
    std::array::from_fn(|at| digest[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_same_each_time_and_none_is_anothers() {
        let ids = Ids::new("plt_1", Sampler::default());
        let again = Ids::new("plt_1", Sampler::default());
        let (one, other) = (JobId(1), JobId(2));
        assert_eq!(
            ids.context(one, None, None).trace,
            again.context(one, None, None).trace
        );
        assert_eq!(ids.span(one, "running", 1, 5), again.span(one, "running", 1, 5));
        let elsewhere = Ids::new("plt_2", Sampler::default());
        let all = [
            ids.span(one, "running", 1, 5),
            ids.span(one, "running", 2, 5),
            ids.span(one, "running", 1, 6),
            ids.span(one, "paused", 1, 5),
            ids.span(other, "running", 1, 5),
            elsewhere.span(one, "running", 1, 5),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn a_task_is_in_a_trace_of_its_own_that_knows_its_jobs() {
        let ids = Ids::new("plt_1", Sampler::default());
        let caller: TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
            .parse()
            .unwrap();
        let job = ids.context(JobId(1), Some(caller), None);
        assert_eq!((job.trace, job.caller), (caller.trace, Some(caller.span)));
        assert!(!job.is_sampled, "its caller's word");
        let task = ids.context(JobId(2), None, Some((JobId(1), Some(caller))));
        assert_eq!(task.of, Some((caller.trace, job.job)));
        assert_ne!(task.trace, job.trace);
        assert!(!task.is_sampled, "as its job");
    }
}
