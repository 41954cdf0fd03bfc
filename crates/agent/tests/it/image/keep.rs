//! What is kept and what goes: the least recently used, never what is used, and nothing half after a crash.

use tenure_agent::image::ImageError;
use tenure_agent::image::store::Store;

use super::built::Built;
use super::fake::{Fake, honest};
use super::write::file;
use super::{Place, name, quick};

/// A registry with images of one private layer each and one that all share.
fn registry(count: usize) -> (Fake, Vec<Built>) {
    let images: Vec<Built> = (0..count)
        .map(|n| {
            Built::new(vec![
                vec![file("shared", "x")],
                vec![file(format!("own{n}"), vec![n as u8; 100_000])],
            ])
        })
        .collect();
    let fake = Fake::start({
        let images = images.clone();
        move |asked| {
            let own = images
                .iter()
                .enumerate()
                .find(|(n, _)| asked.path.contains(&format!("/image{n}/")));
            own.map_or_else(|| super::fake::reply(404), |(_, built)| honest(built, asked))
        }
    });
    (fake, images)
}

fn named(fake: &Fake, number: usize) -> tenure_domain::workload::image::ImageName {
    name(&format!("{}/image{number}:v1", fake.host()))
}

/// Seconds tell uses apart, so older ones are made older.
fn age(place: &Place, by_s: u64) {
    let path = place.root.path().join("images/index.json");
    let mut index: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for image in index["images"].as_object_mut().unwrap().values_mut() {
        let used_s = image["used_s"].as_u64().unwrap() - by_s;
        image["used_s"] = used_s.into();
    }
    std::fs::write(path, serde_json::to_vec(&index).unwrap()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_recently_used_goes_and_what_is_used_stays() {
    let (fake, _) = registry(5);
    // Each has about 110,000 bytes of its own, so three fit.
    let place = Place::with(tenure_agent::image::ImageConfig {
        kept_bytes: 350_000,
        ..quick()
    });
    let allocation = place.root.path().join("allocations/alloc_1");
    std::fs::create_dir_all(&allocation).unwrap();
    for number in 0..3 {
        let held = place.store.ensure(&named(&fake, number), None).await.unwrap();
        if number == 0 {
            held.note(&allocation).unwrap();
        }
        drop(held);
        age(&place, 100);
    }
    assert_eq!(place.count("layers"), 4, "three, and the one they share");
    // Used again, so the one after it is now the oldest of no use.
    place.store.ensure(&named(&fake, 1), None).await.unwrap();
    place.store.ensure(&named(&fake, 3), None).await.unwrap();
    let has = |number: usize| place.store.known().contains(&named(&fake, number).to_string());
    assert_eq!([0, 1, 2, 3].map(has), [true, true, false, true]);
    assert_eq!(place.count("layers"), 4);
    let error = place.store.remove(&named(&fake, 0).to_string()).unwrap_err();
    assert!(matches!(error, ImageError::Refused(_)), "{error}");
    std::fs::remove_dir_all(&allocation).unwrap();
    place.store.remove(&named(&fake, 0).to_string()).unwrap();
    assert_eq!(place.count("layers"), 3, "the shared one stays for the others");
    assert_eq!(place.count("tmp"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_is_about_to_use_stays() {
    let (fake, _) = registry(2);
    let place = Place::new();
    let held = place.store.ensure(&named(&fake, 0), None).await.unwrap();
    // Another process, as `tenure-agent image remove` would be.
    let other = Store::open(place.root.path(), quick()).unwrap();
    other.remove(&named(&fake, 0).to_string()).unwrap();
    assert!(
        held.image.layers.iter().all(|layer| layer.exists()),
        "no name any more, but all its files"
    );
    drop(held);
    Store::open(place.root.path(), quick()).unwrap();
    assert_eq!(place.count("layers"), 0, "later it goes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_leaves_nothing_half() {
    let (fake, _) = registry(2);
    let place = Place::new();
    place.store.ensure(&named(&fake, 0), None).await.unwrap();
    let images = place.root.path().join("images");
    // As a crash would leave them: half a layer, and a whole one that no image has yet.
    std::fs::create_dir_all(images.join("tmp/1-0/layer/etc")).unwrap();
    let orphan = images.join("layers").join("ab".repeat(32));
    std::fs::create_dir_all(&orphan).unwrap();
    let store = Store::open(place.root.path(), quick()).unwrap();
    assert_eq!(place.count("tmp"), 0);
    assert!(!orphan.exists());
    assert_eq!(place.count("layers"), 2, "what is complete stays");
    let before = fake.asked().len();
    store.ensure(&named(&fake, 0), None).await.unwrap();
    assert_eq!(fake.asked().len(), before, "and is used without asking");
    // An index that cannot be read is as none: the image is fetched again.
    std::fs::write(images.join("index.json"), "{").unwrap();
    let store = Store::open(place.root.path(), quick()).unwrap();
    store.ensure(&named(&fake, 0), None).await.unwrap();
    assert!(fake.asked().len() > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_vanished_is_fetched_again() {
    let (fake, _) = registry(1);
    let place = Place::new();
    let layers = place
        .store
        .ensure(&named(&fake, 0), None)
        .await
        .unwrap()
        .image
        .layers;
    std::fs::remove_dir_all(&layers[0]).unwrap();
    place.store.ensure(&named(&fake, 0), None).await.unwrap();
    assert!(layers[0].exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn placement_hears_of_a_hundred_at_most() {
    let place = Place::new();
    let images: serde_json::Map<String, serde_json::Value> = (0..150)
        .map(|n| {
            let kept = serde_json::json!({
                "layers": [], "used_s": n, "open": true,
                "config": {"env": [], "entrypoint": [], "cmd": [], "workdir": null, "user": null},
            });
            (format!("sha256:{n:064x}"), kept)
        })
        .collect();
    let index = serde_json::json!({"images": images});
    std::fs::write(place.root.path().join("images/index.json"), index.to_string()).unwrap();
    let known = place.store.known();
    assert_eq!(known.len(), 100);
    assert_eq!(known[0], format!("sha256:{:064x}", 50), "those used last");
}
