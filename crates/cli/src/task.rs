//! `tenure tasks`: a job of tasks, task by task, and the flags that say how a job is cut.

use clap::Args as ClapArgs;
use clap_complete::engine::ArgValueCompleter;
use tenure_api::client::Client;
use tenure_api::v1::job::JobView;
use tenure_api::v1::task::{TaskQuery, TasksView};
use tenure_domain::workload::Workload;
use tenure_domain::workload::task::cut::Cut;

use crate::completion::complete_jobs;
use crate::context::Context;
use crate::job::{phase, print_list};
use crate::moment::{ago, full, length, now};
use crate::output::{Form, Paint};
use crate::refusal::Failure;
use crate::safe::safe;
use crate::table::{Table, figure, text};
use crate::{resolve, units};

#[derive(Debug, Clone, Default, ClapArgs)]
#[command(next_help_heading = "How it is cut")]
pub struct CutArgs {
    /// Tasks at once at most
    #[arg(long, value_name = "N")]
    parallel: Option<u32>,
    /// Frames or segments of each task; chosen so that a task is minutes long unless said
    #[arg(long, value_name = "N")]
    per_task: Option<u64>,
    /// How often a frame or a segment is tried
    #[arg(long, value_name = "N")]
    tries: Option<u32>,
    /// End with the first frame or segment that fails for good
    #[arg(long)]
    fail_fast: bool,
    /// Not cut at all: one program does everything
    #[arg(long, conflicts_with_all = ["parallel", "per_task", "tries", "fail_fast"])]
    whole: bool,
}

impl CutArgs {
    /// What the flags say together; nothing where none says anything.
    pub fn cut(&self, workload: Option<&Workload>) -> Result<Option<Cut>, Failure> {
        let cut = Cut {
            parallel: self.parallel,
            per_task: self.per_task,
            tries: self.tries,
            fail_fast: self.fail_fast,
            whole: self.whole,
        };
        let cut = Some(cut).filter(|cut| *cut != Cut::default());
        if cut.is_some() && workload.and_then(Workload::pieces).is_none() {
            return Err(Failure::usage("only frames and segments are cut into tasks")
                .hint("give --frames 1-240, or --duration 90m"));
        }
        Ok(cut)
    }
}

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[arg(add = ArgValueCompleter::new(complete_jobs))]
    job: String,
    /// Only those that failed
    #[arg(long)]
    failed: bool,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let client = context.client()?;
    let id = resolve::job::job(&client, &args.job).await?.to_string();
    let job = client.job(&id).await?;
    let mut tasks = all(&client, &id).await?;
    tasks.retain(|task| !args.failed || task.outcome.as_ref().is_some_and(|outcome| !outcome.is_success()));
    if let (Form::Table | Form::Wide, Some(progress)) = (context.out.form, &job.tasks)
        && !context.out.quiet
    {
        context.out.say(&safe(&said(progress)));
    }
    if job.spec.service.is_some() {
        return print_list(context, &tasks, "no replicas now");
    }
    context.out.list(
        &tasks,
        |task| task.id.to_string(),
        "no tasks",
        |tasks| {
            let heads = match job.tasks.as_ref().is_some_and(|tasks| tasks.piece == "segment") {
                true => [
                    "TASK",
                    "SEGMENTS",
                    "PHASE",
                    "TRY",
                    "RAN",
                    "COST",
                    "COST A SEGMENT",
                    "JOB",
                    "SUBMITTED",
                ],
                false => [
                    "TASK",
                    "FRAMES",
                    "PHASE",
                    "TRY",
                    "RAN",
                    "COST",
                    "COST A FRAME",
                    "JOB",
                    "SUBMITTED",
                ],
            };
            let mut table = Table::new(&heads);
            let now = now();
            for job in tasks {
                let Some(task) = &job.task else { continue };
                table.row(vec![
                    figure(task.number),
                    text(&task.pieces),
                    phase(job),
                    figure(task.tries + 1),
                    figure(length(job.ran_ms)),
                    figure(units::show_money(job.charged_micros, "")),
                    figure(units::show_money(task.each_micros, "")),
                    text(job.id.to_string()),
                    text(ago(job.submitted, now)),
                ]);
            }
            table
        },
    )
}

/// All tasks of a job, in the order they were made.
pub async fn all(client: &Client, job: &str) -> Result<Vec<JobView>, Failure> {
    let mut tasks = resolve::all(async |cursor| {
        let query = TaskQuery {
            limit: Some(1000),
            cursor,
        };
        client.job_tasks(job, &query).await
    })
    .await?;
    tasks.sort_by_key(|job| job.task.as_ref().map(|task| task.number));
    tasks.dedup_by_key(|job| job.id);
    Ok(tasks)
}

/// How far it is, in a line.
pub fn said(tasks: &TasksView) -> String {
    let mut words = vec![format!("{} of {} {}s done", tasks.done, tasks.total, tasks.piece)];
    for (count, what) in [
        (tasks.running, "running"),
        (tasks.waiting, "waiting"),
        (tasks.failed, "failed"),
    ] {
        if count > 0 {
            words.push(format!("{count} {what}"));
        }
    }
    match tasks.retries {
        0 => {}
        1 => words.push("1 retry".into()),
        retries => words.push(format!("{retries} retries")),
    }
    words.join(", ")
}

/// What a job of tasks shows beside what any job does.
pub fn fields(table: &mut Table, tasks: &TasksView) {
    let now = now();
    table.field("progress", said(tasks));
    if let Some(failed) = &tasks.failed_pieces {
        let words = format!("{}s {}", tasks.piece, safe(failed));
        table.field("failed", text(words).paint(Paint::Bad));
    }
    let at_once = match tasks.tasks_running + tasks.tasks_waiting {
        0 => String::new(),
        _ => format!(
            ", {} running and {} waiting now",
            tasks.tasks_running, tasks.tasks_waiting
        ),
    };
    table.field(
        "tasks",
        format!(
            "{} so far, of {} {}s each, {} at once at most{at_once}",
            tasks.made, tasks.per_task, tasks.piece, tasks.parallel
        ),
    );
    if let Some(eta) = &tasks.eta {
        table.field("eta", format!("{}, {}", full(eta.at, now), eta.basis.words()));
    }
    if let (Some(each_ms), Some(each_micros)) = (tasks.each_ms, tasks.each_micros) {
        let words = format!(
            "{} a {}, which ran for {}",
            units::show_money(each_micros, ""),
            tasks.piece,
            length(each_ms)
        );
        table.field("each", words);
    }
}
