//! Reading the journal: events from a point on, and single hashes.
//!
//! A reader writes nothing. A follower opens one on its own; the leader carries one inside. What has
//! been read is checked against its hash, so a damaged line is an error and never an event.

use std::sync::Arc;

use tokio::sync::watch;

use crate::chain::{BatchRow, Chain, Fault, Head};
use crate::error::JournalError;
use crate::follow::Listener;
use crate::hash::Hash;
use crate::line::Line;
use crate::location::{Location, Options, Source};
use crate::schema;
use crate::store::{Conn, args};

/// Rows of `batch` fetched at once; a batch is some hundred kilobytes at most.
const ROWS_AT_ONCE: u32 = 64;

/// A read-only view of a journal. Cheap to clone.
#[derive(Clone)]
pub struct JournalReader {
    shared: Arc<Shared>,
}

struct Shared {
    source: Source,
    platform: String,
    /// The newest event known to be committed; followers wait on it.
    seen: watch::Sender<u64>,
    listener: Listener,
}

impl JournalReader {
    /// Opens an existing journal to read it, whether or not a leader writes to it.
    pub async fn open(location: &Location) -> Result<JournalReader, JournalError> {
        JournalReader::open_with(location, &Options::default()).await
    }

    pub async fn open_with(location: &Location, options: &Options) -> Result<JournalReader, JournalError> {
        if let Location::Sqlite(dir) = location
            && options.vfs.is_none()
            && !dir.join(crate::store::sqlite::FILE).is_file()
        {
            return Err(JournalError::Missing {
                place: location.name(),
            });
        }
        let source = Source::new(location, options)?;
        let mut conn = source.reader().await?;
        if !schema::exists(&mut conn).await? {
            return Err(JournalError::Missing {
                place: location.name(),
            });
        }
        let platform = schema::check(&mut conn).await?;
        drop(conn);
        let reader = JournalReader::new(source, platform);
        let head = reader.stored_head().await?;
        reader.saw(head.seq);
        Ok(reader)
    }

    pub(crate) fn new(source: Source, platform: String) -> JournalReader {
        let (seen, _) = watch::channel(0);
        JournalReader {
            shared: Arc::new(Shared {
                source,
                platform,
                seen,
                listener: Listener::default(),
            }),
        }
    }

    /// The id under which this platform's heads are signed.
    pub fn platform(&self) -> &str {
        &self.shared.platform
    }

    pub(crate) fn source(&self) -> &Source {
        &self.shared.source
    }

    pub(crate) fn listener(&self) -> &Listener {
        &self.shared.listener
    }

    pub(crate) fn seen(&self) -> &watch::Sender<u64> {
        &self.shared.seen
    }

    pub(crate) fn saw(&self, seq: u64) {
        self.shared.seen.send_if_modified(|seen| {
            let newer = seq > *seen;
            *seen = (*seen).max(seq);
            newer
        });
    }

    pub(crate) async fn conn(&self) -> Result<Conn, JournalError> {
        self.shared.source.reader().await
    }

    /// Events from `from_seq` on, at most `limit_events` of them. Event numbers start at 1.
    pub async fn read(&self, from_seq: u64, limit_events: usize) -> Result<Vec<Line>, JournalError> {
        let mut conn = self.conn().await?;
        let mut lines = Vec::new();
        let mut next = from_seq.max(1);
        let mut count = 4;
        while lines.len() < limit_events {
            let rows = batches(&mut conn, next, count).await?;
            count = ROWS_AT_ONCE;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                take_lines(row, next, limit_events, &mut lines)?;
                next = row.last_seq + 1;
            }
        }
        Ok(lines)
    }

    /// The end of the journal as the database has it now.
    pub async fn stored_head(&self) -> Result<Head, JournalError> {
        let mut conn = self.conn().await?;
        let sql = "SELECT last_seq, hash, frontier FROM batch ORDER BY first_seq DESC LIMIT 1";
        let row = conn
            .row(sql, args![])
            .await
            .map_err(|error| JournalError::storage("reading the head", error))?;
        let Some(row) = row else {
            return Ok(Chain::default().head());
        };
        let row = BatchRow {
            first_seq: 0,
            last_seq: row.count(0)?,
            at_ms: 0,
            hash: row.blob(1)?,
            frontier: row.blob(2)?,
            hashes: Vec::new(),
            body: Vec::new(),
        };
        let chain =
            Chain::after(&row).ok_or_else(|| JournalError::corrupt("the last batch has no sound tree"))?;
        Ok(chain.head())
    }

    /// The hash of one event; zeros for the state before the first.
    pub async fn event_hash(&self, seq: u64) -> Result<Option<Hash>, JournalError> {
        if seq == 0 {
            return Ok(Some(Hash::ZERO));
        }
        let mut conn = self.conn().await?;
        let hashes = leaf_hashes(&mut conn, seq, seq).await?;
        Ok(hashes.first().copied())
    }

    /// Closes the connections; other clones of this reader stop working.
    pub async fn close(&self) {
        self.shared.listener.stop();
        self.shared.source.close().await;
    }
}

/// Rows that hold event `from_seq` or later ones, in order.
pub(crate) async fn batches(
    conn: &mut Conn,
    from_seq: u64,
    count: u32,
) -> Result<Vec<BatchRow>, JournalError> {
    let sql = format!(
        "SELECT {} FROM batch WHERE first_seq >= \
         coalesce((SELECT max(first_seq) FROM batch WHERE first_seq <= $1), $1) AND last_seq >= $1 \
         ORDER BY first_seq LIMIT $2",
        BatchRow::COLUMNS
    );
    let rows = conn
        .rows(&sql, args![from_seq, count])
        .await
        .map_err(|error| JournalError::storage("reading events", error))?;
    rows.iter().map(BatchRow::read).collect()
}

/// The event hashes `first..=last`, as many of them as exist.
pub(crate) async fn leaf_hashes(conn: &mut Conn, first: u64, last: u64) -> Result<Vec<Hash>, JournalError> {
    let sql = "SELECT first_seq, last_seq, hashes FROM batch WHERE first_seq >= \
               coalesce((SELECT max(first_seq) FROM batch WHERE first_seq <= $1), $1) \
               AND last_seq >= $1 AND first_seq <= $2 ORDER BY first_seq";
    let rows = conn
        .rows(sql, args![first, last])
        .await
        .map_err(|error| JournalError::storage("reading event hashes", error))?;
    let mut hashes = Vec::new();
    for row in rows {
        let (start, end, bytes) = (row.count(0)?, row.count(1)?, row.blob(2)?);
        let batch = crate::hash::split(&bytes)
            .filter(|batch| {
                end.checked_sub(start)
                    .is_some_and(|more| batch.len() as u64 == more + 1)
            })
            .ok_or_else(|| JournalError::corrupt(format!("the hashes of batch {start} are not whole")))?;
        let wanted = (start..)
            .zip(batch)
            .filter(|(seq, _)| (first..=last).contains(seq));
        hashes.extend(wanted.map(|(_, hash)| hash));
    }
    Ok(hashes)
}

fn take_lines(row: &BatchRow, from: u64, limit: usize, lines: &mut Vec<Line>) -> Result<(), JournalError> {
    let damaged = |seq: u64, what: Fault| JournalError::corrupt(format!("event {seq} {what}"));
    let (recorded, _) = row.hashes.as_chunks::<32>();
    for ((seq, bytes), recorded) in (row.first_seq..).zip(row.lines()).zip(recorded) {
        if seq < from {
            continue;
        }
        if lines.len() == limit {
            break;
        }
        let text = std::str::from_utf8(bytes).map_err(|_| damaged(seq, Fault::Unreadable))?;
        let line = Line::parse(text).map_err(|_| damaged(seq, Fault::Unreadable))?;
        if line.hash.0 != *recorded {
            return Err(damaged(seq, Fault::Altered));
        }
        if line.seq != seq || seq > row.last_seq {
            return Err(damaged(seq, Fault::OutOfOrder));
        }
        if lines
            .last()
            .is_some_and(|last| last.hash != line.prev || last.seq + 1 != seq)
        {
            return Err(damaged(seq, Fault::Unlinked));
        }
        lines.push(line);
    }
    Ok(())
}
