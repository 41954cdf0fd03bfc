//! The event stream: resumed without a gap or a double, and shown only to those who may see.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Method;
use serde_json::Value;

use crate::world::World;

/// Reads events until `count` have come, then hangs up.
async fn take(world: &World, token: &str, query: &str, last: Option<u64>, count: usize) -> Vec<(u64, Value)> {
    let mut request = world.request(Method::GET, &format!("/v1/events{query}"), Some(token));
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = response.bytes_stream();
    let (mut text, mut events) = (String::new(), Vec::new());
    while let Some(piece) = tokio::time::timeout(Duration::from_secs(10), stream.next())
        .await
        .expect("events come")
    {
        text.push_str(std::str::from_utf8(&piece.unwrap()).unwrap());
        while let Some((block, rest)) = text.split_once("\n\n") {
            let part = |name: &str| {
                block
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .map(str::to_owned)
            };
            if let (Some(id), Some(data)) = (part("id: "), part("data: ")) {
                let view: Value = serde_json::from_str(&data).unwrap();
                assert_eq!(view["seq"].to_string(), id);
                events.push((id.parse().unwrap(), view));
            }
            text = rest.to_owned();
            if events.len() == count {
                return events;
            }
        }
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnecting_misses_nothing_and_repeats_nothing() {
    let world = std::sync::Arc::new(World::new().await);
    let writing = {
        let world = world.clone();
        tokio::spawn(async move {
            for i in 0..120 {
                world.tenant(&format!("t{i}")).await;
            }
        })
    };
    let mut seen: Vec<u64> = Vec::new();
    let mut last = Some(0);
    // 4 events of founding, then 120; hung up on in the middle again and again.
    while seen.len() < 124 {
        let events = take(
            &world,
            &world.owner,
            "",
            last,
            (seen.len() % 7 + 1).min(124 - seen.len()),
        )
        .await;
        seen.extend(events.iter().map(|(seq, _)| seq));
        last = seen.last().copied();
    }
    writing.await.unwrap();
    assert_eq!(seen, (1..=124).collect::<Vec<u64>>());
    let all = take(&world, &world.owner, "?from=1&follow=false", None, usize::MAX).await;
    assert_eq!(all.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_sees_their_own() {
    let world = World::new().await;
    let (a, b) = (world.tenant("a").await, world.tenant("b").await);
    let (ada, ada_key) = world.user(&a, "ada", Some("owner")).await;
    let (_, eve_key) = world.user(&b, "eve", Some("owner")).await;
    let job = world.job(&ada, "secretive").await;
    assert_eq!(
        world
            .post(&ada_key, &format!("/v1/jobs/{job}/stop"), serde_json::json!({}))
            .await
            .status,
        200
    );
    let mine = take(&world, &ada_key, "?from=1&follow=false", None, usize::MAX).await;
    let theirs = take(&world, &eve_key, "?from=1&follow=false", None, usize::MAX).await;
    let about = |events: &[(u64, Value)], id: &str| {
        events
            .iter()
            .filter(|(_, view)| view.to_string().contains(id))
            .count()
    };
    assert!(
        about(&mine, &job) >= 2,
        "a job that ended still has its owner: {mine:?}"
    );
    assert_eq!(
        about(&theirs, &job) + about(&theirs, &ada) + about(&theirs, &a),
        0
    );
    assert!(about(&theirs, &b) > 0);
    assert!(
        mine.iter()
            .chain(&theirs)
            .all(|(_, view)| view["kind"] != "PlatformFounded")
    );
    let all = take(&world, &world.owner, "?from=1&follow=false", None, usize::MAX).await;
    assert!(all.iter().all(|(_, view)| !view.to_string().contains("digest")));
    let only = take(
        &world,
        &world.owner,
        &format!("?from=1&follow=false&scope={b}&kinds=ScopeCreated"),
        None,
        usize::MAX,
    )
    .await;
    assert_eq!(only.len(), 2, "{only:?}");

    // Closed, its events belong to those above.
    assert_eq!(
        world
            .delete(&world.owner, &format!("/v1/scopes/{ada}"))
            .await
            .status,
        204
    );
    assert_eq!(world.get(&ada_key, "/v1/whoami").await.status, 401);
    let after = take(&world, &eve_key, "?from=1&follow=false", None, usize::MAX).await;
    assert_eq!(about(&after, &ada), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_ends_its_streams() {
    let world = World::new().await;
    let (ada, key) = world.user(&world.tenant("a").await, "ada", Some("owner")).await;
    let id = world.get(&key, &format!("/v1/users/{ada}/keys")).await.json()["items"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let response = world
        .request(Method::GET, "/v1/events", Some(&key))
        .send()
        .await
        .unwrap();
    assert_eq!(
        world.delete(&world.owner, &format!("/v1/keys/{id}")).await.status,
        204
    );
    let rest = tokio::time::timeout(Duration::from_secs(10), response.bytes())
        .await
        .expect("the stream ends")
        .unwrap();
    assert!(!String::from_utf8_lossy(&rest).contains("KeyRevoked"), "{rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_starting_points_are_refused() {
    let world = World::new().await;
    let with_last = |last: &'static str| {
        world.send(
            world
                .request(Method::GET, "/v1/events", Some(&world.owner))
                .header("last-event-id", last),
        )
    };
    for last in ["x", "-1", "1.5", "18446744073709551616"] {
        let reply = with_last(last).await;
        assert_eq!(
            (reply.status.as_u16(), reply.field().as_str()),
            (422, "Last-Event-ID"),
            "{last}"
        );
    }
    for (query, field) in [
        ("from=-1", "from"),
        ("follow=maybe", "follow"),
        ("from=x", "from"),
    ] {
        let reply = world.get(&world.owner, &format!("/v1/events?{query}")).await;
        assert_eq!(
            (reply.status.as_u16(), reply.field().as_str()),
            (422, field),
            "{query}"
        );
    }
}
