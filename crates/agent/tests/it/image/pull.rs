//! Fetching: what comes, what is asked again and what is not, who is told what, and what is refused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_agent::image::ImageError;
use tenure_api::secret_text::SecretText;

use super::built::{Built, architecture, index, sha256};
use super::fake::{Fake, honest, reply};
use super::registry::{CREDENTIALS, DockerRegistry};
use super::write::{directory, file};
use super::{Place, name, quick, read};

fn two_layers() -> Built {
    Built::new(vec![
        vec![
            directory("etc"),
            file("etc/below", "below"),
            file("etc/gone", "x"),
        ],
        vec![file("etc/above", "above"), file("etc/.wh.gone", "")],
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_comes_whole() {
    let registry = DockerRegistry::start().await;
    let built = two_layers();
    let tagged = registry.push("a/b", "v1", &built).await;
    let place = Place::new();
    let held = place.store.ensure(&name(&tagged), None).await.unwrap();
    let image = &held.image;
    assert_eq!(image.digest.to_string(), built.digest());
    assert_eq!(image.layers.len(), 2);
    assert_eq!(
        std::fs::read_to_string(image.layers[0].join("etc/above")).unwrap(),
        "above",
        "top first"
    );
    assert_eq!(
        std::fs::read_to_string(image.layers[1].join("etc/below")).unwrap(),
        "below"
    );
    assert_eq!(image.config.entrypoint, ["/bin/busybox"]);
    assert_eq!(image.config.cmd, ["echo", "hello"]);
    assert_eq!(image.config.env, ["PATH=/bin", "FROM=image"]);
    assert_eq!(image.config.workdir.as_deref(), Some("/work"));
    assert_eq!(image.config.user.as_deref(), Some("nobody"));
    assert!(image.bytes > 0);
    assert_eq!(
        place.store.known(),
        [tagged, built.digest()],
        "and placement hears of it"
    );
    assert_eq!(place.count("tmp"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_machines_this_one_is_chosen() {
    let registry = DockerRegistry::start().await;
    let mine = two_layers();
    let other = Built::for_machine("vax", vec![vec![file("x", "vax")]]);
    let both = index(&[("vax", &other), (architecture(), &mine)]);
    let tagged = registry.push_index("a/b", "v1", &both, &[&mine, &other]).await;
    let place = Place::new();
    let held = place.store.ensure(&name(&tagged), None).await.unwrap();
    assert_eq!(held.image.digest.to_string(), mine.digest());
    let pinned = format!("{}/a/b@{}", registry.host(), sha256(&both));
    let held = place.store.ensure(&name(&pinned), None).await.unwrap();
    assert_eq!(
        held.image.digest.to_string(),
        mine.digest(),
        "the index's digest means the same"
    );
    let only = index(&[("vax", &other)]);
    let tagged = registry.push_index("a/b", "v2", &only, &[&other]).await;
    let error = place.store.ensure(&name(&tagged), None).await.unwrap_err();
    assert!(error.to_string().contains("linux/vax"), "{error}");
    let lying = registry.push("a/b", "v3", &other).await;
    let error = place.store.ensure(&name(&lying), None).await.unwrap_err();
    assert!(error.to_string().contains("linux/vax"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_here_is_not_asked_for_unless_it_may_have_changed() {
    let mut registry = DockerRegistry::start().await;
    let (old, new) = (two_layers(), Built::new(vec![vec![file("new", "new")]]));
    let tagged = registry.push("a/b", "v1", &old).await;
    let latest = registry.push("a/b", "latest", &old).await;
    let place = Place::new();
    place.store.ensure(&name(&tagged), None).await.unwrap();
    place.store.ensure(&name(&latest), None).await.unwrap();
    registry.push("a/b", "v1", &new).await;
    registry.push("a/b", "latest", &new).await;
    let digest = |held: tenure_agent::image::store::Held| held.image.digest.to_string();
    let again = place.store.ensure(&name(&tagged), None).await.unwrap();
    assert_eq!(digest(again), old.digest(), "a tag is kept");
    let again = place.store.ensure(&name(&latest), None).await.unwrap();
    assert_eq!(digest(again), new.digest(), "latest is asked for each time");
    registry.stop();
    let pinned = format!("{}/a/b@{}", registry.host(), old.digest());
    assert_eq!(
        digest(place.store.ensure(&name(&pinned), None).await.unwrap()),
        old.digest()
    );
    assert_eq!(
        digest(place.store.ensure(&name(&tagged), None).await.unwrap()),
        old.digest()
    );
    let error = place.store.ensure(&name(&latest), None).await.unwrap_err();
    assert!(matches!(error, ImageError::Unreachable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_registry_opens_to_whom_it_knows_and_the_cache_to_nobody_else() {
    let registry = DockerRegistry::closed().await;
    let tagged = name(&registry.push("a/b", "v1", &two_layers()).await);
    let place = Place::new();
    let (right, wrong) = (SecretText::new(CREDENTIALS), SecretText::new("ada:wrong"));
    for credentials in [None, Some(&wrong)] {
        let error = place.store.ensure(&tagged, credentials).await.unwrap_err();
        assert!(matches!(error, ImageError::Denied { .. }), "{error}");
    }
    place.store.ensure(&tagged, Some(&right)).await.unwrap();
    for credentials in [None, Some(&wrong)] {
        let error = place.store.ensure(&tagged, credentials).await.unwrap_err();
        assert!(
            matches!(error, ImageError::Denied { .. }),
            "it is here, and not theirs: {error}"
        );
    }
    let pinned = format!("{}/a/b@{}", registry.host(), two_layers().digest());
    assert!(
        place.store.ensure(&name(&pinned), None).await.is_err(),
        "nor by its digest"
    );
    place.store.ensure(&tagged, Some(&right)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_spoilt_in_the_registry_are_found() {
    let registry = DockerRegistry::start().await;
    let built = two_layers();
    let tagged = name(&registry.push("a/b", "v1", &built).await);
    let other = Built::new(vec![vec![file("etc/below", "evil!")]]);
    for (spoilt, sent) in [
        (&built.layers[0].1, other.layers[0].1.clone()),
        (&built.layers[1].1, built.layers[1].1[..40].to_vec()),
        (&built.config, other.config.clone()),
    ] {
        let place = Place::new();
        let path = registry.blob_file(spoilt);
        std::fs::write(&path, &sent).unwrap();
        let error = place.store.ensure(&tagged, None).await.unwrap_err();
        assert!(
            matches!(error, ImageError::Damaged { .. } | ImageError::Unreachable { .. }),
            "{error}"
        );
        assert_eq!(place.count("tmp"), 0, "nothing half is left");
        assert!(place.store.known().is_empty());
        std::fs::write(&path, spoilt).unwrap();
        place.store.ensure(&tagged, None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn passing_errors_are_met_with_patience_and_others_are_not() {
    for (status, asked, passing) in [
        (401, 1, false),
        (403, 1, false),
        (404, 1, false),
        (418, 1, false),
        (429, 4, true),
        (500, 4, true),
        (503, 4, true),
    ] {
        let fake = Fake::start(move |_| reply(status));
        let error = Place::new()
            .store
            .ensure(&name(&format!("{}/x:v1", fake.host())), None)
            .await
            .unwrap_err();
        assert_eq!(error.is_passing(), passing, "{status}: {error}");
        assert_eq!(fake.asked().len(), asked, "{status}");
    }
    // Two failures, then well: of the manifest and of a layer.
    for part in ["/manifests/", "/blobs/"] {
        let built = two_layers();
        let tries = AtomicUsize::new(0);
        let fake = Fake::start(move |asked| {
            if asked.path.contains(part) && tries.fetch_add(1, Ordering::Relaxed) < 2 {
                return reply(503).header("retry-after", "0");
            }
            honest(&built, asked)
        });
        Place::new()
            .store
            .ensure(&name(&format!("{}/x:v1", fake.host())), None)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_cut_short_or_stalled_is_begun_again() {
    for how in ["cut", "stalled"] {
        let built = two_layers();
        let layer = sha256(&built.layers[0].1);
        let tries = AtomicUsize::new(0);
        let fake = Fake::start({
            let layer = layer.clone();
            move |asked| {
                let mut answer = honest(&built, asked);
                if asked.path.ends_with(&layer) && tries.fetch_add(1, Ordering::Relaxed) == 0 {
                    answer.cut = how == "cut";
                    answer.silence = Duration::from_millis(if how == "cut" { 0 } else { 5000 });
                }
                answer
            }
        });
        let place = Place::new();
        let held = place
            .store
            .ensure(&name(&format!("{}/x:v1", fake.host())), None)
            .await
            .unwrap();
        assert_eq!(
            read(&held.image.layers, "etc/below").as_deref(),
            Some("below"),
            "{how}"
        );
        assert_eq!(fake.count(&layer), 2, "{how}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_want_one_image_fetch_it_once() {
    let built = two_layers();
    let layers: Vec<String> = built.layers.iter().map(|(_, sent)| sha256(sent)).collect();
    let fake = Fake::start(move |asked| {
        let mut answer = honest(&built, asked);
        answer.silence = Duration::from_millis(50);
        answer
    });
    let place = Place::new();
    let wanted = name(&format!("{}/x:v1", fake.host()));
    let all: Vec<_> = (0..20)
        .map(|_| {
            let (store, wanted) = (place.store.clone(), wanted.clone());
            tokio::spawn(async move { store.ensure(&wanted, None).await.map(|held| held.image.digest) })
        })
        .collect();
    for one in all {
        one.await.unwrap().unwrap();
    }
    for layer in layers {
        assert_eq!(fake.count(&layer), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_fetched_with_the_credentials_and_told_only_to_its_registry() {
    let built = two_layers();
    let blobs = Fake::start({
        let built = built.clone();
        move |asked| honest(&built, asked)
    });
    let tokens = Fake::start(|asked| match asked.authorization.as_deref() {
        Some("Basic YWRhOnNlY3JldA==") => reply(200).body(br#"{"token":"for-ada"}"#),
        Some(_) => reply(401),
        None => reply(200).body(br#"{"access_token":"for-anybody"}"#),
    });
    let (token_host, blob_host) = (tokens.host(), blobs.host());
    let registry = Fake::start({
        let built = built.clone();
        move |asked| {
            let challenge = format!(r#"Bearer realm="http://{token_host}/token",service="fake",scope="x""#);
            match asked.authorization.as_deref() {
                Some("Bearer for-ada") if asked.path.contains("/blobs/") => {
                    reply(307).header("location", format!("http://{blob_host}{}", asked.path))
                }
                Some("Bearer for-ada") => honest(&built, asked),
                Some("Bearer for-anybody") if asked.path.contains("/open/") => honest(&built, asked),
                _ => reply(401).header("www-authenticate", challenge),
            }
        }
    });
    let place = Place::new();
    let ada = SecretText::new(CREDENTIALS);
    let closed = name(&format!("{}/closed:v1", registry.host()));
    let error = place.store.ensure(&closed, None).await.unwrap_err();
    assert!(matches!(error, ImageError::Denied { .. }), "{error}");
    place.store.ensure(&closed, Some(&ada)).await.unwrap();
    assert_eq!(
        blobs.asked().len(),
        3,
        "every blob came from where the registry led"
    );
    assert!(
        blobs.asked().iter().all(|asked| asked.authorization.is_none()),
        "and was told nothing"
    );
    let asked = tokens.asked();
    let scope = "service=fake&scope=repository%3Aclosed%3Apull";
    assert!(asked.iter().all(|asked| asked.path.ends_with(scope)), "{asked:?}");
    let open = name(&format!("{}/open/x:v1", registry.host()));
    Place::new().store.ensure(&open, None).await.unwrap();
    let error = place
        .store
        .ensure(&open, Some(&SecretText::new("eve:x")))
        .await
        .unwrap_err();
    assert!(matches!(error, ImageError::Denied { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn places_a_registry_may_not_lead_to() {
    for location in [
        "http://192.0.2.1/x",
        "ftp://127.0.0.1/x",
        "file:///etc/passwd",
        "http://[",
        "/again",
    ] {
        let fake = Fake::start(move |_| reply(302).header("location", location));
        let error = Place::new()
            .store
            .ensure(&name(&format!("{}/x:v1", fake.host())), None)
            .await
            .unwrap_err();
        assert!(matches!(error, ImageError::Refused(_)), "{location}: {error}");
    }
    let fake =
        Fake::start(|_| reply(401).header("www-authenticate", r#"Bearer realm="http://192.0.2.1/token""#));
    let ada = SecretText::new(CREDENTIALS);
    let error = Place::new()
        .store
        .ensure(&name(&format!("{}/x:v1", fake.host())), Some(&ada))
        .await
        .unwrap_err();
    assert!(matches!(error, ImageError::Refused(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_tls_and_off_the_internet_only_to_hosts_listed() {
    for host in ["127.0.0.1", "localhost", "0.0.0.0"] {
        let fake = Fake::start(|_| reply(404));
        let wanted = name(&format!("{host}:{}/x:v1", fake.port));
        let mut config = quick();
        config.private_registries.clear();
        let error = Place::with(config.clone())
            .store
            .ensure(&wanted, None)
            .await
            .unwrap_err();
        assert!(matches!(error, ImageError::Refused(_)), "{host}: {error}");
        assert!(!error.is_passing() && fake.asked().is_empty(), "{host}");
        config.insecure_registries = vec![format!("{host}:{}", fake.port)];
        let error = Place::with(config).store.ensure(&wanted, None).await.unwrap_err();
        assert!(matches!(error, ImageError::NotFound { .. }), "{host}: {error}");
    }
    // By an address that is listed and no loopback's: TLS is spoken, and no question asked.
    let fake = Fake::start(|_| reply(404));
    let mut config = quick();
    config.private_registries = vec!["0.0.0.0".into()];
    let wanted = name(&format!("0.0.0.0:{}/x:v1", fake.port));
    let error = Place::with(config).store.ensure(&wanted, None).await.unwrap_err();
    assert!(matches!(error, ImageError::Unreachable { .. }), "{error}");
    assert!(fake.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_on_this_machine_hears_of_what_a_registry_leads_to() {
    let built = two_layers();
    // What a stranger's registry would like to have fetched, with the machine's own standing.
    let inside = Fake::start(|_| reply(200).body(br#"{"token":"of-the-machine"}"#));
    for host in [inside.host(), format!("localhost:{}", inside.port)] {
        for scheme in ["http", "https"] {
            let place = format!("{scheme}://{host}/secret");
            let leads: [(&str, &str, String); 2] = [
                ("location", "manifest", place.clone()),
                (
                    "www-authenticate",
                    "token",
                    format!(r#"Bearer realm="{place}",service="x""#),
                ),
            ];
            for (header, what, value) in leads {
                let stranger = Fake::start(move |_| {
                    reply(if header == "location" { 302 } else { 401 }).header(header, value.clone())
                });
                // Listed alone, and not what else is on the machine.
                let mut config = quick();
                config.private_registries = vec![stranger.host()];
                let wanted = name(&format!("{}/x:v1", stranger.host()));
                let error = Place::with(config).store.ensure(&wanted, None).await.unwrap_err();
                assert!(
                    matches!(error, ImageError::Refused(_)),
                    "{what} at {place}: {error}"
                );
                assert!(
                    stranger.asked().iter().all(|asked| asked.authorization.is_none()),
                    "and is told nothing"
                );
            }
        }
    }
    assert!(inside.asked().is_empty(), "{:?}", inside.asked());
    // Where the operator listed both, they lead to one another.
    let blobs = Fake::start({
        let built = built.clone();
        move |asked| honest(&built, asked)
    });
    let elsewhere = blobs.host();
    let registry =
        Fake::start(move |asked| reply(307).header("location", format!("http://{elsewhere}{}", asked.path)));
    let mut config = quick();
    config.private_registries = vec![registry.host(), blobs.host()];
    let wanted = name(&format!("{}/x:v1", registry.host()));
    Place::with(config).store.ensure(&wanted, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_or_makes_no_sense_is_refused() {
    let built = two_layers();
    let manifest = |text: String| {
        let built = built.clone();
        Fake::start(move |asked| match asked.path.contains("/manifests/") {
            true => reply(200).body(text.as_bytes()),
            false => honest(&built, asked),
        })
    };
    let config = format!(r#""config":{{"digest":"{}","size":1}}"#, sha256(&built.config));
    let layer = format!(
        r#"{{"digest":"{}","size":99999999999999}}"#,
        sha256(&built.layers[0].1)
    );
    for (what, text) in [
        ("not JSON", "hello".to_owned()),
        (
            "schema 1",
            r#"{"schemaVersion":1,"name":"x","tag":"y","fsLayers":[]}"#.to_owned(),
        ),
        ("neither", r#"{"schemaVersion":2}"#.to_owned()),
        (
            "a strange digest",
            r#"{"schemaVersion":2,"config":{"digest":"md5:1"},"layers":[]}"#.to_owned(),
        ),
        (
            "other layers",
            format!(r#"{{"schemaVersion":2,{config},"layers":[]}}"#),
        ),
        (
            "an endless layer",
            format!(r#"{{"schemaVersion":2,{config},"layers":[{layer},{layer}]}}"#),
        ),
        ("a manifest without end", " ".repeat(5 << 20)),
        (
            "200 layers",
            format!(
                r#"{{"schemaVersion":2,{config},"layers":[{}]}}"#,
                vec![layer.as_str(); 200].join(",")
            ),
        ),
    ] {
        let fake = manifest(text);
        let place = Place::new();
        let error = place
            .store
            .ensure(&name(&format!("{}/x:v1", fake.host())), None)
            .await
            .unwrap_err();
        assert!(!error.is_passing() && !error.is_node_fault(), "{what}: {error:?}");
        assert!(place.store.known().is_empty(), "{what}");
    }
    let mut small = quick();
    small.image_bytes_max = 5000;
    let fake = Fake::start(move |asked| honest(&built, asked));
    let error = Place::with(small)
        .store
        .ensure(&name(&format!("{}/x:v1", fake.host())), None)
        .await
        .unwrap_err();
    assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
}
