//! How a job is shown.

use tenure_api::v1::job::{AllocationView, JobPhase, JobView, MemberView};
use tenure_domain::State;
use tenure_domain::id::{NodeId, UserId};
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{DoneJob, Job, Phase};
use tenure_domain::workload::member::Member;

use super::task;
use crate::controller::now;

fn phase(phase: Phase) -> JobPhase {
    match phase {
        Phase::Queued => JobPhase::Queued,
        Phase::Admitted => JobPhase::Admitted,
        Phase::Placed => JobPhase::Placed,
        Phase::Starting => JobPhase::Starting,
        Phase::Running => JobPhase::Running,
        Phase::Pausing => JobPhase::Pausing,
        Phase::Paused => JobPhase::Paused,
        Phase::Resuming => JobPhase::Resuming,
        Phase::Stopping => JobPhase::Stopping,
    }
}

/// The owner's names; the ids it stood at where it is gone.
pub(in crate::routes) fn owner_path(state: &State, owner: UserId, path: &str) -> String {
    let scope = ScopeId::User(owner);
    if state.tree.get(scope).is_some() {
        state.tree.title(scope)
    } else {
        path.to_owned()
    }
}

fn node_name(state: &State, node: NodeId) -> String {
    let node = state.fleet.node(node);
    node.map_or_else(String::new, |node| node.name.to_string())
}

/// The members of a gang; of other jobs there is nothing to tell beyond the allocation.
fn members(state: &State, members: &[Member]) -> Vec<MemberView> {
    if members.len() < 2 {
        return vec![];
    }
    let each = (0..).zip(members).map(|(number, member)| {
        let allocation = state.fleet.allocation(member.allocation);
        MemberView {
            member: number,
            allocation: member.allocation,
            node: member.node,
            node_name: node_name(state, member.node),
            phase: member.phase,
            slices: allocation.map_or_else(Vec::new, |allocation| allocation.slices.clone()),
            ran_ms: member.ran_ms,
            end: member.end.clone(),
        }
    });
    each.collect()
}

fn allocation(state: &State, job: &Job) -> Option<AllocationView> {
    let allocation = state.fleet.allocation(job.allocations().next()?)?;
    Some(AllocationView {
        id: allocation.id,
        node: allocation.node,
        node_name: node_name(state, allocation.node),
        slices: allocation.slices.clone(),
        isolation: allocation.isolation,
        isolation_why: allocation.isolation_why.clone(),
        hourly_micros: job
            .admission
            .as_ref()
            .map_or(0, |admission| admission.hold.own_hourly().0),
    })
}

/// What is set aside for it, or for its tasks together.
fn held_micros(state: &State, job: &Job) -> i64 {
    let held = |job: &Job| {
        let admission = job.admission.as_ref();
        admission.map_or(0, |admission| {
            admission.hold.left_at(ScopeId::User(job.owner)).money.0
        })
    };
    let tasks = job.tasks.iter().flat_map(|tasks| tasks.jobs(&state.jobs));
    tasks.map(held).fold(held(job), i64::saturating_add)
}

pub(in crate::routes) fn live(state: &State, job: &Job) -> JobView {
    JobView {
        id: job.id,
        owner: job.owner,
        owner_path: state.tree.title(ScopeId::User(job.owner)),
        spec: (*job.spec).clone(),
        derivation: job.derivation.clone(),
        phase: phase(job.phase),
        submitted: job.submitted.into(),
        started: job.started.map(Into::into),
        ended: None,
        attempt: job.attempt,
        saved: job.saved.map(Into::into),
        stopping: job.stop,
        outcome: None,
        allocation: allocation(state, job),
        members: members(state, &job.members),
        waiting: None,
        ran_ms: job.ran_ms,
        charged_micros: job.resold.unwrap_or(job.charged.money).0,
        held_micros: held_micros(state, job),
        gpu_ms: job.charged.gpu_ms,
        usage: job.usage,
        service: None,
        tasks: task::progress(state, job, now()),
        task: task::part(&job.spec, job.resold.unwrap_or(job.charged.money).0),
        trace_id: None,
    }
}

pub(in crate::routes) fn done(state: &State, job: &DoneJob, path: &str) -> JobView {
    JobView {
        id: job.id,
        owner: job.owner,
        owner_path: owner_path(state, job.owner, path),
        spec: (*job.spec).clone(),
        derivation: job.derivation.clone(),
        phase: JobPhase::Done,
        submitted: job.submitted.into(),
        started: job.started.map(Into::into),
        ended: Some(job.ended.into()),
        attempt: job.attempts,
        saved: None,
        stopping: None,
        outcome: Some(job.outcome.clone()),
        allocation: None,
        members: members(state, &job.members),
        waiting: None,
        ran_ms: job.ran_ms,
        charged_micros: job.resold.unwrap_or(job.charged.money).0,
        held_micros: 0,
        gpu_ms: job.charged.gpu_ms,
        usage: job.usage,
        service: None,
        tasks: task::outcome(job),
        task: task::part(&job.spec, job.resold.unwrap_or(job.charged.money).0),
        trace_id: None,
    }
}
