//! `tenure-bench service`: a service under recorded traffic at its own pace, on a slice of this machine's device.
//!
//! The real server and agent; replicas are `replica` of the guard's examples, which works on the device by the tokens of
//! each request and streams them. First with as many replicas as the load needs, from none; then with a fixed number.
//! One JSON object on stdout: what was lost, how long requests waited, replicas over time, and what it took of the GPU.

pub mod replay;
pub mod trace;

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::json;
use tenure_api::client::Client;
use tenure_api::v1::job::{JobPhase, JobView, SubmitJob};
use tenure_api::v1::service::ServiceView;
use tenure_domain::workload::service::Replicas;

use crate::house::{House, program};
use replay::Replay;
use trace::Ask;

const ADA: &str = "acme/research/ada";
/// PoCL's, which every machine has once `scripts/setup-devices` ran.
const CLASS: &str = "pocl-cpu";
/// Of the device, for each replica.
const SHARE_PERMILLE: u16 = 160;
const IN_FLIGHT: u32 = 4;
const IDLE_S: u32 = 20;

/// What is measured.
pub struct Bench {
    /// Device time of a token of the prompt.
    pub micros: f64,
    pub most: u32,
    pub fixed: Option<u32>,
}

/// One run.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub replicas: String,
    pub requests: usize,
    /// Not answered whole.
    pub lost: usize,
    /// Why, each once.
    pub complaints: Vec<String>,
    /// From the moment a request was due until the first bytes of its answer.
    pub first_byte_p50_ms: f64,
    pub first_byte_p99_ms: f64,
    /// Until its last.
    pub whole_p50_ms: f64,
    pub whole_p99_ms: f64,
    /// At the server, until a replica had the request.
    pub waited_p50_ms: Option<f64>,
    pub waited_p99_ms: Option<f64>,
    /// Seconds of a whole GPU that were charged, and those that the device worked.
    pub gpu_seconds: f64,
    pub busy_seconds: f64,
    pub most_ready: u32,
    pub scaled_up: usize,
    pub scaled_down: usize,
    /// Seconds since the begin, replicas ready and wanted, requests in flight and waiting; where they changed.
    pub over_time: Vec<[u32; 5]>,
    pub seconds: f64,
}

/// Both runs, printed.
pub async fn run(bench: &Bench, asks: &[Ask]) -> anyhow::Result<()> {
    let mut house = House::new(None);
    let replica = program("examples/replica");
    house.host_dirs = vec![replica.parent().context("its directory")?.to_owned()];
    house.start_server().await;
    house.start_agent().await;
    let rounds = rounds(bench.micros)?;
    let scaled = Replicas {
        min: 0,
        max: bench.most,
    };
    let scaled = once(&house, rounds, scaled, asks).await?;
    let fixed = bench.fixed.unwrap_or(scaled.most_ready).max(1);
    let fixed = Replicas {
        min: fixed,
        max: fixed,
    };
    let fixed = once(&house, rounds, fixed, asks).await?;
    let both = json!({
        "requests": asks.len(),
        "micros_a_prompt_token": bench.micros,
        "scaled": scaled,
        "fixed": fixed,
        "gpu_seconds_saved_percent": 100.0 * (1.0 - scaled.gpu_seconds / fixed.gpu_seconds),
    });
    println!("{both}");
    Ok(())
}

/// Rounds of the kernel that take so long on this machine.
pub fn rounds(micros: f64) -> anyhow::Result<u64> {
    let mut command = Command::new(program("examples/replica"));
    command.args(["measure", &micros.to_string()]);
    let pocl = std::path::Path::new("/etc/OpenCL/vendors/pocl.icd");
    if std::env::var_os("OCL_ICD_VENDORS").is_none() && pocl.exists() {
        command.env("OCL_ICD_VENDORS", pocl);
    }
    let output = command.output().context("measure the kernel")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

fn submission(rounds: u64, replicas: Replicas) -> anyhow::Result<SubmitJob> {
    let program = program("examples/replica").display().to_string();
    Ok(serde_json::from_value(json!({ "spec": {
        "name": "model",
        "kind": "inference",
        "command": [program, "serve", "{port}", rounds.to_string()],
        "demand": {
            "gpus": 1, "class": CLASS, "compute_permille": SHARE_PERMILLE, "vram_mib": 64, "capped": true,
            "cpu_milli": 300, "memory_mib": 512,
        },
        "run_time_s": 7200,
        "service": {
            "replicas": replicas, "in_flight": IN_FLIGHT, "ready": "/ready", "idle_s": IDLE_S,
            "wait_s": 600, "ready_s": 120,
        },
    } }))?)
}

/// Submits the service, replays the trace against it, and stops it.
pub async fn once(house: &House, rounds: u64, replicas: Replicas, asks: &[Ask]) -> anyhow::Result<Outcome> {
    let client = house.client(&house.demo_token(ADA));
    let job = client.submit_job(&submission(rounds, replicas)?, None).await?;
    let id = job.id.to_string();
    until_ready(&client, &id, replicas.min).await?;
    let (course, watched) = (Course::default(), Instant::now());
    let watching = tokio::spawn(watch(client.clone(), id.clone(), watched, course.clone()));
    let url = format!("{}/v1/services/{id}/generate", house.url());
    let replay = Replay::run(&url, &house.demo_token(ADA), asks).await?;
    // As long again as it takes to be quiet, so that what is given back is seen.
    if replicas.min < replicas.max {
        let begun = Instant::now();
        let patience = Duration::from_secs(u64::from(IDLE_S) + 40);
        while begun.elapsed() < patience {
            let now = service(&client, &id).await?;
            if now.living.max(now.wanted) <= replicas.min {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    let seen = service(&client, &id).await?;
    watching.abort();
    let done = stopped(&client, &id).await?;
    let mut over_time = course.lock().expect("short and without panics").clone();
    note(&mut over_time, watched, &seen);
    Ok(outcome(replicas, &replay, &seen, &done, over_time))
}

async fn service(client: &Client, id: &str) -> anyhow::Result<ServiceView> {
    let job = client.job(id).await?;
    job.service.map(|service| *service).context("it is a service")
}

async fn until_ready(client: &Client, id: &str, least: u32) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let service = service(client, id).await?;
        if service.ready >= least {
            return Ok(());
        }
        let why = service.waits_for.unwrap_or_default();
        ensure!(
            begun.elapsed() < Duration::from_secs(180),
            "it is not ready: {why}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What a service was like whenever it changed.
type Course = Arc<Mutex<Vec<[u32; 5]>>>;

async fn watch(client: Client, id: String, begun: Instant, course: Course) {
    let mut look = tokio::time::interval(Duration::from_millis(500));
    loop {
        look.tick().await;
        let Ok(now) = service(&client, &id).await else {
            continue;
        };
        note(&mut course.lock().expect("short and without panics"), begun, &now);
    }
}

fn note(course: &mut Vec<[u32; 5]>, begun: Instant, now: &ServiceView) {
    let row = [
        begun.elapsed().as_secs() as u32,
        now.ready,
        now.wanted,
        now.in_flight,
        now.waiting,
    ];
    if course.last().is_none_or(|last| last[1..3] != row[1..3]) {
        course.push(row);
    }
}

async fn stopped(client: &Client, id: &str) -> anyhow::Result<JobView> {
    client.stop_job(id).await?;
    let begun = Instant::now();
    loop {
        let job = client.job(id).await?;
        if job.phase == JobPhase::Done {
            return Ok(job);
        }
        ensure!(begun.elapsed() < Duration::from_secs(60), "it does not stop");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn outcome(
    replicas: Replicas,
    replay: &Replay,
    seen: &ServiceView,
    done: &JobView,
    over_time: Vec<[u32; 5]>,
) -> Outcome {
    let changes = |up: bool| {
        let wanted = over_time.windows(2).map(|pair| (pair[0][2], pair[1][2]));
        wanted
            .filter(|(before, after)| if up { after > before } else { after < before })
            .count()
    };
    let (first, whole) = (replay.first_byte(), replay.whole());
    let ms = |all: &[Duration], share| super::figure::percentile(all, share).as_secs_f64() * 1e3;
    Outcome {
        replicas: format!("{}..{}", replicas.min, replicas.max),
        requests: replay.answers.len(),
        lost: replay.lost(),
        complaints: replay.complaints(),
        first_byte_p50_ms: ms(&first, 0.5),
        first_byte_p99_ms: ms(&first, 0.99),
        whole_p50_ms: ms(&whole, 0.5),
        whole_p99_ms: ms(&whole, 0.99),
        waited_p50_ms: seen.waited_p50_ms,
        waited_p99_ms: seen.waited_p99_ms,
        gpu_seconds: done.gpu_ms as f64 / 1e3,
        busy_seconds: done.usage.map_or(0.0, |usage| usage.busy_ms as f64 / 1e3),
        most_ready: over_time
            .iter()
            .map(|row| row[1])
            .max()
            .unwrap_or(0)
            .max(seen.ready),
        scaled_up: changes(true),
        scaled_down: changes(false),
        over_time,
        seconds: replay.took.as_secs_f64(),
    }
}
