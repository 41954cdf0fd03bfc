//! What is measured of a real device while a job works on it, and what is known of its use after its end.

use std::time::Duration;

use tenure_api::channel::reading::SliceUse;
use tenure_api::channel::{AllocationReport, RunState};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::job::StopReason;
use tenure_engine::{Engine, Measured};
use tokio::sync::mpsc;

use crate::bench::{has_ended, is_running};
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
        used.busy_permille.is_some_and(|busy| busy > 0)
    })
    .await;
    assert!((10..=64).contains(&used.used_vram_mib), "{used:?}");
    assert_eq!(used.limit_vram_mib, 64);
    assert!(used.launches_per_s > Some(0) && used.processes == 1, "{used:?}");

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
