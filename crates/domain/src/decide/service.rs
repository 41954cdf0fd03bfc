//! Services: between how many replicas, how many now, and which of them fail. That replicas are made where some are
//! missing follows from these in `task`, as it does from the end of one.

use super::Case;
use super::job::sentence;
use super::task::Family;
use crate::event::Event;
use crate::id::JobId;
use crate::refusal::{Code, Refusal};
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;
use crate::workload::job::{Job, Outcome, Phase, StopReason};
use crate::workload::service::{Replicas, Service, ServiceUse, Serving};

impl Case<'_> {
    /// A service that is to have replicas.
    fn service(&self, id: JobId) -> Result<(&Job, &Service, &Serving), Refusal> {
        let job = self.state.job(id)?;
        let serving = job.tasks.as_ref().and_then(|tasks| tasks.serving());
        let Some((service, serving)) = job.spec.service.as_deref().zip(serving) else {
            return Err(Refusal::new(Code::WrongPhase, "the job is no service")
                .hint("only a job submitted with `service` has replicas"));
        };
        if job.phase == Phase::Stopping {
            return Err(Refusal::new(Code::WrongPhase, "the service is being stopped"));
        }
        Ok((job, service, serving))
    }

    pub(super) fn scale(&self, id: JobId, replicas: Replicas) -> Result<Vec<Event>, Refusal> {
        let job = self.state.job(id)?;
        self.may(Action::JobSubmit, ScopeId::User(job.owner))?;
        let (_, service, serving) = self.service(id)?;
        service.check_replicas(replicas, "")?;
        if replicas == serving.replicas {
            return Ok(vec![]);
        }
        Ok(vec![Event::ServiceScaled {
            job: id,
            replicas,
            wanted: replicas.clamp(serving.wanted),
            why: "it was asked for".into(),
        }])
    }

    pub(super) fn steer(
        &mut self,
        id: JobId,
        wanted: u32,
        leave: &[JobId],
        why: &str,
    ) -> Result<Vec<Event>, Refusal> {
        self.only_system()?;
        let (job, _, serving) = self.service(id)?;
        let wanted = serving.replicas.clamp(wanted);
        let mut events = Vec::new();
        if wanted != serving.wanted {
            events.push(Event::ServiceScaled {
                job: id,
                replicas: serving.replicas,
                wanted,
                why: sentence(why),
            });
        }
        events.extend(self.leavers(job, wanted, leave));
        if events.is_empty() && job.phase != Phase::Paused {
            let (state, owner) = (self.state, job.owner);
            let job = &state.jobs[&id];
            let mut family = Family::of(job, &state.jobs);
            let most = self.most_tasks(owner);
            self.make(id, &job.spec, most, &mut family, &mut events);
        }
        Ok(events)
    }

    /// What tells those to go that are too many; none of them where others left meanwhile.
    fn leavers(&self, job: &Job, wanted: u32, leave: &[JobId]) -> Vec<Event> {
        let tasks = job.tasks.iter().flat_map(|tasks| tasks.jobs(&self.state.jobs));
        let staying: Vec<&Job> = tasks.filter(|replica| !replica.is_leaving()).collect();
        let too_many = staying.len().saturating_sub(wanted as usize);
        let named = staying.iter().filter(|replica| leave.contains(&replica.id));
        let told = named.take(too_many).map(|replica| match replica.phase {
            Phase::Queued => Event::JobEnded {
                job: replica.id,
                outcome: Outcome::Cancelled,
            },
            _ => Event::JobStopping {
                job: replica.id,
                reason: StopReason::Cancelled,
            },
        });
        told.collect()
    }

    pub(super) fn fail_replica(&self, replica: JobId, why: &str) -> Result<Vec<Event>, Refusal> {
        self.only_system()?;
        let job = self.state.job(replica)?;
        let of = job.parent().ok_or_else(Refusal::not_found)?;
        self.service(of)?;
        // It was stopped, or ended by itself, before it was given up on.
        if job.phase != Phase::Running {
            return Ok(vec![]);
        }
        Ok(vec![
            Event::ReplicaFailed {
                job: of,
                task: replica,
                why: sentence(why),
            },
            Event::JobStopping {
                job: replica,
                reason: StopReason::Cancelled,
            },
        ])
    }

    /// Of a service that lives, or ended just now.
    pub(super) fn note_service_use(&self, job: JobId, uses: &[ServiceUse]) -> Result<Vec<Event>, Refusal> {
        self.only_system()?;
        Ok(vec![Event::ServiceUsed {
            job,
            uses: uses.to_vec(),
        }])
    }
}
