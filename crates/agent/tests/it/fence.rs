//! Fenced slices: the job has a socket and a small library, its worker the driver. What works in a guarded slice works
//! here; what the job could reach there it cannot here; each ends with the other or goes on without it, as it should.

use std::time::Duration;

use tenure_api::channel::{LogStream, Order, RunState};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::Isolation;
use tenure_engine::Engine;
use tenure_limits::Counter;

use crate::bench::{Bench, eventually, fresh, has_ended, is_running};
use crate::slice::{DONE, SPIN, bench, on_page, opencl_dir, order, ran, reader, slice};
use crate::turn;

pub fn fenced(mut order: Order) -> Order {
    order.isolation = Isolation::Fenced;
    order.env.push(("PYOPENCL_NO_CACHE".into(), "1".into()));
    order
}

pub fn python() -> String {
    opencl_dir().join("venv/bin/python").display().to_string()
}

/// Processes with this word among their arguments, and the user of each.
pub fn processes(word: &str) -> Vec<(i32, u32)> {
    use std::os::unix::fs::MetadataExt;
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let told = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    };
    let of = |pid: i32| {
        std::fs::metadata(format!("/proc/{pid}"))
            .ok()
            .map(|facts| (pid, facts.uid()))
    };
    pids.filter(told).filter_map(of).collect()
}

/// Of this agent's workers: its state directory tells them from others'.
pub fn workers(bench: &Bench, id: AllocationId) -> Vec<(i32, u32)> {
    let dir = bench.state_dir().join("workers").join(id.to_string());
    let Ok(text) = std::fs::read_to_string(dir.join("state.jsonl")) else {
        return Vec::new();
    };
    let last = text.lines().rfind(|line| !line.is_empty()).unwrap();
    let record: serde_json::Value = serde_json::from_str(last).unwrap();
    let cgroup = record["cgroups"][0].as_str().unwrap().to_owned();
    let inside = std::fs::read_to_string(format!("{cgroup}/cgroup.procs")).unwrap_or_default();
    let inside: Vec<i32> = inside.lines().filter_map(|pid| pid.parse().ok()).collect();
    processes("tenure-broker")
        .into_iter()
        .filter(|(pid, _)| inside.contains(pid))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_work_through_their_worker() {
    let bench = bench().await;
    let (state, text) = ran(&bench, fenced(order(&bench, 512, &["clinfo", "--raw"]))).await;
    assert_eq!(state, DONE, "{text}");
    let value = |name: &str| {
        let line = text.lines().find(|line| line.contains(name)).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(value("CL_DEVICE_GLOBAL_MEM_SIZE"), (512u64 << 20).to_string());
    assert_eq!(value("#DEVICES"), "1");
    let source = "
import numpy, pyopencl as cl
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
program = cl.Program(context, '__kernel void f(__global int *a) { a[get_global_id(0)] *= 3; }').build()
data = numpy.arange(1 << 20, dtype=numpy.int32)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=data)
program.f(queue, data.shape, None, buffer)
cl.enqueue_copy(queue, data, buffer)
print('right' if (data == 3 * numpy.arange(1 << 20, dtype=numpy.int32)).all() else 'wrong')
held = []
try:
    while True: held.append(cl.Buffer(context, cl.mem_flags.READ_WRITE, size=50 << 20))
except cl.MemoryError as error:
    print('full after', len(held), error)
";
    let (_, text) = ran(&bench, fenced(order(&bench, 512, &[&python(), "-c", source]))).await;
    for expected in ["right", "full after 10", "MEM_OBJECT_ALLOCATION_FAILURE"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_finds_no_driver_no_page_and_no_worker() {
    let bench = bench().await;
    let script = "ls /etc/OpenCL/vendors 2>/dev/null; ls /run/tenure; ls /dev/shm; ls /dev; env; ps ax 2>/dev/null | grep broker; id -u";
    let (state, text) = ran(&bench, fenced(order(&bench, 64, &["sh", "-c", script]))).await;
    assert_eq!(state, DONE, "{text}");
    for there in [
        "broker.sock",
        "libtenure_remote.so",
        "OCL_ICD_VENDORS=/run/tenure/vendors",
    ] {
        assert!(text.contains(there), "{there}: {text}");
    }
    for absent in [
        "pocl.icd",
        ".page",
        "page-",
        "libtenure_guard",
        "OPENCL_LAYERS",
        "tenure-broker",
        "dri",
        "kfd",
        "nvidia",
    ] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tenants_share_by_weight_and_each_worker_ends_with_its_job() {
    let _turn = turn::alone().await;
    let mut bench = bench().await;
    let mut orders = [300, 700].map(|share| {
        let mut order = fenced(order(&bench, 64, &[&python(), "-c", SPIN]));
        order.devices = vec![slice(&bench, 64, share)];
        order.tenant = format!("tenant-{share}");
        order
    });
    orders[1].run_time_s = 300;
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
    let theirs = ids.map(|id| workers(&bench, id));
    assert!(theirs.iter().all(|workers| workers.len() == 1), "{theirs:?}");
    assert_ne!(
        theirs[0][0].1, theirs[1][0].1,
        "a user id for each tenant's workers"
    );

    // Half of eleven seconds on end within five points: what else the machine does keeps programs from wanting their
    // share for a while, and then the other has it.
    let mut before = ids.map(busy);
    let mut shares = Vec::new();
    let median = |shares: &[f64]| {
        let mut last = shares[shares.len().saturating_sub(11)..].to_vec();
        last.sort_by(f64::total_cmp);
        last[last.len() / 2]
    };
    while shares.len() < 11 || (median(&shares) - 0.3).abs() > 0.05 {
        assert!(shares.len() < 90, "30/70 gave {shares:.3?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = ids.map(busy);
        let used = [0, 1].map(|index| (now[index] - before[index]) as f64);
        shares.push(used[0] / (used[0] + used[1]).max(1.0));
        before = now;
    }
    println!("30/70 fenced: {shares:.3?}");

    // A worker's death is its own job's alone.
    let (pid, _) = theirs[0][0];
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let ended = watcher.state(ids[0], has_ended).await;
    assert!(
        matches!(
            ended,
            RunState::Exited {
                exit_code: Some(1),
                ..
            }
        ),
        "the program fails with an error of its own: {ended:?}"
    );
    let text = bench.log(ids[0], LogStream::Stderr).await;
    assert!(
        text.contains("OUT_OF_RESOURCES") || text.contains("Error"),
        "{text}"
    );
    let launches = busy(ids[1]);
    eventually("the neighbour works on", || busy(ids[1]) > launches).await;

    // A job's end is its worker's, agent or no agent.
    bench.kill_agent();
    let (pid, _) = theirs[1][0];
    let job: Vec<_> = processes("program.f(queue, (4096,)");
    assert_eq!(job.len(), 1, "{job:?}");
    let job = rustix::process::Pid::from_raw(job[0].0).unwrap();
    rustix::process::kill_process(job, rustix::process::Signal::KILL).unwrap();
    eventually("its worker is gone", || {
        !std::path::Path::new(&format!("/proc/{pid}")).exists()
    })
    .await;
    bench.start_agent();
    watcher.state(ids[1], has_ended).await;
    eventually("no slice is left", || !ids.iter().any(|&id| on_page(&reader, id))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_job_takes_its_worker_along() {
    let bench = bench().await;
    let mut watcher = bench.watch();
    let mut order = fenced(order(&bench, 64, &["sleep", "600"]));
    order.allocation = fresh();
    let id = order.allocation;
    bench.start(order).await;
    watcher.state(id, is_running).await;
    eventually("it has a worker", || workers(&bench, id).len() == 1).await;
    let (pid, user) = workers(&bench, id)[0];
    assert!(user >= 200_000, "a user id of its own: {user}");
    bench
        .hub()
        .stop(bench.node, id, StopReason::Cancelled, 0)
        .await
        .unwrap();
    watcher.state(id, has_ended).await;
    eventually("its worker is gone", || {
        !std::path::Path::new(&format!("/proc/{pid}")).exists()
    })
    .await;
    bench.hub().release(bench.node, id).await.unwrap();
    eventually("nothing of it is left", || {
        !bench.state_dir().join("workers").join(id.to_string()).exists()
    })
    .await;
}

/// The one file of a worker's that is on a disk, and what its cgroup of processors weighs.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_fills_no_disk_and_weighs_what_its_job_and_its_share_do() {
    let bench = bench().await;
    let mut watcher = bench.watch();
    let mut order = fenced(order(&bench, 64, &["sleep", "600"]));
    order.devices = vec![slice(&bench, 64, 100)];
    order.cpu_milli = 300;
    let id = order.allocation;
    bench.start(order).await;
    watcher.state(id, is_running).await;
    eventually("it has a worker", || workers(&bench, id).len() == 1).await;
    let (pid, _) = workers(&bench, id)[0];
    let proc = std::path::PathBuf::from(format!("/proc/{pid}"));

    let mounts = std::fs::read_to_string(proc.join("mountinfo")).unwrap();
    let on_disks: Vec<&str> = mounts
        .lines()
        .filter_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let fields: Vec<&str> = mount.split(' ').collect();
            let kind = kind.split(' ').next()?;
            let writable = fields[5].split(',').any(|option| option == "rw");
            let memory = ["tmpfs", "devtmpfs", "proc", "devpts", "sysfs"].contains(&kind);
            // Files of devices lie on whatever the host's own do.
            let device = fields[4].starts_with("/dev/");
            (writable && !memory && !device).then_some(fields[4])
        })
        // What this bench shows to every job.
        .filter(|at| !at.ends_with("/marks"))
        .collect();
    assert_eq!(on_disks, ["/run/tenure/spill"], "{mounts}");
    let tmp = rustix::fs::statvfs(proc.join("root/tmp")).unwrap();
    assert_eq!(tmp.f_blocks * tmp.f_frsize, 512 << 20);
    let limits = std::fs::read_to_string(proc.join("limits")).unwrap();
    let of = |name: &str| -> Vec<u64> {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    };
    assert_eq!(of("Max file size"), [1088 << 20; 2]);
    // No more than whoever starts the agent has.
    let files = of("Max open files");
    assert!(files[0] == 1024 && files[1] <= 65_536, "{files:?}");
    assert_eq!(
        std::fs::read_to_string(proc.join("oom_score_adj"))
            .unwrap()
            .trim(),
        "500"
    );

    let cgroups = std::fs::read_to_string(proc.join("cgroup")).unwrap();
    let weight = cgroups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let file = match controllers {
            "" => format!("/sys/fs/cgroup{path}/cpu.weight"),
            "cpu" | "cpu,cpuacct" => format!("/sys/fs/cgroup/{controllers}{path}/cpu.shares"),
            _ => return None,
        };
        let unit = if controllers.is_empty() { 100 } else { 1024 };
        let weight: u64 = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
        Some(weight * 1000 / unit)
    });
    let host = std::thread::available_parallelism().unwrap().get() as u64 * 1000;
    let milli = 300 + host / 10;
    let weight = weight.expect("a cgroup for processors");
    assert!(weight.abs_diff(milli) <= 10, "{weight} of {milli}");
    bench
        .hub()
        .stop(bench.node, id, StopReason::Cancelled, 0)
        .await
        .unwrap();
    watcher.state(id, has_ended).await;
}
