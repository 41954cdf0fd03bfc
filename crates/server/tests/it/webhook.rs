//! Webhooks with real receivers: what they are sent, by whom, in which order, and what they are never sent.

mod receiver;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_server::http::HttpOptions;

use crate::world::{World, generous};
use receiver::{Answer, Got, Receiver};

/// Receivers on this machine are listed by the operator, as all there are for tests are here; pauses are short.
fn listing(receivers: &[&Receiver]) -> HttpOptions {
    let mut options = generous();
    let listed = receivers
        .iter()
        .map(|receiver| format!("127.0.0.1:{}", receiver.port));
    options.webhooks.private = listed.collect();
    options.webhooks.time_limit = Duration::from_millis(1500);
    options.webhooks.first_pause = Duration::from_millis(40);
    options.webhooks.longest_pause = Duration::from_millis(200);
    options
}

/// Makes a webhook; gives its path and its secret.
async fn hook(world: &World, token: &str, scope: &str, name: &str, url: &str) -> (String, String) {
    let body = json!({ "scope": scope, "name": name, "url": url });
    let made = world.post(token, "/v1/webhooks", body).await;
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    let path = format!("/v1/webhooks/{}", made["webhook"]["id"].as_str().unwrap());
    (path, made["secret"].as_str().unwrap().to_owned())
}

/// What the event stream shows somebody of a scope, from an event on: numbers, kinds and data.
async fn stream(world: &World, token: &str, scope: &str, from: u64) -> Vec<(u64, String, Value)> {
    let path = format!("/v1/events?follow=false&scope={scope}&from={from}");
    let text = String::from_utf8(world.get(token, &path).await.bytes).unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.map(|json| serde_json::from_str::<Value>(json).unwrap());
    events
        .map(|event| {
            (
                event["seq"].as_u64().unwrap(),
                format!("tenure.{}", event["kind"].as_str().unwrap()),
                event["data"].clone(),
            )
        })
        .collect()
}

fn told(got: &[Got]) -> Vec<(u64, String, Value)> {
    let told = got
        .iter()
        .map(|got| (got.seq(), got.kind(), got.json()["data"].clone()));
    told.collect()
}

/// So many things that happen in a tenant.
async fn happen(world: &World, tenant: &str, count: u32, mark: &str) {
    for i in 0..count {
        world.subscriber(tenant, &format!("{mark}-{i}")).await;
    }
}

async fn show(world: &World, path: &str) -> Value {
    world.get(&world.owner, path).await.json()
}

/// Waits until what is shown of a webhook is as wanted.
async fn shown_until(world: &World, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = std::time::Instant::now();
    loop {
        let shown = show(world, path).await;
        if wanted(&shown) {
            return shown;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{shown}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_is_sent_what_its_owner_sees_signed_and_in_order_and_nothing_else() {
    let (receiver, platforms) = (Receiver::new().await, Receiver::new().await);
    let world = World::with(listing(&[&receiver, &platforms])).await;
    let (a, b) = (world.tenant("a").await, world.tenant("b").await);
    let (_, operator) = world.user(&a, "op", Some("operator")).await;
    let (ada, _) = world.user(&a, "ada", Some("member")).await;
    let (bob, _) = world.user(&b, "bob", Some("owner")).await;
    let from = world.head() + 1;
    let (_, secret) = hook(&world, &operator, &a, "all", &receiver.url()).await;
    hook(&world, &world.owner, "platform", "all", &platforms.url()).await;
    world.node("n1", 8000).await;
    for (owner, name) in [(&ada, "ours"), (&bob, "theirs")] {
        let job = world.job(owner, name).await;
        let stop = format!("/v1/jobs/{job}/stop");
        world.post(&world.owner, &stop, json!({})).await;
    }
    for (scope, name) in [(&a, "lab"), (&b, "ops")] {
        world.subscriber(scope, name).await;
        let budgets = json!({ "budgets": [{ "period": "month", "money_micros": 5 }] });
        let path = format!("/v1/scopes/{scope}/budgets");
        assert_eq!(world.put(&world.owner, &path, budgets).await.status, 200);
    }

    let seen = stream(&world, &operator, &a, from).await;
    let kinds: BTreeSet<&str> = seen.iter().map(|(_, kind, _)| kind.as_str()).collect();
    for kind in [
        "tenure.JobSubmitted",
        "tenure.ScopeCreated",
        "tenure.BudgetsSet",
        "tenure.WebhookCreated",
    ] {
        assert!(kinds.contains(kind), "{kinds:?}");
    }
    let got = receiver.until(|got| got.len() >= seen.len()).await;
    assert_eq!(told(&got)[..seen.len()], seen[..]);
    for got in &got {
        assert!(got.is_signed_with(&secret), "{got:?}");
        let event = got.json();
        assert_eq!(event["specversion"], "1.0");
        assert!(event["source"].as_str().unwrap().starts_with("urn:tenure:plt_"));
        assert!(event["time"].as_str().unwrap().ends_with('Z'));
        assert!(event["subject"].is_string() && event["by"].is_string());
        assert!(
            got.header("content-type")
                .starts_with("application/cloudevents+json")
        );
        assert!(got.header("webhook-id").ends_with(&format!("_{}", got.seq())));
        let text = String::from_utf8(got.raw.clone()).unwrap();
        for theirs in [&b, &bob, "theirs"] {
            assert!(!text.contains(theirs), "{text}");
        }
    }
    // The platform's owner is told of everybody.
    let seen = stream(&world, &world.owner, "platform", from + 1).await;
    let last = seen.last().unwrap().0;
    let got = platforms
        .until(|got| got.iter().any(|got| got.seq() >= last))
        .await;
    assert_eq!(told(&got)[..seen.len()], seen[..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_and_a_limited_key_limit_what_is_told() {
    let (few, limited) = (Receiver::new().await, Receiver::new().await);
    let world = World::with(listing(&[&few, &limited])).await;
    let a = world.tenant("a").await;
    let (op, operator) = world.user(&a, "op", Some("owner")).await;
    let body = json!({ "scope": a, "name": "few", "url": few.url(), "kinds": ["QuotaSet"] });
    assert_eq!(
        world.post(&operator, "/v1/webhooks", body.clone()).await.status,
        201
    );
    // A key that may look at nothing makes a webhook that is told nothing.
    let narrow = world
        .key(&op, json!({ "label": "narrow", "allow": ["webhook_manage"] }))
        .await;
    hook(&world, &narrow, &a, "narrow", &limited.url()).await;
    happen(&world, &a, 3, "s").await;
    let quota = json!({ "limits": { "jobs": 3 } });
    let path = format!("/v1/scopes/{a}/quota");
    assert_eq!(world.put(&world.owner, &path, quota).await.status, 200);
    let end = hook(&world, &narrow, &a, "end", &limited.url()).await.0;
    few.until(|got| !got.is_empty()).await;
    let got = limited
        .until(|got| {
            got.iter()
                .any(|got| got.json()["data"]["webhook"]["name"] == "end")
        })
        .await;
    assert!(
        got.iter().all(|got| got.kind() == "tenure.WebhookCreated"),
        "{:?}",
        told(&got)
    );
    assert_eq!(few.got().len(), 1);
    assert_eq!(few.got()[0].kind(), "tenure.QuotaSet");
    assert_eq!(
        show(&world, &end).await["origin"],
        format!("http://127.0.0.1:{}", limited.port)
    );

    let unknown = json!({ "scope": a, "name": "x", "url": few.url(), "kinds": ["JobFinished"] });
    for (body, field) in [(unknown, "/kinds"), (body, "/name")] {
        let refused = world.post(&operator, "/v1/webhooks", body).await;
        assert!(refused.status.is_client_error());
        assert_eq!(refused.field(), field);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_taken_is_sent_again_before_what_comes_after_it() {
    let receiver = Receiver::new().await;
    let world = World::with(listing(&[&receiver])).await;
    let a = world.tenant("a").await;
    receiver.answers([Answer::Status(500), Answer::Never, Answer::Status(302)]);
    let (path, secret) = hook(&world, &world.owner, &a, "retried", &receiver.url()).await;
    happen(&world, &a, 3, "s").await;
    let shown = shown_until(&world, &path, |shown| {
        shown["standing"] == "retrying" && shown["delivery"]["failing"]["tries"].as_u64() >= Some(2)
    })
    .await;
    let why = shown["delivery"]["failing"]["why"].as_str().unwrap();
    assert!(
        why.contains("did not answer within") || why.contains("302"),
        "{why}"
    );
    let got = receiver.until(|got| got.len() >= 7).await;
    let seqs: Vec<u64> = got.iter().map(Got::seq).collect();
    let first = seqs[0];
    assert_eq!(
        seqs,
        [first, first, first, first, first + 1, first + 2, first + 3]
    );
    let ids: BTreeSet<&str> = got[..4].iter().map(|got| got.header("webhook-id")).collect();
    assert_eq!(ids.len(), 1, "a repetition is known by its id");
    assert!(got.iter().all(|got| got.is_signed_with(&secret)));
    let shown = shown_until(&world, &path, |shown| shown["delivery"]["behind"] == 0).await;
    assert_eq!(shown["standing"], "active");
    assert_eq!(shown["delivery"]["delivered"], 4);
    assert!(shown["delivery"]["last_success"].is_string());
    // Figures, and no event a delivery.
    let page = String::from_utf8(world.get(&world.owner, "/metrics").await.bytes).unwrap();
    assert!(
        page.contains("tenure_webhook_requests_total{result=\"taken\"} 4"),
        "{page}"
    );
    assert!(
        page.contains("tenure_webhook_requests_total{result=\"failed\"} 3"),
        "{page}"
    );
    assert_eq!(world.head(), first + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_receiver_holds_up_nobody() {
    let (slow, quick) = (Receiver::new().await, Receiver::new().await);
    let mut options = listing(&[&slow, &quick]);
    options.webhooks.time_limit = Duration::from_secs(600);
    let world = World::with(options).await;
    let a = world.tenant("a").await;
    slow.always(Answer::Never);
    for i in 0..8 {
        hook(&world, &world.owner, &a, &format!("slow-{i}"), &slow.url()).await;
    }
    slow.until(|got| got.len() >= 8).await;
    hook(&world, &world.owner, &a, "quick", &quick.url()).await;
    happen(&world, &a, 20, "s").await;
    quick.until(|got| got.len() >= 21).await;
    assert_eq!(slow.got().len(), 8, "one request at once, each");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_nothing_and_begins_where_it_ended() {
    let receiver = Receiver::new().await;
    let world = World::with(listing(&[&receiver])).await;
    let a = world.tenant("a").await;
    let (path, secret) = hook(&world, &world.owner, &a, "lasting", &receiver.url()).await;
    happen(&world, &a, 5, "before").await;
    let got = receiver.until(|got| got.len() >= 6).await;
    let first = got[0].seq();
    receiver.always(Answer::Status(503));
    happen(&world, &a, 5, "down").await;
    shown_until(&world, &path, |shown| shown["standing"] == "retrying").await;
    let world = world.again(listing(&[&receiver])).await;
    let shown = show(&world, &path).await;
    assert_eq!(shown["delivery"]["delivered"], 6, "{shown}");
    happen(&world, &a, 5, "after").await;
    receiver.always(Answer::Status(200));
    let last = world.head();
    let got = receiver
        .until(|got| got.iter().any(|got| got.seq() == last))
        .await;
    let seqs: Vec<u64> = got.iter().map(Got::seq).collect();
    assert!(seqs.is_sorted(), "{seqs:?}");
    let all: BTreeSet<u64> = seqs.into_iter().collect();
    assert_eq!(all, (first..=last).collect());
    // What was taken before is not sent anew.
    let of_the_first = got.iter().filter(|got| got.seq() == first).count();
    assert_eq!(of_the_first, 1);
    assert!(got.iter().all(|got| got.is_signed_with(&secret)));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_receiver_is_where_the_server_could_be_made_to_knock() {
    let (inside, listed) = (Receiver::new().await, Receiver::new().await);
    let world = World::with(listing(&[&listed])).await;
    let a = world.tenant("a").await;
    let (_, operator) = world.user(&a, "op", Some("operator")).await;
    for url in [
        inside.url(),
        format!("http://[::1]:{}/", inside.port),
        format!("http://[::ffff:127.0.0.1]:{}/", inside.port),
        format!("http://2130706433:{}/", inside.port),
        "http://169.254.169.254/latest/meta-data/".into(),
        "http://10.0.0.1/".into(),
        "file:///etc/passwd".into(),
        format!("http://user:pass@127.0.0.1:{}/", listed.port),
        "not a URL".into(),
    ] {
        let body = json!({ "scope": a, "name": "in", "url": url });
        let refused = world.post(&operator, "/v1/webhooks", body).await;
        assert_eq!(
            (refused.status.as_u16(), refused.field().as_str()),
            (422, "/url"),
            "{url}"
        );
    }
    // A name means what it means when it is connected to.
    let by_name = format!("http://localhost:{}/", inside.port);
    let (path, _) = hook(&world, &operator, &a, "by-name", &by_name).await;
    let said = world
        .post(&operator, &format!("{path}/ping"), json!({}))
        .await
        .json();
    assert_eq!(said["taken"], false);
    assert!(
        said["why"].as_str().unwrap().contains("no public address"),
        "{said}"
    );
    happen(&world, &a, 2, "s").await;
    shown_until(&world, &path, |shown| {
        shown["delivery"]["failing"]["tries"].as_u64() >= Some(2)
    })
    .await;
    // Nor where a receiver that may be asked leads.
    listed.always(Answer::MovedTo(inside.url()));
    let (path, _) = hook(&world, &operator, &a, "moved", &listed.url()).await;
    let said = world
        .post(&operator, &format!("{path}/ping"), json!({}))
        .await
        .json();
    assert_eq!(
        (said["taken"].clone(), said["status"].clone()),
        (json!(false), json!(302))
    );
    shown_until(&world, &path, |shown| {
        shown["delivery"]["failing"]["tries"].as_u64() >= Some(2)
    })
    .await;
    assert_eq!(inside.got().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn url_and_key_are_nowhere_but_in_the_store_and_go_with_the_webhook() {
    let receiver = Receiver::new().await;
    let world = World::with(listing(&[&receiver])).await;
    let a = world.tenant("a").await;
    let canary = "canary-in-the-path-0193";
    let url = format!("{}/{canary}", receiver.url());
    let (path, first) = hook(&world, &world.owner, &a, "secret", &url).await;
    let rotated = world
        .post(&world.owner, &format!("{path}/rotate"), json!({}))
        .await
        .json();
    let second = rotated["secret"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    let pinged = world
        .post(&world.owner, &format!("{path}/ping"), json!({}))
        .await
        .json();
    assert_eq!(pinged["taken"], true, "{pinged}");
    let got = receiver
        .until(|got| got.iter().any(|got| got.kind() == "tenure.Ping"))
        .await;
    let ping = got.iter().find(|got| got.kind() == "tenure.Ping").unwrap();
    assert!(
        ping.is_signed_with(&first) && ping.is_signed_with(&second),
        "for a while by both"
    );
    let at_once = json!({ "keep_old_s": 0 });
    let third = world
        .post(&world.owner, &format!("{path}/rotate"), at_once)
        .await
        .json();
    let third = third["secret"].as_str().unwrap().to_owned();
    let before = receiver.got().len();
    world.post(&world.owner, &format!("{path}/ping"), json!({})).await;
    let got = receiver
        .until(|got| got[before..].iter().any(|got| got.kind() == "tenure.Ping"))
        .await;
    let ping = got[before..]
        .iter()
        .find(|got| got.kind() == "tenure.Ping")
        .unwrap();
    assert!(ping.is_signed_with(&third) && !ping.is_signed_with(&first) && !ping.is_signed_with(&second));

    let canaries = [canary.to_owned(), first, second, third].map(|text| text.replace("whsec_", ""));
    let mut texts = Vec::new();
    for path in [
        path.as_str(),
        "/v1/webhooks",
        "/v1/events?from=1&follow=false",
        "/metrics",
    ] {
        texts.push(String::from_utf8(world.get(&world.owner, path).await.bytes).unwrap());
    }
    for seq in 1..=world.head() {
        let proof = world
            .get(&world.owner, &format!("/v1/journal/proofs/{seq}"))
            .await;
        texts.push(String::from_utf8(proof.bytes).unwrap());
    }
    let secret = {
        let state = world.controller.view().read();
        state.webhooks.iter().next().unwrap().secret.to_string()
    };
    assert!(
        world
            .controller
            .reader()
            .get_secret(&secret)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(world.delete(&world.owner, &path).await.status, 204);
    assert_eq!(world.controller.reader().get_secret(&secret).await.unwrap(), None);
    let dir = world.end().await;
    for canary in &canaries {
        assert!(
            !texts.iter().any(|text| text.contains(canary.as_str())),
            "{canary} was shown"
        );
        for file in std::fs::read_dir(dir.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
            let found = bytes
                .windows(canary.len())
                .any(|window| window == canary.as_bytes());
            assert!(!found, "{canary} is on the disk");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_it_waits_resumed_it_goes_on_or_skips_and_removed_it_is_told_nothing_more() {
    let (receiver, other) = (Receiver::new().await, Receiver::new().await);
    let world = World::with(listing(&[&receiver, &other])).await;
    let a = world.tenant("a").await;
    let (path, _) = hook(&world, &world.owner, &a, "paused", &receiver.url()).await;
    hook(&world, &world.owner, &a, "witness", &other.url()).await;
    let post = async |verb: &str, body: Value| {
        let reply = world.post(&world.owner, &format!("{path}/{verb}"), body).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    };
    // What the witness was told the other would have been told as well.
    let witnessed = async || {
        let head = world.head();
        other.until(|got| got.iter().any(|got| got.seq() == head)).await;
    };
    witnessed().await;
    receiver.until(|got| !got.is_empty()).await;
    assert_eq!(post("pause", json!({})).await["standing"], "paused");
    witnessed().await;
    let before = receiver.got().last().unwrap().seq();
    happen(&world, &a, 2, "kept").await;
    witnessed().await;
    assert_eq!(receiver.got().last().unwrap().seq(), before);
    let kept = world.head();
    post("resume", json!({})).await;
    let got = receiver.until(|got| got.last().unwrap().seq() >= kept).await;
    let seqs: Vec<u64> = got.iter().map(Got::seq).collect();
    assert!(seqs.windows(2).all(|pair| pair[1] - pair[0] <= 1), "{seqs:?}");

    post("pause", json!({})).await;
    happen(&world, &a, 2, "skipped").await;
    let skipped = world.head();
    post("resume", json!({ "skip": true })).await;
    happen(&world, &a, 1, "told").await;
    let last = world.head();
    let got = receiver.until(|got| got.last().unwrap().seq() >= last).await;
    assert!(
        got.iter()
            .all(|got| got.seq() < skipped - 1 || got.seq() > skipped),
        "{got:?}"
    );

    assert_eq!(world.delete(&world.owner, &path).await.status, 204);
    let count = receiver.got().len();
    happen(&world, &a, 3, "gone").await;
    witnessed().await;
    assert_eq!(receiver.got().len(), count);
    assert_eq!(world.get(&world.owner, &path).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_gone_or_takes_nothing_for_long_fails_its_webhook_and_an_event_says_so() {
    let (gone, dead) = (Receiver::new().await, Receiver::new().await);
    let mut options = listing(&[&gone, &dead]);
    options.webhooks.patience = Duration::from_millis(300);
    let world = World::with(options).await;
    let a = world.tenant("a").await;
    gone.always(Answer::Status(410));
    dead.always(Answer::Status(500));
    let (gone_path, _) = hook(&world, &world.owner, &a, "gone", &gone.url()).await;
    let (dead_path, _) = hook(&world, &world.owner, &a, "dead", &dead.url()).await;
    let shown = shown_until(&world, &gone_path, |shown| shown["standing"] == "failed").await;
    assert_eq!(shown["why"], "it answered 410 Gone");
    assert_eq!(gone.got().len(), 1, "it is not asked again");
    let shown = shown_until(&world, &dead_path, |shown| shown["standing"] == "failed").await;
    assert!(
        shown["why"].as_str().unwrap().contains("it answered 500"),
        "{shown}"
    );
    assert!(dead.got().len() > 1);
    let events = stream(&world, &world.owner, &a, 1).await;
    let failed = events
        .iter()
        .filter(|(_, kind, _)| kind == "tenure.WebhookFailed");
    assert_eq!(failed.count(), 2);
    // Resumed it is given as long again, and goes on with the very event.
    dead.always(Answer::Status(200));
    let stuck = dead.got()[0].seq();
    let before = dead.got().len();
    world
        .post(&world.owner, &format!("{dead_path}/resume"), json!({}))
        .await;
    let got = dead.until(|got| got.len() > before).await;
    assert_eq!(got[before].seq(), stuck);
    shown_until(&world, &dead_path, |shown| shown["standing"] == "active").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_suspended_is_told_later_and_who_leaves_takes_the_webhook_along() {
    let receiver = Receiver::new().await;
    let world = World::with(listing(&[&receiver])).await;
    let a = world.tenant("a").await;
    let (op, operator) = world.user(&a, "op", Some("operator")).await;
    let (path, _) = hook(&world, &operator, &a, "op-s", &receiver.url()).await;
    receiver.until(|got| !got.is_empty()).await;
    for (verb, told) in [("suspend", false), ("resume", true)] {
        let done = world
            .post(&world.owner, &format!("/v1/scopes/{op}/{verb}"), json!({}))
            .await;
        assert_eq!(done.status, 200);
        if !told {
            happen(&world, &a, 2, "later").await;
            let behind = |shown: &Value| shown["delivery"]["behind"].as_u64() >= Some(2);
            shown_until(&world, &path, behind).await;
            continue;
        }
        let got = receiver
            .until(|got| got.iter().any(|got| got.kind() == "tenure.ScopeResumed"))
            .await;
        let made = got.iter().filter(|got| got.kind() == "tenure.ScopeCreated");
        assert_eq!(made.count(), 2);
    }
    assert_eq!(
        world
            .delete(&world.owner, &format!("/v1/scopes/{op}"))
            .await
            .status,
        204
    );
    assert_eq!(world.get(&world.owner, &path).await.status, 404);
}
