//! The calendar: windows in the order they begin, of a user, of a scope or of a GPU class; as a list for programs, and as
//! an iCalendar feed for calendars to show.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tenure_api::ical::{Shown, write};
use tenure_api::v1::booking::{CalendarQuery, CalendarWindow, FeedQuery};
use tenure_api::v1::page::Page;
use tenure_api::v1::time::Moment;
use tenure_domain::Time;
use tenure_domain::booking::plan::rooms;
use tenure_domain::booking::record::{Booking, Window};
use tenure_domain::booking::shelf::Room;
use tenure_domain::id::BookingId;
use tenure_domain::tenancy::scope::ScopeId;

use super::{found, scopes, window_view};
use crate::auth::Caller;
use crate::controller::now;
use crate::http::Shared;
use crate::http::cursor::Turn;
use crate::http::fail::{Answer, Fail};
use crate::http::query::Query;
use crate::openapi::ReadProblems;

/// Windows shown to a calendar at once, the next first.
const MAX_SHOWN: usize = 5_000;
const WEEK_MS: u64 = 7 * 86_400_000;

/// Windows that meet a span of time, in the order they begin.
fn within<'a>(bookings: &[&'a Booking], since: Time, until: Time) -> Vec<(&'a Booking, &'a Window)> {
    let mut all: Vec<(&Booking, &Window)> = Vec::new();
    for booking in bookings {
        let begun = booking.windows.iter().take_while(|window| window.start < until);
        let met = begun.filter(|window| window.end > since);
        all.extend(met.map(|window| (*booking, window)));
    }
    all.sort_by_key(|(booking, window)| (window.start, booking.id, window.of));
    all
}

fn moment(text: Option<&str>, name: &'static str) -> Answer<Option<Time>> {
    let parsed = text.map(|text| text.parse::<Moment>().map(|moment| moment.0));
    parsed.transpose().map_err(|why| Fail::invalid(name, why))
}

/// Where the last page ended: when its last window begins, of which booking, and which one.
fn place(text: &str) -> Option<(Time, BookingId, String)> {
    let mut parts = text.splitn(3, '/');
    let start = parts.next()?.parse().ok()?;
    Some((Time(start), parts.next()?.parse().ok()?, parts.next()?.to_owned()))
}

/// Lists windows in the order they begin.
#[utoipa::path(get, path = "/v1/calendar", tag = "booking", params(CalendarQuery), responses((status = 200, body = Page<CalendarWindow>), ReadProblems))]
pub(crate) async fn calendar(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<CalendarQuery>,
) -> Answer<Json<Page<CalendarWindow>>> {
    let state = shared.app.controller.view().read();
    let scopes = scopes(&state, &caller, query.scope.as_deref())?;
    let since = moment(query.since.as_deref(), "since")?.unwrap_or_else(now);
    let until = moment(query.until.as_deref(), "until")?.unwrap_or(since.plus_ms(WEEK_MS));
    if since > until {
        return Err(Fail::invalid("since", "the span ends before it begins"));
    }
    let said = |text: &Option<String>| text.clone().unwrap_or_default();
    let list = format!(
        "calendar/{}/{}/{}/{}",
        said(&query.scope),
        said(&query.class),
        said(&query.since),
        said(&query.until)
    );
    let turn = Turn::new(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    let after = turn.after.as_deref().and_then(place);
    let bookings = found(&state, scopes, query.class.as_deref());
    let windows = within(&bookings, since, until)
        .into_iter()
        .filter(|(booking, window)| {
            let place = (window.start, booking.id, window.of.to_string());
            after.as_ref().is_none_or(|after| place > *after)
        });
    let views = windows.map(|(booking, window)| CalendarWindow {
        booking: booking.id,
        name: booking.spec.name.to_string(),
        class: booking.spec.class.to_string(),
        scope_path: state.tree.title(booking.scope),
        window: window_view(&state, window),
    });
    Ok(Json(turn.page(views, |view| {
        format!("{}/{}/{}", view.window.start.0.0, view.booking, view.window.of)
    })))
}

/// How much of a class the caller could book of what there is, step by step from a moment on, in thousandths: what a
/// refused booking would tell as well. Nothing where the fleet has none of it. For drawings of a week.
pub(crate) fn free(
    shared: &Shared,
    caller: &Caller,
    class: &str,
    from: Time,
    (step_ms, steps): (u64, u16),
) -> Answer<Vec<u16>> {
    let state = shared.app.controller.view().read();
    caller.may_look(&state)?;
    let rooms = rooms(&state, ScopeId::User(caller.user), class, None);
    let shelf = state.bookings.shelf();
    let there = |room: &Room| u64::from(room.gpus.get(class).copied().unwrap_or(0));
    let all: u64 = rooms.iter().map(there).sum();
    if all == 0 {
        return Ok(Vec::new());
    }
    let end = from.plus_ms(u64::from(steps) * step_ms);
    // Of most nodes nothing is booked, so nothing of them changes from step to step.
    let is_booked = |room: &&Room| shelf.booked(class, room.node, from, end) > 0;
    let booked: Vec<&Room> = rooms.iter().filter(is_booked).collect();
    let step = |at: u16| {
        let start = from.plus_ms(u64::from(at) * step_ms);
        let taken = |room: &&Room| {
            let taken = shelf.booked(class, room.node, start, start.plus_ms(step_ms));
            taken.min(there(room))
        };
        let taken: u64 = booked.iter().map(taken).sum();
        ((all - taken) * 1000 / all) as u16
    };
    Ok((0..steps).map(step).collect())
}

/// Windows as an iCalendar feed (RFC 5545), one event each, in UTC. Calendars, which know names and passwords only, send
/// the key as the password of Basic authorization; the name is not looked at.
#[utoipa::path(get, path = "/v1/calendar.ics", tag = "booking", params(FeedQuery),
    responses((status = 200, content_type = "text/calendar", body = String), ReadProblems))]
pub(crate) async fn calendar_feed(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<FeedQuery>,
) -> Answer<Response> {
    let state = shared.app.controller.view().read();
    let scopes = scopes(&state, &caller, query.scope.as_deref())?;
    let bookings = found(&state, scopes, query.class.as_deref());
    let windows = within(&bookings, Time(i64::MIN), Time(i64::MAX));
    let shown = windows.into_iter().take(MAX_SHOWN).map(|(booking, window)| {
        let gpus: u32 = window.seats.iter().map(|seat| seat.gpus).sum();
        Shown {
            uid: format!("{}-{}@tenure", booking.id, window.of),
            summary: format!("{} ({gpus} × {})", booking.spec.name, booking.spec.class),
            description: format!("{} of {}", booking.id, state.tree.title(booking.scope)),
            start: window.start,
            end: window.end,
            made: booking.made,
            revision: booking.revision,
        }
    });
    let name = query.class.as_deref().unwrap_or("bookings");
    let text = write(name, &shown.collect::<Vec<_>>());
    Ok(([(header::CONTENT_TYPE, "text/calendar; charset=utf-8")], text).into_response())
}
