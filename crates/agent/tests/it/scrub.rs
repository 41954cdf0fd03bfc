//! Hand-overs of a real device from tenant to tenant: each is scrubbed first and has a signed receipt, told until the
//! server has it; where nothing can scrub, nothing is handed over.

use std::time::Duration;

use tenure_api::channel::{LogStream, Order, RunState};
use tenure_api::seal;
use tenure_domain::schedule::receipt::Receipt;
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::Isolation;
use tenure_engine::conformance::Watcher;
use tenure_engine::{Engine, Seen};

use crate::bench::Bench;
use crate::slice::{DONE, bench, order, ran};

fn of(bench: &Bench, tenant: &str) -> Order {
    let mut order = order(bench, 64, &["clinfo", "-l"]);
    order.tenant = tenant.into();
    order.isolation = Isolation::Fenced;
    order
}

/// The receipt of this number; those that nobody took are told again and again.
async fn receipt(watcher: &mut Watcher, number: u64) -> Option<Receipt> {
    for _ in 0..50 {
        let seen = watcher.within(Duration::from_millis(100)).await;
        let receipt = seen.into_iter().find_map(|seen| match seen {
            Seen::Scrubbed { receipt, .. } if receipt.number == number => Some(*receipt),
            _ => None,
        });
        if receipt.is_some() {
            return receipt;
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn each_hand_over_has_its_receipt() {
    let mut bench = bench().await;
    let mut watcher = bench.watch();
    let (state, text) = ran(&bench, of(&bench, "ten_a")).await;
    assert_eq!(state, DONE, "{text}");
    let (state, _) = ran(&bench, of(&bench, "ten_a")).await;
    assert_eq!(state, DONE, "its own device again");
    for (number, from, to) in [
        (1, "ten_a", "ten_b"),
        (2, "ten_b", "ten_a"),
        (3, "ten_a", "ten_c"),
    ] {
        let order = of(&bench, to);
        let id = order.allocation;
        let (state, text) = ran(&bench, order).await;
        assert_eq!(state, DONE, "{text}");
        let receipt = receipt(&mut watcher, number).await.expect("a receipt");
        assert_eq!(seal::check_receipt(&receipt), Ok(()));
        assert_eq!((receipt.number, receipt.allocation), (number, id));
        assert_eq!(receipt.from.iter().collect::<Vec<_>>(), [from]);
        assert_eq!((receipt.to.as_str(), &receipt.fault), (to, &None));
        assert!(receipt.bytes > 0 && receipt.local_bytes > 0, "{receipt:?}");
        eprintln!(
            "{} MiB and local memory in {} ms",
            receipt.bytes >> 20,
            receipt.took_ms
        );
        if number == 1 {
            bench.hub().receipts_taken(bench.node, 1).await.unwrap();
        }
    }
    // What the server did not take is told again, by an agent started anew too.
    bench.kill_agent();
    let mut watcher = bench.watch();
    bench.start_agent();
    bench.settled().await;
    let again = receipt(&mut watcher, 2).await.expect("told again");
    assert_eq!(again.number, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_receipt_no_hand_over() {
    let bench = bench().await;
    let mut watcher = bench.watch();
    let (state, text) = ran(&bench, of(&bench, "ten_a")).await;
    assert_eq!(state, DONE, "{text}");
    // What is left on a device and by whom is not known any more: it counts as a stranger's.
    let left = bench.state_dir().join("scrub");
    let file = std::fs::read_dir(&left)
        .unwrap()
        .flatten()
        .find(|entry| entry.path().extension().is_some_and(|kind| kind == "json"))
        .expect("the device's file");
    std::fs::write(file.path(), "{").unwrap();
    let (state, _) = ran(&bench, of(&bench, "ten_a")).await;
    assert_eq!(state, DONE);
    let found = receipt(&mut watcher, 1).await.expect("a receipt");
    assert_eq!(found.from.iter().collect::<Vec<_>>(), ["unknown"]);
    // Now the scrub cannot be done: its kernels have nowhere to be compiled.
    let cache = left.join("cache");
    std::fs::remove_dir_all(&cache).unwrap();
    std::fs::write(&cache, "").unwrap();
    let refused = of(&bench, "ten_b");
    let id = refused.allocation;
    let (state, _) = ran(&bench, refused).await;
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
    let text = bench.log(id, LogStream::Stderr).await;
    assert!(text.contains("could not be scrubbed"), "{text}");
    let receipt = receipt(&mut watcher, 2).await.expect("a receipt of the failure");
    assert!(
        !receipt.is_clean() && seal::check_receipt(&receipt).is_ok(),
        "{receipt:?}"
    );
}
