//! Joining, keeping a key, changing it, losing it.

use std::process::{Command, Output};
use std::time::Duration;

use tenure_api::secret_text::SecretText;
use tenure_api::token::JoinTicket;
use tenure_domain::tenancy::key::Digest;
use tenure_engine::Seen;

use crate::bench::{AGENT, Bench, eventually, fresh, has_ended};

fn join(bench: &Bench, ticket: &str) -> Output {
    Command::new("timeout")
        .args([
            "10",
            AGENT,
            "run",
            "--name",
            "second",
            "--server",
            &bench.hub().address().to_string(),
            "--state-dir",
        ])
        .arg(bench.root.path().join(format!("second-{}", fresh())))
        .env("TENURE_JOIN_TOKEN", ticket)
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_authority_a_used_token_and_nonsense_are_refused() {
    let bench = Bench::new().await;
    let fresh_token = bench.registry.issue(9);
    let wrong = JoinTicket {
        token: SecretText::new(&fresh_token),
        authority: Digest([7; 32]),
    };
    let used = std::fs::read_to_string(bench.root.path().join("token")).unwrap();
    for (ticket, word) in [
        (wrong.write().reveal().to_owned(), "cannot be trusted"),
        (used, "bad_join_token"),
        ("tnrj_x.y".into(), "not valid"),
    ] {
        let output = tokio::task::block_in_place(|| join(&bench, &ticket));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(word), "{word}: {said}");
        assert!(
            !said.contains(&fresh_token) && !said.contains(&ticket),
            "the token is not repeated"
        );
    }
    assert_eq!(bench.registry.joins(), 1, "none of it reached the registry");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_node_is_not_heard() {
    let bench = Bench::new().await;
    let mut watcher = bench.watch();
    bench.registry.revoke(bench.node);
    bench.hub().disconnect(bench.node, "revoked");
    watcher
        .until(|seen| matches!(seen, Seen::Gone { .. }).then_some(()))
        .await;
    assert!(watcher.within(Duration::from_secs(2)).await.is_empty());
    eventually("it says so", || bench.agent_log().contains("unknown_key")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_changed_while_jobs_run() {
    let mut bench = Bench::with(Duration::from_secs(3), &["--rotate-after-s", "1"]).await;
    let before = bench.registry.keys_of(bench.node);
    let mut watcher = bench.watch();
    let id = fresh();
    bench.start(bench.order(id, "sleep 3")).await;
    eventually("the key changed", || {
        bench.registry.keys_of(bench.node).len() == 1 && bench.registry.keys_of(bench.node) != before
    })
    .await;
    watcher.state(id, has_ended).await;
    assert!(
        !bench.state_dir().join("node.key.next").exists() || bench.registry.keys_of(bench.node).len() <= 2
    );
    // A restarted agent has the key it was left with.
    bench.kill_agent();
    let mut watcher = bench.watch();
    bench.start_agent();
    watcher.whole(bench.node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inventory_is_sent() {
    let mut bench = Bench::new().await;
    bench.kill_agent();
    let mut watcher = bench.watch();
    bench.start_agent();
    let inventory = watcher.until(|seen| match seen {
        Seen::Inventory { inventory, .. } => Some(inventory.clone()),
        _ => None,
    });
    let inventory = inventory.await;
    assert!(inventory.cpu_milli >= 1000 && inventory.memory_mib > 100);
    let doctor = Command::new(AGENT).arg("doctor").output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout);
    assert!(
        doctor.status.success() && said.contains("namespaces:") && said.contains("cgroups:"),
        "{said}"
    );
}
