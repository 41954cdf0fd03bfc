//! Why a job waits: the scheduler's own answer, computed when somebody asks.

use super::order::aged::ahead_of;
use super::pass::{QueueKey, go};
use super::place::explain;
use super::volume::VolumeNeeds;
use crate::id::{Ids, JobId};
use crate::refusal::{Code, Refusal};
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::time::Time;
use crate::workload::job::Phase;

/// What a waiting job waits for; none for a job that does not wait.
pub fn why(state: &State, id: JobId, at: Time) -> Option<Refusal> {
    let job = state.jobs.get(&id)?;
    if job.phase == Phase::Paused && job.pause.is_some() {
        return Some(
            Refusal::new(Code::Paused, "it is paused, and was not asked for since").hint(format!(
                "`tenure resume {id}` has it go on as soon as there is room"
            )),
        );
    }
    QueueKey::of(job)?;
    let mut ids = Ids::starting_at(u64::MAX - Ids::BLOCK);
    let answer = go(state, job, &mut ids, at);
    let waits_for = answer.err().map(|refusal| match refusal.code {
        Code::NoCapacity if job.phase == Phase::Queued => match VolumeNeeds::of(state, &job.volumes) {
            Ok(needs) => explain(state, ScopeId::User(job.owner), &job.spec, needs),
            Err(refusal) => refusal,
        },
        _ => refusal,
    });
    Some(waits_for.unwrap_or_else(|| {
        if ahead_of(state, &job.spec, at).is_some_and(|aged| aged != id) {
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
