//! Appending: one batch, one transaction, one row, and the rows that go with it.

use crate::error::JournalError;
use crate::hash::{self, Hash};
use crate::history::{self, HistoryRow};
use crate::key::{self, KeyRow};
use crate::leader::{Journal, Tx};
use crate::line::Entry;
use crate::location::Source;
use crate::seal::{Sealed, Sealer};
use crate::store::{Val, args, postgres};

/// Events and what becomes durable with them, all or nothing.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub entries: Vec<Entry>,
    pub history: Vec<HistoryRow>,
    pub keys: Vec<KeyRow>,
}

/// Which events a batch became. With no entries, `last_seq` is the head and `first_seq` the one after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    pub first_seq: u64,
    pub last_seq: u64,
    pub hash: Hash,
}

impl Journal {
    /// Seals batches ahead of what is written, from the journal's end on.
    pub fn sealer(&self) -> Sealer {
        Sealer::new(self.chain.clone())
    }

    /// Makes a batch durable. When this returns `Ok` it survives a crash and a power cut; any error but
    /// `Uncertain` means that nothing was written. After `Uncertain` nothing more is accepted: the caller
    /// ends the process and recovers.
    pub async fn append(&mut self, batch: Batch) -> Result<Committed, JournalError> {
        if self.uncertain {
            return Err(JournalError::Uncertain { source: None });
        }
        let sealed = self.sealer().seal(batch)?;
        self.write(sealed).await
    }

    /// The same for a batch that was sealed before. One that was sealed for another end than the journal's is refused as
    /// out of its turn: the batch before it was not written.
    pub async fn write(&mut self, sealed: Sealed) -> Result<Committed, JournalError> {
        if self.uncertain {
            return Err(JournalError::Uncertain { source: None });
        }
        if sealed.before != (self.chain.seq, self.chain.hash) {
            return Err(JournalError::OutOfTurn {
                sealed_for: sealed.first_seq(),
                next: self.chain.seq + 1,
            });
        }
        let first_seq = sealed.first_seq();
        let chain = sealed.chain.clone();
        let (last_seq, hash) = (chain.seq, chain.hash);

        let handle = self.handle();
        let mut tx = handle.begin().await?;
        write_rows(&mut tx, handle.source(), sealed).await?;

        // INVARIANT: set before the commit is sent and cleared only when its outcome is known, so that a
        // caller who stops waiting (drops this future) cannot append on a head that may be stale.
        self.uncertain = true;
        let outcome = tx.commit().await;
        self.uncertain = matches!(outcome, Err(JournalError::Uncertain { .. }));
        outcome?;
        self.advance(chain);
        Ok(Committed {
            first_seq,
            last_seq,
            hash,
        })
    }
}

async fn write_rows(tx: &mut Tx<'_>, source: &Source, mut sealed: Sealed) -> Result<(), JournalError> {
    let (history, keys) = (
        std::mem::take(&mut sealed.history),
        std::mem::take(&mut sealed.keys),
    );
    if !sealed.hashes.is_empty() {
        write_batch(tx, source, sealed).await?;
    }
    history::insert(tx, history).await?;
    key::insert(tx, keys).await
}

async fn write_batch(tx: &mut Tx<'_>, source: &Source, sealed: Sealed) -> Result<(), JournalError> {
    let first_seq = sealed.first_seq();
    let Sealed {
        chain,
        at_ms,
        body,
        hashes,
        subtrees,
        ..
    } = sealed;
    let mut row: Vec<Val> = args![
        first_seq,
        chain.seq,
        at_ms,
        chain.hash,
        hash::join(chain.frontier.roots()),
        hash::join(&hashes),
        body.into_bytes(),
    ];
    let mut sql = "INSERT INTO batch (first_seq, last_seq, at_ms, hash, frontier, hashes, body) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7)"
        .to_owned();
    if let Source::Postgres { schema, .. } = source {
        // Followers are told when this commits; riding along saves a round trip.
        sql.push_str(" RETURNING pg_notify($8, $9)");
        row.extend(args![postgres::channel(schema), chain.seq.to_string()]);
    }
    match tx.conn().run(&sql, row).await {
        Ok(_) => {}
        // Somebody else wrote this event; the epoch should have stopped us, and this does.
        Err(sqlx::Error::Database(db)) if db.is_unique_violation() => return Err(JournalError::Fenced),
        Err(error) => return Err(JournalError::storage("appending events", error)),
    }
    let rows = subtrees
        .into_iter()
        .map(|(place, node)| args![place.level, place.index, node])
        .collect();
    tx.conn()
        .insert_many("INSERT INTO subtree (level, place, hash)", "", rows)
        .await
        .map_err(|error| JournalError::storage("appending subtrees", error))
}
