//! One suite over both databases: append, read, history, keys, secrets.

use tenure_journal::{
    Batch, Entry, HistoryRow, Journal, JournalError, KeyRow, Location, Options, VerifyOptions,
};

use crate::place::{Chance, Place, batch, both, entry, fill};

both!(
    an_empty_journal_opens,
    what_was_appended_is_read_back,
    bad_events_are_refused_whole,
    what_is_sealed_ahead_is_written_in_its_turn_alone,
    history_pages_by_scope,
    keys_are_found_and_never_doubled,
    secrets_come_and_go,
    marks_are_kept_together_and_outlive_their_leader,
    a_batch_without_events_keeps_its_rows,
    reopening_goes_on_where_it_ended,
    a_dropped_append_leaves_the_journal_sound,
    damaged_rows_beside_the_chain_are_found,
);

async fn an_empty_journal_opens(place: Place) {
    let journal = place.open().await;
    assert_eq!(journal.head().seq, 0);
    assert!(journal.read(1, 10).await.unwrap().is_empty());
    let report = journal.verify(VerifyOptions::default()).await.unwrap();
    assert!(report.is_sound() && report.events == 0);
    let platform = journal.platform().to_owned();
    journal.close().await.unwrap();
    assert_eq!(place.open().await.platform(), platform);
}

async fn what_was_appended_is_read_back(place: Place) {
    let mut journal = place.open().await;
    fill(&mut journal, 500, &mut Chance(1)).await;
    let lines = journal.read(1, 10_000).await.unwrap();
    assert_eq!(lines.len(), 500);
    for (n, line) in (1..).zip(&lines) {
        let Entry {
            at_ms,
            by,
            request,
            event,
        } = entry(n);
        assert_eq!(
            (line.seq, line.at_ms, &*line.by, line.request.as_deref()),
            (n, at_ms, &*by, request.as_deref())
        );
        assert_eq!(*line.event, *event);
        assert!(line.text.contains(&*event));
    }
    assert!(lines.windows(2).all(|pair| pair[1].prev == pair[0].hash));
    assert_eq!(lines[499].hash, journal.head().hash);
    for (from, limit) in [(1, 1), (37, 5), (499, 10), (500, 1), (501, 9), (90, 333)] {
        let wanted: Vec<_> = lines
            .iter()
            .filter(|line| line.seq >= from)
            .take(limit)
            .cloned()
            .collect();
        assert_eq!(journal.read(from, limit).await.unwrap(), wanted, "{from} {limit}");
    }
    let reader = Journal::open_reader(&place.location).await.unwrap();
    assert_eq!(reader.read(1, 10_000).await.unwrap(), lines);
    assert_eq!(reader.stored_head().await.unwrap(), journal.head());
}

async fn bad_events_are_refused_whole(place: Place) {
    let mut journal = place.open().await;
    for text in ["", "null", "{\n}", "{}x"] {
        let mut bad = batch(1..4);
        bad.entries[1].event = text.into();
        let error = journal.append(bad).await.unwrap_err();
        assert!(matches!(error, JournalError::BadEvent { index: 1 }), "{error}");
    }
    assert_eq!(journal.append(batch(1..3)).await.unwrap().last_seq, 2);
}

fn row(kind: &str, id: u32, scope: &str, at_ms: i64) -> HistoryRow {
    let id = format!("{kind}_{id:04}");
    HistoryRow {
        kind: kind.into(),
        body: format!(r#"{{"id":"{id}"}}"#),
        id,
        scope: scope.into(),
        at_ms,
    }
}

async fn what_is_sealed_ahead_is_written_in_its_turn_alone(place: Place) {
    let mut journal = place.open().await;
    let mut sealer = journal.sealer();
    let ahead: Vec<_> = [1..4, 4..4, 4..9]
        .map(|ns| sealer.seal(batch(ns)).unwrap())
        .into();
    for sealed in ahead {
        journal.write(sealed).await.unwrap();
    }
    let lines = journal.read(1, 100).await.unwrap();
    assert_eq!(lines.len(), 8);
    assert!(lines.windows(2).all(|pair| pair[1].prev == pair[0].hash));

    // A batch is left out: whatever was sealed after it is refused, and nothing of it written.
    let head = journal.head();
    let left_out = sealer.seal(batch(9..11)).unwrap();
    let after = sealer.seal(batch(11..12)).unwrap();
    let refused = journal.write(after).await.unwrap_err();
    assert_eq!(refused.code(), "journal_out_of_turn");
    assert_eq!(journal.head(), head);
    // Somebody appends between sealing and writing.
    journal.append(batch(9..10)).await.unwrap();
    let refused = journal.write(left_out).await.unwrap_err();
    assert_eq!(refused.code(), "journal_out_of_turn");
    // A bad event moves nothing: the sealer goes on where it was.
    let mut sealer = journal.sealer();
    let mut bad = batch(10..12);
    bad.entries[1].event = "[]".into();
    assert_eq!(sealer.seal(bad).unwrap_err().code(), "journal_bad_event");
    journal.write(sealer.seal(batch(10..12)).unwrap()).await.unwrap();
    let report = journal.verify(VerifyOptions::default()).await.unwrap();
    assert!(report.is_sound() && report.events == 11);
}

async fn history_pages_by_scope(place: Place) {
    let mut journal = place.open().await;
    let scopes = [
        "ten_a",
        "ten_a/sub_1",
        "ten_a/sub_1/usr_x",
        "ten_a/sub_1/usr_x/job_1",
        "ten_a/sub_10",
        "ten_ab",
        "",
    ];
    let rows: Vec<_> = (0..400)
        .map(|n| row("job", n, scopes[n as usize % scopes.len()], i64::from(n / 10)))
        .collect();
    for chunk in rows.chunks(90) {
        let more = vec![row("invoice", chunk.len() as u32, "ten_a", 5)];
        let history = chunk.iter().cloned().chain(more).collect();
        journal
            .append(Batch {
                entries: vec![entry(1)],
                history,
                keys: vec![],
            })
            .await
            .unwrap();
    }
    let below = |scope: &str, prefix: &str| scope == prefix || scope.starts_with(&format!("{prefix}/"));
    for prefix in [
        None,
        Some("ten_a"),
        Some("ten_a/sub_1"),
        Some("ten_a/sub_1/usr_x"),
        Some("ten_a/sub_1/usr_x/job_1"),
        Some("ten_z"),
    ] {
        let mut wanted: Vec<_> = rows
            .iter()
            .filter(|row| prefix.is_none_or(|prefix| below(&row.scope, prefix)))
            .cloned()
            .collect();
        wanted.sort_by(|a, b| (b.at_ms, &b.id).cmp(&(a.at_ms, &a.id)));
        let mut found: Vec<HistoryRow> = Vec::new();
        loop {
            let before = found.last().map(|row| (row.at_ms, row.id.as_str()));
            let page = journal.history("job", prefix, before, 17).await.unwrap();
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        assert_eq!(found, wanted, "{prefix:?}");
    }
    assert_eq!(
        journal.history_get("job", "job_0007").await.unwrap().as_ref(),
        Some(&rows[7])
    );
    assert_eq!(journal.history_get("job", "invoice_0090").await.unwrap(), None);
    // An id written again, even twice in one batch, is replaced by the last.
    let twice = vec![row("job", 7, "ten_b", 1), row("job", 7, "ten_c", 2)];
    journal
        .append(Batch {
            history: twice,
            ..Batch::default()
        })
        .await
        .unwrap();
    assert_eq!(
        journal
            .history_get("job", "job_0007")
            .await
            .unwrap()
            .unwrap()
            .scope,
        "ten_c"
    );
}

fn key(name: &str, at_ms: i64) -> KeyRow {
    KeyRow {
        principal: "usr_1".into(),
        key: name.into(),
        digest: [7; 32],
        status: 201,
        reply: r#"{"id":"job_1"}"#.into(),
        at_ms,
    }
}

async fn keys_are_found_and_never_doubled(place: Place) {
    let mut journal = place.open().await;
    let keys = (0..100).map(|n| key(&format!("k{n}"), n)).collect();
    journal
        .append(Batch {
            entries: vec![entry(1)],
            keys,
            history: vec![],
        })
        .await
        .unwrap();
    assert_eq!(
        journal.find_key("usr_1", "k42").await.unwrap(),
        Some(key("k42", 42))
    );
    assert_eq!(journal.find_key("usr_2", "k42").await.unwrap(), None);
    let again = Batch {
        entries: vec![entry(2)],
        keys: vec![key("new", 1), key("k42", 9)],
        history: vec![],
    };
    assert!(matches!(
        journal.append(again).await.unwrap_err(),
        JournalError::KeyTaken
    ));
    assert_eq!(journal.find_key("usr_1", "new").await.unwrap(), None);
    assert_eq!(journal.read(1, 10).await.unwrap().len(), 1);
    assert_eq!(journal.forget_keys(50).await.unwrap(), 50);
    let again = Batch {
        entries: vec![entry(2)],
        keys: vec![key("k42", 9)],
        history: vec![],
    };
    assert_eq!(journal.append(again).await.unwrap().last_seq, 2);
}

async fn secrets_come_and_go(place: Place) {
    let journal = place.open().await;
    let bytes = b"find-me-on-disk-0123456789".repeat(300);
    journal
        .put_secret("s1", "ten_a/sub_1", bytes.clone())
        .await
        .unwrap();
    journal.put_secret("s2", "ten_a", b"two".to_vec()).await.unwrap();
    journal
        .put_secret("s3", "ten_ab", b"three".to_vec())
        .await
        .unwrap();
    assert_eq!(journal.get_secret("s1").await.unwrap(), Some(bytes));
    if let Location::Sqlite(dir) = &place.location {
        assert!(on_disk(dir, b"find-me-on-disk"), "the search below would see it");
    }
    assert!(journal.erase_secret("s1").await.unwrap());
    assert!(!journal.erase_secret("s1").await.unwrap());
    assert_eq!(journal.get_secret("s1").await.unwrap(), None);
    if let Location::Sqlite(dir) = &place.location {
        assert!(
            !on_disk(dir, b"find-me-on-disk"),
            "erased bytes are still on disk"
        );
    }
    assert_eq!(journal.erase_secrets("ten_a").await.unwrap(), 1);
    assert_eq!(journal.get_secret("s3").await.unwrap(), Some(b"three".to_vec()));
}

async fn marks_are_kept_together_and_outlive_their_leader(place: Place) {
    let mark = |id: &str, body: &str| (id.to_owned(), body.to_owned());
    let journal = place.open().await;
    let head = journal.head();
    let both = [mark("whk_a", "1"), mark("whk_b", "1")];
    journal.keep_marks(&both, &[]).await.unwrap();
    journal
        .keep_marks(&[mark("whk_b", "2")], &["whk_a".to_owned()])
        .await
        .unwrap();
    assert_eq!(journal.head(), head, "a mark is no event");
    journal.close().await.unwrap();
    let journal = place.open().await;
    assert_eq!(journal.marks().await.unwrap(), [mark("whk_b", "2")]);
    assert_eq!(journal.mark("whk_b").await.unwrap().as_deref(), Some("2"));
    assert_eq!(journal.mark("whk_a").await.unwrap(), None);
}

fn on_disk(dir: &std::path::Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|file| {
        let content = std::fs::read(file.unwrap().path()).unwrap_or_default();
        content.windows(bytes.len()).any(|window| window == bytes)
    })
}

async fn a_batch_without_events_keeps_its_rows(place: Place) {
    let mut journal = place.open().await;
    let only_key = Batch {
        keys: vec![key("k", 1)],
        ..Batch::default()
    };
    let done = journal.append(only_key).await.unwrap();
    assert_eq!((done.first_seq, done.last_seq), (1, 0));
    assert!(journal.find_key("usr_1", "k").await.unwrap().is_some());
    assert_eq!(journal.append(batch([1])).await.unwrap().first_seq, 1);
}

async fn reopening_goes_on_where_it_ended(place: Place) {
    let mut chance = Chance(2);
    let mut head = None;
    for _ in 0..5 {
        let mut journal = place.open().await;
        assert_eq!(head.unwrap_or(journal.head()), journal.head());
        fill(&mut journal, 700, &mut chance).await;
        head = Some(journal.head());
        journal.close().await.unwrap();
    }
    let journal = place.open().await;
    let report = journal.verify(VerifyOptions::default()).await.unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.events, Some(report.head)), (3_500, head));
}

/// A caller may stop waiting at any point; what it must never get is a journal that goes on wrongly.
async fn a_dropped_append_leaves_the_journal_sound(place: Place) {
    let mut chance = Chance(3);
    let options = || Options {
        term_ms: 0,
        ..Options::default()
    };
    let open = || async {
        for _ in 0..100 {
            match Journal::open_leader(&place.location, "test", options()).await {
                Err(JournalError::Held { .. }) => {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await
                }
                other => return other.unwrap(),
            }
        }
        panic!("the journal stays held");
    };
    let mut journal = open().await;
    let mut dropped = 0;
    for _ in 0..150 {
        let first = journal.head().seq + 1;
        let patience = std::time::Duration::from_micros(chance.below(1_500) as u64);
        let start = std::time::Instant::now();
        let outcome = tokio::select! {
            biased;
            outcome = journal.append(batch(first..first + 20)) => Some(outcome),
            () = async { while start.elapsed() < patience { tokio::task::yield_now().await } } => None,
        };
        match outcome {
            Some(Ok(_)) => {}
            Some(Err(JournalError::Uncertain { .. })) => {
                drop(journal);
                journal = open().await;
            }
            Some(Err(error)) => panic!("{error:?}"),
            None => dropped += 1,
        }
    }
    assert!(dropped > 5, "{dropped}");
    drop(journal);
    let report = open().await.verify(VerifyOptions::default()).await.unwrap();
    assert!(report.is_sound(), "{report:?}");
}

async fn damaged_rows_beside_the_chain_are_found(place: Place) {
    let mut journal = place.open().await;
    let history = (0..1_500).map(|n| row("job", n, "ten_a", 1)).collect();
    let keys = (0..1_500).map(|n| key(&format!("k{n}"), 1)).collect();
    journal
        .append(Batch {
            entries: vec![entry(1)],
            history,
            keys,
        })
        .await
        .unwrap();
    assert!(journal.verify(VerifyOptions::default()).await.unwrap().is_sound());
    let damages = [
        ("history", "body = '{}'", "id = 'job_1400'"),
        ("history", "at_ms = 2", "id = 'job_0003'"),
        ("history", "scope = 'ten_b'", "id = 'job_0003'"),
        ("idempotency", "status = 500", "key = 'k7'"),
        ("idempotency", "reply = ''", "key = 'k999'"),
    ];
    let mut meddler = place.meddle().await;
    for (table, change, which) in damages {
        meddler
            .run(
                &format!("CREATE TABLE keep AS SELECT * FROM {table} WHERE {which}"),
                &[],
            )
            .await;
        meddler
            .run(&format!("UPDATE {table} SET {change} WHERE {which}"), &[])
            .await;
        let report = journal.verify(VerifyOptions::default()).await.unwrap();
        assert!(report.damaged_row.is_some() && !report.is_sound(), "{change}");
        if table == "history" {
            assert_eq!(
                journal
                    .history("job", None, None, 2_000)
                    .await
                    .unwrap_err()
                    .code(),
                "journal_corrupt"
            );
        }
        meddler
            .run(&format!("DELETE FROM {table} WHERE {which}"), &[])
            .await;
        meddler
            .run(&format!("INSERT INTO {table} SELECT * FROM keep"), &[])
            .await;
        meddler.run("DROP TABLE keep", &[]).await;
    }
    assert!(journal.verify(VerifyOptions::default()).await.unwrap().is_sound());
}
