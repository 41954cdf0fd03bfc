//! The pages that scrapers read: what stands on them, and who sees what.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tenure_api::channel::reading::{DeviceReading, Gauges, PartReading};
use tenure_domain::Wish;
use tenure_domain::id::NodeId;
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::schedule::hardware::{Hardware, Placement};
use tenure_domain::tenancy::key::Digest;
use tenure_domain::workload::spec::Isolation;
use tenure_engine::Measured;
use tenure_server::controller::now;
use tenure_server::keyring::random;

use crate::gpu::{GPU, House};
use crate::world::World;

async fn page(world: &World, token: &str, path: &str) -> String {
    let reply = world.get(token, path).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    String::from_utf8(reply.bytes).unwrap()
}

/// The samples of one name, as labels and value.
fn samples<'a>(page: &'a str, name: &str) -> Vec<(&'a str, f64)> {
    let lines = page.lines().filter_map(|line| line.strip_prefix(name));
    let lines = lines.filter(|rest| rest.starts_with(['{', ' ']));
    lines
        .map(|rest| {
            let (labels, value) = rest.rsplit_once(' ').unwrap();
            (labels, value.parse().unwrap())
        })
        .collect()
}

/// The one sample of a name with all of these in its labels.
#[track_caller]
fn sample(page: &str, name: &str, wanted: &[&str]) -> f64 {
    let all = samples(page, name);
    let found: Vec<_> = all
        .iter()
        .filter(|(labels, _)| wanted.iter().all(|wanted| labels.contains(wanted)))
        .collect();
    assert_eq!(found.len(), 1, "{name} {wanted:?} among {all:?}");
    found[0].1
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_and_slices_are_told_in_dcgms_words() {
    let house = House::new().await;
    let page = page(&house.world, &house.auditor, "/metrics/dcgm").await;
    let device = format!("UUID=\"{GPU}\"");
    let temperature = samples(&page, "DCGM_FI_DEV_GPU_TEMP");
    assert_eq!(temperature.len(), 1, "only one device has a reading: {page}");
    assert_eq!(temperature[0].1, 60.0);
    for label in [
        "gpu=\"0\"",
        &device,
        "pci_bus_id=\"\"",
        "device=\"maker0\"",
        "modelName=\"model\"",
        "Hostname=\"GPU-shared\"",
        "hostname=\"GPU-shared\"",
    ] {
        assert!(temperature[0].0.contains(label), "{label} in {temperature:?}");
    }
    let train = ["namespace=\"acme\"", "pod=\"job_", "container=\"train\"", &device];
    assert_eq!(sample(&page, "DCGM_FI_DEV_GPU_UTIL", &train), 11.1);
    assert_eq!(sample(&page, "DCGM_FI_DEV_FB_USED", &train), 111.0);
    let render = ["namespace=\"globex\"", "container=\"render\""];
    assert_eq!(sample(&page, "DCGM_FI_DEV_GPU_UTIL", &render), 22.2);
    let whole = samples(&page, "DCGM_FI_DEV_GPU_UTIL");
    assert_eq!(whole.len(), 3, "the device and two slices: {whole:?}");
    assert!(
        whole
            .iter()
            .any(|(labels, value)| !labels.contains("pod=") && *value == 33.3)
    );
    assert!(!page.contains("POWER_USAGE"), "what was not read is not told");
}

/// A scraper's key: it reads figures, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_scraper_sees_that_tenant_alone() {
    let house = House::new().await;
    let world = &house.world;
    let boss = world.get(&house.boss, "/v1/whoami").await.json()["user"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let scraper = world
        .key(&boss, json!({ "label": "scraper", "allow": ["metric_read"] }))
        .await;
    for path in ["/v1/jobs", "/v1/scopes?path=acme", "/v1/nodes"] {
        let reply = world.get(&scraper, path).await;
        let found = reply.status == 200 && reply.json()["items"].as_array().is_none_or(|all| !all.is_empty());
        assert!(!found, "{path}: {reply:?}");
    }
    let dcgm = page(world, &scraper, "/metrics/dcgm").await;
    assert_eq!(
        sample(&dcgm, "DCGM_FI_DEV_GPU_UTIL", &["container=\"train\""]),
        11.1
    );
    assert_eq!(samples(&dcgm, "DCGM_FI_DEV_GPU_UTIL").len(), 1, "{dcgm}");
    let own = page(world, &scraper, "/metrics").await;
    assert_eq!(
        sample(&own, "tenure_jobs", &["tenant=\"acme\"", "phase=\"placed\""]),
        1.0
    );
    assert_eq!(
        sample(&own, "tenure_gpus_held", &["tenant=\"acme\"", "class=\"H100\""]),
        0.3
    );
    assert_eq!(
        sample(
            &own,
            "tenure_job_wait_seconds_count",
            &["tenant=\"acme\"", "priority=\"normal\""]
        ),
        1.0
    );
    for text in [&dcgm, &own] {
        for secret in [
            "globex",
            "hooli",
            "cleo",
            "render",
            "22.2",
            "33.3",
            "DEV_GPU_TEMP",
        ] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    for family in [
        "tenure_http",
        "tenure_nodes",
        "tenure_refusals",
        "tenure_gpus{",
        "tenure_journal",
    ] {
        assert!(!own.contains(family), "{family} in {own}");
    }
    // Who has nothing sees nothing, and who gives no key is nobody.
    assert_eq!(page(world, &house.stranger, "/metrics/dcgm").await, "");
    let bare = world.send(world.request(Method::GET, "/metrics", None)).await;
    assert_eq!(bare.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_platform_sees_itself() {
    let house = House::new().await;
    let world = &house.world;
    let budgets = json!({ "budgets": [{ "period": "month", "money_micros": 5_000_000 }] });
    let acme = world.get(&world.owner, "/v1/scopes?path=acme").await.id();
    let set = world
        .put(&world.owner, &format!("/v1/scopes/{acme}/budgets"), budgets)
        .await;
    assert_eq!(set.status, 200, "{set:?}");
    let waiting = json!({ "owner": Value::Null, "spec": { "name": "waits", "command": ["true"],
        "priority": "high", "demand": { "gpus": 1, "class": "H100", "vram_mib": 8192, "isolation": "guarded" } } });
    let ada = world.get(&house.ada, "/v1/whoami").await.json()["user"]["id"].clone();
    let mut job = waiting;
    job["owner"] = ada;
    job["spec"]["demand"]["vram_mib"] = json!(8000);
    job["spec"]["demand"]["compute_permille"] = json!(900);
    for _ in 0..2 {
        let reply = world.post(&world.owner, "/v1/jobs", job.clone()).await;
        assert_eq!(reply.status, 201, "{reply:?}");
    }
    assert_eq!(world.get(&world.owner, "/v1/nonsense").await.status, 404);
    let twice = world
        .post(&world.owner, "/v1/tenants", json!({ "name": "acme" }))
        .await;
    assert_eq!(twice.code(), "name_taken");
    let own = page(world, &world.owner, "/metrics").await;
    assert_eq!(sample(&own, "tenure_leading", &[]), 1.0);
    assert_eq!(
        sample(&own, "tenure_journal_events_total", &[]),
        world.head() as f64
    );
    assert_eq!(sample(&own, "tenure_nodes", &["up"]), 2.0);
    assert_eq!(sample(&own, "tenure_gpus", &["H100", "healthy"]), 2.0);
    let allocated = sample(&own, "tenure_gpus_allocated", &["H100"]);
    assert_eq!(allocated, 1.7, "two on the shared device, one on the idle one");
    assert_eq!(sample(&own, "tenure_gpus_idle", &["H100"]), 0.3);
    assert_eq!(sample(&own, "tenure_gpus_busy", &["H100"]), 0.333);
    assert_eq!(sample(&own, "tenure_gpus_measured", &["H100"]), 1.0);
    assert_eq!(sample(&own, "tenure_queue_jobs", &["acme", "high"]), 1.0);
    assert!(sample(&own, "tenure_queue_oldest_seconds", &["acme", "high"]) >= 0.0);
    assert_eq!(
        sample(
            &own,
            "tenure_budget_money",
            &["acme", "month", "of=\"all\"", "state=\"limit\""]
        ),
        5.0
    );
    assert!(sample(&own, "tenure_commit_duration_seconds_count", &[]) > 0.0);
    assert!(sample(&own, "tenure_decisions_total", &["accepted"]) > 10.0);
    assert_eq!(
        sample(&own, "tenure_http_requests_total", &["\"none\"", "404"]),
        1.0
    );
    assert!(sample(&own, "tenure_http_problems_total", &["route_not_found"]) >= 1.0);
    assert_eq!(sample(&own, "tenure_refusals_total", &["name_taken"]), 1.0);
    let opened = world.request(Method::GET, "/metrics", Some(&world.owner));
    let opened = world
        .send(opened.header("accept", "application/openmetrics-text;version=1.0.0"))
        .await;
    let kind = opened.headers["content-type"].to_str().unwrap().to_owned();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    assert!(opened.bytes.ends_with(b"# EOF\n"));
    promtool_finds_nothing(&own);
}

fn promtool_finds_nothing(page: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is there: scripts/setup test installs it");
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && said.is_empty(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

/// A node with these devices.
async fn join(world: &World, name: &str, gpus: Vec<GpuFacts>) -> NodeId {
    let (token, key) = (Digest(random()), Digest(random()));
    let expires = now().plus_ms(600_000);
    let wish = Wish::CreateJoinToken {
        digest: token,
        expires,
        tenant: None,
    };
    world.controller.system(wish).await.unwrap();
    let wish = Wish::JoinNode {
        token,
        name: name.into(),
        key,
    };
    let node = NodeId(world.controller.system(wish).await.unwrap().ids);
    let inventory = Inventory {
        cpu_milli: 64_000,
        memory_mib: 64 * 1024,
        gpus,
        ..Inventory::default()
    };
    let wish = Wish::ReportInventory { node, inventory };
    world.controller.system(wish).await.unwrap();
    node
}

fn facts(uuid: String, hardware: Option<Hardware>) -> GpuFacts {
    GpuFacts {
        uuid,
        vendor: "NVIDIA".into(),
        model: "NVIDIA H100 \"80GB\" HBM3".into(),
        class: "H100".into(),
        vram_mib: 81_559,
        isolation: [
            (Isolation::Guarded, "by the guard".to_owned()),
            (Isolation::Exclusive, "alone".to_owned()),
        ]
        .into(),
        hardware: hardware.map(Box::new),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_of_ones_own_is_told_whole_and_parts_by_their_number() {
    let world = World::new().await;
    let hardware = |pci: &str| Hardware {
        pci: Some(pci.into()),
        driver: Some("nvidia 570.86.15".into()),
        ..Hardware::default()
    };
    let gpus = vec![
        facts("GPU-b".into(), Some(hardware("0000:c1:00.0"))),
        facts("GPU-a".into(), Some(hardware("0000:41:00.0"))),
    ];
    let node = join(&world, "n1", gpus).await;
    let tenant = world.tenant("acme").await;
    let (ada, token) = world.user(&tenant, "ada", None).await;
    let demand = json!({ "gpus": 1, "isolation": "exclusive" });
    let body = json!({ "owner": ada, "spec": { "name": "whole", "command": ["true"], "demand": demand } });
    let job = world.post(&world.owner, "/v1/jobs", body).await;
    assert_eq!(job.status, 201, "{job:?}");
    let gauges = Gauges {
        power_mw: Some(301_500),
        energy_mj: Some(9),
        used_vram_mib: Some(2000),
        reserved_vram_mib: Some(500),
        tensor_active_permille: Some(420),
        ..Gauges::default()
    };
    let part = PartReading {
        instance: 7,
        profile: "1g.10gb".into(),
        placement: Placement { start: 0, size: 1 },
        vram_mib: Some(9856),
        used_vram_mib: Some(56),
        ..PartReading::default()
    };
    let read = |uuid: &str, parts: Vec<PartReading>| DeviceReading {
        uuid: uuid.into(),
        gauges: gauges.clone(),
        slices: vec![],
        parts,
    };
    let devices = vec![read("GPU-a", vec![]), read("GPU-b", vec![])];
    world.readings.take(Measured { node, devices }, now());
    let own = page(&world, &token, "/metrics/dcgm").await;
    assert_eq!(
        sample(
            &own,
            "DCGM_FI_DEV_POWER_USAGE",
            &["pod=\"job_", "container=\"whole\""]
        ),
        301.5
    );
    assert_eq!(
        sample(&own, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", &["namespace=\"acme\""]),
        0.42
    );
    assert_eq!(sample(&own, "DCGM_FI_DEV_FB_USED", &[]), 1500.0);
    assert_eq!(sample(&own, "DCGM_FI_DEV_FB_FREE", &[]), 79_559.0);
    assert!(
        !own.contains("ENERGY"),
        "who had it before is none of its business: {own}"
    );
    let free = if own.contains("GPU-a") { "GPU-b" } else { "GPU-a" };
    let devices = vec![read(free, vec![part])];
    world.readings.take(Measured { node, devices }, now());
    let all = page(&world, &world.owner, "/metrics/dcgm").await;
    assert_eq!(
        sample(
            &all,
            "DCGM_FI_DEV_FB_USED",
            &["GPU_I_PROFILE=\"1g.10gb\"", "GPU_I_ID=\"7\"", free]
        ),
        56.0
    );
    let first = [
        "gpu=\"0\"",
        "UUID=\"GPU-a\"",
        "pci_bus_id=\"00000000:41:00.0\"",
        "device=\"nvidia0\"",
        "modelName=\"NVIDIA H100 \\\"80GB\\\" HBM3\"",
        "DCGM_FI_DRIVER_VERSION=\"570.86.15\"",
    ];
    assert_eq!(sample(&all, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", &first), 9.0);
    assert!(own.lines().all(|line| !line.contains(free)), "{own}");
}

/// A fleet that grows, of nodes with eight devices.
struct Fleet {
    world: World,
    nodes: Vec<(NodeId, Vec<String>)>,
}

impl Fleet {
    async fn grow(&mut self, to: usize) {
        let world = &self.world;
        let joining = (self.nodes.len()..to).map(async |node| {
            let uuids: Vec<String> = (0..8).map(|gpu| format!("GPU-{node}-{gpu}")).collect();
            let gpus = uuids.iter().map(|uuid| facts(uuid.clone(), None)).collect();
            (join(world, &format!("n{node}"), gpus).await, uuids)
        });
        let joined = futures_util::future::join_all(joining).await;
        self.nodes.extend(joined);
    }

    /// All are read anew, for old readings are not told.
    fn read(&self) {
        let gauges = Gauges {
            busy_permille: Some(500),
            used_vram_mib: Some(1000),
            temperature_c: Some(60),
            power_mw: Some(300_000),
            energy_mj: Some(1),
            sm_clock_mhz: Some(1500),
            memory_clock_mhz: Some(1500),
            ..Gauges::default()
        };
        for (node, uuids) in &self.nodes {
            let devices = uuids.iter().map(|uuid| DeviceReading {
                uuid: uuid.clone(),
                gauges: gauges.clone(),
                ..DeviceReading::default()
            });
            let measured = Measured {
                node: *node,
                devices: devices.collect(),
            };
            self.world.readings.take(measured, now());
        }
    }

    /// How long both pages take, and how long they are.
    async fn scrape(&self) -> (Duration, usize) {
        let mut best = (Duration::MAX, 0);
        for _ in 0..3 {
            self.read();
            let begun = Instant::now();
            let dcgm = page(&self.world, &self.world.owner, "/metrics/dcgm").await;
            let own = page(&self.world, &self.world.owner, "/metrics").await;
            best = best.min((begun.elapsed(), dcgm.lines().count() + own.lines().count()));
        }
        best
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_devices_are_scraped_in_proportion() {
    let mut fleet = Fleet {
        world: World::new().await,
        nodes: Vec::new(),
    };
    fleet.grow(125).await;
    let (few, _) = fleet.scrape().await;
    fleet.grow(1250).await;
    let (many, lines) = fleet.scrape().await;
    println!("1,000 GPUs: {few:?}; 10,000 GPUs: {many:?}, {lines} lines");
    assert!(lines > 80_000, "{lines}");
    assert!(many < few * 60, "{many:?} for 10,000 and {few:?} for 1,000");
}
