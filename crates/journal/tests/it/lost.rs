//! A network that fails at the worst moment: between the journal and PostgreSQL stands a proxy that cuts
//! the line when it sees a given word go by.

use std::sync::{Arc, Mutex};

use tenure_journal::testing::PostgresServer;
use tenure_journal::{Journal, JournalError, Location, Options, VerifyOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::place::{Place, batch, block_on};

#[derive(Clone, Copy, PartialEq)]
enum Cut {
    /// The word never reaches the server.
    Before,
    /// The word reaches the server, its answer never reaches us.
    After,
}

type Trap = Arc<Mutex<Option<(&'static [u8], Cut)>>>;

/// Listens on a port of its own and returns a URL that leads through it.
async fn proxy(trap: Trap) -> String {
    let server = PostgresServer::shared().url();
    let address = server
        .split('@')
        .next_back()
        .unwrap()
        .split('/')
        .next()
        .unwrap()
        .to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = server.replace(&address, &listener.local_addr().unwrap().to_string());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&address).await.unwrap();
            tokio::spawn(carry(client, server, trap.clone()));
        }
    });
    url
}

async fn carry(mut client: TcpStream, mut server: TcpStream, trap: Trap) {
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            count = client.read(&mut up) => {
                let Some(count) = count.ok().filter(|count| *count > 0) else { return };
                let sprung = trap.lock().unwrap().take_if(|(word, _)| {
                    up[..count].windows(word.len()).any(|window| window == *word)
                });
                if let Some((_, Cut::Before)) = sprung {
                    return;
                }
                if server.write_all(&up[..count]).await.is_err() {
                    return;
                }
                if sprung.is_some() {
                    // The server's answer shows that it has acted; it is not passed on.
                    let _ = server.read(&mut down).await;
                    return;
                }
            }
            count = server.read(&mut down) => {
                let Some(count) = count.ok().filter(|count| *count > 0) else { return };
                if client.write_all(&down[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn open(location: &Location) -> Journal {
    Journal::open_leader(location, "test", Options::default())
        .await
        .unwrap()
}

#[test]
fn a_commit_whose_answer_is_lost_is_uncertain() {
    block_on(async {
        for cut in [Cut::Before, Cut::After] {
            let place = Place::postgres();
            place.open().await.close().await.unwrap();
            let Location::Postgres(_, schema) = &place.location else {
                unreachable!()
            };
            let trap = Trap::default();
            let through = Location::Postgres(proxy(trap.clone()).await, schema.clone());
            let mut journal = open(&through).await;
            *trap.lock().unwrap() = Some((b"COMMIT", cut));
            let error = journal.append(batch(1..4)).await.unwrap_err();
            assert!(matches!(error, JournalError::Uncertain { .. }), "{error:?}");
            assert!(trap.lock().unwrap().is_none(), "the line was cut");
            // Whatever became of it, nothing may be appended on a head that may be stale.
            let error = journal.append(batch(4..5)).await.unwrap_err();
            assert!(matches!(error, JournalError::Uncertain { .. }), "{error:?}");
            place
                .meddle()
                .await
                .run("UPDATE leader SET renewed_ms = 0", &[])
                .await;
            let mut next = place.open().await;
            assert_eq!(next.head().seq, if cut == Cut::Before { 0 } else { 3 });
            next.append(batch(9..10)).await.unwrap();
            assert!(next.verify(VerifyOptions::default()).await.unwrap().is_sound());
        }
    });
}

#[test]
fn a_line_lost_before_the_commit_changes_nothing() {
    block_on(async {
        for (word, cut) in [
            (&b"INSERT INTO batch"[..], Cut::Before),
            (&b"INSERT INTO batch"[..], Cut::After),
            (&b"INSERT INTO history"[..], Cut::After),
        ] {
            let place = Place::postgres();
            place.open().await.close().await.unwrap();
            let Location::Postgres(_, schema) = &place.location else {
                unreachable!()
            };
            let trap = Trap::default();
            let through = Location::Postgres(proxy(trap.clone()).await, schema.clone());
            let mut journal = open(&through).await;
            *trap.lock().unwrap() = Some((word, cut));
            let mut lost = batch(1..4);
            lost.history.push(tenure_journal::HistoryRow {
                kind: "job".into(),
                id: "job_1".into(),
                scope: "ten_a".into(),
                at_ms: 1,
                body: "{}".into(),
            });
            let error = journal.append(lost).await.unwrap_err();
            assert!(matches!(error, JournalError::Storage { .. }), "{error:?}");
            // The same leader goes on over a new connection, and the batch is not there.
            assert_eq!(journal.append(batch(7..9)).await.unwrap().first_seq, 1);
            assert_eq!(journal.read(1, 10).await.unwrap().len(), 2);
            assert_eq!(journal.history_get("job", "job_1").await.unwrap(), None);
        }
    });
}

/// An idle connection that died (the server was restarted, a firewall forgot it) is replaced unnoticed.
#[test]
fn an_idle_connection_that_died_is_replaced() {
    block_on(async {
        let place = Place::postgres();
        let mut journal = place.open().await;
        journal.append(batch(1..4)).await.unwrap();
        let Location::Postgres(_, schema) = &place.location else {
            unreachable!()
        };
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
             AND application_name = 'tenure' AND query LIKE '%COMMIT%' AND state = 'idle' \
             AND pid IN (SELECT pid FROM pg_stat_activity) AND '{schema}' <> ''"
        );
        place.meddle().await.run(&sql, &[]).await;
        assert_eq!(journal.append(batch(4..5)).await.unwrap().first_seq, 4);
    });
}
