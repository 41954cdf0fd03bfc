//! `tenure run`: a command as a job. Prints the plan with its price, submits once however often it is sent,
//! follows, and ends as the job ends.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use tenure_api::client::{Client, ClientError};
use tenure_api::v1::job::{JobView, Plan, SubmitJob};
use tenure_api::v1::session::AttachQuery;
use tenure_domain::refusal::{Code, Refusal};
use tenure_domain::storage::volume::VolumeUse;
use tenure_domain::workload::job::Outcome;
use tenure_domain::workload::spec::{JobSpec, Kind, Priority};
use tokio::signal::unix::{SignalKind, signal};

use crate::completion::{complete_models, complete_volumes};
use crate::context::Context;
use crate::demand::{self, DemandArgs};
use crate::follow::{follow, until_done, until_running};
use crate::job::{exit_code, outcome_said, print_list};
use crate::moment::length;
use crate::output::{Form, Output, Paint};
use crate::refusal::Failure;
use crate::safe::safe;
use crate::service::ServiceArgs;
use crate::session::{Ended, Wanted, stay};
use crate::task::CutArgs;
use crate::workload::{self, WorkloadArgs};
use crate::{book, input, resolve, terminal, units};

#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(flatten)]
    demand: DemandArgs,
    /// The model it runs or trains, by name or by size such as 13B; what it needs is derived from that
    #[arg(long, value_name = "MODEL", help_heading = "What it is", add = ArgValueCompleter::new(complete_models))]
    model_name: Option<String>,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    cut: CutArgs,
    /// When it ends for want of device memory, run it again with more
    #[arg(long)]
    grow: bool,
    /// A named size instead; `tenure sku list` shows them
    #[arg(long)]
    sku: Option<String>,
    /// End it after this long; also what is set aside of the budget
    #[arg(long, value_parser = units::seconds, default_value = "1h", value_name = "TIME")]
    time: u64,
    /// Between the signal to end and the end, to save its state in
    #[arg(long, value_parser = units::seconds, default_value = "10s", value_name = "TIME")]
    grace: u64,
    /// It saves its state when it is told to end: it may be started anew elsewhere so that another job fits
    #[arg(long)]
    restartable: bool,
    /// Run in windows of this booking, on what is held there, and nowhere else
    #[arg(long, value_name = "BOOKING")]
    booking: Option<String>,
    /// Its name; the program's unless said
    #[arg(long)]
    name: Option<String>,
    /// A word about it, by which its log is found
    #[arg(long, value_name = "K=V", value_parser = pair)]
    label: Vec<(String, String)>,
    /// What sort of work it is
    #[arg(long, value_enum, default_value = "batch", hide_default_value = true)]
    kind: KindArg,
    /// Which jobs go first
    #[arg(long, value_enum, default_value = "normal", hide_default_value = true)]
    priority: PriorityArg,
    /// An environment variable
    #[arg(long, value_name = "K=V", value_parser = pair)]
    env: Vec<(String, String)>,
    /// An environment variable filled from a secret
    #[arg(long, value_name = "VAR=SECRET", value_parser = pair)]
    secret: Vec<(String, String)>,
    /// A volume of yours or of a scope above you, at /volumes/NAME; :ro gives it read-only
    #[arg(long = "volume", value_name = "NAME[:ro]", value_parser = volume, add = ArgValueCompleter::new(complete_volumes))]
    volumes: Vec<VolumeUse>,
    /// The working directory inside the sandbox
    #[arg(long, value_name = "DIR")]
    workdir: Option<String>,
    /// The container image whose files the job sees, as [HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// The secret that holds user:password for the image's registry
    #[arg(long, value_name = "SECRET", requires = "image")]
    image_secret: Option<String>,
    /// Whose job it is; yours unless said
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    /// Pass stdin on to it
    #[arg(short, long, conflicts_with_all = ["detach", "stop_on_interrupt"])]
    interactive: bool,
    /// On a terminal, as in `tenure run -it -- bash`; Ctrl-P Ctrl-Q leaves it running
    #[arg(short, long, conflicts_with_all = ["detach", "stop_on_interrupt"])]
    tty: bool,
    /// Submit and leave
    #[arg(short, long)]
    detach: bool,
    /// Only if it starts now: otherwise submit nothing and end with 4
    #[arg(long)]
    now: bool,
    /// Only show the plan
    #[arg(long, conflicts_with_all = ["detach", "yes"])]
    dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Stop the job on Ctrl-C, instead of leaving it to run
    #[arg(long)]
    stop_on_interrupt: bool,
    /// Pass terminal escapes of the job through
    #[arg(long)]
    raw: bool,
    /// The program and its arguments, after --; the image's own, if none is given
    #[arg(last = true, required_unless_present = "image", value_name = "CMD")]
    command: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum KindArg {
    Batch,
    Inference,
    FineTune,
    Training,
    Rendering,
    Video,
}

impl From<KindArg> for Kind {
    fn from(kind: KindArg) -> Kind {
        match kind {
            KindArg::Batch => Kind::Batch,
            KindArg::Inference => Kind::Inference,
            KindArg::FineTune => Kind::FineTune,
            KindArg::Training => Kind::Training,
            KindArg::Rendering => Kind::Rendering,
            KindArg::Video => Kind::Video,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum PriorityArg {
    Low,
    Normal,
    High,
    Urgent,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("'{text}' is not NAME=VALUE"))
}

fn volume(text: &str) -> Result<VolumeUse, String> {
    let (name, read_only) = match text.rsplit_once(':') {
        None => (text, false),
        Some((name, "ro")) => (name, true),
        Some((name, "rw")) => (name, false),
        Some(_) => return Err(format!("'{text}' is not NAME or NAME:ro")),
    };
    tenure_domain::name::check(name, "").map_err(|refusal| refusal.sentence.into_owned())?;
    Ok(VolumeUse {
        name: name.to_owned(),
        read_only,
    })
}

fn distinct(pairs: Vec<(String, String)>, flag: &str) -> Result<BTreeMap<String, String>, Failure> {
    let mut map = BTreeMap::new();
    for (name, value) in pairs {
        if map.insert(name.clone(), value).is_some() {
            return Err(Failure::usage(format!("{flag} gives {} twice", safe(&name))));
        }
    }
    Ok(map)
}

impl Args {
    fn spec(&mut self) -> Result<JobSpec, Failure> {
        let kind: Kind = self.kind.into();
        let workload = self.workload.workload(self.model_name.as_deref(), kind)?;
        let tasks = self.cut.cut(workload.as_ref())?;
        let filled = workload.is_some() || self.sku.is_some();
        let mut spec = JobSpec {
            name: self.name.take().unwrap_or_else(|| {
                let named_after = self.command.first().or(self.image.as_ref());
                name_of(named_after.map_or("job", String::as_str))
            }),
            labels: distinct(std::mem::take(&mut self.label), "--label")?,
            kind,
            workload: workload.map(Box::new),
            priority: match self.priority {
                PriorityArg::Low => Priority::Low,
                PriorityArg::Normal => Priority::Normal,
                PriorityArg::High => Priority::High,
                PriorityArg::Urgent => Priority::Urgent,
            },
            command: std::mem::take(&mut self.command),
            image: self.image.take(),
            image_secret: self.image_secret.take(),
            env: distinct(std::mem::take(&mut self.env), "--env")?,
            secrets: distinct(std::mem::take(&mut self.secret), "--secret")?,
            volumes: std::mem::take(&mut self.volumes),
            workdir: self.workdir.take(),
            sku: self.sku.take(),
            demand: match filled {
                true => self.demand.open()?,
                false => self.demand.demand()?,
            },
            run_time_s: self.time,
            stdin: self.interactive || self.tty,
            tty: self.tty,
            grace_s: u32::try_from(self.grace).unwrap_or(u32::MAX),
            max_attempts: 3,
            restartable: self.restartable,
            booking: None,
            grow: self.grow,
            service: self.service.service().map(Box::new),
            tasks,
            task: None,
        };
        if let Some(name) = terminal::name().filter(|_| spec.tty) {
            spec.env.entry("TERM".into()).or_insert(name);
        }
        spec.check()?;
        Ok(spec)
    }
}

/// A name made from the program's, of the letters a name may have.
fn name_of(program: &str) -> String {
    let base = program.rsplit('/').find(|part| !part.is_empty()).unwrap_or("job");
    let name: String = base
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || "-_.".contains(letter) {
                letter
            } else {
                '-'
            }
        })
        .take(63)
        .collect();
    let name = name.trim_start_matches(|letter: char| !letter.is_ascii_alphanumeric());
    if name.is_empty() {
        "job".into()
    } else {
        name.to_owned()
    }
}

pub async fn run(context: &Context, mut args: Args) -> Result<ExitCode, Failure> {
    if args.tty {
        terminal::needed()?;
    }
    let mut spec = args.spec()?;
    let client = context.client()?;
    let out = &context.out;
    if let Some(booking) = &args.booking {
        spec.booking = Some(book::find(&client, booking).await?.id);
    }
    let owner = match &args.owner {
        Some(owner) => Some(resolve::scope(&client, owner).await?.id.to_string()),
        None => None,
    };
    let body = SubmitJob { owner, spec };
    let plan = client.plan_job(&body).await?;
    if !out.quiet || args.dry_run {
        show_plan(out, &body.spec, &plan);
    }
    if args.dry_run {
        if matches!(out.form, Form::Json | Form::Yaml) {
            out.value(&plan)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let (true, Some(waiting)) = (args.now, &plan.waiting) {
        return Err(no_capacity(&waiting.sentence, waiting.hint.as_deref()));
    }
    if !args.yes
        && std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal()
        && !input::ask("Run it?", true)?
    {
        out.note("nothing was submitted");
        return Ok(ExitCode::from(crate::refusal::REFUSED));
    }
    // From here on Ctrl-C no longer ends the program: a job may be under way, and its user is told of it.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| Failure::Local(error.to_string()))?;
    let job = submit(&client, &body).await?;
    if job.spec.service.is_some() {
        out.note(format!(
            "submitted; it answers below {}, and `tenure show {}` says how it does",
            format_args!(
                "{}/v1/services/{}/",
                context.target()?.server.trim_end_matches('/'),
                job.id
            ),
            job.id
        ));
        print_list(context, &[job], "")?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.detach {
        out.note(format!(
            "submitted; follow it with `tenure logs -f {0}`, stop it with `tenure stop {0}`",
            job.id
        ));
        print_list(context, &[job], "")?;
        return Ok(ExitCode::SUCCESS);
    }
    let id = job.id;
    out.note(format!("submitted {id}"));
    if args.interactive || args.tty {
        return match at_once(context, &client, job, args.tty).await? {
            Some(outcome) => finished(context, &client, &id.to_string(), &outcome, &plan).await,
            None => Ok(ExitCode::SUCCESS),
        };
    }
    let mut following = std::pin::pin!(follow(context, &client, job, args.raw));
    let mut stopping = false;
    let outcome = loop {
        tokio::select! {
            outcome = &mut following => break outcome?,
            _ = interrupt.recv() => {
                if !args.stop_on_interrupt || stopping {
                    out.say(&format!("\n{id} goes on. Follow it with `tenure logs -f {id}`, stop it with `tenure stop {id}`."));
                    return Ok(ExitCode::from(130));
                }
                stopping = true;
                out.say(&format!("\nstopping {id}; Ctrl-C again leaves it to end by itself"));
                client.stop_job(&id.to_string()).await?;
            }
        }
    };
    finished(context, &client, &id.to_string(), &outcome, &plan).await
}

/// Goes to the job as soon as it runs, and stays with it. None when its user left it running.
async fn at_once(
    context: &Context,
    client: &Client,
    job: JobView,
    tty: bool,
) -> Result<Option<Outcome>, Failure> {
    let id = job.id.to_string();
    let out = &context.out;
    let job = tokio::select! {
        job = until_running(context, client, job) => job?,
        _ = tokio::signal::ctrl_c() => {
            out.say(&format!("\n{id} waits on. `tenure attach {id}` goes to it, `tenure stop {id}` ends it."));
            return Err(Failure::Said(130));
        }
    };
    let query = AttachQuery {
        from_start: Some(true),
        member: None,
    };
    let session = match client.attach_job(&id, &query).await {
        Ok(session) => session,
        // It is over already: all that is left is what it wrote.
        Err(ClientError::Refused(problem)) if problem.code == Code::WrongPhase.as_str() => {
            return follow(context, client, job, tty).await.map(Some);
        }
        Err(error) => return Err(error.into()),
    };
    let wanted = Wanted {
        input: true,
        terminal: tty,
        leave: true,
    };
    match stay(session, wanted).await? {
        Ended::Left => {
            out.note(format!("{id} goes on; `tenure attach {id}` comes back to it"));
            Ok(None)
        }
        Ended::Told(signal) => Err(Failure::Said((128 + signal) as u8)),
        Ended::Closed { .. } => until_done(context, client, client.job(&id).await?)
            .await
            .map(Some),
    }
}

/// Says how a job ended and what it cost, and ends as it did.
async fn finished(
    context: &Context,
    client: &Client,
    id: &str,
    outcome: &Outcome,
    plan: &Plan,
) -> Result<ExitCode, Failure> {
    let out = &context.out;
    let done = client.job(id).await?;
    let cost = units::show_money(done.charged_micros, &plan.currency);
    let paint = if exit_code(outcome) == 0 {
        Paint::Good
    } else {
        Paint::Bad
    };
    if !out.quiet {
        out.say(&format!(
            "{} {}",
            out.paint_note(paint, &safe(&outcome_said(outcome))),
            out.paint_note(Paint::Dim, &format!("after {}, {cost}", length(done.ran_ms)))
        ));
    }
    Ok(ExitCode::from(exit_code(outcome)))
}

/// Not now, as `--now` asked to be told.
fn no_capacity(sentence: &str, hint: Option<&str>) -> Failure {
    let refusal = Refusal::new(Code::NoCapacity, sentence.to_owned());
    match hint {
        Some(hint) => refusal.hint(hint.to_owned()).into(),
        None => refusal.into(),
    }
}

/// Sends a job; a lost answer is asked for again under the same key, so that it is submitted once.
pub async fn submit(client: &Client, body: &SubmitJob) -> Result<JobView, Failure> {
    let key = fresh_key()?;
    let mut tries = 0;
    loop {
        match client.submit_job(body, Some(&key)).await {
            Err(ClientError::Unreachable { source, .. }) if !source.is_connect() && tries < 4 => tries += 1,
            Err(ClientError::Refused(problem)) if problem.code == "idempotency_in_flight" && tries < 4 => {
                tries += 1
            }
            answer => return Ok(answer?),
        }
        tokio::time::sleep(Duration::from_millis(250 << tries)).await;
    }
}

/// A key that no other request has.
pub fn fresh_key() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::Local(format!("the system gives no random numbers: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub fn show_plan(out: &Output, spec: &JobSpec, plan: &Plan) {
    let dim = |text: &str| out.paint_note(Paint::Dim, text);
    let filled = plan.filled.as_ref();
    let asked = filled.map_or(&spec.demand, |filled| &filled.demand);
    let run_time_s = filled.map_or(spec.run_time_s, |filled| filled.run_time_s);
    let size = spec.sku.as_ref().map_or_else(
        || demand::said(asked),
        |sku| match spec.demand.nodes {
            1 => format!("SKU {}", safe(sku)),
            members => format!("{members} members, each SKU {}", safe(sku)),
        },
    );
    out.say(&format!(
        "{} {} {}",
        dim("plan:"),
        out.paint_note(Paint::Bold, &safe(&spec.name)),
        dim(&format!("{size}, for {} at most", length(run_time_s * 1000)))
    ));
    if let Some(derivation) = &plan.derivation {
        out.say(&format!("      {}", dim(&safe(&workload::said(derivation)))));
        for differs in &derivation.differs {
            out.say(&format!(
                "      {} {}",
                out.paint_note(Paint::Busy, "note:"),
                safe(differs)
            ));
        }
    }
    let money = |micros| units::show_money(micros, &plan.currency);
    match &plan.waiting {
        None if plan.starts_now => {
            let node = plan
                .node_name
                .as_ref()
                .map_or(String::new(), |node| format!(" on {}", safe(node)));
            let level = plan
                .isolation
                .map_or(String::new(), |level| format!(", {}", level.as_str()));
            out.say(&format!(
                "      {}{node}{level}",
                out.paint_note(Paint::Good, "starts now")
            ));
        }
        None => out.say(&format!("      {}", out.paint_note(Paint::Busy, "waits"))),
        Some(waiting) => {
            out.say(&format!(
                "      {} {}  {}",
                out.paint_note(Paint::Busy, "waits:"),
                safe(&waiting.sentence),
                dim(&format!("[{}]", safe(&waiting.code)))
            ));
        }
    }
    if let Some(tasks) = &plan.tasks {
        let all = tasks.expected_micros.map_or(String::new(), |micros| {
            format!(", about {} for all of it", money(micros))
        });
        out.say(&format!(
            "      tasks of {} {}s each, {} at once at most{all}",
            tasks.per_task, tasks.piece, tasks.parallel
        ));
    }
    out.say(&format!(
        "      {} an hour, {} at most{}",
        money(plan.hourly_micros),
        money(plan.hold_micros),
        if plan.tasks.is_some() {
            ", for each task"
        } else {
            ""
        }
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_programs() {
        for (program, name) in [
            ("/usr/bin/python3", "python3"),
            ("./träin.sh", "tr-in.sh"),
            ("-", "job"),
            ("___", "job"),
            ("/", "job"),
            ("日本", "job"),
        ] {
            assert_eq!(name_of(program), name);
            assert!(tenure_domain::name::check(&name_of(program), "").is_ok());
        }
    }

    #[test]
    fn variables_are_pairs_and_not_repeated() {
        assert_eq!(pair("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(pair("A="), Ok(("A".into(), String::new())));
        assert!(pair("A").is_err() && pair("=b").is_err());
        assert!(distinct(vec![("A".into(), "1".into()), ("A".into(), "2".into())], "--env").is_err());
    }

    #[test]
    fn volumes_are_names_with_a_mode() {
        assert_eq!(
            volume("data:ro").map(|v| (v.name, v.read_only)),
            Ok(("data".into(), true))
        );
        assert_eq!(
            volume("data").map(|v| (v.name, v.read_only)),
            Ok(("data".into(), false))
        );
        for bad in ["", ":ro", "a/b", "data:x", "../x:ro", "a:b:ro"] {
            assert!(volume(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_differ() {
        assert_ne!(fresh_key().unwrap(), fresh_key().unwrap());
    }
}
