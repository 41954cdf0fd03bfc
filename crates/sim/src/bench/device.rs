//! `tenure-bench share` and `tenure-bench guard`: programs on slices of this machine's OpenCL device, as the agent
//! starts them, guarded or brokered, and the same program bare.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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
    let begun = Instant::now();
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

/// Where nobody said which driver is meant, it is PoCL's: clpeak tries all there are, and not all can.
fn with_one_driver(command: &mut Command) {
    let pocl = Path::new("/etc/OpenCL/vendors/pocl.icd");
    if std::env::var_os("OCL_ICD_VENDORS").is_none() && pocl.exists() {
        command.env("OCL_ICD_VENDORS", pocl);
    }
}

/// The three ways a program reaches a device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Bare,
    Guarded,
    Brokered,
}

/// A slice's worker, and what a program needs to find it and no driver.
struct Broker {
    _worker: Running,
    socket: PathBuf,
    vendors: PathBuf,
}

impl Broker {
    fn start(page: &Page, slice: u64) -> anyhow::Result<Broker> {
        let dir = page.path.parent().context("the page's directory")?;
        let (socket, vendors) = (dir.join("broker.sock"), dir.join("vendors"));
        std::fs::create_dir(&vendors)?;
        let library = program("libtenure_remote.so").display().to_string();
        std::fs::write(vendors.join("tenure.icd"), library)?;
        let mut command = Command::new(program("tenure-broker"));
        with_one_driver(&mut command);
        page.guard(&mut command, slice);
        let worker = command.arg("--listen").arg(&socket).stdin(Stdio::null()).spawn();
        let mut worker = Running(worker.context("start the worker")?);
        let begun = Instant::now();
        while !socket.exists() {
            let ended = worker.0.try_wait()?;
            ensure!(ended.is_none(), "the worker ended: {ended:?}");
            ensure!(
                begun.elapsed() < Duration::from_secs(20),
                "the worker does not listen"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Broker {
            _worker: worker,
            socket,
            vendors,
        })
    }

    fn command(&self, way: Way, page: &Page, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        match way {
            Way::Bare => with_one_driver(&mut command),
            Way::Guarded => {
                with_one_driver(&mut command);
                page.guard(&mut command, 1);
            }
            Way::Brokered => {
                command
                    .env("OCL_ICD_VENDORS", &self.vendors)
                    .env("TENURE_BROKER_SOCKET", &self.socket);
            }
        }
        command
    }
}

/// What each call costs, in nanoseconds.
struct Costs(Vec<(String, f64)>);

impl Costs {
    fn of(mut workload: Command) -> anyhow::Result<Costs> {
        let output = workload.arg("cost").output().context("run the workload")?;
        ensure!(
            output.status.success(),
            "the workload failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout)?;
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let costs = lines.map(|(word, value)| Ok((word.to_owned(), value.parse()?)));
        costs.collect::<anyhow::Result<_>>().map(Costs)
    }

    fn get(&self, word: &str) -> f64 {
        let found = self.0.iter().find(|(name, _)| name == word);
        found.map_or(f64::NAN, |(_, cost)| *cost)
    }
}

/// What a call costs bare, guarded and brokered, side by side; and clpeak in so many pairs of bare and brokered.
pub fn guard(pairs: usize) -> anyhow::Result<()> {
    let page = Page::new(&[slice(1, 500)])?;
    let broker = Broker::start(&page, 1)?;
    let [bare, guarded, brokered] =
        [Way::Bare, Way::Guarded, Way::Brokered].map(|way| Costs::of(broker.command(way, &page, workload())));
    let (bare, guarded, brokered) = (bare?, guarded?, brokered?);
    // What is measured for comparison and calls nothing.
    let is_call = |word: &str| !word.starts_with("mem") && !word.ends_with("-64m");
    for (call, bare) in bare.0.iter().filter(|(word, _)| is_call(word)) {
        let (guarded, brokered) = (guarded.get(call), brokered.get(call));
        let goal = match call.as_str() {
            "enqueue" => Some(500.0),
            "allocate" => Some(200.0),
            _ => None,
        };
        let how = format!("{bare:.0} bare, {guarded:.0} guarded; the least of many");
        figure(
            "guard",
            &format!("added to {call}"),
            guarded - bare,
            "ns",
            goal,
            &how,
        );
        let goal = match call.as_str() {
            "ask" => Some(5000.0),
            "enqueue" => Some(1000.0),
            _ => None,
        };
        let how = format!("{bare:.0} bare, {guarded:.0} guarded; the least of many");
        figure("broker", &format!("{call} costs"), brokered, "ns", goal, &how);
    }
    for (way, costs) in [("bare", &bare), ("guarded", &guarded), ("brokered", &brokered)] {
        for copy in ["write-64m", "read-64m"] {
            figure(
                "broker",
                &format!("{copy} against memcpy, {way}"),
                costs.get("memcpy-64m") / costs.get(copy) * 100.0,
                "%",
                (way == "brokered").then_some(80.0),
                &format!("{:.1} ms", costs.get(copy) / 1e6),
            );
        }
    }
    if pairs > 0 {
        for test in ["--compute-sp", "--global-bandwidth"] {
            clpeak(&page, &broker, test, pairs)?;
        }
    }
    Ok(())
}

/// The best of clpeak's figures of one kind.
fn peak(mut clpeak: Command, test: &str) -> anyhow::Result<f64> {
    let output = clpeak.arg(test).output().context("run clpeak")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "clpeak failed: {text}");
    let figures = text
        .lines()
        .filter(|line| line.trim_start().starts_with("float"))
        .filter_map(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok());
    Ok(figures.fold(0.0, f64::max))
}

/// clpeak bare and brokered in turns, so that what else the machine does falls on both; which comes first alternates.
fn clpeak(page: &Page, broker: &Broker, test: &str, pairs: usize) -> anyhow::Result<()> {
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        let run = |way| peak(broker.command(way, page, "clpeak"), test);
        let (bare, brokered) = match pair % 2 {
            0 => (run(Way::Bare)?, run(Way::Brokered)?),
            _ => {
                let brokered = run(Way::Brokered)?;
                (run(Way::Bare)?, brokered)
            }
        };
        ensure!(bare > 0.0 && brokered > 0.0, "clpeak measured nothing");
        ratios.push(brokered / bare);
    }
    let (mean, least, most) = interval(&ratios);
    figure(
        "broker",
        &format!("clpeak {} against bare", test.trim_start_matches('-')),
        mean * 100.0,
        "%",
        Some(95.0),
        &format!(
            "95 % interval {:.1} to {:.1} % over {pairs} pairs in turns",
            least * 100.0,
            most * 100.0
        ),
    );
    Ok(())
}

/// The geometric mean of ratios, and the interval it lies in with 95 % confidence.
fn interval(ratios: &[f64]) -> (f64, f64, f64) {
    /// Student's t at 97.5 %, by degrees of freedom; beyond the last, near enough.
    const T: [f64; 12] = [
        12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18,
    ];
    let count = ratios.len() as f64;
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let mean = logs.iter().sum::<f64>() / count;
    let Some(free) = ratios.len().checked_sub(1).filter(|free| *free > 0) else {
        return (mean.exp(), f64::NAN, f64::NAN);
    };
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / free as f64;
    let half = T[(free - 1).min(T.len() - 1)] * (variance / count).sqrt();
    (mean.exp(), (mean - half).exp(), (mean + half).exp())
}

#[cfg(test)]
mod tests {
    use super::interval;

    #[test]
    fn an_interval_holds_its_mean_and_widens_with_the_spread() {
        let (mean, least, most) = interval(&[0.9, 1.0, 1.1, 1.0]);
        assert!((mean - 0.997).abs() < 0.001 && least < mean && mean < most);
        // By hand: logs -0.105, 0, 0.095, 0; deviation 0.0821; half-width 3.18 · 0.0821 / 2.
        assert!((most / mean - (3.18f64 * 0.0821 / 2.0).exp()).abs() < 0.001);
        assert!(interval(&[1.0]).1.is_nan());
    }
}
