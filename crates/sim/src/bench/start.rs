//! `tenure-bench start`: from the submission to a job's first instruction, through the real server and agent with
//! full isolation, beside a bare process, bubblewrap and Slurm's `srun`, one of each in turn.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use futures_util::StreamExt as _;
use serde_json::json;
use tenure_api::client::Client;
use tenure_api::v1::job::{JobPhase, JobQuery, LogQuery};

use super::figure::{figure, percentile};
use super::slurm::Slurm;
use crate::house::House;

/// What every way starts: it says when it began, by the clock all share.
const PROGRAM: [&str; 2] = ["date", "+%s%N"];

const BUBBLEWRAP: [&str; 18] = [
    "--unshare-all",
    "--die-with-parent",
    "--ro-bind",
    "/usr",
    "/usr",
    "--ro-bind",
    "/etc",
    "/etc",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--dev",
];

pub async fn run(trials: usize, at_once: usize) -> anyhow::Result<()> {
    let mut house = House::new(None);
    house.start_server().await;
    house.start_agent().await;
    let client = house.client(&house.demo_token("acme/research/ada"));
    let slurm = Slurm::start();
    if let Err(why) = &slurm {
        eprintln!("without srun: {why:#}");
    }
    let (mut ours, mut bare, mut bubblewrap, mut srun) = (vec![], vec![], vec![], vec![]);
    // A few to warm all of them up.
    for trial in 0..trials + 5 {
        let keep = |all: &mut Vec<Duration>, took: Duration| {
            if trial >= 5 {
                all.push(took);
            }
        };
        keep(&mut bare, timed(Command::new(PROGRAM[0]).arg(PROGRAM[1]))?);
        let mut wrapped = Command::new("bwrap");
        wrapped
            .args(BUBBLEWRAP)
            .args(["/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--"])
            .args(PROGRAM);
        if let Ok(took) = timed(&mut wrapped) {
            keep(&mut bubblewrap, took);
        }
        keep(&mut ours, submitted(&client, trial).await?);
        if let Ok(slurm) = &slurm {
            keep(&mut srun, timed(slurm.srun().args(PROGRAM))?);
        }
    }
    let ways = [
        ("submit to first instruction", &mut ours, Some(5.0)),
        ("bare posix_spawn", &mut bare, None),
        ("bubblewrap", &mut bubblewrap, None),
        ("srun", &mut srun, None),
    ];
    let mut medians = Vec::new();
    for (way, took, goal) in ways {
        if took.is_empty() {
            eprintln!("without {way}: it is not here");
            continue;
        }
        took.sort();
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let ms = percentile(took, share).as_secs_f64() * 1e3;
            let how = format!("{trials} one after another, the ways in turn");
            figure(
                "start",
                &format!("{way}, {name}"),
                ms,
                "ms",
                goal.filter(|_| name == "p50"),
                &how,
            );
            if name == "p50" {
                medians.push((way, ms));
            }
        }
    }
    let ours = medians[0].1;
    if let Some((_, srun)) = medians.iter().find(|(way, _)| *way == "srun") {
        figure(
            "start",
            "srun against ours",
            srun / ours,
            "times",
            Some(10.0),
            "p50 each",
        );
    }
    let rate = many(&house, &client, at_once).await?;
    figure(
        "start",
        "starts per second",
        rate,
        "1/s",
        Some(400.0),
        &format!("{at_once} jobs of `true` submitted by 16 callers, until all are done"),
    );
    Ok(())
}

/// From before a process is asked for until it says it runs.
fn timed(command: &mut Command) -> anyhow::Result<Duration> {
    let begun = SystemTime::now();
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    since(begun, &String::from_utf8(output.stdout)?)
}

fn since(begun: SystemTime, said: &str) -> anyhow::Result<Duration> {
    let first = said
        .trim()
        .parse()
        .with_context(|| format!("{said:?} is no time"))?;
    Ok((UNIX_EPOCH + Duration::from_nanos(first)).duration_since(begun)?)
}

async fn submitted(client: &Client, trial: usize) -> anyhow::Result<Duration> {
    let job = json!({ "spec": {
        "name": format!("start-{trial}"), "command": PROGRAM, "demand": { "cpu_milli": 100, "memory_mib": 16 }
    } });
    let job = serde_json::from_value(job)?;
    let begun = SystemTime::now();
    let job = client.submit_job(&job, None).await?.id.to_string();
    let query = LogQuery {
        follow: Some(true),
        ..LogQuery::default()
    };
    let mut logs = std::pin::pin!(client.logs(&job, &query).await?);
    let mut text = Vec::new();
    while let Some(bytes) = logs.next().await {
        text.extend(bytes?);
    }
    while client.job(&job).await?.phase != JobPhase::Done {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    since(begun, &String::from_utf8(text)?)
}

async fn many(house: &House, client: &Client, jobs: usize) -> anyhow::Result<f64> {
    let owner = house.owner();
    let acme = owner.scope_by_path("acme").await?;
    let unbounded = serde_json::from_value(json!({ "limits": {} }))?;
    owner.set_quota(&acme.id.to_string(), &unbounded, None).await?;
    let next = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let begun = Instant::now();
    let callers = (0..16).map(|_| {
        let (client, next) = (client.clone(), next.clone());
        tokio::spawn(async move {
            while next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < jobs {
                let job = json!({ "spec": {
                    "name": "many", "command": ["true"], "demand": { "cpu_milli": 1, "memory_mib": 8 }
                } });
                client.submit_job(&serde_json::from_value(job)?, None).await?;
            }
            anyhow::Ok(())
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await??;
    }
    let live = JobQuery {
        limit: Some(1),
        ..JobQuery::default()
    };
    while !client.jobs(&live).await?.items.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(jobs as f64 / begun.elapsed().as_secs_f64())
}
