//! `tenure logs`: what a job wrote. On a terminal, escapes in it are shown and not obeyed. Searching all one's logs is in
//! `search`.

mod search;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use clap::Args as ClapArgs;
use clap_complete::engine::ArgValueCompleter;
use futures_util::StreamExt;
use tenure_api::client::{Client, ClientError};
use tenure_api::v1::job::LogQuery;

use crate::completion::complete_jobs;
use crate::context::Context;
use crate::refusal::Failure;
use crate::safe::{LogFilter, safe};
use crate::{resolve, task};

/// How long a broken connection is tried again before it is given up.
const PATIENCE: u32 = 20;

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Whose log is printed, or searched; all jobs you may read are searched unless said
    #[arg(add = ArgValueCompleter::new(complete_jobs))]
    job: Option<String>,
    #[command(flatten)]
    search: search::SearchArgs,
    /// Go on until the job ends
    #[arg(short, long)]
    follow: bool,
    /// What it wrote to stderr
    #[arg(long)]
    stderr: bool,
    /// Pass terminal escapes through
    #[arg(long)]
    raw: bool,
    /// What this member wrote, of a job over several nodes
    #[arg(long, default_value_t = 0, value_name = "N")]
    member: u32,
    /// What this task wrote, of a job of tasks; all of them, one after the other, unless said
    #[arg(long, value_name = "N")]
    task: Option<u32>,
}

/// A member as it is asked for: the first need not be named.
pub fn said(member: u32) -> Option<u32> {
    (member > 0).then_some(member)
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    if args.search.is_asked() {
        return search::run(context, args.job.as_deref(), args.search).await;
    }
    let Some(job) = &args.job else {
        return Err(Failure::usage("it is not said which job")
            .hint("name one, or search all with --search TEXT, --level, --label or --since"));
    };
    let client = context.client()?;
    let job = resolve::job::job(&client, job).await?;
    let stream = if args.stderr {
        Stream::Stderr
    } else {
        Stream::Stdout
    };
    let mut to = Sink::new(Stream::Stdout, args.raw);
    let id = job.to_string();
    let from = Written {
        job: &id,
        member: args.member,
        task: args.task,
        stream,
    };
    if args.task.is_none() && client.job(&id).await?.tasks.is_some() {
        if args.follow {
            return Err(Failure::usage(
                "it is a job of tasks, each with a log of its own; say which to follow",
            )
            .hint("--task N; `tenure tasks` lists them"));
        }
        return of_tasks(context, &client, from, &mut to).await;
    }
    copy(&client, from, args.follow, &mut 0, &mut to).await?;
    to.finish()
}

/// The logs of all tasks of a job, in the order they were made.
async fn of_tasks(
    context: &Context,
    client: &Client,
    from: Written<'_>,
    to: &mut Sink,
) -> Result<(), Failure> {
    for job in task::all(client, from.job).await? {
        let Some(task) = &job.task else { continue };
        let title = format!("task {}: {}", task.number, safe(&task.pieces));
        context.out.note(title);
        let id = job.id.to_string();
        let of_task = Written { job: &id, ..from };
        match copy(client, of_task, false, &mut 0, to).await {
            // One that never ran has no log.
            Err(Failure::Refused(problem)) if problem.status == 404 => {}
            copied => copied?,
        }
    }
    to.finish()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// One of our own streams, guarded when it is a terminal.
pub struct Sink {
    to: Stream,
    filter: Option<LogFilter>,
}

impl Sink {
    pub fn new(to: Stream, raw: bool) -> Sink {
        let terminal = match to {
            Stream::Stdout => std::io::stdout().is_terminal(),
            Stream::Stderr => std::io::stderr().is_terminal(),
        };
        Sink {
            to,
            filter: (terminal && !raw).then(LogFilter::default),
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let filtered = self.filter.as_mut().map(|filter| filter.pass(bytes).into_bytes());
        let bytes = filtered.as_deref().unwrap_or(bytes);
        match self.to {
            Stream::Stdout => flushed(std::io::stdout().lock(), bytes)?,
            Stream::Stderr => flushed(std::io::stderr().lock(), bytes)?,
        }
        Ok(())
    }

    pub fn finish(&mut self) -> Result<(), Failure> {
        let left = self.filter.as_mut().map(LogFilter::finish).unwrap_or_default();
        if left.is_empty() {
            Ok(())
        } else {
            self.write(left.as_bytes())
        }
    }
}

fn flushed(mut to: impl Write, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// What is read: one stream of one member of a job.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    pub job: &'a str,
    pub member: u32,
    pub task: Option<u32>,
    pub stream: Stream,
}

/// Copies a job's stream from `offset` on, and keeps `offset` at what was copied: a connection that breaks is
/// taken up again where it broke.
pub async fn copy(
    client: &Client,
    from: Written<'_>,
    follow: bool,
    offset: &mut u64,
    to: &mut Sink,
) -> Result<(), Failure> {
    let mut tries = 0;
    loop {
        let query = LogQuery {
            stream: Some(
                if from.stream == Stream::Stderr {
                    "stderr"
                } else {
                    "stdout"
                }
                .into(),
            ),
            offset: Some(*offset),
            tail: None,
            follow: Some(follow),
            member: said(from.member),
            task: from.task,
        };
        let broken = match client.logs(from.job, &query).await {
            Ok(pieces) => {
                let mut pieces = std::pin::pin!(pieces);
                let mut broken = None;
                while let Some(piece) = pieces.next().await {
                    match piece {
                        Ok(bytes) => {
                            tries = 0;
                            *offset += bytes.len() as u64;
                            to.write(&bytes)?;
                        }
                        Err(error) => {
                            broken = Some(error);
                            break;
                        }
                    }
                }
                match broken {
                    None => return Ok(()),
                    Some(error) => error,
                }
            }
            Err(error) => error,
        };
        let lost = matches!(&broken, ClientError::Unreachable { .. })
            || matches!(&broken, ClientError::Refused(problem) if problem.status >= 500);
        tries += 1;
        if !follow || !lost || tries > PATIENCE {
            return Err(broken.into());
        }
        tokio::time::sleep(Duration::from_millis(100 * u64::from(tries).pow(2)).min(Duration::from_secs(3)))
            .await;
    }
}
