//! Why a job waits: the scheduler's own answer, computed when somebody asks.

use super::pass::{Ask, start};
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
    let job = state.jobs.get(&id).filter(|job| job.phase == Phase::Queued)?;
    let mut ids = Ids::starting_at(u64::MAX - Ids::BLOCK);
    let answer = start(state, &Ask::of(job), &mut ids, at);
    let waits_for = answer.err().map(|refusal| match refusal.code {
        Code::NoCapacity => match VolumeNeeds::of(state, &job.volumes) {
            Ok(needs) => explain(state, ScopeId::User(job.owner), &job.spec, needs),
            Err(refusal) => refusal,
        },
        _ => refusal,
    });
    Some(waits_for.unwrap_or_else(|| {
        Refusal::new(Code::BehindOthers, "it can start and is about to be tried")
            .hint("it starts with the next pass over the queue")
    }))
}
