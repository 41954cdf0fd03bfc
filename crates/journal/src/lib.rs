//! The journal: append-only, hash-chained, covered by a Merkle tree, on SQLite and on PostgreSQL.
//!
//! Here: appending behind a leader's fence, reading and following, snapshots, history tables, outcomes
//! of idempotent requests, secrets and marks (mutable tables outside the chain), signed heads, proofs, verifying,
//! backup and restore; and beside all that, kept logs (`log`). Absent on purpose: what an event means (they are opaque JSON text), deciding, the
//! clock of the platform, keys and encryption of secrets. Called by the server's controller (the only
//! writer), by followers, by the `tenure` command for verify, backup and restore, and by `sim`.

#![forbid(unsafe_code)]

mod append;
mod backup;
mod chain;
mod error;
mod follow;
mod hash;
mod head;
mod history;
mod key;
mod leader;
mod line;
mod location;
mod lock;
mod log;
mod mark;
mod merkle;
mod proof;
mod reader;
mod restore;
mod schema;
mod seal;
mod secret;
mod snapshot;
mod store;
#[cfg(feature = "testing")]
pub mod testing;
mod verify;

pub use append::{Batch, Committed};
pub use chain::{Bad, Fault, Head};
pub use error::JournalError;
pub use hash::Hash;
pub use head::{KeyError, PublicKey, SignedHead, SigningKey};
pub use history::HistoryRow;
pub use key::KeyRow;
pub use leader::{Journal, JournalHandle};
pub use line::{Entry, EventText, Line};
pub use location::{Location, Options};
pub use log::{
    Appended, Erased, Find, LogHead, LogSource, LogStore, LogStretch, NewSource, NewStretch, Within,
};
pub use merkle::Tree;
pub use proof::{ManyProof, Proof, ProofError, check_proof};
pub use reader::JournalReader;
pub use restore::{Until, restore};
pub use schema::FORMAT;
pub use seal::{Sealed, Sealer};
pub use snapshot::Snapshot;
pub use verify::{Cut, HeadFault, Report, VerifyOptions};
