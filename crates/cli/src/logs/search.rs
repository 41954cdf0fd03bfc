//! `tenure logs --search`: lines of all jobs one may read, by text, level, label and time; and `--export`, which takes them
//! out into a file. Nothing in a line acts on the terminal.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use futures_util::StreamExt;
use tenure_api::client::Client;
use tenure_api::v1::log::{LogLineView, LogPage, LogSearch};
use tenure_api::v1::time::Moment;

use crate::context::Context;
use crate::moment::{parse_since, parse_until};
use crate::output::{Form, Output, Paint};
use crate::refusal::Failure;
use crate::resolve;
use crate::safe::safe;

const PAGE: u32 = 500;

#[derive(Debug, Default, ClapArgs)]
pub struct SearchArgs {
    /// Search all jobs you may read for lines with this text, in whatever case
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["follow", "raw", "stderr", "member", "task"])]
    search: Option<String>,
    /// Lines this grave, or graver
    #[arg(long, value_name = "LEVEL", value_parser = ["trace", "debug", "info", "warn", "error", "fatal"], conflicts_with_all = ["follow", "raw", "stderr", "member", "task"])]
    level: Option<String>,
    /// Of jobs with this label; also name, kind, node, stream, task, member and attempt
    #[arg(long, value_name = "K=V", conflicts_with_all = ["follow", "raw", "stderr", "member", "task"])]
    label: Vec<String>,
    /// Lines that came since then: 1h, 2026-11-15, 2026-11-15T09:30:00Z
    #[arg(long, value_name = "WHEN", value_parser = parse_since, conflicts_with_all = ["follow", "raw", "stderr", "member", "task"])]
    since: Option<Moment>,
    /// Lines that came before then
    #[arg(long, value_name = "WHEN", value_parser = past, conflicts_with_all = ["follow", "raw", "stderr", "member", "task"])]
    until: Option<Moment>,
    /// Of jobs of this scope and below
    #[arg(long, conflicts_with_all = ["job", "follow", "raw", "stderr", "member", "task"])]
    scope: Option<String>,
    /// Show so many lines at most, the newest that fit
    #[arg(long, value_name = "N", default_value_t = 100, conflicts_with_all = ["follow", "raw", "stderr", "member", "task"])]
    last: u32,
    /// Write all that fit into this file, oldest first, - for here: as text, or as JSON lines where its name ends in .ndjson,
    /// .jsonl or .json
    #[arg(long, value_name = "FILE", conflicts_with_all = ["follow", "raw", "stderr", "member", "task", "last"])]
    export: Option<PathBuf>,
}

/// What lies behind is said in the same words.
fn past(text: &str) -> Result<Moment, String> {
    parse_since(text).or_else(|_| parse_until(text))
}

impl SearchArgs {
    /// Whether it is to be searched, rather than one job's log printed.
    pub fn is_asked(&self) -> bool {
        self.search.is_some()
            || self.level.is_some()
            || !self.label.is_empty()
            || self.since.is_some()
            || self.until.is_some()
            || self.scope.is_some()
            || self.export.is_some()
    }

    async fn query(&self, client: &Client, job: Option<&str>) -> Result<LogSearch, Failure> {
        if let Some(bad) = self
            .label
            .iter()
            .find(|label| !label.contains('=') || label.contains(','))
        {
            return Err(Failure::usage(format!(
                "{} is not a label; write it as key=value",
                safe(bad)
            )));
        }
        let scope = match &self.scope {
            Some(scope) => Some(resolve::scope(client, scope).await?.id.to_string()),
            None => None,
        };
        let job = match job {
            Some(job) => Some(resolve::job::job(client, job).await?.to_string()),
            None => None,
        };
        Ok(LogSearch {
            scope,
            job,
            level: self.level.clone(),
            label: (!self.label.is_empty()).then(|| self.label.join(",")),
            since: self.since.map(|moment| moment.to_string()),
            until: self.until.map(|moment| moment.to_string()),
            q: self.search.clone(),
            ..LogSearch::default()
        })
    }
}

pub async fn run(context: &Context, job: Option<&str>, args: SearchArgs) -> Result<(), Failure> {
    let client = context.client()?;
    let query = args.query(&client, job).await?;
    match &args.export {
        Some(file) => export(&client, query, file, &context.out).await,
        None => show(&client, query, args.last, &context.out).await,
    }
}

/// The newest that fit, oldest of them first, as one reads a log.
async fn show(client: &Client, mut query: LogSearch, last: u32, out: &Output) -> Result<(), Failure> {
    let mut found: Vec<LogLineView> = Vec::new();
    let mut more = true;
    let mut erased = None;
    while more && found.len() < last as usize {
        query.limit = Some((last - found.len() as u32).clamp(1, PAGE));
        let page: LogPage = client.search_logs(&query).await?;
        found.extend(page.items);
        (more, query.cursor, erased) = (page.more, page.next, page.erased_before);
    }
    found.reverse();
    match out.form {
        Form::Json => found.iter().try_for_each(|line| out.json_line(line))?,
        Form::Yaml => out.value(&found)?,
        Form::Name => found.iter().try_for_each(|line| out.line(&line.id))?,
        Form::Table | Form::Wide => found.iter().try_for_each(|line| print(out, line))?,
    }
    if more {
        out.note("there are earlier lines that fit; --last shows more of them, --export all");
    } else if let Some(before) = erased {
        out.note(format!(
            "lines from before {before} may have been erased; `tenure keeping show` says how long logs are kept"
        ));
    }
    Ok(())
}

fn print(out: &Output, line: &LogLineView) -> Result<(), Failure> {
    let at = line.at.to_string();
    let level = line.level.as_deref().unwrap_or("-");
    let paint = match level {
        "error" | "fatal" => Paint::Bad,
        "warn" => Paint::Busy,
        _ => Paint::Plain,
    };
    let level = out.paint(paint, &format!("{level:5}"));
    let mut from = safe(&line.name).into_owned();
    if let Some(task) = line.task {
        from.push_str(&format!("[{task}]"));
    }
    if out.wide() {
        from.push_str(&format!(
            " {} {} {}",
            line.job,
            safe(&line.node),
            safe(&line.stream)
        ));
    }
    out.line(format!(
        "{at} {level} {}  {}",
        out.paint(Paint::Dim, &from),
        safe(&line.text.replace('\t', "    "))
    ))
}

async fn export(client: &Client, mut query: LogSearch, file: &Path, out: &Output) -> Result<(), Failure> {
    let json = file
        .extension()
        .is_some_and(|end| ["ndjson", "jsonl", "json"].iter().any(|known| end == *known))
        || (file == Path::new("-") && out.form == Form::Json);
    query.order = Some("oldest".into());
    query.format = Some(if json { "ndjson" } else { "text" }.into());
    let pieces = client.export_logs(&query).await?;
    let mut pieces = std::pin::pin!(pieces);
    if file == Path::new("-") {
        let terminal = std::io::stdout().is_terminal();
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            // Already without what acts; a terminal is not trusted to know.
            if terminal {
                out.text(&crate::safe::safe_lines(&String::from_utf8_lossy(&piece)))?;
            } else {
                std::io::stdout().lock().write_all(&piece)?;
            }
        }
        return Ok(());
    }
    let failed =
        |error: std::io::Error| Failure::Local(format!("{}: {error}", safe(&file.to_string_lossy())));
    let mut to = File::options()
        .write(true)
        .create_new(true)
        .open(file)
        .map_err(failed)?;
    let mut lines = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        lines += piece.iter().filter(|byte| **byte == b'\n').count();
        to.write_all(&piece).map_err(failed)?;
    }
    to.sync_all().map_err(failed)?;
    out.note(format!("{lines} lines are in {}", safe(&file.to_string_lossy())));
    Ok(())
}
