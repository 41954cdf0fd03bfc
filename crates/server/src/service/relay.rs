//! One request through to a replica and its answer back, in pieces as they come; nothing is kept of either.
//!
//! A request is tried at another replica only while nothing of it was sent. When the caller leaves, the connection to
//! the replica closes, which is how the replica learns of it; when the caller loses the right, the answer ends.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{Uri, Version, header, uri::PathAndQuery};
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tenure_domain::id::UserId;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tokio::time::Sleep;

use super::connection::Connection;
use super::desk::{Desk, Ticket, Turned};
use super::header::{towards_caller, towards_replica};
use super::replica::Replica;
use super::{probe, waits_for};
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::fail::{Answer, Fail};
use crate::http::finish::Relayed;

/// The longest body of a request.
pub(crate) const MAX_BODY_BYTES: usize = 256 << 20;
/// Replicas a request is tried at, as long as nothing of it was sent.
const TRIES: usize = 4;
/// How soon a lost right ends an answer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What becomes of a request, counted when it is over.
struct Account {
    desk: Arc<Desk>,
    user: UserId,
    begun: Instant,
    bytes_in: Arc<AtomicU64>,
    bytes_out: u64,
    lost: bool,
}

impl Drop for Account {
    fn drop(&mut self) {
        let counts = &self.desk.counts;
        if self.lost {
            counts.lost.fetch_add(1, Ordering::Relaxed);
        }
        counts.took.note(self.begun.elapsed());
        let bytes_in = self.bytes_in.load(Ordering::Relaxed);
        counts.used(self.user, self.lost, bytes_in, self.bytes_out);
    }
}

/// Answers a request by one of the service's replicas.
pub(crate) async fn relay(
    shared: &Arc<Shared>,
    caller: &Caller,
    desk: &Arc<Desk>,
    path: &str,
    request: Request,
) -> Answer<Response> {
    let begun = Instant::now();
    let mut request = prepared(caller, path, request)?;
    let bytes_in = Arc::new(AtomicU64::new(0));
    let counted = bytes_in.clone();
    request = request.map(|body| {
        Body::new(Limited::new(body, MAX_BODY_BYTES).map_frame(move |frame| {
            let length = frame.data_ref().map_or(0, Bytes::len);
            counted.fetch_add(length as u64, Ordering::Relaxed);
            frame
        }))
    });
    desk.arrived();
    let mut account = Account {
        desk: desk.clone(),
        user: caller.user,
        begun,
        bytes_in,
        bytes_out: 0,
        lost: false,
    };
    let until = begun + Duration::from_secs(desk.service.wait_s.into());
    let silence = Duration::from_secs(desk.service.silence_s.into());
    for _ in 0..TRIES {
        let ticket = match desk.place(until).await {
            Ok(ticket) => ticket,
            Err(turned) => return Err(turned_away(shared, desk, turned)),
        };
        let mut connection = match ticket.replica.connection().await {
            Ok(connection) => connection,
            Err(why) => {
                doubted(shared, desk, &ticket, &why);
                continue;
            }
        };
        desk.counts.waited.note(begun.elapsed());
        let sent = tokio::time::timeout(silence, connection.try_send_request(request)).await;
        match sent {
            Ok(Ok(answer)) => {
                return Ok(answered(
                    shared, caller, answer, ticket, connection, account, silence,
                ));
            }
            Ok(Err(mut unsent)) => match unsent.take_message() {
                Some(back) => request = back,
                None => {
                    let fail = not_answered(unsent.error());
                    // A body that its caller did not finish is not the service's loss.
                    account.lost = fail.problem.status == 502;
                    if account.lost {
                        // It may be about to end: whoever asks next is not to meet it before it answers again.
                        doubted(shared, desk, &ticket, "it ended before it answered");
                    }
                    return Err(fail);
                }
            },
            Err(_) => {
                account.lost = true;
                return Err(slow(desk));
            }
        }
    }
    account.lost = true;
    Err(broken("none of those that were tried took it"))
}

/// The request as a replica is to see it.
fn prepared(caller: &Caller, path: &str, mut request: Request) -> Answer<Request> {
    let length = request.body().size_hint().exact();
    if length.is_some_and(|length| length > MAX_BODY_BYTES as u64) {
        return Err(too_large());
    }
    let query = request
        .uri()
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let target = format!("/{path}{query}");
    let target: PathAndQuery = target
        .parse()
        .map_err(|_| Fail::malformed("the path is none that HTTP could carry"))?;
    *request.uri_mut() = Uri::from(target);
    *request.version_mut() = Version::HTTP_11;
    towards_replica(request.headers_mut(), caller.user, &caller.request_id);
    request.extensions_mut().clear();
    Ok(request)
}

/// Gets no requests until it has shown again that it takes them.
fn doubted(shared: &Arc<Shared>, desk: &Arc<Desk>, ticket: &Ticket, why: &str) {
    tracing::info!(service = %desk.job, replica = %ticket.replica.job, why, "a replica was not reached");
    if desk.unready(&ticket.replica) {
        probe(&shared.services, desk.clone(), ticket.replica.clone());
    }
}

fn turned_away(shared: &Shared, desk: &Desk, turned: Turned) -> Fail {
    desk.counts.turned_away.fetch_add(1, Ordering::Relaxed);
    let waits_for = waits_for(&shared.app.controller.view().read(), desk);
    let fail = match turned {
        Turned::Full => Fail::new(
            503,
            "service_full",
            format!("{} requests wait already; {waits_for}", super::desk::MAX_WAITING),
        ),
        Turned::Late => Fail::new(
            503,
            "service_waits",
            format!("no replica had room for {} s; {waits_for}", desk.service.wait_s),
        ),
        Turned::Closed => return Fail::not_found(),
    };
    fail.hint("try again later, or let the service have more replicas: `tenure scale`")
        .header(header::RETRY_AFTER, "5")
}

fn broken(why: &str) -> Fail {
    Fail::new(502, "replica_failed", format!("a replica failed: {why}"))
        .hint("the request may have been worked on; the replica's log says more")
}

fn not_answered(error: &hyper::Error) -> Fail {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
    while let Some(inner) = cause {
        if inner.is::<LengthLimitError>() {
            return too_large();
        }
        cause = inner.source();
    }
    if error.is_user() {
        return Fail::malformed("the body ended before it was complete");
    }
    broken(&format!("it ended before it answered: {error}"))
}

fn too_large() -> Fail {
    Fail::new(
        413,
        "body_too_large",
        format!(
            "a request to a service is at most {} MiB long",
            MAX_BODY_BYTES >> 20
        ),
    )
}

fn slow(desk: &Desk) -> Fail {
    Fail::new(
        504,
        "replica_silent",
        format!("the replica said nothing for {} s", desk.service.silence_s),
    )
}

fn answered(
    shared: &Arc<Shared>,
    caller: &Caller,
    answer: axum::http::Response<Incoming>,
    ticket: Ticket,
    connection: Connection,
    account: Account,
    silence: Duration,
) -> Response {
    if answer.status().is_server_error() {
        account.desk.counts.failed.fetch_add(1, Ordering::Relaxed);
    }
    Replica::keep_when_done(ticket, connection);
    let (mut parts, body) = answer.into_parts();
    towards_caller(&mut parts.headers);
    parts.version = Version::HTTP_11;
    parts.extensions.insert(Relayed);
    let ended = body.is_end_stream();
    if ended {
        account.desk.counts.answered.fetch_add(1, Ordering::Relaxed);
    }
    let body = Passing {
        body,
        account,
        ended,
        heard: Instant::now(),
        silence,
        look: Box::pin(tokio::time::sleep(LOOK_AGAIN)),
        shared: shared.clone(),
        caller: caller.clone(),
    };
    Response::from_parts(parts, Body::new(body))
}

/// An answer on its way, and what ends it early.
struct Passing {
    body: Incoming,
    account: Account,
    ended: bool,
    heard: Instant,
    silence: Duration,
    look: Pin<Box<Sleep>>,
    shared: Arc<Shared>,
    caller: Caller,
}

impl Passing {
    /// Why it may not go on.
    fn objection(&self) -> Option<&'static str> {
        if self.heard.elapsed() >= self.silence {
            return Some("the replica fell silent");
        }
        let controller = &self.shared.app.controller;
        if !controller.is_leading() {
            return Some("the server no longer leads");
        }
        let state = controller.view().read();
        let owner = ScopeId::User(self.account.desk.owner);
        let may = self.caller.stands(&state) && self.caller.may(&state, Action::ServiceUse, owner).is_ok();
        (!may).then_some("the caller may no longer use the service")
    }

    fn cut(&mut self, why: &'static str) -> std::io::Error {
        self.ended = true;
        self.account.lost = true;
        tracing::info!(service = %self.account.desk.job, why, "an answer was cut off");
        std::io::Error::other(why)
    }
}

impl hyper::body::Body for Passing {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        while this.look.as_mut().poll(context).is_ready() {
            if let Some(why) = this.objection() {
                return Poll::Ready(Some(Err(this.cut(why))));
            }
            this.look.as_mut().reset(tokio::time::Instant::now() + LOOK_AGAIN);
        }
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                this.heard = Instant::now();
                this.account.bytes_out += frame.data_ref().map_or(0, Bytes::len) as u64;
                if this.body.is_end_stream() {
                    this.account.desk.counts.answered.fetch_add(1, Ordering::Relaxed);
                    this.ended = true;
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                this.account.desk.counts.answered.fetch_add(1, Ordering::Relaxed);
                this.ended = true;
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                tracing::info!(%error, "an answer broke off");
                Poll::Ready(Some(Err(
                    this.cut("the replica ended in the middle of its answer")
                )))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
