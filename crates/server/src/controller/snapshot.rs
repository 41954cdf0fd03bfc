//! Snapshots, written by a thread with a state of its own that follows the commits: however large the state, no
//! commit waits for it to be copied or encoded.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tenure_domain::State;
use tenure_domain::state::SNAPSHOT_FORMAT;
use tenure_journal::JournalHandle;
use tokio::runtime::Handle;

use crate::view::{Published, View};

/// A committed batch, and whether a snapshot is due after it.
type Step = (Arc<[Published]>, bool);

pub(super) struct Snapshots {
    steps: mpsc::Sender<Step>,
    thread: JoinHandle<()>,
}

impl Snapshots {
    /// From here on every batch the view takes in must be told.
    pub fn follow(view: Arc<View>, journal: JournalHandle) -> Snapshots {
        let (steps, queue) = mpsc::channel::<Step>();
        let (standing, stands) = mpsc::channel();
        let runtime = Handle::current();
        let thread = std::thread::Builder::new()
            .name("snapshots".into())
            .spawn(move || {
                let published = view.read();
                let _ = standing.send(());
                let (mut state, mut seq) = (State::clone(&published), view.seq());
                drop(published);
                for (batch, due) in queue {
                    for published in batch.iter() {
                        state.apply(published.at, &published.event);
                        seq = published.seq;
                    }
                    if due {
                        write(&runtime, &journal, &state, seq);
                    }
                }
            })
            .expect("a thread can be started");
        // The view does not move before the thread reads it: publishing waits for the lock.
        let _ = stands.recv();
        Snapshots { steps, thread }
    }

    pub fn tell(&self, batch: Arc<[Published]>, due: bool) {
        // Where the thread has ended, restarts take longer, and nothing else changes.
        let _ = self.steps.send((batch, due));
    }

    /// Waits until everything told is taken in and every due snapshot is written.
    pub async fn finish(self) {
        drop(self.steps);
        let _ = tokio::task::spawn_blocking(move || self.thread.join()).await;
    }
}

fn write(runtime: &Handle, journal: &JournalHandle, state: &State, seq: u64) {
    let bytes = serde_json::to_vec(state).expect("the state encodes");
    if let Err(error) = runtime.block_on(journal.write_snapshot(seq, SNAPSHOT_FORMAT, &bytes)) {
        tracing::warn!(%error, seq, "a snapshot was not written; restarts take longer until the next one");
    }
}
