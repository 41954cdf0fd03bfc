//! Taking out whole: every line that fits, written while it is found.

use std::fmt::Write;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tenure_api::v1::time::Moment;
use tenure_domain::Time;

use super::query::{Form, Sought};
use super::walk::{Found, Walk};
use crate::auth::Caller;
use crate::http::Shared;
use crate::http::fail::Answer;
use crate::routes::event::Seat;

/// Lines written at once.
const LINES: usize = 1000;

struct Export {
    shared: Arc<Shared>,
    caller: Caller,
    walk: Walk,
    form: Form,
    first: Option<Bytes>,
    _seat: Seat,
}

pub(super) async fn export(shared: Arc<Shared>, caller: Caller, sought: Sought) -> Answer<Response> {
    let seat = shared.streams.take(caller.user)?;
    let form = sought.form;
    let walk = Walk::begin(&shared, caller.clone(), sought, None).await?;
    let mut export = Export {
        shared,
        caller,
        walk,
        form,
        first: None,
        _seat: seat,
    };
    // What is wrong from the start is said with a status.
    export.first = export.next().await?;
    let pieces = stream::unfold(Some(export), |export| async move {
        let mut export = export?;
        let piece = match export.first.take() {
            Some(first) => Ok(Some(first)),
            None => export.next().await,
        };
        match piece {
            Ok(Some(bytes)) => Some((Ok(bytes), Some(export))),
            Ok(None) => None,
            // The headers are gone; a broken answer says that this is not the end.
            Err(fail) => Some((Err(std::io::Error::other(fail.problem.detail.clone())), None)),
        }
    });
    let kind = match form {
        Form::Ndjson => "application/x-ndjson",
        Form::Page | Form::Text => "text/plain; charset=utf-8",
    };
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(pieces)).into_response())
}

impl Export {
    /// The next lines; none at the end.
    async fn next(&mut self) -> Answer<Option<Bytes>> {
        while !self.walk.is_done() {
            let stands = self.caller.stands(&self.shared.app.controller.view().read());
            if self.shared.stop.is_cancelled() || !stands {
                return Err(crate::http::fail::Fail::unavailable(
                    "the export was ended before its end",
                ));
            }
            self.walk.look_anew();
            let found = self.walk.step(&self.shared, LINES).await?;
            if !found.is_empty() {
                let mut text = String::new();
                found
                    .into_iter()
                    .for_each(|line| write(&mut text, line, self.form));
                return Ok(Some(text.into()));
            }
        }
        Ok(None)
    }
}

fn write(to: &mut String, line: Found, form: Form) {
    if form == Form::Ndjson {
        if let Ok(json) = serde_json::to_string(&line.view()) {
            to.push_str(&json);
        }
        to.push('\n');
        return;
    }
    let _ = writeln!(
        to,
        "{} {:5} {} {} {}",
        Moment::from(Time(line.at_ms)),
        line.level.map_or("-", |level| level.as_str()),
        line.about.name,
        line.stream,
        line.text
    );
}
