//! What an attempt costs while it runs, and what it gives back when it ends. Called where events are applied.

use crate::event::Charge;
use crate::id::JobId;
use crate::ledger::hold::Hold;
use crate::schedule::relieve::is_crowded;
use crate::state::State;
use crate::tenancy::budget::Cost;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::member::longer_ms;

impl State {
    pub(super) fn charge(&mut self, at: Time, charge: &Charge) {
        self.accounts.post(&charge.posting);
        let allocation = self
            .fleet
            .allocations
            .get_mut(&charge.allocation)
            .expect("INVARIANT: charges are of living allocations");
        // INVARIANT: intervals tile the allocation: no gap, no overlap.
        assert_eq!(
            allocation.metered_ms, charge.from_ms,
            "INVARIANT: intervals follow one another"
        );
        allocation.metered_ms = charge.to_ms;
        allocation.crumb = charge.crumb;
        if let Some(resold) = &charge.resale {
            allocation.resale_crumb = resold.crumb;
        }
        if let Some(used) = &charge.used {
            allocation.used.get_or_insert_default().add(used);
            allocation.crowded_ms = match is_crowded(used) {
                true => allocation.crowded_ms + (charge.to_ms - charge.from_ms),
                false => 0,
            };
        }
        let job = self
            .jobs
            .get_mut(&charge.job)
            .expect("INVARIANT: events name live jobs");
        job.charged.money.0 += charge.cost.money.0;
        job.charged.gpu_ms += charge.cost.gpu_ms;
        let resold = charge.resale.as_deref().map(|resold| resold.posting.amount);
        if let Some(resold) = resold {
            job.resold.get_or_insert_default().0 += resold.0;
        }
        let ran_before_s = job.ran_ms / SECOND_MS;
        let more_ms = longer_ms(&mut job.members, charge.allocation, charge.to_ms);
        job.ran_ms += more_ms;
        let parent = job.parent();
        if let Some(alike) = job.alike {
            let ran_s = job.ran_ms / SECOND_MS;
            self.history.ran(alike, ran_before_s, ran_s, at);
        }
        if let Some(used) = &charge.used {
            job.usage.get_or_insert_default().add(used);
        }
        let hold = &mut job
            .admission
            .as_mut()
            .expect("INVARIANT: what runs is admitted")
            .hold;
        hold.left.money.0 -= charge.cost.money.0;
        hold.left.gpu_ms -= charge.cost.gpu_ms;
        assert!(
            hold.left.money.0 >= 0,
            "INVARIANT: a charge never passes its hold"
        );
        if let (Some(resale), Some(resold)) = (hold.resale.as_deref_mut(), resold) {
            resale.left.0 -= resold.0;
            assert!(resale.left.0 >= 0, "INVARIANT: a charge never passes its hold");
        }
        self.accounts.release(hold.account, charge.cost.money);
        self.accounts.sweep(hold.account, charge.swept);
        let (ofs, owner) = (hold.counted_as(), job.owner);
        if let Some(resold) = charge.resale.as_deref() {
            self.accounts.post(&resold.posting);
            self.accounts.sweep(resold.posting.from, resold.swept);
            resold.fee.iter().for_each(|fee| self.accounts.post(fee));
        }
        if let Some(parent) = parent {
            self.charge_parent(parent, charge, more_ms);
        }
        let half_life_ms = self.half_life_ms();
        self.tree.for_chain(ScopeId::User(owner), |scope| {
            let cost = Hold::seen_from(scope.id, charge.cost, resold);
            scope.spending.settle(&ofs, at, cost);
            scope.lately.add(charge.cost.gpu_ms, half_life_ms, at);
        });
    }

    /// The frames of a job that succeeded were made.
    pub(super) fn settle_frames(&mut self, at: Time, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("INVARIANT: events name live jobs");
        let Some(hold) = job.admission.as_mut().map(|admission| &mut admission.hold) else {
            return;
        };
        let made = Cost {
            frames: std::mem::take(&mut hold.left.frames),
            ..Cost::default()
        };
        let (ofs, owner) = (hold.counted_as(), job.owner);
        if made.frames > 0 {
            self.tree.for_chain(ScopeId::User(owner), |scope| {
                scope.spending.settle(&ofs, at, made)
            });
        }
    }

    /// Gives back everything an attempt holds: slices, quota, money.
    pub(super) fn release(&mut self, at: Time, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("INVARIANT: events name live jobs");
        job.failed = None;
        let members = std::mem::take(&mut job.members);
        let living = members.iter().filter(|member| member.is_living());
        let given: Vec<(u64, u64)> = living
            .map(|member| {
                let given = self.fleet.give_back(member.allocation);
                (given.crumb, given.resale_crumb)
            })
            .collect();
        self.leave_crumbs(id, &given);
        self.release_hold(at, id);
    }

    /// Parts of micros that allocations leave over are whoever's who pays for them, until they come to something.
    pub(super) fn leave_crumbs(&mut self, id: JobId, crumbs: &[(u64, u64)]) {
        let owner = ScopeId::User(self.jobs[&id].owner);
        let account = self.account_of(owner);
        let resale = self.jobs[&id]
            .admission
            .as_ref()
            .and_then(|admission| admission.hold.resale.as_deref())
            .map(|resale| resale.from);
        for &(crumb, resale_crumb) in crumbs {
            self.accounts.leave_crumb(account, crumb);
            if let Some(subscriber) = resale {
                self.accounts.leave_crumb(subscriber, resale_crumb);
            }
        }
    }

    pub(super) fn release_hold(&mut self, at: Time, id: JobId) {
        let job = self.jobs.get_mut(&id).expect("INVARIANT: events name live jobs");
        let Some(admission) = job.admission.take() else {
            return;
        };
        let (hold, ofs) = (&admission.hold, admission.hold.counted_as());
        self.accounts.release(hold.account, hold.left.money);
        self.tree.for_chain(ScopeId::User(job.owner), |scope| {
            scope.used.remove(&admission.amounts);
            scope.spending.release(&ofs, at, hold.left_at(scope.id));
        });
    }
}
