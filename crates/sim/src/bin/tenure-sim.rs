//! `tenure-sim`: replay of traces on virtual time, driving the real domain.

use clap::{Parser, Subcommand};
use tenure_sim::jct::{self, utilisation};

#[derive(Parser)]
#[command(about = "Trace replay of Tenure's decisions on virtual time")]
struct Args {
    #[command(subcommand)]
    study: Study,
}

#[derive(Subcommand)]
enum Study {
    /// Completion times of a trace of jobs under several queue orders.
    Jct(jct::Args),
    /// The same jobs on GPUs of each team's own and on a shared pool.
    Utilisation(utilisation::Args),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().study {
        Study::Jct(args) => jct::run(&args),
        Study::Utilisation(args) => utilisation::run(&args),
    }
}
