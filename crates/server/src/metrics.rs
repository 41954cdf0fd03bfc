//! Metrics: what this process counted since it began, and the pages that scrapers read.
//!
//! Counted are requests, decisions, commits, and what became of jobs; all else is asked of the state when somebody
//! looks (`own`), or of the last readings (`dcgm`). Both pages are written by hand (decision 35). Absent: who may look
//! (`routes/metric`), and anything durable: what is charged or promised never rests on a count here. A new leader
//! counts from nothing.
//!
//! Bounded: operations and codes are those of the program, tenants told apart are so many and no more.

pub(crate) mod dcgm;
mod histogram;
pub(crate) mod own;
pub(crate) mod sight;
pub(crate) mod text;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{PauseReason, StopReason};
use tenure_domain::workload::spec::Priority;
use tenure_domain::{Code, Event, State, Time};

use histogram::Histogram;
use text::Page;

/// Tenants told apart; the rest is counted together.
const MAX_TENANTS: usize = 1000;
/// Neither can be the name of a tenant.
const STAFF: &str = "(platform)";
const OTHERS: &str = "(others)";

const REQUEST_S: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
const COMMIT_S: &[f64] = &[
    0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
];
const WAIT_S: &[f64] = &[
    0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 604_800.0,
];

/// What is counted.
pub struct Metrics {
    accepted: AtomicU64,
    refused: Vec<AtomicU64>,
    commits: Mutex<Histogram>,
    committed_events: AtomicU64,
    streamed_events: AtomicU64,
    requests: Mutex<BTreeMap<String, Operation>>,
    problems: Mutex<BTreeMap<String, u64>>,
    tenants: Mutex<BTreeMap<String, Fate>>,
    pub(crate) webhooks: Tries,
    pub(crate) traces: Spans,
}

/// What was sent, by whether it was taken.
#[derive(Default)]
pub(crate) struct Tries {
    taken: AtomicU64,
    failed: AtomicU64,
}

impl Tries {
    pub fn count(&self, taken: bool) {
        let count = if taken { &self.taken } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn write(&self, page: &mut Page) {
        for (result, count) in [("taken", &self.taken), ("failed", &self.failed)] {
            page.put(&[("result", result)], count.load(Ordering::Relaxed));
        }
    }
}

/// Spans for the operator's collector, by what became of them, and the requests that brought them there.
#[derive(Default)]
pub(crate) struct Spans {
    sent: AtomicU64,
    rejected: AtomicU64,
    dropped: AtomicU64,
    requests: Tries,
}

impl Spans {
    pub fn asked(&self, taken: bool) {
        self.requests.count(taken);
    }

    pub fn sent(&self, count: u64) {
        self.sent.fetch_add(count, Ordering::Relaxed);
    }

    /// The collector does not want them.
    pub fn rejected(&self, count: u64) {
        self.rejected.fetch_add(count, Ordering::Relaxed);
    }

    /// There was no room for them.
    pub fn dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    fn write(&self, page: &mut Page) {
        page.counter(
            "tenure_trace_spans",
            "Spans of jobs for the collector, by what became of them; dropped are those there was no room for.",
        );
        for (result, count) in [
            ("sent", &self.sent),
            ("rejected", &self.rejected),
            ("dropped", &self.dropped),
        ] {
            page.put(&[("result", result)], count.load(Ordering::Relaxed));
        }
        page.counter(
            "tenure_trace_requests",
            "Requests to the collector, by whether it took what was sent.",
        );
        self.requests.write(page);
    }
}

/// One operation's requests.
struct Operation {
    by_status: BTreeMap<u16, u64>,
    took: Histogram,
}

/// What became of a tenant's jobs.
#[derive(Default)]
struct Fate {
    waits: BTreeMap<Priority, Histogram>,
    /// By how they gave way.
    evictions: BTreeMap<&'static str, u64>,
    /// By outcome.
    ended: BTreeMap<&'static str, u64>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            accepted: AtomicU64::new(0),
            refused: Code::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            commits: Mutex::new(Histogram::new(COMMIT_S)),
            committed_events: AtomicU64::new(0),
            streamed_events: AtomicU64::new(0),
            requests: Mutex::default(),
            problems: Mutex::default(),
            tenants: Mutex::default(),
            webhooks: Tries::default(),
            traces: Spans::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("short and without panics")
}

impl Metrics {
    /// An answer went out, or its first bytes.
    pub(crate) fn answered(&self, operation: Option<&str>, status: u16, took: Duration) {
        let operation = operation.unwrap_or("none");
        let mut requests = lock(&self.requests);
        if !requests.contains_key(operation) {
            let new = Operation {
                by_status: BTreeMap::new(),
                took: Histogram::new(REQUEST_S),
            };
            requests.insert(operation.to_owned(), new);
        }
        let counted = requests.get_mut(operation).expect("just made");
        *counted.by_status.entry(status).or_default() += 1;
        counted.took.add(took.as_secs_f64());
    }

    /// An answer was a problem.
    pub(crate) fn problem(&self, code: &str) {
        let mut problems = lock(&self.problems);
        match problems.get_mut(code) {
            Some(count) => *count += 1,
            None => drop(problems.insert(code.to_owned(), 1)),
        }
    }

    pub(crate) fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, code: Code) {
        let place = Code::ALL.iter().position(|known| *known == code);
        if let Some(count) = place.and_then(|place| self.refused.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A batch became durable.
    pub(crate) fn committed(&self, events: usize, took: Duration) {
        self.committed_events.fetch_add(events as u64, Ordering::Relaxed);
        lock(&self.commits).add(took.as_secs_f64());
    }

    /// An event was read for somebody's stream, whether or not they were shown it.
    pub(crate) fn streamed(&self) {
        self.streamed_events.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes note of what an event says became of a job; `state` is that before the event.
    pub(crate) fn note(&self, state: &State, at: Time, event: &Event) {
        let (Event::JobPlaced { job, .. }
        | Event::JobPausing { job, .. }
        | Event::JobStopping { job, .. }
        | Event::JobEnded { job, .. }) = event
        else {
            return;
        };
        let Some(job) = state.jobs.get(job) else { return };
        let tenant = match state.tree.tenant_of(ScopeId::User(job.owner)) {
            None => STAFF,
            Some(tenant) => state
                .tree
                .get(ScopeId::Tenant(tenant))
                .map_or(OTHERS, |tenant| &tenant.name),
        };
        let mut tenants = lock(&self.tenants);
        let tenant = match tenants.contains_key(tenant) || tenants.len() < MAX_TENANTS {
            true => tenant,
            false => OTHERS,
        };
        if !tenants.contains_key(tenant) {
            tenants.insert(tenant.to_owned(), Fate::default());
        }
        let fate = tenants.get_mut(tenant).expect("just made");
        match event {
            Event::JobPlaced { .. } => {
                let waits = fate.waits.entry(job.spec.priority);
                let waited_s = at.since_ms(job.since) as f64 / 1000.0;
                waits.or_insert_with(|| Histogram::new(WAIT_S)).add(waited_s);
            }
            Event::JobPausing {
                reason: PauseReason::Preempted,
                ..
            } => *fate.evictions.entry("paused").or_default() += 1,
            Event::JobStopping {
                reason: StopReason::Evicted,
                ..
            } => *fate.evictions.entry("stopped").or_default() += 1,
            Event::JobEnded { outcome, .. } => *fate.ended.entry(outcome.as_str()).or_default() += 1,
            _ => {}
        }
    }

    /// What concerns the process as a whole.
    fn write_process(&self, page: &mut Page) {
        page.counter("tenure_decisions", "Commands decided, by what was said to them.");
        let refused: u64 = self
            .refused
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum();
        page.put(&[("outcome", "accepted")], self.accepted.load(Ordering::Relaxed));
        page.put(&[("outcome", "refused")], refused);
        page.counter("tenure_refusals", "Commands refused, by the code of the reason.");
        for (code, count) in Code::ALL.iter().zip(&self.refused) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                page.put(&[("code", code.as_str())], count);
            }
        }
        page.counter("tenure_committed_events", "Events this process made durable.");
        page.put(&[], self.committed_events.load(Ordering::Relaxed));
        page.counter(
            "tenure_streamed_events",
            "Events this process read for event streams, whether or not they were shown.",
        );
        page.put(&[], self.streamed_events.load(Ordering::Relaxed));
        page.histogram(
            "tenure_commit_duration_seconds",
            "How long it took to make a batch of events durable.",
        );
        page.spread(&[], &lock(&self.commits));
        let requests = lock(&self.requests);
        page.counter(
            "tenure_http_requests",
            "Requests answered, by operation and status.",
        );
        for (operation, counted) in requests.iter() {
            for (status, count) in &counted.by_status {
                page.put(
                    &[("operation", operation), ("status", &status.to_string())],
                    count,
                );
            }
        }
        page.histogram(
            "tenure_http_request_duration_seconds",
            "From a request's head to the head of its answer, by operation.",
        );
        for (operation, counted) in requests.iter() {
            page.spread(&[("operation", operation)], &counted.took);
        }
        drop(requests);
        page.counter(
            "tenure_http_problems",
            "Answers that were problems, by their code.",
        );
        for (code, count) in lock(&self.problems).iter() {
            page.put(&[("code", code)], count);
        }
        page.counter(
            "tenure_webhook_requests",
            "Requests to webhooks' receivers, by whether they took what was sent.",
        );
        self.webhooks.write(page);
        self.traces.write(page);
    }

    /// What became of the jobs of those tenants that are `seen`.
    fn write_fates(&self, page: &mut Page, seen: impl Fn(&str) -> bool) {
        let tenants = lock(&self.tenants);
        let tenants: Vec<_> = tenants.iter().filter(|(tenant, _)| seen(tenant)).collect();
        page.histogram(
            "tenure_job_wait_seconds",
            "How long jobs waited before they were given their place, each time.",
        );
        for (tenant, fate) in &tenants {
            for (priority, waits) in &fate.waits {
                page.spread(&[("tenant", tenant), ("priority", priority.as_str())], waits);
            }
        }
        page.counter(
            "tenure_evictions",
            "Running jobs that were told to give way, by how.",
        );
        for (tenant, fate) in &tenants {
            for (way, count) in &fate.evictions {
                page.put(&[("tenant", tenant), ("way", way)], count);
            }
        }
        page.counter("tenure_jobs_ended", "Jobs that ended, by outcome.");
        for (tenant, fate) in &tenants {
            for (outcome, count) in &fate.ended {
                page.put(&[("tenant", tenant), ("outcome", outcome)], count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use text::Form;

    #[test]
    fn what_is_counted_is_written() {
        let metrics = Metrics::default();
        metrics.accepted();
        metrics.refused(Code::NotFound);
        metrics.refused(Code::NotFound);
        metrics.committed(3, Duration::from_millis(2));
        metrics.streamed();
        metrics.answered(Some("jobs"), 200, Duration::from_millis(3));
        metrics.answered(None, 404, Duration::from_millis(1));
        metrics.problem("route_not_found");
        let mut page = Page::new(Form::Prometheus);
        metrics.write_process(&mut page);
        let text = page.end();
        for line in [
            "tenure_decisions_total{outcome=\"accepted\"} 1",
            "tenure_decisions_total{outcome=\"refused\"} 2",
            "tenure_refusals_total{code=\"not_found\"} 2",
            "tenure_committed_events_total 3",
            "tenure_streamed_events_total 1",
            "tenure_commit_duration_seconds_bucket{le=\"0.0025\"} 1",
            "tenure_commit_duration_seconds_bucket{le=\"0.001\"} 0",
            "tenure_commit_duration_seconds_count 1",
            "tenure_http_requests_total{operation=\"jobs\",status=\"200\"} 1",
            "tenure_http_requests_total{operation=\"none\",status=\"404\"} 1",
            "tenure_http_problems_total{code=\"route_not_found\"} 1",
        ] {
            assert!(text.lines().any(|written| written == line), "{line}\n{text}");
        }
    }
}
