//! The wall: what a job cannot see, use or outlive.

use tenure_api::channel::{LogStream, RunState};
use tenure_engine::Engine;

use tenure_domain::workload::job::StopReason;

use crate::bench::{Bench, fresh, has_ended, is_running};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_sees_only_its_own_processes_and_files() {
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let neighbour = fresh();
    bench
        .start(bench.order(
            neighbour,
            "echo mine > /tmp/secret; echo shm > /dev/shm/x; sleep 60",
        ))
        .await;
    watcher.state(neighbour, is_running).await;
    let id = fresh();
    let mut order = bench.order(id, "ls -d /proc/[0-9]* | wc -l; ls -A /tmp /dev/shm; hostname; kill -9 1; ls /root; cat /etc/shadow; ls $STATE; id -u");
    order
        .env
        .push(("STATE".into(), bench.state_dir().display().to_string()));
    order.tenant = "other".into();
    bench.run(order).await;
    let log = bench.log(id, LogStream::Stdout).await;
    let lines: Vec<&str> = log.lines().collect();
    // Its first process, the shell, ls and wc.
    assert!(lines[0].parse::<u32>().unwrap() <= 5, "{log}");
    assert_eq!(
        &lines[1..],
        ["/dev/shm:", "", "/tmp:", "tenure", "200001"],
        "{log}"
    );
    let errors = bench.log(id, LogStream::Stderr).await;
    assert!(
        errors.matches("No such file").count() == 2
            && errors.contains("ermission denied")
            && errors.contains("not permitted"),
        "{errors}"
    );
    bench
        .hub()
        .stop(
            bench.node,
            neighbour,
            tenure_domain::workload::job::StopReason::Cancelled,
            0,
        )
        .await
        .unwrap();
    watcher.state(neighbour, has_ended).await;
    // Jobs of one tenant share a user id, over restarts too.
    let again = fresh();
    bench.run(bench.order(again, "id -u")).await;
    assert_eq!(bench.log(again, LogStream::Stdout).await, "200000\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_much_memory_ends_only_the_job() {
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let neighbour = fresh();
    bench.start(bench.order(neighbour, "sleep 60")).await;
    watcher.state(neighbour, is_running).await;
    let id = fresh();
    let mut order = bench.order(id, "exec tail /dev/zero");
    order.memory_mib = 32;
    let state = bench.run(order).await.state;
    assert_eq!(
        state,
        RunState::Exited {
            exit_code: None,
            signal: Some(9),
            by: Some(StopReason::OverLimit)
        }
    );
    let log = bench.log(id, LogStream::Stderr).await;
    assert!(log.contains("out of memory: the job may use 32 MiB"), "{log}");
    bench
        .hub()
        .start(bench.node, bench.order(neighbour, "sleep 60"))
        .await
        .unwrap();
    assert!(is_running(&watcher.state(neighbour, |_| true).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_writes_is_limited_and_fills_no_disk() {
    let bench = Bench::new().await;
    let id = fresh();
    let mut order = bench.order(
        id,
        "for at in /tmp/x /var/tmp/y /run/tenure/w /w; do head -c 200M /dev/zero > $at; done; stat -c %s /tmp/x; rm /tmp/x; echo fits > /tmp/x && cat /tmp/x",
    );
    order.memory_mib = 128;
    let free = || {
        let facts = rustix::fs::statvfs(bench.state_dir()).unwrap();
        (facts.f_bfree * facts.f_frsize) >> 20
    };
    let before = free();
    bench.run(order).await;
    let (said, log) = (
        bench.log(id, LogStream::Stdout).await,
        bench.log(id, LogStream::Stderr).await,
    );
    assert_eq!(said, "67108864\nfits\n", "{log}");
    assert!(log.matches("No space left on device").count() >= 2, "{log}");
    assert!(free() + 64 > before, "{} MiB of {before} are left", free());
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_and_processors_are_limited() {
    let bench = Bench::new().await;
    let id = fresh();
    let mut order = bench.order(id, "i=0; while [ $i -lt 20 ]; do sleep 1 & i=$((i+1)); done; wait; t0=$(cut -d' ' -f1 /proc/uptime); i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; cat /proc/$$/stat | cut -d' ' -f14,15; t1=$(cut -d' ' -f1 /proc/uptime); echo $t0 $t1");
    order.cpu_milli = 200;
    let report = bench.run(order).await;
    assert!(matches!(
        report.state,
        RunState::Exited {
            exit_code: Some(0),
            ..
        }
    ));
    let log = bench.log(id, LogStream::Stdout).await;
    let numbers: Vec<f64> = log.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let (busy_s, wall_s) = ((numbers[0] + numbers[1]) / 100.0, numbers[3] - numbers[2]);
    assert!(busy_s / wall_s < 0.4, "{busy_s} s of {wall_s} s: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_job_remains() {
    let bench = Bench::new().await;
    let id = fresh();
    bench
        .run(bench.order(id, "head -c 100000 /dev/zero > /tmp/x"))
        .await;
    assert!(!bench.state_dir().join(format!("allocations/{id}/tmp")).exists());
    bench.hub().release(bench.node, id).await.unwrap();
    crate::bench::eventually("its files are gone", || {
        !bench.state_dir().join(format!("allocations/{id}")).exists()
    })
    .await;
    for controller in ["memory", "cpu", "pids", "freezer"] {
        let left = std::process::Command::new("find")
            .args([
                &format!("/sys/fs/cgroup/{controller}"),
                "-name",
                &format!("{id}-*"),
            ])
            .output()
            .unwrap();
        assert!(
            left.stdout.is_empty(),
            "{}",
            String::from_utf8_lossy(&left.stdout)
        );
    }
}
