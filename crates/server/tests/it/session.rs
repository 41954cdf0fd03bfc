//! Sessions: who gets in, what is written of it, and that nobody stays who may not.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tenure_api::client::session::{Heard, Session};
use tenure_api::client::{Client, ClientError};
use tenure_api::secret_text::SecretText;
use tenure_api::v1::session::{AttachQuery, ClientSays, ExecQuery, PortQuery, ServerSays};
use tenure_domain::command::Observation;
use tenure_domain::id::JobId;
use tenure_domain::workload::session::{MAX_PER_JOB, SessionKind};
use tenure_domain::{Actor, Event, Wish};

use crate::world::World;

fn client(world: &World, token: &str) -> Client {
    Client::new(&world.url, Some(SecretText::new(token)), None).unwrap()
}

/// A job that runs, as far as the server knows.
async fn running(world: &World, owner: &str, name: &str) -> String {
    let job = world.job(owner, name).await;
    let id: JobId = job.parse().unwrap();
    let allocation = world.controller.view().read().jobs[&id].allocation_of(0).unwrap();
    let node = world
        .controller
        .view()
        .read()
        .fleet
        .allocation(allocation)
        .unwrap()
        .node;
    let wish = Wish::Observe {
        node,
        allocation,
        observation: Observation::Running,
    };
    let by = Actor::Node(node);
    world.controller.submit(by, wish, None, None).await.unwrap();
    job
}

async fn heard(session: &mut Session) -> Heard {
    tokio::time::timeout(Duration::from_secs(20), session.receiver.next())
        .await
        .expect("nothing was heard in time")
        .expect("the connection ended")
}

async fn open(session: &mut Session) -> String {
    match heard(session).await {
        Heard::Says(ServerSays::Opened { session, .. }) => session.to_string(),
        other => panic!("{other:?}"),
    }
}

async fn closed(session: &mut Session) -> (Option<i32>, String) {
    loop {
        if let Heard::Says(ServerSays::Closed { exit_code, why, .. }) = heard(session).await {
            return (exit_code, why.unwrap_or_default());
        }
    }
}

fn refusal(answer: Result<Session, ClientError>) -> (u16, String) {
    match answer {
        Err(ClientError::Refused(problem)) => (problem.status, problem.code.clone()),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was let in"),
    }
}

async fn session_events(world: &World, least: usize) -> Vec<Event> {
    for _ in 0..400 {
        let rows = world.controller.reader().read(1, 10_000).await.unwrap();
        let events: Vec<Event> = rows
            .iter()
            .map(|row| tenure_server::controller::event(row).unwrap())
            .filter(|event| event.kind().starts_with("Session"))
            .collect();
        if events.len() >= least {
            return events;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("fewer than {least} events of sessions");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_journalled_before_it_opens_and_when_it_is_over() {
    let world = World::new().await;
    world.node("n", 8000).await;
    let acme = world.tenant("acme").await;
    let (ada, token) = world.user(&acme, "ada", Some("member")).await;
    let job = running(&world, &ada, "job").await;
    let command = ["psql", "--password=hunter2", "db"].map(String::from);
    let mut session = client(&world, &token)
        .exec_job(&job, &command, &ExecQuery::default())
        .await
        .unwrap();
    // Let in means written down.
    let events = session_events(&world, 1).await;
    let id = open(&mut session).await;
    let Event::SessionOpened { session: written } = &events[0] else {
        panic!("{events:?}")
    };
    assert_eq!(
        (
            written.id.to_string(),
            written.user.to_string(),
            written.from.as_str()
        ),
        (id, ada.clone(), "127.0.0.1")
    );
    assert_eq!(written.kind, SessionKind::exec(&command, false));
    let mut got = Vec::new();
    let sent: Vec<u8> = (0..=255).cycle().take(700_000).collect();
    let Session { mut sender, receiver } = session;
    let outgoing = sent.clone();
    let sending = tokio::spawn(async move {
        sender.input(&outgoing).await.unwrap();
        sender.say(&ClientSays::End).await.unwrap();
        sender
    });
    let mut receiver = receiver;
    let exit = loop {
        match receiver.next().await.unwrap() {
            Heard::Stdout(bytes) => got.extend(bytes),
            Heard::Says(ServerSays::Closed { exit_code, .. }) => break exit_code,
            other => panic!("{other:?}"),
        }
    };
    assert!(got == sent && exit == Some(7));
    drop(sending.await.unwrap());
    let events = session_events(&world, 2).await;
    let Event::SessionEnded { end, .. } = &events[1] else {
        panic!("{events:?}")
    };
    assert_eq!(
        (end.bytes_in, end.bytes_out, end.exit_code),
        (700_000, 700_000, Some(7))
    );
    assert!(world.controller.view().read().sessions.is_empty());
    // Of the command nothing but the program is anywhere in the journal.
    let rows = world.controller.reader().read(1, 10_000).await.unwrap();
    assert!(!format!("{rows:?}").contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_pages_and_the_idle_are_refused() {
    let world = World::new().await;
    world.node("n", 8000).await;
    let (acme, other) = (world.tenant("acme").await, world.tenant("other").await);
    let (ada, token) = world.user(&acme, "ada", Some("member")).await;
    let (_, auditor) = world.user(&acme, "joe", Some("auditor")).await;
    let (_, eve) = world.user(&other, "eve", Some("owner")).await;
    let job = running(&world, &ada, "job").await;
    let command = ["sh".to_owned()];
    for (who, expected) in [(&eve, (404, "not_found")), (&auditor, (403, "not_permitted"))] {
        let client = client(&world, who);
        let expected = (expected.0, expected.1.to_owned());
        assert_eq!(
            refusal(client.exec_job(&job, &command, &ExecQuery::default()).await),
            expected
        );
        assert_eq!(
            refusal(client.attach_job(&job, &AttachQuery::default()).await),
            expected
        );
        let query = PortQuery {
            port: Some(80),
            session: None,
            member: None,
        };
        assert_eq!(refusal(client.port_job(&job, &query).await), expected);
    }
    let path = format!("/v1/jobs/{job}/attach");
    let plain = world.get(&token, &path).await;
    assert_eq!(
        (plain.status.as_u16(), plain.code()),
        (400, "malformed_request".into())
    );
    let upgrade = |origin: &str| {
        world
            .request(Method::GET, &path, Some(&token))
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("origin", origin.to_owned())
    };
    let foreign = world.send(upgrade("https://evil.example")).await;
    assert_eq!(
        (foreign.status.as_u16(), foreign.code()),
        (403, "not_permitted".into())
    );
    let own = upgrade(&world.url).send().await.unwrap();
    assert_eq!(own.status(), 101);
    drop(own);
    let waiting = world.job(&ada, "not-yet").await;
    let refused = refusal(
        client(&world, &token)
            .attach_job(&waiting, &AttachQuery::default())
            .await,
    );
    assert_eq!(refused, (409, "wrong_phase".to_owned()));
    let bad = world
        .send(
            world
                .request(Method::GET, &format!("/v1/jobs/{job}/exec"), Some(&token))
                .header("tenure-command", "x"),
        )
        .await;
    assert_eq!(bad.status, 400, "not a WebSocket comes first");
    // What was refused opened nothing.
    let opened = session_events(&world, 2).await;
    assert_eq!(
        opened.len(),
        2,
        "only the one of this server's own page: {opened:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_loses_the_right_loses_the_session() {
    let world = World::new().await;
    world.node("n", 8000).await;
    let acme = world.tenant("acme").await;
    let (ada, token) = world.user(&acme, "ada", Some("member")).await;
    let job = running(&world, &ada, "job").await;
    let made = world
        .post(
            &world.owner,
            &format!("/v1/users/{ada}/keys"),
            json!({ "label": "brief" }),
        )
        .await;
    let (key, brief) = (made.id(), made.json()["token"].as_str().unwrap().to_owned());
    let attach = async |token: &str| {
        let mut session = client(&world, token)
            .attach_job(&job, &AttachQuery::default())
            .await
            .unwrap();
        open(&mut session).await;
        session
    };
    let (mut revoked, mut stays) = (attach(&brief).await, attach(&token).await);
    assert_eq!(
        world
            .delete(&world.owner, &format!("/v1/keys/{key}"))
            .await
            .status,
        204
    );
    let (_, why) = closed(&mut revoked).await;
    assert!(why.contains("revoked"), "{why}");
    stays.sender.input(b"still here").await.unwrap();
    assert_eq!(heard(&mut stays).await, Heard::Stdout(b"still here".to_vec()));
    let suspended = world
        .post(&world.owner, &format!("/v1/scopes/{ada}/suspend"), json!({}))
        .await;
    assert_eq!(suspended.status, 200);
    let (_, why) = closed(&mut stays).await;
    assert!(why.contains("suspended"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_only_so_many_and_who_is_gone_does_not_count() {
    let world = World::new().await;
    world.node("n", 8000).await;
    let acme = world.tenant("acme").await;
    let (ada, token) = world.user(&acme, "ada", Some("member")).await;
    let job = running(&world, &ada, "job").await;
    let client = client(&world, &token);
    let mut sessions = Vec::new();
    for _ in 0..MAX_PER_JOB {
        let mut session = client.attach_job(&job, &AttachQuery::default()).await.unwrap();
        open(&mut session).await;
        sessions.push(session);
    }
    let refused = refusal(client.attach_job(&job, &AttachQuery::default()).await);
    assert_eq!(refused, (409, "too_many_sessions".to_owned()));
    // Gone without a word, as a killed program is.
    drop(sessions);
    session_events(&world, 2 * MAX_PER_JOB).await;
    client.attach_job(&job, &AttachQuery::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_sizes_the_node_hears_few_and_the_last() {
    const SIZES: u16 = 20_000;
    let world = World::new().await;
    world.node("n", 8000).await;
    let acme = world.tenant("acme").await;
    let (ada, token) = world.user(&acme, "ada", Some("member")).await;
    let job = running(&world, &ada, "job").await;
    let mut session = client(&world, &token)
        .attach_job(&job, &AttachQuery::default())
        .await
        .unwrap();
    open(&mut session).await;
    let Session { mut sender, receiver } = session;
    let sending = tokio::spawn(async move {
        for rows in 1..=SIZES {
            let resize = ClientSays::Resize { rows, cols: 80 };
            sender.say(&resize).await.unwrap();
        }
        sender.input(b"typed").await.unwrap();
        sender
    });
    let mut receiver = receiver;
    let mut told = Vec::new();
    loop {
        match receiver.next().await.unwrap() {
            Heard::Stderr(bytes) => told.extend(bytes),
            Heard::Stdout(bytes) => break assert_eq!(bytes, b"typed"),
            other => panic!("{other:?}"),
        }
    }
    let told = String::from_utf8(told).unwrap();
    let sizes: Vec<&str> = told.split_whitespace().collect();
    assert_eq!(
        sizes.last(),
        Some(&"20000x80"),
        "the last, and before what was typed"
    );
    assert!(sizes.len() < usize::from(SIZES) / 4, "{} sizes", sizes.len());
    drop(sending.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_connections_to_a_port_are_one_session() {
    let world = World::new().await;
    world.node("n", 8000).await;
    let acme = world.tenant("acme").await;
    let (ada, token) = world.user(&acme, "ada", Some("member")).await;
    let (_, boss) = world.user(&acme, "boss", Some("owner")).await;
    let job = running(&world, &ada, "job").await;
    let mine = client(&world, &token);
    let port = PortQuery {
        port: Some(8888),
        session: None,
        member: None,
    };
    let mut holder = mine.port_job(&job, &port).await.unwrap();
    let id = open(&mut holder).await;
    let within = PortQuery {
        port: None,
        session: Some(id),
        member: None,
    };
    // Another's session is nobody's business, whatever they may do themselves.
    let foreign = refusal(client(&world, &boss).port_job(&job, &within).await);
    assert_eq!(foreign, (404, "not_found".to_owned()));
    let mut connections = Vec::new();
    for _ in 0..5 {
        let mut connection = mine.port_job(&job, &within).await.unwrap();
        open(&mut connection).await;
        connection.sender.input(b"GET /").await.unwrap();
        assert_eq!(heard(&mut connection).await, Heard::Stdout(b"GET /".to_vec()));
        connections.push(connection);
    }
    drop(holder);
    for mut connection in connections {
        assert_eq!(closed(&mut connection).await.1, "the session ended");
    }
    let events = session_events(&world, 2).await;
    let Event::SessionEnded { end, .. } = &events[1] else {
        panic!("{events:?}")
    };
    assert_eq!((events.len(), end.bytes_in, end.bytes_out), (2, 25, 25));
    let refused = refusal(mine.port_job(&job, &within).await);
    assert_eq!(refused, (404, "not_found".to_owned()));
}
