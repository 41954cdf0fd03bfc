//! Agent and server come and go; every job runs exactly once and its end is told.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tenure_api::channel::RunState;
use tenure_domain::id::AllocationId;
use tenure_domain::workload::job::StopReason;
use tenure_engine::{Engine, Seen};

use crate::bench::{Bench, MARK, fresh, has_ended, is_running, processes_under};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_agent_adopts_what_runs_and_what_ended() {
    let mut bench = Bench::new().await;
    let (mut watcher, mut other) = (bench.watch(), bench.watch());
    let (long, short) = (fresh(), fresh());
    bench.start(bench.order(long, &format!("{MARK}; sleep 60"))).await;
    bench
        .start(bench.order(short, &format!("{MARK}; sleep 1; exit 9")))
        .await;
    watcher.state(long, is_running).await;
    other.state(short, is_running).await;
    bench.kill_agent();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let mut watcher = bench.watch();
    let restarted = Instant::now();
    bench.start_agent();
    let whole = watcher.whole(bench.node).await;
    assert!(
        restarted.elapsed() < Duration::from_secs(3),
        "adopted in {:?}",
        restarted.elapsed()
    );
    let of = |id| whole.iter().find(|report| report.allocation == id).unwrap();
    assert!(is_running(&of(long).state) && of(long).ran_ms >= 1500);
    assert_eq!(
        of(short).state,
        RunState::Exited {
            exit_code: Some(9),
            signal: None,
            by: None
        }
    );
    assert!((900..1500).contains(&of(short).ran_ms), "{}", of(short).ran_ms);
    bench.settled().await;
    bench
        .hub()
        .stop(bench.node, long, StopReason::Cancelled, 1)
        .await
        .unwrap();
    watcher.state(long, has_ended).await;
    assert_eq!((bench.marks(long), bench.marks(short)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thin_parent_that_dies_takes_its_job_along() {
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let id = fresh();
    let tag = format!("bereft-{id}");
    bench
        .start(bench.order(id, &format!("while :; do sleep 0.1; done; : {tag}")))
        .await;
    watcher.state(id, is_running).await;
    let parents = processes_under(&bench.state_dir());
    assert_eq!(parents.len(), 1, "the thin parent");
    std::process::Command::new("kill")
        .args(["-9", &parents[0].to_string()])
        .status()
        .unwrap();
    let state = watcher.state(id, has_ended).await;
    assert!(
        matches!(
            state,
            RunState::Exited {
                by: Some(StopReason::Evicted),
                ..
            }
        ),
        "{state:?}"
    );
    assert!(!crate::bench::any_process_with(&tag));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_of_one_host_do_not_meet() {
    let (here, there) = (Bench::new().await, Bench::new().await);
    let (mut watcher, mut other) = (here.watch(), there.watch());
    let id = fresh();
    here.start(here.order(id, "sleep 60")).await;
    there.start(there.order(id, "sleep 60")).await;
    watcher.state(id, is_running).await;
    other.state(id, is_running).await;
    here.hub()
        .stop(here.node, id, StopReason::Cancelled, 0)
        .await
        .unwrap();
    watcher.state(id, has_ended).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(
        processes_under(&there.state_dir()).len(),
        1,
        "the other platform's allocation of the same number runs on"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_do_not_share_a_directory() {
    let bench = Bench::new().await;
    let output = std::process::Command::new(crate::bench::AGENT)
        .args(["run", "--server", "127.0.0.1:1", "--state-dir"])
        .arg(bench.state_dir())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another agent uses"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_boot_ends_what_the_old_one_ran() {
    let mut bench = Bench::new().await;
    let mut watcher = bench.watch();
    let (id, half) = (fresh(), fresh());
    for id in [id, half] {
        bench.start(bench.order(id, "sleep 60")).await;
        watcher.state(id, is_running).await;
    }
    bench.kill_agent();
    for pid in processes_under(&bench.state_dir()) {
        let _ = std::process::Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status();
    }
    // As a reboot leaves it: another boot id, a process number given to somebody else, half a file.
    let path = bench.state_dir().join(format!("allocations/{id}/state.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    std::fs::write(&path, text.replace(boot.trim(), "another-boot")).unwrap();
    std::fs::write(
        bench.state_dir().join(format!("allocations/{half}/state.jsonl")),
        "{\"allo",
    )
    .unwrap();
    let mut watcher = bench.watch();
    bench.start_agent();
    let whole = watcher.whole(bench.node).await;
    for id in [id, half] {
        let report = whole.iter().find(|report| report.allocation == id).unwrap();
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
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_come_and_go() {
    let mut bench = Bench::new().await;
    let (mut watcher, mut other) = (bench.watch(), bench.watch());
    let (long, short) = (fresh(), fresh());
    bench.start(bench.order(long, &format!("{MARK}; sleep 60"))).await;
    bench
        .start(bench.order(short, &format!("{MARK}; sleep 0.5")))
        .await;
    watcher.state(long, is_running).await;
    other.state(short, is_running).await;
    for _ in 0..5 {
        bench.restart_hub().await;
        let mut watcher = bench.watch();
        let whole = watcher.whole(bench.node).await;
        assert!(
            whole
                .iter()
                .any(|report| report.allocation == long && is_running(&report.state))
        );
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    let mut watcher = bench.watch();
    bench.settled().await;
    bench.start(bench.order(short, MARK)).await;
    watcher.state(short, has_ended).await;
    assert_eq!((bench.marks(long), bench.marks(short)), (1, 1));
}

/// A small reconcile loop over agents killed at random moments: what is intended and not reported is started,
/// what ended is released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_every_job_runs_once() {
    let kills: u64 = std::env::var("TENURE_AGENT_KILLS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(50);
    let mut bench = Bench::with(Duration::from_secs(20), &[]).await;
    let mut seen = bench.hub().subscribe();
    let mut intended: BTreeSet<AllocationId> = BTreeSet::new();
    let mut ended: BTreeSet<AllocationId> = BTreeSet::new();
    let mut all: Vec<AllocationId> = Vec::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut killed = 0;
    let mut kill_at = Instant::now() + Duration::from_millis(50);
    let deadline = Instant::now() + Duration::from_secs(60 + kills);
    while killed < kills || !intended.is_empty() {
        assert!(
            Instant::now() < deadline,
            "{} jobs have not ended: {intended:?}",
            intended.len()
        );
        if killed < kills && Instant::now() >= kill_at {
            bench.kill_agent();
            bench.start_agent();
            killed += 1;
            kill_at = Instant::now() + Duration::from_millis(random(400));
        }
        if killed < kills && intended.len() < 8 {
            let id = fresh();
            intended.insert(id);
            all.push(id);
        }
        // Said again until it is reported, as after any doubt.
        for &id in &intended {
            let script = format!("{MARK}; sleep 0.{}", id.0 % 4);
            let _ = tokio::time::timeout(
                Duration::from_millis(200),
                bench.hub().start(bench.node, bench.order(id, &script)),
            )
            .await;
        }
        while let Ok(Some(seen)) = tokio::time::timeout(Duration::from_millis(15), seen.recv()).await {
            let Seen::Report { allocations, .. } = seen else {
                continue;
            };
            for report in allocations.iter().filter(|report| has_ended(&report.state)) {
                let id = report.allocation;
                let log = std::fs::read_to_string(bench.state_dir().join(format!("allocations/{id}/stderr")))
                    .unwrap_or_default();
                assert_eq!(
                    report.state,
                    RunState::Exited {
                        exit_code: Some(0),
                        signal: None,
                        by: None
                    },
                    "{report:?} {log}"
                );
                intended.remove(&id);
                ended.insert(id);
                let _ = bench.hub().release(bench.node, id).await;
            }
        }
    }
    eprintln!("{killed} kills, {} jobs", all.len());
    assert_eq!(ended.len(), all.len());
    for id in all {
        assert_eq!(bench.marks(id), 1, "{id}");
    }
}
