//! `tenure-bench`: live benchmarks beside peers. `--json` prints one line a figure.

use clap::{Parser, Subcommand};
use tenure_sim::bench::{figure, journal, tenant};

#[derive(Parser)]
#[command(about = "Live benchmarks of Tenure beside its peers")]
struct Args {
    /// One JSON object a line instead of a table.
    #[arg(long, global = true)]
    json: bool,
    /// Small amounts, to see that the harness works.
    #[arg(long, global = true)]
    short: bool,
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Durable commands per second, admission latency, restart and memory.
    Journal,
    /// From nothing to a new tenant's first running job.
    Tenant,
    /// All of them.
    All,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    figure::print_json(args.json);
    let scale = if args.short {
        journal::Scale::SHORT
    } else {
        journal::Scale::FULL
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let newcomers = if args.short { 3 } else { 50 };
    let (all, bench) = (matches!(args.bench, Bench::All), args.bench);
    if all || matches!(bench, Bench::Tenant) {
        runtime.block_on(tenant::run(newcomers))?;
    }
    if all || matches!(bench, Bench::Journal) {
        runtime.block_on(journal::run(scale))?;
    }
    Ok(())
}
