//! How much of the journal and of logs pages read: bounded, however long either is, and nothing is lost for that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::json;
use tenure_api::channel::LogStream;
use tenure_domain::Event;
use tenure_domain::id::{AllocationId, JobId};

use super::Browser;
use crate::log::node::Played;
use crate::world::{World, generous};

/// Events read for streams since the process began.
async fn streamed(world: &World) -> u64 {
    let page = world.get(&world.owner, "/metrics").await;
    let text = String::from_utf8(page.bytes).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("tenure_streamed_events_total "));
    line.unwrap_or_else(|| panic!("not counted: {text}"))
        .parse::<f64>()
        .unwrap() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_page_of_the_audit_reads_no_more_than_a_new_one() {
    let world = World::new().await.aged(&[], 12_000).await;
    let events = world
        .get(&world.owner, "/v1/events?follow=false&from=2&until=7")
        .await;
    let text = String::from_utf8(events.bytes).unwrap();
    let ids: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("id: "))
        .collect();
    assert_eq!(ids, ["2", "3", "4", "5", "6", "7"]);

    let browser = Browser::sign_in(&world, &world.owner).await;
    for path in [
        "/console/audit",
        "/console/audit?until=3000",
        "/console/audit?from=20",
        "/console/audit?until=3000&q=access",
    ] {
        let before = streamed(&world).await;
        let (status, _, page) = browser.get(path).await;
        assert_eq!(status, StatusCode::OK);
        assert!(page.contains("Access refused"), "{path}");
        let read = streamed(&world).await - before;
        assert!((100..=5_000).contains(&read), "{path} read {read}");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_long_ago_is_found() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (user, _) = world.user(&tenant, "ada", Some("member")).await;
    let job = world.job(&user, "old").await;
    let gpu = world.gpu("g1").await;
    let node = {
        let state = world.controller.view().read();
        state.fleet.nodes().next().unwrap().id
    };
    let quarantined = Event::GpuQuarantined {
        node,
        gpu,
        why: "it rattled <b>".into(),
    };
    let world = world.aged(&[quarantined], 55_000).await;
    let browser = Browser::sign_in(&world, &world.owner).await;

    // By its id, from its submission on; by words, from the newest on as far as it takes.
    let (_, _, page) = browser.get(&format!("/console/audit?q={job}")).await;
    assert!(page.contains("Job submitted"), "{page}");
    assert!(page.contains("oldest first"));
    let mut next = Some("/console/audit?q=rattled".to_owned());
    let mut clicks = 0;
    loop {
        let (_, _, page) = browser
            .get(&next.expect("found before the search is through"))
            .await;
        if page.contains("Gpu quarantined") {
            break;
        }
        clicks += 1;
        assert!(clicks < 20, "it goes on for ever");
        let at = page.find("rel=\"next\" href=\"").map(|at| at + 17);
        next = at.map(|at| page[at..at + page[at..].find('"').unwrap()].replace("&amp;", "&"));
    }

    // A device's history and the incidents are remembered once they were found, and cost no stream.
    let before = streamed(&world).await;
    let (device, begun) = (format!("/console/fleet/{gpu}"), Instant::now());
    for path in [device.as_str(), "/console/health"] {
        loop {
            let (status, _, page) = browser.get(path).await;
            assert_eq!(status, StatusCode::OK);
            if page.contains("<th scope=\"row\">Quarantined</th>") || page.contains("Gpu quarantined") {
                assert!(page.contains("it rattled &lt;b&gt;"));
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{path} never says it");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert_eq!(streamed(&world).await, before);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_page_moves_the_end_of_its_log_once() {
    let node = Arc::new(Played::default());
    let world = World::on(generous(), node.clone()).await;
    let tenant = world.tenant("acme").await;
    let (_, ada) = world.user(&tenant, "ada", Some("member")).await;
    world.node("farm", 64_000).await;
    let made = world
        .post(&ada, "/v1/jobs", json!({ "spec": crate::world::spec("writer") }))
        .await;
    let job: JobId = made.id().parse().unwrap();
    let allocation: AllocationId = loop {
        let view = world.get(&ada, &format!("/v1/jobs/{job}")).await.json();
        if let Some(id) = view["allocation"]["id"].as_str() {
            break id.parse().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let lines: String = (0..200_000).map(|line| format!("line {line}\n")).collect();
    node.write(allocation, LogStream::Stdout, lines.as_bytes());

    let logs = format!("/v1/jobs/{job}/logs");
    let tail = world.get(&ada, &format!("{logs}?tail=12")).await;
    assert_eq!(tail.bytes, b"line 199999\n");
    let begins = lines.len() - 12;
    assert_eq!(tail.headers["tenure-log-offset"], begins.to_string().as_str());
    let all = world.get(&ada, &format!("{logs}?tail=16000000")).await;
    assert_eq!(
        (all.bytes.len(), &all.headers["tenure-log-offset"]),
        (lines.len(), &"0".parse().unwrap())
    );
    for bad in ["tail=1&offset=0", "tail=99999999999", "tail=-1"] {
        let refused = world.get(&ada, &format!("{logs}?{bad}")).await;
        assert!(refused.status.is_client_error(), "{bad}: {refused:?}");
    }

    let browser = Browser::sign_in(&world, &ada).await;
    let path = format!("/console/jobs/{job}");
    let before = node.asked();
    let (_, _, page) = browser.get(&path).await;
    assert!(page.contains("line 199999\n") && !page.contains("line 190000\n"));
    assert!(page.contains(&format!("data-offset=\"{}\"", lines.len())));
    let asked = node.asked() - before;
    assert!(asked <= 4, "the end, and what stands before it: {asked}");
    let before = node.asked();
    let live = browser.http.get(format!("{}{path}", world.url));
    let live = live
        .header("cookie", format!("tenure_session={}", browser.session))
        .header("x-tenure-live", "1")
        .send()
        .await
        .unwrap();
    assert!(live.text().await.unwrap().contains("id=\"way\""));
    assert_eq!(
        node.asked(),
        before,
        "who keeps a page live follows the log by itself"
    );
    world.end().await;
}
