//! What an engine was seen to say, waited for.

use std::time::Duration;

use tenure_api::channel::{AllocationReport, RunState};
use tenure_domain::id::{AllocationId, NodeId};
use tokio::sync::mpsc;

use crate::{Engine, Seen};

const PATIENCE: Duration = Duration::from_secs(30);

/// A subscriber that waits for what it expects, and panics when it does not come.
pub struct Watcher {
    seen: mpsc::Receiver<Seen>,
    patience: Duration,
}

impl Watcher {
    pub fn of(engine: &dyn Engine) -> Watcher {
        Watcher {
            seen: engine.subscribe(),
            patience: PATIENCE,
        }
    }

    /// Waits this long for each thing expected.
    pub fn patient(self, patience: Duration) -> Watcher {
        Watcher { patience, ..self }
    }

    pub async fn next(&mut self) -> Seen {
        let next = tokio::time::timeout(self.patience, self.seen.recv()).await;
        next.expect("nothing more was seen in time")
            .expect("the engine ended")
    }

    /// What is seen within `time`.
    pub async fn within(&mut self, time: Duration) -> Vec<Seen> {
        let mut all = Vec::new();
        let deadline = tokio::time::Instant::now() + time;
        while let Ok(Some(seen)) = tokio::time::timeout_at(deadline, self.seen.recv()).await {
            all.push(seen);
        }
        all
    }

    pub async fn until<T>(&mut self, mut wanted: impl FnMut(&Seen) -> Option<T>) -> T {
        let deadline = tokio::time::Instant::now() + self.patience;
        loop {
            assert!(
                tokio::time::Instant::now() < deadline,
                "what was expected was not seen in time"
            );
            if let Some(found) = wanted(&self.next().await) {
                return found;
            }
        }
    }

    /// The next report of an allocation whose state is as wanted.
    pub async fn report(&mut self, id: AllocationId, wanted: impl Fn(&RunState) -> bool) -> AllocationReport {
        self.until(|seen| match seen {
            Seen::Report { allocations, .. } => allocations
                .iter()
                .find(|report| report.allocation == id && wanted(&report.state))
                .cloned(),
            _ => None,
        })
        .await
    }

    pub async fn state(&mut self, id: AllocationId, wanted: impl Fn(&RunState) -> bool) -> RunState {
        self.report(id, wanted).await.state
    }

    /// The next whole report.
    pub async fn whole(&mut self, of: NodeId) -> Vec<AllocationReport> {
        self.until(|seen| match seen {
            Seen::Report {
                node,
                whole: true,
                allocations,
            } if *node == of => Some(allocations.clone()),
            _ => None,
        })
        .await
    }
}
