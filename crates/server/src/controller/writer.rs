//! Deciding: takes commands in turn, applies what was decided to the writer's own state, and fills the next
//! batch while the last one is being written.

use std::sync::Arc;

use tenure_domain::schedule::pass::{QueueKey, next_cursor};
use tenure_domain::state::Retired;
use tenure_domain::{Actor, Command, Event, State, Wish, decide};
use tenure_journal::{HistoryRow, Journal, JournalError, KeyRow};
use tokio::sync::mpsc;
use tokio::time::{Duration, MissedTickBehavior};

use super::clock::Clock;
use super::commit::Committer;
use super::{Accepted, Pending, PendingEvent, PendingReply, Request, WriterOptions};

/// No batch grows beyond this many events; callers wait for the disk instead.
const MAX_BATCH: usize = 4096;
/// Waiting jobs looked at in one scheduling command: few between two requests, so that a long queue does not
/// hold callers up, and more while nobody asks.
const BUSY_STEP: usize = 4;
const QUIET_STEP: usize = 64;
/// How often waiting jobs are looked at when nothing happened: a new budget period may have begun.
const IDLE_PASS: Duration = Duration::from_secs(10);

struct Writer {
    state: State,
    clock: Clock,
    batch: Pending,
    pass: Option<Pass>,
}

/// A pass over the queue that is under way.
struct Pass {
    cursor: Option<QueueKey>,
}

pub(super) async fn run(
    state: State,
    mut queue: mpsc::Receiver<Request>,
    mut committer: Committer,
    options: WriterOptions,
) -> Result<Journal, JournalError> {
    let clock = Clock::after(super::now(), state.last_id);
    let mut writer = Writer {
        state,
        clock,
        batch: Pending::default(),
        pass: Some(Pass { cursor: None }),
    };
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
                let snapshot = since_snapshot >= options.snapshot_every;
                if snapshot {
                    since_snapshot = 0;
                }
                committer.send(free?, std::mem::take(&mut writer.batch), snapshot);
            }
            request = queue.recv(), if !full => match request {
                Some(request) => {
                    writer.take(request);
                    writer.pass_step(BUSY_STEP);
                }
                None => break,
            },
            // Giving way each time, or the channels above would find their share of polls used up and seem empty.
            () = tokio::task::yield_now(), if writer.pass.is_some() && !full => writer.pass_step(QUIET_STEP),
            _ = idle.tick() => writer.start_pass(),
        }
    }
    let free = committer.free().await?;
    committer.send(free, std::mem::take(&mut writer.batch), true);
    committer.finish().await
}

impl Writer {
    fn take(&mut self, request: Request) {
        let (at, ids) = self.clock.tick();
        let command = Command {
            at,
            by: request.by,
            ids,
            wish: request.wish,
        };
        let events = match decide(&self.state, &command) {
            Ok(events) => self.absorb(&command, events, request.request_id),
            Err(refusal) => {
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
        let by = command.by.to_string();
        let mut shared = Vec::with_capacity(events.len());
        for event in events {
            if let Some(retired) = self.state.apply(command.at, &event) {
                self.batch.history.push(history_row(&retired));
            }
            if frees_or_allows(&event) {
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
        if !self.state.queue.is_empty() {
            self.pass = Some(Pass { cursor: None });
        }
    }

    /// One step of the pass under way, if there is one.
    fn pass_step(&mut self, limit: usize) {
        let Some(Pass { cursor }) = self.pass.take() else {
            return;
        };
        let (at, ids) = self.clock.tick();
        let command = Command {
            at,
            by: Actor::System,
            ids,
            wish: Wish::Schedule { after: cursor, limit },
        };
        let ahead = next_cursor(&self.state, cursor, limit);
        match decide(&self.state, &command) {
            Ok(events) if !events.is_empty() => {
                self.absorb(&command, events, None);
                // Others in the same stretch may start too: look at it again.
                self.pass = Some(Pass { cursor });
            }
            _ => self.pass = ahead.map(|cursor| Pass { cursor: Some(cursor) }),
        }
    }
}

/// Whether an event may let a waiting job start.
fn frees_or_allows(event: &Event) -> bool {
    matches!(
        event,
        Event::JobEnded { .. }
            | Event::JobRequeued { .. }
            | Event::JobPaused { .. }
            | Event::PromiseWithdrawn { .. }
            | Event::QuotaSet { .. }
            | Event::BudgetsSet { .. }
            | Event::PolicySet { .. }
            | Event::ScopeResumed { .. }
            | Event::ScopeMoved { .. }
            | Event::PricesSet { .. }
            | Event::NodeInventoried { .. }
            | Event::NodeReturned { .. }
            | Event::NodeUncordoned { .. }
            | Event::GpuReleased { .. }
    )
}

fn history_row(retired: &Retired) -> HistoryRow {
    match retired {
        Retired::Job { scope, job } => HistoryRow {
            kind: "job".into(),
            id: job.id.to_string(),
            scope: scope.clone(),
            at_ms: job.ended.0,
            body: json(job),
        },
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
