//! Why a job waits, when it will start, and what would let it start now: the scheduler's own answers, computed when
//! somebody asks and never written down.
//!
//! Every "now" below was tried: the changed job was admitted and placed on the state as it is. A moment is stated as a
//! band with its basis, so that nobody takes a rule for knowledge. Deliberately absent: deciding anything.
//! Called by the routes of jobs.

use serde::{Deserialize, Serialize};

use super::allocation::{Allocation, Slice};
use super::backfill::earliest;
use super::calendar::{Promise, Promised, ends_by, leaving, named};
use super::evict::make_room;
use super::order::aged::ahead_of;
use super::order::outlook::outlook;
use super::pass::{Ask, QueueKey, go, start};
use super::place::{explain, gang_places, places};
use super::volume::VolumeNeeds;
use crate::forecast::wait::Estimate;
use crate::id::{GpuId, Ids, JobId, NodeId};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::job::{Job, Phase};
use crate::workload::spec::{Isolation, JobSpec, Priority};

/// Ways to start now that are told.
const TOLD: usize = 6;

/// Everything there is to say of a waiting job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub reason: Refusal,
    pub starts: Option<Starts>,
    /// What of the job, changed, lets it start now.
    pub instead: Vec<Instead>,
}

/// When a job starts, from when to when, and by what that is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starts {
    pub from: Time,
    pub to: Time,
    pub basis: Basis,
}

/// What a stated moment rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum Basis {
    /// Others are leaving for it; the room is its own.
    Promise { leaving: u64 },
    /// Run-time limits: when this job has reached its own there is room at the latest, and nobody else gets it.
    /// It is named within its own tenant only.
    Limit {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
        job: Option<JobId>,
    },
    /// Who is ahead in the queue and who runs, how long they are likely to, and how such estimates turned out.
    Rule {
        ahead: u64,
        /// How many waits of about this length were watched; by none, the band is a rule of thumb.
        #[serde(default, skip_serializing_if = "is_zero")]
        seen: u64,
        /// The share of their outcomes that the band holds, in thousandths.
        #[serde(default, skip_serializing_if = "is_zero")]
        permille: u64,
    },
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A change to the job, in words and as the option that makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Instead {
    pub change: String,
    /// Others would give way to it; it starts when they have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evicts: bool,
}

/// Who waits where a job does: of a job of tasks the first of them, as long as none has begun.
fn who_waits(state: &State, id: JobId) -> Option<&Job> {
    let job = state.jobs.get(&id)?;
    let Some(tasks) = job.tasks.as_ref().filter(|_| job.phase != Phase::Paused) else {
        return Some(job);
    };
    let mut living = tasks.jobs(&state.jobs);
    let first = living.next()?;
    let begun = first.phase != Phase::Queued || living.any(|task| task.phase != Phase::Queued);
    (!begun && job.phase != Phase::Stopping).then_some(first)
}

/// What a waiting job waits for; none for a job that does not wait.
pub fn why(state: &State, id: JobId, at: Time) -> Option<Refusal> {
    let job = who_waits(state, id)?;
    if job.phase == Phase::Paused && job.pause.is_some() {
        return Some(
            Refusal::new(Code::Paused, "it is paused, and was not asked for since").hint(format!(
                "`tenure resume {id}` has it go on as soon as there is room"
            )),
        );
    }
    QueueKey::of(job)?;
    if let Some(refusal) = others_leave(state, job) {
        return Some(refusal);
    }
    let answer = go(state, job, &mut throwaway(), at);
    let waits_for = answer.err().map(|refusal| match refusal.code {
        Code::NoCapacity if job.phase == Phase::Queued => no_room(state, job, at),
        _ => refusal,
    });
    Some(waits_for.unwrap_or_else(|| {
        if ahead_of(state, &job.spec, at).is_some_and(|aged| aged != job.id) {
            return Refusal::new(
                Code::BehindOthers,
                "there is room, and it is kept for a job that waited past the platform's bound",
            )
            .hint("it starts when that one has started, or when there is room beside it");
        }
        Refusal::new(Code::BehindOthers, "it can start and is about to be tried")
            .hint("it starts with the next pass over the queue")
    }))
}

/// Ids that no journal ever holds.
fn throwaway() -> Ids {
    Ids::starting_at(u64::MAX - Ids::BLOCK)
}

fn others_leave(state: &State, job: &Job) -> Option<Refusal> {
    let promise = state.calendar.of(job.id).filter(|promise| promise.evicts())?;
    let said = match leaving(state, promise).count() {
        0 => return None,
        1 => "a job gives way to it; that room is promised to it".to_owned(),
        n => format!("{n} jobs give way to it; their room is promised to it"),
    };
    Some(Refusal::new(Code::NoCapacity, said).hint("it starts when that is done"))
}

/// What exactly keeps it from room: a promise to somebody else, a wall, or nothing being free.
fn no_room(state: &State, job: &Job, at: Time) -> Refusal {
    if let Some(refusal) = kept_from_it(state, job, at) {
        return refusal;
    }
    match VolumeNeeds::of(state, &job.volumes) {
        Ok(needs) => explain(state, ScopeId::User(job.owner), &job.spec, needs),
        Err(refusal) => refusal,
    }
}

/// The promise to another that keeps it from room it could have without.
fn kept_from_it(state: &State, job: &Job, at: Time) -> Option<Refusal> {
    let mut others = state.calendar.iter().filter(|promise| promise.job != job.id);
    let first = others.next()?;
    let needs = VolumeNeeds::of(state, &job.volumes).ok()?;
    let (owner, none) = (ScopeId::User(job.owner), Promised::new());
    let node = if job.is_gang() {
        let places = gang_places(state, owner, &job.spec, needs, &none).ok()?;
        let kept = |node| state.calendar.on(node).next().is_some();
        places.iter().map(|place| place.node).find(|node| kept(*node))?
    } else {
        places(state, owner, &job.spec, needs, &none).ok()?.next()?.node
    };
    let promise = state.calendar.on(node).find(|promise| promise.job != job.id);
    let Promise { job: to, from, .. } = promise.unwrap_or(first);
    let to = named(state, *to, owner);
    let title = state.fleet.node(node).map_or("its node", |node| &node.name);
    let when = if *from <= at {
        "".to_owned()
    } else {
        format!(" from {} on", from.rfc3339())
    };
    let limit_s = from.since_ms(at) / SECOND_MS;
    let limit_s = limit_s.saturating_sub(u64::from(job.spec.grace_s));
    let hint = match limit_s {
        0 => "it starts when that job has started and there is room beside it".to_owned(),
        limit_s => format!("with a run time of at most {limit_s} s it starts now"),
    };
    Some(
        Refusal::new(
            Code::Promised,
            format!("there is room on {title}, but it is promised to {to}{when}"),
        )
        .hint(hint),
    )
}

/// The reason, the moment and the alternatives; none for a job that does not wait.
pub fn answer(state: &State, id: JobId, at: Time) -> Option<Answer> {
    let reason = why(state, id, at)?;
    let job = who_waits(state, id)?;
    let queued = job.phase == Phase::Queued;
    let for_room = matches!(
        reason.code,
        Code::NoCapacity | Code::NotShared | Code::Promised | Code::VolumeUnavailable
    );
    Some(Answer {
        starts: (queued && for_room).then(|| starts(state, job, at)).flatten(),
        instead: if queued {
            instead(state, job, &reason, at)
        } else {
            Vec::new()
        },
        reason,
    })
}

fn starts(state: &State, job: &Job, at: Time) -> Option<Starts> {
    if let Some(promise) = state.calendar.of(job.id) {
        let gone: Vec<&Job> = leaving(state, promise).collect();
        if promise.evicts() {
            let grace_s = gone.iter().map(|job| job.spec.grace_s).max().unwrap_or(0);
            return Some(Starts {
                from: at,
                to: at.plus_ms(u64::from(grace_s) * SECOND_MS),
                basis: Basis::Promise {
                    leaving: gone.len() as u64,
                },
            });
        }
        return Some(Starts {
            from: at,
            to: promise.from.max(at),
            basis: match limiting(state, promise, at) {
                Some(last) => Basis::Limit {
                    job: Some(last).filter(|last| {
                        let tenant = |id: &JobId| {
                            let owner = state.jobs.get(id).map(|job| ScopeId::User(job.owner));
                            owner.and_then(|owner| state.tree.tenant_of(owner))
                        };
                        tenant(last) == tenant(&job.id)
                    }),
                },
                None => Basis::Promise { leaving: 0 },
            },
        });
    }
    let (from, ..) = earliest(state, &Ask::of(job), at)?;
    let outlook = outlook(state, job, at)?;
    // Nothing is promised to it: the room that limits make goes to those ahead first.
    let by_limits = || Estimate::rough(from.since_ms(at) / SECOND_MS / 2);
    let estimate = outlook.estimate.unwrap_or_else(by_limits);
    let told = state.probes.tell(estimate, job.alike.map(Into::into), at);
    Some(Starts {
        from: at.plus_ms(told.band.from_s * SECOND_MS),
        to: at.plus_ms(told.band.to_s * SECOND_MS),
        basis: Basis::Rule {
            ahead: outlook.ahead,
            seen: told.seen,
            permille: told.permille,
        },
    })
}

/// Whose limit makes the last of the promised room.
fn limiting(state: &State, promise: &Promise, at: Time) -> Option<JobId> {
    let on = |(node, slices): (NodeId, &'_ [Slice])| {
        let gpus: Vec<GpuId> = slices.iter().map(|slice| slice.gpu).collect();
        let has = move |allocation: &&Allocation| {
            gpus.is_empty() || allocation.slices.iter().any(|slice| gpus.contains(&slice.gpu))
        };
        state.fleet.allocations_on(node).filter(has)
    };
    let there = promise.rooms().flat_map(on);
    let before = there
        .map(|allocation| (ends_by(state, allocation, at), allocation.job))
        .filter(|(ends, _)| *ends <= promise.from);
    before.max().map(|(_, job)| job)
}

/// What of the job, changed, lets it start now. Each is tried as the scheduler would.
fn instead(state: &State, job: &Job, reason: &Refusal, at: Time) -> Vec<Instead> {
    let mut found = Vec::new();
    for (change, spec) in changes(state, job, at) {
        let ask = Ask {
            spec: &spec,
            ..Ask::of(job)
        };
        let starts = spec.check().is_ok() && start(state, &ask, &mut throwaway(), at).is_ok();
        if starts && found.len() < TOLD {
            found.push(Instead {
                change,
                evicts: false,
            });
        }
    }
    if state.calendar.of(job.id).is_none() {
        found.extend(raised(state, job, reason, at));
    }
    found
}

/// The next priority at which others would give way to it.
fn raised(state: &State, job: &Job, reason: &Refusal, at: Time) -> Option<Instead> {
    let higher = Priority::ALL.iter().filter(|level| **level > job.spec.priority);
    higher.copied().find_map(|priority| {
        let mut spec = JobSpec::clone(&job.spec);
        spec.priority = priority;
        let ask = Ask {
            spec: &spec,
            ..Ask::of(job)
        };
        let gives_way = !make_room(state, &ask, reason, at).is_empty();
        gives_way.then(|| Instead {
            change: format!("with priority {}", priority.as_str()),
            evicts: true,
        })
    })
}

/// The job with less, elsewhere, or for a shorter time; nearest to what was asked first.
fn changes(state: &State, job: &Job, at: Time) -> Vec<(String, JobSpec)> {
    let asked = &job.spec;
    let mut all = Vec::new();
    let mut with = |change: String, alter: &dyn Fn(&mut JobSpec)| {
        let mut spec = JobSpec::clone(asked);
        alter(&mut spec);
        if spec != **asked {
            all.push((change, spec));
        }
    };
    let promises = state.calendar.iter().filter(|promise| promise.job != job.id);
    let mut limits: Vec<u64> = promises
        .map(|promise| (promise.from.since_ms(at) / SECOND_MS).saturating_sub(asked.grace_s.into()))
        .filter(|limit_s| *limit_s > 0 && *limit_s < asked.run_time_s)
        .collect();
    limits.sort_unstable();
    limits.dedup();
    if let Some(limit_s) = limits.last().copied() {
        with(format!("with a run time of {limit_s} s"), &|spec| {
            spec.run_time_s = limit_s
        });
    }
    let demand = &asked.demand;
    let fewer = [demand.nodes - 1, demand.nodes / 2, 1];
    let mut fewer: Vec<u32> = fewer
        .into_iter()
        .filter(|n| *n > 0 && *n < demand.nodes)
        .collect();
    fewer.dedup();
    for nodes in fewer {
        with(format!("with --nodes {nodes}"), &|spec| spec.demand.nodes = nodes);
    }
    if demand.region.is_some() {
        with("without --region".into(), &|spec| spec.demand.region = None);
    }
    if demand.model.is_some() {
        with("without --model".into(), &|spec| spec.demand.model = None);
    }
    // A SKU sets the rest of the demand as a whole.
    if asked.sku.is_some() || asked.demand.gpus == 0 {
        return all;
    }
    let fewer = [demand.gpus - 1, demand.gpus / 2, demand.gpus / 4, 1];
    let mut fewer: Vec<u32> = fewer.into_iter().filter(|n| *n > 0 && *n < demand.gpus).collect();
    fewer.dedup();
    for gpus in fewer {
        let noun = if gpus == 1 { "GPU" } else { "GPUs" };
        with(format!("with {gpus} {noun}"), &|spec| spec.demand.gpus = gpus);
    }
    if let Some(asked_class) = &demand.class {
        let gpus = state.fleet.nodes().flat_map(|node| &node.gpus);
        let mut classes: Vec<&str> = gpus.map(|gpu| &*gpu.facts.class).collect();
        classes.sort_unstable();
        classes.dedup();
        for class in classes.into_iter().filter(|class| *class != &**asked_class) {
            with(format!("on {class}"), &|spec| {
                spec.demand.class = Some(class.into())
            });
        }
    }
    if demand.isolation > Isolation::Guarded {
        for weaker in [Isolation::Fenced, Isolation::Guarded] {
            if weaker < demand.isolation {
                with(format!("with --isolation {}", weaker.as_str()), &|spec| {
                    spec.demand.isolation = weaker
                });
            }
        }
    }
    if demand.vram_mib > 1 {
        with(format!("with {} MiB of VRAM", demand.vram_mib / 2), &|spec| {
            spec.demand.vram_mib /= 2
        });
    }
    if demand.compute_permille > 1 && demand.vram_mib > 0 {
        let half = demand.compute_permille / 2;
        with(format!("with {half} thousandths of a GPU"), &|spec| {
            spec.demand.compute_permille = half
        });
    }
    all
}
