//! Slices of a real device inside real jobs: programs nobody here wrote see their slice, work in it, and say in
//! their own words when it is full; what ended leaves nothing on the device.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tenure_api::channel::{DeviceSlice, LogStream, Order, RunState};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::job::StopReason;
use tenure_engine::Engine;
use tenure_limits::{Counter, Reader};

use crate::bench::{Bench, eventually, fresh, has_ended, is_running};

pub fn opencl_dir() -> PathBuf {
    match std::env::var_os("TENURE_OPENCL_DIR") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/opencl"),
    }
    .canonicalize()
    .expect("scripts/setup-devices makes it")
}

/// An agent whose jobs are shown the Python environment with its OpenCL programs.
pub async fn bench() -> Bench {
    let venv = opencl_dir().join("venv");
    let prefix = Command::new(venv.join("bin/python"))
        .args(["-c", "import sys; print(sys.base_prefix)"])
        .output()
        .unwrap();
    let prefix = String::from_utf8(prefix.stdout).unwrap();
    let dirs = [venv.display().to_string(), prefix.trim().to_owned()];
    let shown = dirs.iter().filter(|dir| !dir.starts_with("/usr"));
    let arguments: Vec<&str> = shown.flat_map(|dir| ["--host-dir", dir]).collect();
    Bench::with(Duration::from_secs(60), &arguments).await
}

pub fn uuid(bench: &Bench) -> String {
    let host_id = std::fs::read_to_string(bench.state_dir().join("host.id")).unwrap();
    format!("opencl-{}-pocl-cpu-0", host_id.trim())
}

pub fn slice(bench: &Bench, vram_mib: u64, compute_permille: u16) -> DeviceSlice {
    DeviceSlice {
        uuid: uuid(bench),
        vram_mib,
        compute_permille,
        capped: false,
        part: None,
    }
}

pub fn order(bench: &Bench, vram_mib: u64, command: &[&str]) -> Order {
    let mut order = bench.order(fresh(), "");
    order.command = command.iter().map(|&part| part.to_owned()).collect();
    order.devices = vec![slice(bench, vram_mib, 500)];
    order.memory_mib = 4096;
    order.run_time_s = 900;
    order
}

/// Runs it, and gives its exit and all it said.
pub async fn ran(bench: &Bench, order: Order) -> (RunState, String) {
    let id = order.allocation;
    // Drivers compile for minutes on a loaded machine.
    let mut watcher = bench.watch().patient(Duration::from_secs(900));
    bench.start(order).await;
    let state = watcher.state(id, has_ended).await;
    let text = bench.log(id, LogStream::Stdout).await + &bench.log(id, LogStream::Stderr).await;
    (state, text)
}

pub const DONE: RunState = RunState::Exited {
    exit_code: Some(0),
    signal: None,
    by: None,
};

pub fn reader(bench: &Bench) -> Reader {
    use std::os::unix::fs::MetadataExt;
    let facts = std::fs::metadata(bench.state_dir()).unwrap();
    let dir = format!("/dev/shm/tenure-{:x}-{:x}", facts.dev(), facts.ino());
    let page = std::fs::read_dir(dir).unwrap().next().unwrap().unwrap();
    Reader::open(&page.path()).unwrap()
}

pub fn on_page(reader: &Reader, id: AllocationId) -> bool {
    reader.snapshot().unwrap().slice(id.0).is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn clinfo_and_clpeak_see_their_slice() {
    let bench = bench().await;
    let (state, text) = ran(&bench, order(&bench, 512, &["clinfo", "--raw"])).await;
    assert_eq!(state, DONE, "{text}");
    let value = |name: &str| {
        let line = text.lines().find(|line| line.contains(name)).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(value("CL_DEVICE_GLOBAL_MEM_SIZE"), (512u64 << 20).to_string());
    assert_eq!(value("#DEVICES"), "1");
    let (state, text) = ran(&bench, order(&bench, 64, &["clpeak", "--global-bandwidth"])).await;
    assert_eq!(state, DONE, "{text}");
    assert!(text.contains("float16"), "{text}");
    // Without a slice there is no device, whatever the host has.
    let mut none = order(&bench, 64, &["clinfo"]);
    none.devices.clear();
    let (_, text) = ran(&bench, none).await;
    assert!(
        text.contains("Number of platforms                               0"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hashcat_and_ffmpeg_work_in_their_slice() {
    let bench = bench().await;
    let hash = "b52340b4de4566b804c9880aa0b4af5f";
    let attack = [
        "hashcat",
        "-m",
        "0",
        "-a",
        "3",
        "--potfile-disable",
        "--force",
        "--self-test-disable",
        "-w",
        "1",
        hash,
        "?d?d?d?d",
    ];
    let (_, text) = ran(&bench, order(&bench, 2048, &attack)).await;
    assert!(
        text.contains("/2048 MB") && text.contains(&format!("{hash}:4711")),
        "{text}"
    );
    let (_, text) = ran(&bench, order(&bench, 512, &attack)).await;
    assert!(text.contains("Not enough allocatable device memory"), "{text}");

    let filter = "format=yuv420p,hwupload,avgblur_opencl=sizeX=5,unsharp_opencl,hwdownload,format=yuv420p";
    let ffmpeg = |size: &str| {
        format!(
            "ffmpeg -hide_banner -loglevel error -y -init_hw_device opencl=gpu:0.0 -filter_hw_device gpu -f lavfi \
             -i testsrc2=size={size}:rate=25:duration=1 -vf {filter} -f md5 -"
        )
    };
    let bare = Command::new("sh")
        .args(["-c", &ffmpeg("320x240")])
        .env("OCL_ICD_VENDORS", opencl_dir().join("vendors/pocl"))
        .env("POCL_CACHE_DIR", bench.root.path().join("pocl"))
        .output()
        .unwrap();
    let expected = String::from_utf8(bare.stdout).unwrap();
    assert!(expected.starts_with("MD5="), "{expected}");
    let (state, found) = ran(&bench, order(&bench, 256, &["sh", "-c", &ffmpeg("320x240")])).await;
    assert_eq!((state, found), (DONE, expected));
    let (state, text) = ran(&bench, order(&bench, 4, &["sh", "-c", &ffmpeg("1920x1080")])).await;
    assert_ne!(state, DONE);
    assert!(text.contains("Cannot allocate memory"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pyopencl_and_tinygrad_raise_their_own_errors() {
    let bench = bench().await;
    let python = opencl_dir().join("venv/bin/python").display().to_string();
    let run = async |source: &str| {
        let mut order = order(&bench, 512, &[&python, "-c", source]);
        order.env.push(("PYOPENCL_NO_CACHE".into(), "1".into()));
        order.env.push(("DEV".into(), "CL".into()));
        ran(&bench, order).await.1
    };
    let text = run("
import pyopencl as cl
context = cl.create_some_context(interactive=False)
print('sees', context.devices[0].global_mem_size)
held = []
try:
    while True: held.append(cl.Buffer(context, cl.mem_flags.READ_WRITE, size=50 << 20))
except cl.MemoryError as error:
    print('full after', len(held), error)
")
    .await;
    for expected in ["sees 536870912", "full after 10", "MEM_OBJECT_ALLOCATION_FAILURE"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let text = run("
import numpy
from tinygrad import Tensor, Device
print('on', Device.DEFAULT)
print('sum', (Tensor(numpy.arange(1000, dtype=numpy.float32)) * 2).sum().numpy())
held = []
try:
    while True: held.append(Tensor(numpy.ones(50 << 20, dtype=numpy.uint8)).realize())
except MemoryError as error:
    print('full after', len(held), error)
")
    .await;
    for expected in [
        "on CL",
        "sum 999000.0",
        "full after 10",
        "Allocation of 50.00 MB failed",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

pub const SPIN: &str = "
import numpy, pyopencl as cl
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
program = cl.Program(context, '__kernel void f(__global float *a) { float x = a[get_global_id(0)]; for (int i = 0; i < 20000; i++) x = x * 1.0001f + 0.5f; a[get_global_id(0)] = x; }').build()
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, size=10 << 20)
print('ready', flush=True)
while True:
    program.f(queue, (4096,), None, buffer)
    queue.finish()
";

#[tokio::test(flavor = "multi_thread")]
async fn two_tenants_share_one_device_and_leave_nothing() {
    let mut bench = bench().await;
    let python = opencl_dir().join("venv/bin/python").display().to_string();
    let mut orders = [300, 700].map(|share| {
        let mut order = order(&bench, 64, &[&python, "-c", SPIN]);
        order.devices = vec![slice(&bench, 64, share)];
        order.tenant = format!("tenant-{share}");
        order.env.push(("PYOPENCL_NO_CACHE".into(), "1".into()));
        order
    });
    // Not for one second more than asked, even if the agent is killed.
    orders[1].run_time_s = 60;
    let ids = orders.each_ref().map(|order| order.allocation);
    let mut watcher = bench.watch();
    for order in orders {
        bench.start(order).await;
    }
    for id in ids {
        watcher.state(id, is_running).await;
    }
    let reader = reader(&bench);
    let busy = |id: AllocationId| {
        let snapshot = reader.snapshot().unwrap();
        snapshot
            .slice(id.0)
            .map_or(0, |slice| slice.counter(Counter::BusyNs))
    };
    eventually("both use the device", || ids.iter().all(|&id| busy(id) > 0)).await;
    // A new agent takes the slices over as they stand.
    bench.kill_agent();
    let mut before = ids.map(busy);
    bench.start_agent();
    watcher.whole(bench.node).await;
    // A program that the host's other work keeps from running does not want the device; one fair while is enough.
    let mut shares = Vec::new();
    while !shares.iter().any(|share: &f64| (share - 0.3).abs() < 0.05) {
        assert!(shares.len() < 10, "30/70 gave {shares:.3?}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = ids.map(busy);
        let used = [0, 1].map(|index| (now[index] - before[index]) as f64);
        shares.push(used[0] / (used[0] + used[1]));
        before = now;
    }
    println!("30/70 over an agent's restart: {shares:.3?}");
    let snapshot = reader.snapshot().unwrap();
    for id in ids {
        let slice = snapshot.slice(id.0).unwrap();
        assert!(
            slice.used_bytes >= 10 << 20 && slice.used_bytes <= 64 << 20,
            "{slice:?}"
        );
    }
    for id in ids {
        let stop = bench.hub().stop(bench.node, id, StopReason::Cancelled, 0);
        stop.await.unwrap();
        watcher.state(id, has_ended).await;
    }
    eventually("no slice is left", || !ids.iter().any(|&id| on_page(&reader, id))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_slice_changes_its_size() {
    let bench = bench().await;
    let python = opencl_dir().join("venv/bin/python").display().to_string();
    let mut spinning = order(&bench, 64, &[&python, "-c", SPIN]);
    spinning.env.push(("PYOPENCL_NO_CACHE".into(), "1".into()));
    let id = spinning.allocation;
    let mut watcher = bench.watch();
    bench.start(spinning).await;
    watcher.state(id, is_running).await;
    let reader = reader(&bench);
    let now = || {
        let snapshot = reader.snapshot().unwrap();
        snapshot.slice(id.0).unwrap().clone()
    };
    eventually("it uses the device", || now().counter(Counter::BusyNs) > 0).await;
    let size = || (now().limit_bytes >> 20, now().weight_per_mille);
    let hub = bench.hub();
    let resized = |vram_mib, share| hub.try_resize(bench.node, id, vec![slice(&bench, vram_mib, share)]);

    let refused = resized(4, 300).await.unwrap_err().to_string();
    assert!(
        refused.contains("the job uses ") && refused.contains("more than 4 MiB"),
        "{refused}"
    );
    assert_eq!(size(), (64, 500), "nothing changed");
    resized(32, 200).await.unwrap();
    assert_eq!(size(), (32, 200));
    // What was decided holds, whatever is in use.
    let decided = vec![slice(&bench, 4, 800)];
    hub.resize(bench.node, id, decided).await.unwrap();
    eventually("it is in force", || size() == (4, 800)).await;
    let launches = now().counter(Counter::Launches);
    eventually("it works on", || now().counter(Counter::Launches) > launches).await;
    let stranger = hub.try_resize(bench.node, fresh(), vec![slice(&bench, 8, 100)]);
    assert!(
        stranger
            .await
            .is_err_and(|error| error.to_string().contains("not shared by the job"))
    );
    hub.stop(bench.node, id, StopReason::Cancelled, 0).await.unwrap();
    watcher.state(id, has_ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_guard_no_device() {
    let copy = tempfile::tempdir_in("/srv").unwrap();
    let lonely = copy.path().join("tenure-agent");
    std::fs::copy(crate::bench::AGENT, &lonely).unwrap();
    let doctor = || {
        let output = Command::new(&lonely).arg("doctor").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let text = doctor();
    assert!(
        text.contains("pocl-cpu") && text.contains("libtenure_guard.so is not beside"),
        "{text}"
    );
    assert!(!text.contains("  guarded:"), "{text}");
    // A library that is no layer would be passed over by the loader, and nothing would stand before the device.
    std::fs::copy(
        "/lib/x86_64-linux-gnu/libc.so.6",
        copy.path().join("libtenure_guard.so"),
    )
    .unwrap();
    let text = doctor();
    assert!(
        text.contains("it has no clGetLayerInfo") && !text.contains("  guarded:"),
        "{text}"
    );
}
