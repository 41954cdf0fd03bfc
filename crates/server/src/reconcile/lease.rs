//! Node leases: when each node was last heard of. In memory only; renewals are not journalled.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tenure_domain::id::NodeId;

/// Added to the term before a node's work is given to another, for clocks that run at different speeds and
/// for the time it takes to end processes. The node itself counts from an earlier moment: its own sending.
fn slack(term: Duration) -> Duration {
    term / 4 + Duration::from_secs(1)
}

pub struct Leases {
    term: Duration,
    heard: BTreeMap<NodeId, Instant>,
}

impl Leases {
    pub fn new(term: Duration) -> Leases {
        Leases {
            term,
            heard: BTreeMap::new(),
        }
    }

    pub fn heard(&mut self, node: NodeId) {
        self.heard.insert(node, Instant::now());
    }

    /// The node must have stopped its work by now. One never heard of gets a term from the first question.
    pub fn is_over(&mut self, node: NodeId) -> bool {
        let heard = self.heard.entry(node).or_insert_with(Instant::now);
        heard.elapsed() > self.term + slack(self.term)
    }
}
