//! `tenure exec`: a program inside a running job, ended as it ends.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use clap_complete::engine::ArgValueCompleter;
use tenure_api::v1::session::ExecQuery;

use crate::completion::complete_jobs;
use crate::context::Context;
use crate::logs::said;
use crate::refusal::Failure;
use crate::session::{Wanted, stay};
use crate::{resolve, terminal};

#[derive(Debug, ClapArgs)]
#[command(after_help = "A shell inside a job:  tenure exec -it JOB -- bash")]
pub struct Args {
    /// Pass stdin on
    #[arg(short, long)]
    interactive: bool,
    /// On a terminal
    #[arg(short, long)]
    tty: bool,
    /// In this member of a job over several nodes
    #[arg(long, default_value_t = 0, value_name = "N")]
    member: u32,
    #[arg(add = ArgValueCompleter::new(complete_jobs))]
    job: String,
    /// The program and its arguments, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

pub async fn run(context: &Context, args: Args) -> Result<ExitCode, Failure> {
    if args.tty {
        terminal::needed()?;
    }
    let client = context.client()?;
    let job = resolve::job::job(&client, &args.job).await?.to_string();
    let size = terminal::size().filter(|_| args.tty);
    let query = ExecQuery {
        tty: Some(args.tty),
        rows: size.map(|(rows, _)| rows),
        cols: size.map(|(_, cols)| cols),
        term: terminal::name().filter(|_| args.tty),
        member: said(args.member),
    };
    let mut session = client.exec_job(&job, &args.command, &query).await?;
    if !args.interactive && !args.tty {
        // It reads nothing, rather than waiting for what never comes.
        let end = tenure_api::v1::session::ClientSays::End;
        session.sender.say(&end).await.map_err(crate::session::lost)?;
    }
    let wanted = Wanted {
        input: args.interactive || args.tty,
        terminal: args.tty,
        leave: false,
    };
    let ended = stay(session, wanted).await?;
    match ended.code() {
        Some(code) => Ok(ExitCode::from(code)),
        None => Err(Failure::Local(ended.why())),
    }
}
