//! Volumes on a real node: file systems in files, each job with its own and no others.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tenure_api::channel::{LogStream, Order, RunState, VolumeOrder};
use tenure_domain::id::{AllocationId, VolumeId};
use tenure_domain::workload::job::StopReason;
use tenure_engine::{Engine, Seen};

use crate::bench::{Bench, eventually, fresh, has_ended, is_running};

/// Not a whole disk for a test.
const SPACE: [&str; 2] = ["--volume-space", "536870912"];

fn volume(name: &str, size_mib: u64) -> VolumeOrder {
    VolumeOrder {
        id: VolumeId(fresh().0),
        name: name.into(),
        size_mib,
        read_only: false,
    }
}

async fn bench() -> Bench {
    Bench::with(Duration::from_secs(60), &SPACE).await
}

fn order(bench: &Bench, volumes: &[&VolumeOrder], script: &str) -> Order {
    let mut order = bench.order(fresh(), script);
    order.volumes = volumes.iter().map(|volume| (*volume).clone()).collect();
    order
}

/// Runs it and gives what it wrote, which must be all it wrote.
async fn said(bench: &Bench, order: Order) -> String {
    let id = order.allocation;
    let report = bench.run(order).await;
    let errors = bench.log(id, LogStream::Stderr).await;
    assert!(
        matches!(
            report.state,
            RunState::Exited {
                exit_code: Some(0),
                ..
            }
        ),
        "{report:?} {errors}"
    );
    bench.log(id, LogStream::Stdout).await
}

fn image(bench: &Bench, volume: &VolumeOrder) -> PathBuf {
    bench.state_dir().join(format!("volumes/{}.img", volume.id))
}

/// Block devices that are made of files below `dir`.
fn devices(dir: &Path) -> Vec<PathBuf> {
    let dir = std::fs::canonicalize(dir).unwrap();
    let all = std::fs::read_dir("/sys/block")
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let backing = |device: &PathBuf| std::fs::read_to_string(device.join("loop/backing_file")).ok();
    all.filter(|device| backing(device).is_some_and(|file| Path::new(file.trim()).starts_with(&dir)))
        .collect()
}

/// The block device of a volume in use.
pub fn device_of(bench: &Bench, volume: VolumeId) -> String {
    let file = format!("{volume}.img");
    let backed = |device: &PathBuf| {
        std::fs::read_to_string(device.join("loop/backing_file"))
            .is_ok_and(|path| path.trim().ends_with(&file))
    };
    let device = devices(&bench.state_dir()).into_iter().find(backed).unwrap();
    format!("/dev/{}", device.file_name().unwrap().to_str().unwrap())
}

async fn no_devices(bench: &Bench) {
    eventually("no loop device is left", || {
        devices(&bench.state_dir()).is_empty()
    })
    .await;
}

/// The kernel resizes what is mounted only for a root that may pass limits, which not every test machine has.
fn grows_in_use() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let held = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .unwrap();
    u64::from_str_radix(held.trim(), 16).unwrap() >> 24 & 1 == 1
}

async fn erase(bench: &Bench, volume: &VolumeOrder) {
    let mut watcher = bench.watch();
    loop {
        bench.hub().erase_volume(bench.node, volume.id).await.unwrap();
        let seen = watcher.within(Duration::from_millis(300)).await;
        let erased = |seen: &Seen| matches!(seen, Seen::VolumeErased { volume: id, .. } if *id == volume.id);
        if seen.iter().any(erased) {
            return;
        }
    }
}

async fn stop(bench: &Bench, id: AllocationId) {
    let mut watcher = bench.watch();
    bench
        .hub()
        .stop(bench.node, id, StopReason::Cancelled, 1)
        .await
        .unwrap();
    watcher.state(id, has_ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_job_writes_the_next_reads_and_nobody_else() {
    let bench = bench().await;
    let (mine, theirs) = (volume("data", 32), volume("data", 32));
    let write =
        "echo kept > /volumes/data/file && stat -c '%u %a' /volumes/data && ls -A /volumes /volumes/data";
    assert_eq!(
        said(&bench, order(&bench, &[&mine], write)).await,
        "200000 755\n/volumes:\ndata\n\n/volumes/data:\nfile\n"
    );
    no_devices(&bench).await;
    let read = order(
        &bench,
        &[&mine],
        "cat /volumes/data/file; rm /volumes/data/file; echo more > /volumes/data/more",
    );
    assert_eq!(said(&bench, read).await, "kept\n");
    // Another user of the tenant, whose volume of that name is another.
    assert_eq!(
        said(&bench, order(&bench, &[&theirs], "ls -A /volumes/data")).await,
        ""
    );
    let mut foreign = order(&bench, &[], "ls -A /volumes; ls $STATE 2>/dev/null; exit 0");
    foreign.tenant = "other".into();
    foreign
        .env
        .push(("STATE".into(), bench.state_dir().display().to_string()));
    assert_eq!(said(&bench, foreign).await, "");
    // Even the host's own root sees no mount of it while a job has it.
    let mut watcher = bench.watch();
    let holder = order(&bench, &[&mine], "sleep 60");
    let id = holder.allocation;
    bench.start(holder).await;
    watcher.state(id, is_running).await;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let device = device_of(&bench, mine.id);
    let shown = |line: &&str| line.contains("/state/volumes") || line.contains(&format!(" {device} "));
    assert_eq!(mounts.lines().find(shown), None);
    assert_eq!(devices(&bench.state_dir()).len(), 1);
    stop(&bench, id).await;
    no_devices(&bench).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_jobs_share_one_and_read_only_refuses_writes() {
    let bench = bench().await;
    let shared = volume("shared", 32);
    let mut watcher = bench.watch();
    let script = "echo 1 > /volumes/shared/a; while [ ! -e /volumes/shared/b ]; do sleep 0.05; done; cat /volumes/shared/b";
    let first = order(&bench, &[&shared], script);
    let id = first.allocation;
    bench.start(first).await;
    watcher.state(id, is_running).await;
    let reading = VolumeOrder {
        read_only: true,
        ..shared.clone()
    };
    let script = "while [ ! -e /volumes/shared/a ]; do sleep 0.05; done; \
        touch /volumes/shared/c 2>/dev/null || echo refused; rm -f /volumes/shared/a 2>/dev/null || echo kept; \
        touch /volumes/x 2>/dev/null || echo held; cat /volumes/shared/a";
    assert_eq!(
        said(&bench, order(&bench, &[&reading], script)).await,
        "refused\nkept\nheld\n1\n"
    );
    assert_eq!(devices(&bench.state_dir()).len(), 1, "one device for both");
    said(&bench, order(&bench, &[&shared], "echo 2 > /volumes/shared/b")).await;
    watcher.state(id, has_ended).await;
    assert_eq!(bench.log(id, LogStream::Stdout).await, "2\n");
    no_devices(&bench).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_size_is_its_limit_and_grows_while_it_is_used() {
    let bench = bench().await;
    let (small, other) = (volume("small", 32), volume("other", 32));
    let mut watcher = bench.watch();
    let script = "dd if=/dev/zero of=/volumes/small/fill bs=1M count=64 2>&1 | grep -o 'No space left on device'; \
        echo fine > /volumes/other/file && cat /volumes/other/file; echo full > $MARKS/full; \
        while ! dd if=/dev/zero of=/volumes/small/more bs=1M count=40 2>/dev/null; do sleep 0.1; done; echo grown";
    let filling = order(&bench, &[&small, &other], script);
    let id = filling.allocation;
    bench.start(filling).await;
    watcher.state(id, is_running).await;
    let full = bench.root.path().join("marks/full");
    eventually("the volume is full", || full.exists()).await;
    bench.hub().grow_volume(bench.node, small.id, 96).await.unwrap();
    let grown = if grows_in_use() {
        watcher.state(id, has_ended).await;
        "grown\n"
    } else {
        eventually("it is said", || {
            bench.agent_log().contains("in use it cannot grow here")
        })
        .await;
        stop(&bench, id).await;
        ""
    };
    assert_eq!(
        bench.log(id, LogStream::Stdout).await,
        format!("No space left on device\nfine\n{grown}")
    );
    no_devices(&bench).await;
    // Where it could not, it has grown since.
    let more = order(
        &bench,
        &[&VolumeOrder {
            size_mib: 96,
            ..small.clone()
        }],
        "rm -f /volumes/small/more; dd if=/dev/zero of=/volumes/small/more bs=1M count=40 2>/dev/null && echo grown",
    );
    assert_eq!(said(&bench, more).await, "grown\n");
    // One that nobody uses grows with its next job; none ever shrinks.
    for size_mib in [160, 16] {
        let next = VolumeOrder {
            size_mib,
            ..other.clone()
        };
        let free = said(
            &bench,
            order(&bench, &[&next], "df -m --output=size /volumes/other | tail -1"),
        )
        .await;
        assert!(free.trim().parse::<u64>().unwrap() > 120, "{free}");
    }
    // What was set apart is not given away twice, however sparse the files are.
    let large = volume("large", 512);
    let refused = order(&bench, &[&large], "true");
    bench.start(refused).await;
    eventually("it is refused", || {
        bench.agent_log().contains("are set apart for volumes")
    })
    .await;
    assert!(!image(&bench, &large).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_agent_forgets_nothing_of_volumes() {
    let mut bench = bench().await;
    let data = volume("data", 32);
    let mut watcher = bench.watch();
    let script = "echo begun > /volumes/data/a; while [ ! -e /volumes/data/b ]; do sleep 0.05; done; cat /volumes/data/b";
    let running = order(&bench, &[&data], script);
    let id = running.allocation;
    bench.start(running).await;
    watcher.state(id, is_running).await;
    bench.kill_agent();
    // As a crash in the middle of making one leaves it.
    let half = bench.state_dir().join(format!("volumes/{}.new", VolumeId(7)));
    std::fs::write(&half, "half a file system").unwrap();
    let mut watcher = bench.watch();
    bench.start_agent();
    watcher.whole(bench.node).await;
    bench.settled().await;
    assert!(!half.exists(), "what was half made is cleared away");
    bench.hub().erase_volume(bench.node, data.id).await.unwrap();
    let next = order(&bench, &[&data], "cat /volumes/data/a");
    assert_eq!(said(&bench, next).await, "begun\n");
    assert!(image(&bench, &data).exists(), "what is in use is not erased");
    assert_eq!(
        devices(&bench.state_dir()).len(),
        1,
        "one device, whoever made it"
    );
    let last = order(&bench, &[&data], "echo from the next > /volumes/data/b");
    assert_eq!(said(&bench, last).await, "");
    watcher.state(id, has_ended).await;
    assert_eq!(bench.log(id, LogStream::Stdout).await, "from the next\n");
    no_devices(&bench).await;
    erase(&bench, &data).await;
    assert!(!image(&bench, &data).exists());
    // Said of what is not there, it is done already.
    erase(&bench, &data).await;
    let left: Vec<_> = std::fs::read_dir(bench.state_dir().join("volumes"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_cannot_be_made_whole_is_not_made() {
    // A tool that dies in its work, in the place of the real one.
    let dir = tempfile::tempdir().unwrap();
    let tool = dir.path().join("mkfs.ext4");
    let script = format!(
        "#!/bin/sh\n[ -e {0}/broken ] && for last; do :; done && echo half > \"$last\" && kill -9 $$\nexec /usr/sbin/mkfs.ext4 \"$@\"\n",
        dir.path().display()
    );
    std::fs::write(&tool, script).unwrap();
    crate::bench::open_to_all(&tool, 0o755);
    let variables = [("TENURE_MKFS", tool.display().to_string())];
    let bench = Bench::on(Duration::from_secs(60), &SPACE, &variables).await;
    let broken = dir.path().join("broken");
    std::fs::write(&broken, "").unwrap();
    let data = volume("data", 32);
    bench.start(order(&bench, &[&data], "true")).await;
    eventually("it fails", || {
        bench.agent_log().contains("mkfs.ext4 ended with signal: 9")
    })
    .await;
    assert!(!image(&bench, &data).exists());
    std::fs::remove_file(&broken).unwrap();
    assert_eq!(
        said(&bench, order(&bench, &[&data], "ls -A /volumes/data; echo whole")).await,
        "whole\n"
    );
    no_devices(&bench).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_space_for_volumes_none_is_offered_and_none_is_run() {
    let bench = Bench::with(Duration::from_secs(60), &["--volume-space", "0"]).await;
    let report = bench.run(order(&bench, &[&volume("data", 32)], "true")).await;
    assert!(
        matches!(&report.state, RunState::NotStarted { why } if why.contains("no volumes")),
        "{report:?}"
    );
    assert!(bench.agent_log().contains("volumes: none; no space is set apart"));
    let doctor = Command::new(crate::bench::AGENT).arg("doctor").output().unwrap();
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(text.contains("volumes: file systems in files"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_space_is_told_to_the_server() {
    let mut bench = bench().await;
    let mut watcher = bench.watch();
    bench.kill_agent();
    bench.start_agent();
    let told = watcher
        .until(|seen| match seen {
            Seen::Inventory { inventory, .. } => Some(inventory.volume_mib),
            _ => None,
        })
        .await;
    assert_eq!(told, 512);
}
