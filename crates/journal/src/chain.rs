//! The chain: how events follow one another, and how a stored batch is checked against that.
//!
//! Pure. Used to append (`leader`), to open, to verify and to copy; each gets the same answer about
//! which event is the first bad one.

use crate::error::JournalError;
use crate::hash::{self, Hash};
use crate::line;
use crate::merkle::{self, Frontier, Place};
use crate::store::Row;

/// The end of a journal: its last event, that event's hash and the root over all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub seq: u64,
    pub hash: Hash,
    pub root: Hash,
}

/// The first event that is not as it was written, and how that shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    pub seq: u64,
    pub what: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no such event, though later ones exist.
    Missing,
    /// The line differs from the hash kept beside it.
    Altered,
    /// The line is not one of ours.
    Unreadable,
    /// Another event stands in its place.
    OutOfOrder,
    /// The line and its hash were both changed: its neighbour names another hash.
    Unlinked,
    /// The tree kept with the batch is not the tree over its events.
    Tree,
    /// A signed head says otherwise: the chain was rewritten at or after this event.
    Rewritten,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fault::Missing => "is missing",
            Fault::Altered => "was altered",
            Fault::Unreadable => "cannot be read",
            Fault::OutOfOrder => "is out of order",
            Fault::Unlinked => "does not link to its neighbour",
            Fault::Tree => "does not match the stored tree",
            Fault::Rewritten => "contradicts a signed head",
        })
    }
}

/// One row of `batch` as stored, not yet believed.
pub(crate) struct BatchRow {
    pub first_seq: u64,
    pub last_seq: u64,
    pub at_ms: i64,
    pub hash: Vec<u8>,
    pub frontier: Vec<u8>,
    pub hashes: Vec<u8>,
    pub body: Vec<u8>,
}

impl BatchRow {
    pub const COLUMNS: &str = "first_seq, last_seq, at_ms, hash, frontier, hashes, body";

    pub fn read(row: &Row) -> Result<BatchRow, JournalError> {
        Ok(BatchRow {
            first_seq: row.count(0)?,
            last_seq: row.count(1)?,
            at_ms: row.int(2)?,
            hash: row.blob(3)?,
            frontier: row.blob(4)?,
            hashes: row.blob(5)?,
            body: row.blob(6)?,
        })
    }

    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.body.split(|byte| *byte == b'\n')
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    pub seq: u64,
    pub hash: Hash,
    pub frontier: Frontier,
}

impl Chain {
    pub fn head(&self) -> Head {
        Head {
            seq: self.seq,
            hash: self.hash,
            root: self.frontier.root(),
        }
    }

    /// The state after a row, taken from what the row says of itself.
    pub fn after(row: &BatchRow) -> Option<Chain> {
        Some(Chain {
            seq: row.last_seq,
            hash: Hash::from_slice(&row.hash)?,
            frontier: Frontier::from_parts(row.last_seq, hash::split(&row.frontier)?)?,
        })
    }

    pub fn push(&mut self, hash: Hash, completed: impl FnMut(Place, Hash)) {
        self.seq += 1;
        self.hash = hash;
        self.frontier.push(merkle::leaf(hash), completed);
    }

    /// Goes over one stored batch, event by event. On a fault the state is that before the bad event.
    pub fn accept(
        &mut self,
        row: &BatchRow,
        mut completed: impl FnMut(Place, Hash),
        mut each: impl FnMut(&Chain) -> Result<(), Bad>,
    ) -> Result<(), Bad> {
        let bad = |seq, what| Err(Bad { seq, what });
        let first = self.seq + 1;
        if row.first_seq != first {
            return bad(
                first,
                if row.first_seq > first {
                    Fault::Missing
                } else {
                    Fault::OutOfOrder
                },
            );
        }
        let (recorded, rest) = row.hashes.as_chunks::<32>();
        let lines: Vec<&[u8]> = row.lines().collect();
        let mut at_ms = i64::MIN;
        for (at, line) in lines.iter().enumerate() {
            let seq = self.seq + 1;
            if seq > row.last_seq {
                return bad(seq, Fault::OutOfOrder);
            }
            let hash = Hash::of(line);
            if recorded.get(at) != Some(&hash.0) {
                return bad(seq, Fault::Altered);
            }
            let Some(link) = line::link(line) else {
                return bad(seq, Fault::Unreadable);
            };
            if link.seq != seq {
                return bad(seq, Fault::OutOfOrder);
            }
            if link.prev != self.hash {
                // Who lies, this event or the one before? This one, if the next does not vouch for it.
                let vouched = match lines.get(at + 1).and_then(|line| line::link(line)) {
                    Some(next) => next.prev == hash,
                    None => row.hash == hash.0,
                };
                return bad(if vouched && seq > 1 { seq - 1 } else { seq }, Fault::Unlinked);
            }
            at_ms = at_ms.max(link.at_ms);
            self.push(hash, &mut completed);
            each(self)?;
        }
        if self.seq != row.last_seq {
            return bad(self.seq + 1, Fault::Missing);
        }
        if recorded.len() != lines.len() || !rest.is_empty() || row.hash != self.hash.0 || row.at_ms != at_ms
        {
            return bad(self.seq, Fault::Altered);
        }
        if hash::split(&row.frontier).as_deref() != Some(self.frontier.roots()) {
            return bad(first, Fault::Tree);
        }
        Ok(())
    }
}
