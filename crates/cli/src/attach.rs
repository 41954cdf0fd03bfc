//! `tenure attach`: go to a running job.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use clap_complete::engine::ArgValueCompleter;
use tenure_api::v1::session::AttachQuery;

use crate::completion::complete_jobs;
use crate::context::Context;
use crate::logs::said;
use crate::refusal::Failure;
use crate::resolve;
use crate::session::{Ended, Wanted, stay};

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Ctrl-P Ctrl-Q leaves a job on a terminal running; `tenure attach` comes back to it.\n\
                  Other jobs are left with Ctrl-C."
)]
pub struct Args {
    #[arg(add = ArgValueCompleter::new(complete_jobs))]
    job: String,
    /// Begin with everything it wrote so far
    #[arg(long)]
    from_start: bool,
    /// Only look: type nothing to it
    #[arg(long)]
    no_stdin: bool,
    /// To this member of a job over several nodes
    #[arg(long, default_value_t = 0, value_name = "N")]
    member: u32,
}

pub async fn run(context: &Context, args: Args) -> Result<ExitCode, Failure> {
    let client = context.client()?;
    let job = resolve::job::job(&client, &args.job).await?.to_string();
    let query = AttachQuery {
        from_start: Some(args.from_start),
        member: said(args.member),
    };
    let session = client.attach_job(&job, &query).await?;
    let wanted = Wanted {
        input: !args.no_stdin,
        terminal: !args.no_stdin && std::io::stdin().is_terminal(),
        leave: true,
    };
    let ended = stay(session, wanted).await?;
    if let Ended::Left = ended {
        context
            .out
            .note(format!("{job} goes on; `tenure attach {job}` comes back to it"));
        return Ok(ExitCode::SUCCESS);
    }
    match ended.code() {
        Some(code) => Ok(ExitCode::from(code)),
        None => Err(Failure::Local(ended.why())),
    }
}
