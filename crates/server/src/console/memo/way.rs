//! What a job did from when to when, by its own events: read once from its submission on, a bounded stretch with each
//! look, and from then on only what is new.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use tenure_api::v1::job::JobView;
use tenure_domain::id::JobId;
use tenure_journal::{JournalReader, Line};

use super::kind;
use crate::controller::Controller;

/// Events read at once, and how long one look may take.
const STRETCH: usize = 1000;
const PATIENCE: Duration = Duration::from_millis(150);
/// Steps kept of one job, and jobs remembered.
const STEPS: usize = 64;
const JOBS: usize = 200;
/// A job's id is made a moment before its submission is written down.
const BEFORE_MS: i64 = 2_000;

/// From when to when a job did something, in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::console) struct Span {
    pub what: &'static str,
    pub from: i64,
    pub to: i64,
}

/// A job's way as far as it was read.
pub(in crate::console) struct Trodden {
    pub spans: Vec<Span>,
    /// There were more before these.
    pub cut: bool,
    /// The last event looked at, where there are more to look at.
    pub so_far: Option<u64>,
}

#[derive(Default)]
pub(super) struct Ways {
    of: HashMap<JobId, Way>,
    looks: u64,
}

struct Way {
    /// The next event to look at.
    next: u64,
    steps: VecDeque<(i64, &'static str)>,
    cut: bool,
    /// Its last event was read.
    is_over: bool,
    looked: u64,
}

impl Ways {
    pub async fn look(&mut self, controller: &Controller, job: &JobView) -> Trodden {
        self.looks += 1;
        if self.of.len() >= JOBS && !self.of.contains_key(&job.id) {
            let oldest = self
                .of
                .iter()
                .min_by_key(|(_, way)| way.looked)
                .map(|(id, _)| *id);
            oldest.and_then(|id| self.of.remove(&id));
        }
        let (reader, head) = (controller.reader(), controller.view().seq());
        let way = match self.of.entry(job.id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let next = since(reader, head, job.submitted.0.0 - BEFORE_MS).await;
                place.insert(Way::new(next))
            }
        };
        way.looked = self.looks;
        let (begun, id) = (Instant::now(), job.id.to_string());
        while !way.is_over && way.next <= head && begun.elapsed() < PATIENCE {
            let Ok(lines) = reader.read(way.next, STRETCH).await else {
                break;
            };
            if lines.is_empty() {
                break;
            }
            way.read(&lines, &id);
        }
        let over = job.ended.map(|ended| ended.0.0);
        way.told(over.unwrap_or_else(|| crate::controller::now().0), head)
    }
}

impl Way {
    fn new(next: u64) -> Way {
        Way {
            next,
            steps: VecDeque::new(),
            cut: false,
            is_over: false,
            looked: 0,
        }
    }

    fn read(&mut self, lines: &[Line], id: &str) {
        for line in lines {
            self.next = line.seq + 1;
            if let Some(step) = step(&line.event, id) {
                self.take(line.at_ms, step);
            }
            if self.is_over {
                return;
            }
        }
    }

    fn take(&mut self, at_ms: i64, step: Step) {
        match step {
            Step::Ended => {
                self.steps.push_back((at_ms, ""));
                self.is_over = true;
            }
            // It is what it was before it was asked for something else.
            Step::Kept => {
                let last = self.steps.back().map(|(_, what)| *what);
                let what = if last == Some("Resumed") { "Paused" } else { "Ran" };
                self.steps.push_back((at_ms, what));
            }
            Step::Is(what) if self.steps.back().is_some_and(|(_, last)| *last == what) => {}
            Step::Is(what) => self.steps.push_back((at_ms, what)),
        }
        if self.steps.len() > STEPS {
            self.steps.pop_front();
            self.cut = true;
        }
    }

    /// Its spans; what it did last goes on until it ended, or now.
    fn told(&self, until: i64, head: u64) -> Trodden {
        let so_far = (!self.is_over && self.next <= head).then(|| self.next - 1);
        let ends = self.steps.iter().skip(1).map(|(at, _)| *at);
        // Where it was not read to its end, nothing is known of what it did after its last step.
        let last = match so_far {
            Some(_) => self.steps.back().map_or(until, |(at, _)| *at),
            None => until,
        };
        let spans = self.steps.iter().zip(ends.chain([last]));
        let spans = spans.filter(|((from, what), to)| !what.is_empty() && to > from);
        Trodden {
            spans: spans
                .map(|((from, what), to)| Span {
                    what,
                    from: *from,
                    to,
                })
                .collect(),
            cut: self.cut,
            so_far,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Is(&'static str),
    Kept,
    Ended,
}

/// What an event says the job does from then on.
fn step(text: &str, id: &str) -> Option<Step> {
    let step = match kind(text) {
        "JobSubmitted" | "TaskSubmitted" | "JobRequeued" => Step::Is("Waited"),
        "JobPlaced" | "JobStarting" => Step::Is("Started up"),
        "JobRunning" => Step::Is("Ran"),
        "JobPaused" => Step::Is("Paused"),
        "JobWanted" => Step::Is("Waited to go on"),
        "JobResuming" => Step::Is("Resumed"),
        "JobKept" => Step::Kept,
        "JobStopping" => Step::Is("Stopped"),
        "JobPausing" => Step::Is("Made room"),
        "JobEnded" => Step::Ended,
        _ => return None,
    };
    // Its own are those whose field `job` it is: a task's other events name the job it is of as well.
    text.contains(&format!("\"job\":\"{id}\"")).then_some(step)
}

/// The first event that is not older than a moment, found by halves; the newest where all are.
pub(in crate::console) async fn since(reader: &JournalReader, head: u64, at_ms: i64) -> u64 {
    let (mut before, mut from) = (0, head.max(1));
    while before + 1 < from {
        let middle = before + (from - before) / 2;
        match reader
            .read(middle, 1)
            .await
            .ok()
            .and_then(|mut lines| lines.pop())
        {
            Some(line) if line.at_ms < at_ms => before = middle,
            _ => from = middle,
        }
    }
    from
}

#[cfg(test)]
mod tests;
