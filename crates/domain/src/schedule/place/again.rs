//! Room again: whether a paused allocation finds the GPUs it had as it left them.

use super::explain::none_now;
use super::fit::left;
use super::wall::{Wall, level};
use crate::refusal::{Code, Refusal};
use crate::schedule::allocation::Allocation;
use crate::schedule::calendar::{Stay, against, named};
use crate::schedule::fleet::NodeStatus;
use crate::schedule::kept;
use crate::state::State;
use crate::tenancy::scope::ScopeId;
use crate::workload::spec::Demand;

/// The class of the GPUs that a paused allocation had, if all of them have room for it again.
pub fn has_room_again<'a>(
    state: &'a State,
    owner: ScopeId,
    demand: &Demand,
    allocation: &Allocation,
    stay: Stay<'_>,
) -> Result<&'a str, Refusal> {
    let wall = Wall::of(state, owner, demand);
    let node = state.fleet.node(allocation.node).ok_or_else(Refusal::not_found)?;
    if node.status == NodeStatus::Lost {
        return Err(none_now(state, demand));
    }
    let mut class = None;
    for slice in &allocation.slices {
        let gpu = node
            .gpu(slice.gpu)
            .filter(|gpu| gpu.present && gpu.quarantine.is_none());
        let Some(gpu) = gpu else {
            return Err(Refusal::new(
                Code::NoCapacity,
                format!("a GPU it had on {} takes no work now", node.name),
            )
            .hint("it resumes when the GPU is back in service; or stop it and submit it anew"));
        };
        kept::has_again(state, node.id, gpu.id, stay)?;
        let mut promises = against(state, node.id, stay);
        if let Some(to) = promises.find(|promise| promise.keeps(gpu.id)) {
            return Err(Refusal::new(
                Code::Promised,
                format!(
                    "the GPU it had on {} is promised to {}",
                    node.name,
                    named(state, to.job, owner)
                ),
            )
            .hint("it resumes when jobs there end"));
        }
        if left(gpu, slice, demand).is_none() {
            return Err(Refusal::new(
                Code::NoCapacity,
                format!("the GPU it had on {} has no room for it now", node.name),
            )
            .hint("it resumes when jobs there end"));
        }
        if level(state, gpu, demand, &wall).is_none_or(|(level, _)| level < allocation.isolation) {
            return Err(Refusal::new(
                Code::NotShared,
                format!(
                    "those now on the GPU it had on {} and this job's tenant have not agreed to share it",
                    node.name
                ),
            )
            .hint("it resumes when jobs there end"));
        }
        class = Some(&*gpu.facts.class);
    }
    class.ok_or_else(Refusal::not_found)
}
