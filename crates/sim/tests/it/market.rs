//! The exchange with the real programs: a tenant brings its own machine, which is checked, let to another and used; one whose
//! device is not what its inventory says is found out and never let.

use std::time::{Duration, Instant};

use serde_json::Value;
use tenure_sim::house::{House, program, said};

const ALMA: &str = "acme/alma";
const GUS: &str = "globex/gus";
const CLEO: &str = "globex/labs/cleo";

/// The tenant's only node, as its own people see it.
fn node(house: &House) -> Value {
    house.json(ALMA, &["node", "list"])[0].clone()
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(120), "never: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

async fn brought(variables: &[(&str, std::path::PathBuf)]) -> House {
    let mut house = House::new(None);
    house.start_server().await;
    let token = house.done(ALMA, &["node", "join", "--tenant", "acme"]);
    house.start_agent_with(token.trim(), variables).await;
    house
}

/// Offers all GPUs of the node; of which class they are.
fn offers(house: &House) -> String {
    let node = node(house);
    let (id, gpus) = (node["id"].as_str().unwrap(), node["gpus"].as_array().unwrap());
    let (class, count) = (gpus[0]["class"].as_str().unwrap(), gpus.len().to_string());
    let offer = [
        "market", "offer", "--class", class, "--gpus", &count, "--node", id, "--price", "1",
    ];
    house.done(ALMA, &offer);
    class.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_own_machine_is_checked_let_and_used() {
    let house = brought(&[]).await;
    until("it has shown what it is", || {
        node(&house)["gpus"][0]["checked"].is_string()
    });
    let class = offers(&house);
    let own = node(&house);
    assert_eq!(own["owner"], own["labels"]["dedicated"], "{own}");
    let ran = [
        "run",
        "-y",
        "--gpus",
        "0.5",
        "--vram",
        "64MiB",
        "--",
        "sh",
        "-c",
        "echo it ran",
    ];
    let count = own["gpus"].as_array().unwrap().len().to_string();
    let buy = [
        "market", "buy", "-y", "--class", &class, "--gpus", &count, "--time", "1h",
    ];
    house.done(GUS, &buy);
    assert_eq!(house.done(CLEO, &ran), "it ran\n");
    let leases = house.json(ALMA, &["market", "leases"]);
    let lease = leases[0]["id"].as_str().unwrap();
    house.done(GUS, &["market", "leave", "-y", lease]);
    assert_eq!(house.json(GUS, &["market", "leases"]), serde_json::json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_not_what_it_claims_is_not_let() {
    let liar = program("examples/libopencl_liar.so");
    let house = brought(&[("TENURE_OPENCL_LIBRARY", liar)]).await;
    until("it has GPUs", || {
        !node(&house)["gpus"].as_array().unwrap().is_empty()
    });
    let class = offers(&house);
    until("its offer is withdrawn", || {
        house.json(ALMA, &["market", "offers"]) == serde_json::json!([])
    });
    assert_eq!(node(&house)["gpus"][0].get("checked"), None, "{}", node(&house));
    let buy = [
        "market", "buy", "-y", "--class", &class, "--gpus", "1", "--time", "1h",
    ];
    let refused = house.tenure(GUS, &buy);
    assert!(
        !refused.status.success() && said(&refused).contains("no_offers"),
        "{}",
        said(&refused)
    );
}
