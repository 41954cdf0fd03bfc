//! Tasks as events have them: what a job's book takes in of its tasks, and what they cost it. Called where events are
//! applied.

use std::sync::Arc;

use crate::event::Charge;
use crate::id::JobId;
use crate::state::State;
use crate::tenancy::budget::Cost;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::Workload;
use crate::workload::job::{Outcome, Phase};
use crate::workload::service::Serving;
use crate::workload::task::{Task, Tasks};

impl State {
    pub(super) fn tasks_of(&mut self, job: JobId) -> &mut Tasks {
        let tasks = self.living_job(job).tasks.as_deref_mut();
        tasks.expect("INVARIANT: only a job of tasks has tasks")
    }

    /// A task is its job's in all but its part of the work.
    pub(super) fn submit_task(&mut self, at: Time, id: JobId, task: &Task) {
        self.tasks_of(task.of).take(id, task);
        let parent = &self.jobs[&task.of];
        let spec = Arc::new(parent.spec.of_task(task));
        let (owner, volumes) = (parent.owner, parent.volumes.clone());
        self.submit(at, id, owner, &spec, &volumes);
    }

    /// Every charge of a task is one of its job.
    pub(super) fn charge_parent(&mut self, parent: JobId, charge: &Charge, more_ms: u64) {
        let parent = self.living_job(parent);
        parent.charged.money.0 += charge.cost.money.0;
        parent.charged.gpu_ms += charge.cost.gpu_ms;
        if let Some(resold) = charge.resale.as_deref() {
            parent.resold.get_or_insert_default().0 += resold.posting.amount.0;
        }
        parent.ran_ms += more_ms;
        if let Some(used) = &charge.used {
            parent.usage.get_or_insert_default().add(used);
        }
    }

    /// A task leaves its job's book, and what it made is made.
    pub(super) fn end_task(&mut self, at: Time, id: JobId, outcome: &Outcome) {
        let job = &self.jobs[&id];
        let Some(task) = job.spec.task.clone() else {
            return;
        };
        let (ran_ms, micros) = (job.ran_ms, job.charged.money.0);
        let frames = job.spec.workload.as_deref().map_or(0, Workload::frames);
        let tasks = self.tasks_of(task.of);
        tasks.living.remove(&task.number);
        if let Some(serving) = tasks.serving_mut() {
            serving.ended(at, ran_ms, outcome);
            return;
        }
        if *outcome == Outcome::Succeeded {
            tasks.pieces_mut().made(task.work.span(), ran_ms, micros);
            self.settle_made(at, task.of, frames);
        }
    }

    /// Something was said of a service; what comes after its end changes nothing.
    pub(super) fn change_serving(&mut self, id: JobId, change: impl FnOnce(&mut Serving)) {
        let tasks = self.jobs.get_mut(&id).and_then(|job| job.tasks.as_deref_mut());
        if let Some(serving) = tasks.and_then(Tasks::serving_mut) {
            change(serving);
        }
    }

    /// Frames were made, of those that are held for the job from its first task on.
    fn settle_made(&mut self, at: Time, id: JobId, frames: u64) {
        let job = self.living_job(id);
        let owner = ScopeId::User(job.owner);
        let admission = job.admission.as_mut();
        let hold = &mut admission
            .expect("INVARIANT: a job is admitted with its first task")
            .hold;
        hold.left.frames = hold
            .left
            .frames
            .checked_sub(frames)
            .expect("INVARIANT: what is not made yet is held");
        let ofs = hold.counted_as();
        let made = Cost {
            frames,
            ..Cost::default()
        };
        self.tree
            .for_chain(owner, |scope| scope.spending.settle(&ofs, at, made));
    }

    /// A job of tasks that was paused goes on: it runs if it ever did.
    pub(super) fn want_tasks(&mut self, at: Time, id: JobId) {
        let job = &self.jobs[&id];
        if job.is_parent() {
            let phase = match job.started {
                Some(_) => Phase::Running,
                None => Phase::Queued,
            };
            self.change_job(at, id, phase, |_| {});
        }
    }

    /// What one task outgrew, the next do not begin with.
    pub(super) fn grow_tasks(&mut self, task: JobId, vram_mib: Option<u64>) {
        let parent = self.jobs[&task].parent();
        if let Some((parent, vram_mib)) = parent.zip(vram_mib) {
            let demand = &mut Arc::make_mut(&mut self.living_job(parent).spec).demand;
            demand.vram_mib = demand.vram_mib.max(vram_mib);
        }
    }
}
