//! Nodes that a tenant brings: its own people make the token, see the node and look after it; it serves nobody else, and
//! what it claims is asked for before it is let.

use reqwest::Method;
use serde_json::json;
use tenure_domain::market::check::GpuReport;
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::tenancy::key::Digest;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Actor, Event, Wish};
use tenure_server::controller::now;
use tenure_server::keyring::random;

use crate::world::World;

fn inventory(vram_mib: u64) -> Inventory {
    let gpu = GpuFacts {
        uuid: "GPU-own".into(),
        vendor: "maker".into(),
        model: "model".into(),
        class: "H100".into(),
        vram_mib,
        isolation: [(Isolation::Fenced, "by a worker".to_owned())].into(),
        hardware: None,
    };
    Inventory {
        cpu_milli: 64_000,
        memory_mib: 64 * 1024,
        gpus: vec![gpu],
        volume_mib: 0,
        images: Vec::new(),
    }
}

async fn does(world: &World, by: Actor, wish: Wish) -> Vec<std::sync::Arc<Event>> {
    let accepted = world.controller.submit(by, wish, None, None).await;
    accepted.expect("accepted").events
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_brings_a_node_and_looks_after_it() {
    let world = World::new().await;
    let acme = world.tenant("acme").await;
    let globex = world.tenant("globex").await;
    let (_, alma) = world.user(&acme, "alma", Some("operator")).await;
    let (_, ada) = world.user(&acme, "ada", Some("member")).await;
    let (_, gus) = world.user(&globex, "gus", Some("owner")).await;
    let wanted = json!({ "tenant": acme });
    let made = world.post(&alma, "/v1/nodes/tokens", wanted.clone()).await;
    assert_eq!(made.status, 201, "{made:?}");
    // Its members may not, others are told of no such tenant, and a tenant's operator makes none of the platform's.
    assert_eq!(
        world.post(&ada, "/v1/nodes/tokens", wanted.clone()).await.status,
        403
    );
    let foreign = world.post(&gus, "/v1/nodes/tokens", wanted).await;
    let absent = json!({ "tenant": "ten_zzzzzzzzzzzzz" });
    let absent = world.post(&gus, "/v1/nodes/tokens", absent).await;
    assert_eq!((foreign.status, foreign.code()), (absent.status, absent.code()));
    assert_eq!(world.post(&alma, "/v1/nodes/tokens", json!({})).await.status, 404);

    // As its agent would join with such a token.
    let (token, key) = (Digest(random()), Digest(random()));
    let tenant = Some(acme.parse().expect("an id"));
    let expires = now().plus_ms(60_000);
    let wish = Wish::CreateJoinToken {
        digest: token,
        expires,
        tenant,
    };
    does(&world, Actor::System, wish).await;
    let name = "own".into();
    let joined = does(&world, Actor::System, Wish::JoinNode { token, name, key }).await;
    let Event::NodeJoined { node, owner, .. } = *joined[0] else {
        panic!("{joined:?}")
    };
    assert_eq!(owner, tenant);
    let claims = |vram_mib| Wish::ReportInventory {
        node,
        inventory: inventory(vram_mib),
    };
    let told = does(&world, Actor::Node(node), claims(80_000)).await;
    let asked = |events: &[std::sync::Arc<Event>]| {
        events.iter().find_map(|event| match **event {
            Event::GpuCheckAsked { gpu, number, .. } => Some((gpu, number)),
            _ => None,
        })
    };
    let (gpu, number) = asked(&told).expect("it is asked what it is, before anybody offers it");
    let answer = |number, memory_mib| Wish::AnswerGpuCheck {
        node,
        gpu,
        number,
        report: GpuReport {
            uuid: "GPU-own".into(),
            memory_mib,
            speed: 5,
            untried: None,
        },
    };

    let path = format!("/v1/nodes/{node}");
    let shown = world.get(&alma, &path).await.json();
    assert_eq!(
        (&shown["owner"], &shown["labels"]["dedicated"]),
        (&json!(acme), &json!(acme))
    );
    assert_eq!(shown["gpus"][0].get("checked"), None, "it has yet to show it");
    does(&world, Actor::Node(node), answer(number, 80_000)).await;
    let shown = world.get(&alma, &path).await.json();
    assert!(shown["gpus"][0]["checked"].is_string(), "{shown}");
    // Of which more is said, has to show that.
    let told = does(&world, Actor::Node(node), claims(160_000)).await;
    let (_, again) = asked(&told).expect("it is asked again");
    let shown = world.get(&alma, &path).await.json();
    assert_eq!(shown["gpus"][0].get("checked"), None);
    let events = does(&world, Actor::Node(node), answer(again, 80_000)).await;
    assert!(
        matches!(&*events[0], Event::GpuChecked { lie: Some(lie), .. } if lie.contains("and not 160000")),
        "{events:?}"
    );

    // Its own people see and tend it, nobody else's.
    let own = world.get(&alma, &format!("/v1/nodes?tenant={acme}")).await.json();
    assert_eq!(own["items"].as_array().map(Vec::len), Some(1), "{own}");
    assert_eq!(
        world.get(&gus, &format!("/v1/nodes?tenant={acme}")).await.status,
        404
    );
    assert_eq!(world.get(&alma, "/v1/nodes").await.status, 404);
    let own = world
        .get(&world.owner, &format!("/v1/nodes?tenant={globex}"))
        .await
        .json();
    assert_eq!(own["items"], json!([]));
    for (token, expected) in [(&gus, 404), (&ada, 404), (&alma, 200)] {
        let cordoned = world.post(token, &format!("{path}/cordon"), json!({})).await;
        assert_eq!(cordoned.status, expected, "{cordoned:?}");
    }
    let strange = world.get(&gus, &path).await;
    let absent = world.get(&gus, "/v1/nodes/nod_zzzzzzzzzzzzz").await;
    assert_eq!((strange.status, strange.code()), (absent.status, absent.code()));
    // An operator says where it stands, and not that it is another's.
    let labels = json!({ "region": "here", "dedicated": acme });
    let labelled = world.put(&world.owner, &format!("{path}/labels"), labels).await;
    assert_eq!(labelled.status, 200, "{labelled:?}");
    for labels in [json!({}), json!({ "dedicated": globex })] {
        let taken = world.put(&world.owner, &format!("{path}/labels"), labels).await;
        assert_eq!(
            (taken.status.as_u16(), taken.code().as_str()),
            (422, "invalid_field")
        );
    }
    let removed = world
        .send(world.request(Method::DELETE, &path, Some(&alma)))
        .await;
    assert_eq!(removed.status, 204, "{removed:?}");
    let checks = world.controller.view().read().market.checks().count();
    assert_eq!(checks, 0, "and its check is forgotten");
}
