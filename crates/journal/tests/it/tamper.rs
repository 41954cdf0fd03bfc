//! Every way to change a stored journal, thousands of times: verifying names the first bad event.

use sqlx::{AssertSqlSafe, Row};
use tenure_journal::{Bad, Fault, Hash, JournalReader, SignedHead, SigningKey, VerifyOptions};

use crate::place::{Chance, Meddler, Place, both, fill};

both!(
    every_mutation_is_found_and_named,
    a_cut_tail_is_found_by_a_signed_head,
    a_rewritten_chain_is_found_by_a_signed_head,
    heads_that_prove_nothing_are_named,
);

#[derive(Clone, Debug, PartialEq)]
struct Stored {
    first: i64,
    last: i64,
    at_ms: i64,
    hash: Vec<u8>,
    frontier: Vec<u8>,
    hashes: Vec<u8>,
    body: Vec<u8>,
}

impl Stored {
    fn lines(&self) -> Vec<Vec<u8>> {
        self.body
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::to_vec)
            .collect()
    }

    fn set_lines(&mut self, lines: &[Vec<u8>]) {
        self.body = lines.join(&b'\n');
    }

    /// The event that the byte at `at` belongs to; a separator belongs to the event before it.
    fn event_at(&self, at: usize) -> u64 {
        self.first as u64 + self.body[..at].iter().filter(|byte| **byte == b'\n').count() as u64
    }
}

const SELECT: &str =
    "SELECT first_seq, last_seq, at_ms, hash, frontier, hashes, body FROM batch ORDER BY first_seq";

macro_rules! stored {
    ($row:expr) => {
        Stored {
            first: $row.get(0),
            last: $row.get(1),
            at_ms: $row.get(2),
            hash: $row.get(3),
            frontier: $row.get(4),
            hashes: $row.get(5),
            body: $row.get(6),
        }
    };
}

async fn rows(meddler: &mut Meddler) -> Vec<Stored> {
    match meddler {
        Meddler::Sqlite(conn) => sqlx::query(SELECT)
            .fetch_all(conn)
            .await
            .unwrap()
            .iter()
            .map(|row| stored!(row))
            .collect(),
        Meddler::Postgres(conn) => sqlx::query(SELECT)
            .fetch_all(conn)
            .await
            .unwrap()
            .iter()
            .map(|row| stored!(row))
            .collect(),
    }
}

async fn put(meddler: &mut Meddler, row: &Stored) {
    let Stored {
        first,
        last,
        at_ms,
        hash,
        frontier,
        hashes,
        body,
    } = row;
    let sql = format!("INSERT INTO batch VALUES ({first}, {last}, {at_ms}, $1, $2, $3, $4)");
    meddler.run(&sql, &[hash, frontier, hashes, body]).await;
}

/// Makes the table hold `new` where it held `old`.
async fn change(meddler: &mut Meddler, old: &[Stored], new: &[Stored]) {
    meddler.run("BEGIN", &[]).await;
    for row in old.iter().filter(|row| !new.contains(row)) {
        meddler
            .run(&format!("DELETE FROM batch WHERE first_seq = {}", row.first), &[])
            .await;
    }
    for row in new.iter().filter(|row| !old.contains(row)) {
        put(meddler, row).await;
    }
    meddler.run("COMMIT", &[]).await;
}

/// One mutation, and the event it makes the first bad one.
fn mutate(rows: &mut Vec<Stored>, chance: &mut Chance) -> (&'static str, u64) {
    let at = chance.below(rows.len());
    let row = &mut rows[at];
    let first = row.first as u64;
    let flip = |bytes: &mut [u8], chance: &mut Chance| {
        let byte = chance.below(bytes.len());
        bytes[byte] ^= 1 << chance.below(8);
        byte
    };
    match chance.below(16) {
        0..4 => {
            let intact = row.clone();
            let byte = flip(&mut row.body, chance);
            ("flip a bit of a line", intact.event_at(byte))
        }
        4 => {
            let mut lines = row.lines();
            let dropped = chance.below(lines.len());
            lines.remove(dropped);
            row.set_lines(&lines);
            ("drop an event", first + dropped as u64)
        }
        5 => {
            let mut lines = row.lines();
            let doubled = chance.below(lines.len());
            lines.insert(doubled + 1, lines[doubled].clone());
            row.set_lines(&lines);
            ("double an event", first + doubled as u64 + 1)
        }
        6 => {
            let other = (at + 1 + chance.below(rows.len() - 1)) % rows.len();
            let (a, b) = (at.min(other), at.max(other));
            let (mut low, mut high) = (rows[a].lines(), rows[b].lines());
            let (from, to) = (chance.below(low.len()), chance.below(high.len()));
            std::mem::swap(&mut low[from], &mut high[to]);
            rows[a].set_lines(&low);
            rows[b].set_lines(&high);
            ("swap events of two batches", rows[a].first as u64 + from as u64)
        }
        7 => {
            let mut lines = row.lines();
            if lines.len() < 2 {
                return mutate(rows, chance);
            }
            let low = chance.below(lines.len() - 1);
            lines.swap(low, low + 1);
            row.set_lines(&lines);
            ("swap neighbours", first + low as u64)
        }
        8 => {
            let cut = chance.below(row.body.len());
            let intact = row.clone();
            row.body.truncate(cut);
            let named = match intact.body[cut] {
                b'\n' => intact.event_at(cut) + 1,
                _ => intact.event_at(cut),
            };
            ("cut a batch short", named)
        }
        9 => {
            if at + 1 == rows.len() {
                return mutate(rows, chance);
            }
            rows.remove(at);
            ("drop a batch", first)
        }
        10 => {
            let byte = flip(&mut row.hashes, chance);
            ("flip a bit of a recorded hash", first + byte as u64 / 32)
        }
        11 => {
            flip(&mut row.hash, chance);
            ("flip a bit of a batch's hash", row.last as u64)
        }
        12 => {
            flip(&mut row.frontier, chance);
            ("flip a bit of the tree", first)
        }
        13 => {
            // An event rewritten together with the hash beside it.
            let mut lines = row.lines();
            let changed = chance.below(lines.len());
            let line = String::from_utf8(lines[changed].clone())
                .unwrap()
                .replacen("\"test\"", "\"TEST\"", 1);
            lines[changed] = line.into_bytes();
            row.hashes[changed * 32..][..32].copy_from_slice(&Hash::of(&lines[changed]).0);
            row.set_lines(&lines);
            ("rewrite an event and its hash", first + changed as u64)
        }
        14 => {
            row.at_ms += 1;
            ("move a batch in time", row.last as u64)
        }
        _ => {
            row.last -= 1;
            let last = row.last as u64 + 1;
            ("say a batch ends early", last)
        }
    }
}

fn mutations(place: &Place) -> usize {
    let count = std::env::var("TENURE_MUTATIONS").map_or(2_000, |count| count.parse().unwrap());
    if place.is_sqlite() { count } else { count / 10 }
}

async fn every_mutation_is_found_and_named(place: Place) {
    let mut chance = Chance(11);
    let mut journal = place.open().await;
    fill(&mut journal, 300, &mut chance).await;
    assert!(journal.verify(VerifyOptions::default()).await.unwrap().is_sound());
    let mut meddler = place.meddle().await;
    let sound = rows(&mut meddler).await;
    for round in 0..mutations(&place) {
        let mut changed = sound.clone();
        let (what, named) = mutate(&mut changed, &mut chance);
        change(&mut meddler, &sound, &changed).await;
        let report = journal.verify(VerifyOptions::default()).await.unwrap();
        let found = report
            .first_bad
            .unwrap_or_else(|| panic!("round {round}: {what} of {named} was not found"));
        assert_eq!(found.seq, named, "round {round}: {what}, found {found:?}");
        assert_eq!(report.events, named - 1);
        change(&mut meddler, &changed, &sound).await;
    }
    assert!(journal.verify(VerifyOptions::default()).await.unwrap().is_sound());
}

async fn a_cut_tail_is_found_by_a_signed_head(place: Place) {
    let mut chance = Chance(12);
    let mut journal = place.open().await;
    let (key, _) = SigningKey::generate();
    fill(&mut journal, 200, &mut chance).await;
    let kept = journal.sign_head(&key, 77).await.unwrap();
    let keys = vec![key.public_key()];
    let mut meddler = place.meddle().await;
    let sound = rows(&mut meddler).await;
    let verify = |heads: Vec<SignedHead>| {
        journal.verify(VerifyOptions {
            heads,
            keys: keys.clone(),
        })
    };
    assert!(verify(vec![kept.clone()]).await.unwrap().is_sound());
    for left in (0..sound.len()).rev().step_by(3) {
        change(&mut meddler, &sound, &sound[..left]).await;
        // The head in the table shows it, until the culprit removes that too; then the exported one does.
        let found = left.checked_sub(1).map_or(0, |last| sound[last].last as u64);
        let cut = verify(vec![]).await.unwrap().cut_tail.unwrap();
        assert_eq!(
            (cut.signed_seq, cut.found_seq, cut.signed_at_ms),
            (200, found, 77)
        );
        meddler.run("DELETE FROM head", &[]).await;
        assert_eq!(verify(vec![]).await.unwrap().cut_tail, None);
        assert_eq!(verify(vec![kept.clone()]).await.unwrap().cut_tail, Some(cut));
        change(&mut meddler, &sound[..left], &sound).await;
        journal.sign_head(&key, 77).await.unwrap();
    }
}

/// The journal again, as a culprit with all our code would write it: every hash, link and tree redone.
async fn forge(place: &Place, original: &Place, from: u64) {
    let source = JournalReader::open(&original.location).await.unwrap();
    let mut forged = place.open().await;
    let mut meddler = original.meddle().await;
    for row in rows(&mut meddler).await {
        let lines = source
            .read(row.first as u64, (row.last - row.first + 1) as usize)
            .await
            .unwrap();
        let entries = lines.into_iter().map(|line| tenure_journal::Entry {
            at_ms: line.at_ms,
            by: line.by.into(),
            request: line.request.map(Into::into),
            event: match line.seq == from {
                true => line.event.replacen("\"test\"", "\"TEST\"", 1).into(),
                false => line.event.into(),
            },
        });
        let entries = entries.collect();
        forged
            .append(tenure_journal::Batch {
                entries,
                ..Default::default()
            })
            .await
            .unwrap();
    }
}

async fn a_rewritten_chain_is_found_by_a_signed_head(place: Place) {
    let mut chance = Chance(13);
    let mut journal = place.open().await;
    let (key, _) = SigningKey::generate();
    let mut heads = Vec::new();
    for _ in 0..4 {
        fill(&mut journal, 50, &mut chance).await;
        heads.push(journal.sign_head(&key, 1).await.unwrap());
    }
    let mut meddler = place.meddle().await;
    let sound = rows(&mut meddler).await;
    let keys = vec![key.public_key()];
    for changed in [1, 49, 50, 51, 120, 200] {
        let forgery = Place::sqlite();
        forge(&forgery, &place, changed).await;
        let forged = rows(&mut forgery.meddle().await).await;
        assert_ne!(forged, sound);
        change(&mut meddler, &sound, &forged).await;
        meddler.run("DELETE FROM head", &[]).await;
        let report = journal.verify(VerifyOptions::default()).await.unwrap();
        assert!(report.is_sound(), "in itself the forgery holds: {report:?}");
        let options = VerifyOptions {
            heads: heads.clone(),
            keys: keys.clone(),
        };
        let report = journal.verify(options).await.unwrap();
        // Heads at 50, 100, 150, 200: all up to the last that agrees is proven.
        let proven = (changed - 1) / 50 * 50;
        assert_eq!(
            report.first_bad,
            Some(Bad {
                seq: proven + 1,
                what: Fault::Rewritten
            }),
            "{changed}"
        );
        change(&mut meddler, &forged, &sound).await;
    }
}

async fn heads_that_prove_nothing_are_named(place: Place) {
    let mut journal = place.open().await;
    fill(&mut journal, 20, &mut Chance(14)).await;
    let (key, _) = SigningKey::generate();
    let (stranger, _) = SigningKey::generate();
    let good = journal.sign_head(&key, 1).await.unwrap();
    let mut forged = good.clone();
    forged.seq = 900;
    let foreign = stranger.sign(journal.platform(), journal.head(), 1);
    let elsewhere = key.sign("plt_other", journal.head(), 1);
    let options = VerifyOptions {
        heads: vec![forged, foreign, elsewhere],
        keys: vec![key.public_key()],
    };
    let report = journal.verify(options).await.unwrap();
    assert_eq!(
        (report.first_bad, report.cut_tail, report.bad_heads.len()),
        (None, None, 3)
    );
}

#[test]
fn every_stored_subtree_is_checked() {
    crate::place::block_on(async {
        let place = Place::sqlite();
        let mut journal = place.open().await;
        for _ in 0..5 {
            let first = journal.head().seq + 1;
            journal
                .append(crate::place::batch(first..first + 1_000))
                .await
                .unwrap();
        }
        let mut meddler = place.meddle().await;
        let Meddler::Sqlite(conn) = &mut meddler else {
            unreachable!()
        };
        let nodes: Vec<(i64, i64)> = sqlx::query_as("SELECT level, place FROM subtree")
            .fetch_all(conn)
            .await
            .unwrap();
        assert_eq!(nodes.len(), 4 + 2 + 1);
        for (level, at) in nodes {
            let node = format!("WHERE level = {level} AND place = {at}");
            let Meddler::Sqlite(conn) = &mut meddler else {
                unreachable!()
            };
            let sql = format!("SELECT hash FROM subtree {node}");
            let kept: Vec<u8> = sqlx::query_scalar(AssertSqlSafe(sql))
                .fetch_one(conn)
                .await
                .unwrap();
            meddler
                .run(&format!("UPDATE subtree SET hash = $1 {node}"), &[&[1; 32]])
                .await;
            let bad = journal
                .verify(VerifyOptions::default())
                .await
                .unwrap()
                .first_bad
                .unwrap();
            assert_eq!(bad.what, Fault::Tree);
            meddler
                .run(&format!("UPDATE subtree SET hash = $1 {node}"), &[&kept])
                .await;
        }
        assert!(journal.verify(VerifyOptions::default()).await.unwrap().is_sound());
    });
}
