//! A job that pauses gives its device to another tenant and goes on where it was; its agent may end meanwhile.

use std::time::{Duration, Instant};

use serde_json::json;
use tenure_api::channel::{DeviceSlice, Order, RunState};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::spec::Isolation;
use tenure_engine::Engine;
use tenure_engine::conformance::Watcher;

use crate::bench::{Bench, fresh, has_ended, is_running};
use crate::machine::Machine;
use crate::slice::{DONE, bench, on_page, order, ran, reader, slice};

const MIB: u64 = 1 << 20;

fn is_paused(state: &RunState) -> bool {
    *state == RunState::Paused
}

/// ffmpeg over OpenCL filters, into a file that the test can read.
fn film(bench: &Bench, name: &str) -> Order {
    let script = format!(
        "exec ffmpeg -hide_banner -loglevel error -y -init_hw_device opencl=gpu:0.0 -filter_hw_device gpu -f lavfi \
         -i testsrc2=size=320x240:rate=25:duration=12 \
         -vf format=yuv420p,hwupload,avgblur_opencl=sizeX=9,unsharp_opencl,hwdownload,format=yuv420p \
         -f rawvideo $MARKS/{name}"
    );
    let mut order = order(bench, 256, &["sh", "-c", &script]);
    order.tenant = "ten_a".into();
    order.isolation = Isolation::Fenced;
    order
}

/// Another tenant's job, which has the whole device.
fn whole(bench: &Bench) -> Order {
    let mut order = order(bench, 1024, &["clinfo", "-l"]);
    order.tenant = "ten_b".into();
    order.isolation = Isolation::Fenced;
    order.devices[0].compute_permille = 1000;
    order
}

async fn paused(bench: &Bench, watcher: &mut Watcher, id: AllocationId) -> u64 {
    bench.hub().pause(bench.node, id).await.unwrap();
    let report = watcher.report(id, is_paused).await;
    let seen = reader(bench).snapshot().unwrap();
    let slice = seen.slice(id.0).unwrap();
    assert_eq!(
        (slice.used_bytes, slice.limit_bytes),
        (0, 0),
        "nothing is left on the device"
    );
    report.ran_ms
}

async fn resumed(bench: &Bench, watcher: &mut Watcher, id: AllocationId, devices: &[DeviceSlice]) {
    let hub = bench.hub();
    hub.resume(bench.node, id, "ten_a".into(), devices.to_vec())
        .await
        .unwrap();
    watcher
        .state(id, |state| is_running(state) || has_ended(state))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_film_is_the_same_to_the_byte() {
    let mut bench = bench().await;
    let read = |bench: &Bench, name: &str| std::fs::read(bench.root.path().join("marks").join(name)).unwrap();
    let (state, text) = ran(&bench, film(&bench, "straight")).await;
    assert_eq!(state, DONE, "{text}");
    let order = film(&bench, "paused");
    let (id, devices) = (order.allocation, order.devices.clone());
    let mut watcher = bench.watch().patient(Duration::from_secs(300));
    bench.start(order).await;
    watcher.state(id, is_running).await;
    let mut ran_ms = 0;
    let path = bench.root.path().join("marks/paused");
    let written = || std::fs::metadata(&path).map_or(0, |facts| facts.len());
    for round in 0..3 {
        let before = written();
        // Drivers compile for minutes on a loaded machine.
        let deadline = Instant::now() + Duration::from_secs(300);
        while written() <= before + MIB && on_page(&reader(&bench), id) {
            assert!(Instant::now() < deadline, "it does not work");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let at_ms = paused(&bench, &mut watcher, id).await;
        assert!(at_ms >= ran_ms, "its time stands still, and never goes back");
        if round == 1 {
            // The agent ends meanwhile; what it did is on its node still.
            bench.kill_agent();
            watcher = bench.watch().patient(Duration::from_secs(300));
            bench.start_agent();
            bench.settled().await;
            assert_eq!(watcher.report(id, is_paused).await.ran_ms, at_ms);
        }
        let (state, text) = ran(&bench, whole(&bench)).await;
        assert_eq!(state, DONE, "{text}");
        assert!(text.contains("Device #0"), "{text}");
        let before = written();
        resumed(&bench, &mut watcher, id, &devices).await;
        assert_eq!(before, written().min(before), "nothing was written meanwhile");
        ran_ms = at_ms;
    }
    let end = watcher.report(id, has_ended).await;
    assert_eq!(end.state, DONE);
    assert!(
        read(&bench, "paused") == read(&bench, "straight"),
        "the films differ"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_time_limit_stands_still_and_a_stop_ends_what_is_paused() {
    let bench = bench().await;
    let mut order = film(&bench, "stopped");
    order.run_time_s = 3;
    order.command = ["sleep", "600"].map(String::from).into();
    let id = order.allocation;
    let mut watcher = bench.watch().patient(Duration::from_secs(60));
    bench.start(order).await;
    watcher.state(id, is_running).await;
    let at_ms = paused(&bench, &mut watcher, id).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    bench
        .hub()
        .stop(
            bench.node,
            id,
            tenure_domain::workload::job::StopReason::Cancelled,
            1,
        )
        .await
        .unwrap();
    let end = watcher.report(id, has_ended).await;
    assert!(
        matches!(
            end.state,
            RunState::Exited {
                by: Some(tenure_domain::workload::job::StopReason::Cancelled),
                ..
            }
        ),
        "{end:?}"
    );
    assert_eq!(end.ran_ms, at_ms, "nothing ran while it was paused");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_worker_is_kept_and_says_why() {
    // Its device is no driver's that sets programs aside, though the program for that is there.
    let program = ("TENURE_CUDA_CHECKPOINT", "/bin/true".to_owned());
    let bench = Bench::on(Duration::from_secs(60), &[], &[program]).await;
    let mut order = order(&bench, 64, &["sleep", "60"]);
    order.devices = vec![slice(&bench, 64, 500)];
    let id = order.allocation;
    let mut watcher = bench.watch();
    bench.start(order).await;
    watcher.state(id, is_running).await;
    bench.hub().pause(bench.node, id).await.unwrap();
    let kept = loop {
        let report = watcher.report(id, is_running).await;
        if let Some(why) = report.kept {
            break why;
        }
    };
    assert!(kept.contains("no worker"), "{kept}");
}

/// A machine with one GPU of NVIDIA's, and a double of `cuda-checkpoint` that keeps the stage of each process in a file
/// and refuses steps out of order, as the driver does.
fn with_checkpoint() -> Machine {
    let machine = Machine::new();
    machine.nvml(
        &json!({"driver": "595.71.05", "devices": [{"model": "H100-80GB", "uuid": "GPU-whole", "bus": 1}]}),
    );
    for file in ["nvidia0", "nvidiactl", "nvidia-uvm"] {
        // One that can be opened: the null device's numbers.
        machine.device(&format!("dev/{file}"), 1, 3);
    }
    machine.file("stages/none", "");
    let stages = machine.root.path().join("stages").display().to_string();
    machine.file(
        "usr/bin/cuda-checkpoint",
        format!(
            "#!/bin/sh\n\
             while [ $# -gt 0 ]; do case $1 in --pid) pid=$2; shift;; --action) act=$2; shift;; --get-state) act=state;; esac; shift; done\n\
             stage=$(cat {stages}/$pid 2>/dev/null || echo running)\n\
             case $act-$stage in\n\
               state-*) echo $stage; exit;;\n\
               lock-running) next=locked;; checkpoint-locked) next=checkpointed;;\n\
               restore-checkpointed) next=locked;; unlock-locked) next=running;;\n\
               *) echo \"illegal state\" >&2; exit 1;;\n\
             esac\n\
             [ ! -e {stages}/refuse-$act ] || {{ echo \"not supported\" >&2; exit 1; }}\n\
             echo $next > {stages}/$pid\n"
        ),
    );
    let program = machine.root.path().join("usr/bin/cuda-checkpoint");
    std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    machine
}

/// A job with the whole GPU open, which counts as long as it runs.
fn counting(bench: &Bench, machine: &Machine) -> Order {
    let device = machine.root.path().join("dev/nvidia0");
    let script = format!(
        "exec 3<{}; n=0; while :; do n=$((n+1)); echo $n > $MARKS/count; sleep 0.02 3<&-; done",
        device.display()
    );
    let mut order = bench.order(fresh(), &script);
    order.tenant = "ten_a".into();
    order.isolation = Isolation::Exclusive;
    order.devices = vec![DeviceSlice {
        uuid: "GPU-whole".into(),
        vram_mib: 81_920,
        compute_permille: 1000,
        capped: false,
        part: None,
    }];
    order
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_sets_aside_what_has_no_worker() {
    let machine = with_checkpoint();
    let mut bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let stages = machine.root.path().join("stages");
    let stage = || {
        let all = std::fs::read_dir(&stages).unwrap().flatten();
        // Of the counter alone: a child of it that had the device open for a moment is `sleep` by now.
        let counts = |pid: &std::ffi::OsStr| {
            let comm = std::path::Path::new("/proc").join(pid).join("comm");
            std::fs::read_to_string(comm).is_ok_and(|name| name.trim() == "sh")
        };
        let mut all: Vec<String> = all
            .filter(|entry| counts(&entry.file_name()))
            .map(|entry| std::fs::read_to_string(entry.path()).unwrap())
            .collect();
        all.dedup();
        all.concat().trim().to_owned()
    };
    let count =
        |bench: &Bench| std::fs::read_to_string(bench.root.path().join("marks/count")).unwrap_or_default();
    let order = counting(&bench, &machine);
    let (id, devices) = (order.allocation, order.devices.clone());
    let mut watcher = bench.watch();
    bench.start(order).await;
    let state = watcher
        .state(id, |state| is_running(state) || has_ended(state))
        .await;
    assert!(is_running(&state), "{state:?}");
    crate::bench::eventually("it counts", || !count(&bench).is_empty()).await;

    bench.hub().pause(bench.node, id).await.unwrap();
    let at_ms = watcher.report(id, is_paused).await.ran_ms;
    assert_eq!(stage(), "checkpointed");
    let stood = count(&bench);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(count(&bench), stood, "it stands still");

    // The agent ends meanwhile; another job has the device.
    bench.kill_agent();
    watcher = bench.watch();
    bench.start_agent();
    bench.settled().await;
    assert_eq!(watcher.report(id, is_paused).await.ran_ms, at_ms);
    let mut other = counting(&bench, &machine);
    other.command = vec!["true".into()];
    let report = bench.run(other).await;
    assert_eq!(report.state, DONE);

    resumed(&bench, &mut watcher, id, &devices).await;
    assert_eq!(stage(), "running");
    crate::bench::eventually("it goes on", || count(&bench) != stood).await;

    // Paused again and stopped: it never runs without its device.
    bench.hub().pause(bench.node, id).await.unwrap();
    watcher.report(id, is_paused).await;
    let stood = count(&bench);
    let cancelled = tenure_domain::workload::job::StopReason::Cancelled;
    bench.hub().stop(bench.node, id, cancelled, 30).await.unwrap();
    let end = watcher.report(id, has_ended).await;
    assert!(
        matches!(end.state, RunState::Exited { by: Some(by), .. } if by == cancelled),
        "{end:?}"
    );
    assert_eq!(count(&bench), stood, "it did not run again");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_driver_refuses_to_set_aside_runs_on() {
    let machine = with_checkpoint();
    machine.file("stages/refuse-checkpoint", "");
    let bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let count = || std::fs::read_to_string(bench.root.path().join("marks/count")).unwrap_or_default();
    let order = counting(&bench, &machine);
    let id = order.allocation;
    let mut watcher = bench.watch();
    bench.start(order).await;
    watcher.state(id, is_running).await;
    crate::bench::eventually("it counts", || !count().is_empty()).await;
    bench.hub().pause(bench.node, id).await.unwrap();
    let kept = loop {
        let report = watcher.report(id, is_running).await;
        if let Some(why) = report.kept {
            break why;
        }
    };
    assert!(kept.contains("not supported"), "{kept}");
    let before = count();
    crate::bench::eventually("it runs on, unlocked", || count() != before).await;
    let stages = std::fs::read_dir(machine.root.path().join("stages"))
        .unwrap()
        .flatten();
    let stages: String = stages
        .map(|entry| std::fs::read_to_string(entry.path()).unwrap())
        .collect();
    assert_eq!(stages.trim(), "running");
}
