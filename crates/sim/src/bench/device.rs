//! `tenure-bench share` and `tenure-bench guard`: programs on slices of this machine's OpenCL device, as the agent
//! starts them, and the same program bare.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tenure_limits::{Counter, Device, SliceSpec};

use super::figure::figure;
use crate::house::program;

/// The plain OpenCL program, built with `cargo build --release -p tenure-guard --examples`.
fn workload() -> PathBuf {
    program("examples/workload")
}

struct Page {
    _dir: tempfile::TempDir,
    path: PathBuf,
    device: Device,
}

impl Page {
    fn new(slices: &[SliceSpec]) -> anyhow::Result<Page> {
        // In memory, as the agent's are.
        let dir = tempfile::tempdir_in("/dev/shm")?;
        let path = dir.path().join("page");
        let device = Device::create(&path)?;
        for slice in slices {
            device.add(*slice)?;
        }
        Ok(Page {
            _dir: dir,
            path,
            device,
        })
    }

    fn guard(&self, command: &mut Command, slice: u64) {
        command
            .env("OPENCL_LAYERS", program("libtenure_guard.so"))
            .env("TENURE_GUARD_PAGE", &self.path)
            .env("TENURE_GUARD_SLICE", slice.to_string())
            .env("TENURE_GUARD_DEVICE", "0:0");
    }

    fn busy_ns(&self, slice: u64) -> anyhow::Result<u64> {
        let snapshot = self.device.snapshot()?;
        Ok(snapshot
            .slice(slice)
            .map_or(0, |slice| slice.counter(Counter::BusyNs)))
    }
}

fn slice(id: u64, weight_per_mille: u32) -> SliceSpec {
    SliceSpec {
        id,
        limit_bytes: 512 << 20,
        weight_per_mille,
        cap_per_mille: None,
        kernel_limit_ns: None,
        process_limit_ns: None,
    }
}

/// A program that is ended with the measurement.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What share of the device each of several programs gets, with kernels of `micros`.
pub fn share(weights: &[u32], seconds: u64, micros: u64, json: bool) -> anyhow::Result<()> {
    ensure!(
        !weights.is_empty() && weights.iter().all(|weight| *weight > 0),
        "each weight is at least 1"
    );
    let sum: u32 = weights.iter().sum();
    let slices: Vec<SliceSpec> = (1..)
        .zip(weights)
        .map(|(id, weight)| slice(id, weight * 1000 / sum))
        .collect();
    let page = Page::new(&slices)?;
    let mut running = Vec::new();
    for slice in &slices {
        let mut command = Command::new(workload());
        page.guard(&mut command, slice.id);
        let mut child = command
            .args(["spin", &micros.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .context("start the workload")?;
        let mut said = String::new();
        let output = child.stdout.take().context("its output")?;
        running.push(Running(child));
        BufReader::new(output).read_line(&mut said)?;
        ensure!(said.trim() == "ready", "the workload did not start: {said}");
    }
    let read = || {
        slices
            .iter()
            .map(|slice| page.busy_ns(slice.id))
            .collect::<anyhow::Result<Vec<_>>>()
    };
    // Programs that started early ran alone until the last was there.
    std::thread::sleep(Duration::from_millis(500));
    let before = read()?;
    let begun = std::time::Instant::now();
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, took) = (read()?, begun.elapsed());
    let used: Vec<u64> = before
        .iter()
        .zip(&after)
        .map(|(before, after)| after - before)
        .collect();
    let total: u64 = used.iter().sum();
    let shares: Vec<f64> = used.iter().map(|used| *used as f64 / total as f64).collect();
    if json {
        println!("{}", serde_json::json!({ "shares": shares }));
        return Ok(());
    }
    for (weight, share) in weights.iter().zip(&shares) {
        figure(
            "share",
            &format!("weight {weight} of {sum}"),
            share * 100.0,
            "%",
            Some(f64::from(*weight) / f64::from(sum) * 100.0),
            &format!("kernels of {micros} µs for {seconds} s"),
        );
    }
    figure(
        "share",
        "device busy",
        total as f64 / took.as_nanos() as f64 * 100.0,
        "%",
        Some(95.0),
        "kernel time of all against wall time",
    );
    Ok(())
}

/// What the guard adds to a call.
pub fn guard() -> anyhow::Result<()> {
    let page = Page::new(&[slice(1, 500)])?;
    let costs = |guarded: bool| -> anyhow::Result<Vec<(String, f64)>> {
        let mut command = Command::new(workload());
        if guarded {
            page.guard(&mut command, 1);
        }
        let output = command.arg("cost").output().context("run the workload")?;
        ensure!(
            output.status.success(),
            "the workload failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout)?;
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines
            .map(|(word, value)| Ok((word.to_owned(), value.parse()?)))
            .collect()
    };
    for ((call, bare), (_, guarded)) in costs(false)?.into_iter().zip(costs(true)?) {
        let goal = match call.as_str() {
            "enqueue" => Some(500.0),
            "allocate" => Some(200.0),
            _ => None,
        };
        figure(
            "guard",
            &format!("added to {call}"),
            guarded - bare,
            "ns",
            goal,
            &format!("{bare:.0} bare, {guarded:.0} guarded; the least of many"),
        );
    }
    Ok(())
}
