//! A booking with the real programs: who is in its way leaves before it begins, the job that waits for it runs in it and is
//! sent away when it ends, and whoever had left comes back. The window is charged once, the job in it nothing for its GPU.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_server::controller::now;
use tenure_sim::house::{House, OWNER, said};

const ADA: &str = "acme/research/ada";
const CLEO: &str = "globex/labs/cleo";

/// From the booking to its window: room for both jobs to be submitted, and for the lead.
const AHEAD_S: u64 = 20;
/// The shortest a window may be.
const LENGTH_S: u64 = 60;

/// The wall time in UTC, so many seconds from now.
fn wall(ahead_s: u64) -> String {
    now().plus_ms(ahead_s * 1000).rfc3339()[..19].to_owned()
}

fn job(house: &House, user: &str, name: &str) -> Value {
    house.json(user, &["show", name])
}

fn until(house: &House, user: &str, name: &str, what: &str, so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let job = job(house, user, name);
        if so(&job) {
            return job;
        }
        let why = said(&house.tenure(user, &["why", name]));
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "{name} never {what}: {job}\n{why}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn phase(job: &Value) -> &str {
    job["phase"].as_str().unwrap_or_default()
}

fn runs(job: &Value) -> bool {
    phase(job) == "running"
}

/// Of the node's device, once it was found.
fn class(house: &House) -> String {
    let begun = Instant::now();
    loop {
        let devices = house.json(OWNER, &["gpu", "list"]);
        if let Some(class) = devices[0]["gpu"]["class"].as_str() {
            return class.to_owned();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no device: {devices}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The events of these kinds, oldest first.
fn told(house: &House, kinds: &str) -> Vec<Value> {
    let events = house.done(
        OWNER,
        &["events", "--last", "100000", "--kind", kinds, "-o", "json"],
    );
    events
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_from_its_lead_to_its_bill() {
    let mut house = House::new(None);
    house.start_server().await;
    house.start_agent().await;
    house.done(
        OWNER,
        &["book", "terms", "set", "--lead", "8s", "--no-show", "0s"],
    );
    let class = class(&house);
    let run = |user: &str, name: &str, more: &[&str]| {
        let begin = [
            "run", "-d", "-y", "--name", name, "--gpus", "1", "--time", "1h", "--grace", "2s",
        ];
        let command = ["--", "sleep", "3600"];
        let args: Vec<&str> = begin.iter().chain(more).chain(&command).copied().collect();
        house.done(user, &args);
    };
    run(CLEO, "borrower", &[]);
    until(&house, CLEO, "borrower", "runs", runs);
    let (from, to) = (wall(AHEAD_S), wall(AHEAD_S + LENGTH_S));
    let book = [
        "book", "make", "train", "-y", "--class", &class, "--gpus", "1", "--from", &from, "--to", &to,
    ];
    house.done(ADA, &book);
    let booking = house.json(ADA, &["book", "list"])[0].clone();
    let price = booking["price_micros"].as_i64().unwrap();
    assert!(price > 0, "{booking}");
    run(ADA, "attached", &["--booking", booking["id"].as_str().unwrap()]);
    let waits = said(&house.tenure(ADA, &["why", "attached"]));
    assert!(waits.contains("train") || waits.contains("book"), "{waits}");
    assert!(runs(&job(&house, CLEO, "borrower")), "until the lead it stays");

    let mine = until(&house, ADA, "attached", "runs", runs);
    assert_eq!(phase(&job(&house, CLEO, "borrower")), "queued");
    assert!(
        mine["started"].as_str().unwrap() >= format!("{from}Z").as_str(),
        "not before its window: {mine}"
    );
    let opened = told(&house, "WindowOpened");
    assert_eq!(opened.len(), 1, "{opened:?}");
    let late_ms = opened[0].to_string();
    println!("opened: {late_ms}");

    // At the end its place is the next's.
    until(&house, CLEO, "borrower", "comes back", runs);
    assert!(now().rfc3339()[..19] >= *to, "not before the window is over");
    assert_ne!(phase(&job(&house, ADA, "attached")), "running");
    let closed = told(&house, "WindowClosed");
    assert_eq!(closed.len(), 1, "{closed:?}");
    assert_eq!(house.json(ADA, &["book", "list"]), json!([]));
    let charged = job(&house, ADA, "attached")["charged_micros"].as_i64().unwrap();
    assert!(
        charged < price / 10,
        "the window pays for its GPU: {charged} of {price}"
    );
    let verified = house.done(
        OWNER,
        &["journal", "verify", "--data-dir", house.data().to_str().unwrap()],
    );
    assert!(verified.starts_with("sound"), "{verified}");
}
