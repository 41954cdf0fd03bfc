//! What a job gets and what is said of its end.

use std::time::{Duration, Instant};

use tenure_api::channel::{LogStream, RunState};
use tenure_domain::workload::job::StopReason;
use tenure_engine::Engine;
use tenure_engine::conformance::Watcher;

use crate::bench::{Bench, fresh, has_ended, is_running};

fn exited(exit_code: i32) -> RunState {
    RunState::Exited {
        exit_code: Some(exit_code),
        signal: None,
        by: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_signals_and_logs() {
    let bench = Bench::new().await;
    for code in [0, 1, 77, 255] {
        assert_eq!(
            bench
                .run(bench.order(fresh(), &format!("exit {code}")))
                .await
                .state,
            exited(code)
        );
    }
    let state = bench.run(bench.order(fresh(), "kill -SEGV $$")).await.state;
    assert_eq!(
        state,
        RunState::Exited {
            exit_code: None,
            signal: Some(11),
            by: None
        }
    );

    let id = fresh();
    let report = bench
        .run(bench.order(
            id,
            "echo out; echo err >&2; sleep 0.2; echo more; printf '\\033[1m\\377'",
        ))
        .await;
    assert_eq!(report.state, exited(0));
    assert!((180..5000).contains(&report.ran_ms), "{} ms", report.ran_ms);
    assert!(
        bench
            .log(id, LogStream::Stdout)
            .await
            .starts_with("out\nmore\n\u{1b}[1m")
    );
    assert_eq!(bench.log(id, LogStream::Stderr).await, "err\n");
    // The log outlives the release.
    bench.hub().release(bench.node, id).await.unwrap();
    assert_eq!(bench.log(id, LogStream::Stderr).await, "err\n");
    let absent = bench
        .hub()
        .read_log(bench.node, fresh(), LogStream::Stdout, 0, 10, 0)
        .await;
    assert!(absent.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_and_directory_are_clean() {
    let bench = Bench::new().await;
    let id = fresh();
    let mut order = bench.order(id, "env | sort; echo; pwd; echo $0; ulimit -c; id -u; cat /proc/self/status | grep -E 'NoNewPrivs|CapEff|CapBnd'; ls /proc/self/fd");
    order.env = vec![
        ("MINE".into(), "a b\n\"c\"".into()),
        ("LANG".into(), "de_DE.UTF-8".into()),
    ];
    assert_eq!(bench.run(order).await.state, exited(0));
    let log = bench.log(id, LogStream::Stdout).await;
    let (environment, rest) = log.split_once("\n\n").unwrap();
    let mut names: Vec<&str> = environment
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name)
        .collect();
    names.retain(|name| *name != "PWD" && *name != "OLDPWD" && *name != "SHLVL" && *name != "_");
    assert_eq!(
        names,
        [
            "HOME",
            "LANG",
            "MINE",
            "PATH",
            "TENURE_ALLOCATION",
            "TENURE_ATTEMPT",
            "TENURE_CHECKPOINT",
            "TENURE_DEVICES",
            "TENURE_JOB",
            "TENURE_JOB_NAME",
            "TMPDIR"
        ]
    );
    assert!(environment.contains("LANG=de_DE.UTF-8"));
    assert!(environment.contains(&format!("TENURE_ALLOCATION={id}")));
    let lines: Vec<&str> = rest.lines().collect();
    assert_eq!(&lines[..4], ["/tmp", "sh", "0", "200000"]);
    assert!(lines.contains(&"NoNewPrivs:\t1"), "{rest}");
    assert!(
        lines.contains(&"CapEff:\t0000000000000000") && lines.contains(&"CapBnd:\t0000000000000000"),
        "{rest}"
    );
    // Standard descriptors, and the one `ls` opened.
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.parse::<u32>().is_ok_and(|fd| fd < 100))
            .skip(1)
            .count(),
        4,
        "{rest}"
    );

    let id = fresh();
    let mut order = bench.order(id, "pwd");
    order.workdir = Some("/usr".into());
    bench.run(order).await;
    assert_eq!(bench.log(id, LogStream::Stdout).await, "/usr\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_start_says_why() {
    let bench = Bench::new().await;
    let mut missing = bench.order(fresh(), "");
    missing.command = vec!["no-such-program".into()];
    let mut directory = bench.order(fresh(), "true");
    directory.workdir = Some("/no/such".into());
    let mut refused = bench.order(fresh(), "");
    refused.command = vec!["/etc/passwd".into()];
    let mut device = bench.order(fresh(), "true");
    device.devices = vec![tenure_api::channel::DeviceSlice {
        uuid: "GPU-none".into(),
        vram_mib: 1,
        compute_permille: 1,
        capped: false,
        part: None,
    }];
    for (order, word) in [
        (missing, "not found"),
        (directory, "/no/such"),
        (refused, "denied"),
        (device, "GPU-none"),
    ] {
        match bench.run(order).await.state {
            RunState::NotStarted { why } => assert!(why.contains(word), "{why}"),
            other => panic!("{word}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_run_time_limit_holds() {
    let bench = Bench::new().await;
    let mut order = bench.order(fresh(), "sleep 60");
    (order.run_time_s, order.grace_s) = (1, 5);
    let report = bench.run(order).await;
    assert_eq!(
        report.state,
        RunState::Exited {
            exit_code: None,
            signal: Some(15),
            by: Some(StopReason::RunTime)
        }
    );
    assert!((1000..3000).contains(&report.ran_ms), "{}", report.ran_ms);
    let mut order = bench.order(fresh(), "trap '' TERM; while :; do sleep 0.1; done");
    (order.run_time_s, order.grace_s) = (1, 1);
    let report = bench.run(order).await;
    assert_eq!(
        report.state,
        RunState::Exited {
            exit_code: None,
            signal: Some(9),
            by: Some(StopReason::RunTime)
        }
    );
    assert!((2000..4500).contains(&report.ran_ms), "{}", report.ran_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_cut_at_their_size_and_the_job_goes_on() {
    let bench = Bench::with(Duration::from_secs(60), &["--log-bytes-max", "100000"]).await;
    let id = fresh();
    let state = bench
        .run(bench.order(id, "yes | head -c 5000000; echo done >&2"))
        .await
        .state;
    assert_eq!(state, exited(0));
    let log = bench.log(id, LogStream::Stdout).await;
    assert!((100_000..100_200).contains(&log.len()), "{}", log.len());
    assert!(log.ends_with("tenure: the log is full; 4900000 bytes were dropped\n"));
    assert_eq!(bench.log(id, LogStream::Stderr).await, "done\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_followed_and_run_time_is_reported() {
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let id = fresh();
    bench
        .start(bench.order(id, "sleep 0.7; echo late; sleep 60"))
        .await;
    watcher.state(id, is_running).await;
    let started = Instant::now();
    let chunk = bench
        .hub()
        .read_log(bench.node, id, LogStream::Stdout, 0, 100, 10_000)
        .await
        .unwrap();
    assert_eq!((chunk.bytes.as_slice(), chunk.end), (b"late\n".as_slice(), false));
    assert!(started.elapsed() > Duration::from_millis(300));
    let chunk = bench
        .hub()
        .read_log(bench.node, id, LogStream::Stdout, 5, 100, 0)
        .await
        .unwrap();
    assert!(chunk.bytes.is_empty() && !chunk.end);
    let chunk = bench
        .hub()
        .read_log(bench.node, id, LogStream::Stdout, 1 << 62, 1, 0)
        .await
        .unwrap();
    assert_eq!(
        (chunk.offset, chunk.bytes.len()),
        (5, 0),
        "beyond the end it says where that is"
    );
    // Metered at least every ten seconds while it runs.
    let report = watcher.report(id, is_running).await;
    assert!((5_000..12_000).contains(&report.ran_ms), "{}", report.ran_ms);
    bench
        .hub()
        .stop(bench.node, id, StopReason::Cancelled, 1)
        .await
        .unwrap();
    watcher.report(id, has_ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_touches_its_file_has_saved_and_who_does_not_has_not() {
    let bench = Bench::new().await;
    let touched = "sleep 0.3; touch \"$TENURE_CHECKPOINT\"; exec sleep 60";
    // However it writes the time, it is when it was written; and what it writes is its own memory.
    let written = "head -c 9000000 /dev/zero > \"$TENURE_CHECKPOINT\"; exec sleep 60";
    let never = "cat \"$TENURE_CHECKPOINT\"; exec sleep 60";
    let (first, second, third) = (fresh(), fresh(), fresh());
    let mut watcher = bench.watch();
    for (id, script) in [(first, touched), (second, written), (third, never)] {
        bench.start(bench.order(id, script)).await;
        watcher.report(id, is_running).await;
    }
    let saved = async |watcher: &mut Watcher, id| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let report = watcher.report(id, is_running).await;
            if report.saved_ago_ms.is_some() || Instant::now() > deadline {
                return report;
            }
        }
    };
    for id in [first, second] {
        let report = saved(&mut watcher, id).await;
        let ago_ms = report.saved_ago_ms.expect("it said so");
        assert!(
            ago_ms <= report.ran_ms,
            "{ago_ms} ms ago, and it ran {} ms",
            report.ran_ms
        );
    }
    let report = watcher.report(third, is_running).await;
    assert_eq!(report.saved_ago_ms, None);
    for id in [first, second, third] {
        bench
            .hub()
            .stop(bench.node, id, StopReason::Cancelled, 0)
            .await
            .unwrap();
        watcher.report(id, has_ended).await;
    }
}
