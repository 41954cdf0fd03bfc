//! Which of two jobs goes first, asked of the state alone.
//!
//! The questions are those of a pass, with one left out: between equals it is arrival that decides and not the learnt
//! length, or a long job that was promised room would lose it to every short one that comes. Asked where room is
//! promised: a promise binds whoever goes after its job, and nobody before it.

use super::aged::waited_ms;
use super::key::{Band, share_of};
use super::lend::is_sure;
use super::standing::claim_gpu_ms;
use crate::schedule::pass::Ask;
use crate::state::State;
use crate::tenancy::scope::{Scope, ScopeId};
use crate::time::Time;

/// Whether the first goes before the second.
pub fn precedes(state: &State, first: &Ask<'_>, second: &Ask<'_>, at: Time) -> bool {
    let (one, other) = (first.spec.priority, second.spec.priority);
    let bound_ms = state.aged_ms();
    let aged = |ask: &Ask<'_>| {
        let job = state.jobs.get(&ask.job);
        job.is_some_and(|job| waited_ms(job, at) >= bound_ms)
    };
    let band = |ask: &Ask<'_>| match is_sure(state, ask.owner, &ask.spec.demand) {
        true => Band::Nominal,
        false => Band::Rest,
    };
    let (ours, theirs) = parted(state, first.owner, second.owner);
    let share = |scope: Option<&Scope>| {
        let claim = |scope: &Scope| claim_gpu_ms(scope, state.half_life_ms(), at);
        scope.map_or(0, |scope| share_of(claim(scope), scope.share.weight))
    };
    match (aged(first), aged(second)) {
        (true, false) => true,
        (false, true) => false,
        _ if one != other => one > other,
        (true, true) => first.job < second.job,
        (false, false) => (band(first), share(ours), first.job) < (band(second), share(theirs), second.job),
    }
}

/// The scopes of two chains just below where they meet; none where one owner is the other, or above it.
fn parted(state: &State, one: ScopeId, other: ScopeId) -> (Option<&Scope>, Option<&Scope>) {
    let below = |of: ScopeId, beside: ScopeId| {
        let apart = state
            .tree
            .chain(of)
            .take_while(|scope| !state.tree.is_within(beside, scope.id));
        apart.last()
    };
    (below(one, other), below(other, one))
}
