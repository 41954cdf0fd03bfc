//! Volumes with the real programs: made, filled, read, grown and removed from the command line.

use std::time::{Duration, Instant};

use tenure_api::v1::node::NodeQuery;
use tenure_sim::house::House;

const ADA: &str = "acme/research/ada";
const OTHER: &str = "globex/labs/cleo";

fn images(house: &House) -> usize {
    let dir = std::fs::read_dir(house.agent_dir().join("volumes")).unwrap();
    dir.filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .path()
            .extension()
            .is_some_and(|kind| kind == "img")
    })
    .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn from_making_to_erasure_on_the_command_line() {
    let mut house = House::new(None);
    house.start_server().await;
    house.start_agent().await;
    house.done(ADA, &["volume", "create", "data", "--size", "64MiB"]);
    let write = [
        "run",
        "-y",
        "--volume",
        "data",
        "--",
        "sh",
        "-c",
        "echo frame 1 > /volumes/data/frames",
    ];
    house.done(ADA, &write);
    let read = "cat /volumes/data/frames; touch /volumes/data/x 2>/dev/null || echo read-only";
    assert_eq!(
        house.done(ADA, &["run", "-y", "--volume", "data:ro", "--", "sh", "-c", read]),
        "frame 1\nread-only\n"
    );
    let file = house.dir.path().join("job.yaml");
    let spec = "name: from-a-file\ncommand: [cat, /volumes/data/frames]\nvolumes:\n  - name: data\n    read_only: true\n";
    std::fs::write(&file, spec).unwrap();
    house.done(ADA, &["apply", "-f", file.to_str().unwrap()]);
    assert_eq!(house.done(ADA, &["logs", "-f", "from-a-file"]), "frame 1\n");

    house.done(ADA, &["volume", "grow", "data", "--size", "128MiB"]);
    let size = "df -m --output=size /volumes/data | tail -1";
    let size = house.done(ADA, &["run", "-y", "--volume", "data", "--", "sh", "-c", size]);
    assert!(size.trim().parse::<u64>().unwrap() > 90, "{size}");
    let list = house.done(ADA, &["volume", "list"]);
    assert!(
        list.contains("data") && list.contains("128 MiB") && list.contains(ADA),
        "{list}"
    );

    // Another tenant neither finds it nor runs with it.
    assert!(!house.done(OTHER, &["volume", "list"]).contains("data"));
    for args in [
        &["volume", "show", "data"][..],
        &["run", "-y", "--volume", "data", "--", "true"],
    ] {
        let refused = house.tenure(OTHER, args);
        let code = refused.status.code();
        assert!(matches!(code, Some(2 | 3)), "{args:?} ended with {code:?}");
    }

    // In use it stays.
    let id = house.done(
        ADA,
        &[
            "run", "-d", "-y", "-o", "name", "--volume", "data", "--", "sleep", "600",
        ],
    );
    assert_eq!(
        house
            .tenure(ADA, &["volume", "remove", "-y", "data"])
            .status
            .code(),
        Some(3)
    );
    house.done(ADA, &["stop", id.trim()]);
    let begun = Instant::now();
    while !house
        .tenure(ADA, &["volume", "remove", "-y", "data"])
        .status
        .success()
    {
        assert!(begun.elapsed() < Duration::from_secs(30), "never unused");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    while images(&house) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "never erased");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let node = &house.owner().nodes(&NodeQuery::default()).await.unwrap().items[0];
    assert!(node.volume_mib > 0);
    let begun = Instant::now();
    while house.owner().nodes(&NodeQuery::default()).await.unwrap().items[0].used_volume_mib > 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "the erasure was never noted"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
