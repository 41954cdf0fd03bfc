//! Jobs that wait for their image, in the real agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_api::channel::{ImageOrder, Order, RunState};
use tenure_domain::workload::job::StopReason;
use tenure_engine::{Engine, Seen};

use super::built::Built;
use super::fake::{Fake, honest, reply};
use super::registry::DockerRegistry;
use super::write::file;
use crate::bench::{Bench, eventually, fresh, has_ended};

fn in_image(bench: &Bench, image: &str) -> Order {
    let mut order = bench.order(fresh(), "echo here");
    order.image = Some(Box::new(ImageOrder {
        name: image.to_owned(),
        credentials: None,
    }));
    order
}

fn small() -> Built {
    Built::new(vec![vec![file("x", "x")]])
}

/// A registry that holds its layers back until told.
fn slow() -> (Fake, Arc<AtomicBool>) {
    let go = Arc::new(AtomicBool::new(false));
    let fake = Fake::start({
        let (built, go) = (small(), go.clone());
        move |asked| {
            while asked.path.contains("/blobs/") && !go.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            honest(&built, asked)
        }
    });
    (fake, go)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_comes_and_is_told_to_placement() {
    let registry = DockerRegistry::start().await;
    let image = registry.push("a/b", "v1", &small()).await;
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let order = in_image(&bench, &image);
    let id = order.allocation;
    bench.start(order).await;
    let told = watcher.until(|seen| match seen {
        Seen::Inventory { inventory, .. } if !inventory.images.is_empty() => Some(inventory.images.clone()),
        _ => None,
    });
    assert_eq!(told.await, [image, small().digest()]);
    eventually("the allocation says what it uses", || {
        bench
            .state_dir()
            .join(format!("allocations/{id}/image.json"))
            .exists()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_on_the_files_of_the_host_that_named_an_image() {
    let built = small();
    let fake = Fake::start(move |asked| honest(&built, asked));
    let bench = Bench::new().await;
    let mut order = in_image(&bench, &format!("{}/x:v1", fake.host()));
    order.command = vec!["sh".into(), "-c".into(), crate::bench::MARK.into()];
    let id = order.allocation;
    let report = bench.run(order).await;
    assert!(matches!(report.state, RunState::NotStarted { .. }), "{report:?}");
    assert_eq!(bench.marks(id), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_to_be_had_is_said_clearly() {
    let fake = Fake::start(|_| reply(404));
    let bench = Bench::new().await;
    let image = format!("{}/no/such:v1", fake.host());
    let report = bench.run(in_image(&bench, &image)).await;
    let RunState::NotStarted { why } = report.state else {
        panic!("{report:?}");
    };
    assert!(why.contains(&image) && why.contains("has no"), "{why}");
    let report = bench.run(in_image(&bench, "Not An Image")).await;
    assert!(matches!(report.state, RunState::NotStarted { .. }), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn others_start_while_one_waits() {
    let (fake, go) = slow();
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let waiting = in_image(&bench, &format!("{}/x:v1", fake.host()));
    let id = waiting.allocation;
    bench.start(waiting.clone()).await;
    eventually("the layer is asked for", || fake.count("/blobs/") > 0).await;
    let other = bench.run(bench.order(fresh(), "exit 7")).await;
    assert!(
        matches!(
            other.state,
            RunState::Exited {
                exit_code: Some(7),
                ..
            }
        ),
        "{other:?}"
    );
    // Said again, as the server does: still one.
    bench.start(waiting).await;
    go.store(true, Ordering::Relaxed);
    watcher.state(id, has_ended).await;
    assert_eq!(fake.count("/blobs/"), 2, "a configuration and a layer, each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_the_waiting() {
    let (fake, _go) = slow();
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    let order = in_image(&bench, &format!("{}/x:v1", fake.host()));
    let id = order.allocation;
    bench.start(order).await;
    eventually("the image is asked for", || fake.count("/blobs/") > 0).await;
    bench
        .hub()
        .stop(bench.node, id, StopReason::Cancelled, 1)
        .await
        .unwrap();
    let state = watcher.state(id, has_ended).await;
    let cancelled = RunState::Exited {
        exit_code: None,
        signal: None,
        by: Some(StopReason::Cancelled),
    };
    assert_eq!(state, cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_restarted_meanwhile_is_told_again_and_goes_on() {
    let (fake, go) = slow();
    let mut bench = Bench::new().await;
    let order = in_image(&bench, &format!("{}/x:v1", fake.host()));
    let id = order.allocation;
    bench.start(order.clone()).await;
    eventually("the image is asked for", || fake.count("/blobs/") > 0).await;
    bench.kill_agent();
    let mut watcher = bench.watch();
    bench.start_agent();
    let whole = watcher.whole(bench.node).await;
    assert!(
        whole.iter().all(|report| report.allocation != id),
        "it is not here, so the server orders again"
    );
    bench.settled().await;
    go.store(true, Ordering::Relaxed);
    bench.start(order).await;
    watcher.state(id, has_ended).await;
}
