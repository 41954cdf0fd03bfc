//! Following: nothing missed, nothing twice, however the reader comes and goes.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use tenure_journal::Journal;

use crate::place::{Chance, Place, both, fill};

both!(a_follower_sees_every_event_once, a_follower_hears_soon);

async fn a_follower_sees_every_event_once(place: Place) {
    let mut journal = place.open().await;
    fill(&mut journal, 30, &mut Chance(1)).await;
    let inside = journal
        .follow(1)
        .take(300)
        .map_ok(|line| line.seq)
        .try_collect::<Vec<u64>>();
    let reader = Journal::open_reader(&place.location).await.unwrap();
    let outside = reader
        .follow(11)
        .take(290)
        .map_ok(|line| line.seq)
        .try_collect::<Vec<u64>>();
    let (inside, outside) = (tokio::spawn(inside), tokio::spawn(outside));
    for n in 0..9 {
        fill(&mut journal, 30, &mut Chance(n)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(inside.await.unwrap().unwrap(), (1..=300).collect::<Vec<_>>());
    assert_eq!(outside.await.unwrap().unwrap(), (11..=300).collect::<Vec<_>>());
}

/// Well under the poll: the wake-up came from the leader in this process or from PostgreSQL.
async fn a_follower_hears_soon(place: Place) {
    let mut journal = place.open().await;
    let reader = Journal::open_reader(&place.location).await.unwrap();
    let mut follower = match place.is_sqlite() {
        true => journal.follow(1).boxed(),
        false => reader.follow(1).boxed(),
    };
    let mut slow = 0;
    for n in 0..20 {
        let waiting = tokio::spawn(async move {
            let line = follower.next().await.unwrap().unwrap();
            (std::time::Instant::now(), line, follower)
        });
        tokio::time::sleep(Duration::from_millis(40)).await;
        journal.append(crate::place::batch([n])).await.unwrap();
        let committed = std::time::Instant::now();
        let (heard, line, back) = waiting.await.unwrap();
        assert_eq!(line.seq, n + 1);
        slow += usize::from(heard.saturating_duration_since(committed) > Duration::from_millis(60));
        follower = back;
    }
    assert!(slow <= 3, "{slow} of 20 were heard by the clock only");
}
