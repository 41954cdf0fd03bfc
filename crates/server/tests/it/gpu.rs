//! Who sees what of a device that two tenants share.

use serde_json::{Value, json};
use tenure_api::channel::reading::{DeviceReading, Gauges, SliceReading, SliceUse};
use tenure_domain::id::AllocationId;
use tenure_engine::Measured;
use tenure_server::controller::now;

use crate::world::World;

pub const GPU: &str = "GPU-shared";

/// Two tenants on one device, and a third with nothing on it.
pub struct House {
    pub world: World,
    gpu: String,
    pub ada: String,
    pub boss: String,
    cleo: String,
    pub stranger: String,
    pub auditor: String,
}

impl House {
    pub async fn new() -> House {
        let world = World::new().await;
        let gpu = world.gpu(GPU).await.to_string();
        let mut tenants = Vec::new();
        for name in ["acme", "globex", "hooli"] {
            let tenant = world.tenant(name).await;
            let policy = json!({ "share_guarded": true });
            let set = world
                .put(&world.owner, &format!("/v1/scopes/{tenant}/policy"), policy)
                .await;
            assert_eq!(set.status, 200, "{set:?}");
            tenants.push(tenant);
        }
        let (ada_id, ada) = world.user(&tenants[0], "ada", Some("member")).await;
        let (_, boss) = world.user(&tenants[0], "boss", Some("auditor")).await;
        let (cleo_id, cleo) = world.user(&tenants[1], "cleo", Some("member")).await;
        let (_, stranger) = world.user(&tenants[2], "stranger", Some("owner")).await;
        let (_, auditor) = world.user("platform", "auditor", Some("auditor")).await;
        let house = House {
            world,
            gpu,
            ada,
            boss,
            cleo,
            stranger,
            auditor,
        };
        let train = house.start(&ada_id, "train", 300, 2048).await;
        let render = house.start(&cleo_id, "render", 500, 4096).await;
        // After them, so that they are on the other.
        house.world.gpu("GPU-idle").await;
        house.read(&[(train, 111), (render, 222)]);
        house
    }

    async fn start(&self, owner: &str, name: &str, permille: u16, vram_mib: u64) -> AllocationId {
        let demand =
            json!({ "gpus": 1, "compute_permille": permille, "vram_mib": vram_mib, "isolation": "guarded" });
        let spec = json!({ "name": name, "command": ["true"], "demand": demand });
        let body = json!({ "owner": owner, "spec": spec });
        let reply = self.world.post(&self.world.owner, "/v1/jobs", body).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        let job = reply.json();
        assert_eq!(job["phase"], "placed", "{job}");
        job["allocation"]["id"].as_str().unwrap().parse().unwrap()
    }

    /// What the node says of the device.
    pub fn read(&self, busy: &[(AllocationId, u16)]) {
        let slices = busy.iter().map(|&(allocation, busy)| SliceReading {
            allocation,
            use_now: SliceUse {
                used_vram_mib: u64::from(busy),
                busy_permille: Some(busy),
                ..SliceUse::default()
            },
        });
        let gauges = Gauges {
            busy_permille: Some(333),
            temperature_c: Some(60),
            ..Gauges::default()
        };
        let node = {
            let state = self.world.controller.view().read();
            state.fleet.find_gpu_by_uuid(GPU).unwrap().0.id
        };
        let devices = vec![DeviceReading {
            uuid: GPU.into(),
            gauges,
            slices: slices.collect(),
            parts: Vec::new(),
        }];
        self.world.readings.take(Measured { node, devices }, now());
    }

    async fn list(&self, token: &str) -> Vec<Value> {
        let reply = self.world.get(token, "/v1/gpus").await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["items"].as_array().unwrap().clone()
    }

    async fn show(&self, token: &str) -> Value {
        let reply = self.world.get(token, &format!("/v1/gpus/{}", self.gpu)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleets_readers_see_everything() {
    let house = House::new().await;
    for token in [&house.world.owner, &house.auditor] {
        assert_eq!(house.list(token).await.len(), 2);
        let device = house.show(token).await;
        assert_eq!(device["gauges"]["temperature_c"], 60);
        assert_eq!(device["stale"], false);
        assert_eq!(device["recent"]["busy_permille"].as_array().unwrap().len(), 60);
        let slices = &device["slices"];
        assert_eq!(slices[0]["holder"]["owner_path"], "acme/ada");
        assert_eq!(slices[0]["holder"]["isolation"], "guarded");
        assert_eq!(slices[1]["holder"]["job_name"], "render");
        assert_eq!(slices[1]["used"]["busy_permille"], 222);
        assert_eq!(device["gpu"]["used_vram_mib"], 6144);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_sees_its_own_and_of_others_only_that_and_how_much() {
    let house = House::new().await;
    // The user itself, and who may read the tenant's jobs.
    for token in [&house.ada, &house.boss] {
        let listed = house.list(token).await;
        assert_eq!(listed.len(), 1, "the idle device is none of its business");
        for device in [&listed[0], &house.show(token).await] {
            let slices = device["slices"].as_array().unwrap();
            assert_eq!(slices[0]["holder"]["job_name"], "train");
            assert_eq!(slices[0]["used"]["busy_permille"], 111);
            assert_eq!(slices[1], json!({ "vram_mib": 4096, "compute_permille": 500 }));
            assert!(
                device.get("gauges").is_none() && device.get("recent").is_none(),
                "{device}"
            );
            let text = device.to_string();
            for secret in ["globex", "cleo", "render", "222", "333"] {
                assert!(!text.contains(secret), "{secret} in {text}");
            }
        }
    }
    let other = house.show(&house.cleo).await;
    assert_eq!(
        other["slices"][0],
        json!({ "vram_mib": 2048, "compute_permille": 300 })
    );
    assert_eq!(other["slices"][1]["holder"]["owner_path"], "globex/cleo");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_nothing_there_sees_nothing() {
    let house = House::new().await;
    assert!(house.list(&house.stranger).await.is_empty());
    let path = |gpu: &str| format!("/v1/gpus/{gpu}");
    let bare = |reply: crate::world::Reply| {
        let mut body = reply.json();
        body["request_id"] = Value::Null;
        (reply.status, body)
    };
    let real = bare(house.world.get(&house.stranger, &path(&house.gpu)).await);
    assert_eq!(real.0, 404);
    for guess in ["gpu_0000000000000", "nonsense"] {
        assert_eq!(bare(house.world.get(&house.stranger, &path(guess)).await), real);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_may_not_read_jobs_reads_no_names() {
    let house = House::new().await;
    let auditor = house.world.get(&house.auditor, "/v1/whoami").await.json()["user"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let narrow = json!({ "label": "meter", "allow": ["node_read"] });
    let key = house.world.key(&auditor, narrow).await;
    let device = house.show(&key).await;
    assert!(device["slices"][0].get("holder").is_none(), "{device}");
    assert_eq!(device["slices"][0]["used"]["busy_permille"], 111);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_go_through_all_devices_once() {
    let house = House::new().await;
    let (owner, world) = (&house.world.owner, &house.world);
    let first = world.get(owner, "/v1/gpus?limit=1").await.json();
    let cursor = first["next"].as_str().unwrap();
    let second = world
        .get(owner, &format!("/v1/gpus?limit=1&cursor={cursor}"))
        .await
        .json();
    assert!(second.get("next").is_none());
    assert_ne!(first["items"][0]["gpu"]["id"], second["items"][0]["gpu"]["id"]);
    let node = first["items"][0]["node"].as_str().unwrap();
    let only = world.get(owner, &format!("/v1/gpus?node={node}")).await.json();
    assert_eq!(only["items"].as_array().unwrap().len(), 1);
    assert_eq!(world.get(owner, "/v1/gpus?node=x").await.status, 404);
}
