//! Two tenants on one real device through the front door: slices, what each sees of them, and another size while
//! they run.

use std::time::{Duration, Instant};

use tenure_sim::house::{House, OWNER, said};

const ADA: &str = "acme/research/ada";
const CLEO: &str = "globex/labs/cleo";

/// The slice of a job as its owner is shown it.
fn size(house: &House, user: &str, job: &str) -> (u64, u64) {
    let job: serde_json::Value =
        serde_json::from_str(&house.done(user, &["show", job, "-o", "json"])).unwrap();
    let demand = &job["spec"]["demand"];
    (
        demand["compute_permille"].as_u64().unwrap(),
        demand["vram_mib"].as_u64().unwrap(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tenants_share_one_device_and_change_their_size() {
    let mut house = House::new(None);
    house.start_server().await;
    house.start_agent().await;
    for (user, name, share) in [(ADA, "large", "0.7"), (CLEO, "small", "0.3")] {
        let run = [
            "run", "-d", "-y", "--name", name, "--gpus", share, "--vram", "256MiB", "--", "sleep", "600",
        ];
        house.done(user, &run);
    }
    for (user, name) in [(ADA, "large"), (CLEO, "small")] {
        let begun = Instant::now();
        while !house.done(user, &["ps"]).contains("running") {
            let why = said(&house.tenure(user, &["why", name]));
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{name} does not run: {why}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let devices: serde_json::Value =
        serde_json::from_str(&house.done(OWNER, &["gpu", "list", "-o", "json"])).unwrap();
    let held: Vec<usize> = devices
        .as_array()
        .unwrap()
        .iter()
        .map(|device| device["slices"].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(held.iter().max(), Some(&2), "both are on one device: {devices}");

    // No room to grow while the other has the rest; room when it has less.
    let refused = house.tenure(CLEO, &["resize", "small", "--compute", "50%"]);
    assert!(
        !refused.status.success() && said(&refused).contains("300 thousandths of compute"),
        "{}",
        said(&refused)
    );
    assert_eq!(size(&house, CLEO, "small"), (300, 256));
    house.done(ADA, &["resize", "large", "--compute", "40%", "--vram", "128MiB"]);
    house.done(CLEO, &["resize", "small", "--compute", "60%"]);
    assert_eq!(size(&house, ADA, "large"), (400, 128));
    assert_eq!(size(&house, CLEO, "small"), (600, 256));
    let begun = Instant::now();
    loop {
        let show = house.done(OWNER, &["gpu", "list", "-o", "json"]);
        if show.contains("\"limit_vram_mib\":128") || show.contains("\"limit_vram_mib\": 128") {
            break;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "the device has the old size: {show}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Another tenant's job is nobody's business, and nothing is nothing.
    let foreign = house.tenure(ADA, &["resize", "small", "--compute", "1%"]);
    assert!(
        !foreign.status.success() && !said(&foreign).contains("600"),
        "{}",
        said(&foreign)
    );
    assert_eq!(house.tenure(ADA, &["resize", "large"]).status.code(), Some(2));
    for (user, name) in [(ADA, "large"), (CLEO, "small")] {
        house.done(user, &["stop", name]);
    }
}
