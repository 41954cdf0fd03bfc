//! Deciding: takes commands in turn, applies what was decided to the writer's own state, and fills the next
//! batch while the last one is being written.

use std::sync::Arc;

use tenure_domain::ledger::bill;
use tenure_domain::schedule::order::walk::{Turn, Walk};
use tenure_domain::state::Retired;
use tenure_domain::{Actor, Command, Event, State, Wish, decide};
use tenure_journal::{HistoryRow, Journal, JournalError, KeyRow};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, MissedTickBehavior};

use super::clock::Clock;
use super::commit::Committer;
use super::{Accepted, Issued, Pending, PendingEvent, PendingReply, Request, WriterOptions};
use crate::metrics::Metrics;

/// No batch grows beyond this many events; callers wait for the disk instead.
const MAX_BATCH: usize = 4096;
/// Requests that wait already are decided one after the other, so many before the disk is looked at again.
const AT_ONCE: usize = 32;
/// Steps of the pass over the queue between two looks at the channels: few between two requests, so that a long queue
/// does not hold callers up, and more while nobody asks; and for no longer than this, whatever one costs.
const BUSY_STEPS: usize = 4;
const QUIET_STEPS: usize = 64;
const LONGEST: Duration = Duration::from_millis(2);
/// How often waiting jobs are looked at when nothing happened: a new budget period may have begun.
const IDLE_PASS: Duration = Duration::from_secs(10);

struct Writer {
    state: State,
    clock: Clock,
    batch: Pending,
    pass: Option<Pass>,
    metrics: Arc<Metrics>,
}

/// A pass over the queue that is under way.
struct Pass {
    walk: Walk,
    /// It began anew before the last one was over, and goes to its end: else, where jobs end all the time, the last in
    /// the queue would never be asked.
    goes_through: bool,
    /// Something was freed that jobs asked before could use.
    again: bool,
}

impl Pass {
    fn begin(state: &State, goes_through: bool) -> Pass {
        Pass {
            walk: Walk::begin(state, super::now()),
            goes_through,
            again: false,
        }
    }
}

pub(super) async fn run(
    state: State,
    mut queue: mpsc::Receiver<Request>,
    mut committer: Committer,
    options: WriterOptions,
    metrics: Arc<Metrics>,
) -> Result<Journal, JournalError> {
    let clock = Clock::after(super::now(), state.last_id);
    let mut writer = Writer {
        state,
        clock,
        batch: Pending::default(),
        pass: None,
        metrics,
    };
    writer.start_pass();
    let mut idle = tokio::time::interval(IDLE_PASS);
    idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut since_snapshot = 0;
    loop {
        let full = writer.batch.events.len() >= MAX_BATCH;
        let nothing = writer.batch.events.is_empty() && writer.batch.replies.is_empty();
        tokio::select! {
            biased;
            free = committer.free(), if !nothing => {
                since_snapshot += writer.batch.events.len() as u64;
                let snapshot = since_snapshot >= options.snapshot_after(&writer.state);
                if snapshot {
                    since_snapshot = 0;
                }
                committer.send(free?, std::mem::take(&mut writer.batch), snapshot);
            }
            request = queue.recv(), if !full => match request {
                Some(request) => writer.take_all(request, &mut queue),
                None => break,
            },
            // Giving way each time, or the channels above would find their share of polls used up and seem empty.
            () = tokio::task::yield_now(), if writer.pass.is_some() && !full => writer.pass_steps(QUIET_STEPS),
            _ = idle.tick() => writer.start_pass(),
        }
    }
    let free = committer.free().await?;
    committer.send(free, std::mem::take(&mut writer.batch), true);
    committer.finish().await
}

impl Writer {
    /// Decides a request, and some of those behind it.
    fn take_all(&mut self, first: Request, queue: &mut mpsc::Receiver<Request>) {
        self.take(first);
        self.pass_steps(BUSY_STEPS);
        for _ in 1..AT_ONCE {
            if self.batch.events.len() >= MAX_BATCH {
                break;
            }
            let Ok(request) = queue.try_recv() else { break };
            self.take(request);
            self.pass_steps(BUSY_STEPS);
        }
    }

    fn take(&mut self, request: Request) {
        let (at, ids) = self.clock.tick();
        let wish = match request.wish {
            // Once a pass is over nobody who waits can start; while it goes on, who comes would get before them.
            Wish::Submit { owner, spec, trace } if self.pass.is_some() => {
                Wish::Enqueue { owner, spec, trace }
            }
            wish => wish,
        };
        let command = Command {
            at,
            by: request.by,
            ids,
            wish,
        };
        let events = match decide(&self.state, &command) {
            Ok(events) => {
                self.metrics.accepted();
                self.absorb(&command, events, request.request_id)
            }
            Err(refusal) => {
                self.metrics.refused(refusal.code);
                // The caller may have gone away; that changes nothing.
                let _ = request.reply.send(Err(refusal));
                return;
            }
        };
        let accepted = Accepted {
            ids,
            at,
            seq: 0,
            events,
        };
        if let Some(keyed) = request.keyed {
            let (status, reply) = (keyed.render)(&self.state, &accepted);
            self.batch.keys.push(KeyRow {
                principal: keyed.principal,
                key: keyed.key,
                digest: keyed.digest,
                status,
                reply,
                at_ms: at.0,
            });
        }
        let events_so_far = self.batch.events.len() as u64;
        self.batch.replies.push(PendingReply {
            reply: request.reply,
            accepted,
            events_so_far,
        });
    }

    /// Applies decided events and puts them into the batch.
    fn absorb(
        &mut self,
        command: &Command,
        events: Vec<Event>,
        request_id: Option<String>,
    ) -> Vec<Arc<Event>> {
        let by: Arc<str> = command.by.to_string().into();
        let request_id: Option<Arc<str>> = request_id.map(Into::into);
        let mut shared = Vec::with_capacity(events.len());
        for event in events {
            let place = self.batch.events.len();
            let rows = bill::rows(&self.state, command.at, &event);
            self.batch.bill.extend(rows.into_iter().map(|row| (place, row)));
            self.metrics.note(&self.state, command.at, &event);
            if let Event::InvoiceIssued { invoice } = &event {
                let issued = Issued {
                    id: invoice.id,
                    path: self.state.tree.path(invoice.draft.scope),
                    at: command.at,
                };
                self.batch.issued.push((place, issued));
            }
            if let Some(retired) = self.state.apply(command.at, &event) {
                self.batch.history.push(history_row(&retired));
            }
            if frees_or_allows(&event) {
                self.start_pass();
            }
            if let Event::JobSubmitted { job, .. } | Event::TaskSubmitted { job, .. } = &event
                && let (Some(pass), Some(job)) = (&mut self.pass, self.state.jobs.get(job))
                && self.state.queue.contains(job)
            {
                pass.again |= !pass.walk.joined(&self.state, job);
            }
            if self.pass.is_none() && comes_to_wait(&event) {
                self.start_pass();
            }
            let event = Arc::new(event);
            self.batch.events.push(PendingEvent {
                at: command.at,
                by: by.clone(),
                request_id: request_id.clone(),
                event: event.clone(),
            });
            shared.push(event);
        }
        shared
    }

    fn start_pass(&mut self) {
        match &mut self.pass {
            _ if self.state.queue.is_empty() => self.pass = None,
            None => self.pass = Some(Pass::begin(&self.state, false)),
            Some(pass) if pass.goes_through => pass.again = true,
            Some(pass) if pass.walk.asked() == 0 => {}
            Some(pass) => *pass = Pass::begin(&self.state, true),
        }
    }

    /// Some steps of the pass under way, if there is one.
    fn pass_steps(&mut self, most: usize) {
        let began = Instant::now();
        for _ in 0..most {
            if !self.pass_step() || began.elapsed() >= LONGEST {
                break;
            }
        }
    }

    fn pass_step(&mut self) -> bool {
        let Some(pass) = &mut self.pass else {
            return false;
        };
        let turn = pass.walk.next(&self.state);
        if turn == Turn::Over {
            let again = pass.again && !self.state.queue.is_empty();
            self.pass = again.then(|| Pass::begin(&self.state, false));
            return again;
        }
        let Some(wish) = turn.wish() else {
            return true;
        };
        let (at, ids) = self.clock.tick();
        let command = Command {
            at,
            by: Actor::System,
            ids,
            wish,
        };
        match decide(&self.state, &command) {
            Ok(events) => {
                self.metrics.accepted();
                drop(self.absorb(&command, events, None));
            }
            Err(refusal) => {
                self.metrics.refused(refusal.code);
                pass.walk.refused(&self.state, &refusal);
            }
        }
        true
    }
}

/// Whether a job waits after this that nobody has asked about.
fn comes_to_wait(event: &Event) -> bool {
    matches!(event, Event::TaskSubmitted { .. } | Event::JobWanted { .. })
}

/// Whether an event may let a waiting job start.
fn frees_or_allows(event: &Event) -> bool {
    matches!(
        event,
        Event::JobEnded { .. }
            | Event::JobRequeued { .. }
            | Event::MemberEnded { .. }
            | Event::JobPaused { .. }
            | Event::PromiseWithdrawn { .. }
            | Event::QuotaSet { .. }
            | Event::ShareSet { .. }
            | Event::BudgetsSet { .. }
            | Event::PolicySet { .. }
            | Event::ScopeResumed { .. }
            | Event::ScopeMoved { .. }
            | Event::PricesSet { .. }
            | Event::NodeInventoried { .. }
            | Event::NodeReturned { .. }
            | Event::NodeUncordoned { .. }
            | Event::NodeLabelled { .. }
            | Event::GpuReleased { .. }
            | Event::WindowOpened { .. }
            | Event::WindowRestored { .. }
            | Event::WindowClosed { .. }
            | Event::BookingChanged { .. }
            | Event::BookingEnded { .. }
            | Event::LeaseBegan { .. }
            | Event::LeaseEnded { .. }
    )
}

fn history_row(retired: &Retired) -> HistoryRow {
    match retired {
        Retired::Job { scope, job } => {
            // Tasks are found by their job, and what it cost has their cost in it.
            let (kind, scope) = match &job.spec.task {
                Some(task) => ("task", task.of.to_string()),
                None => ("job", scope.clone()),
            };
            HistoryRow {
                kind: kind.into(),
                id: job.id.to_string(),
                scope,
                at_ms: job.ended.0,
                body: json(job),
            }
        }
        Retired::Scope { path, closed, scope } => HistoryRow {
            kind: "scope".into(),
            id: scope.id.to_string(),
            scope: path.clone(),
            at_ms: closed.0,
            body: json(scope),
        },
    }
}

fn json(noun: &impl serde::Serialize) -> String {
    serde_json::to_string(noun).expect("nouns of the domain encode")
}
