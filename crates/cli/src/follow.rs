//! Following one job from its submission to its end: why it waits, what it writes, how it ended.

use std::time::Duration;

use tenure_api::client::{Client, ClientError};
use tenure_api::v1::job::{JobPhase, JobView};
use tenure_domain::workload::job::Outcome;

use crate::context::Context;
use crate::logs::{self, Sink, Stream, Written};
use crate::output::Paint;
use crate::refusal::Failure;
use crate::safe::safe;
use crate::task;

const FIRST_PAUSE: Duration = Duration::from_millis(40);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How many answers in a row may fail before the server is given up.
const PATIENCE: u32 = 30;

/// How far each stream was copied; kept over tries and broken connections.
#[derive(Default)]
struct Copied {
    stdout: u64,
    stderr: u64,
}

/// Follows the job to its end.
pub async fn follow(context: &Context, client: &Client, job: JobView, raw: bool) -> Result<Outcome, Failure> {
    if job.tasks.is_some() {
        return until_done(context, client, job).await;
    }
    let id = job.id.to_string();
    let mut watch = Watch {
        context,
        client,
        said: None,
        failed: 0,
    };
    let mut copied = Copied::default();
    let (mut stdout, mut stderr) = (Sink::new(Stream::Stdout, raw), Sink::new(Stream::Stderr, raw));
    let mut job = job;
    loop {
        watch
            .until(job, |job| {
                matches!(job.phase, JobPhase::Running | JobPhase::Stopping | JobPhase::Done)
            })
            .await?;
        // A job that is over already may have said something all the same.
        let of = |stream| Written {
            job: &id,
            member: 0,
            task: None,
            stream,
        };
        let out = logs::copy(client, of(Stream::Stdout), true, &mut copied.stdout, &mut stdout);
        let err = logs::copy(client, of(Stream::Stderr), true, &mut copied.stderr, &mut stderr);
        let (out, err) = tokio::join!(out, err);
        absent_is_empty(out)?;
        absent_is_empty(err)?;
        // The streams end with the job, or with a try of it that gave way; then it is waited for again.
        job = watch
            .until(client.job(&id).await?, |job| {
                job.outcome.is_some() || job.phase == JobPhase::Queued
            })
            .await?;
        if let Some(outcome) = &job.outcome {
            stdout.finish()?;
            stderr.finish()?;
            return Ok(outcome.clone());
        }
        context.out.note(format!(
            "the job lost its place and is back in the queue (try {})",
            job.attempt
        ));
    }
}

/// Waits, saying why, until the job runs or is over.
pub async fn until_running(context: &Context, client: &Client, job: JobView) -> Result<JobView, Failure> {
    let mut watch = Watch {
        context,
        client,
        said: None,
        failed: 0,
    };
    let wanted = |job: &JobView| matches!(job.phase, JobPhase::Running | JobPhase::Stopping | JobPhase::Done);
    watch.until(job, wanted).await
}

/// Waits until it is known how the job ended.
pub async fn until_done(context: &Context, client: &Client, job: JobView) -> Result<Outcome, Failure> {
    let mut watch = Watch {
        context,
        client,
        said: None,
        failed: 0,
    };
    let job = watch.until(job, |job| job.outcome.is_some()).await?;
    job.outcome
        .ok_or_else(|| Failure::Local("the job is not over".into()))
}

/// A job that never wrote may have no log at all.
fn absent_is_empty(copied: Result<(), Failure>) -> Result<(), Failure> {
    match copied {
        Err(Failure::Refused(problem)) if problem.status == 404 => Ok(()),
        other => other,
    }
}

struct Watch<'a> {
    context: &'a Context,
    client: &'a Client,
    /// What was said last, so that it is said once.
    said: Option<String>,
    failed: u32,
}

impl Watch<'_> {
    /// Asks again and again, less often with time, until the job is as wanted.
    async fn until(&mut self, mut job: JobView, done: impl Fn(&JobView) -> bool) -> Result<JobView, Failure> {
        let mut pause = FIRST_PAUSE;
        while !done(&job) {
            self.say(&job);
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
            match self.client.job(&job.id.to_string()).await {
                Ok(next) => {
                    self.failed = 0;
                    job = next;
                }
                Err(error @ ClientError::Unreachable { .. }) => {
                    self.failed += 1;
                    if self.failed == 1 {
                        self.context.out.note("the server does not answer; trying again");
                    }
                    if self.failed > PATIENCE {
                        return Err(error.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(job)
    }

    fn say_progress(&mut self, line: &str) {
        if self.said.as_deref() == Some(line) {
            return;
        }
        let out = &self.context.out;
        if !out.quiet {
            out.say(&safe(line));
        }
        self.said = Some(line.to_owned());
    }

    fn say(&mut self, job: &JobView) {
        if let (Some(tasks), None) = (&job.tasks, &job.waiting) {
            return self.say_progress(&task::said(tasks));
        }
        let Some(waiting) = &job.waiting else { return };
        let line = format!("{}  [{}]", safe(&waiting.sentence), safe(&waiting.code));
        if self.said.as_ref() == Some(&line) {
            return;
        }
        let out = &self.context.out;
        if !out.quiet {
            out.say(&format!("{} {line}", out.paint_note(Paint::Busy, "waiting:")));
            if let Some(hint) = &waiting.hint {
                out.note(format!("  hint: {}", safe(hint)));
            }
        }
        self.said = Some(line);
    }
}
