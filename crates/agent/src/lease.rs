//! The node's lease: until when it may run what it was given. No lease, no run.
//!
//! The agent renews it by writing a file, and every thin parent reads that file: so jobs end in time even
//! when the agent is dead or hung. The term counts from when the acknowledged heartbeat was sent, by a clock
//! that runs on while the machine sleeps; the server counts from later, so the node always ends first.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::record::write_whole;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// By the boot clock.
    pub until_ms: u64,
    pub term_ms: u64,
}

impl Lease {
    /// The lease that an acknowledged heartbeat gives; none for one that cannot have been sent.
    pub fn renewed(sent_ms: u64, term_ms: u64) -> Option<Lease> {
        (sent_ms <= clock::boottime_ms()).then(|| Lease {
            until_ms: sent_ms.saturating_add(term_ms),
            term_ms,
        })
    }

    pub fn read(root: &Path) -> Option<Lease> {
        serde_json::from_slice(&std::fs::read(root.join("lease")).ok()?).ok()
    }

    pub fn write(self, root: &Path) -> io::Result<()> {
        write_whole(root, "lease", &serde_json::to_vec(&self)?)
    }

    pub fn holds(self) -> bool {
        clock::boottime_ms() < self.until_ms
    }

    /// When a job must be told, to be gone by the end: its grace before it, but never so early that one late
    /// heartbeat would end it.
    pub fn warn_ms(self, grace_ms: u64) -> u64 {
        self.until_ms.saturating_sub(grace_ms.min(self.term_ms / 4))
    }
}
