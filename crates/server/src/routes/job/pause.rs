//! Pausing a running job, and having it go on.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::v1::job::JobView;
use tenure_domain::id::JobId;
use tenure_domain::tenancy::role::Action;
use tenure_domain::workload::job::PauseReason;
use tenure_domain::{Code, Refusal, Wish};

use super::{Found, find, shown};
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::body::NoBody;
use crate::http::fail::Answer;
use crate::http::path::Segments;
use crate::openapi::ChangeProblems;

/// Pauses a job: it gives its GPUs back and loses nothing, until it is resumed. It is `pausing` until they are free.
#[utoipa::path(post, path = "/v1/jobs/{job}/pause", tag = "job", params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = JobView), ChangeProblems))]
pub(crate) async fn pause_job(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<Json<JobView>> {
    let job: JobId = path.id(0)?;
    let reason = PauseReason::Asked;
    wish(
        &shared,
        &caller,
        job,
        Action::JobStop,
        Wish::Pause { job, reason },
    )
    .await
}

/// Has a paused job go on, at once or as soon as there is room on the GPUs it had.
#[utoipa::path(post, path = "/v1/jobs/{job}/resume", tag = "job", params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = JobView), ChangeProblems))]
pub(crate) async fn resume_job(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<Json<JobView>> {
    let job: JobId = path.id(0)?;
    wish(&shared, &caller, job, Action::JobSubmit, Wish::ResumeJob { job }).await
}

async fn wish(
    shared: &Shared,
    caller: &Caller,
    job: JobId,
    action: Action,
    wish: Wish,
) -> Answer<Json<JobView>> {
    if let Found::Done { .. } = find(shared, caller, job, action).await? {
        return Err(Refusal::new(Code::WrongPhase, "the job has ended already").into());
    }
    caller.submit(&shared.app.controller, wish).await?;
    shown(shared, job).await.map(Json)
}
