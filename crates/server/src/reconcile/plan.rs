//! Pure: from what is intended and what was seen to what is to be done.

use std::collections::BTreeSet;

use tenure_api::channel::{AllocationReport, GpuQuestion, RunState};
use tenure_domain::command::Observation;
use tenure_domain::id::{AllocationId, JobId, NodeId, VolumeId};
use tenure_domain::workload::job::{Job, Phase, StopReason};
use tenure_domain::workload::member::{Member, MemberPhase};
use tenure_domain::{Event, State, Time};

/// How long it may not be heard what came of a start, a pause or a resumption before it is said again.
const SAY_AGAIN_MS: u64 = 3_000;
/// What a job says it saved is noted as often as this.
const SAVED_APART_MS: u64 = 30_000;
/// How far past its run-time limit and grace a job may be before the server itself ends it.
const OVERDUE_MS: u64 = 30_000;

/// One thing to do about one allocation or volume.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Start(AllocationId),
    Stop {
        allocation: AllocationId,
        reason: StopReason,
        grace_s: u32,
    },
    Release(AllocationId),
    /// The slices have another size than they began with.
    Resize(AllocationId),
    Pause(AllocationId),
    Resume(AllocationId),
    GrowVolume {
        volume: VolumeId,
        size_mib: u64,
    },
    EraseVolume(VolumeId),
    CheckGpu(GpuQuestion),
    Observe {
        allocation: AllocationId,
        observation: Observation,
    },
}

/// Whether an observation ends its allocation.
pub fn is_end(observation: &Observation) -> bool {
    matches!(
        observation,
        Observation::Exited { .. } | Observation::NotStarted { .. } | Observation::Vanished
    )
}

/// The job and the member of it that an allocation is of.
fn job_of(state: &State, node: NodeId, allocation: AllocationId) -> Option<(&Job, &Member)> {
    let allocation = state
        .fleet
        .allocation(allocation)
        .filter(|allocation| allocation.node == node)?;
    let job = state.jobs.get(&allocation.job)?;
    Some((job, job.members.get(allocation.member as usize)?))
}

/// A stop of one allocation as its node is told of it: that another member failed is no matter of the node's.
fn stop(job: &Job, allocation: AllocationId, reason: StopReason) -> Step {
    Step::Stop {
        allocation,
        reason: match reason {
            StopReason::MemberFailed => StopReason::Evicted,
            reason => reason,
        },
        grace_s: job.spec.grace_s,
    }
}

/// What follows from a node's report. A whole report also tells what the node does not have.
pub fn steps(state: &State, node: NodeId, whole: bool, reports: &[AllocationReport]) -> Vec<Step> {
    let mut steps: Vec<Step> = reports
        .iter()
        .flat_map(|report| step_of_report(state, node, whole, report))
        .collect();
    if whole {
        let reported: BTreeSet<AllocationId> = reports.iter().map(|report| report.allocation).collect();
        let missing = state
            .fleet
            .allocations_on(node)
            .filter(|allocation| !reported.contains(&allocation.id));
        steps.extend(missing.filter_map(|allocation| {
            let (job, member) = job_of(state, node, allocation.id)?;
            Some(match job.phase {
                Phase::Placed | Phase::Admitted | Phase::Queued if member.phase == MemberPhase::Placed => {
                    Step::Start(allocation.id)
                }
                // The node had it and has it no more, or will never get it: this attempt is over.
                Phase::Placed
                | Phase::Admitted
                | Phase::Queued
                | Phase::Starting
                | Phase::Running
                | Phase::Pausing
                | Phase::Paused
                | Phase::Resuming
                | Phase::Stopping => Step::Observe {
                    allocation: allocation.id,
                    observation: Observation::Vanished,
                },
            })
        }));
        steps.extend(erasures(state, node));
        steps.extend(questions(state, node));
        // Whatever grew while the node was away; volumes that no job uses grow with their next one.
        let used = state.volumes.on(node).filter(|volume| {
            let mut jobs = state.volumes.jobs_of(volume.id);
            jobs.any(|job| state.jobs.get(&job).is_some_and(|job| !job.members.is_empty()))
        });
        steps.extend(used.map(|volume| Step::GrowVolume {
            volume: volume.id,
            size_mib: volume.size_mib,
        }));
    }
    steps
}

/// What the node has of volumes that are nobody's any more.
fn erasures(state: &State, node: NodeId) -> impl Iterator<Item = Step> {
    let removed = state.volumes.on(node).filter(|volume| volume.removed);
    removed.map(|volume| Step::EraseVolume(volume.id))
}

/// What is asked of the node's GPUs and not answered.
fn questions(state: &State, node: NodeId) -> impl Iterator<Item = Step> {
    let gpus = state.fleet.node(node).into_iter().flat_map(|node| &node.gpus);
    gpus.filter_map(move |gpu| {
        let asked = state.market.gpu_check(gpu.id)?;
        Some(Step::CheckGpu(GpuQuestion {
            gpu: gpu.id,
            number: asked.open.filter(|_| asked.node == node)?.number,
            uuid: gpu.facts.uuid.clone(),
            memory_mib: gpu.facts.vram_mib,
        }))
    })
}

fn step_of_report(state: &State, node: NodeId, whole: bool, report: &AllocationReport) -> Vec<Step> {
    let allocation = report.allocation;
    let observe = |observation| Step::Observe {
        allocation,
        observation,
    };
    let Some((job, member)) = job_of(state, node, allocation) else {
        // Nobody intends this: it was given up while the node was away. What has ended may be forgotten.
        return match report.state {
            RunState::Exited { .. } | RunState::NotStarted { .. } => vec![Step::Release(allocation)],
            RunState::Starting | RunState::Running | RunState::Paused => vec![Step::Stop {
                allocation,
                reason: StopReason::Evicted,
                grace_s: 0,
            }],
        };
    };
    let stop = job
        .stop
        .filter(|_| job.phase == Phase::Stopping)
        .map(|reason| stop(job, allocation, reason));
    let comes = matches!(job.phase, Phase::Placed | Phase::Starting);
    if let Some(why) = &report.kept {
        return vec![observe(Observation::Kept { why: why.clone() })];
    }
    match &report.state {
        RunState::Starting if comes && member.phase < MemberPhase::Starting => {
            vec![observe(Observation::Starting)]
        }
        RunState::Running if comes && member.phase < MemberPhase::Running => {
            vec![observe(Observation::Running)]
        }
        RunState::Running if job.phase == Phase::Resuming => vec![observe(Observation::Running)],
        RunState::Running if matches!(job.phase, Phase::Pausing | Phase::Paused) => {
            vec![Step::Pause(allocation)]
        }
        RunState::Paused => match job.phase {
            Phase::Pausing => vec![observe(Observation::Paused {
                ran_ms: report.ran_ms,
                usage: report.usage,
            })],
            Phase::Resuming | Phase::Running => vec![Step::Resume(allocation)],
            _ => stop.into_iter().collect(),
        },
        RunState::Starting | RunState::Running => {
            let resize = state
                .fleet
                .allocation(allocation)
                .filter(|allocation| whole && allocation.resized);
            let resize = resize.map(|_| Step::Resize(allocation));
            stop.into_iter().chain(resize).collect()
        }
        RunState::Exited {
            exit_code,
            signal,
            by,
        } => {
            vec![observe(Observation::Exited {
                exit_code: *exit_code,
                signal: *signal,
                ran_ms: report.ran_ms,
                by: *by,
                usage: report.usage,
            })]
        }
        RunState::NotStarted { why } => vec![observe(Observation::NotStarted { why: why.clone() })],
    }
}

/// What jobs said they saved, where it is news, to half a minute: one may say so each second.
pub fn saved(state: &State, node: NodeId, reports: &[AllocationReport], at: Time) -> Vec<Step> {
    let said = reports
        .iter()
        .filter_map(|report| Some((report.allocation, report.saved_ago_ms?)));
    let news = said.filter(|(allocation, ago_ms)| {
        let saved = Time(at.0.saturating_sub_unsigned(*ago_ms));
        job_of(state, node, *allocation).is_some_and(|(job, _)| {
            let known = job
                .saved
                .is_some_and(|known| saved < known.plus_ms(SAVED_APART_MS));
            job.phase == Phase::Running && !known
        })
    });
    news.map(|(allocation, ago_ms)| Step::Observe {
        allocation,
        observation: Observation::Saved { ago_ms },
    })
    .collect()
}

/// What an event just committed asks of nodes.
pub fn steps_for(state: &State, event: &Event) -> Vec<(NodeId, Step)> {
    match event {
        Event::JobPlaced {
            allocation, others, ..
        } => {
            let members = [allocation].into_iter().chain(others);
            members
                .map(|allocation| (allocation.node, Step::Start(allocation.id)))
                .collect()
        }
        Event::JobStopping { job, reason } => {
            of_each(state, *job, |job, allocation| stop(job, allocation, *reason))
        }
        Event::JobResized { job, .. } => of_each(state, *job, |_, allocation| Step::Resize(allocation)),
        Event::JobPausing { job, .. } => match state.jobs.get(job) {
            Some(job) if job.phase == Phase::Pausing => {
                of_each(state, job.id, |_, allocation| Step::Pause(allocation))
            }
            _ => vec![],
        },
        Event::GpuCheckAsked { node, gpu, .. } => {
            let of_gpu = |step: &Step| matches!(step, Step::CheckGpu(question) if question.gpu == *gpu);
            let question = questions(state, *node).find(of_gpu);
            question.map(|step| (*node, step)).into_iter().collect()
        }
        Event::JobResuming { job, .. } => of_each(state, *job, |_, allocation| Step::Resume(allocation)),
        _ => step_for_volume(state, event).into_iter().collect(),
    }
}

/// A step for each member that a job has.
fn of_each(state: &State, job: JobId, step: impl Fn(&Job, AllocationId) -> Step) -> Vec<(NodeId, Step)> {
    let Some(job) = state.jobs.get(&job) else {
        return vec![];
    };
    let members = job.living().map(|(_, member)| member);
    members
        .map(|member| (member.node, step(job, member.allocation)))
        .collect()
}

fn step_for_volume(state: &State, event: &Event) -> Option<(NodeId, Step)> {
    match event {
        Event::VolumeRemoved { volume, .. } => {
            let volume = state.volumes.get(*volume)?;
            Some((volume.node?, Step::EraseVolume(volume.id)))
        }
        Event::VolumeGrown { volume, size_mib, .. } => {
            let node = state.volumes.get(*volume)?.node?;
            Some((
                node,
                Step::GrowVolume {
                    volume: *volume,
                    size_mib: *size_mib,
                },
            ))
        }
        _ => None,
    }
}

/// What is said again to a node in conversation: starts and pauses not heard of, stops not followed, jobs past their time,
/// volumes not erased, GPUs that have not shown what they are.
pub fn sweep(state: &State, node: NodeId, now: Time) -> Vec<Step> {
    let jobs = state.fleet.allocations_on(node).filter_map(|allocation| {
        let (job, member) = job_of(state, node, allocation.id)?;
        Some((allocation, job, member))
    });
    let steps = jobs.filter_map(|(allocation, job, member)| match (job.phase, job.stop) {
        (Phase::Placed, _) if member.phase > MemberPhase::Placed => None,
        (Phase::Placed, _) if now.since_ms(job.since) > SAY_AGAIN_MS => Some(Step::Start(allocation.id)),
        (Phase::Pausing, _) if now.since_ms(job.since) > SAY_AGAIN_MS => Some(Step::Pause(allocation.id)),
        (Phase::Resuming, _) if now.since_ms(job.since) > SAY_AGAIN_MS => Some(Step::Resume(allocation.id)),
        (Phase::Stopping, Some(reason)) => Some(stop(job, allocation.id, reason)),
        (Phase::Running, None) => {
            let allowed_ms = (job.spec.run_time_s + u64::from(job.spec.grace_s)) * 1000 + OVERDUE_MS;
            let overdue = now.since_ms(job.since) > allowed_ms;
            overdue.then_some(Step::Stop {
                allocation: allocation.id,
                reason: StopReason::RunTime,
                grace_s: 0,
            })
        }
        _ => None,
    });
    let said_again = erasures(state, node).chain(questions(state, node));
    steps.chain(said_again).collect()
}
