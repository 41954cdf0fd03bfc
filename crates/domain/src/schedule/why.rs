//! Why a job waits, when it will start, and what would let it start now: the scheduler's own answers, computed when
//! somebody asks and never written down.
//!
//! Here the reason; the moment is said by `when`, the alternatives by `instead`. Deliberately absent: deciding anything.
//! Called by the routes of jobs.

use super::calendar::{Promise, Promised, leaving, named};
use super::instead::{Instead, instead};
use super::order::aged::ahead_of;
use super::pass::{QueueKey, go};
use super::place::{explain, gang_places, places};
use super::volume::VolumeNeeds;
use super::when::{Starts, Unforeseen, when};
use crate::id::{Ids, JobId};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::{SECOND_MS, Time};
use crate::workload::job::{Job, Phase};

/// Everything there is to say of a waiting job.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub reason: Refusal,
    /// When it starts, or why nobody can say.
    pub starts: Result<Starts, Unforeseen>,
    /// What of the job, changed, lets it start now, or sooner.
    pub instead: Vec<Instead>,
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
pub(super) fn throwaway() -> Ids {
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
    let starts = when(state, job, &reason, at);
    Some(Answer {
        instead: match job.phase {
            Phase::Queued => instead(state, job, &reason, &starts, at),
            _ => Vec::new(),
        },
        starts,
        reason,
    })
}
