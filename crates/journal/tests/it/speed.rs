//! Appends per second, not a test: `cargo test -p tenure-journal -- --ignored --nocapture speed`.

use std::time::{Duration, Instant};

use crate::place::{Place, batch, block_on};

async fn measure(place: Place, size: u64) -> f64 {
    let mut journal = place.open().await;
    let start = Instant::now();
    let mut events = 0;
    while start.elapsed() < Duration::from_secs(4) {
        journal.append(batch(0..size)).await.unwrap();
        events += size;
    }
    events as f64 / start.elapsed().as_secs_f64()
}

#[test]
#[ignore = "a measurement"]
fn appends_per_second() {
    block_on(async {
        for size in [1, 10, 100, 500, 2_000] {
            let sqlite = measure(Place::sqlite(), size).await;
            let postgres = measure(Place::postgres(), size).await;
            println!(
                "batches of {size:>5}: SQLite {sqlite:>9.0} events/s, PostgreSQL {postgres:>9.0} events/s"
            );
        }
    });
}

#[test]
#[ignore = "a measurement"]
fn a_million_events() {
    block_on(async {
        for place in [Place::sqlite(), Place::postgres()] {
            let kind = if place.is_sqlite() { "SQLite" } else { "PostgreSQL" };
            let mut journal = place.open().await;
            let start = Instant::now();
            for n in 0..2_000 {
                journal.append(batch(n * 500..n * 500 + 500)).await.unwrap();
            }
            println!("{kind}: a million events appended in {:?}", start.elapsed());
            let start = Instant::now();
            for seq in [1, 1_000_000, 499_999, 777_777] {
                journal.prove(seq, 1_000_000).await.unwrap();
                journal.prove(1, 999_999 - seq % 7).await.unwrap();
            }
            println!("{kind}: a proof takes {:?}", start.elapsed() / 8);
            let start = Instant::now();
            assert!(journal.verify(Default::default()).await.unwrap().is_sound());
            println!("{kind}: verified in {:?}", start.elapsed());
            let start = Instant::now();
            journal.backup(&place.file("backup")).await.unwrap();
            println!("{kind}: backed up in {:?}", start.elapsed());
            journal.close().await.unwrap();
            let start = Instant::now();
            place.open().await;
            println!("{kind}: opened in {:?}", start.elapsed());
        }
    });
}
