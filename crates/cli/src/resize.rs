//! `tenure resize`: another size for a slice that runs.

use clap::Args as ClapArgs;
use clap_complete::engine::ArgValueCompleter;
use tenure_api::v1::job::ResizeJob;

use crate::completion::complete_jobs;
use crate::context::Context;
use crate::refusal::Failure;
use crate::{job, resolve, units};

#[derive(Debug, ClapArgs)]
#[command(group(clap::ArgGroup::new("size").required(true).multiple(true).args(["vram", "compute"])))]
pub struct Args {
    #[arg(add = ArgValueCompleter::new(complete_jobs))]
    job: String,
    /// Device memory on each GPU
    #[arg(long, value_parser = units::mib, value_name = "SIZE")]
    vram: Option<u64>,
    /// Share of each GPU's compute: 30% or 0.3
    #[arg(long, value_parser = units::permille, value_name = "SHARE")]
    compute: Option<u16>,
}

pub async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let client = context.client()?;
    let id = resolve::job::job(&client, &args.job).await?;
    let size = ResizeJob {
        compute_permille: args.compute,
        vram_mib: args.vram,
    };
    let resized = client.resize_job(&id.to_string(), &size).await?;
    job::print_one(context, &resized)
}
