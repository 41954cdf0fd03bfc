//! Parts of devices, from order to end: made for a job, given to it alone, removed after it, over an agent's restart and
//! over failures; what others made stays.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_api::channel::{DeviceSlice, LogStream, Order, RunState};
use tenure_domain::id::AllocationId;
use tenure_domain::schedule::hardware::{PartChoice, Placement};
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::Isolation;
use tenure_engine::Engine;

use crate::bench::{Bench, eventually, fresh, has_ended, is_running, processes_under};
use crate::machine::Machine;

fn card(fail: &Value) -> Value {
    json!({"driver": "595.71.05", "fail": fail, "devices": [
        {"model": "A100-80GB", "uuid": "GPU-cut", "bus": 1, "mig": true, "instances": [
            {"profile": "1g.10gb", "start": 0, "uuid": "MIG-of-others"},
        ]},
    ]})
}

fn machine() -> Machine {
    let machine = Machine::new();
    machine.nvml(&card(&json!({})));
    machine.file("proc/devices", "Character devices:\n511 nvidia-caps\n");
    for (minor, name) in ["nvidia0", "nvidiactl", "nvidia-uvm"].iter().enumerate() {
        machine.device(&format!("dev/{name}"), 195, minor as u32);
    }
    machine
}

fn order(bench: &Bench, id: AllocationId, script: &str) -> Order {
    let mut order = bench.order(id, script);
    order.isolation = Isolation::Partition;
    order.devices = vec![DeviceSlice {
        uuid: "GPU-cut".into(),
        vram_mib: 40_192,
        compute_permille: 428,
        capped: false,
        part: Some(PartChoice {
            profile: "3g.40gb".into(),
            id: 9,
            placement: Placement { start: 4, size: 4 },
        }),
    }];
    order
}

/// What lies on the device, as profile and place.
fn lies(machine: &Machine) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(machine.root.path().join("instances.json")).unwrap_or_default();
    let all: Value = serde_json::from_str(&text).unwrap_or_default();
    let here = all["GPU-cut"].as_array().cloned().unwrap_or_default();
    let told = |one: &Value| Some((one["profile"].as_str()?.to_owned(), one["start"].as_u64()?));
    here.iter().filter_map(told).collect()
}

fn others() -> Vec<(String, u64)> {
    vec![("1g.10gb".to_owned(), 0)]
}

fn both() -> Vec<(String, u64)> {
    vec![("1g.10gb".to_owned(), 0), ("3g.40gb".to_owned(), 4)]
}

const LOOK: &str = "echo cuda $CUDA_VISIBLE_DEVICES; echo nvidia $NVIDIA_VISIBLE_DEVICES; \
    for file in $(find /tmp -name 'nvidia*' | sort); do test -c $file && echo node ${file#*/dev/}; done";

#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_its_part_and_nothing_else_of_the_device() {
    let machine = machine();
    let bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let mut watcher = bench.watch();
    let id = fresh();
    bench.start(order(&bench, id, &format!("{LOOK}; sleep 60"))).await;
    watcher.state(id, is_running).await;
    assert_eq!(lies(&machine), both());
    let log = bench
        .state_dir()
        .join("allocations")
        .join(id.to_string())
        .join("stdout");
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    eventually("it looked around", || text().contains("nvidiactl")).await;
    let said = text();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "cuda MIG-GPU-cut-2-0",
            "nvidia MIG-GPU-cut-2-0",
            "node nvidia-caps/nvidia-cap33",
            "node nvidia-caps/nvidia-cap34",
            "node nvidia-uvm",
            "node nvidia0",
            "node nvidiactl",
        ]
    );
    bench
        .hub()
        .stop(bench.node, id, StopReason::Cancelled, 0)
        .await
        .unwrap();
    watcher.state(id, has_ended).await;
    assert_eq!(lies(&machine), others(), "removed before its end is told");

    // The next gets the same place.
    let report = bench.run(order(&bench, fresh(), "exit 3")).await;
    assert!(
        matches!(
            report.state,
            RunState::Exited {
                exit_code: Some(3),
                ..
            }
        ),
        "{report:?}"
    );
    assert_eq!(lies(&machine), others());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_started_anew_keeps_the_parts_of_what_runs_and_removes_the_rest() {
    let machine = machine();
    let mut bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let mut watcher = bench.watch();
    let id = fresh();
    bench.start(order(&bench, id, "sleep 60")).await;
    watcher.state(id, is_running).await;
    bench.kill_agent();
    bench.start_agent();
    watcher.whole(bench.node).await;
    bench.settled().await;
    assert_eq!(lies(&machine), both(), "its job lives");
    bench.kill_agent();
    for pid in processes_under(&bench.state_dir()) {
        std::process::Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()
            .unwrap();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(lies(&machine), both(), "nobody was there to remove it");
    let mut watcher = bench.watch();
    bench.start_agent();
    watcher.whole(bench.node).await;
    eventually("its own part is gone, and that of others is not", || {
        lies(&machine) == others()
    })
    .await;
    // One that was written down and made, and whose agent died before it could say so.
    bench.kill_agent();
    let intent = json!({"allocation": fresh(), "boot_id": boot_id(), "gpu": "GPU-cut", "made": null,
        "part": {"profile": "2g.20gb", "id": 14, "placement": {"start": 2, "size": 2}}});
    std::fs::write(bench.state_dir().join("parts/intent.json"), intent.to_string()).unwrap();
    let mut all: Value =
        serde_json::from_slice(&std::fs::read(machine.root.path().join("instances.json")).unwrap()).unwrap();
    let half = json!({"id": 9, "profile": "2g.20gb", "start": 2});
    all["GPU-cut"].as_array_mut().unwrap().push(half);
    machine.file("instances.json", all.to_string());
    bench.start_agent();
    eventually("half a part is gone too", || lies(&machine) == others()).await;
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap()
        .trim()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_made_is_told_and_leaves_nothing() {
    let machine = machine();
    machine.nvml(&card(&json!({"nvmlGpuInstanceCreateComputeInstance": 999})));
    let bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let id = fresh();
    let report = bench.run(order(&bench, id, "true")).await;
    let by = Some(StopReason::Evicted);
    assert!(
        matches!(report.state, RunState::Exited { by: why, .. } if why == by),
        "{report:?}"
    );
    let log = bench.log(id, LogStream::Stderr).await;
    assert!(
        log.contains("3g.40gb of device GPU-cut: no compute instance"),
        "{log}"
    );
    assert_eq!(lies(&machine), others());
    machine.nvml(&card(&json!({})));

    // Where others lie nothing is made, and theirs is not touched.
    let mut over = order(&bench, fresh(), "true");
    let part = over.devices[0].part.as_mut().unwrap();
    (part.profile, part.id, part.placement) = ("4g.40gb".into(), 5, Placement { start: 0, size: 4 });
    let report = bench.run(over).await;
    assert!(
        matches!(report.state, RunState::Exited { by: why, .. } if why == by),
        "{report:?}"
    );
    assert_eq!(lies(&machine), others());

    // No part named, and one that is none.
    let mut unnamed = order(&bench, fresh(), "true");
    unnamed.devices[0].part = None;
    let mut crooked = order(&bench, fresh(), "true");
    crooked.devices[0].part.as_mut().unwrap().placement.start = 3;
    for (order, word) in [(unnamed, "no part of device"), (crooked, "has no 3g.40gb at 3")] {
        let report = bench.run(order).await;
        let RunState::NotStarted { why } = report.state else {
            panic!("it ran: {report:?}");
        };
        assert!(why.contains(word), "{why}");
    }
    assert_eq!(lies(&machine), others());
}
