//! A job that pauses gives its device to another tenant and goes on where it was; its agent may end meanwhile.

use std::time::{Duration, Instant};

use tenure_api::channel::{DeviceSlice, Order, RunState};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::spec::Isolation;
use tenure_engine::Engine;
use tenure_engine::conformance::Watcher;

use crate::bench::{Bench, has_ended, is_running};
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
    let mut times = 0;
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
        if written() >= 34 * MIB {
            break;
        }
        let at_ms = paused(&bench, &mut watcher, id).await;
        assert!(at_ms >= ran_ms, "its time stands still, and never goes back");
        times += 1;
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
    assert!(times >= 2, "paused {times} times");
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
    let bench = bench().await;
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
