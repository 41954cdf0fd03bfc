//! The outermost layer: gives each request its id, writes problems, counts refused accesses, and sets the
//! headers every answer has.

use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tenure_api::problem::Problem;

use super::Shared;
use super::fail::Fail;
use crate::audit;
use crate::controller::now;
use crate::keyring::random;
use crate::openapi::Operation;
use crate::trace::Submitted;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Marks an answer that is somebody else's and only passes through: its status and body stay as they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Relayed;

/// What is learnt of a request on its way in, for its way out.
pub(crate) struct Notes {
    pub request_id: String,
    pub operation: Option<Arc<Operation>>,
    /// Who sent it, once proven.
    pub principal: OnceLock<String>,
    /// It came with a token, good or bad.
    pub had_token: bool,
}

pub(crate) async fn finish(
    State(shared): State<Arc<Shared>>,
    matched: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response {
    let operation = matched.and_then(|path| shared.operations.find(request.method(), path.as_str()));
    let notes = Arc::new(Notes {
        request_id: request_id(),
        operation,
        principal: OnceLock::new(),
        had_token: request.headers().contains_key(header::AUTHORIZATION),
    });
    request.extensions_mut().insert(notes.clone());
    let metrics = shared.app.controller.metrics();
    let (began, began_at) = (Instant::now(), now());
    let mut response = next.run(request).await;
    if let Some(submitted) = response.extensions_mut().remove::<Submitted>()
        && let Some(traces) = shared.app.controller.traces()
    {
        let status = response.status().as_u16();
        traces.submitted(&shared.app.controller, submitted, began_at, status);
    }
    if let Some(problem) = problem_of(&mut response) {
        audit::note(&shared.audit, &notes, &problem);
        metrics.problem(&problem.code);
        response = write_problem(response, *problem, &notes.request_id);
    }
    let operation = notes.operation.as_ref().map(|operation| operation.id.as_str());
    metrics.answered(operation, response.status().as_u16(), began.elapsed());
    dress(&mut response, &notes.request_id);
    response
}

fn request_id() -> String {
    let id = u64::from_le_bytes(random());
    format!("req_{id:016x}")
}

/// The problem an answer carries; one is made for answers of others that bring none.
fn problem_of(response: &mut Response) -> Option<Box<Problem>> {
    let status = response.status();
    if response.extensions().get::<Relayed>().is_some() {
        return None;
    }
    if let Some(problem) = response.extensions_mut().remove::<Box<Problem>>() {
        return Some(problem);
    }
    if !status.is_client_error() && !status.is_server_error() {
        return None;
    }
    let fail = match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            Fail::new(405, "method_not_allowed", "this route does not know the method")
                .hint("the Allow header lists those it knows")
        }
        StatusCode::NOT_FOUND => route_not_found(),
        _ => Fail::internal(&format!("an answer of status {status} without a problem")),
    };
    Some(fail.problem)
}

fn write_problem(response: Response, mut problem: Problem, request_id: &str) -> Response {
    problem.request_id = Some(request_id.to_owned());
    let (mut parts, _) = response.into_parts();
    parts.status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    Response::from_parts(
        parts,
        Body::from(serde_json::to_vec(&problem).unwrap_or_default()),
    )
}

fn dress(response: &mut Response, request_id: &str) {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(request_id) {
        headers.insert(REQUEST_ID, id);
    }
    let fixed = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
    ];
    for (name, value) in fixed {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

fn route_not_found() -> Fail {
    Fail::new(404, "route_not_found", "there is no such route").hint("/openapi.json lists them all")
}

pub(super) async fn no_route() -> Fail {
    route_not_found()
}

pub(super) fn panicked(_: Box<dyn Any + Send>) -> Response {
    // The panic hook has written the message and the place; neither is the caller's to see.
    Fail::internal(&"a handler panicked").into_response()
}
