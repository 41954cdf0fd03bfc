//! What a job is in the middle of: a stage of its life, and an attempt with what it was given.

use std::collections::BTreeMap;

use tenure_domain::id::AllocationId;
use tenure_domain::schedule::allocation::Allocation;
use tenure_domain::workload::job::{Outcome, Phase, StopReason};
use tenure_domain::{State, Time};

use super::super::id::name;
use super::super::span::{Attributes, Moment, Value};
use super::{MAX_MOMENTS, MAX_NODES};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Queued,
    /// From the decision to its first instruction.
    Starting,
    Running,
    Pausing,
    Paused,
    Resuming,
    Stopping,
}

impl Stage {
    pub fn of(phase: Phase) -> Stage {
        match phase {
            Phase::Queued | Phase::Admitted => Stage::Queued,
            Phase::Placed | Phase::Starting => Stage::Starting,
            Phase::Running => Stage::Running,
            Phase::Pausing => Stage::Pausing,
            Phase::Paused => Stage::Paused,
            Phase::Resuming => Stage::Resuming,
            Phase::Stopping => Stage::Stopping,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Stage::Queued => "queued",
            Stage::Starting => name::STARTING,
            Stage::Running => "running",
            Stage::Pausing => "pausing",
            Stage::Paused => "paused",
            Stage::Resuming => "resuming",
            Stage::Stopping => "stopping",
        }
    }
}

pub(super) struct Open {
    pub stage: Stage,
    pub since: Time,
    pub attributes: Attributes,
    /// What was last said when it was asked.
    pub waits_for: Attributes,
    pub moments: Vec<Moment>,
}

impl Open {
    pub fn new(stage: Stage, since: Time) -> Open {
        Open {
            stage,
            since,
            attributes: Vec::new(),
            waits_for: Vec::new(),
            moments: Vec::new(),
        }
    }

    pub fn note(&mut self, at: Time, name: &'static str, attributes: Attributes) {
        if self.moments.len() < MAX_MOMENTS {
            self.moments.push(Moment { at, name, attributes });
        }
    }
}

/// One try, with the place it has.
pub(super) struct Attempt {
    pub number: u32,
    pub placed: Time,
    pub attributes: Attributes,
    pub moments: Vec<Moment>,
    /// Members of a gang that do not run yet.
    pub members: BTreeMap<AllocationId, Coming>,
    /// It is told to stop so that others fit.
    pub gives_way: bool,
}

pub(super) struct Coming {
    pub number: u32,
    pub attributes: Attributes,
}

impl Attempt {
    /// `all` are those of its members that have their places still, in their order.
    pub fn of(state: &State, number: u32, all: &[&Allocation], members: usize) -> Attempt {
        let first = all.first();
        let mut attributes = Attributes::new();
        let named: Vec<(String, String)> = all
            .iter()
            .take(MAX_NODES)
            .map(|allocation| {
                let node = state.fleet.node(allocation.node);
                let name = node.map_or_else(String::new, |node| node.name.to_string());
                (allocation.node.to_string(), name)
            })
            .collect();
        match named.as_slice() {
            [(id, name)] => attributes.extend([
                ("tenure.node.id", Value::text(id)),
                ("tenure.node", Value::text(name)),
            ]),
            _ => {
                let (ids, names) = named.into_iter().unzip();
                attributes.extend([
                    ("tenure.node.ids", Value::Texts(ids)),
                    ("tenure.nodes", Value::Texts(names)),
                    ("tenure.members", Value::Number(members as i64)),
                ]);
            }
        }
        if let Some(first) = first {
            attributes.push(("tenure.allocation.id", Value::text(first.id)));
            attributes.push(("tenure.isolation", Value::text(first.isolation.as_str())));
            let gpus: usize = all.iter().map(|allocation| allocation.slices.len()).sum();
            attributes.push(("tenure.gpu.count", Value::Number(gpus as i64)));
            let gpu = first.slices.first().and_then(|slice| {
                let gpu = state.fleet.node(first.node)?.gpu(slice.gpu)?;
                Some((slice, gpu))
            });
            if let Some((slice, gpu)) = gpu {
                attributes.extend([
                    ("tenure.gpu.class", Value::text(&gpu.facts.class)),
                    ("tenure.gpu.model", Value::text(&gpu.facts.model)),
                    ("tenure.gpu.vram_mib", Value::Number(slice.vram_mib as i64)),
                    (
                        "tenure.gpu.compute_permille",
                        Value::Number(i64::from(slice.compute_permille)),
                    ),
                ]);
            }
        }
        let coming = all.iter().filter(|_| members > 1).map(|allocation| {
            let node = state.fleet.node(allocation.node);
            let mut attributes = vec![
                ("tenure.member", Value::Number(i64::from(allocation.member))),
                ("tenure.node.id", Value::text(allocation.node)),
            ];
            attributes.extend(node.map(|node| ("tenure.node", Value::text(&node.name))));
            let coming = Coming {
                number: allocation.member,
                attributes,
            };
            (allocation.id, coming)
        });
        Attempt {
            number,
            placed: first.map_or(Time(0), |first| first.placed),
            attributes,
            moments: Vec::new(),
            members: coming.collect(),
            gives_way: false,
        }
    }
}

pub(super) fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Cancelled => "cancelled",
        StopReason::RunTime => "run_time",
        StopReason::OverLimit => "over_limit",
        StopReason::Evicted => "evicted",
        StopReason::MemberFailed => "member_failed",
    }
}

/// How a job ended, and what was wrong about it; not in its own words, nor its node's.
pub(super) fn outcome(outcome: &Outcome) -> (Attributes, Option<String>) {
    let mut attributes = vec![("tenure.outcome", Value::text(outcome.as_str()))];
    let error = match outcome {
        Outcome::Succeeded => {
            attributes.push(("process.exit.code", Value::Number(0)));
            None
        }
        Outcome::Cancelled => None,
        Outcome::Failed {
            exit_code,
            signal,
            member,
        } => {
            attributes.extend(exit_code.map(|code| ("process.exit.code", Value::Number(code.into()))));
            attributes.extend(signal.map(|signal| ("tenure.exit.signal", Value::Number(signal.into()))));
            attributes.extend(member.map(|member| ("tenure.member", Value::Number(member.into()))));
            Some(match (exit_code, signal) {
                (Some(code), _) => format!("it ended with exit code {code}"),
                (None, Some(signal)) => format!("it ended by signal {signal}"),
                (None, None) => "it failed".to_owned(),
            })
        }
        Outcome::NotStarted { member, .. } => {
            attributes.extend(member.map(|member| ("tenure.member", Value::Number(member.into()))));
            Some("it could not be started".to_owned())
        }
        Outcome::TimedOut => Some("it reached its run-time limit".to_owned()),
        Outcome::OverLimit => Some("it used more than it was given".to_owned()),
        Outcome::GaveUp { attempts } => Some(format!("it was lost {attempts} times")),
        Outcome::TasksFailed { count, .. } => Some(format!("{count} of its pieces failed")),
    };
    if error.is_some() {
        attributes.push(("error.type", Value::text(outcome.as_str())));
    }
    (attributes, error)
}
