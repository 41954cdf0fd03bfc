//! Pausing: a running job gives its GPUs back for a while and loses nothing. Its processes stay where they are, so it
//! resumes on its own node, on the devices it had.
//!
//! While it is paused it holds no quota and no money; its node's CPU and memory it keeps. What it ran is charged up to
//! the pause, and what follows from there on.

use super::Case;
use super::job::sentence;
use crate::event::Event;
use crate::id::JobId;
use crate::refusal::{Code, Refusal};
use crate::schedule::allocation::Allocation;
use crate::schedule::pass;
use crate::state::State;
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;
use crate::workload::job::{Job, PauseReason, Phase, StopReason};
use crate::workload::spec::Isolation;
use crate::workload::usage::Usage;

impl Case<'_> {
    pub(super) fn pause(&self, id: JobId, reason: PauseReason) -> Result<Vec<Event>, Refusal> {
        let job = self.state.job(id)?;
        self.may(Action::JobStop, ScopeId::User(job.owner))?;
        match (job.phase, job.pause) {
            // Its tasks are set aside, and no more are made.
            (Phase::Queued | Phase::Running, _) if job.is_parent() => {
                return Ok(vec![Event::JobPausing { job: id, reason }]);
            }
            (Phase::Running, _) => {}
            (Phase::Pausing | Phase::Paused, Some(_)) => return Ok(vec![]),
            // It was to resume, and is not to after all.
            (Phase::Paused, None) => return Ok(vec![Event::JobPausing { job: id, reason }]),
            (phase, _) => {
                return Err(Refusal::new(
                    Code::WrongPhase,
                    format!("the job is {}; only what runs can be paused", phase.as_str()),
                ));
            }
        }
        let mut allocations = job.allocations().filter_map(|id| self.state.fleet.allocation(id));
        match allocations.find_map(|allocation| cannot_pause(self.state, job, allocation)) {
            None => Ok(vec![Event::JobPausing { job: id, reason }]),
            Some(why) => Err(
                Refusal::new(Code::WrongPhase, format!("the job cannot be paused: {why}"))
                    .hint("stop it, and submit it anew when there is room"),
            ),
        }
    }

    pub(super) fn resume_job(&mut self, id: JobId) -> Result<Vec<Event>, Refusal> {
        let job = self.state.job(id)?;
        let owner = ScopeId::User(job.owner);
        self.may_ask(Action::JobSubmit, owner, &job.spec)?;
        match (job.phase, job.pause) {
            (Phase::Paused, Some(_)) => {}
            // Waiting for room already, or about to be asked for it.
            (Phase::Paused | Phase::Resuming, _) => return Ok(vec![]),
            (phase, _) => {
                return Err(Refusal::new(
                    Code::WrongPhase,
                    format!("the job is {}; only what is paused can resume", phase.as_str()),
                ));
            }
        }
        let mut events = vec![Event::JobWanted { job: id }];
        if job.is_parent() {
            return Ok(events);
        }
        events.extend(pass::resume(self.state, job, self.command.at).unwrap_or_default());
        Ok(events)
    }

    /// The node set it aside.
    pub(super) fn paused(
        &self,
        allocation: &Allocation,
        job: &Job,
        ran_ms: u64,
        usage: Option<Usage>,
    ) -> Vec<Event> {
        if job.phase != Phase::Pausing || allocation.paused {
            return vec![];
        }
        let charge = self.charge(allocation, job, ran_ms, usage);
        let mut events: Vec<Event> = charge
            .map(|charge| Event::UsageMetered {
                node: allocation.node,
                charges: vec![charge],
            })
            .into_iter()
            .collect();
        events.push(Event::JobPaused { job: job.id });
        events
    }

    /// The node could not do what was asked of it.
    pub(super) fn kept(&self, allocation: &Allocation, job: &Job, why: &str) -> Vec<Event> {
        let open = match job.phase {
            Phase::Pausing => !allocation.paused,
            Phase::Resuming => true,
            _ => false,
        };
        if !open {
            return vec![];
        }
        let mut events = vec![Event::JobKept {
            job: job.id,
            why: sentence(why),
        }];
        // Others count on its room: what cannot be set aside leaves with its grace.
        let mut promises = self.state.calendar.iter();
        if job.phase == Phase::Pausing && promises.any(|promise| promise.victims.contains(&job.id)) {
            events.push(Event::JobStopping {
                job: job.id,
                reason: StopReason::Evicted,
            });
        }
        events
    }
}

/// Why what the job's allocation has cannot be set aside: without a worker its GPUs' driver has to.
pub(crate) fn cannot_pause(state: &State, job: &Job, allocation: &Allocation) -> Option<String> {
    if job.is_gang() {
        return Some(format!(
            "it has {} members, which wait for one another and cannot be set aside at one moment",
            job.spec.demand.nodes
        ));
    }
    if allocation.slices.is_empty() {
        return Some("it has no GPU to give back".into());
    }
    (!can_pause(state, job, allocation)).then(|| {
        format!(
            "it is {}, and only a slice behind a worker, or on a GPU whose driver does so, can be set aside without its program's help",
            allocation.isolation.as_str()
        )
    })
}

/// Whether there is nothing against it. Asked of hundreds of jobs for one that wants their room.
pub(crate) fn can_pause(state: &State, job: &Job, allocation: &Allocation) -> bool {
    if job.is_gang() || allocation.slices.is_empty() {
        return false;
    }
    if allocation.isolation == Isolation::Fenced {
        return true;
    }
    let node = state.fleet.node(allocation.node);
    allocation.slices.iter().all(|slice| {
        let gpu = node.and_then(|node| node.gpu(slice.gpu));
        let hardware = gpu.and_then(|gpu| gpu.facts.hardware.as_ref());
        slice.part.is_none() && hardware.is_some_and(|hardware| hardware.checkpoint && !hardware.one_tenant)
    })
}
