//! One live connection per node, and what is said over it.

use std::time::Duration;

use tenure_api::channel::reading::{DeviceReading, Gauges};
use tenure_api::channel::{FromAgent, FromServer, LogChunk, LogStream};
use tenure_domain::id::AllocationId;
use tenure_engine::conformance::Watcher;
use tenure_engine::{Engine, EngineError, Seen};

use crate::wire::{House, hello};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_connection_of_one_boot_replaces_the_first() {
    let house = House::new().await;
    let card = house.node(1).await;
    let mut watcher = Watcher::of(&house.hub);
    let mut first = house.wire(&card).await;
    first.open().await;
    let mut second = house.wire(&card).await;
    second.open().await;
    assert_eq!(first.bye().await.as_deref(), Some("replaced"));
    watcher.whole(card.node).await;
    watcher.whole(card.node).await;
    let later = watcher.within(Duration::from_millis(100)).await;
    assert!(
        !later.contains(&Seen::Gone { node: card.node }),
        "the node is still there"
    );
    house.hub.release(card.node, AllocationId(1)).await.unwrap();
    assert!(matches!(second.hear().await, Some(FromServer::Release { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_boot_at_the_same_time_is_a_clone() {
    let house = House::new().await;
    let card = house.node(1).await;
    let mut first = house.wire(&card).await;
    first.open().await;
    let mut clone = house.wire(&card).await;
    clone.say(&hello("boot-2", 5)).await;
    assert_eq!(clone.bye().await.as_deref(), Some("clone"));
    first.say(&FromAgent::Heartbeat { sent_ms: 9 }).await;
    assert!(matches!(
        first.hear().await,
        Some(FromServer::Lease { sent_ms: 9, .. })
    ));
    // When the first is gone, the second may be the machine after a reboot.
    drop(first);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut rebooted = house.wire(&card).await;
    rebooted.say(&hello("boot-2", 6)).await;
    assert!(matches!(rebooted.hear().await, Some(FromServer::Welcome { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_wait_for_the_whole_report() {
    let house = House::new().await;
    let card = house.node(1).await;
    let mut watcher = Watcher::of(&house.hub);
    let mut wire = house.wire(&card).await;
    wire.hello().await;
    let away = Err(EngineError::NotConnected(card.node));
    assert_eq!(house.hub.release(card.node, AllocationId(1)).await, away);
    wire.say(&FromAgent::Report {
        whole: true,
        more: false,
        allocations: vec![],
    })
    .await;
    watcher.whole(card.node).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(house.hub.release(card.node, AllocationId(1)).await, Ok(()));
    house.hub.disconnect(card.node, "for a test");
    assert_eq!(wire.bye().await.as_deref(), Some("disconnected"));
    watcher
        .until(|seen| matches!(seen, Seen::Gone { .. }).then_some(()))
        .await;
    assert_eq!(house.hub.release(card.node, AllocationId(1)).await, away);
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_are_asked_for_and_answered() {
    let house = House::new().await;
    let card = house.node(1).await;
    let mut watcher = Watcher::of(&house.hub);
    let mut wire = house.wire(&card).await;
    wire.open().await;
    watcher.whole(card.node).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let hub = &house.hub;
    let read = |max| hub.read_log(card.node, AllocationId(3), LogStream::Stdout, 5, max, 0);
    let escapes = b"\x1b[31mred\x00\xff".to_vec();
    let answer = async {
        let Some(FromServer::ReadLog {
            request, offset: 5, ..
        }) = wire.hear().await
        else {
            panic!()
        };
        let chunk = LogChunk {
            offset: 5,
            bytes: escapes.clone(),
            end: true,
        };
        wire.say(&FromAgent::Log {
            request,
            chunk: Ok(chunk),
        })
        .await;
        let Some(FromServer::ReadLog { request, .. }) = wire.hear().await else {
            panic!()
        };
        wire.say(&FromAgent::Log {
            request,
            chunk: Err("gone".into()),
        })
        .await;
        let Some(FromServer::ReadLog { request, .. }) = wire.hear().await else {
            panic!()
        };
        let chunk = LogChunk {
            offset: 5,
            bytes: vec![1; 11],
            end: false,
        };
        wire.say(&FromAgent::Log {
            request,
            chunk: Ok(chunk),
        })
        .await;
        assert_eq!(wire.bye().await.as_deref(), Some("invalid_log"));
    };
    let asked = async {
        assert_eq!(read(100).await.unwrap().bytes, escapes);
        assert_eq!(read(100).await, Err(EngineError::Refused { why: "gone".into() }));
        assert_eq!(
            read(10).await,
            Err(EngineError::NotConnected(card.node)),
            "more than asked for is not taken"
        );
    };
    tokio::join!(answer, asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_reads_nothing_holds_up_nobody() {
    let house = House::new().await;
    let (deaf, other) = (house.node(1).await, house.node(2).await);
    let mut watcher = Watcher::of(&house.hub);
    let mut deaf_wire = house.wire(&deaf).await;
    deaf_wire.open().await;
    watcher.whole(deaf.node).await;
    let mut wire = house.wire(&other).await;
    wire.open().await;
    watcher.whole(other.node).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let hub = &house.hub;
    // Orders pile up until there is no more room, and then say so.
    let mut busy = false;
    for i in 0..100_000u64 {
        let order = hub.release(deaf.node, AllocationId(i));
        if let Ok(Err(error)) = tokio::time::timeout(Duration::from_micros(50), order).await {
            assert_eq!(error, EngineError::Busy(deaf.node));
            busy = true;
            break;
        }
    }
    assert!(busy);
    let started = std::time::Instant::now();
    hub.release(other.node, AllocationId(1)).await.unwrap();
    assert!(matches!(wire.hear().await, Some(FromServer::Release { .. })));
    assert!(started.elapsed() < Duration::from_secs(1));
}

/// Readings come often and matter little: who does not take them misses them, and holds up nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn readings_are_dropped_rather_than_queued() {
    let house = House::new().await;
    let card = house.node(1).await;
    let mut watcher = Watcher::of(&house.hub);
    let mut measured = house.hub.subscribe_readings();
    let mut wire = house.wire(&card).await;
    wire.open().await;
    watcher.whole(card.node).await;
    let reading = |busy| FromAgent::Readings {
        devices: vec![DeviceReading {
            uuid: "GPU-1".into(),
            gauges: Gauges {
                busy_permille: Some(busy),
                ..Gauges::default()
            },
            slices: vec![],
            parts: vec![],
        }],
    };
    wire.say(&reading(7)).await;
    let first = measured.recv().await.expect("a reading is passed on");
    assert_eq!(first.node, card.node);
    assert_eq!(first.devices[0].gauges.busy_permille, Some(7));
    // Nobody takes these, and far more come than are kept.
    for _ in 0..1500 {
        wire.say(&reading(8)).await;
    }
    wire.say(&FromAgent::Heartbeat { sent_ms: 1 }).await;
    watcher
        .until(|seen| matches!(seen, Seen::Heartbeat { .. }).then_some(()))
        .await;
    let mut kept = 0;
    while measured.try_recv().is_ok() {
        kept += 1;
    }
    assert!((1..1500).contains(&kept), "{kept} were kept");
}
