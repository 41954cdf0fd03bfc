//! Logs kept, with the real server, agent, processes and command: through a crash of the server, and after the node is gone.

use std::process::Command;
use std::time::{Duration, Instant};

use tenure_api::client::Client;
use tenure_api::v1::job::SubmitJob;
use tenure_api::v1::log::{LogPage, LogSearch};
use tenure_sim::house::{House, program};

/// Far longer than a loaded machine takes for a few hundred lines.
const PATIENCE: Duration = Duration::from_secs(240);

fn job(name: &str, script: &str) -> SubmitJob {
    let spec = serde_json::json!({
        "name": name,
        "command": ["sh", "-c", script],
        "labels": { "team": "vision" },
        "demand": { "cpu_milli": 10, "memory_mib": 16 },
        "grace_s": 1,
    });
    serde_json::from_value(serde_json::json!({ "spec": spec })).unwrap()
}

async fn until(mut ask: impl AsyncFnMut() -> bool, what: &str) {
    let begun = Instant::now();
    while !ask().await {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn found(client: &Client, q: &str) -> LogPage {
    let search = LogSearch {
        q: Some(q.into()),
        limit: Some(1000),
        ..LogSearch::default()
    };
    client.search_logs(&search).await.unwrap()
}

/// What the command prints.
fn tenure(house: &House, token: &str, args: &[&str]) -> String {
    let output = Command::new(program("tenure"))
        .args(args)
        .env("TENURE_SERVER", house.url())
        .env("TENURE_TOKEN", token)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn real_logs_outlive_a_crash_and_their_node() {
    let mut house = House::new(None);
    house.start_server().await;
    house.start_agent().await;
    let (ada, cleo) = (
        house.demo_token("acme/research/ada"),
        house.demo_token("globex/labs/cleo"),
    );
    let script = r#"
        i=0
        while test $i -lt 400; do echo "step $i of it"; i=$((i + 1)); sleep 0.01; done
        echo "WARNING: disk is nearly full" >&2
        printf '\033[31m{"level":"error","msg":"gave up"}\033[0m\n'
        printf 'no end'"#;
    let client = house.client(&ada);
    let id = client
        .submit_job(&job("steps", script), None)
        .await
        .unwrap()
        .id
        .to_string();
    until(
        async || !found(&client, "step").await.items.is_empty(),
        "lines are found while the job runs",
    )
    .await;
    house.kill_server();
    house.start_server().await;
    let client = house.client(&ada);
    until(
        async || client.job(&id).await.is_ok_and(|job| job.outcome.is_some()),
        "the job ends",
    )
    .await;
    until(
        async || found(&client, "no end").await.items.len() == 1,
        "its last words are kept",
    )
    .await;
    let steps: Vec<String> = found(&client, "step")
        .await
        .items
        .into_iter()
        .rev()
        .map(|line| line.text)
        .collect();
    let wanted: Vec<String> = (0..400).map(|n| format!("step {n} of it")).collect();
    assert_eq!(steps, wanted, "each once, in order");

    let grave = tenure(
        &house,
        &ada,
        &[
            "logs",
            "--level",
            "warn",
            "--label",
            "team=vision",
            "--since",
            "1d",
        ],
    );
    assert!(grave.contains("WARNING: disk is nearly full"), "{grave}");
    assert!(
        grave.contains(r#"{"level":"error","msg":"gave up"}"#) && !grave.contains('\u{1b}'),
        "{grave:?}"
    );
    assert_eq!(grave.lines().count(), 2, "{grave}");
    let json = tenure(&house, &ada, &["logs", "steps", "--search", "GAVE", "-o", "json"]);
    let line: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (line["level"].as_str(), line["stream"].as_str()),
        (Some("error"), Some("stdout"))
    );
    let file = house.dir.path().join("all.ndjson");
    tenure(&house, &ada, &["logs", "--export", file.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 403);
    assert_eq!(
        tenure(&house, &cleo, &["logs", "--search", ""]),
        "",
        "nobody else's"
    );

    // The node goes.
    let before = tenure(&house, &ada, &["logs", "steps"]);
    assert!(
        before.ends_with("no end") && before.lines().count() == 402,
        "{before}"
    );
    house.kill_agent();
    assert_eq!(tenure(&house, &ada, &["logs", "steps"]), before);
    assert_eq!(
        tenure(&house, &ada, &["logs", "--stderr", "steps"]),
        "WARNING: disk is nearly full\n"
    );
    assert_eq!(house.interrupt_server(), Some(0));
}
