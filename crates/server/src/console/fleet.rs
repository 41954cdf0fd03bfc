//! The fleet: every device the reader may see, as a drawing that a script keeps live and as a table that needs none.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::json;

use super::fault::{Fault, Page, page};
use super::frame::Frame;
use super::html::Html;
use super::session::Session;
use super::show;
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::fail::Fail;
use crate::routes::event::Seat;
use crate::routes::gpu::survey::{Health, Survey, Tile, survey};

/// How often devices are looked at again.
const STEP: Duration = Duration::from_secs(2);
/// Rows of the table; the drawing has all.
const ROWS: usize = 200;

struct Row {
    id: String,
    node: Html,
    class: Html,
    health: Html,
    given: String,
    bar: Html,
    used: String,
    holders: Html,
}

#[derive(Template)]
#[template(path = "fleet.html")]
struct Fleet {
    frame: Frame,
    fleet: bool,
    count: String,
    nodes: String,
    rows: Vec<Row>,
    more: usize,
}

fn problem(fail: Fail) -> Fault {
    Fault::Problem(fail.problem)
}

pub(super) async fn fleet(session: Session) -> Page {
    let frame = Frame::of(&session, "fleet").await?;
    let seen = survey(&session.console.shared, &session.caller).map_err(problem)?;
    page(&Fleet {
        frame,
        fleet: seen.fleet,
        count: show::things(seen.gpus.len() as u64, "GPU"),
        nodes: show::things(seen.nodes.len() as u64, "node"),
        rows: seen.gpus.iter().take(ROWS).map(|gpu| row(&seen, gpu)).collect(),
        more: seen.gpus.len().saturating_sub(ROWS),
    })
}

pub(super) fn health_word(health: Health) -> &'static str {
    match health {
        Health::Fine => "fine",
        Health::Quarantined => "quarantined",
        Health::Absent => "absent",
        Health::Cordoned => "cordoned",
        Health::Away => "away",
    }
}

fn row(seen: &Survey, Tile(id, node, class, vram_mib, health, busy, _, pieces): &Tile) -> Row {
    let given: u64 = pieces.iter().map(|piece| u64::from(piece.1)).sum();
    let vram: u64 = pieces.iter().map(|piece| piece.2).sum();
    let name = |at: i64| usize::try_from(at).ok().and_then(|at| seen.holders.get(at));
    let mut names: Vec<String> = pieces
        .iter()
        .map(|piece| name(piece.0).map_or_else(|| "in use".to_owned(), |name| show::name(name).to_string()))
        .collect();
    names.sort();
    names.dedup();
    Row {
        id: id.to_string(),
        node: show::name(&seen.nodes[*node].1),
        class: show::name(&seen.classes[*class]),
        health: show::pill(health_word(*health)),
        given: format!(
            "{} · {} of {}",
            show::permille(given),
            show::mib(vram),
            show::mib(*vram_mib)
        ),
        bar: show::bar(given, 1000),
        used: u64::try_from(*busy).map_or("–".into(), show::permille),
        holders: match names.is_empty() {
            true => show::none(),
            false => Html::made(names.join(", ")),
        },
    }
}

/// The devices as server-sent events: all of them, then those that changed.
pub(super) async fn live(session: Session) -> Page {
    let shared = session.console.shared.clone();
    let seat = shared.streams.take(session.caller.user).map_err(problem)?;
    let watch = Watch {
        shared,
        caller: session.caller,
        before: None,
        _seat: seat,
    };
    let pieces = stream::unfold(watch, |mut watch| async move {
        watch
            .next()
            .await
            .map(|piece| (Ok::<_, Infallible>(piece), watch))
    });
    let response: Response = (
        [(header::CONTENT_TYPE, "text/event-stream")],
        Body::from_stream(pieces),
    )
        .into_response();
    Ok(response)
}

struct Watch {
    shared: Arc<Shared>,
    caller: Caller,
    before: Option<Survey>,
    _seat: Seat,
}

impl Watch {
    /// What is new; none when the reader may look no more, or the server stops.
    async fn next(&mut self) -> Option<Bytes> {
        if self.before.is_some() {
            tokio::select! {
                () = self.shared.stop.cancelled() => return None,
                () = tokio::time::sleep(STEP) => {}
            }
        }
        if !self.caller.stands(&self.shared.app.controller.view().read()) {
            return None;
        }
        let now = survey(&self.shared, &self.caller).ok()?;
        let piece = match &self.before {
            Some(before) if is_alike(before, &now) => changed(before, &now),
            _ => event("all", &json!(now)),
        };
        self.before = Some(now);
        Some(piece)
    }
}

/// Whether the two differ in what happens on devices only.
fn is_alike(one: &Survey, other: &Survey) -> bool {
    one.nodes == other.nodes
        && one.classes == other.classes
        && one.holders == other.holders
        && one.gpus.len() == other.gpus.len()
        && one
            .gpus
            .iter()
            .zip(&other.gpus)
            .all(|(one, other)| one.0 == other.0)
}

fn changed(before: &Survey, now: &Survey) -> Bytes {
    let pairs = before.gpus.iter().zip(&now.gpus).enumerate();
    let differs = pairs.filter(|(_, (before, now))| before != now);
    let tiles: Vec<_> = differs.map(|(at, (_, now))| json!([at, now])).collect();
    match tiles.is_empty() {
        true => Bytes::from_static(b": as before\n\n"),
        false => event("some", &json!(tiles)),
    }
}

fn event(name: &str, data: &serde_json::Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}
