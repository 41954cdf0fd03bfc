//! `tenure-sim`: the domain's scheduler on traces and on generated fleets. `--json` prints one line a result.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Parser, Subcommand};
use serde::Serialize;
use tenure_sim::jct::{self, utilisation};
use tenure_sim::packing::contest::{self, Policy};
use tenure_sim::packing::{crowd, generate, throughput, trace, whole};

/// How long callers submit beside a long queue.
const SUBMITTING_S: f64 = 20.0;

#[derive(Parser)]
#[command(about = "Tenure's scheduler on traces and generated fleets")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// How much of a fleet's GPUs each policy gives away. Without files: a small generated fleet.
    Packing {
        #[arg(long, requires = "pods")]
        nodes: Option<PathBuf>,
        #[arg(long, requires = "nodes")]
        pods: Vec<PathBuf>,
        #[arg(long, value_enum, value_delimiter = ',', default_value = "tenure,fgd")]
        policy: Vec<Policy>,
        /// Ours through the whole of `decide` as well, every pod a job that is submitted.
        #[arg(long)]
        whole: bool,
        #[arg(long, default_value_t = 10)]
        seeds: u64,
        /// One JSON object a line instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Decisions per second: of the placement board, of the whole decision, and durable.
    Throughput {
        #[arg(long, default_value_t = 1213)]
        nodes: usize,
        #[arg(long, default_value_t = 8)]
        gpus_per_node: usize,
        #[arg(long, default_value_t = 200_000)]
        decisions: usize,
        /// Only what is durable.
        #[arg(long)]
        durable: bool,
        /// Only how long submissions take, durable, while so many jobs wait on a full fleet and others end.
        #[arg(long, conflicts_with = "durable")]
        waiting: Option<usize>,
        /// One JSON object a line instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Completion times of a trace of jobs under several queue orders.
    Jct(jct::Args),
    /// Booked windows on a fleet that is full and breaks: how late they begin, what is refunded, what holding them costs.
    Booking {
        #[arg(long, default_value_t = 10_000)]
        windows: usize,
        #[arg(long, default_value_t = 50)]
        nodes: usize,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// The same jobs on GPUs of each team's own and on a shared pool.
    Utilisation(utilisation::Args),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().what {
        What::Booking { windows, nodes, seed } => {
            let outcome = tenure_sim::booking::windows::run(windows, nodes, seed);
            println!("{}", serde_json::to_string_pretty(&outcome)?);
            anyhow::ensure!(
                outcome.late_without_refund == 0,
                "windows began late and nothing came back for it"
            );
        }
        What::Packing {
            nodes: Some(nodes),
            pods,
            policy,
            whole,
            seeds,
            json,
        } => {
            let fleet = trace::machines(&trace::read(&nodes)?)
                .with_context(|| format!("nodes of {}", nodes.display()))?;
            for path in &pods {
                let pods = trace::pods(&trace::read(path)?, &fleet)
                    .with_context(|| format!("pods of {}", path.display()))?;
                for policy in with_whole(&policy, whole) {
                    print(json, &contest::run(&name(path), &fleet, &pods, policy, seeds))?;
                }
            }
        }
        What::Packing {
            policy,
            whole,
            seeds,
            json,
            ..
        } => {
            let fleet = generate::fleet(200, 1);
            let pods = generate::pods(&fleet, 2);
            for policy in with_whole(&policy, whole) {
                print(json, &contest::run("generated", &fleet, &pods, policy, seeds))?;
            }
        }
        What::Throughput {
            nodes,
            gpus_per_node,
            decisions,
            durable,
            waiting,
            json,
        } => {
            let runtime = tokio::runtime::Runtime::new()?;
            if let Some(waiting) = waiting {
                let line = crowd::submissions(nodes, gpus_per_node, waiting, SUBMITTING_S);
                return print(json, &runtime.block_on(line)?);
            }
            if !durable {
                in_memory(nodes, gpus_per_node, decisions, json)?;
            }
            let durable = runtime.block_on(whole::durable(nodes, gpus_per_node, 3.0))?;
            print(json, &durable)?;
        }
        What::Jct(args) => jct::run(&args)?,
        What::Utilisation(args) => utilisation::run(&args)?,
    }
    Ok(())
}

fn with_whole(policies: &[Policy], whole: bool) -> Vec<Policy> {
    let mut all = policies.to_vec();
    if whole && !all.contains(&Policy::Decided) {
        all.push(Policy::Decided);
    }
    all
}

fn in_memory(nodes: usize, gpus: usize, decisions: usize, json: bool) -> anyhow::Result<()> {
    print(json, &throughput::singles(nodes, gpus, decisions))?;
    print(json, &whole::decided(nodes, gpus, decisions))?;
    for size in [8, 16, 64, 512] {
        if let Some(line) = whole::gangs(nodes, gpus, size, 200) {
            print(json, &line)?;
        }
    }
    print(json, &whole::preempting(nodes, gpus, decisions.min(2_000)))
}

/// `openb_pod_list_default.csv` is the trace `default`.
fn name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.strip_prefix("openb_pod_list_").unwrap_or(&stem).to_owned()
}

fn print(json: bool, line: &impl Serialize) -> anyhow::Result<()> {
    let line = serde_json::to_value(line)?;
    if json {
        println!("{line}");
        return Ok(());
    }
    let fields = line.as_object().into_iter().flatten();
    let words: Vec<String> = fields.map(|(name, value)| format!("{name} {value}")).collect();
    println!("{}", words.join("  "));
    Ok(())
}
