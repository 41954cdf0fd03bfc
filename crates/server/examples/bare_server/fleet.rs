//! A fleet that is not there: nodes, jobs that hold their GPUs, and readings that move.

use std::sync::Arc;
use std::time::Duration;

use tenure_api::channel::reading::{DeviceReading, Gauges, SliceReading, SliceUse};
use tenure_domain::id::{TenantId, UserId};
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::schedule::label::Labels;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{ScopeId, UserKind};
use tenure_domain::workload::spec::{Isolation, JobSpec};
use tenure_domain::{Actor, Event, Time, Wish};
use tenure_engine::Measured;
use tenure_server::controller::{Accepted, Controller, now};
use tenure_server::keyring::random;
use tenure_server::reading::Readings;

const PER_NODE: usize = 8;
const PER_BLOCK: usize = 32;
const CLASSES: [(&str, u64); 3] = [("H100", 81_559), ("A100", 40_960), ("MI300X", 196_608)];
const TENANTS: [&str; 6] = ["acme", "globex", "initech", "umbrella", "hooli", "stark"];

async fn wish(controller: &Controller, by: Actor, wish: Wish) -> anyhow::Result<Accepted> {
    let done = controller.submit(by, wish, None, None).await;
    done.map_err(|why| anyhow::anyhow!("{why:?}"))
}

pub async fn make(controller: &Controller, gpus: usize) -> anyhow::Result<()> {
    let nodes = gpus.div_ceil(PER_NODE);
    let joins = (0..nodes).map(|number| node(controller, number, PER_NODE.min(gpus - number * PER_NODE)));
    for done in futures_util::future::join_all(joins).await {
        done?;
    }
    let mut users = Vec::new();
    for name in TENANTS {
        users.push(user(controller, name).await?);
    }
    // Of ten GPUs four are held whole, four by two tenants or more, two are free.
    let whole = (0..gpus * 4 / 10).map(|job| (job, 1000, 0));
    let parts = (0..gpus).map(|job| (job, 200 + (job as u16 % 4) * 100, 4096));
    let jobs: Vec<_> = whole.chain(parts).collect();
    for some in jobs.chunks(512) {
        let submits = some.iter().map(|&(number, share, vram_mib)| {
            let owner = users[number * 7 % users.len()];
            let text = format!(
                r#"{{"name":"job-{number}","command":["true"],"demand":{{"gpus":1,"compute_permille":{share},"vram_mib":{vram_mib},"cpu_milli":10,"memory_mib":16}}}}"#
            );
            let spec: Arc<JobSpec> = Arc::new(serde_json::from_str(&text).expect("a job"));
            wish(controller, Actor::user(owner), Wish::Submit { owner, spec, trace: None })
        });
        for done in futures_util::future::join_all(submits).await {
            done?;
        }
    }
    Ok(())
}

async fn node(controller: &Controller, number: usize, count: usize) -> anyhow::Result<()> {
    let token = Digest(random());
    let create = Wish::CreateJoinToken {
        digest: token,
        expires: Time(i64::MAX),
        tenant: None,
    };
    wish(controller, Actor::System, create).await?;
    let join = Wish::JoinNode {
        token,
        name: format!("n{number:05}"),
        key: Digest(random()),
    };
    let joined = wish(controller, Actor::System, join).await?;
    let found = joined.events.iter().find_map(|event| match **event {
        Event::NodeJoined { node, .. } => Some(node),
        _ => None,
    });
    let node = found.ok_or_else(|| anyhow::anyhow!("no node joined"))?;
    let (class, vram_mib) = CLASSES[number / PER_BLOCK % CLASSES.len()];
    let gpu = |place: usize| GpuFacts {
        uuid: format!("GPU-{number}-{place}"),
        vendor: "maker".into(),
        model: class.into(),
        class: class.into(),
        vram_mib,
        isolation: [(Isolation::Fenced, "by a worker".to_owned())].into(),
        hardware: None,
    };
    let inventory = Inventory {
        cpu_milli: 128_000,
        memory_mib: 1 << 20,
        gpus: (0..count).map(gpu).collect(),
        images: Vec::new(),
        volume_mib: 0,
    };
    wish(
        controller,
        Actor::System,
        Wish::ReportInventory { node, inventory },
    )
    .await?;
    let labels = Labels {
        region: Some(["north", "south"][number / PER_BLOCK % 2].into()),
        block: Some(format!("b{:03}", number / PER_BLOCK).into()),
        dedicated: None,
    };
    let label = Wish::LabelNode {
        node,
        labels,
        revision: None,
    };
    wish(controller, Actor::System, label).await?;
    if number % 97 == 3 {
        wish(controller, Actor::System, Wish::CordonNode { node }).await?;
    }
    Ok(())
}

async fn user(controller: &Controller, tenant: &str) -> anyhow::Result<UserId> {
    let made = wish(
        controller,
        Actor::System,
        Wish::CreateTenant { name: tenant.into() },
    )
    .await?;
    let create = Wish::CreateUser {
        parent: ScopeId::Tenant(TenantId(made.ids)),
        name: "user".into(),
        kind: UserKind::Person,
        identity: None,
        role: Some(Role::Member),
    };
    Ok(UserId(wish(controller, Actor::System, create).await?.ids))
}

/// Every device works as much as its slices do, which changes.
pub async fn read(controller: Controller, readings: Arc<Readings>) {
    loop {
        for measured in all(&controller) {
            readings.take(measured, now());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn all(controller: &Controller) -> Vec<Measured> {
    let state = controller.view().read();
    let mut chance = u64::from_le_bytes(random());
    let mut share = |most: u16| {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (u64::from(most) * (40 + (chance >> 33) % 61) / 100) as u16
    };
    let nodes = state.fleet.nodes().map(|node| {
        let devices = node.gpus.iter().map(|gpu| {
            let held = gpu.holders.iter().filter_map(|&id| {
                let allocation = state.fleet.allocation(id)?;
                let slice = allocation.slices.iter().find(|slice| slice.gpu == gpu.id)?;
                Some((id, slice.compute_permille, slice.vram_mib))
            });
            let slices: Vec<SliceReading> = held
                .map(|(allocation, compute, vram_mib)| SliceReading {
                    allocation,
                    use_now: SliceUse {
                        used_vram_mib: vram_mib / 2,
                        limit_vram_mib: vram_mib,
                        processes: 1,
                        busy_permille: Some(share(compute)),
                        ..SliceUse::default()
                    },
                })
                .collect();
            let busy: u16 = slices
                .iter()
                .filter_map(|slice| slice.use_now.busy_permille)
                .sum();
            DeviceReading {
                uuid: gpu.facts.uuid.clone(),
                gauges: Gauges {
                    busy_permille: Some(busy.min(1000)),
                    used_vram_mib: Some(slices.iter().map(|slice| slice.use_now.used_vram_mib).sum()),
                    ..Gauges::default()
                },
                slices,
                parts: Vec::new(),
            }
        });
        Measured {
            node: node.id,
            devices: devices.collect(),
        }
    });
    nodes.collect()
}
