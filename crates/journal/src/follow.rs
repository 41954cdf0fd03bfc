//! Following the journal: a stream that goes on as events are committed.
//!
//! Three things wake a follower: the leader in this process, PostgreSQL's NOTIFY, and a clock for when
//! neither is heard.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use sqlx::postgres::PgListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::error::JournalError;
use crate::line::Line;
use crate::location::Source;
use crate::reader::JournalReader;
use crate::store::postgres;

const POLL: Duration = Duration::from_millis(250);
const PAGE_EVENTS: usize = 1_000;

/// The task that hears PostgreSQL's notifications, started with the first follower.
#[derive(Default)]
pub(crate) struct Listener {
    task: OnceLock<AbortHandle>,
}

impl Listener {
    pub fn stop(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Follower {
    reader: JournalReader,
    next: u64,
    ready: VecDeque<Line>,
    woken: watch::Receiver<u64>,
}

impl JournalReader {
    /// Every event from `from_seq` on, as it is committed. Ends only with an error or when dropped.
    pub fn follow(&self, from_seq: u64) -> impl Stream<Item = Result<Line, JournalError>> + Send + use<> {
        self.listen();
        let state = Follower {
            reader: self.clone(),
            next: from_seq.max(1),
            ready: VecDeque::new(),
            woken: self.seen().subscribe(),
        };
        stream::try_unfold(state, |mut state| async move {
            loop {
                if let Some(line) = state.ready.pop_front() {
                    state.next = line.seq + 1;
                    return Ok(Some((line, state)));
                }
                state.woken.borrow_and_update();
                state.ready = state.reader.read(state.next, PAGE_EVENTS).await?.into();
                if state.ready.is_empty() {
                    // The sender lives in the reader, so `changed` cannot fail while we hold one.
                    let _ = tokio::time::timeout(POLL, state.woken.changed()).await;
                }
            }
        })
    }

    fn listen(&self) {
        let Source::Postgres { readers, schema, .. } = self.source() else {
            return;
        };
        self.listener().task.get_or_init(|| {
            let (pool, channel, seen) = (readers.clone(), postgres::channel(schema), self.seen().clone());
            let task = tokio::spawn(async move {
                while let Err(error) = hear(&pool, &channel, &seen).await {
                    if pool.is_closed() {
                        return;
                    }
                    tracing::debug!(%error, "listening for commits failed, polling until it works again");
                    tokio::time::sleep(POLL).await;
                }
            });
            task.abort_handle()
        });
    }
}

async fn hear(pool: &sqlx::PgPool, channel: &str, seen: &watch::Sender<u64>) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(channel).await?;
    loop {
        let heard = listener.recv().await?;
        if let Ok(seq) = heard.payload().parse::<u64>() {
            seen.send_if_modified(|seen| {
                let newer = seq > *seen;
                *seen = (*seen).max(seq);
                newer
            });
        }
    }
}
