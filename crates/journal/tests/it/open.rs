//! What is not opened, and that the reason given is the right one.

use tenure_journal::{Journal, JournalError, JournalReader, Location, Options};

use crate::place::{Place, batch, block_on, both};

both!(
    a_newer_format_is_refused,
    a_damaged_last_batch_is_refused,
    nothing_there_is_missing
);

async fn code(location: &Location) -> &'static str {
    match Journal::open_leader(location, "test", Options::default()).await {
        Ok(_) => "opened",
        Err(error) => error.code(),
    }
}

async fn a_newer_format_is_refused(place: Place) {
    place.open().await.close().await.unwrap();
    place
        .meddle()
        .await
        .run("UPDATE meta SET value = '2' WHERE name = 'format'", &[])
        .await;
    assert_eq!(code(&place.location).await, "journal_newer");
    assert_eq!(
        JournalReader::open(&place.location).await.err().unwrap().code(),
        "journal_newer"
    );
    place
        .meddle()
        .await
        .run("UPDATE meta SET value = 'x' WHERE name = 'format'", &[])
        .await;
    assert_eq!(code(&place.location).await, "journal_corrupt");
    place
        .meddle()
        .await
        .run("UPDATE meta SET value = '1' WHERE name = 'format'", &[])
        .await;
    assert_eq!(code(&place.location).await, "opened");
}

async fn a_damaged_last_batch_is_refused(place: Place) {
    let mut journal = place.open().await;
    journal.append(batch(1..10)).await.unwrap();
    journal.append(batch(10..20)).await.unwrap();
    journal.close().await.unwrap();
    for column in ["hash", "frontier", "hashes", "body"] {
        let mut meddler = place.meddle().await;
        meddler.run("CREATE TABLE keep AS SELECT * FROM batch", &[]).await;
        meddler
            .run(
                &format!("UPDATE batch SET {column} = $1 WHERE first_seq = 10"),
                &[b"damage"],
            )
            .await;
        assert_eq!(code(&place.location).await, "journal_corrupt", "{column}");
        meddler.run("DELETE FROM batch", &[]).await;
        meddler.run("INSERT INTO batch SELECT * FROM keep", &[]).await;
        meddler.run("DROP TABLE keep", &[]).await;
        meddler.run("UPDATE leader SET renewed_ms = 0", &[]).await;
    }
    assert_eq!(code(&place.location).await, "opened");
}

async fn nothing_there_is_missing(place: Place) {
    let error = JournalReader::open(&place.location).await.err().unwrap();
    assert_eq!(error.code(), "journal_missing");
}

#[test]
fn garbage_and_torn_files_are_refused() {
    block_on(async {
        let place = Place::sqlite();
        let Location::Sqlite(dir) = &place.location else {
            unreachable!()
        };
        std::fs::create_dir(dir).unwrap();
        std::fs::write(
            dir.join("journal.db"),
            b"this is not a database, whatever it may be".repeat(200),
        )
        .unwrap();
        assert_eq!(code(&place.location).await, "journal_corrupt");
        std::fs::remove_dir_all(dir).unwrap();

        let mut journal = place.open().await;
        for n in 0..40 {
            journal.append(batch(n * 20..n * 20 + 20)).await.unwrap();
        }
        journal.close().await.unwrap();
        let whole = std::fs::read(dir.join("journal.db")).unwrap();
        // A page of noise anywhere but in the rows' own bytes is found on opening.
        std::fs::write(dir.join("journal.db"), &whole[..whole.len() / 2]).unwrap();
        assert_eq!(code(&place.location).await, "journal_corrupt");
        std::fs::write(dir.join("journal.db"), &whole).unwrap();
        assert_eq!(code(&place.location).await, "opened");
    });
}

/// Every page of the file in turn: opening refuses or verifying finds it, or what it held is unharmed.
#[test]
fn no_damaged_page_passes_for_the_journal() {
    block_on(async {
        let place = Place::sqlite();
        let Location::Sqlite(dir) = &place.location else {
            unreachable!()
        };
        let mut journal = place.open().await;
        for n in 0..240 {
            journal.append(batch(n * 20..n * 20 + 20)).await.unwrap();
        }
        let head = journal.head();
        let source = journal.read(1, usize::MAX).await.unwrap();
        journal.close().await.unwrap();
        let file = dir.join("journal.db");
        let whole = std::fs::read(&file).unwrap();
        let (mut refused, mut found, mut unharmed) = (0, 0, 0);
        // As the file says itself, where its format has it.
        let size = usize::from(u16::from_be_bytes([whole[16], whole[17]]));
        for page in 0..whole.len() / size {
            let mut damaged = whole.clone();
            for byte in &mut damaged[page * size + 64..page * size + 96] {
                *byte ^= 0x55;
            }
            let at = page * size + size * 5 / 8;
            damaged[at] ^= 0x10;
            std::fs::write(&file, &damaged).unwrap();
            match open_when_free(&place.location).await {
                Err(error) => {
                    assert!(
                        matches!(error.code(), "journal_corrupt" | "journal_storage"),
                        "{error:?}"
                    );
                    refused += 1;
                }
                Ok(journal) => {
                    let report = journal.verify(Default::default()).await;
                    if report.as_ref().is_ok_and(|report| report.is_sound()) {
                        assert_eq!(journal.head(), head, "page {page}");
                        assert_eq!(journal.read(1, usize::MAX).await.unwrap(), source, "page {page}");
                        unharmed += 1;
                    } else {
                        found += 1;
                    }
                }
            }
            for name in ["journal.db-wal", "journal.db-shm"] {
                let _ = std::fs::remove_file(dir.join(name));
            }
        }
        println!("{refused} refused, {found} found by verifying, {unharmed} held nothing of the journal");
        assert!(refused > 0 && found > refused + unharmed);
    });
}

#[test]
fn unusable_directories_are_refused() {
    block_on(async {
        let place = Place::sqlite();
        let file = place.file("file");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(
            code(&Location::Sqlite(file.clone())).await,
            "journal_not_directory"
        );
        assert_eq!(
            code(&Location::Sqlite(file.join("below"))).await,
            "journal_not_directory"
        );
        let bad = Location::Postgres("postgres://x".into(), "a\"; drop table x".into());
        assert_eq!(code(&bad).await, "journal_bad_schema_name");
    });
}

const CHILD: &str = "TENURE_JOURNAL_READ_ONLY_DIR";

/// Permissions do not stop root, so this runs again as nobody when needed.
#[test]
fn a_read_only_directory_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let place = Place::sqlite();
    let Location::Sqlite(dir) = &place.location else {
        unreachable!()
    };
    block_on(async { place.open().await.close().await.unwrap() });
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(place.dir.path(), 0o755);
    for name in std::fs::read_dir(dir).unwrap() {
        open(&name.unwrap().path(), 0o444);
    }
    open(dir, 0o555);
    // The test program may lie where nobody cannot reach; a copy beside the data can be run.
    let program = place.file("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    open(&program, 0o755);
    let mut command = std::process::Command::new(&program);
    command
        .args(["--exact", "open::read_only_child", "--nocapture"])
        .env(CHILD, dir)
        .current_dir("/");
    if std::fs::metadata("/proc/self")
        .map(|found| std::os::unix::fs::MetadataExt::uid(&found))
        .unwrap()
        == 0
    {
        command.uid(65_534).gid(65_534);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    open(dir, 0o755);
    assert!(
        text.contains("refused: journal_not_writable"),
        "{text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("missing: journal_not_writable"), "{text}");
}

#[test]
fn read_only_child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    block_on(async {
        println!("refused: {}", code(&Location::Sqlite(dir.clone().into())).await);
        println!(
            "missing: {}",
            code(&Location::Sqlite(format!("{dir}/below").into())).await
        );
    });
}

#[test]
fn codes_are_distinct() {
    let codes: std::collections::BTreeSet<_> = JournalError::CODES.into_iter().collect();
    assert_eq!(codes.len(), JournalError::CODES.len());
}

/// Opens to lead; a connection that a refused opening left behind may hold the lock for a moment longer.
async fn open_when_free(location: &Location) -> Result<Journal, tenure_journal::JournalError> {
    let begun = std::time::Instant::now();
    loop {
        match Journal::open_leader(location, "test", Options::default()).await {
            Err(tenure_journal::JournalError::Held { .. }) if begun.elapsed().as_secs() < 5 => {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            other => return other,
        }
    }
}
