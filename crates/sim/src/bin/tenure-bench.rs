//! `tenure-bench`: live benchmarks beside peers. `--json` prints one line a figure.

use clap::{Parser, Subcommand};
use tenure_sim::bench::{booking, device, figure, invoice, journal, ledger, market, service, start, tenant};

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
    /// Submission to first instruction, beside a bare process, bubblewrap and Slurm.
    Start,
    /// What share of this machine's OpenCL device each of several programs gets.
    Share {
        /// Whom the device is shared between, by weight.
        #[arg(long, value_delimiter = ',', default_values_t = [30, 70])]
        weights: Vec<u32>,
        #[arg(long, default_value_t = 10)]
        seconds: u64,
        /// How long each kernel runs, in microseconds.
        #[arg(long, default_value_t = 4000)]
        micros: u64,
    },
    /// What a call costs bare, guarded and brokered.
    Guard {
        /// How often clpeak runs bare and brokered in turns; a pair of each of two tests takes about a minute.
        #[arg(long, default_value_t = 10)]
        pairs: usize,
    },
    /// Postings in double entry per second, durable, beside PostgreSQL and SQLite.
    Ledger,
    /// Orders per second: the bare book beside a published one, through every policy, and durable; searches.
    Market,
    /// A year of 5,000 recurring bookings on 1,000 GPUs: whether there is room, and making one.
    Booking,
    /// A service under the two Azure LLM traces at their own pace: replicas scaled by the load, then a fixed number.
    Service {
        /// The directory with the two traces' files.
        #[arg(long)]
        traces: std::path::PathBuf,
        #[arg(long, default_value_t = 600)]
        seconds: u64,
        /// Where in the traces to begin, in seconds.
        #[arg(long, default_value_t = 0)]
        from: u64,
        /// Device time of a token of the prompt, in microseconds; one that is generated takes 25 times as long.
        #[arg(long, default_value_t = 5.0)]
        micros: f64,
        #[arg(long, default_value_t = 6)]
        most: u32,
        /// The fixed number of replicas; as many as the scaled run had at most, unless said.
        #[arg(long)]
        fixed: Option<u32>,
    },
    /// A large invoice: counted up, written out with its proofs, and checked.
    Invoice {
        #[arg(long, default_value_t = 1_000_000)]
        rows: u64,
        /// How many of them are of one event.
        #[arg(long, default_value_t = 50)]
        together: u64,
    },
    /// All of them but `service`, which takes traces.
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
    if all || matches!(bench, Bench::Start) {
        let (trials, at_once) = if args.short { (3, 50) } else { (100, 2000) };
        runtime.block_on(start::run(trials, at_once))?;
    }
    match &bench {
        Bench::Share {
            weights,
            seconds,
            micros,
        } => device::share(weights, *seconds, *micros, args.json)?,
        Bench::All => device::share(&[30, 70], if args.short { 2 } else { 10 }, 4000, false)?,
        _ => {}
    }
    if let Bench::Service {
        traces,
        seconds,
        from,
        micros,
        most,
        fixed,
    } = &bench
    {
        let asks = service::trace::read(traces, *from, *seconds)?;
        let bench = service::Bench {
            micros: *micros,
            most: *most,
            fixed: *fixed,
        };
        runtime.block_on(service::run(&bench, &asks))?;
    }
    match &bench {
        Bench::Guard { pairs } => device::guard(if args.short { 1 } else { *pairs })?,
        Bench::All => device::guard(if args.short { 1 } else { 10 })?,
        _ => {}
    }
    if all || matches!(bench, Bench::Booking) {
        booking::run(args.short);
    }
    match &bench {
        Bench::Invoice { rows, together } => runtime.block_on(invoice::run(*rows, (*together).max(1)))?,
        Bench::All => runtime.block_on(invoice::run(if args.short { 10_000 } else { 1_000_000 }, 50))?,
        _ => {}
    }
    if all || matches!(bench, Bench::Ledger) {
        runtime.block_on(ledger::run(args.short))?;
    }
    if all || matches!(bench, Bench::Market) {
        runtime.block_on(market::run(args.short))?;
    }
    if all || matches!(bench, Bench::Journal) {
        runtime.block_on(journal::run(scale))?;
    }
    Ok(())
}
