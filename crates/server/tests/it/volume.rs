//! Volumes over HTTP: whole lives, conditions, repetitions, and what a node is told of them.

use reqwest::Method;
use serde_json::{Value, json};
use tenure_domain::id::{NodeId, VolumeId};
use tenure_domain::{Actor, Wish};
use tenure_server::reconcile::plan::{self, Step};

use crate::world::{World, spec};

fn with_volume(name: &str, volume: &str) -> Value {
    let mut spec = spec(name);
    spec["volumes"] = json!([{ "name": volume, "read_only": true }]);
    spec
}

async fn make(world: &World, token: &str, body: Value) -> Value {
    let made = world.post(token, "/v1/volumes", body).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_from_its_making_to_its_erasure() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (ada, key) = world.user(&tenant, "ada", Some("member")).await;
    let node: NodeId = world.node("n1", 8000).await;
    let made = world
        .send(
            world
                .request(Method::POST, "/v1/volumes", Some(&key))
                .header("idempotency-key", "once")
                .json(&json!({ "name": "data", "size_mib": 100 })),
        )
        .await;
    assert_eq!(made.status, 201, "{made:?}");
    let volume = made.json();
    let path = format!("/v1/volumes/{}", volume["id"].as_str().unwrap());
    assert_eq!(made.headers["location"], path.as_str());
    assert_eq!(volume["scope"], ada.as_str());
    assert_eq!(volume["scope_path"], "acme/ada");
    assert!(volume.get("node").is_none());
    let again = world
        .send(
            world
                .request(Method::POST, "/v1/volumes", Some(&key))
                .header("idempotency-key", "once")
                .json(&json!({ "name": "data", "size_mib": 100 })),
        )
        .await;
    assert_eq!(again.json()["id"], volume["id"]);

    let job = world
        .post(&key, "/v1/jobs", json!({ "spec": with_volume("j", "data") }))
        .await;
    assert_eq!(job.status, 201, "{job:?}");
    let shown = world.get(&key, &path).await;
    assert_eq!(shown.json()["node_name"], "n1");
    assert_eq!(shown.json()["jobs"], 1);
    let tag = shown.headers["etag"].to_str().unwrap().to_owned();
    let same = world
        .request(Method::GET, &path, Some(&key))
        .header("if-none-match", &tag);
    assert_eq!(world.send(same).await.status, 304);

    let grow_path = format!("{path}/grow");
    let grow = |condition: &str, size_mib: u64| {
        world.send(
            world
                .request(Method::POST, &grow_path, Some(&key))
                .header("if-match", condition)
                .json(&json!({ "size_mib": size_mib })),
        )
    };
    assert_eq!(grow("\"99\"", 200).await.status, 412);
    let grown = grow(&tag, 200).await;
    assert_eq!(
        (grown.status.as_u16(), &grown.json()["size_mib"]),
        (200, &json!(200))
    );
    let less = grow("*", 150).await;
    assert_eq!((less.status.as_u16(), less.field().as_str()), (422, "/size_mib"));

    let used = world.delete(&key, &path).await;
    assert_eq!(
        (used.status.as_u16(), used.code().as_str()),
        (409, "jobs_still_live")
    );
    let stop = format!("/v1/jobs/{}/stop", job.id());
    assert_eq!(world.post(&key, &stop, json!({})).await.status, 200);
    let allocation = {
        let state = world.controller.view().read();
        state.fleet.allocations_on(node).next().unwrap().id
    };
    let vanished = Wish::Observe {
        node,
        allocation,
        observation: tenure_domain::command::Observation::Vanished,
    };
    world
        .controller
        .submit(Actor::Node(node), vanished, None, None)
        .await
        .unwrap();
    assert_eq!(world.delete(&key, &path).await.status, 204);
    for gone in [
        world.get(&key, &path).await,
        world.delete(&key, &path).await,
        grow("*", 300).await,
    ] {
        assert_eq!(gone.status, 404);
    }
    // Whatever the node missed is said again, until it has erased the files.
    let id: VolumeId = volume["id"].as_str().unwrap().parse().unwrap();
    let erase = Step::EraseVolume(id);
    {
        let state = world.controller.view().read();
        assert!(plan::steps(&state, node, true, &[]).contains(&erase));
        assert!(!plan::steps(&state, node, false, &[]).contains(&erase));
        assert!(plan::sweep(&state, node, tenure_server::controller::now()).contains(&erase));
    }
    let erased = Wish::NoteVolumeErased { node, volume: id };
    world
        .controller
        .submit(Actor::Node(node), erased, None, None)
        .await
        .unwrap();
    let state = world.controller.view().read();
    assert!(!plan::steps(&state, node, true, &[]).contains(&erase));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_of_a_scope_and_below_or_of_what_ones_jobs_may_name() {
    let world = World::new().await;
    let (a, b) = (world.tenant("a").await, world.tenant("b").await);
    let lab = world.subscriber(&a, "lab").await;
    let (ada, ada_key) = world.user(&lab, "ada", Some("member")).await;
    let (_, tom_key) = world.user(&lab, "tom", None).await;
    let (_, eve_key) = world.user(&b, "eve", Some("owner")).await;
    for (scope, name) in [(&a, "far"), (&lab, "near"), (&ada, "own"), (&b, "foreign")] {
        make(
            &world,
            &world.owner,
            json!({ "scope": scope, "name": name, "size_mib": 16 }),
        )
        .await;
    }
    let names = async |token: &str, path: &str| -> Vec<String> {
        let items = world.get(token, path).await.json()["items"].clone();
        let items = items.as_array().unwrap().clone();
        let name = |item: &Value| item["name"].as_str().unwrap().to_owned();
        items.iter().map(name).collect()
    };
    assert_eq!(names(&ada_key, "/v1/volumes").await, ["far", "near", "own"]);
    assert_eq!(names(&tom_key, "/v1/volumes").await, ["far", "near"]);
    assert_eq!(names(&eve_key, "/v1/volumes").await, ["foreign"]);
    let below = format!("/v1/volumes?scope={lab}");
    assert_eq!(names(&ada_key, &below).await, ["near", "own"]);
    for scope in [a.as_str(), "nonsense", "platform"] {
        let hidden = world.get(&ada_key, &format!("/v1/volumes?scope={scope}")).await;
        assert_eq!(hidden.status, 404, "{scope}");
    }
    let first = world.get(&ada_key, "/v1/volumes?limit=2").await.json();
    let next = first["next"].as_str().unwrap();
    assert_eq!(
        names(&ada_key, &format!("/v1/volumes?limit=2&cursor={next}")).await,
        ["own"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_name_the_field_and_change_nothing() {
    let world = World::new().await;
    let tenant = world.tenant("acme").await;
    let (_, key) = world.user(&tenant, "ada", Some("member")).await;
    world
        .put(
            &world.owner,
            &format!("/v1/scopes/{tenant}/quota"),
            json!({ "limits": { "volume_mib": 64 } }),
        )
        .await;
    make(&world, &key, json!({ "name": "data", "size_mib": 32 })).await;
    let head = world.head();
    for (body, status, code, field) in [
        (
            json!({ "name": "data", "size_mib": 16 }),
            409,
            "name_taken",
            "/name",
        ),
        (
            json!({ "name": "a b", "size_mib": 16 }),
            422,
            "invalid_field",
            "/name",
        ),
        (
            json!({ "name": "x", "size_mib": 1 }),
            422,
            "invalid_field",
            "/size_mib",
        ),
        (
            json!({ "name": "x", "size_mib": 33 }),
            409,
            "quota_in_use",
            "/size_mib",
        ),
        (
            json!({ "name": "x", "size_mib": 65 }),
            403,
            "exceeds_quota",
            "/size_mib",
        ),
        (
            json!({ "name": "x", "size_mib": 16, "scope": "?" }),
            422,
            "invalid_field",
            "/scope",
        ),
    ] {
        let reply = world.post(&key, "/v1/volumes", body.clone()).await;
        let found = (reply.status.as_u16(), reply.code(), reply.field());
        assert_eq!(found, (status, code.to_owned(), field.to_owned()), "{body}");
    }
    let unknown = json!({ "spec": with_volume("j", "none") });
    let reply = world.post(&key, "/v1/jobs", unknown).await;
    assert_eq!(
        (reply.status.as_u16(), reply.field().as_str()),
        (422, "/spec/volumes/0/name")
    );
    assert_eq!(world.head(), head);
}
