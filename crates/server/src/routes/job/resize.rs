//! Resizing a running job. A slice that shrinks gives up its part on the device before anybody else may count on it;
//! one that grows gets it after it was decided.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::channel::DeviceSlice;
use tenure_api::v1::job::{JobView, ResizeJob};
use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_domain::tenancy::role::Action;
use tenure_domain::{Code, Command, Event, Refusal, State as Platform, Wish, decide};
use tenure_engine::EngineError;

use super::plan::THROWAWAY;
use super::{Found, find, shown};
use crate::auth::Caller;
use crate::controller::now;
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::openapi::ChangeProblems;
use crate::reconcile::devices;

/// Changes the size of a running job's slices, without a restart.
#[utoipa::path(post, path = "/v1/jobs/{job}/resize", tag = "job", params(("job" = String, Path, description = "The job's id")),
    request_body = ResizeJob, responses((status = 200, body = JobView), ChangeProblems))]
pub(crate) async fn resize_job(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    body: JsonBody<ResizeJob>,
) -> Answer<Json<JobView>> {
    let id: JobId = path.id(0)?;
    let ResizeJob {
        compute_permille,
        vram_mib,
    } = body.value;
    if let Found::Done { .. } = find(&shared, &caller, id, Action::JobSubmit).await? {
        return Err(Refusal::new(Code::WrongPhase, "the job has ended already").into());
    }
    let wish = Wish::Resize {
        job: id,
        compute_permille,
        vram_mib,
    };
    let fail = |refusal| Fail::from(refusal).without("/demand");
    let step = {
        let state = shared.app.controller.view().read();
        let command = Command {
            at: now(),
            by: caller.actor.clone(),
            ids: THROWAWAY,
            wish: wish.clone(),
        };
        let events = decide(&state, &command).map_err(fail)?;
        smaller(&state, id, &events)
    };
    let Some((node, allocation, smaller)) = step else {
        return shown(&shared, id).await.map(Json);
    };
    let engine = &shared.app.engine;
    engine
        .try_resize(node, allocation, smaller)
        .await
        .map_err(refused)?;
    let done = caller.submit(&shared.app.controller, wish).await;
    if done.is_err() {
        // What was decided last is what holds.
        let decided = devices(&shared.app.controller.view().read(), allocation);
        if let Err(error) = engine.resize(node, allocation, decided).await {
            tracing::warn!(%node, %error, "a slice stays smaller until its node reports again");
        }
    }
    done.map_err(|fail| fail.without("/demand"))?;
    shown(&shared, id).await.map(Json)
}

/// What the slices are before and after alike: as small in each way as the smaller. None when nothing changes.
fn smaller(
    state: &Platform,
    job: JobId,
    events: &[Event],
) -> Option<(NodeId, AllocationId, Vec<DeviceSlice>)> {
    let slices = events.iter().find_map(|event| match event {
        Event::JobResized { slices, .. } => Some(slices),
        _ => None,
    })?;
    let allocation = state.fleet.allocation(state.jobs.get(&job)?.sole_allocation()?)?;
    let mut smaller = devices(state, allocation.id);
    for (device, slice) in smaller.iter_mut().zip(slices) {
        device.vram_mib = device.vram_mib.min(slice.vram_mib);
        device.compute_permille = device.compute_permille.min(slice.compute_permille);
    }
    Some((allocation.node, allocation.id, smaller))
}

fn refused(error: EngineError) -> Fail {
    match error {
        EngineError::Refused { why } => Fail::new(409, "slice_in_use", why),
        passing => Fail::unavailable(passing.to_string()).hint("try again in a moment"),
    }
}
