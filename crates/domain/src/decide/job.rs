//! Jobs: submitting, stopping, and what engines saw of them.

use std::sync::Arc;

use super::Case;
use crate::actor::Actor;
use crate::command::{Observation, Ran};
use crate::event::{Charge, Event};
use crate::id::{AllocationId, JobId, NodeId, UserId};
use crate::ledger::account::{AccountId, Posting};
use crate::refusal::{Code, Refusal};
use crate::schedule::admit::refuse_for_ever;
use crate::schedule::allocation::Allocation;
use crate::schedule::evict;
use crate::schedule::pass::{self, Ask};
use crate::schedule::place::refuse_beyond_fleet;
use crate::schedule::volume::VolumeNeeds;
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;
use crate::workload::job::{Job, Outcome, Phase, StopReason};
use crate::workload::spec::{Demand, JobSpec};
use crate::workload::usage::Usage;

/// How far a node's clock may run ahead before a reported run time is not believed.
const CLOCK_SLACK_MS: u64 = 10_000;

impl Case<'_> {
    pub(super) fn submit(&mut self, owner: UserId, spec: &Arc<JobSpec>) -> Result<Vec<Event>, Refusal> {
        let scope = ScopeId::User(owner);
        spec.check()?;
        let spec = self.with_sku(spec)?;
        self.may_ask(Action::JobSubmit, scope, &spec)?;
        if let Some(suspended) = self.state.tree.suspended_above(scope) {
            return Err(Refusal::new(
                Code::Suspended,
                format!("{} is suspended", self.state.tree.title(suspended.id)),
            ));
        }
        for place in self.state.tree.chain(scope) {
            place.policy.refuse(&spec, || self.state.tree.title(place.id))?;
        }
        // Whoever writes the command reads what the job reads.
        let of_another = self.command.by.user_id().is_some_and(|by| by != owner);
        let told = [
            (!spec.secrets.is_empty(), "/secrets"),
            (spec.image_secret.is_some(), "/image_secret"),
        ];
        if let Some((_, field)) = told.into_iter().find(|(told, _)| *told && of_another) {
            return Err(
                Refusal::new(Code::NotPermitted, "only a user's own jobs may read its secrets")
                    .field(field)
                    .hint("leave the secrets out, or have the user submit the job"),
            );
        }
        let secrets = spec
            .secrets
            .iter()
            .map(|(variable, secret)| (format!("/secrets/{variable}"), secret));
        let for_image = spec
            .image_secret
            .iter()
            .map(|secret| ("/image_secret".to_owned(), secret));
        for (field, secret) in secrets.chain(for_image) {
            if self.state.secret(owner, secret).is_none() {
                return Err(
                    Refusal::invalid(field, format!("there is no secret named {secret}"))
                        .hint("store it with `tenure secret set`"),
                );
            }
        }
        refuse_for_ever(self.state, scope, &spec, self.command.at)?;
        let volumes = self.meant_volumes(scope, &spec.volumes)?;
        let needs = VolumeNeeds::of(self.state, &volumes).map_err(|refusal| refusal.field("/volumes"))?;
        refuse_beyond_fleet(self.state, &spec.demand, needs)?;
        let job = JobId(self.ids.take());
        let mut events = vec![Event::JobSubmitted {
            job,
            owner,
            spec: spec.clone(),
            volumes: volumes.clone(),
        }];
        let ask = Ask {
            owner: scope,
            spec: &spec,
            volumes: &volumes,
            job,
            attempt: 1,
        };
        match pass::start(self.state, &ask, &mut self.ids, self.command.at) {
            Ok(started) => events.extend(started),
            Err(waits) => events.extend(evict::make_room(self.state, &ask, &waits, self.command.at)),
        }
        Ok(events)
    }

    /// A job of a SKU takes the SKU's demand, and may not ask for another.
    fn with_sku(&self, spec: &Arc<JobSpec>) -> Result<Arc<JobSpec>, Refusal> {
        let Some(name) = &spec.sku else {
            return Ok(spec.clone());
        };
        let Some(sku) = self.state.skus.get(name) else {
            return Err(Refusal::invalid("/sku", format!("there is no SKU named {name}"))
                .hint("`tenure sku list` shows them"));
        };
        if spec.demand != Demand::default() && spec.demand != sku.demand {
            return Err(Refusal::invalid(
                "/demand",
                format!("SKU {name} sets the demand; give one or the other"),
            ));
        }
        let mut filled = JobSpec::clone(spec);
        filled.demand = sku.demand.clone();
        Ok(Arc::new(filled))
    }

    pub(super) fn stop(&mut self, id: JobId, reason: StopReason) -> Result<Vec<Event>, Refusal> {
        let job = self.state.job(id)?;
        self.may(Action::JobStop, ScopeId::User(job.owner))?;
        match job.phase {
            Phase::Queued if reason == StopReason::Cancelled => Ok(vec![Event::JobEnded {
                job: id,
                outcome: Outcome::Cancelled,
            }]),
            // It returned to the queue before the eviction or the run-time limit reached it.
            Phase::Queued => Ok(vec![]),
            // A cancel outranks an eviction under way; anything else under way stays as it is.
            Phase::Stopping if job.stop == Some(StopReason::Evicted) && reason != StopReason::Evicted => {
                Ok(vec![Event::JobStopping { job: id, reason }])
            }
            Phase::Stopping => Ok(vec![]),
            Phase::Admitted
            | Phase::Placed
            | Phase::Starting
            | Phase::Running
            | Phase::Pausing
            | Phase::Paused
            | Phase::Resuming => Ok(vec![Event::JobStopping { job: id, reason }]),
        }
    }

    /// The allocation, if it is this node's to speak of.
    pub(super) fn allocation_on(
        &self,
        node: NodeId,
        id: AllocationId,
    ) -> Result<(&Allocation, &Job), Refusal> {
        match &self.command.by {
            Actor::System => {}
            Actor::Node(by) if *by == node => {}
            Actor::Node(_) | Actor::User { .. } => return Err(Refusal::not_found()),
        }
        let allocation = self
            .state
            .fleet
            .allocation(id)
            .filter(|allocation| allocation.node == node)
            .ok_or_else(Refusal::not_found)?;
        Ok((allocation, self.state.job(allocation.job)?))
    }

    pub(super) fn observe(
        &mut self,
        node: NodeId,
        id: AllocationId,
        observation: &Observation,
    ) -> Result<Vec<Event>, Refusal> {
        let (allocation, job) = self.allocation_on(node, id)?;
        let job_id = job.id;
        // Observations come late, twice and out of order: one that says nothing new changes nothing.
        match observation {
            Observation::Starting => Ok(if job.phase == Phase::Placed {
                vec![Event::JobStarting { job: job_id }]
            } else {
                vec![]
            }),
            Observation::Running => match job.phase {
                Phase::Placed | Phase::Starting | Phase::Resuming => {
                    Ok(vec![Event::JobRunning { job: job_id }])
                }
                _ => Ok(vec![]),
            },
            Observation::Paused { ran_ms, usage } => Ok(self.paused(allocation, job, *ran_ms, *usage)),
            Observation::Kept { why } => Ok(self.kept(allocation, job, why)),
            // What was being stopped ends as that says, whether or not it ever started.
            Observation::NotStarted { .. } if job.stop.is_some() => {
                Ok(vec![self.attempt_lost(job_id, "it was evicted".into())])
            }
            Observation::NotStarted { why } => Ok(vec![Event::JobEnded {
                job: job_id,
                outcome: Outcome::NotStarted { why: sentence(why) },
            }]),
            Observation::Vanished => Ok(vec![
                self.attempt_lost(job_id, "the node no longer knows of it".into()),
            ]),
            Observation::Exited {
                exit_code,
                signal,
                ran_ms,
                by,
                usage,
            } => {
                let mut events = Vec::new();
                events.extend(self.charge(allocation, job, *ran_ms, *usage).map(|charge| {
                    Event::UsageMetered {
                        node,
                        charges: vec![charge],
                    }
                }));
                events.push(match job.stop.or(*by) {
                    Some(StopReason::Cancelled) => Event::JobEnded {
                        job: job_id,
                        outcome: Outcome::Cancelled,
                    },
                    Some(StopReason::RunTime) => Event::JobEnded {
                        job: job_id,
                        outcome: Outcome::TimedOut,
                    },
                    Some(StopReason::OverLimit) => Event::JobEnded {
                        job: job_id,
                        outcome: Outcome::OverLimit,
                    },
                    Some(StopReason::Evicted) => self.attempt_lost(job_id, "it was evicted".into()),
                    None if *exit_code == Some(0) => Event::JobEnded {
                        job: job_id,
                        outcome: Outcome::Succeeded,
                    },
                    None => Event::JobEnded {
                        job: job_id,
                        outcome: Outcome::Failed {
                            exit_code: *exit_code,
                            signal: *signal,
                        },
                    },
                });
                Ok(events)
            }
        }
    }

    /// What becomes of a job whose attempt ended by no fault of its own.
    pub(super) fn attempt_lost(&self, id: JobId, why: String) -> Event {
        let job = &self.state.jobs[&id];
        match job.stop {
            Some(StopReason::Cancelled) => Event::JobEnded {
                job: id,
                outcome: Outcome::Cancelled,
            },
            Some(StopReason::RunTime) => Event::JobEnded {
                job: id,
                outcome: Outcome::TimedOut,
            },
            Some(StopReason::OverLimit) => Event::JobEnded {
                job: id,
                outcome: Outcome::OverLimit,
            },
            // Giving way is no fault, and uses up no attempt.
            Some(StopReason::Evicted) => Event::JobRequeued { job: id, why },
            None if job.tries() >= job.spec.max_attempts => Event::JobEnded {
                job: id,
                outcome: Outcome::GaveUp {
                    attempts: job.tries(),
                },
            },
            None => Event::JobRequeued { job: id, why },
        }
    }

    pub(super) fn meter(&mut self, node: NodeId, ran: &[Ran]) -> Result<Vec<Event>, Refusal> {
        let mut charges: Vec<Charge> = Vec::new();
        for &Ran {
            allocation: id,
            ran_ms,
            usage,
        } in ran
        {
            // A late report of an allocation that ended has been settled already.
            let Ok((allocation, job)) = self.allocation_on(node, id) else {
                continue;
            };
            if charges.iter().any(|charge| charge.allocation == id) {
                continue;
            }
            charges.extend(self.charge(allocation, job, ran_ms, usage));
        }
        Ok(if charges.is_empty() {
            vec![]
        } else {
            vec![Event::UsageMetered { node, charges }]
        })
    }

    /// The charge for run time up to `ran_ms`; none for what was charged before. A node cannot bill for more
    /// time than has passed since it was given the work, nor say that devices worked for longer.
    pub(super) fn charge(
        &self,
        allocation: &Allocation,
        job: &Job,
        ran_ms: u64,
        usage: Option<Usage>,
    ) -> Option<Charge> {
        let possible_ms = self.command.at.since_ms(allocation.placed) + CLOCK_SLACK_MS;
        let to_ms = ran_ms.min(possible_ms);
        let hold = &job.admission.as_ref()?.hold;
        if to_ms <= allocation.metered_ms {
            return None;
        }
        let cost = hold.charge(allocation.metered_ms, to_ms);
        let posting = Posting {
            from: hold.account,
            to: AccountId::Revenue,
            amount: cost.money,
        };
        let used = usage.filter(|_| !allocation.slices.is_empty()).map(|usage| {
            usage
                .within(to_ms, &allocation.slices)
                .since(&allocation.used.unwrap_or_default())
        });
        Some(Charge {
            allocation: allocation.id,
            job: job.id,
            from_ms: allocation.metered_ms,
            to_ms,
            cost,
            posting,
            used,
        })
    }
}

/// What a node says, as one bounded line.
pub(super) fn sentence(said: &str) -> String {
    said.chars().filter(|c| !c.is_control()).take(500).collect()
}
