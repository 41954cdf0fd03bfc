//! Sealing: a batch becomes lines with their hashes, its place in the tree, and the rows that go with it. No database here,
//! so that one batch can be sealed on a thread of its own while the one before it is being written.

use crate::append::Batch;
use crate::chain::Chain;
use crate::error::JournalError;
use crate::hash::Hash;
use crate::history;
use crate::key;
use crate::merkle::{Place, STORED_LEVEL};
use crate::store::Val;

/// Room in a line beside its event: numbers, names and the hash before it.
const AROUND: usize = 192;

/// Seals batches one after the other, ahead of what is written.
///
/// It goes on from the journal's end as it was when it was made. When a batch of its is not written, none that it sealed
/// after that can be, nor can any while somebody else appends: the next `write` refuses them.
#[derive(Clone, Debug)]
pub struct Sealer {
    chain: Chain,
}

/// A batch that is ready to be written, after the very event it was sealed for.
#[derive(Debug)]
pub struct Sealed {
    pub(crate) before: (u64, Hash),
    pub(crate) chain: Chain,
    pub(crate) at_ms: i64,
    pub(crate) body: String,
    pub(crate) hashes: Vec<Hash>,
    pub(crate) subtrees: Vec<(Place, Hash)>,
    pub(crate) history: Vec<Vec<Val>>,
    pub(crate) keys: Vec<Vec<Val>>,
}

impl Sealed {
    /// The number of its first event; with no events, the one after the last there is.
    pub fn first_seq(&self) -> u64 {
        self.before.0 + 1
    }
}

impl Sealer {
    pub(crate) fn new(chain: Chain) -> Sealer {
        Sealer { chain }
    }

    /// The number of the event that is sealed next.
    pub fn next_seq(&self) -> u64 {
        self.chain.seq + 1
    }

    /// Refuses a batch with an event that is not one JSON object on one line, and stays where it was.
    pub fn seal(&mut self, batch: Batch) -> Result<Sealed, JournalError> {
        let Batch {
            entries,
            history,
            keys,
        } = batch;
        if let Some(index) = entries.iter().position(|entry| !entry.is_sound()) {
            return Err(JournalError::BadEvent { index });
        }
        let before = (self.chain.seq, self.chain.hash);
        let chain = &mut self.chain;
        let mut body = String::with_capacity(entries.iter().map(|entry| entry.event.len() + AROUND).sum());
        let mut hashes = Vec::with_capacity(entries.len());
        let mut subtrees = Vec::new();
        for entry in &entries {
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
        let seq = chain.seq;
        Ok(Sealed {
            before,
            chain: chain.clone(),
            at_ms: entries.iter().map(|entry| entry.at_ms).max().unwrap_or(0),
            body,
            hashes,
            subtrees,
            history: history::rows(seq, history),
            keys: key::rows(seq, keys),
        })
    }
}
