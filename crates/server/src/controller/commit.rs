//! Committing, in three steps that overlap: a thread seals a batch (encodes, hashes and chains it), a task makes it durable,
//! and another thread publishes it and answers its callers, in this order. While one batch is being written the next is
//! being sealed and the one after that decided, so neither the disk nor a processor waits for the other.

use std::sync::{Arc, mpsc as threads};
use std::thread::JoinHandle;
use std::time::Instant;

use tenure_domain::ledger::bill::Placed;
use tenure_domain::ledger::sheaf;
use tenure_journal::{Batch, Entry, EventText, HistoryRow, Journal, JournalError, Sealed, Sealer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::snapshot::Snapshots;
use super::{Issued, Pending, PendingReply};
use crate::metrics::Metrics;
use crate::view::{Published, View};

/// The way to the journal. One batch is written, one waits for that, and the next one grows meanwhile.
pub(super) struct Committer {
    batches: threads::Sender<Going>,
    free: Arc<Semaphore>,
    task: tokio::task::JoinHandle<Result<Journal, JournalError>>,
}

/// A batch that is going to be sealed, and whether a snapshot is due after it.
struct Going {
    permit: OwnedSemaphorePermit,
    batch: Pending,
    snapshot: bool,
}

/// A batch that is going to be written; nothing where it changed nothing.
struct Ready {
    permit: OwnedSemaphorePermit,
    sealed: Option<Sealed>,
    told: Told,
}

/// What is told of a batch when it is durable.
struct Told {
    /// The number of its first event.
    first: u64,
    events: Arc<[Published]>,
    replies: Vec<PendingReply>,
    snapshot: bool,
}

pub(super) fn start(journal: Journal, view: Arc<View>, metrics: Arc<Metrics>) -> Committer {
    let (batches, queue) = threads::channel();
    Committer {
        batches,
        free: Arc::new(Semaphore::new(1)),
        task: tokio::spawn(run(journal, view, metrics, queue)),
    }
}

impl Committer {
    /// Resolves when another batch may be sent; with an error when one could not be made durable.
    pub async fn free(&mut self) -> Result<OwnedSemaphorePermit, JournalError> {
        tokio::select! {
            biased;
            ended = &mut self.task => Err(match ended {
                Ok(Err(error)) => error,
                _ => panic!("the committing task ended before its time"),
            }),
            permit = self.free.clone().acquire_owned() => Ok(permit.expect("never closed")),
        }
    }

    pub fn send(&self, permit: OwnedSemaphorePermit, batch: Pending, snapshot: bool) {
        // A failed task is found out by the next `free`.
        let _ = self.batches.send(Going {
            permit,
            batch,
            snapshot,
        });
    }

    pub async fn finish(self) -> Result<Journal, JournalError> {
        drop(self.batches);
        self.task.await.expect("the committing task does not panic")
    }
}

async fn run(
    mut journal: Journal,
    view: Arc<View>,
    metrics: Arc<Metrics>,
    queue: threads::Receiver<Going>,
) -> Result<Journal, JournalError> {
    let snapshots = Snapshots::follow(view.clone(), journal.handle());
    let (ready, mut sealed) = mpsc::unbounded_channel();
    let sealer = journal.sealer();
    let sealing = thread("sealing", move || seal_all(sealer, queue, &ready));
    let (durable, told) = threads::channel();
    let (living, mut ended) = oneshot::channel::<()>();
    let publishing = thread("publishing", move || {
        // Gone with the thread, however it ends.
        let _living = living;
        publish_all(&view, told, &snapshots);
        snapshots
    });
    loop {
        let next = tokio::select! {
            biased;
            _ = &mut ended => panic!("the publishing thread ended before its time"),
            next = sealed.recv() => next,
        };
        let Some(Ready { permit, sealed, told }) = next else {
            break;
        };
        // From here on the next one may be sealed.
        drop(permit);
        if let Some(sealed) = sealed {
            let began = Instant::now();
            journal.write(sealed).await?;
            metrics.committed(told.events.len(), began.elapsed());
        }
        // Where the thread has ended, the next turn finds it out.
        let _ = durable.send(told);
    }
    joined(sealing).await?;
    drop(durable);
    joined(publishing).await.finish().await;
    Ok(journal)
}

fn thread<T: Send + 'static>(name: &'static str, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let named = std::thread::Builder::new().name(name.into());
    named.spawn(work).expect("a thread can be started")
}

/// What a thread came to; a panic of its goes on here.
async fn joined<T: Send + 'static>(thread: JoinHandle<T>) -> T {
    let ended = tokio::task::spawn_blocking(move || thread.join()).await;
    match ended.expect("joining does not panic") {
        Ok(came_to) => came_to,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// An error ends it, and with that the way to the journal.
fn seal_all(
    mut sealer: Sealer,
    queue: threads::Receiver<Going>,
    ready: &mpsc::UnboundedSender<Ready>,
) -> Result<(), JournalError> {
    for going in queue {
        if ready.send(seal(&mut sealer, going)?).is_err() {
            break;
        }
    }
    Ok(())
}

fn seal(sealer: &mut Sealer, going: Going) -> Result<Ready, JournalError> {
    let Going {
        permit,
        batch,
        snapshot,
    } = going;
    let first = sealer.next_seq();
    let mut entries = Vec::with_capacity(batch.events.len());
    let mut events = Vec::with_capacity(batch.events.len());
    for (seq, pending) in (first..).zip(batch.events) {
        entries.push(Entry {
            at_ms: pending.at.0,
            by: pending.by,
            request: pending.request_id,
            event: EventText::encode(&pending.event).expect("events encode"),
        });
        events.push(Published {
            seq,
            at: pending.at,
            event: pending.event,
        });
    }
    let bill = batch
        .bill
        .into_iter()
        .map(|(place, placed)| bill_row(first, place, placed));
    let issued = batch
        .issued
        .into_iter()
        .map(|(place, issued)| issued_row(first, place, issued));
    let writes = !entries.is_empty() || !batch.keys.is_empty();
    let written = Batch {
        entries,
        history: batch.history.into_iter().chain(bill).chain(issued).collect(),
        keys: batch.keys,
    };
    Ok(Ready {
        permit,
        sealed: writes.then(|| sealer.seal(written)).transpose()?,
        told: Told {
            first,
            events: events.into(),
            replies: batch.replies,
            snapshot,
        },
    })
}

fn publish_all(view: &View, durable: threads::Receiver<Told>, snapshots: &Snapshots) {
    for told in durable {
        view.publish(told.events.clone());
        for mut pending in told.replies {
            pending.accepted.seq = told.first + pending.events_so_far - 1;
            // The caller may have gone away; what it asked for is done all the same.
            let _ = pending.reply.send(Ok(pending.accepted));
        }
        snapshots.tell(told.events, told.snapshot);
    }
}

/// Where in the journal an invoice was issued.
fn issued_row(first: u64, place: usize, issued: Issued) -> HistoryRow {
    HistoryRow {
        kind: "invoice".into(),
        id: issued.id.to_string(),
        scope: issued.path,
        at_ms: issued.at.0,
        body: serde_json::json!({ "event": first + place as u64 }).to_string(),
    }
}

/// Bill rows with their event's number, as history keeps them: those of one event and owner together.
fn bill_row(first: u64, place: usize, mut placed: Placed) -> HistoryRow {
    let event = first + place as u64;
    placed.rows.iter_mut().for_each(|row| row.event = event);
    HistoryRow {
        kind: "bill".into(),
        id: placed.id,
        scope: placed.path,
        at_ms: placed.rows.first().map_or(0, |row| row.at.0),
        body: sheaf::write(&placed.rows),
    }
}
