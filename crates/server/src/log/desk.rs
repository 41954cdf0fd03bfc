//! One after another writes what was collected: all that waits together, in one transaction.

use tenure_journal::{Appended, JournalError, LogStore, NewStretch};
use tokio::sync::{mpsc, oneshot};

/// Stretches in one transaction.
const AT_ONCE: usize = 128;

type Waiting = (NewStretch, oneshot::Sender<Option<Appended>>);

/// The way to the writer; cheap to clone.
#[derive(Clone)]
pub(super) struct Desk(mpsc::Sender<Waiting>);

impl Desk {
    /// The writer ends with the last clone of its desk.
    pub fn open(store: LogStore) -> Desk {
        let (desk, mut waiting) = mpsc::channel::<Waiting>(AT_ONCE);
        tokio::spawn(async move {
            while let Some(first) = waiting.recv().await {
                let mut batch = vec![first];
                while batch.len() < AT_ONCE {
                    let Ok(next) = waiting.try_recv() else { break };
                    batch.push(next);
                }
                write(&store, batch).await;
            }
        });
        Desk(desk)
    }

    /// Waits until a stretch is durable; none where it could not be written, and is to be read again.
    pub async fn keep(&self, stretch: NewStretch) -> Option<Appended> {
        let (answer, answered) = oneshot::channel();
        self.0.send((stretch, answer)).await.ok()?;
        answered.await.ok()?
    }
}

async fn write(store: &LogStore, batch: Vec<Waiting>) {
    let (stretches, answers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let done: Result<Vec<Appended>, JournalError> = store.append(stretches).await;
    match done {
        Ok(done) => {
            for (answer, done) in answers.into_iter().zip(done) {
                let _ = answer.send(Some(done));
            }
        }
        Err(error) => {
            tracing::warn!(%error, "logs could not be kept now; they are read again");
            for answer in answers {
                let _ = answer.send(None);
            }
        }
    }
}
