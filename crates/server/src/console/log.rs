//! Logs: what all jobs the reader may read wrote, searched by text, level, label and time; page after page, and to take
//! out whole. Whatever stands in a line is text.

use askama::Template;
use axum::extract::Query;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Deserialize;
use tenure_api::v1::log::{LogLineView, LogPage};
use tenure_domain::Time;
use tenure_domain::time::HOUR_MS;

use super::desk::{Said, piece};
use super::fault::{Page, page};
use super::frame::Frame;
use super::html::{Html, inert};
use super::session::Session;
use super::show;
use crate::controller::now;
use crate::log::Level;

const SHOWN: u32 = 200;
/// Steps of the API that one page is made of: each looks through so much, and may find nothing.
const STEPS: usize = 4;

/// How far back one can look, as it is called and in hours.
const SPANS: [(&str, &str, u64); 4] = [
    ("1h", "Last hour", 1),
    ("1d", "Last day", 24),
    ("7d", "Last week", 168),
    ("", "Everything kept", 0),
];

#[derive(Deserialize)]
pub(super) struct Asked {
    q: Option<String>,
    level: Option<String>,
    label: Option<String>,
    job: Option<String>,
    span: Option<String>,
    since: Option<String>,
    cursor: Option<String>,
}

struct Choice {
    value: &'static str,
    label: &'static str,
    chosen: bool,
}

struct Row {
    at: Html,
    level: &'static str,
    tone: &'static str,
    job: String,
    name: Html,
    from: Html,
    text: String,
}

#[derive(Template)]
#[template(path = "log.html")]
struct Logs {
    frame: Frame,
    q: String,
    label: String,
    job: String,
    levels: Vec<Choice>,
    spans: Vec<Choice>,
    rows: Vec<Row>,
    /// What was wrong with what was asked.
    wrong: Option<String>,
    /// The page after this one.
    next: Option<String>,
    later: bool,
    /// The same search from its beginning, and taken out whole.
    first: String,
    export: String,
    erased: Option<Html>,
}

pub(super) async fn logs(session: Session, Query(asked): Query<Asked>) -> Page {
    let frame = Frame::of(&session, "logs").await?;
    let said = Sought::of(&asked);
    let (found, wrong) = match search(&session, &said, asked.cursor.as_deref()).await {
        Ok(found) => (found, None),
        // What cannot be meant is said beside the form; everything else is a fault.
        Err(problem) if problem.status == 422 || problem.status == 404 => {
            (None, Some(inert(&problem.detail)))
        }
        Err(problem) => return Err(problem.into()),
    };
    let words = said.words();
    let next = found
        .as_ref()
        .filter(|page| page.more)
        .and_then(|page| page.next.clone());
    page(&Logs {
        frame,
        levels: levels(&said.level),
        spans: spans(&said.span),
        rows: found.iter().flat_map(|page| &page.items).map(row).collect(),
        erased: found
            .as_ref()
            .and_then(|page| page.erased_before.as_ref())
            .map(show::time),
        wrong,
        next: next.map(|next| format!("/console/logs?{words}&cursor={}", piece(&next))),
        later: asked.cursor.is_some(),
        first: format!("/console/logs?{}", said.without_since()),
        export: format!("/console/logs/export?{words}"),
        q: said.q,
        label: said.label,
        job: said.job,
    })
}

/// Everything that fits, as a file.
pub(super) async fn export(session: Session, Query(asked): Query<Asked>) -> Page {
    let said = Sought::of(&asked);
    let path = format!("/v1/logs?{}&order=oldest&format=text", said.api());
    let answer = session.desk.pass(&path).await?;
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"logs.txt\""),
    ];
    Ok((headers, answer.into_body()).into_response())
}

/// What is sought, as it stands in addresses.
struct Sought {
    q: String,
    level: String,
    label: String,
    job: String,
    span: String,
    /// The moment a span began, so that all its pages are of one search.
    since: String,
}

impl Sought {
    fn of(asked: &Asked) -> Sought {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().trim().to_owned();
        let span = asked.span.clone().unwrap_or_default();
        let hours = SPANS
            .iter()
            .find(|(value, _, _)| *value == span)
            .map(|span| span.2);
        let since = match (&asked.since, hours) {
            (Some(since), _) if asked.cursor.is_some() => since.clone(),
            (_, Some(hours)) if hours > 0 => {
                let ms = i64::try_from(hours * HOUR_MS).unwrap_or(i64::MAX);
                Time(now().0.saturating_sub(ms)).rfc3339()
            }
            _ => String::new(),
        };
        Sought {
            q: asked.q.clone().unwrap_or_default(),
            level: text(&asked.level),
            label: text(&asked.label),
            job: text(&asked.job),
            span,
            since,
        }
    }

    fn named(pairs: &[(&str, &str)]) -> String {
        let said = pairs.iter().filter(|(_, value)| !value.is_empty());
        let said: Vec<String> = said
            .map(|(name, value)| format!("{name}={}", piece(value)))
            .collect();
        said.join("&")
    }

    /// For the API.
    fn api(&self) -> String {
        let pairs = [
            ("q", self.q.as_str()),
            ("level", &self.level),
            ("label", &self.label),
            ("job", &self.job),
            ("since", &self.since),
        ];
        Sought::named(&pairs)
    }

    fn without_since(&self) -> String {
        let pairs = [
            ("q", self.q.as_str()),
            ("level", &self.level),
            ("label", &self.label),
            ("job", &self.job),
            ("span", &self.span),
        ];
        Sought::named(&pairs)
    }

    /// For pages.
    fn words(&self) -> String {
        let since = Sought::named(&[("since", &self.since)]);
        [self.without_since(), since].join("&")
    }
}

async fn search(session: &Session, sought: &Sought, cursor: Option<&str>) -> Said<Option<LogPage>> {
    let mut all: Option<LogPage> = None;
    let mut cursor = cursor.map(str::to_owned);
    for _ in 0..STEPS {
        let wanted = SHOWN.saturating_sub(all.as_ref().map_or(0, |all| all.items.len() as u32));
        let after = cursor
            .as_deref()
            .map_or_else(String::new, |cursor| format!("&cursor={}", piece(cursor)));
        let path = format!("/v1/logs?{}&limit={}{after}", sought.api(), wanted.max(1));
        let page: LogPage = session.desk.get(&path).await?;
        let done = !page.more;
        cursor = page.next.clone();
        match &mut all {
            None => all = Some(page),
            Some(all) => {
                all.items.extend(page.items);
                (all.more, all.next) = (page.more, page.next);
            }
        }
        let full = all.as_ref().is_some_and(|all| all.items.len() >= SHOWN as usize);
        if done || full {
            break;
        }
    }
    Ok(all)
}

fn levels(chosen: &str) -> Vec<Choice> {
    let all = [
        ("", "Any level"),
        ("debug", "Debug and graver"),
        ("info", "Info and graver"),
        ("warn", "Warnings and graver"),
        ("error", "Errors and graver"),
        ("fatal", "Fatal"),
    ];
    let choice = |(value, label): (&'static str, &'static str)| Choice {
        value,
        label,
        chosen: value == chosen,
    };
    all.map(choice).into()
}

fn spans(chosen: &str) -> Vec<Choice> {
    let choice = |(value, label, _): (&'static str, &'static str, u64)| Choice {
        value,
        label,
        chosen: value == chosen,
    };
    SPANS.map(choice).into()
}

fn row(line: &LogLineView) -> Row {
    let level = Level::ALL
        .into_iter()
        .find(|level| line.level.as_deref() == Some(level.as_str()));
    let from = match (line.task, line.member) {
        (Some(task), _) => format!("{} · task {task} · {}", line.node, line.stream),
        (None, 0) => format!("{} · {}", line.node, line.stream),
        (None, member) => format!("{} · member {member} · {}", line.node, line.stream),
    };
    Row {
        at: show::time(&line.at),
        level: level.map_or("", Level::as_str),
        tone: match level {
            Some(Level::Error | Level::Fatal) => "grave",
            Some(Level::Warn) => "warning",
            _ => "said",
        },
        job: line.job.clone(),
        name: show::name(&line.name),
        from: show::name(&from),
        text: inert(&line.text.replace('\t', "    ")),
    }
}
