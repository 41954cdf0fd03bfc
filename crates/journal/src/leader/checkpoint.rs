//! Moving SQLite's log into the file beside the commits, so that no commit does it at its own expense.
//!
//! A passive checkpoint holds nobody up. Under steady writing it never reaches the log's very end, so the log
//! still starts again only when a commit finds it long; what is left to move then is little.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::error::JournalError;
use crate::location::Source;
use crate::reader::JournalReader;
use crate::store::args;

const EVERY: Duration = Duration::from_millis(100);

/// Ends when dropped; `stop` also waits for it.
pub(super) struct Checkpoints {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Checkpoints {
    pub async fn start(source: &Source, journal: JournalReader) -> Result<Checkpoints, JournalError> {
        let mut conn = source.writer().await?;
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut moved = *journal.seen().borrow();
            let mut tick = tokio::time::interval(EVERY);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = &mut stopped => break,
                    _ = tick.tick() => {}
                }
                let seen = *journal.seen().borrow();
                if seen == moved {
                    continue;
                }
                match conn.row("PRAGMA wal_checkpoint(PASSIVE)", args![]).await {
                    Ok(_) => moved = seen,
                    // The commits find out for themselves what is wrong with the disk.
                    Err(error) => tracing::warn!(%error, "SQLite's log was not moved into the file"),
                }
            }
            conn.close().await;
        });
        Ok(Checkpoints { stop, task })
    }

    pub async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
    }
}
