//! Jobs that change while they live: their size, who pays for them, whether they run.

use std::sync::Arc;

use crate::id::JobId;
use crate::schedule::allocation::Slice;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::{Admission, PauseReason, Phase};
use crate::workload::spec::Demand;

/// A job that its node could not resume is not asked of it again before.
const RESUME_AGAIN_MS: i64 = 10_000;

impl State {
    pub(super) fn resize(
        &mut self,
        at: Time,
        id: JobId,
        demand: &Demand,
        after: &Admission,
        slices: &[Slice],
    ) {
        let job = self.jobs.get_mut(&id).expect("INVARIANT: events name live jobs");
        Arc::make_mut(&mut job.spec).demand = demand.clone();
        let allocation = job.sole_allocation();
        self.fleet
            .resize(allocation.expect("INVARIANT: what runs has a place"), slices);
        self.reprice(at, id, after);
    }

    /// Holds what a job on GPUs is admitted with now instead of what it was.
    pub(super) fn reprice(&mut self, at: Time, id: JobId, after: &Admission) {
        let job = self.jobs.get_mut(&id).expect("INVARIANT: events name live jobs");
        let before = job
            .admission
            .replace(after.clone())
            .expect("INVARIANT: what runs is admitted");
        let owner = ScopeId::User(job.owner);
        self.accounts.release(before.hold.account, before.hold.left.money);
        self.accounts.hold(after.hold.account, after.hold.left.money);
        self.tree.for_chain(owner, |scope| {
            scope.used.remove(&before.amounts);
            scope
                .spending
                .release(&before.hold.counted_as(), at, before.hold.left_at(scope.id));
            scope.used.add(&after.amounts);
            scope
                .spending
                .hold(&after.hold.counted_as(), at, after.hold.left_at(scope.id));
        });
    }

    pub(super) fn pause(&mut self, at: Time, id: JobId, reason: PauseReason) {
        let job = &self.jobs[&id];
        self.queue.remove(job);
        // One that is paused is only not to resume.
        let (phase, since) = match job.phase {
            _ if job.is_parent() => (Phase::Paused, at),
            Phase::Running => (Phase::Pausing, at),
            phase => (phase, job.since),
        };
        self.change_job(since, id, phase, |job| job.pause = Some(reason));
    }

    /// Gives back the GPUs of a job that stays on its node, with quota and money.
    pub(super) fn set_aside(&mut self, at: Time, id: JobId, again: bool) {
        let allocation = self.jobs[&id].sole_allocation();
        self.fleet
            .set_aside(allocation.expect("INVARIANT: what runs has a place"));
        self.release_hold(at, id);
        self.change_job(at, id, Phase::Paused, |job| {
            job.pause = job.pause.filter(|reason| *reason == PauseReason::Asked);
            job.resume_after = again.then_some(Time(at.0 + RESUME_AGAIN_MS));
        });
        self.queue.add(&self.jobs[&id]);
    }
}
