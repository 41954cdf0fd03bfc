//! Services: the way to their replicas, how many there may be, and what was counted of each.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawPathParams, Request, State};
use axum::http::Method;
use axum::response::Response;
use tenure_api::v1::job::JobView;
use tenure_api::v1::page::Page;
use tenure_api::v1::service::ServiceQuery;
use tenure_domain::id::JobId;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::service::Replicas;
use tenure_domain::{Code, Refusal, Wish};

use super::job::list::readable;
use super::job::{Found, find, shown, view};
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::openapi::{ChangeProblems, ReadProblems, ServiceProblems};
use crate::service::{self, relay, serving};

/// Passes a request on to a replica of a service, with any method, below any path, and its answer back as it comes.
/// The caller's key stays here; the first request to a service without replicas waits until one is ready.
#[utoipa::path(post, path = "/v1/services/{job}/{path}", tag = "service",
    params(("job" = String, Path, description = "The service's job id"), ("path" = String, Path, description = "What the replica is asked for")),
    responses((status = "default", description = "What the replica answers"), ServiceProblems))]
pub(crate) async fn call_service(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    params: RawPathParams,
    request: Request,
) -> Answer<Response> {
    let mut params = params.iter().map(|(_, value)| value);
    let job: JobId = params
        .next()
        .and_then(|job| job.parse().ok())
        .ok_or_else(Fail::not_found)?;
    let desk = {
        let state = shared.app.controller.view().read();
        let job = state.jobs.get(&job).ok_or_else(Fail::not_found)?;
        caller.may(&state, Action::ServiceUse, ScopeId::User(job.owner))?;
        shared.services.desk(job)
    };
    let Some(desk) = desk else {
        return Err(Refusal::new(Code::WrongPhase, "the job is no service")
            .hint("only a job submitted with `service` answers requests")
            .into());
    };
    if !shared.app.controller.is_leading() {
        return Err(Fail::not_leader());
    }
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Err(Fail::new(
            405,
            "method_not_allowed",
            "neither CONNECT nor TRACE is passed on",
        ));
    }
    let path = below(request.uri().path()).to_owned();
    relay(&shared, &caller, &desk, &path, request).await
}

/// What stands behind `/v1/services/{job}/`, escaped as it came.
fn below(path: &str) -> &str {
    path.splitn(5, '/').nth(4).unwrap_or_default()
}

/// Says between how many replicas a service has from now on.
#[utoipa::path(post, path = "/v1/jobs/{job}/scale", tag = "service", params(("job" = String, Path, description = "The job's id")),
    request_body = Replicas, responses((status = 200, body = JobView), ChangeProblems))]
pub(crate) async fn scale_job(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    body: JsonBody<Replicas>,
) -> Answer<Json<JobView>> {
    let job: JobId = path.id(0)?;
    if let Found::Done { .. } = find(&shared, &caller, job, Action::JobSubmit).await? {
        return Err(Refusal::new(Code::WrongPhase, "the job has ended already").into());
    }
    let replicas = body.value;
    caller
        .submit(&shared.app.controller, Wish::Scale { job, replicas })
        .await?;
    let mut view = shown(&shared, job).await?;
    let state = shared.app.controller.view().read();
    let live = state.jobs.get(&job);
    view.service = live.and_then(|job| service::view(&shared.services, &state, job).map(Box::new));
    Ok(Json(view))
}

/// Lists live services, newest first, with what was counted of each.
#[utoipa::path(get, path = "/v1/services", tag = "service", params(ServiceQuery), responses((status = 200, body = Page<JobView>), ReadProblems))]
pub(crate) async fn services(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<ServiceQuery>,
) -> Answer<Json<Page<JobView>>> {
    let filters = format!("services/{}", query.scope.as_deref().unwrap_or_default());
    let turn = Turn::new(&shared, &caller, &filters, query.limit, query.cursor.as_deref())?;
    let after = match turn.after.as_deref() {
        None => JobId(u64::MAX),
        Some(text) => text
            .parse()
            .map_err(|_| Fail::invalid("cursor", "the cursor is not one of this list"))?,
    };
    let state = shared.app.controller.view().read();
    let roots = match &query.scope {
        Some(scope) => {
            let scope = scope.parse().map_err(|_| Fail::not_found())?;
            caller.may(&state, Action::JobRead, scope)?;
            vec![scope]
        }
        None => {
            caller.may_look(&state)?;
            readable(&state, &caller)
        }
    };
    let within = roots.iter().flat_map(|&root| state.jobs_within(root));
    let mut found: Vec<_> = within
        .filter(|job| job.id < after && serving(job).is_some())
        .filter(|job| {
            caller
                .may(&state, Action::JobRead, ScopeId::User(job.owner))
                .is_ok()
        })
        .collect();
    found.sort_by_key(|job| std::cmp::Reverse(job.id));
    found.dedup_by_key(|job| job.id);
    let more = found.len() > turn.limit;
    found.truncate(turn.limit);
    let next = found
        .last()
        .filter(|_| more)
        .map(|last| turn.seal(&last.id.to_string()));
    let items = found.into_iter().map(|job| {
        let mut shown = view::live(&state, job);
        shown.service = service::view(&shared.services, &state, job).map(Box::new);
        shown
    });
    Ok(Json(Page {
        items: items.collect(),
        next,
    }))
}

#[cfg(test)]
mod tests {
    use super::below;

    #[test]
    fn what_is_asked_of_a_replica_is_left_as_it_came() {
        assert_eq!(
            below("/v1/services/job_1/v1/chat/completions"),
            "v1/chat/completions"
        );
        assert_eq!(below("/v1/services/job_1/"), "");
        assert_eq!(below("/v1/services/job_1/a%2Fb//c"), "a%2Fb//c");
    }
}
