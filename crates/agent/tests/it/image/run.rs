//! Jobs inside images, in the real agent: Debian's static busybox is all there is.

use tenure_api::channel::{ImageOrder, LogStream, Order, RunState, VolumeOrder};
use tenure_api::secret_text::SecretText;
use tenure_domain::id::VolumeId;

use super::built::Built;
use super::registry::{CREDENTIALS, DockerRegistry};
use super::write::{directory, file, symlink};
use crate::bench::{Bench, fresh};

fn busybox() -> Built {
    let program = std::fs::read("/bin/busybox")
        .or_else(|_| std::fs::read("/usr/bin/busybox"))
        .expect("busybox-static is installed by scripts/setup");
    Built::new(vec![
        vec![
            directory("bin"),
            file("bin/busybox", program).mode(0o755),
            symlink("bin/sh", "busybox"),
            directory("work"),
            directory("old"),
            file("old/a", "a"),
            file("gone", "x"),
            file("secret", "readable by the tenant\n").mode(0o600),
            directory("etc"),
            file("etc/os-release", "NAME=image\n"),
        ],
        vec![
            file(".wh.gone", ""),
            file("old/.wh..wh..opq", ""),
            file("old/b", "b"),
        ],
    ])
}

fn ordered(bench: &Bench, image: &str, command: &[&str]) -> Order {
    let mut order = bench.order(fresh(), "");
    order.command = command.iter().map(|&part| part.to_owned()).collect();
    order.image = Some(Box::new(ImageOrder {
        name: image.to_owned(),
        credentials: None,
    }));
    order
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_sees_its_image_and_nothing_of_the_host() {
    let registry = DockerRegistry::start().await;
    let image = registry.push("busybox", "v1", &busybox()).await;
    let bench = Bench::new().await;
    let script = "pwd; busybox cat /etc/os-release /secret; busybox ls /old; [ -e /gone ] || echo no gone; \
        [ -e /usr/bin/gcc ] || echo no host; busybox touch /bin/x 2>/dev/null || echo read-only; \
        echo $FROM; busybox touch /tmp/mine && echo tmp";
    let order = ordered(&bench, &image, &["sh", "-c", script]);
    let id = order.allocation;
    let report = bench.run(order).await;
    let said = bench.log(id, LogStream::Stdout).await;
    let errors = bench.log(id, LogStream::Stderr).await;
    assert_eq!(
        said, "/work\nNAME=image\nreadable by the tenant\nb\nno gone\nno host\nread-only\nimage\ntmp\n",
        "{report:?} {errors}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_in_an_image_has_its_volumes() {
    let registry = DockerRegistry::start().await;
    let image = registry.push("busybox", "v1", &busybox()).await;
    let bench = Bench::with(
        std::time::Duration::from_secs(60),
        &["--volume-space", "134217728"],
    )
    .await;
    let data = VolumeOrder {
        id: VolumeId(fresh().0),
        name: "data".into(),
        size_mib: 32,
        read_only: false,
    };
    for (script, said) in [
        ("echo kept > /volumes/data/file; busybox ls /volumes", "data\n"),
        ("busybox cat /volumes/data/file", "kept\n"),
    ] {
        let mut order = ordered(&bench, &image, &["sh", "-c", script]);
        order.volumes = vec![data.clone()];
        let id = order.allocation;
        let report = bench.run(order).await;
        let errors = bench.log(id, LogStream::Stderr).await;
        assert_eq!(
            bench.log(id, LogStream::Stdout).await,
            said,
            "{report:?} {errors}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_command_the_image_says_what_runs() {
    let registry = DockerRegistry::closed().await;
    let image = registry.push("busybox", "v1", &busybox()).await;
    let bench = Bench::new().await;
    let mut order = ordered(&bench, &image, &[]);
    if let Some(image) = &mut order.image {
        image.credentials = Some(SecretText::new(CREDENTIALS));
    }
    let id = order.allocation;
    let report = bench.run(order).await;
    assert!(
        matches!(
            report.state,
            RunState::Exited {
                exit_code: Some(0),
                ..
            }
        ),
        "{report:?}"
    );
    assert_eq!(bench.log(id, LogStream::Stdout).await, "hello\n");
    let state = std::process::Command::new("grep")
        .args(["-rlF", CREDENTIALS])
        .arg(bench.state_dir())
        .output()
        .unwrap();
    assert!(
        state.stdout.is_empty(),
        "the credentials are written nowhere: {state:?}"
    );
}
