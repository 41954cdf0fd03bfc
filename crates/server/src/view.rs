//! The published view: the state as of the last committed event, for readers.

use std::sync::{Arc, RwLock, RwLockReadGuard};

use tenure_domain::{Event, State, Time};
use tokio::sync::{broadcast, watch};

/// One committed event as it is published.
#[derive(Debug, Clone)]
pub struct Published {
    pub seq: u64,
    pub at: Time,
    pub event: Arc<Event>,
}

/// Committed state and the news of it.
pub struct View {
    state: RwLock<State>,
    seq: watch::Sender<u64>,
    news: broadcast::Sender<Arc<[Published]>>,
}

impl View {
    pub fn new(state: State, seq: u64) -> View {
        View {
            state: RwLock::new(state),
            seq: watch::Sender::new(seq),
            news: broadcast::Sender::new(4096),
        }
    }

    /// Reads committed state. Hold it shortly and never across an await.
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state
            .read()
            .expect("a panic while publishing ends the process")
    }

    /// Sequence number of the last event in the view.
    pub fn seq(&self) -> u64 {
        *self.seq.borrow()
    }

    /// Tells when the view has moved on.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.seq.subscribe()
    }

    /// Batches of events as they are committed. A slow listener misses some and is told so.
    pub fn listen(&self) -> broadcast::Receiver<Arc<[Published]>> {
        self.news.subscribe()
    }

    /// Takes in a committed batch.
    pub(crate) fn publish(&self, batch: Arc<[Published]>) {
        let Some(last) = batch.last().map(|published| published.seq) else {
            return;
        };
        {
            let mut state = self
                .state
                .write()
                .expect("a panic while publishing ends the process");
            for published in batch.iter() {
                state.apply(published.at, &published.event);
            }
        }
        self.seq.send_replace(last);
        // Nobody listening is fine.
        let _ = self.news.send(batch);
    }
}
