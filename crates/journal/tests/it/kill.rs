//! A process that appends in a loop is killed at any moment; what it was told is durable is.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use tenure_journal::{Hash, Journal, JournalError, Location, Options, VerifyOptions};

use crate::place::{Chance, Place, batch, both};

both!(a_killed_writer_loses_nothing_acknowledged);

const PLACE: &str = "TENURE_JOURNAL_KILL_PLACE";
const SCHEMA: &str = "TENURE_JOURNAL_KILL_SCHEMA";

fn options() -> Options {
    Options {
        term_ms: 40,
        ..Options::default()
    }
}

async fn lead(location: &Location) -> Journal {
    loop {
        match Journal::open_leader(location, "writer", options()).await {
            Err(JournalError::Held { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            other => return other.unwrap(),
        }
    }
}

async fn a_killed_writer_loses_nothing_acknowledged(place: Place) {
    let rounds: usize = std::env::var("TENURE_KILLS").map_or(100, |count| count.parse().unwrap());
    lead(&place.location).await.close().await.unwrap();
    let mut chance = Chance(21);
    let mut acked: BTreeMap<u64, Hash> = BTreeMap::new();
    for round in 0..rounds {
        let wait = Duration::from_micros(chance.below(60_000) as u64);
        let told = tokio::task::block_in_place(|| run_and_kill(&place.location, wait));
        for (seq, hash) in told {
            assert_eq!(
                acked.insert(seq, hash),
                None,
                "round {round}: event {seq} was acknowledged twice"
            );
        }
        let reader = Journal::open_reader(&place.location).await.unwrap();
        let head = reader.stored_head().await.unwrap();
        if let Some((last, hash)) = acked.last_key_value() {
            assert!(
                head.seq >= *last,
                "round {round}: event {last} was acknowledged, the journal ends at {}",
                head.seq
            );
            assert_eq!(
                reader.event_hash(*last).await.unwrap(),
                Some(*hash),
                "round {round}"
            );
        }
        reader.close().await;
    }
    let journal = lead(&place.location).await;
    let report = journal.verify(VerifyOptions::default()).await.unwrap();
    assert!(report.is_sound(), "{report:?}");
    let lines = journal.read(1, usize::MAX).await.unwrap();
    assert_eq!(lines.len() as u64, journal.head().seq);
    for (seq, hash) in &acked {
        assert_eq!(lines[*seq as usize - 1].hash, *hash, "event {seq}");
    }
    println!(
        "{rounds} kills, {} acknowledged batches, {} events",
        acked.len(),
        lines.len()
    );
    assert!(acked.len() > rounds / 2, "the writer hardly ever got to write");
}

/// Lets the writer work until some time after its first acknowledgement, then kills it.
fn run_and_kill(location: &Location, wait: Duration) -> Vec<(u64, Hash)> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "kill::writer", "--nocapture"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    match location {
        Location::Sqlite(dir) => command.env(PLACE, dir),
        Location::Postgres(url, schema) => command.env(PLACE, url).env(SCHEMA, schema),
    };
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let mut acked = Vec::new();
    while !line.contains("leading") && output.read_line(&mut line).unwrap() > 0 {}
    std::thread::sleep(wait);
    child.kill().unwrap();
    child.wait().unwrap();
    for line in output.lines().map_while(Result::ok) {
        let mut words = line.split_whitespace();
        if let (Some("ack"), Some(seq), Some(hash), Some("end")) =
            (words.next(), words.next(), words.next(), words.next())
        {
            acked.push((seq.parse().unwrap(), hash.parse().unwrap()));
        }
    }
    acked
}

#[test]
fn writer() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let location = match std::env::var(SCHEMA) {
        Ok(schema) => Location::Postgres(place, schema),
        Err(_) => Location::Sqlite(place.into()),
    };
    crate::place::block_on(async {
        let mut journal = lead(&location).await;
        let mut out = std::io::stdout().lock();
        writeln!(out, "leading").unwrap();
        out.flush().unwrap();
        let mut chance = Chance(u64::from(std::process::id()));
        loop {
            let size = 1 + chance.below(5) as u64;
            let done = journal.append(batch(0..size)).await.unwrap();
            writeln!(out, "ack {} {} end", done.last_seq, done.hash).unwrap();
            out.flush().unwrap();
        }
    });
}
