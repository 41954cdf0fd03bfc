//! The way of scripts to the API: what they ask below `/console/api` is asked of the API with the session's key. Reading
//! takes the cookie, changing something also the session's token in a header.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use tower::ServiceExt;

use super::Console;
use super::fault::Fault;
use super::form::foreign;
use super::session::{Session, is_csrf, is_from_here};
use crate::http::Peer;

const HERE: &str = "/console/api";
/// Where a script brings the session's token.
const TOKEN: &str = "x-csrf-token";

pub(super) async fn pass(
    State(console): State<Arc<Console>>,
    session: Session,
    mut request: Request,
) -> Response {
    match inner(&session, &mut request) {
        Ok(()) => match console.api.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        Err(fault) => fault.into_response(),
    }
}

/// Makes the request one of a client with a key.
fn inner(session: &Session, request: &mut Request<Body>) -> Result<(), Fault> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let brought = request.headers().get(TOKEN).and_then(|token| token.to_str().ok());
    let ours = brought.is_some_and(|token| is_csrf(session.token().reveal(), token));
    // Sessions at jobs take over the connection and are not for pages.
    let upgrades = request.headers().contains_key(header::UPGRADE);
    if !is_from_here(request.headers()) || upgrades || !(reads || ours) {
        return Err(foreign());
    }
    let there = request
        .uri()
        .path_and_query()
        .and_then(|there| there.as_str().strip_prefix(HERE));
    let there = there
        .filter(|there| there.starts_with("/v1/"))
        .ok_or_else(Fault::not_found)?;
    let there: Uri = there.parse().map_err(|_| Fault::not_found())?;
    let bearer = format!("Bearer {}", session.token().reveal());
    let bearer = HeaderValue::from_str(&bearer).map_err(|_| Fault::SignIn)?;
    *request.uri_mut() = there;
    // What was matched here says nothing of where it goes.
    let peer = request.extensions().get::<Peer>().copied();
    request.extensions_mut().clear();
    if let Some(peer) = peer {
        request.extensions_mut().insert(peer);
    }
    let headers = request.headers_mut();
    headers.remove(header::COOKIE);
    headers.remove(TOKEN);
    headers.insert(header::AUTHORIZATION, bearer);
    Ok(())
}
