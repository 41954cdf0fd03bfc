//! A start on its way to the first instruction: the order that went to the node, and what the node says it took.

use tenure_api::channel::{StartStep, Took};
use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_domain::workload::job::Phase;
use tenure_domain::{State, Time};

use super::id::{Context, Ids, name};
use super::span::{Attributes, Kind, Span, Value, ns};
use super::{Observed, Traces};
use crate::controller::{Controller, now};

impl Traces {
    /// An order went to its node.
    pub(crate) fn ordered(&self, controller: &Controller, allocation: AllocationId) {
        let sent = now();
        let span = {
            let state = controller.view().read();
            let Some(start) = self.start(&state, allocation) else {
                return;
            };
            let placed = ns(start.placed);
            start.span(&self.ids, name::ORDER, (placed, ns(sent).max(placed)))
        };
        self.say(controller, Observed::Span(Box::new(span)));
    }

    /// A node said how it went about a start, step by step.
    pub(crate) fn started(
        &self,
        controller: &Controller,
        node: NodeId,
        allocation: AllocationId,
        steps: &[Took],
    ) {
        let heard_ns = ns(now());
        let spans: Vec<Span> = {
            let state = controller.view().read();
            // Of its own, and before it said that it runs.
            let is_due = |start: &Start| start.node == node && start.phase != Phase::Running;
            let Some(start) = self.start(&state, allocation).filter(is_due) else {
                return;
            };
            let placed = ns(start.placed);
            let steps = steps.iter().map(|took| {
                // Its clock is not ours: what it says is how long ago. None began before it was asked for.
                let ended = heard_ns
                    .saturating_sub(took.ended_ago_us.saturating_mul(1000))
                    .max(placed);
                let began = ended
                    .saturating_sub(took.took_us.saturating_mul(1000))
                    .max(placed);
                start.span(&self.ids, step_name(took.step), (began, ended))
            });
            steps.collect()
        };
        for span in spans {
            self.say(controller, Observed::Span(Box::new(span)));
        }
    }

    /// The start that an allocation is of, where it is told of and has not come to its end.
    fn start(&self, state: &State, allocation: AllocationId) -> Option<Start> {
        let allocation = state.fleet.allocation(allocation)?;
        let job = state.jobs.get(&allocation.job)?;
        let context = self.ids.context_of(state, job);
        context.is_sampled.then(|| Start {
            context,
            job: job.id,
            attempt: allocation.attempt,
            member: job.is_gang().then_some(allocation.member),
            node: allocation.node,
            node_name: state
                .fleet
                .node(allocation.node)
                .map(|node| node.name.to_string()),
            placed: allocation.placed,
            phase: job.phase,
        })
    }
}

fn step_name(step: StartStep) -> &'static str {
    match step {
        StartStep::Image => "image",
        StartStep::Scrub => "scrub",
        StartStep::Devices => "devices",
        StartStep::Worker => "worker",
        StartStep::Sandbox => "sandbox",
        StartStep::Exec => "exec",
    }
}

/// One member's way to its first instruction.
struct Start {
    context: Context,
    job: JobId,
    attempt: u32,
    /// Of a gang, which.
    member: Option<u32>,
    node: NodeId,
    node_name: Option<String>,
    placed: Time,
    phase: Phase,
}

impl Start {
    fn span(&self, ids: &Ids, name: &'static str, (began_ns, ended_ns): (u64, u64)) -> Span {
        let which = u64::from(self.member.unwrap_or(0));
        let above = match self.member {
            Some(_) => ids.span(self.job, name::MEMBER, self.attempt, which),
            None => ids.span(self.job, name::STARTING, self.attempt, 0),
        };
        let mut attributes: Attributes = vec![
            ("tenure.job.id", Value::text(self.job)),
            ("tenure.attempt", Value::Number(self.attempt.into())),
            ("tenure.node.id", Value::text(self.node)),
        ];
        attributes.extend(
            self.node_name
                .iter()
                .map(|node| ("tenure.node", Value::text(node))),
        );
        attributes.extend(
            self.member
                .map(|member| ("tenure.member", Value::Number(member.into()))),
        );
        Span {
            trace: self.context.trace,
            id: ids.span(self.job, name, self.attempt, which),
            parent: Some(above),
            parent_is_remote: false,
            name,
            kind: Kind::Internal,
            began_ns,
            ended_ns,
            attributes,
            moments: Vec::new(),
            link: None,
            error: None,
        }
    }
}
