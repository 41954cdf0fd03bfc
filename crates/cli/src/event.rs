//! `tenure events`: what happened, as it happens. A broken connection is taken up after the last event seen.

use std::time::Duration;

use clap::Args as ClapArgs;
use futures_util::StreamExt;
use serde_json::Value;
use tenure_api::client::{Client, ClientError};
use tenure_api::v1::event::{EventQuery, EventView};

use crate::context::Context;
use crate::output::{Form, Output, Paint};
use crate::refusal::Failure;
use crate::resolve;
use crate::safe::safe;

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Go on as events happen
    #[arg(short, long)]
    follow: bool,
    /// Only these kinds, such as JobSubmitted,JobEnded
    #[arg(long, value_delimiter = ',', value_name = "KIND")]
    kind: Vec<String>,
    /// Only events about this scope and below
    #[arg(long)]
    scope: Option<String>,
    /// Start at this sequence number
    #[arg(long, value_name = "SEQ", conflicts_with = "last")]
    from: Option<u64>,
    /// Start this many events back
    #[arg(long, value_name = "N", default_value = "20")]
    last: u64,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let client = context.client()?;
    let scope = match &args.scope {
        Some(scope) => Some(resolve::scope(&client, scope).await?.id.to_string()),
        None => None,
    };
    let newest = client.whoami().await?.seq;
    let from = args
        .from
        .unwrap_or_else(|| (newest + 1).saturating_sub(args.last).max(1));
    let query = EventQuery {
        scope,
        from: Some(from),
        until: None,
        follow: Some(args.follow),
        kinds: (!args.kind.is_empty()).then(|| args.kind.join(",")),
    };
    let mut seen = None;
    let mut pause = Duration::from_millis(200);
    loop {
        let broken = match stream(context, &client, &query, &mut seen).await {
            Ok(()) if !args.follow => return Ok(()),
            // The server ended a stream that has no end: it is going down, and another may come up.
            Ok(()) => None,
            Err(Broken::Connection(error)) if args.follow && seen.is_some() => Some(error),
            Err(Broken::Connection(error)) => return Err(error.into()),
            Err(Broken::Ended(failure)) => return Err(failure),
        };
        if let Some(ClientError::Refused(problem)) = &broken
            && problem.status < 500
        {
            return Err(ClientError::Refused(problem.clone()).into());
        }
        context.out.note("the connection broke; taking it up again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

enum Broken {
    Connection(ClientError),
    Ended(Failure),
}

/// Prints what comes until the stream ends, and keeps the number of the last event printed.
async fn stream(
    context: &Context,
    client: &Client,
    query: &EventQuery,
    seen: &mut Option<u64>,
) -> Result<(), Broken> {
    let events = client.events(query, *seen).await.map_err(Broken::Connection)?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let event = event.map_err(Broken::Connection)?;
        if seen.is_some_and(|seen| event.seq <= seen) {
            continue;
        }
        print(&context.out, &event).map_err(Broken::Ended)?;
        *seen = Some(event.seq);
    }
    Ok(())
}

fn print(out: &Output, event: &EventView) -> Result<(), Failure> {
    match out.form {
        Form::Json => out.json_line(event),
        Form::Yaml => {
            let text = serde_saphyr::to_string(event).map_err(|error| Failure::Local(error.to_string()))?;
            out.text(&format!("---\n{}\n", text.trim_end()))
        }
        Form::Name => out.line(event.seq),
        Form::Table | Form::Wide => {
            let at = event.at.to_string();
            let at = if out.wide() {
                at.as_str()
            } else {
                at.get(11..19).unwrap_or(&at)
            };
            let by = if out.wide() {
                format!("  {}", out.paint(Paint::Dim, &safe(&event.by)))
            } else {
                String::new()
            };
            let seq = out.paint(Paint::Dim, &format!("{:>7}", event.seq));
            let kind = format!("{:<16}", safe(&event.kind));
            out.line(format!(
                "{seq}  {at}  {}{by}  {}",
                out.paint(kind_paint(&event.kind), &kind),
                safe(&said(&event.data))
            ))
        }
    }
}

fn kind_paint(kind: &str) -> Paint {
    match kind {
        "NodeLost" | "AccessRefused" | "ScopeSuspended" | "ScopeClosed" | "JobRequeued" => Paint::Bad,
        "JobRunning" | "NodeJoined" | "NodeReturned" => Paint::Good,
        _ => Paint::Plain,
    }
}

/// An event's fields in a line: plain ones as they are, of the others what names them.
fn said(data: &Value) -> String {
    let Value::Object(fields) = data else {
        return plain(data);
    };
    let mut parts = Vec::new();
    for (name, value) in fields {
        match value {
            Value::Object(inner) => {
                let naming = ["id", "name", "result", "label", "kind"]
                    .iter()
                    .find_map(|key| inner.get(*key).map(plain));
                parts.push(format!("{name}={}", naming.unwrap_or_else(|| "{…}".into())));
            }
            Value::Array(items) => parts.push(format!("{name}=[{}]", items.len())),
            other => parts.push(format!("{name}={}", plain(other))),
        }
    }
    parts.join(" ")
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_said_in_a_line() {
        let data = serde_json::json!({"job": "job_1", "spec": {"name": "train", "command": []}, "charges": [1, 2], "n": 3, "x": {"y": 1}});
        let line = said(&data);
        for part in ["job=job_1", "spec=train", "charges=[2]", "n=3", "x={…}"] {
            assert!(line.contains(part), "{line}");
        }
    }
}
