//! Committing: encodes a batch, makes it durable, publishes it and answers its callers, in this order.

use std::sync::Arc;

use tenure_journal::{Batch, Entry, EventText, Journal, JournalError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::Pending;
use super::snapshot::Snapshots;
use crate::view::{Published, View};

/// The way to the committing task. Only one batch is on its way at a time, so the next one grows meanwhile.
pub(super) struct Committer {
    batches: mpsc::UnboundedSender<(OwnedSemaphorePermit, Pending, bool)>,
    free: Arc<Semaphore>,
    task: tokio::task::JoinHandle<Result<Journal, JournalError>>,
}

pub(super) fn start(journal: Journal, view: Arc<View>) -> Committer {
    let (batches, queue) = mpsc::unbounded_channel();
    Committer {
        batches,
        free: Arc::new(Semaphore::new(1)),
        task: tokio::spawn(run(journal, view, queue)),
    }
}

impl Committer {
    /// Resolves when the last batch is durable; with an error when it could not be made so.
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
        let _ = self.batches.send((permit, batch, snapshot));
    }

    pub async fn finish(self) -> Result<Journal, JournalError> {
        drop(self.batches);
        self.task.await.expect("the committing task does not panic")
    }
}

async fn run(
    mut journal: Journal,
    view: Arc<View>,
    mut queue: mpsc::UnboundedReceiver<(OwnedSemaphorePermit, Pending, bool)>,
) -> Result<Journal, JournalError> {
    let snapshots = Snapshots::follow(view.clone(), journal.handle());
    while let Some((permit, batch, snapshot_due)) = queue.recv().await {
        let published = commit(&mut journal, &view, batch).await?;
        drop(permit);
        snapshots.tell(published, snapshot_due);
    }
    snapshots.finish().await;
    Ok(journal)
}

async fn commit(
    journal: &mut Journal,
    view: &View,
    batch: Pending,
) -> Result<Arc<[Published]>, JournalError> {
    let first = journal.head().seq + 1;
    if !batch.events.is_empty() || !batch.keys.is_empty() {
        let entries = batch.events.iter().map(|pending| Entry {
            at_ms: pending.at.0,
            by: pending.by.clone(),
            request: pending.request_id.clone(),
            event: EventText::encode(&pending.event).expect("events encode"),
        });
        let committed = journal
            .append(Batch {
                entries: entries.collect(),
                history: batch.history,
                keys: batch.keys,
            })
            .await?;
        assert!(
            batch.events.is_empty() || committed.first_seq == first,
            "INVARIANT: nobody else writes"
        );
    }
    let events = batch.events.into_iter().enumerate();
    let published: Arc<[Published]> = events
        .map(|(i, pending)| Published {
            seq: first + i as u64,
            at: pending.at,
            event: pending.event,
        })
        .collect();
    view.publish(published.clone());
    for mut pending in batch.replies {
        pending.accepted.seq = first + pending.events_so_far - 1;
        // The caller may have gone away; what it asked for is done all the same.
        let _ = pending.reply.send(Ok(pending.accepted));
    }
    Ok(published)
}
