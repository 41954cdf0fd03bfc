//! The controller: the only writer. It decides commands one after another on its own copy of the state, makes
//! them durable in batches, then acknowledges and publishes them.
//!
//! While one batch is being written the next is being sealed and the one after that decided, so the disk and the
//! processors work at the same time. Readers see only what is committed. A commit that fails ends the process: what is in memory may then
//! be ahead of the journal, and only the journal is true.

mod clock;
mod commit;
mod follow;
mod recover;
mod snapshot;
mod writer;

use std::sync::Arc;
use std::sync::RwLock;

use tenure_domain::id::InvoiceId;
use tenure_domain::ledger::bill::Placed;
use tenure_domain::{Actor, Event, Refusal, State, Time, Wish};
use tenure_journal::{HistoryRow, Journal, JournalError, JournalHandle, JournalReader, KeyRow};
use tokio::sync::{mpsc, oneshot};

pub use clock::now;
pub use follow::{catch_up, follow};
pub use recover::{RecoverError, Recovered, event, recover};

use crate::metrics::Metrics;
use crate::trace::Traces;
use crate::view::View;

/// Commands waiting to be decided; more than this and callers wait.
const QUEUE: usize = 4096;

/// A decided and durable command.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// First of the command's block of ids; what it created has this number.
    pub ids: u64,
    pub at: Time,
    /// Sequence number of its last event; of the head where it changed nothing.
    pub seq: u64,
    pub events: Vec<Arc<Event>>,
}

/// Why a command was not done.
#[derive(Debug, Clone)]
pub enum NotDone {
    Refused(Refusal),
    /// This server follows another; nothing was changed.
    NotLeading,
}

impl From<Refusal> for NotDone {
    fn from(refusal: Refusal) -> NotDone {
        NotDone::Refused(refusal)
    }
}

/// What is remembered of a request made with an Idempotency-Key, in the same transaction as its events.
pub struct Keyed {
    pub principal: String,
    pub key: String,
    pub digest: [u8; 32],
    pub render: Render,
}

/// Writes the answer from the state right after the command, as status and body.
pub type Render = Box<dyn FnOnce(&State, &Accepted) -> (u16, String) + Send>;

struct Request {
    by: Actor,
    wish: Wish,
    request_id: Option<String>,
    keyed: Option<Keyed>,
    reply: oneshot::Sender<Result<Accepted, Refusal>>,
}

/// The door to the controller; cheap to clone.
#[derive(Clone)]
pub struct Controller {
    view: Arc<View>,
    reader: JournalReader,
    metrics: Arc<Metrics>,
    door: Arc<RwLock<Option<Door>>>,
    traces: Option<Arc<Traces>>,
}

#[derive(Clone)]
struct Door {
    requests: mpsc::Sender<Request>,
    journal: JournalHandle,
}

impl Controller {
    /// A controller that only shows a view, until `lead` is called.
    pub fn following(view: Arc<View>, reader: JournalReader) -> Controller {
        Controller {
            view,
            reader,
            metrics: Arc::default(),
            door: Arc::default(),
            traces: None,
        }
    }

    /// The same, with jobs told of in traces.
    pub fn traced(self, traces: Option<Arc<Traces>>) -> Controller {
        Controller { traces, ..self }
    }

    /// Starts deciding. The view must stand at the journal's head.
    pub fn lead(
        &self,
        journal: Journal,
        options: WriterOptions,
    ) -> tokio::task::JoinHandle<Result<Journal, JournalError>> {
        let (requests, queue) = mpsc::channel(QUEUE);
        let handle = journal.handle();
        let state = self.view.read().clone();
        assert_eq!(
            self.view.seq(),
            handle.head().seq,
            "INVARIANT: who leads has seen the whole journal"
        );
        let committer = commit::start(journal, self.view.clone(), self.metrics.clone());
        let task = tokio::spawn(writer::run(
            state,
            queue,
            committer,
            options,
            self.metrics.clone(),
        ));
        *self.door.write().expect("short and without panics") = Some(Door {
            requests,
            journal: handle,
        });
        task
    }

    /// Stops taking commands; what was taken is committed. The task given by `lead` then ends.
    pub fn close(&self) {
        *self.door.write().expect("short and without panics") = None;
    }

    pub fn is_leading(&self) -> bool {
        self.door.read().expect("short and without panics").is_some()
    }

    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// What was counted since the process began.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Where jobs are told of in traces, if they are.
    pub fn traces(&self) -> Option<&Arc<Traces>> {
        self.traces.as_ref()
    }

    /// The journal for reading, whether this server leads or follows.
    pub fn reader(&self) -> &JournalReader {
        &self.reader
    }

    /// The journal for secrets and heads; only the leader has it at hand.
    pub fn journal(&self) -> Option<JournalHandle> {
        self.door
            .read()
            .expect("short and without panics")
            .as_ref()
            .map(|door| door.journal.clone())
    }

    /// Decides a command and waits until it is durable.
    pub async fn submit(
        &self,
        by: Actor,
        wish: Wish,
        request_id: Option<String>,
        keyed: Option<Keyed>,
    ) -> Result<Accepted, NotDone> {
        let door = self.door.read().expect("short and without panics").clone();
        let Some(door) = door else {
            return Err(NotDone::NotLeading);
        };
        let (reply, answer) = oneshot::channel();
        let request = Request {
            by,
            wish,
            request_id,
            keyed,
            reply,
        };
        if door.requests.send(request).await.is_err() {
            return Err(NotDone::NotLeading);
        }
        match answer.await {
            Ok(decided) => Ok(decided?),
            Err(_) => Err(NotDone::NotLeading),
        }
    }

    /// Waits until everything that was decided before a moment is committed, and nothing before it is to come.
    pub async fn reach(&self, moment: Time) -> Result<(), NotDone> {
        loop {
            // Commands are decided one after another, each later than the last; any will do.
            if self.system(Wish::Withdraw).await?.at >= moment {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// A command of Tenure itself.
    pub async fn system(&self, wish: Wish) -> Result<Accepted, NotDone> {
        self.submit(Actor::System, wish, None, None).await
    }
}

/// How the writer works.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// A snapshot is written after this many events, or after more where the state is large.
    pub snapshot_every: u64,
}

/// To write a snapshot costs by what is live, to replay by what happened since: so many events for each live job are
/// between two snapshots at least, and writing them takes a small part of all work however large the state.
const EVENTS_A_JOB: u64 = 2;

impl WriterOptions {
    fn snapshot_after(&self, state: &State) -> u64 {
        self.snapshot_every.max(EVENTS_A_JOB * state.jobs.len() as u64)
    }
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions {
            snapshot_every: 100_000,
        }
    }
}

/// A batch on its way to the journal.
#[derive(Default)]
struct Pending {
    events: Vec<PendingEvent>,
    history: Vec<HistoryRow>,
    /// Bill rows, each with the place of its event in the batch: its number is known when it is committed.
    bill: Vec<(usize, Placed)>,
    /// Invoices that were issued, likewise, with the paths of whom they are for.
    issued: Vec<(usize, Issued)>,
    keys: Vec<KeyRow>,
    replies: Vec<PendingReply>,
}

struct Issued {
    id: InvoiceId,
    path: String,
    at: Time,
}

struct PendingEvent {
    at: Time,
    by: Arc<str>,
    request_id: Option<Arc<str>>,
    event: Arc<Event>,
}

struct PendingReply {
    reply: oneshot::Sender<Result<Accepted, Refusal>>,
    accepted: Accepted,
    /// How many events of the batch had been decided with this command.
    events_so_far: u64,
}
