//! `tenure ps`, `show`, `stop` and `why`: jobs, live and done.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use tenure_api::v1::job::{JobPhase, JobQuery, JobView, MemberView, Waiting, Why};
use tenure_domain::schedule::when::Basis;
use tenure_domain::storage::volume::VolumeUse;
use tenure_domain::workload::job::{Outcome, StopReason};
use tenure_domain::workload::member::MemberEnd;
use tenure_domain::workload::usage::Usage;

use crate::completion::complete_jobs;
use crate::context::Context;
use crate::moment::{ago, full, length, now};
use crate::output::{Form, Paint};
use crate::refusal::{Failure, JOB_FAILED};
use crate::safe::safe;
use crate::table::{Table, Text, figure, text};
use crate::{demand, resolve, service, task, units, workload};

#[derive(Debug, Args)]
pub struct ListArgs {
    /// Also those that are done
    #[arg(short, long)]
    all: bool,
    /// Only jobs of this scope and below
    #[arg(long)]
    scope: Option<String>,
    /// Also the tasks of live jobs, each as the job it is
    #[arg(long)]
    tasks: bool,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    #[arg(add = ArgValueCompleter::new(complete_jobs))]
    job: String,
}

#[derive(Debug, Args)]
pub struct JobsArgs {
    #[arg(required = true, value_name = "JOB", add = ArgValueCompleter::new(complete_jobs))]
    jobs: Vec<String>,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    #[arg(add = ArgValueCompleter::new(complete_jobs))]
    job: String,
}

pub async fn list(context: &Context, args: ListArgs) -> Result<(), Failure> {
    let client = context.client()?;
    let scope = match &args.scope {
        Some(scope) => Some(resolve::scope(&client, scope).await?.id.to_string()),
        None => None,
    };
    let show = Some(if args.all { "all" } else { "live" }.to_owned());
    let mut jobs = resolve::all(async |cursor| {
        let query = JobQuery {
            scope: scope.clone(),
            show: show.clone(),
            tasks: args.tasks.then_some(true),
            limit: Some(1000),
            cursor,
        };
        client.jobs(&query).await
    })
    .await?;
    jobs.sort_by_key(|job| std::cmp::Reverse(job.id));
    let empty = if args.all {
        "no jobs"
    } else {
        "no live jobs; `tenure ps -a` shows those that are done"
    };
    print_list(context, &jobs, empty)
}

pub fn print_list(context: &Context, jobs: &[JobView], empty: &str) -> Result<(), Failure> {
    let wide = context.out.wide();
    context.out.list(
        jobs,
        |job| job.id.to_string(),
        empty,
        |jobs| {
            let mut table = Table::new(if wide {
                &[
                    "JOB",
                    "NAME",
                    "PHASE",
                    "OWNER",
                    "NEEDS",
                    "NODE",
                    "TRY",
                    "RAN",
                    "COST",
                    "SUBMITTED",
                ]
            } else {
                &["JOB", "NAME", "PHASE", "OWNER", "RAN", "SUBMITTED"]
            });
            let now = now();
            for job in jobs {
                let mut row = vec![
                    text(job.id.to_string()),
                    text(named(job)),
                    phase(job),
                    text(&job.owner_path),
                ];
                if wide {
                    let node = nodes_said(job);
                    row.extend([
                        text(demand::said(&job.spec.demand)),
                        text(node),
                        figure(job.attempt),
                    ]);
                }
                row.push(figure(ran(job, now)));
                if wide {
                    row.push(figure(units::show_money(job.charged_micros, "")));
                }
                row.push(text(ago(job.submitted, now)));
                table.row(row);
            }
            table
        },
    )
}

/// Its name, and how far it is or which part of another it is.
fn named(job: &JobView) -> String {
    let name = &job.spec.name;
    match (&job.tasks, &job.task) {
        (Some(tasks), _) => format!("{name} {}/{}", tasks.done, tasks.total),
        (None, Some(task)) => format!("{name} #{}", task.number),
        (None, None) => name.clone(),
    }
}

/// Where it is, a node once.
fn nodes_said(job: &JobView) -> String {
    let mut nodes: Vec<&str> = match job.members.is_empty() {
        true => job.allocation.iter().map(|a| a.node_name.as_str()).collect(),
        false => job.members.iter().map(|m| m.node_name.as_str()).collect(),
    };
    nodes.dedup();
    match nodes.is_empty() {
        true => "–".to_owned(),
        false => nodes.join(","),
    }
}

/// One member in a line.
fn member_said(member: &MemberView) -> String {
    let slices = member.slices.iter().map(|slice| {
        let share = units::show_permille(slice.compute_permille.into());
        format!(", {share} of {}", slice.gpu)
    });
    let state = match &member.end {
        None => member.phase.as_str().to_owned(),
        Some(MemberEnd::Exited {
            exit_code: Some(code),
            ..
        }) => format!("ended with exit code {code}"),
        Some(MemberEnd::Exited {
            signal: Some(signal), ..
        }) => format!("ended by signal {signal}"),
        Some(MemberEnd::Exited { .. }) => "ended".to_owned(),
        Some(MemberEnd::NotStarted { why }) => format!("could not be started: {}", safe(why)),
        Some(MemberEnd::Lost { why }) => format!("lost: {}", safe(why)),
    };
    let slices: String = slices.collect();
    format!(
        "{} on {}: {state}{slices}",
        member.member,
        safe(&member.node_name)
    )
}

/// How long it ran; while it runs, until now.
fn ran(job: &JobView, now: tenure_domain::Time) -> String {
    match (job.phase, job.started) {
        (JobPhase::Running | JobPhase::Stopping, Some(started)) => {
            length(now.since_ms(started.0).max(job.ran_ms))
        }
        _ if job.ran_ms == 0 => "–".into(),
        _ => length(job.ran_ms),
    }
}

pub fn phase(job: &JobView) -> Text {
    match (&job.outcome, job.phase) {
        (Some(Outcome::Succeeded), _) => text("succeeded").paint(Paint::Good),
        (Some(Outcome::Cancelled), _) => text("cancelled").paint(Paint::Dim),
        (Some(outcome), _) => text(outcome.as_str().replace('_', " ")).paint(Paint::Bad),
        (None, phase @ (JobPhase::Queued | JobPhase::Stopping | JobPhase::Pausing | JobPhase::Paused)) => {
            text(phase.as_str()).paint(Paint::Busy)
        }
        (None, phase @ JobPhase::Running) => text(phase.as_str()).paint(Paint::Good),
        (None, phase) => text(phase.as_str()),
    }
}

pub async fn show(context: &Context, args: ShowArgs) -> Result<(), Failure> {
    let client = context.client()?;
    let id = resolve::job::job(&client, &args.job).await?;
    let job = client.job(&id.to_string()).await?;
    print_one(context, &job)
}

pub fn print_one(context: &Context, job: &JobView) -> Result<(), Failure> {
    context.out.one(job, |job| job.id.to_string(), fields)
}

fn fields(job: &JobView) -> Table {
    let now = now();
    let spec = &job.spec;
    let mut table = Table::fields();
    table
        .field("job", text(job.id.to_string()).paint(Paint::Bold))
        .field("name", spec.name.as_str())
        .field("phase", phase(job));
    table.field_if("outcome", job.outcome.as_ref().map(outcome_said));
    if let Some(tasks) = &job.tasks {
        task::fields(&mut table, tasks);
    }
    table.field_if(
        "task",
        job.task.as_ref().map(|task| {
            let again = match task.tries {
                0 => String::new(),
                tries => format!(", tried {tries} times before"),
            };
            format!("{} of {}: {}{again}", task.number, task.of, safe(&task.pieces))
        }),
    );
    table.field_if(
        "stopping",
        job.stopping.map(|reason| stop_said(reason).to_owned()),
    );
    if let Some(waiting) = &job.waiting {
        table.field("waits", format!("{} [{}]", waiting.sentence, waiting.code));
        table.field_if("hint", waiting.hint.clone());
    }
    if let Some(service) = &job.service {
        service::fields(&mut table, service);
    }
    table.field("owner", job.owner_path.as_str());
    table.field(
        "kind",
        format!("{}, {} priority", spec.kind.as_str(), spec.priority.as_str()),
    );
    table.field_if("image", spec.image.clone());
    table.field(
        "command",
        if spec.command.is_empty() {
            "the image's own".to_owned()
        } else {
            quoted(&spec.command)
        },
    );
    table.field_if("workdir", spec.workdir.clone());
    table.field_if("env", joined(spec.env.keys()));
    table.field_if("secrets", joined(spec.secrets.keys()));
    let volumes: Vec<String> = spec.volumes.iter().map(volume_said).collect();
    table.field_if("volumes", joined(volumes.iter()));
    table.field("needs", demand::said(&spec.demand));
    if let Some(derivation) = &job.derivation {
        table.field("derived", workload::said(derivation));
        for differs in &derivation.differs {
            table.field("note", differs.as_str());
        }
    }
    table.field_if("sku", spec.sku.clone());
    table.field_if("outgrew", outgrew(job));
    table.field(
        "limit",
        format!(
            "{}, then {} to end",
            length(spec.run_time_s * 1000),
            length(u64::from(spec.grace_s) * 1000)
        ),
    );
    for member in &job.members {
        table.field("member", member_said(member));
    }
    if let Some(allocation) = &job.allocation {
        if job.members.is_empty() {
            table.field("node", allocation.node_name.as_str());
        }
        for slice in allocation.slices.iter().filter(|_| job.members.is_empty()) {
            let part = format!(
                "{} of {}, {}",
                units::show_permille(slice.compute_permille.into()),
                slice.gpu,
                units::show_mib(slice.vram_mib)
            );
            table.field("slice", part);
        }
        table.field(
            "isolation",
            format!("{}: {}", allocation.isolation.as_str(), allocation.isolation_why),
        );
        table.field(
            "price",
            format!("{} an hour", units::show_money(allocation.hourly_micros, "")),
        );
    }
    table.field("submitted", full(job.submitted, now));
    table.field_if("started", job.started.map(|at| full(at, now)));
    table.field_if("saved", job.saved.map(|at| full(at, now)));
    table.field_if("ended", job.ended.map(|at| full(at, now)));
    table.field_if("trace", job.trace_id.clone());
    table
        .field("try", format!("{} of {}", job.attempt, spec.max_attempts))
        .field("ran", ran(job, now));
    let held = if job.held_micros > 0 {
        format!(", {} set aside", units::show_money(job.held_micros, ""))
    } else {
        String::new()
    };
    table.field(
        "cost",
        format!("{}{held}", units::show_money(job.charged_micros, "")),
    );
    table.field_if(
        "gpu time",
        (job.gpu_ms > 0).then(|| units::show_gpu_ms(job.gpu_ms)),
    );
    if let Some(usage) = &job.usage {
        used(&mut table, job, usage);
    }
    table
}

/// A job whose allocations were refused at its limit and that did not succeed is told so.
fn outgrew(job: &JobView) -> Option<String> {
    let refusals = job.usage.map_or(0, |usage| usage.refusals);
    let failed = matches!(job.outcome, Some(Outcome::Failed { .. } | Outcome::OverLimit));
    (failed && refusals > 0).then(|| {
        let had = units::show_mib(job.spec.demand.vram_mib);
        let grow = match job.spec.grow {
            true => "it grew as far as it may",
            false => "ask for more, or let it grow with --grow",
        };
        format!("device memory was refused {refusals} times at its limit of {had}; {grow}")
    })
}

/// What it did with its devices in the time that was metered.
fn used(table: &mut Table, job: &JobView, usage: &Usage) {
    let gpu_time_ms = job.ran_ms.saturating_mul(job.spec.demand.gpus_total());
    let share = |ms: u64| {
        let permille = (u128::from(ms) * 1000)
            .checked_div(gpu_time_ms.into())
            .unwrap_or(0);
        units::show_permille(permille.min(1000) as u32)
    };
    table.field(
        "gpu busy",
        format!(
            "{} of the time it ran, {} launches",
            share(usage.busy_ms),
            usage.launches
        ),
    );
    if usage.throttled_ms > 0 || usage.waited_ms > 0 {
        table.field(
            "held back",
            format!(
                "{} by its own limit, {} by the turns of others",
                share(usage.throttled_ms),
                share(usage.waited_ms)
            ),
        );
    }
    let limit = match job.spec.demand.vram_mib {
        0 => String::new(),
        limit => format!(" of {}", units::show_mib(limit)),
    };
    table.field(
        "peak vram",
        format!("{}{limit}", units::show_mib(usage.peak_vram_mib)),
    );
    if usage.refusals > 0 || usage.denials > 0 {
        table.field(
            "refused",
            format!(
                "{} allocations of memory, {} calls",
                usage.refusals, usage.denials
            ),
        );
    }
}

fn joined<'a>(names: impl Iterator<Item = &'a String>) -> Option<String> {
    let names: Vec<&str> = names.map(String::as_str).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// A volume as one could type it.
fn volume_said(volume: &VolumeUse) -> String {
    let mode = if volume.read_only { ":ro" } else { "" };
    format!("{}{mode}", volume.name)
}

/// The command as one could type it.
fn quoted(command: &[String]) -> String {
    let quote = |part: &String| {
        let plain = !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte));
        if plain {
            part.clone()
        } else {
            format!("'{}'", part.replace('\'', r"'\''"))
        }
    };
    command.iter().map(quote).collect::<Vec<_>>().join(" ")
}

pub fn outcome_said(outcome: &Outcome) -> String {
    let who = |member: &Option<u32>| member.map_or_else(String::new, |member| format!("member {member} "));
    match outcome {
        Outcome::Succeeded => "succeeded".into(),
        Outcome::Failed {
            exit_code: Some(code),
            member,
            ..
        } => format!("{}failed with exit code {code}", who(member)),
        Outcome::Failed {
            signal: Some(signal),
            member,
            ..
        } => format!("{}ended by signal {signal}", who(member)),
        Outcome::Failed { member, .. } => format!("{}failed", who(member)),
        Outcome::NotStarted { why, member } => format!("{}could not be started: {why}", who(member)),
        Outcome::Cancelled => "cancelled".into(),
        Outcome::TimedOut => "ended at its run-time limit".into(),
        Outcome::OverLimit => "ended for using more than it was given; its log says of what".into(),
        Outcome::GaveUp { attempts } => {
            format!("given up after {attempts} tries that failed through no fault of its own")
        }
        Outcome::TasksFailed { pieces, count: 1 } => format!("failed at {pieces}"),
        Outcome::TasksFailed { pieces, count } => format!("failed at {count}: {pieces}"),
    }
}

fn stop_said(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Cancelled => "somebody stopped it",
        StopReason::RunTime => "it ran as long as it may",
        StopReason::OverLimit => "it used more than it was given",
        StopReason::Evicted => {
            "it gives way to others, or its node is taken out of service; it returns to the queue"
        }
        StopReason::MemberFailed => "a part of it failed, and the others do not go on without it",
    }
}

/// What is done to jobs that are named.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    Stop,
    Pause,
    Resume,
}

pub async fn change(context: &Context, args: JobsArgs, change: Change) -> Result<(), Failure> {
    let client = context.client()?;
    let mut changed = Vec::new();
    for name in &args.jobs {
        let id = resolve::job::job(&client, name).await?.to_string();
        changed.push(match change {
            Change::Stop => client.stop_job(&id).await?,
            Change::Pause => client.pause_job(&id).await?,
            Change::Resume => client.resume_job(&id).await?,
        });
    }
    print_list(context, &changed, "")
}

pub async fn why(context: &Context, args: WhyArgs) -> Result<(), Failure> {
    let client = context.client()?;
    let id = resolve::job::job(&client, &args.job).await?;
    let why = client.why(&id.to_string()).await?;
    match context.out.form {
        Form::Json | Form::Yaml => context.out.value(&why),
        Form::Name => context.out.line(why.job),
        Form::Table | Form::Wide => match &why.waiting {
            Some(waiting) => {
                let mut said = waiting_said(&context.out, why.job, why.phase, waiting);
                said += &when_said(&context.out, &why);
                context.out.text(&said)
            }
            None => context.out.line(format!(
                "{} is {}: {}",
                why.job,
                why.phase.as_str(),
                safe(&why.sentence)
            )),
        },
    }
}

/// A "not yet" in the form of a "no".
fn waiting_said(
    out: &crate::output::Output,
    job: impl std::fmt::Display,
    phase: JobPhase,
    waiting: &Waiting,
) -> String {
    let head = out.paint(Paint::Busy, phase.as_str());
    let code = out.paint(Paint::Dim, &format!("[{}]", safe(&waiting.code)));
    let mut said = format!("{job} is {head}: {}  {code}\n", safe(&waiting.sentence));
    if let Some(hint) = &waiting.hint {
        said += &format!("  {} {}\n", out.paint(Paint::Dim, "hint:"), safe(hint));
    }
    said
}

/// When it is likely to start, by what that is said, and what would let it start now or sooner.
fn when_said(out: &crate::output::Output, why: &Why) -> String {
    let mut said = String::new();
    let head = out.paint(Paint::Dim, "starts:");
    if let Some(starts) = &why.starts {
        let to = &starts.to;
        let about = |ahead: u64, of: &str, seen: u64, permille: u64| {
            let jobs = match ahead {
                0 => "nobody is ahead of it".to_owned(),
                1 => "one job is ahead of it".to_owned(),
                n => format!("{n} jobs are ahead of it"),
            };
            let rests_on = match seen {
                0 => "by rule of thumb".to_owned(),
                n => format!("as {} in 100 of {n} such waits turned out", permille / 10),
            };
            format!("  {head} about {} to {to}: {of}{jobs}; {rests_on}\n", starts.from)
        };
        said += &match &starts.basis {
            Basis::Promise { .. } => format!("  {head} by {to}: room is being made for it\n"),
            Basis::Limit { job } => {
                let job = job.map_or_else(|| "another job".to_owned(), |job| job.to_string());
                format!("  {head} by {to} at the latest: {job} reaches its run-time limit then\n")
            }
            Basis::Rule {
                ahead,
                seen,
                permille,
            } => about(*ahead, "", *seen, *permille),
            Basis::Quota {
                scope,
                ahead,
                seen,
                permille,
            } => {
                let of = format!("running jobs give back quota of {}; ", safe(scope));
                about(*ahead, &of, *seen, *permille)
            }
            Basis::Budget {
                scope,
                turns,
                ahead,
                seen,
                permille,
            } => {
                let of = match turns {
                    true => format!("the budget of {} begins anew; ", safe(scope)),
                    false => format!(
                        "running jobs return what they do not use of the budget of {}; ",
                        safe(scope)
                    ),
                };
                about(*ahead, &of, *seen, *permille)
            }
            Basis::Window => format!(
                "  {head} about {} to {to}: by the windows of its booking\n",
                starts.from
            ),
        };
    }
    if let Some(unforeseen) = &why.unforeseen {
        said += &format!("  {head} {}\n", safe(&unforeseen.sentence));
    }
    for way in &why.instead {
        let when = match (way.evicts, &way.starts) {
            (true, _) => "as soon as others have left for it".to_owned(),
            (false, Some(starts)) => format!("about {} to {}", starts.from, starts.to),
            (false, None) => "now".to_owned(),
        };
        let head = out.paint(Paint::Dim, "or:");
        said += &format!("  {head} {}: {when}\n", safe(&way.change));
    }
    said
}

/// The exit code that stands for how a job ended: its own where it had one.
pub fn exit_code(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Succeeded => 0,
        Outcome::Failed {
            exit_code: Some(code),
            ..
        } => u8::try_from(*code & 0xff)
            .ok()
            .filter(|&code| code != 0)
            .unwrap_or(JOB_FAILED),
        Outcome::Failed {
            signal: Some(signal), ..
        } => u8::try_from(128 + (*signal & 0x7f)).unwrap_or(JOB_FAILED),
        _ => JOB_FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_own_code_is_passed_through() {
        let failed = |exit_code, signal| Outcome::Failed {
            exit_code,
            signal,
            member: None,
        };
        assert_eq!(exit_code(&Outcome::Succeeded), 0);
        assert_eq!(exit_code(&failed(Some(42), None)), 42);
        assert_eq!(
            exit_code(&failed(Some(256), None)),
            JOB_FAILED,
            "a failure is never passed on as success"
        );
        assert_eq!(exit_code(&failed(Some(-1), None)), 255);
        assert_eq!(exit_code(&failed(None, Some(9))), 137);
        assert_eq!(exit_code(&Outcome::TimedOut), JOB_FAILED);
    }

    #[test]
    fn commands_are_shown_as_typed() {
        let parts = ["sh", "-c", "echo 'hi' $X", ""].map(str::to_owned);
        assert_eq!(quoted(&parts), r"sh -c 'echo '\''hi'\'' $X' ''");
    }
}
