//! `tenure apply`: the jobs of a file. All are checked before the first is submitted.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use tenure_api::v1::job::{JobView, SubmitJob};

use crate::context::Context;
use crate::job::print_list;
use crate::output::Form;
use crate::refusal::Failure;
use crate::{input, resolve, run, spec_file};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The file, in YAML, one document a job; - for stdin
    #[arg(short, long)]
    file: PathBuf,
    /// Whose jobs they are; yours unless said
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    /// Only show what they would cost and whether they would start
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let document = input::read_text(&args.file)?;
    let specs = spec_file::read_jobs(&document)?;
    let client = context.client()?;
    let owner = match &args.owner {
        Some(owner) => Some(resolve::scope(&client, owner).await?.id.to_string()),
        None => None,
    };
    let bodies: Vec<SubmitJob> = specs
        .into_iter()
        .map(|spec| SubmitJob {
            owner: owner.clone(),
            spec,
        })
        .collect();
    if args.dry_run {
        let mut plans = Vec::new();
        for body in &bodies {
            let plan = client.plan_job(body).await?;
            run::show_plan(&context.out, &body.spec, &plan);
            plans.push(plan);
        }
        return if matches!(context.out.form, Form::Json | Form::Yaml) {
            context.out.value(&plans)
        } else {
            Ok(())
        };
    }
    let mut jobs: Vec<JobView> = Vec::new();
    for body in &bodies {
        match run::submit(&client, body).await {
            Ok(job) => jobs.push(job),
            Err(failure) => {
                print_list(context, &jobs, "nothing was submitted")?;
                if bodies.len() > 1 {
                    context.out.warn(format!(
                        "{} of {} jobs were submitted; {} was not",
                        jobs.len(),
                        bodies.len(),
                        body.spec.name
                    ));
                }
                return Err(failure);
            }
        }
    }
    print_list(context, &jobs, "")
}
