//! What the journal tells a reader: a stretch of its events, as the API's stream gives them.

use tenure_api::v1::event::EventView;

use super::desk::Said;
use super::session::Session;

/// The number of the newest event.
pub(super) fn head(session: &Session) -> u64 {
    session.console.shared.app.controller.view().seq()
}

/// Events from one on to the newest, that the reader may see; all kinds where none is named.
pub(super) async fn events(session: &Session, from: u64, kinds: &str) -> Said<Vec<EventView>> {
    let kinds = if kinds.is_empty() {
        String::new()
    } else {
        format!("&kinds={kinds}")
    };
    let text = session
        .desk
        .text(&format!("/v1/events?follow=false&from={from}{kinds}"))
        .await?;
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    Ok(lines.filter_map(|line| serde_json::from_str(line).ok()).collect())
}
