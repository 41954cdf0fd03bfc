//! GPUs, their slices and how they are used. Who may see the fleet sees all of it; others see the devices on which
//! jobs run that they may see, their own slices on them, and of all other slices only the size.

pub(crate) mod survey;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::v1::gpu::{DeviceView, GpuQuery, HolderView, SliceView};
use tenure_api::v1::page::Page;
use tenure_domain::id::{AllocationId, GpuId, NodeId};
use tenure_domain::schedule::fleet::{Gpu, Node};
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{State as Platform, Wish};

use super::job::list::{Sight, readable};
use super::node::gpu_view;
use crate::auth::Caller;
use crate::controller::now;
use crate::http::Shared;
use crate::http::body::NoBody;
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::openapi::{ChangeProblems, ReadProblems};
use crate::reading::Last;

/// One caller's view of devices.
struct Looker<'a> {
    shared: &'a Shared,
    state: &'a Platform,
    sight: Sight<'a>,
    /// Sees every device, and how each is used as a whole.
    fleet: bool,
}

impl<'a> Looker<'a> {
    fn new(shared: &'a Shared, state: &'a Platform, caller: &'a Caller) -> Looker<'a> {
        Looker {
            shared,
            state,
            sight: Sight::of(caller),
            fleet: caller.may(state, Action::NodeRead, ScopeId::Platform).is_ok(),
        }
    }

    fn sees_holder(&mut self, id: AllocationId) -> bool {
        let job = self
            .state
            .fleet
            .allocation(id)
            .and_then(|allocation| self.state.jobs.get(&allocation.job));
        job.is_some_and(|job| self.sight.sees(self.state, job.owner))
    }

    fn sees(&mut self, gpu: &Gpu) -> bool {
        self.fleet || gpu.holders.iter().any(|&holder| self.sees_holder(holder))
    }

    fn view(&mut self, node: &Node, gpu: &Gpu) -> DeviceView {
        let last = self.shared.app.readings.last(node.id, &gpu.facts.uuid);
        let holders = gpu.holders.clone();
        let slices = holders
            .into_iter()
            .filter_map(|id| self.slice(gpu, id, last.as_ref()))
            .collect();
        DeviceView {
            node: node.id,
            node_name: node.name.to_string(),
            gpu: gpu_view(self.state, gpu),
            slices,
            read: last.as_ref().map(|last| last.at.into()),
            stale: last.as_ref().is_some_and(|last| last.stale),
            gauges: last.filter(|_| self.fleet).map(|last| last.reading.gauges),
            recent: None,
        }
    }

    fn slice(&mut self, gpu: &Gpu, id: AllocationId, last: Option<&Last>) -> Option<SliceView> {
        let allocation = self.state.fleet.allocation(id)?;
        let slice = allocation.slices.iter().find(|slice| slice.gpu == gpu.id)?;
        let seen = self.sees_holder(id);
        let holder = self
            .state
            .jobs
            .get(&allocation.job)
            .filter(|_| seen)
            .map(|job| HolderView {
                allocation: id,
                job: job.id,
                job_name: job.spec.name.clone(),
                owner_path: self.state.tree.title(ScopeId::User(job.owner)),
                isolation: allocation.isolation,
                isolation_why: allocation.isolation_why.clone(),
                capped: job.spec.demand.capped,
            });
        let read = last.and_then(|last| last.reading.slices.iter().find(|read| read.allocation == id));
        Some(SliceView {
            vram_mib: slice.vram_mib,
            compute_permille: slice.compute_permille,
            holder,
            used: read
                .filter(|_| seen || self.fleet)
                .map(|read| read.use_now.clone()),
        })
    }
}

/// Lists GPUs by node.
#[utoipa::path(get, path = "/v1/gpus", tag = "node", params(GpuQuery), responses((status = 200, body = Page<DeviceView>), ReadProblems))]
pub(crate) async fn gpus(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<GpuQuery>,
) -> Answer<Json<Page<DeviceView>>> {
    let state = shared.app.controller.view().read();
    caller.may_look(&state)?;
    // As in a path: what cannot be an id is as absent as what nobody has.
    let only: Option<NodeId> = query
        .node
        .as_deref()
        .map(|node| node.parse().map_err(|_| Fail::not_found()))
        .transpose()?;
    let list = format!("gpus/{}", query.node.as_deref().unwrap_or_default());
    let turn = Turn::new(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    let after: Option<(NodeId, GpuId)> = turn.after.as_ref().and_then(|after| {
        let (node, gpu) = after.split_once(' ')?;
        Some((node.parse().ok()?, gpu.parse().ok()?))
    });
    let mut looker = Looker::new(&shared, &state, &caller);
    let mine = (!looker.fleet).then(|| held(&state, &caller));
    let nodes: Vec<&Node> = match (&mine, only) {
        (_, Some(only)) => state.fleet.node(only).into_iter().collect(),
        (Some(mine), None) => {
            let nodes: BTreeSet<NodeId> = mine.iter().map(|(node, _)| *node).collect();
            nodes.iter().filter_map(|&node| state.fleet.node(node)).collect()
        }
        (None, None) => state.fleet.nodes().collect(),
    };
    let places = nodes.into_iter().flat_map(|node| {
        let mut gpus: Vec<&Gpu> = node.gpus.iter().collect();
        gpus.sort_by_key(|gpu| gpu.id);
        gpus.into_iter().map(move |gpu| (node, gpu))
    });
    let ahead = places
        .filter(|(node, gpu)| after.is_none_or(|after| (node.id, gpu.id) > after))
        .filter(|(node, gpu)| mine.as_ref().is_none_or(|mine| mine.contains(&(node.id, gpu.id))))
        .map(|(node, gpu)| looker.view(node, gpu));
    Ok(Json(turn.page(ahead, |device| {
        format!("{} {}", device.node, device.gpu.id)
    })))
}

/// Where jobs run that the caller may see.
fn held(state: &Platform, caller: &Caller) -> BTreeSet<(NodeId, GpuId)> {
    let mut sight = Sight::of(caller);
    let jobs = readable(state, caller)
        .into_iter()
        .flat_map(|root| state.jobs_within(root));
    let allocations = jobs
        .filter(|job| sight.sees(state, job.owner))
        .flat_map(|job| job.allocations())
        .filter_map(|id| state.fleet.allocation(id));
    allocations
        .flat_map(|allocation| allocation.slices.iter().map(|slice| (allocation.node, slice.gpu)))
        .collect()
}

/// Shows a GPU.
#[utoipa::path(get, path = "/v1/gpus/{gpu}", tag = "node", params(("gpu" = String, Path, description = "The GPU's id")),
    responses((status = 200, body = DeviceView), ReadProblems))]
pub(crate) async fn gpu(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
) -> Answer<Json<DeviceView>> {
    let state = shared.app.controller.view().read();
    caller.may_look(&state)?;
    let mut looker = Looker::new(&shared, &state, &caller);
    let id: Answer<GpuId> = path.id(0);
    let found = id.ok().and_then(|id| {
        let mut nodes = state.fleet.nodes();
        nodes.find_map(|node| Some((node, node.gpu(id)?)))
    });
    let Some((node, gpu)) = found.filter(|(_, gpu)| looker.sees(gpu)) else {
        // Says the same whether it exists or not.
        caller.may(&state, Action::NodeRead, ScopeId::Platform)?;
        return Err(Fail::not_found());
    };
    let mut view = looker.view(node, gpu);
    if looker.fleet {
        view.recent = shared.app.readings.recent(node.id, &gpu.facts.uuid, now());
    }
    Ok(Json(view))
}

/// Puts a GPU that was quarantined back into service. It is scrubbed again before another tenant gets it.
#[utoipa::path(post, path = "/v1/gpus/{gpu}/release", tag = "node", params(("gpu" = String, Path, description = "The GPU's id")),
    responses((status = 200, body = DeviceView), ChangeProblems))]
pub(crate) async fn release_gpu(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<Json<DeviceView>> {
    let id: GpuId = path.id(0)?;
    caller
        .submit(&shared.app.controller, Wish::ReleaseGpu { gpu: id })
        .await?;
    let state = shared.app.controller.view().read();
    let mut nodes = state.fleet.nodes();
    let (node, gpu) = nodes
        .find_map(|node| Some((node, node.gpu(id)?)))
        .ok_or_else(Fail::not_found)?;
    Ok(Json(Looker::new(&shared, &state, &caller).view(node, gpu)))
}
