//! Seats: who makes them, and what a run leaves for the next one.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tenure_api::channel::{LogStream, RunState};
use tenure_domain::workload::job::StopReason;
use tenure_engine::Engine;

use crate::bench::{Bench, MARK, eventually, fresh, has_ended, is_running};

/// The cgroup that limits memory, as a job sees its name.
const CGROUP: &str = "grep :memory: /proc/self/cgroup || grep ^0:: /proc/self/cgroup";
/// More than are ready, so that one comes again.
const RUNS: usize = 12;

const WELL: RunState = RunState::Exited {
    exit_code: Some(0),
    signal: None,
    by: None,
};

/// Runs a few jobs with this much memory, one after the other, each of which names its cgroup and uses what it has.
async fn cgroups(bench: &Bench, memory_mib: u64) -> Vec<String> {
    let mut names = Vec::new();
    for _ in 0..RUNS {
        let id = fresh();
        let used_mib = memory_mib / 3;
        let mut order = bench.order(
            id,
            &format!("{CGROUP}; head -c {used_mib}M /dev/zero > /tmp/x && rm /tmp/x"),
        );
        order.memory_mib = memory_mib;
        let state = bench.run(order).await.state;
        let log = bench.log(id, LogStream::Stderr).await;
        assert_eq!(state, WELL, "{log}");
        names.push(bench.log(id, LogStream::Stdout).await);
    }
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn cgroups_of_a_run_are_as_good_as_new_or_gone() {
    let bench = Bench::new().await;
    // Small and large in turn: no limit of an older run stands.
    let mut all = Vec::new();
    for memory_mib in [32, 512, 32] {
        all.extend(cgroups(&bench, memory_mib).await);
    }
    let distinct: BTreeSet<&String> = all.iter().collect();
    assert!(distinct.len() < all.len(), "none was used again: {distinct:?}");
    // One whose processes were killed is not: they would count as another's.
    let id = fresh();
    let mut order = bench.order(id, &format!("{CGROUP}; exec tail /dev/zero"));
    order.memory_mib = 32;
    let state = bench.run(order).await.state;
    assert!(
        matches!(
            state,
            RunState::Exited {
                by: Some(StopReason::OverLimit),
                ..
            }
        ),
        "{state:?}"
    );
    let full = bench.log(id, LogStream::Stdout).await;
    let after = cgroups(&bench, 64).await;
    assert!(!after.contains(&full), "{full}");
}

/// Children of the agent that make seats or are seats, with their own children.
fn children_of(agent: u32) -> Vec<(i32, String, String)> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let at = PathBuf::from(format!("/proc/{pid}"));
        let stat = std::fs::read_to_string(at.join("stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.to_owned();
        let parent: u32 = fields.next()?.parse().ok()?;
        let children = std::fs::read_to_string(at.join(format!("task/{pid}/children"))).unwrap_or_default();
        (parent == agent).then_some((pid, state, children))
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_maker_of_seats_may_die_and_its_seats_live() {
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let long = fresh();
    bench.start(bench.order(long, &format!("{MARK}; sleep 60"))).await;
    watcher.state(long, is_running).await;
    let agent = bench.agent_pid();
    let makers = || -> Vec<i32> {
        let childless = children_of(agent).into_iter().filter(|(pid, state, children)| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            state != "Z" && children.is_empty() && line.starts_with(b"tenure-agent\0exec")
        });
        childless.map(|(pid, ..)| pid).collect()
    };
    for _ in 0..3 {
        // Seats have a child each, once they are ready.
        let mut found = Vec::new();
        eventually("there is one maker", || {
            found = makers();
            found.len() == 1
        })
        .await;
        let killed = std::process::Command::new("kill")
            .args(["-9", &found[0].to_string()])
            .status()
            .unwrap();
        assert!(killed.success());
        for _ in 0..RUNS {
            let id = fresh();
            let state = bench.run(bench.order(id, MARK)).await.state;
            assert_eq!((state, bench.marks(id)), (WELL, 1));
        }
    }
    assert!(is_running(&watcher.state(long, |_| true).await) && bench.marks(long) == 1);
    bench
        .hub()
        .stop(bench.node, long, StopReason::Cancelled, 0)
        .await
        .unwrap();
    watcher.state(long, has_ended).await;
    // All were the agent's own children, and it has seen them off.
    eventually("no process is left unheard of", || {
        children_of(agent).iter().all(|(_, state, _)| state != "Z")
    })
    .await;
}
