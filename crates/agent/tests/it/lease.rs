//! No lease, no run.

use std::time::{Duration, Instant};

use tenure_api::channel::RunState;
use tenure_domain::workload::job::StopReason;

use crate::bench::{
    Bench, MARK, any_process_with, eventually, fresh, has_ended, is_running, processes_under,
};

/// When a server gives to another what a node of this term was given and was not heard of since: a quarter of the term
/// and a second after it.
const REASSIGNED: Duration = Duration::from_millis(3000 + 3000 / 4 + 1000);

#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_jobs_end_with_the_lease() {
    let mut bench = Bench::with(Duration::from_secs(3), &[]).await;
    let mut watcher = bench.watch();
    let id = fresh();
    let tag = format!("leased-{id}");
    bench
        .start(bench.order(
            id,
            &format!("trap '' TERM; {MARK}; while :; do sleep 0.1; done; : {tag}"),
        ))
        .await;
    watcher.state(id, is_running).await;
    // Heartbeats keep it going past its first term.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(any_process_with(&tag));
    bench.hub = None;
    let lost = Instant::now();
    eventually("it ended", || !any_process_with(&tag)).await;
    let took = lost.elapsed();
    assert!(took < REASSIGNED, "{took:?}");
    assert!(took > Duration::from_millis(1500), "{took:?}");
    bench.restart_hub().await;
    let mut watcher = bench.watch();
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
    assert_eq!(bench.marks(id), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_agent_too() {
    let mut bench = Bench::with(Duration::from_secs(3), &[]).await;
    let mut watcher = bench.watch();
    let id = fresh();
    let tag = format!("orphan-{id}");
    bench
        .start(bench.order(id, &format!("while :; do sleep 0.1; done; : {tag}")))
        .await;
    watcher.state(id, is_running).await;
    bench.kill_agent();
    let lost = Instant::now();
    eventually("it ended", || !any_process_with(&tag)).await;
    assert!(lost.elapsed() < REASSIGNED, "{:?}", lost.elapsed());
    eventually("its parent ended", || {
        processes_under(&bench.state_dir()).is_empty()
    })
    .await;
    let mut watcher = bench.watch();
    bench.start_agent();
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
}
