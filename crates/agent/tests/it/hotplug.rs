//! Devices that come and go under a running agent reach the server without being asked for.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_engine::Seen;
use tenure_engine::conformance::Watcher;

use crate::bench::{Bench, eventually};
use crate::machine::Machine;

fn cards(gpus: &[(&str, u32, bool)]) -> Value {
    let devices: Vec<Value> = gpus
        .iter()
        .map(|(uuid, bus, lost)| json!({"model": "L40S", "uuid": uuid, "bus": bus, "lost": lost}))
        .collect();
    json!({"driver": "570.86.15", "devices": devices})
}

/// Waits for an inventory of exactly these NVIDIA devices.
async fn told(watcher: &mut Watcher, expected: &[&str]) {
    let inventory = watcher.until(|seen| match seen {
        Seen::Inventory { inventory, .. } => {
            let uuids: Vec<&str> = inventory.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
            (uuids == expected).then_some(())
        }
        _ => None,
    });
    inventory.await;
}

/// Nothing but the files tells the agent: of what the kernel announces, nothing is of this directory.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_comes_falls_off_or_is_pulled_is_told_at_once() {
    let machine = Machine::new();
    let seen_by_kernel = |bus: u32, vendor: [u8; 2]| {
        let slot = format!("0000:{bus:02x}:00.0");
        machine.file(
            &format!("proc/driver/nvidia/gpus/{slot}/information"),
            "Model: L40S\n",
        );
        machine.file(&format!("sys/bus/pci/devices/{slot}/config"), vendor);
    };
    const NVIDIA: [u8; 2] = [0xde, 0x10];
    seen_by_kernel(1, NVIDIA);
    machine.file("dev/nvidia0", "");
    machine.nvml(&cards(&[("GPU-one", 1, false)]));
    let variables = machine.variables();
    let mut bench = Bench::on(Duration::from_secs(60), &[], &variables).await;
    bench.kill_agent();
    let mut watcher = bench.watch();
    bench.start_agent();
    told(&mut watcher, &["GPU-one"]).await;

    machine.nvml(&cards(&[("GPU-one", 1, false), ("GPU-two", 2, false)]));
    seen_by_kernel(2, NVIDIA);
    machine.file("dev/nvidia1", "");
    told(&mut watcher, &["GPU-one", "GPU-two"]).await;

    // The first falls off the bus. All its files stay; its registers read as ones.
    machine.nvml(&cards(&[("GPU-one", 1, true), ("GPU-two", 2, false)]));
    seen_by_kernel(1, [0xff, 0xff]);
    told(&mut watcher, &["GPU-two"]).await;
    eventually("people are told which, and why", || {
        let log = bench.agent_log();
        log.contains("a device went") && log.contains("GPU-one") && log.contains("the GPU is lost")
    })
    .await;

    // The second is pulled.
    machine.nvml(&cards(&[("GPU-one", 1, true)]));
    machine.remove("proc/driver/nvidia/gpus/0000:02:00.0");
    machine.remove("dev/nvidia1");
    told(&mut watcher, &[]).await;

    // And the first is back after a reset.
    machine.nvml(&cards(&[("GPU-one", 1, false)]));
    seen_by_kernel(1, NVIDIA);
    told(&mut watcher, &["GPU-one"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_here_is_not_started() {
    let machine = Machine::new();
    machine.nvml(&cards(&[("GPU-one", 1, true)]));
    let bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let mut order = bench.order(crate::bench::fresh(), "true");
    order.devices = vec![tenure_api::channel::DeviceSlice {
        uuid: "GPU-one".into(),
        vram_mib: 46_068,
        compute_permille: 1000,
        capped: false,
        part: None,
    }];
    order.isolation = tenure_domain::workload::spec::Isolation::Exclusive;
    let report = bench.run(order).await;
    let tenure_api::channel::RunState::NotStarted { why } = report.state else {
        panic!("it ran: {report:?}");
    };
    assert!(why.contains("GPU-one is not here"), "{why}");
}

/// What OpenCL has on this machine is there beside the rest, and given as guard and workers can.
#[test]
fn opencl_stands_beside_the_vendors() {
    let machine = Machine::new().with_opencl();
    machine.nvml(&cards(&[("GPU-one", 1, false)]));
    let found = machine.found();
    assert_eq!(found.devices[0].facts.uuid, "GPU-one");
    let pocl = found
        .devices
        .iter()
        .find(|device| &*device.facts.class == "pocl-cpu")
        .expect("PoCL is installed by scripts/setup");
    assert_eq!(crate::machine::levels(pocl), ["guarded", "fenced", "exclusive"]);
    assert!(pocl.facts.uuid.starts_with("opencl-host-") && pocl.facts.vram_mib > 0);
}
