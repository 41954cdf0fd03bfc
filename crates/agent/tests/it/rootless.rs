//! An agent that is not root: it runs jobs with the isolation it can give, and says which that is and what is missing.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use tenure_api::channel::{Order, RunState, VolumeOrder};
use tenure_domain::id::VolumeId;
use tenure_domain::workload::spec::Isolation;

use crate::bench::{AGENT, Bench, fresh};
use crate::slice::{DONE, order, ran};

const NOBODY: u32 = 65_534;

fn doctor(user: u32) -> String {
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(home.path(), Some(user), Some(user)).unwrap();
    let output = Command::new(AGENT)
        .arg("doctor")
        .uid(user)
        .gid(user)
        .current_dir("/")
        .env("HOME", home.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn doctor_says_what_is_missing_without_root() {
    let (root, nobody) = (doctor(0), doctor(NOBODY));
    let missing = [
        "fenced: none; a worker is kept apart by a user id and mounts of its own, for which the agent must be root",
        "partition: none; only root makes parts of devices",
        "cgroups: no memory limit: Permission denied",
        "user ids: all jobs run as the agent's own user, for it is not root",
        "network: shared with the host, for the agent is not root",
        "volumes: none; the agent is not root and cannot mount",
    ];
    for line in missing {
        assert!(
            nobody.lines().any(|said| said.starts_with(line)),
            "{line}: {nobody}"
        );
        assert!(!root.contains(line), "{line}: {root}");
    }
    for there in [
        "  guarded:",
        "  exclusive:",
        "landlock: version",
        "kernel calls: only those",
    ] {
        assert!(nobody.contains(there), "{there}: {nobody}");
    }
    assert!(
        root.contains("  fenced:") && !nobody.contains("  fenced:"),
        "{nobody}"
    );
    // Limits that others' agents have made here are not this one's to give.
    for controller in ["memory", "cpu", "pids"] {
        let limits = nobody.lines().find(|line| line.starts_with("cgroups: version 1"));
        assert!(limits.is_none_or(|line| !line.contains(controller)), "{nobody}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_root_runs_jobs_and_refuses_what_it_cannot_wall() {
    let bench = Bench::of(Some(NOBODY), Duration::from_secs(60), &[], &[]).await;
    let sees = format!(
        "id -u; grep -E '^(NoNewPrivs|CapEff|Seccomp):' /proc/self/status | tr -d '[:blank:]'
        ls {} 2>/dev/null && echo the state of the node
        ls -d /proc/[0-9]* | wc -l | sed 's/^/processes /'
        echo x > /usr/tenure-rootless 2>/dev/null && echo the programs of the host
        touch /tmp/own && echo wrote",
        bench.state_dir().display()
    );
    let (state, text) = ran(&bench, bench.order(fresh(), &sees)).await;
    assert_eq!(state, DONE, "{text}");
    for line in [
        "65534",
        "CapEff:0000000000000000",
        "NoNewPrivs:1",
        "Seccomp:2",
        "wrote",
    ] {
        assert!(text.lines().any(|said| said == line), "{line}: {text}");
    }
    for reached in ["the state of the node", "the programs of the host"] {
        assert!(!text.contains(reached), "{reached}: {text}");
    }
    let processes = text
        .lines()
        .find_map(|line| line.strip_prefix("processes ")?.trim().parse().ok());
    assert!(
        processes.is_some_and(|count: u32| count < 10),
        "its own processes only: {text}"
    );

    // A slice of a real device, before which the guard stands.
    let (state, text) = ran(&bench, order(&bench, 64, &["clinfo", "--raw"])).await;
    assert_eq!(state, DONE, "{text}");
    let size = text
        .lines()
        .find(|line| line.contains("CL_DEVICE_GLOBAL_MEM_SIZE"));
    assert!(
        size.is_some_and(|line| line.ends_with(&(64u64 << 20).to_string())),
        "{text}"
    );

    let refused = async |order: Order| match ran(&bench, order).await.0 {
        RunState::NotStarted { why } => why,
        other => panic!("{other:?}"),
    };
    let mut fenced = order(&bench, 64, &["true"]);
    fenced.isolation = Isolation::Fenced;
    let why = refused(fenced).await;
    assert!(why.contains("cannot be fenced"), "{why}");
    let mut with_volume = bench.order(fresh(), "true");
    with_volume.volumes = vec![VolumeOrder {
        id: VolumeId(7),
        name: "data".into(),
        size_mib: 16,
        read_only: false,
    }];
    let why = refused(with_volume).await;
    assert!(why.contains("no volumes") && why.contains("not root"), "{why}");
}
