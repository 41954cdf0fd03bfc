//! Traces: every job as one trace in the operator's collector, from its submission to its end (decision 40).
//!
//! The server that leads goes along with what is published, as other readers do, and makes spans of it; beside them what
//! only it sees: the request that submitted a job, the order that went to a node, and what the node says its start took.
//! Nothing here is waited for: what the collector does not take in time is dropped and counted. How far spans were taken
//! is marked beside the journal, so that after a crash they are told of again, each with the id it had. Absent: what is
//! told of whom but the operator (nobody else is), and any word of what a job runs.

mod exporter;
mod id;
mod life;
mod post;
mod queue;
mod sender;
mod setting;
mod span;
mod start;

use std::sync::{Arc, Mutex};

use tenure_domain::id::JobId;
use tenure_domain::workload::job::Job;
use tenure_domain::workload::trace::{TraceId, TraceParent};
use tenure_domain::{State, Time};
use tokio::sync::mpsc;

use crate::controller::{Controller, now};
use id::{Ids, name};
use span::{Kind, Span, Value, ns};

pub use exporter::Exporter;
pub use setting::{Sampler, TraceOptions};

/// What is seen beside the journal waits for so many; beyond that it is dropped.
const OBSERVED: usize = 8192;

/// What was seen of a job and is in no journal.
enum Observed {
    Span(Box<Span>),
    /// The request that submitted it came then.
    Asked {
        job: JobId,
        began_ns: u64,
    },
}

/// Where jobs are told of. Those who see something say it here, and never wait.
pub struct Traces {
    options: TraceOptions,
    ids: Arc<Ids>,
    observed: mpsc::Sender<Observed>,
    heard: Mutex<Option<mpsc::Receiver<Observed>>>,
}

/// A request that submitted a job, for whoever measures requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Submitted {
    pub job: JobId,
    pub trace: Option<TraceParent>,
}

impl Traces {
    /// `platform` and `host` are said of this server where the operator says nothing else.
    pub fn new(mut options: TraceOptions, platform: &str, host: &str) -> Arc<Traces> {
        options.say("service.version", env!("CARGO_PKG_VERSION").to_owned());
        options.say("service.instance.id", format!("{platform}@{host}"));
        options.say("host.name", host.to_owned());
        options.say("tenure.platform.id", platform.to_owned());
        let (observed, heard) = mpsc::channel(OBSERVED);
        Arc::new(Traces {
            ids: Arc::new(Ids::new(platform, options.sampler)),
            options,
            observed,
            heard: Mutex::new(Some(heard)),
        })
    }

    fn say(&self, controller: &Controller, observed: Observed) {
        if self.observed.try_send(observed).is_err() {
            controller.metrics().traces.dropped(1);
        }
    }

    /// A request has submitted a job and was answered.
    pub(crate) fn submitted(&self, controller: &Controller, by: Submitted, began: Time, status: u16) {
        let context = self.ids.context(by.job, by.trace, None);
        if !context.is_sampled {
            return;
        }
        let began_ns = ns(began);
        self.say(
            controller,
            Observed::Asked {
                job: by.job,
                began_ns,
            },
        );
        let attributes = vec![
            ("http.request.method", Value::text("POST")),
            ("http.route", Value::text("/v1/jobs")),
            ("http.response.status_code", Value::Number(status.into())),
            ("tenure.job.id", Value::text(by.job)),
        ];
        let span = Span {
            trace: context.trace,
            id: self.ids.span(by.job, name::SUBMIT, 0, 0),
            parent: Some(context.job),
            parent_is_remote: false,
            name: name::SUBMIT,
            kind: Kind::Server,
            began_ns,
            ended_ns: ns(now()),
            attributes,
            moments: Vec::new(),
            link: None,
            error: None,
        };
        self.say(controller, Observed::Span(Box::new(span)));
    }

    /// The trace in which is told of a job.
    pub(crate) fn trace_of(&self, job: JobId, submitted_with: Option<TraceParent>) -> TraceId {
        self.ids.context(job, submitted_with, None).trace
    }
}

/// What a job's processes are told of their trace: below their attempt where that is told of, and as their caller said
/// where not.
pub(crate) fn handed_on(
    traces: Option<&Arc<Traces>>,
    state: &State,
    job: &Job,
    attempt: u32,
) -> Option<TraceParent> {
    let caller = id::submitted_with(state, job);
    let Some(traces) = traces else { return caller };
    let context = traces.ids.context_of(state, job);
    match caller {
        Some(caller) if !context.is_sampled => Some(caller),
        _ => Some(context.parent(traces.ids.span(job.id, name::ATTEMPT, attempt, 0))),
    }
}
