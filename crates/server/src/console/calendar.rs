//! The calendar: a week of one class's windows, as far as the reader may see them, and booking more. A script draws the
//! week in the reader's zone and lets one drag over it; the form and the table need none.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_api::problem::Problem;
use tenure_api::v1::booking::{BookingView, CalendarWindow, QuoteView, WindowView};
use tenure_api::v1::page::Page as List;
use tenure_domain::booking::zone::{Wall, Zone};
use tenure_domain::tenancy::role::Action;
use tenure_domain::tenancy::scope::ScopeId;

use super::Console;
use super::desk::piece;
use super::fault::{Fault, Page, go, page};
use super::form::{Fields, Posted, wrong};
use super::frame::Frame;
use super::html::Html;
use super::session::Session;
use super::show;
use crate::keyring::random;
use crate::routes::booking::calendar::free;

const SHOWN: u32 = 1000;
/// A week, and a day more on both sides: the reader's week begins and ends where they are.
const DAYS: usize = 9;
/// What is free is told for each quarter of an hour.
const STEP_MS: u64 = 900_000;
const STEPS_A_DAY: usize = 96;

#[derive(Deserialize, Default)]
pub(super) struct Asked {
    class: Option<String>,
    week: Option<String>,
}

struct Window {
    booking: String,
    name: Html,
    owner: Html,
    start: Html,
    end: Html,
    start_ms: i64,
    end_ms: i64,
    gpus: u32,
    phase: Html,
    price: String,
}

#[derive(Template)]
#[template(path = "calendar.html")]
struct Calendar {
    frame: Frame,
    class: String,
    class_piece: String,
    classes: Vec<String>,
    /// The week's Monday, and those before and after.
    week: String,
    week_words: String,
    before: String,
    after: String,
    from_ms: i64,
    until_ms: i64,
    /// How much of the class is free in each step from the day before the week on, in thousandths.
    free: String,
    free_step_ms: u64,
    free_from_ms: i64,
    /// Day by day, the least and the most that is free in an hour of it.
    days: Vec<(String, String, String)>,
    windows: Vec<Window>,
    books: bool,
    fields: Fields,
    problem: Option<Problem>,
}

impl Calendar {
    fn v(&self, name: &str) -> &str {
        self.fields.raw(name)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.fields.text(name) == value
    }
}

/// Rules people choose by a word.
const RULES: &[(&str, &str)] = &[
    ("daily", "FREQ=DAILY"),
    ("workdays", "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"),
    ("weekly", "FREQ=WEEKLY"),
];

pub(super) async fn calendar(session: Session, Query(asked): Query<Asked>) -> Page {
    show_week(&session, asked, Fields::default(), None).await
}

/// The Monday of the week asked for, or of this one.
fn monday(text: Option<&str>) -> Date {
    let today = Timestamp::from_millisecond(crate::controller::now().0)
        .map_or(Date::MIN, |now| now.to_zoned(TimeZone::UTC).date());
    let near = |date: &Date| (1970..=2200).contains(&date.year());
    let date = text
        .and_then(|text| text.parse::<Date>().ok())
        .filter(near)
        .unwrap_or(today);
    let past = i64::from(date.weekday().since(Weekday::Monday));
    date.checked_sub(past.days()).unwrap_or(date)
}

fn midnight_ms(date: Date) -> i64 {
    date.to_zoned(TimeZone::UTC)
        .map_or(0, |at| at.timestamp().as_millisecond())
}

async fn show_week(session: &Session, asked: Asked, mut fields: Fields, problem: Option<Problem>) -> Page {
    let frame = Frame::of(session, "calendar").await?;
    let classes = session.classes();
    let class = asked
        .class
        .filter(|class| !class.is_empty())
        .or_else(|| classes.first().cloned())
        .unwrap_or_default();
    let week = monday(asked.week.as_deref());
    let step = |days: i64| week.checked_add(days.days()).unwrap_or(week);
    let (since, until) = (midnight_ms(step(-1)), midnight_ms(step(8)));
    let moment = |ms: i64| piece(&tenure_domain::Time(ms).rfc3339());
    let path = format!(
        "/v1/calendar?class={}&since={}&until={}&limit={SHOWN}",
        piece(&class),
        moment(since),
        moment(until)
    );
    let found: List<CalendarWindow> = session.desk.get(&path).await?;
    let currency = session.currency();
    let steps = free(
        &session.console.shared,
        &session.caller,
        &class,
        tenure_domain::Time(since),
        (STEP_MS, (DAYS * STEPS_A_DAY) as u16),
    )
    .map_err(|fail| Fault::Problem(fail.problem))?;
    let free: Vec<String> = steps.iter().map(u16::to_string).collect();
    let me = ScopeId::User(session.caller.user);
    fields.forget("csrf");
    page(&Calendar {
        week: week.to_string(),
        week_words: week.strftime("%-d %B %Y").to_string(),
        before: step(-7).to_string(),
        after: step(7).to_string(),
        from_ms: midnight_ms(week),
        until_ms: midnight_ms(step(7)),
        days: by_day(step(-1), &steps),
        free: free.join(" "),
        free_step_ms: STEP_MS,
        free_from_ms: since,
        windows: found.items.iter().map(|it| window(it, &currency)).collect(),
        books: session.tenant().is_some() && session.may(Action::BookingManage, me),
        class_piece: piece(&class),
        class,
        classes,
        fields,
        problem,
        frame,
    })
}

/// What is free on each day of the week, least and most.
fn by_day(before: Date, steps: &[u16]) -> Vec<(String, String, String)> {
    let days = steps.chunks(STEPS_A_DAY).enumerate().skip(1).take(7);
    let day = |(at, steps): (usize, &[u16])| {
        let day = before.checked_add((at as i64).days()).unwrap_or(before);
        let share = |free: Option<&u16>| show::permille(u64::from(free.copied().unwrap_or(0)));
        (
            day.strftime("%a %-d %b").to_string(),
            share(steps.iter().min()),
            share(steps.iter().max()),
        )
    };
    days.map(day).collect()
}

fn window(it: &CalendarWindow, currency: &str) -> Window {
    Window {
        booking: it.booking.to_string(),
        name: show::name(&it.name),
        owner: show::name(&it.scope_path),
        start: show::time(&it.window.start),
        end: show::time(&it.window.end),
        start_ms: it.window.start.0.0,
        end_ms: it.window.end.0.0,
        gpus: it.window.gpus,
        phase: show::pill(&it.window.phase),
        price: show::money(it.window.price_micros, currency),
    }
}

#[derive(Template)]
#[template(path = "book.html")]
struct Confirm {
    frame: Frame,
    name: Html,
    class: Html,
    gpus: String,
    zone: Html,
    price: String,
    shown_micros: i64,
    windows: Vec<(Html, Html, String)>,
    more: bool,
    /// The form again, to be sent with the price.
    again: Vec<(&'static str, String)>,
}

const FIELDS: &[&str] = &["name", "class", "gpus", "start", "end", "zone", "repeat", "until"];

/// A booking: first its price, then, with that price as its limit, the booking itself.
pub(super) async fn book(State(_): State<Arc<Console>>, posted: Posted) -> Page {
    let Posted { session, fields } = posted;
    let asked = Asked {
        class: Some(fields.text("class").to_owned()),
        week: fields
            .some("start")
            .and_then(|start| start.get(..10))
            .map(str::to_owned),
    };
    match booked(&session, &fields).await {
        Ok(response) => Ok(response),
        Err(Fault::SignIn) => Err(Fault::SignIn),
        Err(Fault::Problem(problem)) => show_week(&session, asked, fields, Some(*problem)).await,
    }
}

fn wish(fields: &Fields) -> Result<Value, Fault> {
    let count: u32 = fields.number("gpus")?.unwrap_or(1);
    let wall = |name: &'static str| fields.some(name).ok_or_else(|| wrong(name, "a time is wanted"));
    let mut wish = json!({
        "name": fields.some("name").ok_or_else(|| wrong("name", "a name is wanted"))?,
        "class": fields.text("class"),
        "size": { "unit": "gpus", "count": count },
        "zone": fields.some("zone").unwrap_or("UTC"),
        "start": wall("start")?,
        "end": wall("end")?,
    });
    if let Some((_, rule)) = RULES.iter().find(|(word, _)| *word == fields.text("repeat")) {
        let until = match fields.some("until") {
            Some(day) => format!(";UNTIL={}", last_of(day, fields.some("zone").unwrap_or("UTC"))?),
            None => String::new(),
        };
        wish["rule"] = json!(format!("{rule}{until}"));
    }
    Ok(wish)
}

/// The last moment of a day where the booking is, as a rule says it.
fn last_of(day: &str, zone: &str) -> Result<String, Fault> {
    let known = Zone::bundled(zone).map_err(|_| {
        wrong(
            "zone",
            "there is no such zone; they are named as Europe/Berlin is",
        )
    })?;
    let wall = Wall::parse(&format!("{day}T23:59:59")).map_err(|why| wrong("until", why))?;
    let moment = known.moment(wall.0);
    let moment = moment.ok_or_else(|| wrong("until", "the clocks there never show the end of this day"))?;
    Ok(moment.rfc3339().replace(['-', ':'], ""))
}

async fn booked(session: &Session, fields: &Fields) -> Page {
    let mut wish = wish(fields)?;
    if let Some(shown) = fields.number::<i64>("shown_micros")? {
        wish["shown_micros"] = json!(shown);
        let repeat = format!("console-{}", fields.text("repeat_key"));
        let made: BookingView = session.desk.create("/v1/bookings", &wish, &repeat).await?;
        return Ok(go(&format!("/console/calendar/{}", made.id)));
    }
    let quote: QuoteView = session.desk.post("/v1/bookings/quote", &wish).await?;
    let zone = Zone::bundled(fields.some("zone").unwrap_or("UTC")).ok();
    let bytes: [u8; 16] = random();
    let mut again: Vec<(&'static str, String)> = FIELDS
        .iter()
        .map(|name| (*name, fields.text(name).to_owned()))
        .collect();
    again.push((
        "repeat_key",
        bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    ));
    page(&Confirm {
        frame: Frame::of(session, "calendar").await?,
        name: show::name(fields.text("name")),
        class: show::name(fields.text("class")),
        gpus: fields.some("gpus").unwrap_or("1").to_owned(),
        zone: show::name(fields.some("zone").unwrap_or("UTC")),
        price: show::money(quote.price_micros, &quote.currency),
        shown_micros: quote.price_micros,
        windows: quote
            .windows
            .iter()
            .take(20)
            .map(|it| spans(it, zone.as_ref(), &quote.currency))
            .collect(),
        more: quote.more || quote.windows.len() > 20,
        again,
    })
}

/// By the clocks of the booking's zone: those are what was promised.
fn spans(it: &WindowView, zone: Option<&Zone>, currency: &str) -> (Html, Html, String) {
    (
        show::wall(&it.start, zone),
        show::wall(&it.end, zone),
        show::money(it.price_micros, currency),
    )
}

#[derive(Template)]
#[template(path = "booking.html")]
struct One {
    frame: Frame,
    id: String,
    name: Html,
    facts: Vec<(&'static str, Html)>,
    note: Option<String>,
    zone: Html,
    windows: Vec<Held>,
    more: bool,
    may_cancel: bool,
}

struct Held {
    /// Which one it is: the wall time it begins at.
    of: String,
    start: Html,
    end: Html,
    phase: Html,
    gpus: u32,
    nodes: String,
    price: String,
    /// Others come after it.
    has_rest: bool,
}

pub(super) async fn one(session: Session, Path(id): Path<String>) -> Page {
    let frame = Frame::of(&session, "calendar").await?;
    let it: BookingView = session.desk.get(&format!("/v1/bookings/{}", piece(&id))).await?;
    let currency = session.currency();
    let scope = it.scope.parse().ok();
    let zone = Zone::bundled(&it.zone).ok();
    let text = |text: &str| show::name(text);
    let mut facts = vec![
        ("Of", text(&it.scope_path)),
        ("Class", text(&it.class)),
        ("First", text(&format!("{} to {}", it.start, it.end))),
        ("Zone", text(&it.zone)),
    ];
    facts.extend(it.rule.as_deref().map(|rule| ("Repeats", text(rule))));
    facts.push(("Price", text(&show::money(it.price_micros, &currency))));
    facts.push(("Made", show::time(&it.made)));
    page(&One {
        id: it.id.to_string(),
        name: show::name(&it.name),
        facts,
        note: it.note.as_deref().map(super::html::inert),
        zone: show::name(&it.zone),
        windows: (0..)
            .zip(it.windows.iter().take(100))
            .map(|(at, window)| {
                let (start, end, price) = spans(window, zone.as_ref(), &currency);
                Held {
                    of: window.of.clone(),
                    start,
                    end,
                    phase: show::pill(&window.phase),
                    gpus: window.gpus,
                    nodes: super::html::inert(&window.nodes.join(", ")),
                    price,
                    has_rest: it.more || at + 1 < it.windows.len(),
                }
            })
            .collect(),
        more: it.more || it.windows.len() > 100,
        may_cancel: scope.is_some_and(|scope: ScopeId| session.may(Action::BookingManage, scope)),
        frame,
    })
}

/// Cancels one window, one and all that follow, or every one.
pub(super) async fn cancel(State(_): State<Arc<Console>>, Path(id): Path<String>, posted: Posted) -> Page {
    let Posted { session, fields } = posted;
    let path = format!("/v1/bookings/{}/cancel", piece(&id));
    let which = fields.some("which").unwrap_or("all");
    let mut ask = json!({ "which": which });
    if let Some(of) = fields.some("of") {
        ask["of"] = json!(of);
    }
    let _: Value = session.desk.post(&path, &ask).await?;
    // Where none is left, there is no page of it either.
    let left = session
        .desk
        .get::<BookingView>(&format!("/v1/bookings/{}", piece(&id)))
        .await;
    Ok(go(&match (which, left) {
        ("one" | "rest", Ok(left)) if left.more || !left.windows.is_empty() => {
            format!("/console/calendar/{}", left.id)
        }
        _ => "/console/calendar".into(),
    }))
}
