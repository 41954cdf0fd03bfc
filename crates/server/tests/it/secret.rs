//! What is secret is seen once by who may, and nowhere else: no answer, no journal line, no file.

use serde_json::{Value, json};

use crate::world::{World, spec};

fn files_with(dir: &std::path::Path, needle: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file()
            && std::fs::read(&path)
                .unwrap()
                .windows(needle.len())
                .any(|window| window == needle)
        {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn canaries_stay_in_their_cages() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (ada, ada_key) = world.user(&tenant, "ada", Some("owner")).await;
    let mut canaries = vec![world.owner.clone(), ada_key.clone()];
    let mut answers: Vec<Value> = Vec::new();

    for i in 0..50 {
        let canary = format!("canary-{i}-{}", world.head());
        let path = format!("/v1/scopes/{ada}/secrets/s{}", i % 10);
        answers.push(
            world
                .put(&ada_key, &path, json!({ "value": canary }))
                .await
                .json(),
        );
        canaries.push(canary);
        let key = world
            .post(
                &ada_key,
                &format!("/v1/users/{ada}/keys"),
                json!({ "label": "k" }),
            )
            .await
            .json();
        canaries.push(key["token"].as_str().unwrap().to_owned());
        let ticket = world
            .post(&world.owner, "/v1/nodes/tokens", json!({}))
            .await
            .json();
        canaries.push(
            ticket["token"]
                .as_str()
                .unwrap()
                .split('.')
                .next()
                .unwrap()
                .to_owned(),
        );
    }
    let mut with_secret = spec("uses-it");
    with_secret["secrets"] = json!({ "PASSWORD": "s1" });
    answers.push(
        world
            .post(&ada_key, "/v1/jobs", json!({ "spec": with_secret }))
            .await
            .json(),
    );
    assert_eq!(
        world
            .delete(&ada_key, &format!("/v1/scopes/{ada}/secrets/s2"))
            .await
            .status,
        204
    );

    let mut texts: Vec<String> = answers.iter().map(Value::to_string).collect();
    for path in [
        format!("/v1/users/{ada}/keys"),
        format!("/v1/scopes/{ada}/secrets"),
        "/v1/jobs".into(),
        "/v1/whoami".into(),
        "/v1/events?from=1&follow=false".into(),
        "/v1/nodes".into(),
        "/v1/journal/head".into(),
    ] {
        texts.push(String::from_utf8(world.get(&world.owner, &path).await.bytes).unwrap());
    }
    for seq in 1..=world.head() {
        texts.push(
            String::from_utf8(
                world
                    .get(&world.owner, &format!("/v1/journal/proofs/{seq}"))
                    .await
                    .bytes,
            )
            .unwrap(),
        );
    }
    // A token in a wrong place is not repeated back either.
    let odd = world
        .get(&world.owner, &format!("/v1/whoami?key={ada_key}"))
        .await;
    texts.push(String::from_utf8(odd.bytes).unwrap());
    for canary in &canaries {
        assert!(
            !texts.iter().any(|text| text.contains(canary.as_str())),
            "{canary} was shown"
        );
    }
    let live_names = world.controller.view().read().secrets.len();
    assert_eq!(live_names, 9);
    let dir = world.end().await;
    for canary in &canaries {
        assert_eq!(
            files_with(dir.path(), canary.as_bytes()),
            Vec::<String>::new(),
            "{canary}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_writes_over_but_never_reads() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (_, boss) = world.user(&tenant, "boss", Some("owner")).await;
    let (ada, ada_key) = world.user(&tenant, "ada", None).await;
    let path = format!("/v1/scopes/{ada}/secrets/mine");
    assert_eq!(
        world
            .put(&ada_key, &path, json!({ "value": "hers" }))
            .await
            .status,
        200
    );
    assert_eq!(world.get(&boss, &path).await.code(), "method_not_allowed");
    assert_eq!(
        world.put(&boss, &path, json!({ "value": "his" })).await.status,
        200
    );
    // Nor through a job that would print it.
    let mut prying = spec("prying");
    prying["secrets"] = json!({ "X": "mine" });
    let reply = world
        .post(&boss, "/v1/jobs", json!({ "owner": ada, "spec": prying }))
        .await;
    assert_eq!(
        (reply.code().as_str(), reply.field().as_str()),
        ("not_permitted", "/spec/secrets")
    );
    for value in ["", "nul\u{0}byte"] {
        let reply = world.put(&ada_key, &path, json!({ "value": value })).await;
        assert_eq!((reply.status.as_u16(), reply.field().as_str()), (422, "/value"));
    }
}
