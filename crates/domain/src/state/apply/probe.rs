//! Watching a few waiting jobs, so that stated starts learn from what became of them.

use crate::id::JobId;
use crate::schedule::order::outlook::outlook;
use crate::state::State;
use crate::time::Time;
use crate::workload::job::Phase;

impl State {
    /// A job was submitted; the one before it is watched, should it wait and its turn have come.
    pub(super) fn probe(&mut self, at: Time, id: JobId) {
        let asked = self.probes.submitted(id, at);
        let waits = asked
            .and_then(|id| self.jobs.get(&id))
            .filter(|job| job.phase == Phase::Queued);
        let Some(job) = waits else { return };
        let found = outlook(self, job, at).and_then(|outlook| outlook.estimate);
        let (id, of) = (job.id, job.alike.map(Into::into));
        self.probes.asks(at);
        if let Some(estimate) = found {
            self.probes.watch(id, estimate, of, at);
        }
    }
}
