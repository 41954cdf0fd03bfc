//! Walls of the vendors and the kernel around shares of a device: the driver's memory limit, the kernel's, MPS inside one
//! tenant, the modes of AMD's devices, and versions with known holes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_api::channel::{DeviceSlice, LogStream, Order, RunState};
use tenure_domain::id::AllocationId;
use tenure_domain::schedule::hardware::{PartChoice, Placement};
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::Isolation;
use tenure_engine::Engine;

use crate::bench::{Bench, eventually, fresh, has_ended, is_running, open_to_all};
use crate::machine::{Machine, hardware, levels, noted};
use crate::sysfs::{kfd_node, mi300x};

/// A tree of cgroups of version 2 with the controller for device memory, and a kernel that removes what is killed.
struct Tree {
    dir: PathBuf,
    done: Arc<AtomicBool>,
}

impl Tree {
    fn new(machine: &Machine, capacity: &str) -> Tree {
        let dir = machine.root.path().join("sys/fs/cgroup");
        machine.file("sys/fs/cgroup/cgroup.controllers", "memory_of_nothing dmem\n");
        machine.file("sys/fs/cgroup/dmem.capacity", capacity);
        machine.file(
            "proc/self/mounts",
            format!("cgroup2 {} cgroup2 rw 0 0\n", dir.display()),
        );
        let done = Arc::new(AtomicBool::new(false));
        let (kernel, stop) = (dir.join("tenure"), done.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                for entry in std::fs::read_dir(&kernel).into_iter().flatten().flatten() {
                    if entry.path().join("cgroup.kill").exists() {
                        let _ = std::fs::remove_dir_all(entry.path());
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        Tree { dir, done }
    }

    /// What the kernel was told of each cgroup's device memory.
    fn limits(&self) -> Vec<String> {
        let dirs = std::fs::read_dir(self.dir.join("tenure"))
            .into_iter()
            .flatten()
            .flatten();
        dirs.filter_map(|entry| std::fs::read_to_string(entry.path().join("dmem.max")).ok())
            .collect()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

fn share(
    bench: &Bench,
    id: AllocationId,
    gpu: &str,
    (permille, vram_mib): (u16, u64),
    script: &str,
) -> Order {
    let mut order = bench.order(id, script);
    order.devices = vec![DeviceSlice {
        uuid: gpu.into(),
        vram_mib,
        compute_permille: permille,
        capped: false,
        part: None,
    }];
    order
}

async fn end(bench: &Bench, id: AllocationId) {
    let mut watcher = bench.watch();
    bench
        .hub()
        .stop(bench.node, id, StopReason::Cancelled, 0)
        .await
        .unwrap();
    watcher.state(id, has_ended).await;
}

fn card(driver: &str) -> Value {
    json!({"driver": driver, "devices": [{"model": "L40S", "uuid": "GPU-one", "bus": 1}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_holds_a_job_to_its_memory() {
    let machine = Machine::new();
    let tree = Tree::new(&machine, "");
    machine.nvml(&card("595.71.05"));
    assert_eq!(
        levels(&machine.found().devices[0]),
        ["exclusive"],
        "older drivers limit nothing"
    );
    machine.nvml(&card("615.71.09"));
    let found = machine.found();
    let given = &found.devices[0].facts.isolation;
    assert_eq!(levels(&found.devices[0]), ["guarded", "exclusive"]);
    let why = &given[&Isolation::Guarded];
    assert!(
        why.contains("its driver limits device memory") && why.contains("nothing limits compute"),
        "{why}"
    );
    assert!(noted(&found, &["not fenced", "compute"]), "{:?}", found.notes);

    let bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let limits = || -> Vec<(PathBuf, [u64; 2])> {
        let text = std::fs::read_to_string(machine.root.path().join("limits.json")).unwrap_or_default();
        let all: Value = serde_json::from_str(&text).unwrap_or_default();
        let cgroups = all["GPU-one"].as_object().cloned().unwrap_or_default();
        let told = cgroups
            .into_iter()
            .map(|(path, limits)| (path.into(), serde_json::from_value(limits).unwrap()));
        told.filter(|(path, _): &(PathBuf, _)| path.is_dir()).collect()
    };
    let (mut watcher, id) = (bench.watch(), fresh());
    bench
        .start(share(&bench, id, "GPU-one", (300, 4096), "sleep 60"))
        .await;
    watcher.state(id, is_running).await;
    let set = limits();
    assert_eq!(set.len(), 1, "{set:?}");
    assert_eq!(set[0].1, [0, 4096 << 20]);
    let inside = std::fs::read_to_string(set[0].0.join("cgroup.procs")).unwrap();
    assert!(
        set[0].0.starts_with(&tree.dir) && !inside.is_empty(),
        "it is the cgroup its processes are in"
    );
    end(&bench, id).await;
    eventually("the limit goes with the cgroup", || limits().is_empty()).await;

    // No wall, no run.
    machine.nvml(
        &json!({"driver": "615.71.09", "fail": {"nvmlDeviceSetMemoryLimits_v1": 4},
        "devices": [{"model": "L40S", "uuid": "GPU-one", "bus": 1}]}),
    );
    let id = fresh();
    let report = bench.run(share(&bench, id, "GPU-one", (300, 4096), "true")).await;
    assert!(
        matches!(
            report.state,
            RunState::Exited {
                by: Some(StopReason::Evicted),
                ..
            }
        ),
        "{report:?}"
    );
    let log = bench.log(id, LogStream::Stderr).await;
    assert!(
        log.contains("did not limit the memory of device GPU-one: no permission"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kernel_holds_a_job_to_its_memory() {
    let machine = Machine::new();
    machine.device("dev/kfd", 1, 3);
    mi300x(&machine, 0, 0x05, ("SPX", "NPS1"));
    machine.remove("dev/dri/renderD128");
    machine.device("dev/dri/renderD128", 1, 5);
    kfd_node(&machine, 1, 0x05, 0, 128, 192, &[]);
    let before = machine.found();
    assert_eq!(levels(&before.devices[0]), ["exclusive"], "no tree, no wall");
    let tree = Tree::new(&machine, "drm/0000:05:00.0/vram0 206141652992\n");
    let found = machine.found();
    assert_eq!(levels(&found.devices[0]), ["guarded", "exclusive"]);
    let why = &found.devices[0].facts.isolation[&Isolation::Guarded];
    assert!(why.contains("the kernel limits device memory"), "{why}");
    let uuid = found.devices[0].facts.uuid.clone();

    let bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let (mut watcher, ids) = (bench.watch(), [fresh(), fresh()]);
    for (id, vram_mib) in ids.into_iter().zip([1024, 2048]) {
        bench
            .start(share(&bench, id, &uuid, (300, vram_mib), "sleep 60"))
            .await;
        watcher.state(id, is_running).await;
    }
    let mut limits = tree.limits();
    limits.sort();
    let region = "drm/0000:05:00.0/vram0";
    assert_eq!(
        limits,
        [1024_u64, 2048].map(|mib| format!("{region} {}", mib << 20))
    );
    // Another size is held to as well.
    let grown = share(&bench, ids[0], &uuid, (300, 3072), "").devices;
    bench.hub().resize(bench.node, ids[0], grown).await.unwrap();
    let expected = format!("{region} {}", 3072_u64 << 20);
    eventually("it has its new limit", || tree.limits().contains(&expected)).await;
    // A whole device needs no limit.
    for id in ids {
        end(&bench, id).await;
    }
    eventually("the limits go with the cgroups", || tree.limits().is_empty()).await;
    let id = fresh();
    let mut whole = share(&bench, id, &uuid, (1000, 196_608), "sleep 60");
    whole.isolation = Isolation::Exclusive;
    bench.start(whole).await;
    watcher.state(id, is_running).await;
    assert!(tree.limits().is_empty());
    end(&bench, id).await;
}

/// A control program that writes down who called it, how and with what, and keeps a daemon's number.
fn control(root: &Path) -> PathBuf {
    let path = root.join("nvidia-cuda-mps-control");
    let log = root.join("mps.log");
    let script = format!(
        "#!/bin/sh\nread -r said\necho \"$1$said $(id -u) $CUDA_VISIBLE_DEVICES $CUDA_MPS_PIPE_DIRECTORY\" >> {}\ntest \"$1\" != -d || touch $CUDA_MPS_PIPE_DIRECTORY/control\n",
        log.display()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::write(&log, "").unwrap();
    open_to_all(&path, 0o755);
    open_to_all(&log, 0o666);
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn mps_is_shared_inside_one_tenant_only() {
    let machine = Machine::new();
    machine.nvml(&card("595.71.05"));
    let place = tempfile::tempdir_in("/srv").unwrap();
    open_to_all(place.path(), 0o755);
    let program = control(place.path());
    let mps = ["--mps", program.to_str().unwrap()];
    let mut bench = Bench::on(Duration::from_secs(60), &mps, &machine.variables()).await;
    let said = || {
        let text = std::fs::read_to_string(place.path().join("mps.log")).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    const SHOW: &str = "env | grep ^CUDA_ | sort; ls /run/tenure/mps; sleep 60";
    let (mut watcher, first, second) = (bench.watch(), fresh(), fresh());
    for (id, size) in [(first, (300, 4096)), (second, (455, 8192))] {
        bench.start(share(&bench, id, "GPU-one", size, SHOW)).await;
        watcher.state(id, is_running).await;
    }
    let started = said();
    assert_eq!(started.len(), 1, "one daemon for both: {started:?}");
    let words: Vec<&str> = started[0].split(' ').collect();
    assert_eq!((words[0], words[2]), ("-d", "GPU-one"));
    assert_ne!(words[1], "0", "under the tenant's own user");
    let out = |id: AllocationId| {
        let log = bench
            .state_dir()
            .join("allocations")
            .join(id.to_string())
            .join("stdout");
        std::fs::read_to_string(log).unwrap_or_default()
    };
    for (id, percent, limit) in [(first, 30, 4096), (second, 45, 8192)] {
        eventually("it looked", || out(id).contains("control")).await;
        let text = out(id);
        for line in [
            format!("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={percent}"),
            format!("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={limit}M"),
            "CUDA_MPS_PIPE_DIRECTORY=/run/tenure/mps".to_owned(),
            "CUDA_VISIBLE_DEVICES=GPU-one".to_owned(),
        ] {
            assert!(text.contains(&line), "{line}: {text}");
        }
    }
    // Another tenant is refused the device, by an agent started anew too.
    for restart in [false, true] {
        if restart {
            bench.kill_agent();
            bench.start_agent();
            bench.watch().whole(bench.node).await;
            bench.settled().await;
        }
        let id = fresh();
        let mut other = share(&bench, id, "GPU-one", (100, 1024), "true");
        other.tenant = "globex".into();
        let report = bench.run(other).await;
        assert!(
            matches!(
                report.state,
                RunState::Exited {
                    by: Some(StopReason::Evicted),
                    ..
                }
            ),
            "{report:?}"
        );
        let log = bench.log(id, LogStream::Stderr).await;
        assert!(
            log.contains("another tenant are on device GPU-one under MPS"),
            "{log}"
        );
    }
    assert_eq!(said().len(), 1);
    end(&bench, first).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(said().len(), 1, "the other job is on it");
    end(&bench, second).await;
    eventually("the daemon ends with its last job", || said().len() == 2).await;
    assert!(said()[1].starts_with("quit "), "{:?}", said());
    // As after a scrub, for which this double has no driver.
    std::fs::remove_dir_all(bench.state_dir().join("scrub")).unwrap();
    std::fs::create_dir_all(bench.state_dir().join("scrub/receipts")).unwrap();
    let mut other = share(&bench, fresh(), "GPU-one", (100, 1024), "true");
    other.tenant = "globex".into();
    let report = bench.run(other).await;
    assert!(
        matches!(
            report.state,
            RunState::Exited {
                exit_code: Some(0),
                ..
            }
        ),
        "{report:?}"
    );
    assert_ne!(said()[2].split(' ').nth(1), Some(words[1]), "under its own user");
}

/// An MI300X of eight dies in this mode, with a node for each of its parts.
fn lay_out(machine: &Machine, mode: &str) {
    let (parts, dies) = match mode {
        "SPX" => (1, 8),
        "DPX" => (2, 4),
        _ => (8, 1),
    };
    let _ = std::fs::remove_dir_all(machine.root.path().join("sys/class/kfd/kfd/topology/nodes"));
    for part in 0..parts {
        kfd_node(
            machine,
            1 + part,
            0x05,
            part,
            128 + part,
            192 / u64::from(parts),
            &[],
        );
        let properties = format!("sys/class/kfd/kfd/topology/nodes/{}/properties", 1 + part);
        let text = std::fs::read_to_string(machine.root.path().join(&properties)).unwrap();
        machine.file(&properties, format!("{text}num_xcc {dies}\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_amd_device_is_cut_when_a_part_is_asked_for() {
    let machine = Arc::new(Machine::new());
    machine.device("dev/kfd", 1, 3);
    mi300x(&machine, 0, 0x05, ("SPX", "NPS1"));
    machine.remove("dev/dri/renderD128");
    for minor in 128..136 {
        machine.device(&format!("dev/dri/renderD{minor}"), 1, 5);
    }
    lay_out(&machine, "SPX");
    let found = machine.found();
    let device = &found.devices[0];
    assert_eq!(levels(device), ["partition", "exclusive"]);
    let how = hardware(device).partitioning.clone().unwrap();
    let kinds: Vec<_> = how
        .profiles
        .iter()
        .map(|kind| (kind.name.as_str(), kind.count, kind.memory_mib))
        .collect();
    assert_eq!(
        kinds,
        [
            ("SPX", 1, 196_608),
            ("DPX", 2, 98_304),
            ("QPX", 4, 49_152),
            ("CPX", 8, 24_576)
        ]
    );
    assert!(how.uniform && how.parts.is_empty());
    let uuid = device.facts.uuid.clone();

    // The kernel: sets the nodes out when the mode was written.
    let done = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let (machine, done) = (machine.clone(), done.clone());
        let mode = machine
            .root
            .path()
            .join("sys/class/drm/card0/device/current_compute_partition");
        move || {
            let mut was = "SPX".to_owned();
            while !done.load(Ordering::Relaxed) {
                let now = std::fs::read_to_string(&mode)
                    .unwrap_or_default()
                    .trim()
                    .to_owned();
                if now != was && !now.is_empty() {
                    std::thread::sleep(Duration::from_millis(100));
                    lay_out(&machine, &now);
                    was = now;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    });
    let bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let part = |id: AllocationId, kind: &str, number: u32, start, size, script: &str| {
        let mut order = share(&bench, id, &uuid, (125, 24_576), script);
        order.isolation = Isolation::Partition;
        order.devices[0].part = Some(PartChoice {
            profile: kind.into(),
            id: number,
            placement: Placement { start, size },
        });
        order
    };
    let (mut watcher, ids) = (bench.watch(), [fresh(), fresh()]);
    const NODES: &str = "find /tmp -name 'renderD*' -exec test -c {} ';' -exec basename {} ';'; sleep 60";
    for (id, start) in ids.into_iter().zip([7, 2]) {
        bench.start(part(id, "CPX", 3, start, 1, NODES)).await;
        watcher.state(id, is_running).await;
    }
    let out = |id: AllocationId| {
        let log = bench
            .state_dir()
            .join("allocations")
            .join(id.to_string())
            .join("stdout");
        std::fs::read_to_string(log).unwrap_or_default()
    };
    for (id, node) in ids.into_iter().zip(["renderD135\n", "renderD130\n"]) {
        eventually("it sees its own part alone", || out(id) == node).await;
    }
    // Not in another mode while somebody is on it.
    let other = fresh();
    let report = bench.run(part(other, "DPX", 1, 0, 4, "true")).await;
    assert!(
        matches!(
            report.state,
            RunState::Exited {
                by: Some(StopReason::Evicted),
                ..
            }
        ),
        "{report:?}"
    );
    let mode = || {
        let path = machine
            .root
            .path()
            .join("sys/class/drm/card0/device/current_compute_partition");
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    };
    assert_eq!(mode(), "CPX");
    for id in ids {
        end(&bench, id).await;
    }
    let report = bench.run(part(fresh(), "DPX", 1, 4, 4, "exit 7")).await;
    assert!(
        matches!(
            report.state,
            RunState::Exited {
                exit_code: Some(7),
                ..
            }
        ),
        "{report:?}"
    );
    assert_eq!(mode(), "DPX");
    done.store(true, Ordering::Relaxed);
}

#[test]
fn known_holes_leave_a_device_to_one_tenant() {
    let machine = Machine::new();
    let cut = |driver: &str| {
        json!({"driver": driver, "devices": [
            {"model": "A100-80GB", "uuid": "GPU-cut", "bus": 1, "mig": true},
            {"model": "L40S", "uuid": "GPU-whole", "bus": 2},
        ]})
    };
    let given = |machine: &Machine| {
        let found = machine.found();
        let levels: Vec<_> = found.devices.iter().map(levels).collect();
        (levels, found)
    };
    machine.nvml(&cut("580.95.05"));
    let (levels, found) = given(&machine);
    assert_eq!(levels, [vec![], vec!["exclusive"]]);
    assert!(
        noted(&found, &["not partition", "CVE-2026-24187", "580.159.03"]),
        "{:?}",
        found.notes
    );
    machine.nvml(&cut("580.159.04"));
    let (levels, found) = given(&machine);
    assert_eq!(
        levels,
        [vec!["partition"], vec!["exclusive"]],
        "{:?}",
        found.notes
    );

    // The container toolkit of the host, with a hole and without.
    for (version, expected) in [("1.17.7", vec![]), ("1.19.1", vec!["partition"]), ("?", vec![])] {
        machine.file(
            "usr/bin/nvidia-ctk",
            format!("#!/bin/sh\necho 'NVIDIA Container Toolkit CLI version {version}'\necho 'commit: abc'\n"),
        );
        open_to_all(&machine.root.path().join("usr/bin/nvidia-ctk"), 0o755);
        let (levels, found) = given(&machine);
        assert_eq!(levels[0], expected, "{version}: {:?}", found.notes);
    }
    machine.file(
        "usr/bin/nvidia-ctk",
        "#!/bin/sh\necho 'NVIDIA Container Toolkit CLI version 1.16.1'\n",
    );
    let said = machine.doctor();
    assert!(
        said.contains("container toolkit") && said.contains("CVE-2026-24260"),
        "{said}"
    );
}
