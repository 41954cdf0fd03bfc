//! Jobs: submitting, stopping, and what engines saw of them.

use std::sync::Arc;

use super::Case;
use crate::actor::Actor;
use crate::command::Observation;
use crate::event::{Charge, Event};
use crate::id::{AllocationId, JobId, NodeId, UserId};
use crate::refusal::{Code, Refusal};
use crate::schedule::admit::{refuse_for_ever, refuse_too_dear};
use crate::schedule::allocation::Allocation;
use crate::schedule::evict;
use crate::schedule::order::aged::ahead_of;
use crate::schedule::pass::{self, Ask};
use crate::schedule::place::refuse_beyond_fleet;
use crate::schedule::volume::VolumeNeeds;
use crate::tenancy::role::Action;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::derive::Derivation;
use crate::workload::job::{Job, Outcome, Phase, StopReason};
use crate::workload::learnt::signature;
use crate::workload::member::MemberEnd;
use crate::workload::spec::{Demand, JobSpec};
use crate::workload::task::{Tasks, cut};
use crate::workload::trace::TraceParent;

impl Case<'_> {
    pub(super) fn submit(
        &mut self,
        owner: UserId,
        spec: &Arc<JobSpec>,
        trace: Option<TraceParent>,
        at_once: bool,
    ) -> Result<Vec<Event>, Refusal> {
        let scope = ScopeId::User(owner);
        spec.check()?;
        if spec.task.is_some() {
            return Err(
                Refusal::invalid("/task", "a job's tasks are made by Tenure alone")
                    .hint("leave it out; say in `tasks` how the job is cut"),
            );
        }
        let spec = self.with_sku(spec)?;
        let (spec, derivation) = self.with_workload(owner, spec)?;
        spec.demand.check()?;
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
        if let Some(id) = spec.booking {
            let booking = self.state.bookings.get(id);
            let own = booking.is_some_and(|booking| self.state.tree.is_within(scope, booking.scope));
            if !own {
                return Err(
                    Refusal::invalid("/booking", "there is no such booking for this user's jobs")
                        .hint("`tenure book list` shows those there are"),
                );
            }
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
        let volumes = self.meant_volumes(scope, &spec.volumes)?;
        let needs = VolumeNeeds::of(self.state, &volumes).map_err(|refusal| refusal.field("/volumes"))?;
        let (job, at) = (JobId(self.ids.take()), self.command.at);
        let ask = Ask {
            owner: scope,
            spec: &spec,
            volumes: &volumes,
            job,
            attempt: 1,
        };
        // A job of tasks does not start; its tasks do, in their turn.
        let of_tasks = Tasks::of(&spec).is_some();
        let may_start = at_once && !of_tasks && ahead_of(self.state, &spec, at).is_none();
        let started = may_start.then(|| pass::start(self.state, &ask, &mut self.ids, at));
        // What starts now is neither too large nor too dear for ever.
        if !matches!(started, Some(Ok(_))) {
            refuse_for_ever(self.state, scope, &spec, at)?;
            refuse_beyond_fleet(self.state, scope, &spec.demand, needs)?;
        }
        if let Some(run_ms) = derivation.as_ref().and_then(|derivation| derivation.run_ms)
            && of_tasks
        {
            refuse_too_dear(self.state, scope, &spec, run_ms, at)?;
        }
        let mut events = vec![Event::JobSubmitted {
            job,
            owner,
            spec: spec.clone(),
            volumes: volumes.clone(),
            derivation,
            trace,
        }];
        match started {
            Some(Ok(started)) => events.extend(started),
            Some(Err(waits)) => events.extend(evict::make_room(self.state, &ask, &waits, at)),
            None => {}
        }
        Ok(events)
    }

    /// A job of a SKU takes the SKU's demand, and may not ask for another.
    fn with_sku(&self, spec: &Arc<JobSpec>) -> Result<Arc<JobSpec>, Refusal> {
        let Some(name) = &spec.sku else {
            return Ok(spec.clone());
        };
        let sku = self.state.sku(name, spec.demand.class.as_deref())?;
        // How many of that size is the job's own word.
        let nodes = match spec.demand.nodes {
            1 => sku.demand.nodes,
            nodes => nodes,
        };
        let one = |demand: &Demand| Demand {
            nodes: 1,
            class: None,
            ..demand.clone()
        };
        let asked = one(&spec.demand);
        let of_class = sku.demand.class.is_none()
            || spec.demand.class.is_none()
            || spec.demand.class == sku.demand.class;
        if !of_class || asked != Demand::default() && asked != one(&sku.demand) {
            return Err(Refusal::invalid(
                "/demand",
                format!("SKU {name} sets the demand; give one or the other"),
            ));
        }
        let mut filled = JobSpec::clone(spec);
        filled.demand = Demand {
            nodes,
            class: sku.demand.class.clone().or(spec.demand.class.clone()),
            ..sku.demand.clone()
        };
        Ok(Arc::new(filled))
    }

    /// A job that says what it is gets what that needs, where it asks for nothing else.
    fn with_workload(
        &self,
        owner: UserId,
        spec: Arc<JobSpec>,
    ) -> Result<(Arc<JobSpec>, Option<Box<Derivation>>), Refusal> {
        let Some(workload) = &spec.workload else {
            return Ok((spec, None));
        };
        let tenant = self.state.tree.tenant_of(ScopeId::User(owner));
        let measured = tenant.and_then(|tenant| {
            let signature = signature(workload, &spec.name);
            self.state.learnt.measured(tenant, &signature)
        });
        let mut derivation = Derivation::of(workload, measured)?;
        let mut filled = JobSpec::clone(&spec);
        filled.kind = workload.kind();
        cut::fill(&mut filled, &derivation, self.policy_tasks(owner))?;
        derivation.fill(&mut filled)?;
        filled.check()?;
        Ok((Arc::new(filled), Some(Box::new(derivation))))
    }

    pub(super) fn stop(&mut self, id: JobId, reason: StopReason) -> Result<Vec<Event>, Refusal> {
        let job = self.state.job(id)?;
        self.may(Action::JobStop, ScopeId::User(job.owner))?;
        if reason == StopReason::MemberFailed {
            return Err(Refusal::invalid(
                "/reason",
                "only a member that failed stops the others for that",
            ));
        }
        if job.is_parent() {
            let stops = reason == StopReason::Cancelled && job.phase != Phase::Stopping;
            return Ok(stops
                .then_some(Event::JobStopping { job: id, reason })
                .into_iter()
                .collect());
        }
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

    /// Of a gang, whichever member says so says it for all.
    fn saved(&self, allocation: &Allocation, job: &Job, ago_ms: u64) -> Vec<Event> {
        let saved = Time(self.command.at.0.saturating_sub_unsigned(ago_ms)).max(allocation.placed);
        let news = job.phase == Phase::Running && job.saved.is_none_or(|known| saved > known);
        news.then_some(Event::JobSaved { job: job.id, saved })
            .into_iter()
            .collect()
    }

    pub(super) fn observe(
        &mut self,
        node: NodeId,
        id: AllocationId,
        observation: &Observation,
    ) -> Result<Vec<Event>, Refusal> {
        let (allocation, job) = self.allocation_on(node, id)?;
        // Observations come late, twice and out of order: one that says nothing new changes nothing.
        match observation {
            Observation::Starting => Ok(self.starting(allocation, job)),
            Observation::Running => Ok(self.running(allocation, job)),
            Observation::Paused { ran_ms, usage } => Ok(self.paused(allocation, job, *ran_ms, *usage)),
            Observation::Kept { why } => Ok(self.kept(allocation, job, why)),
            Observation::Saved { ago_ms } => Ok(self.saved(allocation, job, *ago_ms)),
            Observation::NotStarted { why } => {
                let why = sentence(why);
                Ok(self.ended(job, &[(allocation, MemberEnd::NotStarted { why })]))
            }
            Observation::Vanished => {
                let why = "the node no longer knows of it".into();
                Ok(self.ended(job, &[(allocation, MemberEnd::Lost { why })]))
            }
            &Observation::Exited {
                exit_code,
                signal,
                ran_ms,
                by,
                usage,
            } => {
                let charge = self.charge(allocation, job, ran_ms, usage);
                let metered = |charge: Option<Charge>| {
                    charge.map(|charge| Event::UsageMetered {
                        node,
                        charges: vec![charge],
                    })
                };
                let end = MemberEnd::Exited {
                    exit_code,
                    signal,
                    by,
                };
                let ended = match self.grown(allocation, job, &end, metered(charge.clone()).as_ref()) {
                    Some(grown) => vec![grown],
                    None => self.ended(job, &[(allocation, end)]),
                };
                let outcome = ended.iter().find_map(|event| match event {
                    Event::JobEnded { job: ended, outcome } if *ended == job.id => Some(outcome),
                    _ => None,
                });
                let metered = metered(self.rater().with_ends(allocation, job, charge, outcome));
                Ok(metered.into_iter().chain(ended).collect())
            }
        }
    }
}

/// What a node says, as one bounded line.
pub(super) fn sentence(said: &str) -> String {
    said.chars().filter(|c| !c.is_control()).take(500).collect()
}
