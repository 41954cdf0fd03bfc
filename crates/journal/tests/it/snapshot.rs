//! Snapshots: the newest good one is used, a damaged one is skipped.

use tenure_journal::JournalError;

use crate::place::{Chance, Place, both, fill};

both!(the_newest_two_are_kept, a_damaged_one_is_passed_over);

async fn the_newest_two_are_kept(place: Place) {
    let mut journal = place.open().await;
    assert_eq!(journal.latest_snapshot(1).await.unwrap(), None);
    journal.write_snapshot(0, 1, b"nothing yet").await.unwrap();
    assert_eq!(
        journal.latest_snapshot(1).await.unwrap().unwrap().bytes,
        b"nothing yet"
    );
    for n in 1..6u64 {
        fill(&mut journal, 10, &mut Chance(n)).await;
        // Several parts, the last not whole.
        let bytes = vec![n as u8; (3 << 20) + 17];
        journal.write_snapshot(10 * n, 1, &bytes).await.unwrap();
        let found = journal.latest_snapshot(1).await.unwrap().unwrap();
        assert_eq!((found.seq, found.hash), (10 * n, journal.head().hash));
        assert_eq!(found.bytes, bytes);
    }
    assert_eq!(journal.latest_snapshot(2).await.unwrap(), None);
    journal.write_snapshot(30, 2, b"").await.unwrap();
    assert_eq!(journal.latest_snapshot(2).await.unwrap().unwrap().bytes, b"");
    let error = journal.write_snapshot(51, 1, b"future").await.unwrap_err();
    assert!(matches!(error, JournalError::NoSuchEvent { .. }));
    let mut meddler = place.meddle().await;
    meddler.run("DELETE FROM snapshot WHERE seq = 50", &[]).await;
    assert_eq!(journal.latest_snapshot(1).await.unwrap().unwrap().seq, 40);
    meddler.run("DELETE FROM snapshot WHERE seq = 40", &[]).await;
    assert_eq!(journal.latest_snapshot(1).await.unwrap(), None);
}

async fn a_damaged_one_is_passed_over(place: Place) {
    let mut journal = place.open().await;
    let damages = [
        "UPDATE snapshot_part SET bytes = $1 WHERE seq = 20 AND part = 1",
        "UPDATE snapshot SET sum = $1 WHERE seq = 20",
        "UPDATE snapshot SET hash = $1 WHERE seq = 20",
        "UPDATE snapshot SET size = size + 1 WHERE seq = 20",
        "DELETE FROM snapshot_part WHERE seq = 20 AND part = 1",
    ];
    fill(&mut journal, 20, &mut Chance(1)).await;
    for damage in damages {
        journal.write_snapshot(10, 1, b"older").await.unwrap();
        journal.write_snapshot(20, 1, &vec![9; 2_000_000]).await.unwrap();
        assert_eq!(journal.latest_snapshot(1).await.unwrap().unwrap().seq, 20);
        let blob: &[&[u8]] = if damage.contains("$1") { &[&[1; 32]] } else { &[] };
        place.meddle().await.run(damage, blob).await;
        let found = journal.latest_snapshot(1).await.unwrap().unwrap();
        assert_eq!(
            (found.seq, found.bytes.as_slice()),
            (10, b"older".as_slice()),
            "{damage}"
        );
    }
    place
        .meddle()
        .await
        .run("UPDATE snapshot_part SET bytes = $1", &[b"all of them"])
        .await;
    assert_eq!(journal.latest_snapshot(1).await.unwrap(), None);
}
