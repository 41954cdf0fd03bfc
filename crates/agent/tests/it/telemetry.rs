//! What is measured of a real device while a job works on it, and what is known of its use after its end.

use std::time::Duration;

use serde_json::json;
use tenure_api::channel::reading::{Gauges, SliceUse, Throttle};
use tenure_api::channel::{AllocationReport, RunState};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::job::StopReason;
use tenure_engine::{Engine, Measured};
use tokio::sync::mpsc;

use crate::bench::{Bench, has_ended, is_running};
use crate::machine::Machine;
use crate::slice::{SPIN, bench, opencl_dir, order, uuid};

/// The next reading of an allocation's slice that is as wanted.
async fn reading(
    measured: &mut mpsc::Receiver<Measured>,
    uuid: &str,
    id: AllocationId,
    wanted: impl Fn(&SliceUse) -> bool,
) -> SliceUse {
    let look = async {
        loop {
            let measured = measured.recv().await.expect("the hub stands");
            let device = measured.devices.into_iter().find(|device| device.uuid == uuid);
            let slices = device.into_iter().flat_map(|device| device.slices);
            let found = slices
                .filter(|slice| slice.allocation == id)
                .find(|slice| wanted(&slice.use_now));
            if let Some(found) = found {
                return found.use_now;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), look)
        .await
        .expect("no such reading came")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_measured_while_it_runs_and_after() {
    let mut bench = bench().await;
    let python = opencl_dir().join("venv/bin/python").display().to_string();
    let mut order = order(&bench, 64, &[&python, "-c", SPIN]);
    order.env.push(("PYOPENCL_NO_CACHE".into(), "1".into()));
    let (id, uuid) = (order.allocation, uuid(&bench));
    let mut watcher = bench.watch().patient(Duration::from_secs(300));
    let mut measured = bench.hub().subscribe_readings();
    bench.start(order).await;
    let used = reading(&mut measured, &uuid, id, |used| {
        used.busy_permille.is_some_and(|busy| busy > 0) && used.launches_per_s > Some(0)
    })
    .await;
    assert!((10..=64).contains(&used.used_vram_mib), "{used:?}");
    assert_eq!(used.limit_vram_mib, 64);
    assert_eq!(used.processes, 1, "{used:?}");

    // What runs is metered with its use so far.
    let is_metered = |report: &AllocationReport| report.usage.is_some_and(|usage| usage.busy_ms > 0);
    let report = loop {
        let report = watcher.report(id, is_running).await;
        if is_metered(&report) {
            break report;
        }
    };
    let so_far = report.usage.unwrap();
    assert!(so_far.peak_vram_mib >= 10 && so_far.launches > 0, "{so_far:?}");
    assert!(so_far.busy_ms <= report.ran_ms, "{report:?}");

    // A new agent goes on counting where the page stands.
    bench.kill_agent();
    bench.start_agent();
    watcher.whole(bench.node).await;
    reading(&mut measured, &uuid, id, |used| {
        used.busy_permille.is_some_and(|busy| busy > 0)
    })
    .await;

    bench.settled().await;
    let stop = bench.hub().stop(bench.node, id, StopReason::Cancelled, 0);
    stop.await.unwrap();
    let ended = watcher.report(id, has_ended).await;
    let last = ended.usage.expect("its end says what it used");
    assert!(
        last.busy_ms > so_far.busy_ms && last.launches > so_far.launches,
        "{last:?} after {so_far:?}"
    );
    assert!(last.peak_vram_mib >= 10, "{last:?}");

    // Its slice has left the device by now; the next agent knows all the same.
    bench.kill_agent();
    bench.start_agent();
    let whole = watcher.whole(bench.node).await;
    let told = whole.iter().find(|report| report.allocation == id).unwrap();
    assert_eq!(told.usage, Some(last));
    assert!(matches!(told.state, RunState::Exited { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_a_device_has_no_use_of_one() {
    let bench = crate::bench::Bench::new().await;
    let report = bench.run(bench.order(crate::bench::fresh(), "true")).await;
    assert_eq!(report.usage, None);
}

/// The next gauges of a device.
async fn gauges(measured: &mut mpsc::Receiver<Measured>, uuid: &str) -> Gauges {
    let look = async {
        loop {
            let measured = measured.recv().await.expect("the hub stands");
            let device = measured.devices.into_iter().find(|device| device.uuid == uuid);
            if let Some(device) = device {
                return device.gauges;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), look)
        .await
        .expect("no reading of it came")
}

#[tokio::test(flavor = "multi_thread")]
async fn nvidia_is_measured_and_a_driver_that_hangs_is_left_and_tried_again() {
    let mut machine = Machine::new();
    machine.patience_ms = 5000;
    let profile = |hang: &str| {
        json!({"driver": "570.86.15", "hang": hang, "devices": [
            {"model": "H100-80GB", "uuid": "GPU-new", "bus": 1, "ecc": true, "uncorrected": 2, "gauges": {
                "busy_percent": 83, "used_mib": 1234, "temperature_c": 71, "power_mw": 301_500,
                "energy_mj": 987_654_321, "throttle_reasons": 0x44, "corrected": 5,
                "sm_clock_mhz": 1410, "memory_clock_mhz": 1593, "memory_percent": 31,
                "graphics_percent": 77.5, "tensor_percent": 42.0,
            }},
            {"model": "T4", "uuid": "GPU-old", "bus": 2},
        ]})
    };
    machine.nvml(&profile("nvmlDeviceGetPowerUsage"));
    let bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let mut measured = bench.hub().subscribe_readings();
    let silence = tokio::time::timeout(Duration::from_secs(4), measured.recv()).await;
    assert!(
        silence.is_err(),
        "nothing is known, and nothing is said: {silence:?}"
    );
    machine.nvml(&profile(""));
    // The first look has nothing to compare with.
    let new = loop {
        let new = gauges(&mut measured, "GPU-new").await;
        if new.tensor_active_permille.is_some() {
            break new;
        }
    };
    assert_eq!(
        new,
        Gauges {
            busy_permille: Some(830),
            used_vram_mib: Some(1234),
            temperature_c: Some(71),
            power_mw: Some(301_500),
            energy_mj: Some(987_654_321),
            ecc_corrected: Some(5),
            ecc_uncorrected: Some(2),
            throttled_by: Some([Throttle::Power, Throttle::Thermal].into()),
            sm_clock_mhz: Some(1410),
            memory_clock_mhz: Some(1593),
            memory_busy_permille: Some(310),
            graphics_active_permille: Some(775),
            tensor_active_permille: Some(420),
            ..Gauges::default()
        }
    );
    let old = gauges(&mut measured, "GPU-old").await;
    let little = Gauges {
        used_vram_mib: Some(0),
        ..Gauges::default()
    };
    assert_eq!(old, little, "what it does not measure is absent, not zero");
}

#[tokio::test(flavor = "multi_thread")]
async fn amd_is_measured_beside() {
    let machine = Machine::new();
    let card = crate::sysfs::mi300x(&machine, 0, 0x10, ("SPX", "NPS1"));
    card.file("device/gpu_busy_percent", "42\n")
        .file("device/hwmon/hwmon2/power1_average", "550000000\n");
    let bench = Bench::on(Duration::from_secs(60), &[], &machine.variables()).await;
    let mut measured = bench.hub().subscribe_readings();
    let reading = tokio::time::timeout(Duration::from_secs(60), measured.recv()).await;
    let device = &reading.expect("a reading comes").unwrap().devices[0];
    assert_eq!(device.gauges.busy_permille, Some(420), "{device:?}");
    assert_eq!(device.gauges.power_mw, Some(550_000));
    assert_eq!(device.gauges.used_vram_mib, Some(285));
}
