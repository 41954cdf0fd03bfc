//! The audit of a job, live or done.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_api::v1::audit::JobAuditView;
use tenure_domain::tenancy::role::Action;

use super::{Found, find};
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::fail::Answer;
use crate::http::path::Segments;
use crate::openapi::ReadProblems;

/// Shows what a job did at its devices' boundary, signed by its nodes, and what is out of order in it.
#[utoipa::path(get, path = "/v1/jobs/{job}/audit", tag = "job", params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = JobAuditView), ReadProblems))]
pub(crate) async fn job_audit(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
) -> Answer<Json<JobAuditView>> {
    let (job, audit) = match find(&shared, &caller, path.id(0)?, Action::JobRead).await? {
        Found::Live(job) => (job.id, job.audit),
        Found::Done { job, .. } => (job.id, job.audit),
    };
    Ok(Json(JobAuditView {
        job,
        records: audit.records,
        anomalies: audit.anomalies,
    }))
}
