//! What goes wrong, as pages: a problem keeps its code, sentence and hint. Also the headers every page has.

use std::any::Any;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Redirect, Response};
use tenure_api::problem::Problem;

use super::Console;
use super::frame::Frame;
use super::session::{Session, Theme};
use crate::http::Peer;

/// Why a page is not shown.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// Nobody is signed in.
    SignIn,
    Problem(Box<Problem>),
}

pub(super) type Page = Result<Response, Fault>;

impl From<Box<Problem>> for Fault {
    fn from(problem: Box<Problem>) -> Fault {
        Fault::Problem(problem)
    }
}

impl Fault {
    pub fn not_found() -> Fault {
        Fault::Problem(Box::new(Problem::new(
            404,
            "not_found",
            "there is no such page, or it is not yours to see",
        )))
    }

    /// What a form says of it beside its fields.
    pub fn problem(self) -> Problem {
        match self {
            Fault::SignIn => Problem::new(401, "unauthenticated", "you are signed out"),
            Fault::Problem(problem) => *problem,
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes a template.
pub(super) fn page(template: &impl Template) -> Page {
    let text = template.render().map_err(|error| {
        tracing::error!(%error, "a page was not made");
        Fault::Problem(Box::new(Problem::new(
            500,
            "internal",
            "this page could not be made",
        )))
    })?;
    Ok(Html(text).into_response())
}

/// On to another page, after a form.
pub(super) fn go(path: &str) -> Response {
    Redirect::to(path).into_response()
}

pub(super) async fn no_page(_: Session) -> Fault {
    Fault::not_found()
}

pub(super) fn panicked(_: Box<dyn Any + Send>) -> Response {
    // The panic hook has written the message and the place; neither is the reader's to see.
    Fault::Problem(Box::new(Problem::new(
        500,
        "internal",
        "something went wrong here; the server's log says what",
    )))
    .into_response()
}

#[derive(Template)]
#[template(path = "fault.html")]
struct FaultPage {
    frame: Frame,
    problem: Problem,
}

/// Scripts and styles are files of ours; nothing else is loaded, and nothing frames us.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types tenure";

/// The outermost layer: turns faults into pages and sets the headers.
pub(super) async fn finish(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let (headers, uri) = (request.headers().clone(), request.uri().clone());
    let peer = request.extensions().get::<Peer>().copied();
    let mut response = next.run(request).await;
    if let Some(fault) = response.extensions_mut().remove::<Fault>() {
        response = show(&console, fault, &headers, &uri, peer).await;
    }
    dress(&mut response);
    response
}

async fn show(
    console: &Arc<Console>,
    fault: Fault,
    headers: &HeaderMap,
    uri: &Uri,
    peer: Option<Peer>,
) -> Response {
    let problem = match fault {
        // A script is told so; a reader is asked to sign in and comes back to the page.
        Fault::SignIn if headers.contains_key("x-tenure-live") => {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        Fault::SignIn => return sign_in(uri),
        Fault::Problem(problem) => problem,
    };
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let session = Session::new(console, headers, peer, uri.path());
    let frame = match session {
        Ok(session) => Frame::of(&session, "").await.ok(),
        Err(_) => None,
    };
    let frame = frame.unwrap_or_else(|| Frame::stranger(Theme::of(headers)));
    let text = FaultPage {
        frame,
        problem: *problem,
    }
    .render();
    (status, Html(text.unwrap_or_default())).into_response()
}

fn sign_in(uri: &Uri) -> Response {
    let there = uri.path_and_query().map_or("/console", |there| there.as_str());
    match there {
        "/console" => go("/console/sign-in"),
        there => go(&format!("/console/sign-in?next={}", super::desk::piece(there))),
    }
}

fn dress(response: &mut Response) {
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Nothing beyond this server learns where a reader came from; forms still say that they come from here.
        (header::REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in fixed {
        let headers = response.headers_mut();
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}
