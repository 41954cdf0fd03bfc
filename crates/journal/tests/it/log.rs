//! Kept logs, on both databases: taken in once, read in order, erased by whose they are.

use tenure_journal::{Appended, Find, LogSource, LogStore, NewSource, NewStretch, Within};

use crate::place::{Place, both};

both!(
    a_stretch_is_kept_once_and_in_its_place,
    what_is_kept_of_one_job_is_bounded_and_says_so,
    stretches_are_found_by_whose_they_are_and_in_order,
    the_oldest_goes_first_and_a_tenant_goes_whole,
    logs_stand_when_they_are_opened_again,
);

async fn source(store: &LogStore, n: u64, scope: &str, job: &str) -> LogSource {
    let allocation = format!("alc_{n}");
    let tenant = scope.split('/').next().unwrap_or_default().to_owned();
    let new = NewSource {
        allocation: allocation.clone(),
        stream: "stdout".into(),
        job: job.into(),
        tenant,
        scope: scope.into(),
        about: "{}".into(),
        begun_ms: 1,
    };
    let noted = store.add_sources(vec![new.clone(), new.clone()]).await.unwrap();
    assert_eq!(noted.len(), 1, "once");
    assert!(
        store.add_sources(vec![new]).await.unwrap().is_empty(),
        "it is known"
    );
    store.source(&allocation, "stdout").await.unwrap().expect("noted")
}

fn stretch(of: &LogSource, first: u64, text: &str, at_ms: i64) -> NewStretch {
    NewStretch {
        source: of.id,
        tenant: of.tenant.clone(),
        scope: of.scope.clone(),
        job: of.job.clone(),
        parent: None,
        at_ms,
        levels: 4,
        first,
        bytes: text.len() as u64,
        data: text.as_bytes().to_vec(),
        is_last: false,
        job_bytes_max: 100,
        full: (8, b"full".to_vec()),
    }
}

fn all(within: Within) -> Find {
    Find {
        within,
        levels: 127,
        since_ms: None,
        until_ms: None,
        above: 0,
        below: u64::MAX,
        newest_first: false,
        limit: 100,
    }
}

async fn texts(store: &LogStore, find: &Find) -> Vec<String> {
    let heads = store.heads(find).await.unwrap();
    let mut texts = Vec::new();
    for head in heads {
        let stretch = store.stretches(&[head.id]).await.unwrap().remove(0);
        texts.push(String::from_utf8(stretch.data).unwrap());
    }
    texts
}

async fn a_stretch_is_kept_once_and_in_its_place(place: Place) {
    let _journal = place.open().await;
    let store = LogStore::open(&place.location).await.unwrap();
    let of = source(&store, 1, "ten_a/sub_b/usr_c", "job_1").await;
    let done = store
        .append(vec![
            stretch(&of, 0, "one", 10),
            stretch(&of, 3, "two", 11),
            stretch(&of, 3, "again", 12),
            stretch(&of, 9, "ahead", 12),
        ])
        .await
        .unwrap();
    use Appended::{Behind, Kept};
    assert_eq!(done, [Kept, Kept, Behind, Behind]);
    let at = async |offset| {
        let found = store.stretch_at(&of, offset).await.unwrap();
        found.map(|found| (found.first, found.data))
    };
    assert_eq!(at(0).await, Some((Some(0), b"one".to_vec())));
    assert_eq!(at(2).await, Some((Some(0), b"one".to_vec())));
    assert_eq!(at(3).await, Some((Some(3), b"two".to_vec())));
    assert_eq!(at(6).await, None);
    let last = NewStretch {
        is_last: true,
        ..stretch(&of, 6, "", 13)
    };
    assert_eq!(store.append(vec![last]).await.unwrap(), [Kept]);
    assert!(store.open_sources(0, 10).await.unwrap().is_empty());
    let late = store.append(vec![stretch(&of, 6, "late", 14)]).await.unwrap();
    assert_eq!(late, [Behind]);
    assert_eq!(texts(&store, &all(Within::All)).await, ["one", "two"]);
    store.close().await;
}

async fn what_is_kept_of_one_job_is_bounded_and_says_so(place: Place) {
    let _journal = place.open().await;
    let store = LogStore::open(&place.location).await.unwrap();
    let of = source(&store, 1, "ten_a", "job_1").await;
    let other = source(&store, 2, "ten_a", "job_1").await;
    let (large, small) = ("x".repeat(90), "y".repeat(10));
    let done = store
        .append(vec![stretch(&of, 0, &large, 1), stretch(&of, 90, &large, 2)])
        .await
        .unwrap();
    assert_eq!(done, [Appended::Kept, Appended::Full]);
    let full = store.source("alc_1", "stdout").await.unwrap().unwrap();
    assert_eq!((full.full_at, full.is_open), (Some(90), false));
    // What was not kept does not count.
    let done = store.append(vec![stretch(&other, 0, &small, 3)]).await.unwrap();
    assert_eq!(done, [Appended::Kept]);
    let found = texts(&store, &all(Within::Job("job_1".into()))).await;
    assert_eq!(found, [large.as_str(), "full", &small]);
    store.close().await;
}

async fn stretches_are_found_by_whose_they_are_and_in_order(place: Place) {
    let _journal = place.open().await;
    let store = LogStore::open(&place.location).await.unwrap();
    let ada = source(&store, 1, "ten_a/sub_b/usr_ada", "job_1").await;
    let bo = source(&store, 2, "ten_a/usr_bo", "job_2").await;
    let cleo = source(&store, 3, "ten_x/usr_cleo", "job_3").await;
    for (n, of) in [&ada, &bo, &cleo, &ada].into_iter().enumerate() {
        let next = store
            .source(&of.allocation, "stdout")
            .await
            .unwrap()
            .unwrap()
            .next;
        let mut one = stretch(of, next, &format!("{n}"), 100 + n as i64);
        one.levels = 1 << n;
        one.parent = (n == 1).then(|| "job_1".to_owned());
        store.append(vec![one]).await.unwrap();
    }
    let scope = |path: &str| all(Within::Scope(path.into()));
    assert_eq!(texts(&store, &all(Within::All)).await, ["0", "1", "2", "3"]);
    assert_eq!(texts(&store, &scope("ten_a")).await, ["0", "1", "3"]);
    assert_eq!(texts(&store, &scope("ten_a/sub_b")).await, ["0", "3"]);
    assert_eq!(texts(&store, &scope("ten_a/sub_b/usr_ada")).await, ["0", "3"]);
    assert_eq!(texts(&store, &scope("ten_a/usr_bo")).await, ["1"]);
    assert_eq!(texts(&store, &scope("ten_")).await, Vec::<String>::new());
    let job = all(Within::Job("job_1".into()));
    assert_eq!(texts(&store, &job).await, ["0", "1", "3"], "with its tasks");
    let newest = Find {
        newest_first: true,
        limit: 2,
        ..scope("ten_a")
    };
    assert_eq!(texts(&store, &newest).await, ["3", "1"]);
    let grave = Find {
        levels: 0b1100,
        ..all(Within::All)
    };
    assert_eq!(texts(&store, &grave).await, ["2", "3"]);
    let middle = Find {
        since_ms: Some(101),
        until_ms: Some(103),
        ..all(Within::All)
    };
    assert_eq!(texts(&store, &middle).await, ["1", "2"]);
    let (above, below) = store.bounds(Some(101), Some(103)).await.unwrap();
    assert!(above < 2 && below > 3, "{above} {below}");
    let (above, _) = store.bounds(Some(1000), None).await.unwrap();
    assert!(above > 4);
    store.close().await;
}

async fn the_oldest_goes_first_and_a_tenant_goes_whole(place: Place) {
    let _journal = place.open().await;
    let store = LogStore::open(&place.location).await.unwrap();
    let ours = source(&store, 1, "ten_a/usr_b", "job_1").await;
    let theirs = source(&store, 2, "ten_x/usr_y", "job_2").await;
    for n in 0..4 {
        let text = format!("{n}");
        store
            .append(vec![
                stretch(&ours, n, &text, n as i64),
                stretch(&theirs, n, &text, n as i64),
            ])
            .await
            .unwrap();
    }
    let one = store.sizes().await.unwrap()[0].1 / 4;
    assert_eq!(store.erase_oldest("ten_a", 1, 0, 100).await.unwrap().stretches, 1);
    assert_eq!(store.erased("ten_a").await.unwrap(), Some((1, 0)));
    let gone = store.erase_oldest("ten_a", i64::MIN, one + 1, 100).await.unwrap();
    assert_eq!((gone.stretches, gone.size), (2, 2 * one));
    assert_eq!(texts(&store, &all(Within::Scope("ten_a".into()))).await, ["3"]);
    assert_eq!(
        store.sizes().await.unwrap(),
        [("ten_a".to_owned(), one), ("ten_x".to_owned(), 4 * one)]
    );
    assert!(!store.erase_tenant("ten_x", 3).await.unwrap());
    assert!(store.erase_tenant("ten_x", 3).await.unwrap());
    assert_eq!(store.source("alc_2", "stdout").await.unwrap(), None);
    assert_eq!(store.sizes().await.unwrap().len(), 1);
    // A source that may still bring something is remembered, one that may not is forgotten with its last stretch.
    store.erase_oldest("ten_a", 100, 0, 100).await.unwrap();
    store.forget(1_000).await.unwrap();
    assert!(store.source("alc_1", "stdout").await.unwrap().is_some());
    store.close_sources(&[ours.id]).await.unwrap();
    store.forget(1_000).await.unwrap();
    assert_eq!(store.source("alc_1", "stdout").await.unwrap(), None);
    store.close().await;
}

async fn logs_stand_when_they_are_opened_again(place: Place) {
    let _journal = place.open().await;
    let store = LogStore::open(&place.location).await.unwrap();
    let of = source(&store, 1, "ten_a", "job_1").await;
    store.append(vec![stretch(&of, 0, "one", 1)]).await.unwrap();
    assert_eq!(store.mark("followed").await.unwrap(), None);
    store.set_mark("followed", 7).await.unwrap();
    store.close().await;
    let store = LogStore::open(&place.location).await.unwrap();
    assert_eq!(store.mark("followed").await.unwrap(), Some(7));
    assert_eq!(store.open_sources(0, 10).await.unwrap()[0].next, 3);
    assert_eq!(texts(&store, &all(Within::All)).await, ["one"]);
    store.close().await;
}
