//! What the journal tells a reader: a stretch of its events, as the API's stream gives them; and where in it a moment
//! lies. What was found of devices, nodes and jobs is remembered in `memo`.

use tenure_api::v1::event::EventView;

use super::desk::Said;
use super::memo;
use super::session::Session;

/// The number of the newest event.
pub(super) fn head(session: &Session) -> u64 {
    session.console.shared.app.controller.view().seq()
}

/// The events from one to another that the reader may see.
pub(super) async fn events(session: &Session, from: u64, until: u64) -> Said<Vec<EventView>> {
    let path = format!("/v1/events?follow=false&from={from}&until={until}");
    let text = session.desk.text(&path).await?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    Ok(lines.filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// The first event that is not older than a moment, found by halves; the newest where all are.
pub(super) async fn since(session: &Session, at_ms: i64) -> u64 {
    let controller = &session.console.shared.app.controller;
    memo::since(controller.reader(), head(session), at_ms).await
}
