//! Keeping: what nodes forget, what a crash of the server may not lose, what is bounded, and what is erased.

use serde_json::json;
use tenure_api::channel::LogStream::{Stderr, Stdout};
use tenure_domain::Time;
use tenure_server::controller::now;
use tenure_server::log::sweep;

use super::{Stage, eventually, is_each_once};

const DAY_MS: i64 = 86_400_000;

impl Stage {
    async fn sweep(&self, now: Time) {
        sweep(self.world.controller.view(), &self.world.logs, now)
            .await
            .unwrap();
    }

    async fn set_keeping(&self, scope: &str, keeping: serde_json::Value) {
        let path = format!("/v1/scopes/{scope}/log-keeping");
        let reply = self.world.put(&self.world.owner, &path, keeping).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_node_is_gone_or_has_forgotten_still_has_its_log() {
    let stage = Stage::new().await;
    let key = &stage.ada.1;
    let gone = stage.run(&stage.ada, "gone", json!({})).await;
    let forgotten = stage.run(&stage.ada, "forgotten", json!({})).await;
    let long: String = (0..20_000).map(|n| format!("step {n}\n")).collect();
    stage.says(&gone, Stdout, &long);
    stage.says(&gone, Stdout, "last words without an end");
    stage.says(&forgotten, Stdout, "short\n");
    stage.end(&gone).await;
    stage.end(&forgotten).await;
    stage.kept(key, "q=last%20words", 1).await;
    stage.kept(key, "q=short", 1).await;
    stage.node.forget(forgotten.allocation);
    let kept = stage.log(key, forgotten.job).await;
    assert_eq!(kept, (200, "short\n".to_owned()));
    stage.node.set_away(true);
    let (status, text) = stage.log(key, gone.job).await;
    assert_eq!(status, 200);
    assert!(
        text == format!("{long}last words without an end"),
        "{} bytes",
        text.len()
    );
    let from = stage
        .world
        .get(
            key,
            &format!("/v1/jobs/{}/logs?offset={}", gone.job, long.len() + 5),
        )
        .await;
    assert_eq!(from.bytes, b"words without an end");
    // Nobody else gets it for that.
    assert_eq!(stage.log(&stage.cleo.1, gone.job).await.0, 404);
    // One that runs is its node's to tell, as before.
    stage.node.set_away(false);
    let running = stage.run(&stage.ada, "running", json!({})).await;
    stage.says(&running, Stdout, "so far\n");
    stage.kept(key, "q=so%20far", 1).await;
    stage.node.set_away(true);
    let end = stage
        .world
        .get(key, &format!("/v1/jobs/{}/logs?offset=7", running.job))
        .await;
    assert_eq!(end.status, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loses_nothing_and_keeps_nothing_twice() {
    let mut stage = Stage::new().await;
    let run = stage.run(&stage.ada, "long", json!({})).await;
    let mut written = 0;
    for _ in 0..5 {
        for _ in 0..2_000 {
            stage.says(&run, Stdout, format!("line {written}\n"));
            written += 1;
        }
        // In the middle of it, wherever that is.
        eventually(async || {
            let source = stage
                .world
                .logs
                .source(&run.allocation.to_string(), "stdout")
                .await;
            source
                .unwrap()
                .is_some_and(|source| source.next > 0)
                .then_some(())
        })
        .await;
        stage.stop_collecting().await;
        stage.collect();
    }
    // Began and ended while nobody collected: the journal tells of it.
    stage.stop_collecting().await;
    let missed = stage.run(&stage.ada, "missed", json!({})).await;
    stage.says(&missed, Stderr, "ended in between\n");
    stage.end(&missed).await;
    stage.collect();
    let key = &stage.ada.1;
    stage.kept(key, "q=ended%20in%20between", 1).await;
    let query = format!("/v1/logs?format=ndjson&order=oldest&job={}", run.job);
    let texts = eventually(async || {
        let taken = String::from_utf8(stage.world.get(key, &query).await.bytes).unwrap();
        let texts: Vec<String> = taken
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].to_string())
            .collect();
        (texts.len() >= written).then_some(texts)
    })
    .await;
    assert_eq!(texts.len(), written);
    assert!(is_each_once(&texts));
    assert!(
        texts
            .iter()
            .enumerate()
            .all(|(n, text)| *text == format!("\"line {n}\"")),
        "in the order they were written"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_old_is_erased_and_a_tenants_word_makes_it_sooner() {
    let stage = Stage::new().await;
    let ours = stage.run(&stage.ada, "ours", json!({})).await;
    let theirs = stage.run(&stage.cleo, "theirs", json!({})).await;
    for (run, who) in [(&ours, &stage.ada), (&theirs, &stage.cleo)] {
        stage.says(run, Stdout, "a line\n");
        stage.end(run).await;
        stage.kept(&who.1, "", 1).await;
    }
    stage.node.forget(ours.allocation);
    stage.set_keeping(&stage.acme, json!({ "days": 3 })).await;
    let (ada, cleo) = (&stage.ada.1, &stage.cleo.1);
    let at = |days: i64| Time(now().0 + days * DAY_MS);
    stage.sweep(at(2)).await;
    assert_eq!(stage.texts(ada, "").await.len(), 1);
    stage.sweep(at(4)).await;
    assert_eq!(stage.texts(ada, "").await.len(), 0);
    assert_eq!(stage.texts(cleo, "").await.len(), 1, "fourteen days unless said");
    let page = stage.world.get(ada, "/v1/logs").await.json();
    assert!(page["erased_before"].is_string(), "it says so: {page}");
    let page = stage.world.get(cleo, "/v1/logs").await.json();
    assert!(page["erased_before"].is_null(), "{page}");
    let (status, text) = stage.log(ada, ours.job).await;
    assert_eq!(
        (status, text.as_str()),
        (200, "tenure: 7 bytes are not kept any more\n")
    );
    stage.sweep(at(15)).await;
    assert_eq!(stage.texts(cleo, "").await.len(), 0);
    // Nothing is left of either, nor of what they were about.
    stage.sweep(at(100)).await;
    for run in [&ours, &theirs] {
        let source = stage
            .world
            .logs
            .source(&run.allocation.to_string(), "stdout")
            .await;
        assert_eq!(source.unwrap(), None);
    }
    let path = format!("/v1/scopes/{}/log-keeping", stage.acme);
    for (keeping, field) in [
        (json!({ "days": 0 }), "/days"),
        (json!({ "days": 15 }), "/days"),
        (json!({ "mib": 1 << 20 }), "/mib"),
        (json!({ "job_mib": 65 }), "/job_mib"),
        (json!({ "tenant_mib": 1 }), "/tenant_mib"),
        (json!({ "weeks": 1 }), "/weeks"),
    ] {
        let reply = stage.world.put(&stage.world.owner, &path, keeping).await;
        assert_eq!((reply.status.as_u16(), reply.field().as_str()), (422, field));
    }
    assert_eq!(stage.world.get(&stage.world.owner, &path).await.json()["days"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_tenants_logs_are_erased_with_it() {
    let stage = Stage::new().await;
    let run = stage.run(&stage.ada, "ours", json!({})).await;
    stage.says(&run, Stdout, "secret of a tenant\n");
    stage.end(&run).await;
    let owner = &stage.world.owner;
    stage.kept(owner, "q=secret", 1).await;
    for scope in [&stage.ada.0, &stage.acme] {
        let closed = stage.world.delete(owner, &format!("/v1/scopes/{scope}")).await;
        assert_eq!(closed.status, 204, "{closed:?}");
    }
    stage.sweep(now()).await;
    assert_eq!(stage.texts(owner, "").await, Vec::<String>::new());
    let source = stage
        .world
        .logs
        .source(&run.allocation.to_string(), "stdout")
        .await;
    assert_eq!(source.unwrap(), None);
}

/// Text that does not compress.
fn noise(bytes: usize, mut seed: u64) -> String {
    let mut text = String::with_capacity(bytes + 100);
    while text.len() < bytes {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.push_str(&format!("{:016x}", seed ^ (seed >> 31)));
        if text.len().is_multiple_of(80) {
            text.push_str("\nnext line: ");
        }
    }
    text.push('\n');
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn of_too_much_the_oldest_goes_and_only_of_who_wrote_it() {
    let stage = Stage::new().await;
    let calm = stage.run(&stage.cleo, "calm", json!({})).await;
    stage.says(&calm, Stdout, "a calm line\n");
    stage.says(&calm, Stdout, noise(700 << 10, 5));
    stage.says(&calm, Stdout, "a calm end\n");
    stage.kept(&stage.cleo.1, "q=a%20calm%20end", 1).await;
    let loud = stage.run(&stage.ada, "loud", json!({})).await;
    stage.says(&loud, Stdout, "the first line\n");
    stage.kept(&stage.ada.1, "q=first", 1).await;
    stage.says(&loud, Stdout, noise(4 << 20, 7));
    stage.says(&loud, Stdout, "the last line\n");
    stage.kept(&stage.ada.1, "q=the%20last", 1).await;
    stage.set_keeping(&stage.acme, json!({ "mib": 1 })).await;
    stage.sweep(now()).await;
    let sizes = stage.world.logs.sizes().await.unwrap();
    let ours = sizes.iter().find(|(tenant, _)| *tenant == stage.acme).unwrap();
    assert!(ours.1 <= 1 << 20, "{sizes:?}");
    assert_eq!(stage.texts(&stage.ada.1, "q=first").await, Vec::<String>::new());
    assert_eq!(stage.texts(&stage.ada.1, "q=the%20last").await.len(), 1);
    // Where all together are too much, whoever has the most gives.
    stage.says(&loud, Stdout, noise(2 << 20, 9));
    stage.says(&loud, Stdout, "the end\n");
    stage.kept(&stage.ada.1, "q=the%20end", 1).await;
    stage.set_keeping(&stage.acme, json!({})).await;
    stage.set_keeping("platform", json!({ "mib": 1 })).await;
    stage.sweep(now()).await;
    let total: u64 = stage
        .world
        .logs
        .sizes()
        .await
        .unwrap()
        .iter()
        .map(|(_, size)| size)
        .sum();
    assert!(total <= 1 << 20, "{total}");
    assert_eq!(
        stage.texts(&stage.cleo.1, "q=a%20calm").await,
        ["a calm end", "a calm line"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_one_job_so_much_is_kept_and_the_cut_says_so() {
    let stage = Stage::new().await;
    stage.set_keeping("platform", json!({ "job_mib": 1 })).await;
    let run = stage.run(&stage.ada, "endless", json!({})).await;
    let line = "endless chatter of one job\n";
    let text = line.repeat((3 << 20) / line.len());
    stage.says(&run, Stdout, &text);
    let key = &stage.ada.1;
    stage.kept(key, "q=one%20job's%20logs", 1).await;
    let note = &stage.find(key, "q=one%20job's%20logs&level=warn").await[0];
    assert_eq!(note["level"], "warn");
    assert_eq!(
        stage.node.most_at_once(),
        1,
        "a node is asked one thing at a time"
    );
    stage.end(&run).await;
    stage.node.forget(run.allocation);
    let (status, kept) = stage.log(key, run.job).await;
    let (body, end) = kept.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(
        (status, end),
        (200, "tenure: what is kept of one job ends here; it wrote more")
    );
    assert!(text.starts_with(body) && body.len() > 900_000 && body.len() <= 1 << 20);
    // Others are kept as ever.
    let other = stage.run(&stage.ada, "other", json!({})).await;
    stage.says(&other, Stdout, "another line\n");
    stage.kept(key, "q=another%20line", 1).await;
}
