//! The iCalendar feed: windows of a user, of a scope or of a GPU class, for calendars to show.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tenure_api::ical::{Shown, write};
use tenure_api::v1::booking::CalendarQuery;

use super::{found, scopes};
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::fail::Answer;
use crate::http::query::Query;
use crate::openapi::ReadProblems;

/// Windows shown at once, the next first.
const MAX_SHOWN: usize = 5_000;

/// Windows as an iCalendar feed (RFC 5545), one event each, in UTC.
#[utoipa::path(get, path = "/v1/calendar", tag = "booking", params(CalendarQuery),
    responses((status = 200, content_type = "text/calendar", body = String), ReadProblems))]
pub(crate) async fn calendar(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<CalendarQuery>,
) -> Answer<Response> {
    let state = shared.app.controller.view().read();
    let scopes = scopes(&state, &caller, query.scope.as_deref())?;
    let bookings = found(&state, scopes, query.class.as_deref());
    let mut shown: Vec<Shown> = Vec::new();
    for booking in bookings {
        for window in &booking.windows {
            let gpus: u32 = window.seats.iter().map(|seat| seat.gpus).sum();
            shown.push(Shown {
                uid: format!("{}-{}@tenure", booking.id, window.of),
                summary: format!("{} ({gpus} × {})", booking.spec.name, booking.spec.class),
                description: format!("{} of {}", booking.id, state.tree.title(booking.scope)),
                start: window.start,
                end: window.end,
                made: booking.made,
            });
        }
    }
    shown.sort_by_key(|event| event.start);
    shown.truncate(MAX_SHOWN);
    let name = query.class.as_deref().unwrap_or("bookings");
    let text = write(name, &shown);
    Ok(([(header::CONTENT_TYPE, "text/calendar; charset=utf-8")], text).into_response())
}
