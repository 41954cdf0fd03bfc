//! Ending jobs: a signal, patience, force; and nobody is left behind.

use std::time::Instant;

use tenure_api::channel::{LogStream, RunState};
use tenure_domain::workload::job::StopReason;
use tenure_engine::Engine;

use crate::bench::{Bench, any_process_with, eventually, fresh, has_ended, is_running};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_listens_ends_in_its_own_way() {
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let id = fresh();
    bench
        .start(bench.order(
            id,
            "trap 'echo saving; sleep 0.3; echo saved; exit 3' TERM; echo up; while :; do sleep 0.05; done",
        ))
        .await;
    watcher.state(id, is_running).await;
    eventually("it is up", || {
        std::fs::read(bench.state_dir().join(format!("allocations/{id}/stdout")))
            .is_ok_and(|log| log == b"up\n")
    })
    .await;
    bench
        .hub()
        .stop(bench.node, id, StopReason::Cancelled, 10)
        .await
        .unwrap();
    let state = watcher.state(id, has_ended).await;
    assert_eq!(
        state,
        RunState::Exited {
            exit_code: Some(3),
            signal: None,
            by: Some(StopReason::Cancelled)
        }
    );
    assert_eq!(bench.log(id, LogStream::Stdout).await, "up\nsaving\nsaved\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_does_not_listen_is_killed_with_all_its_descendants() {
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let id = fresh();
    // A grandchild in a session of its own, deaf to the signal, whose parent is gone.
    let deaf = "trap \"\" TERM; : > $MARKS/$$; while :; do sleep 0.1; done";
    let tag = format!("deaf-{id}");
    let script = format!(
        "trap '' TERM; (setsid sh -c '{deaf}' {tag} &) ; setsid sh -c '{deaf}' {tag} & : > $MARKS/$$; while :; do sleep 0.1; done"
    );
    bench.start(bench.order(id, &script)).await;
    watcher.state(id, is_running).await;
    let marks = bench.root.path().join("marks");
    let deaf_now = || std::fs::read_dir(&marks).map_or(0, |marks| marks.count());
    eventually("all three are deaf", || deaf_now() == 3).await;
    let asked = Instant::now();
    bench
        .hub()
        .stop(bench.node, id, StopReason::Cancelled, 1)
        .await
        .unwrap();
    let state = watcher.state(id, has_ended).await;
    assert_eq!(
        state,
        RunState::Exited {
            exit_code: None,
            signal: Some(9),
            by: Some(StopReason::Cancelled)
        }
    );
    assert!(
        (900..4000).contains(&asked.elapsed().as_millis()),
        "{:?}",
        asked.elapsed()
    );
    assert!(!any_process_with(&tag), "somebody was left behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_leaves_behind_ends_with_it() {
    let bench = Bench::new().await;
    let id = fresh();
    let tag = format!("left-{id}");
    let script = format!("setsid sh -c 'while :; do sleep 0.1; done' {tag} & exit 5");
    let state = bench.run(bench.order(id, &script)).await.state;
    assert_eq!(
        state,
        RunState::Exited {
            exit_code: Some(5),
            signal: None,
            by: None
        }
    );
    assert!(!any_process_with(&tag));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_grace_means_at_once() {
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let id = fresh();
    bench.start(bench.order(id, "trap '' TERM; sleep 60")).await;
    watcher.state(id, is_running).await;
    let asked = Instant::now();
    bench
        .hub()
        .stop(bench.node, id, StopReason::Evicted, 0)
        .await
        .unwrap();
    let state = watcher.state(id, has_ended).await;
    assert_eq!(
        state,
        RunState::Exited {
            exit_code: None,
            signal: Some(9),
            by: Some(StopReason::Evicted)
        }
    );
    assert!(asked.elapsed().as_millis() < 1000);
}
