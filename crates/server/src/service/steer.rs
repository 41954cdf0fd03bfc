//! Steering: what the scaler wants, brought about. More replicas are asked for at once; one that is too many takes no
//! more requests first, finishes those it has, and is stopped then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_domain::id::JobId;
use tenure_domain::workload::job::{Job, Phase, StopReason};
use tenure_domain::workload::service::scaler::Scaler;
use tenure_domain::{State, Wish};

use super::{Desk, Services, replicas, serving};
use crate::controller::{NotDone, now};

/// How long a replica has to finish, beside its grace, before it is ended by its run time.
const RETIRE_MS: u64 = 60_000;

/// What is remembered of each service between two thoughts.
#[derive(Default)]
pub(super) struct Steering(HashMap<JobId, Course>);

#[derive(Default)]
struct Course {
    scaler: Scaler,
    /// Since when replicas drain that are to be given back.
    draining: Option<Instant>,
}

impl Services {
    /// Thinks every service over.
    pub(super) async fn steer(self: &Arc<Self>, steering: &mut Steering) {
        let desks = self.all();
        steering
            .0
            .retain(|job, _| desks.iter().any(|desk| desk.job == *job));
        for desk in desks {
            let course = steering.0.entry(desk.job).or_default();
            let next = self.next(&desk, course);
            for wish in next.into_iter().chain(self.aged(&desk)) {
                if let Err(NotDone::Refused(refusal)) = self.controller.system(wish).await {
                    tracing::info!(service = %desk.job, %refusal, "its replicas were not changed");
                }
            }
        }
    }

    fn next(&self, desk: &Desk, course: &mut Course) -> Option<Wish> {
        let mut sample = desk.sample();
        sample.at = now();
        let state = self.controller.view().read();
        let job = state.jobs.get(&desk.job)?;
        if !matches!(job.phase, Phase::Queued | Phase::Running) {
            return None;
        }
        let serving = serving(job)?;
        sample.busy_permille = self.busy_permille(&state, desk);
        let wanted = course
            .scaler
            .wanted(&desk.service, serving.replicas, serving.wanted, sample);
        let living = replicas(&state, job)
            .filter(|replica| !replica.is_leaving())
            .count() as u32;
        let mut leave = Vec::new();
        if wanted.replicas < living {
            leave = leaving(&state, job, desk, course, wanted.replicas)?;
        } else {
            course.draining = None;
            desk.drain(0);
            let missing = living < serving.wanted && serving.may_start(sample.at);
            if wanted.replicas == serving.wanted && !missing {
                return None;
            }
        }
        Some(Wish::Steer {
            job: desk.job,
            wanted: wanted.replicas,
            leave,
            why: wanted.why.to_owned(),
        })
    }

    /// Replicas that are about to be ended by their run time leave before, with nothing left to do; others take their
    /// place at once.
    fn aged(&self, desk: &Desk) -> Vec<Wish> {
        let state = self.controller.view().read();
        let Some(job) = state.jobs.get(&desk.job) else {
            return Vec::new();
        };
        let now = now();
        let run_ms = job.spec.run_time_s * 1000;
        let before_ms = (u64::from(job.spec.grace_s) * 1000 + RETIRE_MS).min(run_ms / 4);
        let aged = replicas(&state, job).filter_map(|replica| {
            let (since, allocation) = (replica.since, replica.allocation_of(0)?);
            let ran_ms = now.since_ms(since);
            if replica.phase != Phase::Running || ran_ms + before_ms < run_ms {
                return None;
            }
            let idle = desk.retire(allocation) == 0;
            (idle || ran_ms + before_ms / 2 >= run_ms).then_some(Wish::Stop {
                job: replica.id,
                reason: StopReason::Cancelled,
            })
        });
        aged.collect()
    }

    /// How much of what their slices are worth the ready replicas used.
    fn busy_permille(&self, state: &State, desk: &Desk) -> Option<u16> {
        let mut shares = Vec::new();
        for id in desk.ready_allocations() {
            let Some(allocation) = state.fleet.allocation(id) else {
                continue;
            };
            let Some(node) = state.fleet.node(allocation.node) else {
                continue;
            };
            for slice in &allocation.slices {
                let Some(gpu) = node.gpus.iter().find(|gpu| gpu.id == slice.gpu) else {
                    continue;
                };
                let Some(last) = self.readings.last(node.id, &gpu.facts.uuid) else {
                    continue;
                };
                let used = last.reading.slices.iter().find(|slice| slice.allocation == id);
                let busy = used
                    .and_then(|slice| slice.use_now.busy_permille)
                    .filter(|_| !last.stale);
                shares.extend(busy.map(|busy| {
                    let of_its_own = u64::from(busy) * 1000 / u64::from(slice.compute_permille.max(1));
                    of_its_own.min(1000)
                }));
            }
        }
        let count = shares.len() as u64;
        (count > 0).then(|| (shares.iter().sum::<u64>() / count) as u16)
    }
}

/// Who is to go so that `wanted` stay, once they have nothing left to do or had their grace; none before.
fn leaving(state: &State, job: &Job, desk: &Desk, course: &mut Course, wanted: u32) -> Option<Vec<JobId>> {
    let living: Vec<&Job> = replicas(state, job)
        .filter(|replica| !replica.is_leaving())
        .collect();
    let too_many = living.len().saturating_sub(wanted as usize);
    let idle = living.iter().filter(|replica| replica.phase != Phase::Running);
    let mut leave: Vec<JobId> = idle.map(|replica| replica.id).take(too_many).collect();
    let draining = desk.drain(too_many - leave.len());
    let since = *course.draining.get_or_insert_with(Instant::now);
    let in_flight: u32 = draining.iter().map(|(_, in_flight)| in_flight).sum();
    if in_flight > 0 && since.elapsed() < Duration::from_secs(job.spec.grace_s.into()) {
        return None;
    }
    course.draining = None;
    leave.extend(draining.into_iter().map(|(replica, _)| replica));
    Some(leave)
}
