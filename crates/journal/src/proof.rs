//! Proofs: one event, shown to be in the journal that a signed head vouches for, without the journal.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::error::JournalError;
use crate::hash::Hash;
use crate::head::{KeyError, PublicKey, SignedHead};
use crate::line::Line;
use crate::merkle::{self, Frontier, Place, STORED_LEVEL};
use crate::reader::{JournalReader, leaf_hashes};
use crate::store::{Conn, args};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The event's exact line.
    pub line: String,
    /// Its place among the leaves: its number less one.
    pub index: u64,
    /// How many events the head covers.
    pub size: u64,
    /// The siblings on the way to the root, nearest first.
    pub path: Vec<Hash>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    #[error("the head is not sound: {0}")]
    Head(#[from] KeyError),
    #[error("the proof is for a journal of another size than the head's")]
    Size,
    #[error("the line is not event {0}")]
    Line(u64),
    #[error("the path does not lead to the head's root")]
    Path,
}

/// Checks a proof with nothing but a public key.
pub fn check_proof(proof: &Proof, head: &SignedHead, key: &PublicKey) -> Result<Line, ProofError> {
    head.check(key)?;
    if proof.size != head.seq {
        return Err(ProofError::Size);
    }
    let seq = proof.index.saturating_add(1);
    let line = Line::parse(&proof.line).map_err(|_| ProofError::Line(seq))?;
    if line.seq != seq {
        return Err(ProofError::Line(seq));
    }
    let root = merkle::climb(merkle::leaf(line.hash), proof.index, proof.size, &proof.path);
    if root == Some(head.root) {
        Ok(line)
    } else {
        Err(ProofError::Path)
    }
}

/// Many events, shown to be in the journal that a head vouches for by their hashes alone: nothing of what they say is
/// told, and what they said cannot be another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManyProof {
    /// Of the events, in the order of their numbers.
    pub hashes: Vec<Hash>,
    /// Roots of what holds none of them, from left to right.
    pub path: Vec<Hash>,
}

impl ManyProof {
    /// Whether these events are in the journal under the root, as the hashes say.
    pub fn holds(&self, numbers: &[u64], size: u64, root: Hash) -> bool {
        let leaves: Option<Vec<(u64, Hash)>> = numbers
            .iter()
            .zip(&self.hashes)
            .map(|(seq, hash)| Some((seq.checked_sub(1)?, merkle::leaf(*hash))))
            .collect();
        let whole = self.hashes.len() == numbers.len();
        leaves
            .filter(|_| whole)
            .is_some_and(|leaves| merkle::climb_all(&leaves, size, &self.path) == Some(root))
    }
}

impl JournalReader {
    /// Proves events, by rising numbers, against a head that covers `size` events.
    pub async fn prove_many(&self, numbers: &[u64], size: u64) -> Result<ManyProof, JournalError> {
        if size > self.stored_head().await?.seq {
            return Err(JournalError::NoSuchEvent { seq: size, size });
        }
        let missing = |seq| JournalError::NoSuchEvent { seq, size };
        let mut hashes = Vec::with_capacity(numbers.len());
        let mut conn = self.conn().await?;
        for block in numbers.chunk_by(|a, b| block_of(*a) == block_of(*b)) {
            let (first, last) = (block[0], block[block.len() - 1]);
            if first == 0 || last > size {
                return Err(missing(last));
            }
            let known = leaf_hashes(&mut conn, first, last).await?;
            for seq in block {
                let hash = known.get((seq - first) as usize);
                hashes.push(*hash.ok_or_else(|| missing(*seq))?);
            }
        }
        drop(conn);
        let indexes: Vec<u64> = numbers.iter().map(|seq| seq - 1).collect();
        let mut wanted = BTreeSet::new();
        merkle::paths(&indexes, size, &mut |place| {
            wanted.insert(place);
            Hash::ZERO
        });
        let nodes = self.nodes(wanted, size).await?;
        let path = merkle::paths(&indexes, size, &mut |place| nodes[&place]);
        Ok(ManyProof { hashes, path })
    }

    /// Proves event `seq` against a head that covers `size` events.
    pub async fn prove(&self, seq: u64, size: u64) -> Result<Proof, JournalError> {
        let missing = || JournalError::NoSuchEvent { seq, size };
        if seq == 0 || seq > size || size > self.stored_head().await?.seq {
            return Err(missing());
        }
        let line = self
            .read(seq, 1)
            .await?
            .pop()
            .filter(|line| line.seq == seq)
            .ok_or_else(missing)?;
        let index = seq - 1;
        // The way is walked twice: first to learn which nodes it needs, then with them.
        let mut wanted = BTreeSet::new();
        merkle::path(index, size, &mut |place| {
            wanted.insert(place);
            Hash::ZERO
        });
        let nodes = self.nodes(wanted, size).await?;
        let path = merkle::path(index, size, &mut |place| nodes[&place]);
        Ok(Proof {
            line: line.text.into(),
            index,
            size,
            path,
        })
    }

    async fn nodes(&self, wanted: BTreeSet<Place>, size: u64) -> Result<HashMap<Place, Hash>, JournalError> {
        let mut conn = self.conn().await?;
        let mut blocks: HashMap<u64, Vec<Hash>> = HashMap::new();
        let mut nodes = HashMap::new();
        for place in wanted {
            let node = if place.level >= STORED_LEVEL {
                stored(&mut conn, place).await?
            } else {
                let start = place.index << place.level;
                let block = start >> STORED_LEVEL;
                if let std::collections::hash_map::Entry::Vacant(slot) = blocks.entry(block) {
                    let first = block << STORED_LEVEL;
                    let last = size.min(first + (1 << STORED_LEVEL));
                    slot.insert(leaf_hashes(&mut conn, first + 1, last).await?);
                }
                within(&blocks[&block], start & ((1 << STORED_LEVEL) - 1), place.level)?
            };
            nodes.insert(place, node);
        }
        Ok(nodes)
    }
}

fn block_of(seq: u64) -> u64 {
    seq.saturating_sub(1) >> STORED_LEVEL
}

async fn stored(conn: &mut Conn, place: Place) -> Result<Hash, JournalError> {
    let row = conn
        .row(
            "SELECT hash FROM subtree WHERE level = $1 AND place = $2",
            args![place.level, place.index],
        )
        .await
        .map_err(|error| JournalError::storage("reading a subtree", error))?;
    row.ok_or_else(|| JournalError::corrupt("a stored subtree is missing"))?
        .hash(0)
}

/// The root over `2^level` leaves of a block.
fn within(block: &[Hash], start: u64, level: u32) -> Result<Hash, JournalError> {
    let start = start as usize;
    let leaves = block
        .get(start..start + (1 << level))
        .ok_or_else(|| JournalError::corrupt("event hashes are missing"))?;
    let mut tree = Frontier::default();
    for event in leaves {
        tree.push(merkle::leaf(*event), |_, _| {});
    }
    Ok(tree.root())
}
