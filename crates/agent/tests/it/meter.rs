//! What tenants are metered for is what their devices counted.

use std::time::Duration;

use serde_json::json;
use tenure_api::channel::{AllocationReport, DeviceSlice};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::Isolation;
use tenure_engine::conformance::Watcher;
use tenure_engine::{Engine, Seen};

use crate::bench::{Bench, fresh, has_ended, is_running};
use crate::machine::Machine;

/// What NVML's double counts of energy, from now on.
fn counts(machine: &Machine, used_mj: [u64; 2]) {
    let all = json!({ "GPU-a": used_mj[0], "GPU-b": used_mj[1] });
    machine.file("energy.new", all.to_string());
    let root = machine.root.path();
    std::fs::rename(root.join("energy.new"), root.join("energy.json")).unwrap();
}

/// Waits until an allocation was told to have used so much.
async fn has_used(watcher: &mut Watcher, id: AllocationId, energy_mj: u64) {
    let is_told = |report: &AllocationReport| {
        let usage = report.usage.filter(|usage| usage.energy_mj == energy_mj);
        report.allocation == id && usage.is_some()
    };
    let told = watcher.until(|seen| match seen {
        Seen::Report { allocations, .. } if allocations.iter().any(is_told) => Some(()),
        _ => None,
    });
    told.await;
}

#[tokio::test(flavor = "multi_thread")]
async fn energy_is_what_nvml_counted_to_the_millijoule() {
    let machine = Machine::new();
    let gauges = json!({
        "busy_percent": 50, "used_mib": 10, "temperature_c": 50, "power_mw": 100_000, "energy_mj": 0,
        "throttle_reasons": 0, "corrected": 0,
    });
    machine.nvml(&json!({"driver": "570.86.15", "devices": [
        {"model": "L40S", "uuid": "GPU-a", "bus": 1, "gauges": gauges},
        {"model": "L40S", "uuid": "GPU-b", "bus": 2, "gauges": gauges},
    ]}));
    let begun = [1_000_000, 77];
    counts(&machine, begun);
    let mut bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let mut measured = bench.hub().subscribe_readings();
    // Looked at before anybody came: what was used until then is nobody's.
    let look = async {
        loop {
            let seen = measured.recv().await.expect("the hub stands");
            if seen
                .devices
                .iter()
                .any(|device| device.gauges.energy_mj.is_some())
            {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), look)
        .await
        .expect("no reading came");
    let orders = [("ten_a", "GPU-a"), ("ten_b", "GPU-b")].map(|(tenant, uuid)| {
        let mut order = bench.order(fresh(), "sleep 600");
        order.tenant = tenant.into();
        order.isolation = Isolation::Exclusive;
        order.run_time_s = 900;
        order.devices = vec![DeviceSlice {
            uuid: uuid.into(),
            vram_mib: 1024,
            compute_permille: 1000,
            capped: false,
            part: None,
        }];
        order
    });
    let mut watcher = bench.watch().patient(Duration::from_secs(120));
    for order in orders.clone() {
        bench.start(order).await;
    }
    let ids = orders.map(|order| order.allocation);
    for id in ids {
        watcher.state(id, is_running).await;
    }
    counts(&machine, [1_000_000 + 123_457, 77 + 1]);
    has_used(&mut watcher, ids[0], 123_457).await;
    // What was used while no agent looked is metered by the next one.
    bench.kill_agent();
    counts(&machine, [1_000_000 + 200_001, 77 + 4_242]);
    let mut watcher = bench.watch().patient(Duration::from_secs(120));
    bench.start_agent();
    has_used(&mut watcher, ids[0], 200_001).await;
    bench.settled().await;
    counts(&machine, [1_000_000 + 300_003, 77 + 5_000]);
    // A reading of the driver is a quarter of a second old at most, and a stop that comes sooner finds an older one.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut sum = 0;
    for id in ids {
        let stop = bench.hub().stop(bench.node, id, StopReason::Cancelled, 0);
        stop.await.unwrap();
        sum += watcher
            .report(id, has_ended)
            .await
            .usage
            .expect("it used energy")
            .energy_mj;
    }
    assert_eq!(sum, 300_003 + 5_000, "as NVML's counters have it");
}
