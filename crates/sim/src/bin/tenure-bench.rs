//! `tenure-bench`: live benchmarks beside peers. `--json` prints one line a figure.

use clap::{Parser, Subcommand};
use tenure_sim::bench::{figure, journal};

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
    match args.bench {
        Bench::Journal | Bench::All => runtime.block_on(journal::run(scale)),
    }
}
