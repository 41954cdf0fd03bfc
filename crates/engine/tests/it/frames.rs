//! Bad frames: each ends the connection with last words that say why, and nothing of it is passed on.

use std::time::Duration;

use tenure_api::channel::{
    AllocationReport, FromAgent, MAX_REPORTS, MAX_STEPS, RunState, StartStep, Took, VERSION,
};
use tenure_domain::id::AllocationId;
use tenure_engine::Seen;
use tenure_engine::conformance::Watcher;

use crate::wire::{House, hello};

fn frame(version: &str, number: &str, message: &str) -> String {
    format!(r#"{{"version":{version},"number":{number},"message":{message}}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_frames_end_the_connection_and_change_nothing() {
    let house = House::new().await;
    let card = house.node(1).await;
    let now = &VERSION.to_string();
    let beat = r#"{"heartbeat":{"sent_ms":1}}"#;
    let alc = AllocationId(7);
    let report = |ran: &str| {
        format!(
            r#"{{"report":{{"whole":false,"allocations":[{{"allocation":"{alc}","ran_ms":{ran},"state":"running"}}]}}}}"#
        )
    };
    let inventory = |cpu: &str, vram: &str| {
        format!(
            r#"{{"inventory":{{"inventory":{{"cpu_milli":{cpu},"memory_mib":1,"gpus":[{{"uuid":"u","vendor":"v","model":"m","class":"c","vram_mib":{vram},"isolation":{{}}}}]}}}}}}"#
        )
    };
    let many = format!(
        r#"{{"report":{{"whole":false,"allocations":[{}]}}}}"#,
        vec![format!(r#"{{"allocation":"{alc}","ran_ms":1,"state":"running"}}"#); MAX_REPORTS + 1].join(",")
    );
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    // The hello was frame 1, so 2 is due.
    let cases: Vec<(&str, String, &str)> = vec![
        ("empty", String::new(), "bad_frame"),
        ("not JSON", "hello".into(), "bad_frame"),
        ("null", "null".into(), "bad_frame"),
        ("version 0", frame("0", "2", beat), "version"),
        ("version 2^32-1", frame("4294967295", "2", beat), "version"),
        ("version 2^32", frame("4294967296", "2", beat), "bad_frame"),
        (
            "another version with unknown words",
            frame(&(VERSION + 1).to_string(), "2", r#"{"sing":{}}"#),
            "version",
        ),
        ("replayed", frame(now, "1", beat), "bad_frame"),
        ("ahead of its time", frame(now, "3", beat), "bad_frame"),
        (
            "number 2^64",
            frame(now, "18446744073709551616", beat),
            "bad_frame",
        ),
        ("number negative", frame(now, "-1", beat), "bad_frame"),
        ("unknown word", frame(now, "2", r#"{"sing":{}}"#), "bad_frame"),
        (
            "unknown field",
            frame(now, "2", r#"{"heartbeat":{"sent_ms":1,"x":2}}"#),
            "bad_frame",
        ),
        (
            "a field twice",
            frame(now, "2", r#"{"heartbeat":{"sent_ms":1,"sent_ms":2}}"#),
            "bad_frame",
        ),
        ("depth 10,000", frame(now, "2", &deep), "bad_frame"),
        ("run time NaN", frame(now, "2", &report("NaN")), "bad_frame"),
        ("run time negative", frame(now, "2", &report("-1")), "bad_frame"),
        ("run time 1e400", frame(now, "2", &report("1e400")), "bad_frame"),
        (
            "run time 2^64",
            frame(now, "2", &report("18446744073709551616")),
            "bad_frame",
        ),
        (
            "run time 2^64-1",
            frame(now, "2", &report("18446744073709551615")),
            "invalid_report",
        ),
        ("too many reports", frame(now, "2", &many), "invalid_report"),
        (
            "no CPU",
            frame(now, "2", &inventory("0", "1")),
            "invalid_inventory",
        ),
        (
            "no VRAM",
            frame(now, "2", &inventory("1", "0")),
            "invalid_inventory",
        ),
        (
            "VRAM 2^63",
            frame(now, "2", &inventory("1", "9223372036854775808")),
            "invalid_inventory",
        ),
        ("VRAM NaN", frame(now, "2", &inventory("1", "NaN")), "bad_frame"),
        (
            "a second hello",
            frame(
                now,
                "2",
                r#"{"hello":{"agent_version":"0","boot_id":"b","uptime_ms":1}}"#,
            ),
            "unexpected",
        ),
        (
            "a join",
            frame(now, "2", r#"{"join":{"token":"t","name":"n","csr_pem":"c"}}"#),
            "unexpected",
        ),
        (
            "an answer nobody asked for",
            frame(now, "2", r#"{"log":{"request":9,"chunk":{"Err":"x"}}}"#),
            "unexpected",
        ),
        (
            "a rotation to nothing",
            frame(now, "2", r#"{"rotate":{"csr_pem":"x"}}"#),
            "invalid_request",
        ),
        (
            "parts of what is not whole",
            frame(
                now,
                "2",
                r#"{"report":{"whole":false,"more":true,"allocations":[]}}"#,
            ),
            "invalid_report",
        ),
        (
            "busier than the whole",
            frame(
                now,
                "2",
                r#"{"readings":{"devices":[{"uuid":"u","gauges":{"busy_permille":1001}}]}}"#,
            ),
            "invalid_readings",
        ),
        (
            "readings of more devices than a message carries",
            frame(
                now,
                "2",
                &format!(
                    r#"{{"readings":{{"devices":[{}]}}}}"#,
                    vec![r#"{"uuid":"u"}"#; 65].join(",")
                ),
            ),
            "invalid_readings",
        ),
    ];
    let mut watcher = Watcher::of(&house.hub);
    for (what, body, code) in cases {
        let mut wire = house.wire(&card).await;
        wire.hello().await;
        wire.body(&body).await;
        assert_eq!(wire.bye().await.as_deref(), Some(code), "{what}");
        let gone = watcher.until(|seen| match seen {
            Seen::Gone { .. } => Some(()),
            Seen::Joined { .. } => None,
            other => panic!("{what}: {other:?}"),
        });
        gone.await;
    }
    // And the node is as welcome as before.
    let mut wire = house.wire(&card).await;
    wire.open().await;
    watcher.whole(card.node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_too_long_or_cut_short_end_the_connection() {
    let house = House::new().await;
    let card = house.node(1).await;
    for announced in [4 * 1024 * 1024 + 1, u32::MAX] {
        let mut wire = house.wire(&card).await;
        wire.hello().await;
        wire.raw(&announced.to_be_bytes()).await;
        assert_eq!(wire.bye().await.as_deref(), Some("bad_frame"));
    }
    // A million metrics never fit.
    let mut wire = house.wire(&card).await;
    wire.hello().await;
    let reports = vec![
        AllocationReport {
            allocation: AllocationId(1),
            ran_ms: 1,
            state: RunState::Running,
            usage: None,
            saved_ago_ms: None,
            kept: None,
            conduct: None,
        };
        1_000_000
    ];
    let body = serde_json::to_vec(&FromAgent::Report {
        whole: true,
        more: false,
        allocations: reports,
    })
    .unwrap();
    let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
    bytes.extend(&body[..100_000]);
    wire.raw(&bytes).await;
    assert_eq!(wire.bye().await.as_deref(), Some("bad_frame"));
    // Cut in the middle, by the end of the stream.
    let mut watcher = Watcher::of(&house.hub);
    for cut in [2, 10] {
        let mut wire = house.wire(&card).await;
        wire.hello().await;
        let bytes = wire.writer.frame(&FromAgent::Heartbeat { sent_ms: 5 }).unwrap();
        wire.raw(&bytes[..cut]).await;
        drop(wire);
        watcher
            .until(|seen| match seen {
                Seen::Gone { .. } => Some(()),
                Seen::Heartbeat { .. } => panic!("a cut frame was taken"),
                _ => None,
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_start_took_is_passed_on_and_no_more_steps_than_there_are() {
    let house = House::new().await;
    let card = house.node(1).await;
    let mut watcher = Watcher::of(&house.hub);
    let mut wire = house.wire(&card).await;
    wire.open().await;
    let started = |count| FromAgent::Started {
        allocation: AllocationId(3),
        steps: vec![
            Took {
                step: StartStep::Exec,
                ended_ago_us: 7,
                took_us: u64::MAX,
            };
            count
        ],
    };
    wire.say(&started(2)).await;
    let steps = watcher
        .until(|seen| match seen {
            Seen::Started { steps, .. } => Some(steps.len()),
            _ => None,
        })
        .await;
    assert_eq!(steps, 2);
    wire.say(&started(MAX_STEPS + 1)).await;
    assert_eq!(wire.bye().await.as_deref(), Some("invalid_report"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_reports_in_parts_are_put_together() {
    let house = House::new().await;
    let card = house.node(1).await;
    let mut watcher = Watcher::of(&house.hub);
    let mut wire = house.wire(&card).await;
    wire.hello().await;
    let part = |from: u64, count: u64, more| FromAgent::Report {
        whole: true,
        more,
        allocations: (from..from + count)
            .map(|i| AllocationReport {
                allocation: AllocationId(i),
                ran_ms: i,
                state: RunState::Running,
                usage: None,
                saved_ago_ms: None,
                kept: None,
                conduct: None,
            })
            .collect(),
    };
    wire.say(&part(0, 1000, true)).await;
    wire.say(&part(1000, 1000, true)).await;
    assert!(!house.hub.is_connected(card.node), "orders wait for the whole");
    wire.say(&part(2000, 5, false)).await;
    assert_eq!(watcher.whole(card.node).await.len(), 2005);
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_ends_the_connection() {
    let config = tenure_engine::local::HubConfig {
        term: Duration::from_millis(300),
        handshake: Duration::from_millis(300),
        ..Default::default()
    };
    let house = House::with(config).await;
    let card = house.node(1).await;
    let mut wire = house.wire(&card).await;
    wire.open().await;
    // Reports are no heartbeats.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(80)).await;
        wire.say(&FromAgent::Report {
            whole: false,
            more: false,
            allocations: vec![],
        })
        .await;
    }
    assert_eq!(wire.bye().await.as_deref(), Some("silent"));
    let mut mute = house.wire(&card).await;
    assert_eq!(mute.bye().await.as_deref(), Some("silent"));
    let mut stranger = house.stranger().await;
    assert_eq!(stranger.bye().await.as_deref(), Some("silent"));
    // And who does not even shake hands is dropped.
    let mut tcp = tokio::net::TcpStream::connect(house.hub.address()).await.unwrap();
    let mut nothing = [0; 1];
    let read = tokio::time::timeout(
        Duration::from_secs(5),
        tokio::io::AsyncReadExt::read(&mut tcp, &mut nothing),
    )
    .await;
    assert!(matches!(read, Ok(Ok(0) | Err(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn uptime_runs_forwards() {
    let house = House::new().await;
    let card = house.node(1).await;
    let mut wire = house.wire(&card).await;
    wire.hello().await;
    drop(wire);
    let mut wire = house.wire(&card).await;
    wire.say(&hello("boot-1", 999)).await;
    assert_eq!(wire.bye().await.as_deref(), Some("uptime_backwards"));
    for (boot, uptime) in [("boot-1", 1001), ("boot-2", 1)] {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut wire = house.wire(&card).await;
        wire.say(&hello(boot, uptime)).await;
        assert!(
            matches!(
                wire.hear().await,
                Some(tenure_api::channel::FromServer::Welcome { .. })
            ),
            "{boot}"
        );
    }
}
