//! Appending: one batch, one transaction, one row, and the rows that go with it.

use crate::chain::Chain;
use crate::error::JournalError;
use crate::hash::{self, Hash};
use crate::history::{self, HistoryRow};
use crate::key::{self, KeyRow};
use crate::leader::{Journal, Tx};
use crate::line::Entry;
use crate::location::Source;
use crate::merkle::{Place, STORED_LEVEL};
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

/// The batch row, built before the transaction begins.
struct Sealed {
    chain: Chain,
    at_ms: i64,
    body: String,
    hashes: Vec<Hash>,
    subtrees: Vec<(Place, Hash)>,
}

impl Journal {
    /// Makes a batch durable. When this returns `Ok` it survives a crash and a power cut; any error but
    /// `Uncertain` means that nothing was written. After `Uncertain` nothing more is accepted: the caller
    /// ends the process and recovers.
    pub async fn append(&mut self, batch: Batch) -> Result<Committed, JournalError> {
        if self.uncertain {
            return Err(JournalError::Uncertain { source: None });
        }
        let first_seq = self.chain.seq + 1;
        let sealed = seal(&self.chain, &batch.entries)?;
        let (last_seq, hash) = (sealed.chain.seq, sealed.chain.hash);
        let chain = sealed.chain.clone();

        let handle = self.handle();
        let mut tx = handle.begin().await?;
        if !batch.entries.is_empty() {
            write_batch(&mut tx, handle.source(), first_seq, sealed).await?;
        }
        history::insert(&mut tx, last_seq, batch.history).await?;
        key::insert(&mut tx, last_seq, batch.keys).await?;

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

fn seal(before: &Chain, entries: &[Entry]) -> Result<Sealed, JournalError> {
    if let Some(index) = entries.iter().position(|entry| !entry.is_sound()) {
        return Err(JournalError::BadEvent { index });
    }
    let mut chain = before.clone();
    let mut body = String::with_capacity(entries.iter().map(|entry| entry.event.len() + 192).sum());
    let mut hashes = Vec::with_capacity(entries.len());
    let mut subtrees = Vec::new();
    for entry in entries {
        if !body.is_empty() {
            body.push('\n');
        }
        let hash = entry.write(chain.seq + 1, chain.hash, &mut body);
        hashes.push(hash);
        chain.push(hash, |place, node| {
            if place.level >= STORED_LEVEL {
                subtrees.push((place, node));
            }
        });
    }
    let at_ms = entries.iter().map(|entry| entry.at_ms).max().unwrap_or(0);
    Ok(Sealed {
        chain,
        at_ms,
        body,
        hashes,
        subtrees,
    })
}

async fn write_batch(
    tx: &mut Tx<'_>,
    source: &Source,
    first_seq: u64,
    sealed: Sealed,
) -> Result<(), JournalError> {
    let Sealed {
        chain,
        at_ms,
        body,
        hashes,
        subtrees,
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
