//! The event stream: what happened, as server-sent events that can be resumed, each caller seeing only what
//! they may.

mod price;
mod sight;
mod streams;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use tenure_api::v1::event::{EventQuery, EventView};
use tenure_api::v1::time::Moment;
use tenure_domain::event::Subject;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::{Event, Time};
use tenure_journal::{JournalError, Line};
use tokio::time::Instant;

use crate::auth::Caller;
use crate::controller::Controller;
use crate::http::Shared;
use crate::http::fail::{Answer, Fail};
use crate::http::query::Query;
use crate::openapi::ReadProblems;

pub(crate) use sight::Sight;
pub(crate) use streams::{Seat, Streams};

const HEARTBEAT: Duration = Duration::from_secs(15);

/// Streams events from a point on. The id of each is its number in the journal: give the last one seen as
/// `Last-Event-ID` and the stream goes on right after it.
#[utoipa::path(get, path = "/v1/events", tag = "event",
    params(EventQuery, ("Last-Event-ID" = Option<u64>, Header, description = "Goes on after this event")),
    responses((status = 200, description = "Server-sent events, each an EventView", body = String, content_type = "text/event-stream"), ReadProblems))]
pub(crate) async fn events(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<EventQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let head = shared.app.controller.view().seq();
    let within = {
        let state = shared.app.controller.view().read();
        caller.may_look(&state)?;
        query
            .scope
            .as_deref()
            .map(|scope| scope_asked(&caller, &state, scope))
            .transpose()?
    };
    let from = match last_event_id(&headers)? {
        Some(last) => last.saturating_add(1),
        None => query.from.unwrap_or(head + 1),
    };
    let kinds = query
        .kinds
        .as_deref()
        .map(|kinds| kinds.split(',').map(|kind| kind.trim().to_owned()).collect());
    let seat = shared.streams.take(caller.user)?;
    let newest = (!query.follow.unwrap_or(true)).then_some(head);
    let until = [newest, query.until].into_iter().flatten().min();
    let lines = shared.app.controller.reader().follow(from).boxed();
    let sight = Sight::new(caller.clone(), within);
    let tail = Tail {
        shared,
        caller,
        kinds,
        until,
        next: from,
        lines,
        sight,
        quiet_since: Instant::now(),
        ready: VecDeque::new(),
        _seat: seat,
    };
    let pieces = stream::unfold(tail, |mut tail| async move {
        tail.next()
            .await
            .map(|piece| (Ok::<_, std::io::Error>(piece), tail))
    });
    Ok((
        [(header::CONTENT_TYPE, "text/event-stream")],
        Body::from_stream(pieces),
    )
        .into_response())
}

fn scope_asked(caller: &Caller, state: &tenure_domain::State, scope: &str) -> Answer<ScopeId> {
    let scope = scope.parse().map_err(|_| Fail::not_found())?;
    caller.may(state, Action::ScopeRead, scope)?;
    Ok(scope)
}

fn last_event_id(headers: &HeaderMap) -> Answer<Option<u64>> {
    let Some(last) = headers.get("last-event-id") else {
        return Ok(None);
    };
    let number = last.to_str().ok().and_then(|text| text.parse().ok());
    number
        .map(Some)
        .ok_or_else(|| Fail::invalid("Last-Event-ID", "not the number of an event"))
}

/// A stream under way.
struct Tail {
    shared: Arc<Shared>,
    caller: Caller,
    kinds: Option<Vec<String>>,
    /// The last event wanted.
    until: Option<u64>,
    next: u64,
    lines: BoxStream<'static, Result<Line, JournalError>>,
    sight: Sight,
    quiet_since: Instant,
    ready: VecDeque<Bytes>,
    _seat: Seat,
}

impl Tail {
    /// The next piece of the stream; none at its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                self.quiet_since = Instant::now();
                return Some(piece);
            }
            if self.until.is_some_and(|until| self.next > until) {
                return None;
            }
            let stop = self.shared.stop.clone();
            let line = tokio::select! {
                () = stop.cancelled() => return None,
                line = self.lines.next() => line?,
                () = tokio::time::sleep_until(self.quiet_since + HEARTBEAT) => {
                    self.quiet_since = Instant::now();
                    return self.still_stands().then(|| Bytes::from_static(b": still here\n\n"));
                }
            };
            self.take(line).await?;
            // What is there already goes out together.
            while self.ready.len() < 64
                && self.until.is_none_or(|until| self.next <= until)
                && let Some(Some(line)) = self.lines.next().now_or_never()
            {
                self.take(line).await?;
            }
        }
    }

    fn still_stands(&self) -> bool {
        self.caller.stands(&self.shared.app.controller.view().read())
    }

    /// Takes in one line; none ends the stream, and the client comes back for what it missed.
    async fn take(&mut self, line: Result<Line, JournalError>) -> Option<()> {
        let line = line
            .inspect_err(|error| tracing::error!(%error, "an event stream ended"))
            .ok()?;
        self.next = line.seq + 1;
        self.shared.app.controller.metrics().streamed();
        wait_for_view(&self.shared, line.seq).await;
        if !self.still_stands() {
            return None;
        }
        let event: Event = serde_json::from_str(&line.event).ok()?;
        if self
            .kinds
            .as_ref()
            .is_some_and(|kinds| !kinds.iter().any(|kind| kind == event.kind()))
        {
            return Some(());
        }
        if let Some(event) = shown(&self.shared.app.controller, &mut self.sight, &event).await? {
            self.ready.push_back(write(&line, &event));
        }
        Some(())
    }
}

/// An event as it is shown to whoever has this sight, if it is; none of both where history could not be asked.
pub(crate) async fn shown<'a>(
    controller: &Controller,
    sight: &mut Sight,
    event: &'a Event,
) -> Option<Option<Cow<'a, Event>>> {
    if !sight.sees(controller, event).await? {
        return Some(None);
    }
    Some(Some(match event.subject() {
        Subject::Job(job) if price::has_any(event) => {
            Cow::Owned(price::only(event.clone(), sight.prices(controller, job).await?))
        }
        _ => Cow::Borrowed(event),
    }))
}

/// The journal may be a moment ahead of the view on which rights are asked.
async fn wait_for_view(shared: &Shared, seq: u64) {
    let mut view = shared.app.controller.view().watch();
    let _ = tokio::time::timeout(Duration::from_secs(5), view.wait_for(|at| *at >= seq)).await;
}

fn write(line: &Line, event: &Event) -> Bytes {
    let view = EventView {
        seq: line.seq,
        at: Moment(Time(line.at_ms)),
        by: line.by.clone(),
        request_id: line.request.clone(),
        kind: event.kind().to_owned(),
        data: data(event),
    };
    let json = serde_json::to_string(&view).unwrap_or_default();
    format!("id: {}\nevent: {}\ndata: {json}\n\n", line.seq, event.kind()).into()
}

/// The event's fields by their names, without digests of what authenticates.
pub(crate) fn data(event: &Event) -> serde_json::Value {
    let mut value = serde_json::to_value(event).unwrap_or_default();
    let mut fields = value
        .get_mut(event.kind())
        .map(serde_json::Value::take)
        .unwrap_or_default();
    if let Event::UsageMetered { charges, .. } = event {
        // The journal has them packed.
        fields["charges"] = serde_json::to_value(charges).unwrap_or_default();
    }
    let holder = match event {
        Event::KeyCreated { .. } => fields.get_mut("key"),
        Event::JoinTokenCreated { .. } => Some(&mut fields),
        _ => None,
    };
    if let Some(object) = holder.and_then(serde_json::Value::as_object_mut) {
        object.remove("digest");
    }
    fields
}
