//! Bookings: quoting, making, showing, editing, extending, transferring and cancelling them; the operator's terms.
//!
//! Deliberately absent: deciding anything. Zone rules are those compiled into the server, handed over with the wish.

pub mod calendar;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use tenure_api::v1::booking::{
    BookingQuery, BookingView, CancelBooking, EditBooking, ExtendBooking, MakeBooking, QuoteView,
    TransferBooking, WhichWindows, WindowView,
};
use tenure_api::v1::page::Page;
use tenure_domain::booking::change::{Edit, Which, no_such_window};
use tenure_domain::booking::plan::quote as quoted;
use tenure_domain::booking::record::{Booking, BookingSpec, Exception, Window, WindowPhase};
use tenure_domain::booking::recurrence::{Recurrence, Rule};
use tenure_domain::booking::terms::Terms;
use tenure_domain::booking::zone::{Wall, Zone};
use tenure_domain::id::BookingId;
use tenure_domain::money::Micros;
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::{Level, ScopeId};
use tenure_domain::{Event, Refusal, State as Platform, Wish};

use super::scope::id_in;
use crate::auth::Caller;
use crate::controller::{Accepted, now};
use crate::http::Shared;
use crate::http::body::JsonBody;
use crate::http::cursor::Turn;
use crate::http::etag::{IfMatch, tagged};
use crate::http::fail::{Answer, Fail};
use crate::http::path::Segments;
use crate::http::query::Query;
use crate::idempotency::{RepeatKey, change, create};
use crate::openapi::{ChangeProblems, ReadProblems};

fn window_view(state: &Platform, window: &Window) -> WindowView {
    let nodes = window.seats.iter().filter_map(|seat| state.fleet.node(seat.node));
    WindowView {
        of: window.of.to_string(),
        start: window.start.into(),
        end: window.end.into(),
        phase: match window.phase {
            WindowPhase::Booked => "booked",
            WindowPhase::Clearing => "clearing",
            WindowPhase::Open { .. } => "open",
        }
        .into(),
        gpus: window.seats.iter().map(|seat| seat.gpus).sum(),
        nodes: nodes.map(|node| node.name.to_string()).collect(),
        price_micros: window.cost().money.0,
        lost_ms: window.lost_ms,
    }
}

fn view(state: &Platform, booking: &Booking) -> BookingView {
    let (spec, recurrence) = (&booking.spec, &booking.spec.recurrence);
    let walls = |walls: &[Wall]| walls.iter().map(Wall::to_string).collect();
    BookingView {
        id: booking.id,
        scope: booking.scope.to_string(),
        scope_path: state.tree.title(booking.scope),
        name: spec.name.to_string(),
        class: spec.class.to_string(),
        size: spec.size,
        region: spec.region.as_deref().map(Into::into),
        zone: booking.zone.name.to_string(),
        tzdata: booking.zone.tzdata.to_string(),
        start: recurrence.start.to_string(),
        end: spec.end.to_string(),
        rule: recurrence.rule.as_ref().map(Rule::to_string),
        dates: walls(&recurrence.dates),
        except: walls(&recurrence.except),
        windows: booking
            .windows
            .iter()
            .map(|window| window_view(state, window))
            .collect(),
        more: booking.more,
        price_micros: booking.held().money.0,
        made: booking.made.into(),
        revision: booking.revision,
        note: booking.note.as_deref().map(Into::into),
    }
}

fn wall(text: &str, field: &'static str) -> Result<Wall, Refusal> {
    Wall::parse(text).map_err(|why| Refusal::invalid(field, why))
}

fn rule(text: &str) -> Result<Rule, Refusal> {
    text.parse()
        .map_err(|bad: tenure_domain::booking::recurrence::BadRule| {
            Refusal::invalid("/rule", bad.to_string())
        })
}

/// What is wished, read strictly.
fn spec(body: &MakeBooking) -> Result<(BookingSpec, Zone), Refusal> {
    let walls = |texts: &[String], field| {
        texts
            .iter()
            .map(|text| wall(text, field))
            .collect::<Result<Vec<_>, _>>()
    };
    let spec = BookingSpec {
        name: body.name.as_str().into(),
        class: body.class.as_str().into(),
        size: body.size,
        region: body.region.as_deref().map(Into::into),
        recurrence: Recurrence {
            start: wall(&body.start, "/start")?,
            rule: body.rule.as_deref().map(rule).transpose()?,
            dates: walls(&body.dates, "/dates")?,
            except: walls(&body.except, "/except")?,
        },
        end: wall(&body.end, "/end")?,
    };
    Ok((spec, Zone::bundled(&body.zone)?))
}

fn scope_of(caller: &Caller, scope: Option<&str>) -> Answer<ScopeId> {
    match scope {
        Some(scope) => Ok(id_in(scope, "/scope", "a scope")?),
        None => Ok(ScopeId::User(caller.user)),
    }
}

/// The booking, if the caller's own jobs may use it or the caller may see jobs where it belongs. A key that reads no jobs
/// reads no bookings.
fn seen<'a>(state: &'a Platform, caller: &Caller, id: BookingId) -> Answer<&'a Booking> {
    let booking = state.bookings.get(id).ok_or_else(Fail::not_found)?;
    let own = ScopeId::User(caller.user);
    if state.tree.is_within(own, booking.scope) {
        caller.may(state, Action::JobRead, own)?;
    } else {
        caller.may(state, Action::JobRead, booking.scope)?;
    }
    Ok(booking)
}

fn render(state: &Platform, accepted: &Accepted) -> Option<(String, String)> {
    let id = accepted.events.iter().find_map(|event| match &**event {
        Event::BookingMade { booking } => Some(booking.id),
        _ => None,
    })?;
    let json = serde_json::to_string(&view(state, state.bookings.get(id)?)).ok()?;
    Some((format!("/v1/bookings/{id}"), json))
}

fn render_changed(state: &Platform, accepted: &Accepted) -> Option<(String, String)> {
    let id = accepted.events.iter().find_map(|event| match &**event {
        Event::BookingChanged { booking, .. } => Some(booking.id),
        Event::WindowExtended { booking, .. } => Some(*booking),
        _ => None,
    })?;
    let json = serde_json::to_string(&view(state, state.bookings.get(id)?)).ok()?;
    Some((String::new(), json))
}

/// Makes a booking: its windows are held, and its price.
#[utoipa::path(post, path = "/v1/bookings", tag = "booking", request_body = MakeBooking,
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key creates nothing twice")),
    responses((status = 201, body = BookingView), ChangeProblems))]
pub(crate) async fn make_booking(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    repeat: RepeatKey,
    body: JsonBody<MakeBooking>,
) -> Answer<Response> {
    let scope = scope_of(&caller, body.value.scope.as_deref())?;
    let (spec, zone) = spec(&body.value)?;
    let wish = Wish::Book {
        scope,
        spec: Box::new(spec),
        zone: Box::new(zone),
        shown: body.value.shown_micros.map(Micros),
    };
    create(&shared, &caller, repeat, &body.bytes, wish, render).await
}

/// Shows what a booking would be and cost, and holds nothing.
#[utoipa::path(post, path = "/v1/bookings/quote", tag = "booking", request_body = MakeBooking, responses((status = 200, body = QuoteView), ChangeProblems))]
pub(crate) async fn quote_booking(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: JsonBody<MakeBooking>,
) -> Answer<Json<QuoteView>> {
    let scope = scope_of(&caller, body.value.scope.as_deref())?;
    let state = shared.app.controller.view().read();
    let action = match scope.level() {
        Level::User => Action::JobSubmit,
        _ => Action::BookingManage,
    };
    caller.may(&state, action, scope)?;
    let (spec, zone) = spec(&body.value)?;
    let booking = quoted(&state, scope, &spec, &zone, now())?;
    Ok(Json(QuoteView {
        windows: booking
            .windows
            .iter()
            .map(|window| window_view(&state, window))
            .collect(),
        more: booking.more,
        price_micros: booking.held().money.0,
        currency: state.prices.currency.to_string(),
    }))
}

/// The scopes whose bookings are asked for.
fn scopes(state: &Platform, caller: &Caller, scope: Option<&str>) -> Answer<Vec<ScopeId>> {
    match scope {
        Some(scope) => {
            // As in a path: what cannot be an id is as absent as what nobody has.
            let scope = scope.parse().map_err(|_| Fail::not_found())?;
            caller.may(state, Action::JobRead, scope)?;
            Ok(state.tree.subtree(scope))
        }
        None => {
            let own = ScopeId::User(caller.user);
            caller.may(state, Action::JobRead, own)?;
            let chain = state.tree.chain(own);
            Ok(chain.map(|scope| scope.id).collect())
        }
    }
}

fn found<'a>(state: &'a Platform, scopes: Vec<ScopeId>, class: Option<&str>) -> Vec<&'a Booking> {
    let all = scopes.into_iter().flat_map(|scope| state.bookings.of(scope));
    let mut found: Vec<&Booking> = all
        .filter(|booking| class.is_none_or(|class| *booking.spec.class == *class))
        .collect();
    found.sort_by_key(|booking| booking.id);
    found
}

/// Lists bookings in the order they were made.
#[utoipa::path(get, path = "/v1/bookings", tag = "booking", params(BookingQuery), responses((status = 200, body = Page<BookingView>), ReadProblems))]
pub(crate) async fn bookings(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Query(query): Query<BookingQuery>,
) -> Answer<Json<Page<BookingView>>> {
    let state = shared.app.controller.view().read();
    let scopes = scopes(&state, &caller, query.scope.as_deref())?;
    let list = format!(
        "bookings/{}/{}",
        query.scope.as_deref().unwrap_or_default(),
        query.class.as_deref().unwrap_or_default()
    );
    let turn = Turn::new(&shared, &caller, &list, query.limit, query.cursor.as_deref())?;
    let after: Option<BookingId> = turn.after.as_ref().and_then(|after| after.parse().ok());
    let found = found(&state, scopes, query.class.as_deref());
    let found = found
        .into_iter()
        .filter(|booking| after.is_none_or(|after| booking.id > after));
    let views = found.map(|booking| view(&state, booking));
    Ok(Json(turn.page(views, |booking| booking.id.to_string())))
}

/// Shows a booking.
#[utoipa::path(get, path = "/v1/bookings/{booking}", tag = "booking", params(("booking" = String, Path, description = "The booking's id")),
    responses((status = 200, body = BookingView), (status = 304, description = "Unchanged"), ReadProblems))]
pub(crate) async fn booking(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    headers: HeaderMap,
) -> Answer<Response> {
    let state = shared.app.controller.view().read();
    let found = seen(&state, &caller, path.id(0)?)?;
    let view = view(&state, found);
    let changing = serde_json::json!([view.windows, view.scope_path]);
    tagged(&headers, found.revision, &changing, view)
}

/// What the booking says now, with what is to be different.
fn edited(state: &Platform, id: BookingId, body: &EditBooking) -> Answer<(Edit, Zone)> {
    let booking = state.bookings.get(id).ok_or_else(Fail::not_found)?;
    let zone = Zone::bundled(&booking.zone.name)?;
    let start = body
        .start
        .as_deref()
        .map(|text| wall(text, "/start"))
        .transpose()?;
    let end = body.end.as_deref().map(|text| wall(text, "/end")).transpose()?;
    let of = body.of.as_deref().map(|text| wall(text, "/of")).transpose()?;
    let needed = || Refusal::invalid("/of", "say which window, by the wall time it begins at");
    let length = booking.spec.length();
    let ends = |start: Wall| {
        let end = start.0.checked_add(length).map(Wall);
        end.map_err(|_| Refusal::invalid("/start", "bookings are between the years 1970 and 9998"))
    };
    if body.which == WhichWindows::One {
        let of = of.ok_or_else(needed)?;
        let known = booking.exceptions.iter().find(|exception| exception.of == of);
        let begins = start.or(known.map(|known| known.start)).unwrap_or(of);
        let exception = Exception {
            of,
            start: begins,
            end: end.map_or_else(|| ends(begins), Ok)?,
            size: body
                .size
                .or(known.map(|known| known.size))
                .unwrap_or(booking.spec.size),
        };
        return Ok((Edit::One(exception), zone));
    }
    let mut spec = booking.spec.clone();
    let from = match body.which {
        WhichWindows::Rest => Some(of.ok_or_else(needed)?),
        _ => None,
    };
    if let Some(from) = from {
        // What is left of a series is counted up to there: no further than its windows go.
        booking.window(from).ok_or_else(no_such_window)?;
        spec.recurrence = spec.recurrence.rest(from, &zone);
    }
    spec.recurrence.start = start.unwrap_or(spec.recurrence.start);
    spec.end = end.map_or_else(|| ends(spec.recurrence.start), Ok)?;
    spec.size = body.size.unwrap_or(spec.size);
    if let Some(text) = &body.rule {
        spec.recurrence.rule = Some(rule(text)?);
    }
    let edit = match from {
        Some(from) => Edit::Rest { from, spec },
        None => Edit::All { spec },
    };
    Ok((edit, zone))
}

/// Edits one window, a window and all that follow, or all of them.
#[utoipa::path(post, path = "/v1/bookings/{booking}/edit", tag = "booking", request_body = EditBooking,
    params(("booking" = String, Path, description = "The booking's id"), ("If-Match" = Option<String>, Header, description = "The revision that was read, in quotes")),
    responses((status = 200, body = BookingView), ChangeProblems))]
pub(crate) async fn edit_booking(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    condition: IfMatch,
    body: JsonBody<EditBooking>,
) -> Answer<Response> {
    let id: BookingId = path.id(0)?;
    let (edit, zone, present) = {
        let state = shared.app.controller.view().read();
        let present = seen(&state, &caller, id)?.revision;
        let (edit, zone) = edited(&state, id, &body.value)?;
        (edit, zone, present)
    };
    let wish = Wish::EditBooking {
        booking: id,
        edit: Box::new(edit),
        zone: Box::new(zone),
        revision: condition.revision(Some(present)),
    };
    caller.submit(&shared.app.controller, wish).await?;
    shown(&shared, id)
}

fn shown(shared: &Shared, id: BookingId) -> Answer<Response> {
    let state = shared.app.controller.view().read();
    let booking = state.bookings.get(id).ok_or_else(Fail::not_found)?;
    tagged(&HeaderMap::new(), booking.revision, &(), view(&state, booking))
}

/// Makes a window longer, where nobody else booked what follows.
#[utoipa::path(post, path = "/v1/bookings/{booking}/extend", tag = "booking", request_body = ExtendBooking,
    params(("booking" = String, Path, description = "The booking's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Repeating the request with the same key makes it no longer twice")),
    responses((status = 200, body = BookingView), ChangeProblems))]
pub(crate) async fn extend_booking(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    repeat: RepeatKey,
    body: JsonBody<ExtendBooking>,
) -> Answer<Response> {
    let id: BookingId = path.id(0)?;
    let zone = {
        let state = shared.app.controller.view().read();
        Zone::bundled(&seen(&state, &caller, id)?.zone.name).ok()
    };
    let wish = Wish::ExtendBooking {
        booking: id,
        of: wall(&body.value.of, "/of")?,
        more_s: body.value.more_s,
        zone: zone.map(Box::new),
    };
    change(&shared, &caller, repeat, &body.bytes, wish, render_changed).await
}

/// Gives a booking to another scope, which pays for it from then on.
#[utoipa::path(post, path = "/v1/bookings/{booking}/transfer", tag = "booking", request_body = TransferBooking,
    params(("booking" = String, Path, description = "The booking's id")), responses((status = 200, body = BookingView), ChangeProblems))]
pub(crate) async fn transfer_booking(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    body: JsonBody<TransferBooking>,
) -> Answer<Response> {
    let id: BookingId = path.id(0)?;
    seen(&shared.app.controller.view().read(), &caller, id)?;
    let wish = Wish::TransferBooking {
        booking: id,
        to: id_in(&body.value.to, "/to", "a scope")?,
    };
    caller.submit(&shared.app.controller, wish).await?;
    shown(&shared, id)
}

/// Cancels one window, a window and all that follow, or all of them, at what the terms say.
#[utoipa::path(post, path = "/v1/bookings/{booking}/cancel", tag = "booking", request_body = CancelBooking,
    params(("booking" = String, Path, description = "The booking's id")), responses((status = 204, description = "Cancelled"), ChangeProblems))]
pub(crate) async fn cancel_booking(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    path: Segments<1>,
    body: JsonBody<CancelBooking>,
) -> Answer<StatusCode> {
    let id: BookingId = path.id(0)?;
    let zone = {
        let state = shared.app.controller.view().read();
        Zone::bundled(&seen(&state, &caller, id)?.zone.name).ok()
    };
    let of = body
        .value
        .of
        .as_deref()
        .map(|text| wall(text, "/of"))
        .transpose()?;
    let of = of.ok_or_else(|| Refusal::invalid("/of", "say which window, by the wall time it begins at"));
    let which = match body.value.which {
        WhichWindows::One => Which::One(of?),
        WhichWindows::Rest => Which::Rest(of?),
        WhichWindows::All => Which::All,
    };
    let wish = Wish::CancelBooking {
        booking: id,
        which,
        zone: zone.map(Box::new),
    };
    caller.submit(&shared.app.controller, wish).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Shows the operator's terms for bookings.
#[utoipa::path(get, path = "/v1/booking-terms", tag = "booking", responses((status = 200, body = Terms), ReadProblems))]
pub(crate) async fn booking_terms(State(shared): State<Arc<Shared>>, caller: Caller) -> Answer<Json<Terms>> {
    let state = shared.app.controller.view().read();
    caller.may_look(&state)?;
    Ok(Json(state.terms.clone()))
}

/// Sets the operator's terms for bookings as a whole.
#[utoipa::path(put, path = "/v1/booking-terms", tag = "booking", request_body = Terms, responses((status = 200, body = Terms), ChangeProblems))]
pub(crate) async fn set_booking_terms(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: JsonBody<Terms>,
) -> Answer<Json<Terms>> {
    let wish = Wish::SetBookingTerms { terms: body.value };
    caller.submit(&shared.app.controller, wish).await?;
    Ok(Json(shared.app.controller.view().read().terms.clone()))
}
