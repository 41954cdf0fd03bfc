//! Backup under a running writer, and restore to any point.

use tenure_journal::{
    Batch, HistoryRow, Journal, JournalError, JournalReader, KeyRow, Location, SigningKey, Until,
    VerifyOptions, restore,
};

use crate::place::{Chance, Place, both, entry};

both!(
    a_backup_under_a_writer_is_sound,
    restoring_to_any_point_gives_that_prefix,
    restore_refuses
);

/// Batches with history and keys; returns the number of the last event of each.
async fn live(journal: &mut Journal, batches: u64, chance: &mut Chance) -> Vec<u64> {
    let mut ends = Vec::new();
    for _ in 0..batches {
        let first = journal.head().seq + 1;
        let size = 1 + chance.below(8) as u64;
        let id = format!("h{first:06}");
        let history = HistoryRow {
            kind: "job".into(),
            id,
            scope: "ten_a/sub_b".into(),
            at_ms: first as i64,
            body: "{}".into(),
        };
        let key = KeyRow {
            principal: "usr".into(),
            key: format!("k{first:06}"),
            digest: [1; 32],
            status: 200,
            reply: String::new(),
            at_ms: first as i64,
        };
        let entries = (first..first + size).map(entry).collect();
        let done = journal
            .append(Batch {
                entries,
                history: vec![history],
                keys: vec![key],
            })
            .await
            .unwrap();
        ends.push(done.last_seq);
    }
    ends
}

async fn a_backup_under_a_writer_is_sound(place: Place) {
    let mut journal = place.open().await;
    live(&mut journal, 300, &mut Chance(1)).await;
    journal
        .put_secret("s", "ten_a", b"hush-hush-hush".to_vec())
        .await
        .unwrap();
    journal.write_snapshot(10, 1, b"state").await.unwrap();
    let reader = Journal::open_reader(&place.location).await.unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = stop.clone();
    let writer = tokio::spawn(async move {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            live(&mut journal, 5, &mut Chance(2)).await;
        }
        journal
    });
    for n in 0..5 {
        let file = place.file(&format!("backup{n}"));
        let head = reader.backup(&file).await.unwrap();
        assert_eq!(reader.event_hash(head.seq).await.unwrap(), Some(head.hash));
        assert!(
            !std::fs::read(&file)
                .unwrap()
                .windows(14)
                .any(|window| window == b"hush-hush-hush")
        );
        assert!(matches!(
            reader.backup(&file).await.unwrap_err(),
            JournalError::NotEmpty { .. }
        ));
        assert_eq!(
            last_beside_the_chain(&file).await,
            head.seq,
            "rows of another moment than the events"
        );
        let to = place.other(&format!("restored{n}"));
        assert_eq!(restore(&file, &to, Until::End).await.unwrap(), head);
        let restored = JournalReader::open(&to).await.unwrap();
        let report = restored.verify(VerifyOptions::default()).await.unwrap();
        assert!(report.is_sound() && report.head == head, "{report:?}");
        assert_eq!(restored.platform(), reader.platform());
        assert_eq!(restored.get_secret("s").await.unwrap(), None);
        assert_eq!(
            restored.latest_snapshot(1).await.unwrap().unwrap().bytes,
            b"state"
        );
        restored.close().await;
        // The other kind of database as well, and a leader can go on from there.
        let across = match place.is_sqlite() {
            true => Place::postgres(),
            false => Place::sqlite(),
        };
        assert_eq!(restore(&file, &across.location, Until::End).await.unwrap(), head);
        let mut next = across.open().await;
        assert_eq!(
            next.append(crate::place::batch([1])).await.unwrap().first_seq,
            head.seq + 1
        );
        assert!(next.verify(VerifyOptions::default()).await.unwrap().is_sound());
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let journal = writer.await.unwrap();
    assert!(journal.verify(VerifyOptions::default()).await.unwrap().is_sound());
}

/// The newest event that history or keys in a backup belong to.
async fn last_beside_the_chain(file: &std::path::Path) -> u64 {
    let connect = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
    let mut conn = sqlx::ConnectOptions::connect(&connect).await.unwrap();
    let sql = "SELECT max((SELECT max(seq) FROM history), (SELECT max(seq) FROM idempotency))";
    let seq: i64 = sqlx::query_scalar(sql).fetch_one(&mut conn).await.unwrap();
    seq as u64
}

async fn restoring_to_any_point_gives_that_prefix(place: Place) {
    let mut chance = Chance(5);
    let mut journal = place.open().await;
    let (key, _) = SigningKey::generate();
    let mut ends = vec![0];
    for n in 0..12 {
        ends.extend(live(&mut journal, 30, &mut chance).await);
        journal.sign_head(&key, n).await.unwrap();
        journal
            .write_snapshot(journal.head().seq, 1, n.to_string().as_bytes())
            .await
            .unwrap();
    }
    let file = place.file("backup");
    journal.backup(&file).await.unwrap();
    let end = journal.head().seq;
    let source = journal.read(1, usize::MAX).await.unwrap();
    let heads = journal.heads().await.unwrap();
    let rounds: usize = std::env::var("TENURE_RESTORES").map_or(40, |count| count.parse().unwrap());
    for round in 0..rounds {
        let point = chance.next() % (end + 1);
        let until = match round % 2 {
            0 => Until::Seq(point),
            _ => Until::Time(1_700_000_000_000 + point as i64),
        };
        let cut = *ends.iter().rfind(|last| **last <= point).unwrap();
        let to = place.other(&format!("to{round}"));
        let head = restore(&file, &to, until).await.unwrap();
        assert_eq!(head.seq, cut, "{until:?}");
        let options = VerifyOptions {
            heads: vec![],
            keys: vec![key.public_key()],
        };
        let restored = JournalReader::open(&to).await.unwrap();
        let report = restored.verify(options).await.unwrap();
        assert!(report.is_sound() && report.head == head, "{report:?}");
        let prefix = &source[..cut as usize];
        assert_eq!(restored.read(1, usize::MAX).await.unwrap(), prefix);
        let kept: Vec<_> = heads.iter().filter(|head| head.seq <= cut).cloned().collect();
        assert_eq!(restored.heads().await.unwrap(), kept);
        let snapshot = restored.latest_snapshot(1).await.unwrap();
        assert!(snapshot.is_none_or(|snapshot| snapshot.seq <= cut));
        let history = restored.history("job", None, None, 10_000).await.unwrap();
        let batches = ends.iter().filter(|last| **last > 0 && **last <= cut).count();
        assert_eq!(history.len(), batches);
        let later = format!("k{:06}", cut + 1);
        assert_eq!(restored.find_key("usr", &later).await.unwrap(), None);
        // A head signed over what was cut off says so.
        if cut < heads[11].seq {
            let options = VerifyOptions {
                heads: heads.clone(),
                keys: vec![key.public_key()],
            };
            let report = restored.verify(options).await.unwrap();
            assert_eq!(report.cut_tail.unwrap().found_seq, cut);
        }
        restored.close().await;
        if let Location::Sqlite(dir) = &to {
            std::fs::remove_dir_all(dir).unwrap();
        }
    }
}

async fn restore_refuses(place: Place) {
    let mut journal = place.open().await;
    live(&mut journal, 20, &mut Chance(7)).await;
    let file = place.file("backup");
    let head = journal.backup(&file).await.unwrap();
    let error = restore(&file, &place.location, Until::End).await.unwrap_err();
    assert!(
        matches!(error.code(), "journal_held" | "journal_not_empty"),
        "{error}"
    );
    journal.close().await.unwrap();
    let error = restore(&file, &place.location, Until::End).await.unwrap_err();
    assert_eq!(error.code(), "journal_not_empty");
    let error = restore(&file, &place.other("a"), Until::Seq(head.seq + 1))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "journal_beyond_end");
    let error = restore(&place.file("nothing"), &place.other("b"), Until::End)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "journal_missing");
    // A backup that was tampered with is not restored, and leaves nothing behind.
    let connect = sqlx::sqlite::SqliteConnectOptions::new().filename(&file);
    let mut conn = sqlx::ConnectOptions::connect(&connect).await.unwrap();
    let sql = "UPDATE batch SET body = CAST(replace(CAST(body AS TEXT), 'usr_1', 'usr_9') AS BLOB)";
    sqlx::query(sql).execute(&mut conn).await.unwrap();
    let to = place.other("c");
    assert_eq!(
        restore(&file, &to, Until::End).await.unwrap_err().code(),
        "journal_corrupt"
    );
    assert_eq!(
        JournalReader::open(&to).await.err().unwrap().code(),
        "journal_missing"
    );
}
