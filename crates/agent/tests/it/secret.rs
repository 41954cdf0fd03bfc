//! A job's secrets reach the job and nobody else.

use std::path::Path;

use tenure_api::channel::LogStream;
use tenure_api::secret_text::SecretText;
use tenure_engine::Engine;

use crate::bench::{Bench, any_process_with, fresh, has_ended, is_running};

fn files_with(root: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root).unwrap().filter_map(Result::ok) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files_with(&entry.path(), text));
        } else if kind.is_file()
            && std::fs::read(entry.path())
                .is_ok_and(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
        {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_nowhere_but_in_the_job() {
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let canary = format!("canary-{}", fresh());
    let id = fresh();
    let mut order = bench.order(
        id,
        "test ${#TOKEN} -gt 10 && echo got it; ls -l /proc/1/environ; cat /proc/1/environ; sleep 60",
    );
    order.secrets = vec![("TOKEN".into(), SecretText::new(&canary))];
    bench.start(order).await;
    watcher.state(id, is_running).await;
    crate::bench::eventually("it has the secret", || {
        std::fs::read(bench.state_dir().join(format!("allocations/{id}/stdout")))
            .is_ok_and(|log| log.starts_with(b"got it"))
    })
    .await;
    assert!(!any_process_with(&canary));
    assert_eq!(files_with(bench.root.path(), &canary), [""; 0]);
    // Only the job's own process has it in its environment.
    let holders = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(Result::ok)
        .filter(|entry| {
            std::fs::read(entry.path().join("environ"))
                .is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&canary))
                && std::fs::read(entry.path().join("cmdline"))
                    .is_ok_and(|line| String::from_utf8_lossy(&line).contains("tenure-agent"))
        });
    assert_eq!(holders.count(), 0);
    bench
        .hub()
        .stop(
            bench.node,
            id,
            tenure_domain::workload::job::StopReason::Cancelled,
            0,
        )
        .await
        .unwrap();
    watcher.state(id, has_ended).await;
    assert!(!bench.agent_log().contains(&canary));
    assert!(!bench.log(id, LogStream::Stderr).await.contains(&canary));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agents_own_files_are_its_own() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new().await;
    bench.run(bench.order(fresh(), "true")).await;
    let mode = |name: &str| {
        std::fs::metadata(bench.state_dir().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(
        (mode(""), mode("node.key"), mode("node.crt")),
        (0o700, 0o600, 0o600)
    );
    // The private key was never sent, the token is spent.
    assert!(!bench.agent_log().contains("tnrj_") && !bench.agent_log().contains("PRIVATE"));
}
