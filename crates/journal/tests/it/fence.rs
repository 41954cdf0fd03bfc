//! Leadership: one writer, and an old one never commits again.

use std::time::Duration;

use tenure_journal::{Journal, JournalError, Location, Options, VerifyOptions};

use crate::place::{Place, batch, block_on, both};

both!(
    a_second_leader_is_refused,
    closing_hands_over_at_once,
    an_overtaken_leader_cannot_write
);

fn short() -> Options {
    Options {
        term_ms: 150,
        ..Options::default()
    }
}

async fn a_second_leader_is_refused(place: Place) {
    let mut first = place.open().await;
    let second = Journal::open_leader(&place.location, "second", Options::default()).await;
    match second.err() {
        Some(JournalError::Held { holder }) => assert!(holder.contains("test"), "{holder}"),
        other => panic!("{other:?}"),
    }
    first.append(batch([1])).await.unwrap();
}

async fn closing_hands_over_at_once(place: Place) {
    let first = place.open().await;
    let epoch = first.epoch();
    first.close().await.unwrap();
    assert_eq!(place.open().await.epoch(), epoch + 1);
}

/// On PostgreSQL by letting the lease run out; on SQLite by removing the lock file under a living leader.
async fn an_overtaken_leader_cannot_write(place: Place) {
    let mut old = Journal::open_leader(&place.location, "old", short())
        .await
        .unwrap();
    old.append(batch(1..4)).await.unwrap();
    if let Location::Sqlite(dir) = &place.location {
        std::fs::remove_file(dir.join("journal.lock")).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut new = Journal::open_leader(&place.location, "new", short())
        .await
        .unwrap();
    assert!(new.epoch() > old.epoch());
    assert!(matches!(
        old.append(batch([4])).await.unwrap_err(),
        JournalError::Fenced
    ));
    let (key, _) = tenure_journal::SigningKey::generate();
    assert!(matches!(
        old.put_secret("a", "b", vec![1]).await.unwrap_err(),
        JournalError::Fenced
    ));
    assert!(matches!(
        old.write_snapshot(3, 1, b"x").await.unwrap_err(),
        JournalError::Fenced
    ));
    assert!(matches!(
        old.sign_head(&key, 1).await.unwrap_err(),
        JournalError::Fenced
    ));
    assert_eq!(new.append(batch([4])).await.unwrap().first_seq, 4);
    // Even after the new one is gone, the old one's epoch is past.
    new.close().await.unwrap();
    assert!(matches!(
        old.append(batch([5])).await.unwrap_err(),
        JournalError::Fenced
    ));
}

#[test]
fn renewing_keeps_the_lead() {
    block_on(async {
        let place = Place::postgres();
        // Long enough for a loaded machine to renew in time.
        let term = Options {
            term_ms: 2_000,
            ..Options::default()
        };
        let mut journal = Journal::open_leader(&place.location, "first", term.clone())
            .await
            .unwrap();
        for _ in 0..6 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            journal.renew().await.unwrap();
            let other = Journal::open_leader(&place.location, "second", term.clone()).await;
            assert!(matches!(other.err(), Some(JournalError::Held { .. })));
        }
        journal.append(batch([1])).await.unwrap();
    });
}

/// Many would-be leaders with a term so short that they overtake one another all the time: whatever was
/// acknowledged is there, once, and nobody wrote after being overtaken.
#[test]
fn leaders_at_war_never_lose_or_double_an_event() {
    block_on(async {
        let place = Place::postgres();
        drop(place.open().await.close().await);
        let mut tasks = Vec::new();
        for who in 0..4u64 {
            let location = place.location.clone();
            tasks.push(tokio::spawn(async move {
                let options = Options {
                    term_ms: 3,
                    ..Options::default()
                };
                let (mut acked, mut fenced) = (Vec::new(), 0);
                for _ in 0..60 {
                    let Ok(mut journal) =
                        Journal::open_leader(&location, "one of four", options.clone()).await
                    else {
                        tokio::time::sleep(Duration::from_millis(3)).await;
                        continue;
                    };
                    for n in 0..20 {
                        match journal.append(batch([who * 1_000 + n])).await {
                            Ok(done) => acked.push((done.last_seq, done.hash)),
                            Err(JournalError::Fenced) => {
                                fenced += 1;
                                break;
                            }
                            Err(error) => panic!("{error:?}"),
                        }
                        if n % 5 == 4 {
                            tokio::time::sleep(Duration::from_millis(6)).await;
                        }
                    }
                }
                (acked, fenced)
            }));
        }
        let reader = Journal::open_reader(&place.location).await.unwrap();
        let (mut all, mut fenced) = (Vec::new(), 0);
        for task in tasks {
            let (acked, times) = task.await.unwrap();
            all.extend(acked);
            fenced += times;
        }
        assert!(
            fenced > 0 && all.len() > 100,
            "{fenced} fenced, {} acknowledged",
            all.len()
        );
        let report = reader.verify(VerifyOptions::default()).await.unwrap();
        assert!(report.is_sound(), "{report:?}");
        assert_eq!(report.events, all.len() as u64);
        all.sort_by_key(|(seq, _)| *seq);
        let lines = reader.read(1, usize::MAX).await.unwrap();
        assert_eq!(
            lines.iter().map(|line| (line.seq, line.hash)).collect::<Vec<_>>(),
            all
        );
    });
}
