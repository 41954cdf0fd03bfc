//! Jobs: submitting, listing, stopping, and why they wait. A job that ended is read from history, under the
//! rights of the place it ended at.

pub mod audit;
pub(crate) mod list;
pub mod log;
pub mod pause;
pub mod plan;
pub mod resize;
pub mod session;
pub mod task;
pub(super) mod view;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::Response;
use tenure_api::v1::job::{JobPhase, JobQuery, JobView, SubmitJob, Why};
use tenure_api::v1::page::Page;
use tenure_domain::id::{JobId, UserId};
use tenure_domain::schedule::why::{answer, why as reason};
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{DoneJob, Job, StopReason};
use tenure_domain::{Code, Event, Refusal, State as Platform, Wish};

use super::past;
use super::scope::id_in;
use crate::auth::Caller;
use crate::controller::{Accepted, Controller, now};
use crate::http::Shared;
use crate::http::body::{JsonBody, NoBody};
use crate::http::caught::Caught;
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::idempotency::{RepeatKey, create};
use crate::openapi::{ChangeProblems, ReadProblems};
use crate::service;
use crate::trace::Submitted;

/// A job wherever it is.
pub(super) enum Found {
    Live(Box<Job>),
    Done { job: Box<DoneJob>, path: String },
}

impl Found {
    /// Done in tasks.
    pub fn is_parent(&self) -> bool {
        match self {
            Found::Live(job) => job.tasks.is_some(),
            Found::Done { job, .. } => job.tasks.is_some(),
        }
    }

    /// The trace in which is told of it: where its caller's is, and its own where Tenure tells of one.
    fn trace_id(&self, shared: &Shared) -> Option<String> {
        let (id, trace) = match self {
            Found::Live(job) => (job.id, job.trace),
            Found::Done { job, .. } => (job.id, job.trace),
        };
        let trace = match (shared.app.controller.traces(), trace) {
            (Some(traces), trace) => Some(traces.trace_of(id, trace)),
            (None, trace) => trace.map(|trace| trace.trace),
        };
        trace.map(|trace| trace.to_string())
    }

    pub fn view(&self, state: &Platform) -> JobView {
        match self {
            Found::Live(job) => view::live(state, job),
            Found::Done { job, path } => view::done(state, job, path),
        }
    }
}

/// A job the caller may do this to.
pub(super) async fn find(shared: &Shared, caller: &Caller, id: JobId, action: Action) -> Answer<Found> {
    let live = {
        let state = shared.app.controller.view().read();
        state
            .jobs
            .get(&id)
            .map(|job| (job.clone(), caller.may(&state, action, ScopeId::User(job.owner))))
    };
    match live {
        Some((job, Ok(()))) => return Ok(Found::Live(Box::new(job))),
        Some((_, Err(refusal))) if refusal.code != Code::NotFound => return Err(refusal.into()),
        // A foreign job takes the same way as one that never was.
        _ => {}
    }
    let (job, path) = ended(shared, id).await?.ok_or_else(Fail::not_found)?;
    let state = shared.app.controller.view().read();
    past::may(caller, &state, action, ScopeId::User(job.owner), &path)?;
    Ok(Found::Done {
        job: Box::new(job),
        path,
    })
}

/// A job that ended, and the path it stood at. A task stands where its job does.
pub(super) async fn ended(shared: &Shared, id: JobId) -> Answer<Option<(DoneJob, String)>> {
    ended_job(&shared.app.controller, id).await
}

pub(super) async fn ended_job(controller: &Controller, id: JobId) -> Answer<Option<(DoneJob, String)>> {
    let reader = controller.reader();
    let read = |body: &str| serde_json::from_str::<DoneJob>(body).map_err(|error| Fail::internal(&error));
    if let Some(row) = reader.history_get("job", &id.to_string()).await? {
        return Ok(Some((read(&row.body)?, row.scope)));
    }
    let Some(row) = reader.history_get("task", &id.to_string()).await? else {
        return Ok(None);
    };
    let job = read(&row.body)?;
    let live = {
        let state = controller.view().read();
        let of = job.spec.task.as_ref().and_then(|task| state.jobs.get(&task.of));
        of.map(|of| state.tree.path(ScopeId::User(of.owner)))
    };
    if let Some(path) = live {
        return Ok(Some((job, path)));
    }
    // The row of a task names its job.
    let of = reader.history_get("job", &row.scope).await?;
    Ok(of.map(|of| (job, of.scope)))
}

/// A job by its id alone, right after the caller changed it.
pub(crate) async fn shown(shared: &Shared, id: JobId) -> Answer<JobView> {
    if let Some(view) = live_view(&shared.app.controller.view().read(), id) {
        return Ok(view);
    }
    let (job, path) = ended(shared, id).await?.ok_or_else(Fail::not_found)?;
    Ok(view::done(&shared.app.controller.view().read(), &job, &path))
}

fn live_view(state: &Platform, id: JobId) -> Option<JobView> {
    state.jobs.get(&id).map(|job| view::live(state, job))
}

fn render(state: &Platform, accepted: &Accepted) -> Option<(String, String)> {
    let id = accepted.events.iter().find_map(|event| match **event {
        Event::JobSubmitted { job, .. } => Some(job),
        _ => None,
    })?;
    let json = serde_json::to_string(&live_view(state, id)?).ok()?;
    Some((format!("/v1/jobs/{id}"), json))
}

/// Whose job it is to be.
pub(super) fn owner_of(caller: &Caller, owner: Option<&str>) -> Answer<UserId> {
    owner.map_or(Ok(caller.user), |owner| id_in(owner, "/owner", "a user"))
}

/// Submits a job: it starts at once where it can, and waits where it cannot.
#[utoipa::path(post, path = "/v1/jobs", tag = "job", request_body = SubmitJob,
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key submits nothing twice"),
        ("traceparent" = Option<String>, Header, description = "The trace the job belongs to, as W3C Trace Context has it; anything else is ignored")),
    responses((status = 201, body = JobView), ChangeProblems))]
pub(crate) async fn submit_job(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    repeat: RepeatKey,
    Caught(trace): Caught,
    body: JsonBody<SubmitJob>,
) -> Answer<Response> {
    let owner = owner_of(&caller, body.value.owner.as_deref())?;
    let wish = Wish::Submit {
        owner,
        spec: Arc::new(body.value.spec),
        trace,
    };
    let made = create(&shared, &caller, repeat, &body.bytes, wish, render).await;
    let mut response = made.map_err(|fail| fail.under("/spec"))?;
    let place = response.headers().get(header::LOCATION);
    // A repetition has none: it submitted nothing.
    let job = place.and_then(|place| place.to_str().ok()?.rsplit('/').next()?.parse().ok());
    if let Some(job) = job {
        response.extensions_mut().insert(Submitted { job, trace });
    }
    Ok(response)
}

/// Lists jobs: the live ones, newest first, then those that ended, last ended first.
#[utoipa::path(get, path = "/v1/jobs", tag = "job", params(JobQuery), responses((status = 200, body = Page<JobView>), ReadProblems))]
pub(crate) async fn jobs(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<JobQuery>,
) -> Answer<Json<Page<JobView>>> {
    list::list(&shared, &caller, query).await.map(Json)
}

/// Shows a job, live or done.
#[utoipa::path(get, path = "/v1/jobs/{job}", tag = "job", params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = JobView), ReadProblems))]
pub(crate) async fn job(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
) -> Answer<Json<JobView>> {
    let found = find(&shared, &caller, path.id(0)?, Action::JobRead).await?;
    let state = shared.app.controller.view().read();
    let mut view = found.view(&state);
    view.waiting = reason(&state, view.id, now()).map(Into::into);
    view.trace_id = found.trace_id(&shared);
    view.service = match &found {
        Found::Live(job) => service::view(&shared.services, &state, job).map(Box::new),
        Found::Done { .. } => None,
    };
    Ok(Json(view))
}

/// Stops a job: cancels it in the queue, or asks it to end.
#[utoipa::path(post, path = "/v1/jobs/{job}/stop", tag = "job", params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = JobView), ChangeProblems))]
pub(crate) async fn stop_job(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    _: NoBody,
) -> Answer<Json<JobView>> {
    let id: JobId = path.id(0)?;
    if let Found::Done { .. } = find(&shared, &caller, id, Action::JobStop).await? {
        return Err(Refusal::new(Code::WrongPhase, "the job has ended already").into());
    }
    caller
        .submit(
            &shared.app.controller,
            Wish::Stop {
                job: id,
                reason: StopReason::Cancelled,
            },
        )
        .await?;
    shown(&shared, id).await.map(Json)
}

/// Says why a job waits, when it is likely to start, and what would let it start now; or what it does instead.
#[utoipa::path(get, path = "/v1/jobs/{job}/why", tag = "job", params(("job" = String, Path, description = "The job's id")),
    responses((status = 200, body = Why), ReadProblems))]
pub(crate) async fn why(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
) -> Answer<Json<Why>> {
    let found = find(&shared, &caller, path.id(0)?, Action::JobRead).await?;
    let state = shared.app.controller.view().read();
    let view = found.view(&state);
    let (job, phase) = (view.id, view.phase);
    Ok(Json(match answer(&state, job, now()) {
        None => Why {
            job,
            phase,
            waiting: None,
            sentence: what_it_does(&view),
            starts: None,
            unforeseen: None,
            instead: Vec::new(),
        },
        Some(told) => Why {
            job,
            phase,
            sentence: told.reason.sentence.to_string(),
            waiting: Some(told.reason.into()),
            unforeseen: told.starts.as_ref().err().copied().map(Into::into),
            starts: told.starts.ok().map(Into::into),
            instead: told.instead.into_iter().map(Into::into).collect(),
        },
    }))
}

fn what_it_does(view: &JobView) -> String {
    match (view.phase, &view.outcome) {
        (JobPhase::Done, Some(outcome)) => format!(
            "it does not wait: it is done and {}",
            outcome.as_str().replace('_', " ")
        ),
        (phase, _) => format!("it does not wait: it is {}", phase.as_str()),
    }
}
