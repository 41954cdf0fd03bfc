//! Nodes full of slices whose tenants resell them: each metered interval is three postings, of the tenant, of its
//! subscriber, and the platform's fee.

use std::sync::Arc;

use tenure_domain::command::Ran;
use tenure_domain::id::{AllocationId, NodeId, SubscriberId, TenantId, UserId};
use tenure_domain::ledger::book::Book;
use tenure_domain::ledger::price::Prices;
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{ScopeId, UserKind};
use tenure_domain::workload::spec::{Isolation, JobSpec};
use tenure_domain::workload::usage::Usage;
use tenure_domain::{Actor, Event, Time, Wish};

/// GPUs of a node, and slices of each.
const GPUS: usize = 8;
const SLICES: usize = 10;
/// What a report says more than the one before it.
const STEP_MS: u64 = 100;
const TENANTS: usize = 10;

/// A node that meters.
#[derive(Debug, Clone)]
pub struct Meter {
    pub node: NodeId,
    allocations: Vec<AllocationId>,
    ran_ms: u64,
}

impl Meter {
    /// Its next report, and how many intervals are in it.
    pub fn report(&mut self) -> (Actor, Wish, usize) {
        self.ran_ms += STEP_MS;
        let (ran_ms, turns) = (self.ran_ms, self.ran_ms / STEP_MS);
        let usage = Usage {
            busy_ms: ran_ms / 2,
            waited_ms: ran_ms / 10,
            launches: turns * 40,
            peak_vram_mib: 4000,
            ..Usage::default()
        };
        let ran = self.allocations.iter().map(|&allocation| Ran {
            allocation,
            ran_ms,
            usage: Some(usage),
        });
        let wish = Wish::Meter {
            node: self.node,
            ran: ran.collect(),
        };
        (Actor::Node(self.node), wish, self.allocations.len())
    }

    /// Whether a moment this long after its jobs were placed may be told of yet.
    pub fn may_report(&self, since_ms: u64) -> bool {
        self.ran_ms + STEP_MS <= since_ms + 9_000
    }
}

/// Founds tenants with subscribers, joins nodes, fills them; by whoever does a wish and says its first id and events.
pub async fn build(
    nodes: usize,
    mut act: impl AsyncFnMut(Actor, Wish) -> anyhow::Result<(u64, Vec<Arc<Event>>)>,
) -> anyhow::Result<Vec<Meter>> {
    let mut system = async |wish| act(Actor::System, wish).await;
    system(Wish::Found {
        platform: "town".into(),
        owner: "root".into(),
        key: Digest([1; 32]),
        prices: Prices::default(),
    })
    .await?;
    let mut owners = Vec::new();
    for n in 0..TENANTS {
        let (tenant, _) = system(Wish::CreateTenant {
            name: format!("tenant-{n}"),
        })
        .await?;
        let tenant = ScopeId::Tenant(TenantId(tenant));
        let team = Wish::CreateSubscriber {
            tenant,
            name: "team".into(),
        };
        let team = ScopeId::Subscriber(SubscriberId(system(team).await?.0));
        for (seller, buyer, fee_permille) in [(ScopeId::Platform, tenant, 100), (tenant, team, 0)] {
            system(Wish::SetBook {
                seller,
                buyer: Some(buyer),
                from: None,
                book: Box::new(Book {
                    markup_permille: 1200,
                    fee_permille,
                    ..Book::default()
                }),
            })
            .await?;
        }
        let user = Wish::CreateUser {
            parent: team,
            name: "user".into(),
            kind: UserKind::Service,
            identity: None,
            role: Some(Role::Member),
        };
        owners.push(UserId(system(user).await?.0));
    }
    let spec = job();
    let mut meters: Vec<Meter> = Vec::new();
    for number in 0..nodes {
        let mut digest = Digest([2; 32]);
        digest.0[..8].copy_from_slice(&(number as u64).to_le_bytes());
        system(Wish::CreateJoinToken {
            digest,
            expires: Time(i64::MAX),
            tenant: None,
        })
        .await?;
        let join = Wish::JoinNode {
            token: digest,
            name: format!("node-{number}"),
            key: digest,
        };
        let node = NodeId(system(join).await?.0);
        system(Wish::ReportInventory {
            node,
            inventory: inventory(number),
        })
        .await?;
        meters.push(Meter {
            node,
            allocations: Vec::new(),
            ran_ms: 0,
        });
    }
    for n in 0..nodes * GPUS * SLICES {
        let (owner, spec) = (owners[n % owners.len()], spec.clone());
        let (_, events) = act(
            Actor::user(owner),
            Wish::Submit {
                owner,
                spec,
                trace: None,
            },
        )
        .await?;
        let placed = events.iter().find_map(|event| match &**event {
            Event::JobPlaced { allocation, .. } => Some(allocation),
            _ => None,
        });
        let placed = placed.ok_or_else(|| anyhow::anyhow!("a slice found no room"))?;
        let meter = meters.iter_mut().find(|meter| meter.node == placed.node);
        meter
            .expect("it was placed on one of them")
            .allocations
            .push(placed.id);
    }
    Ok(meters)
}

/// A tenth of a GPU for a day, dear enough that every interval has a fee.
fn job() -> Arc<JobSpec> {
    let text = serde_json::json!({
        "name": "posting", "command": ["/bin/true"], "run_time_s": 86_400,
        "demand": {
            "gpus": 1, "compute_permille": 100, "vram_mib": 4000, "class": "H100",
            "cpu_milli": 100, "memory_mib": 64
        }
    });
    Arc::new(serde_json::from_value(text).expect("a specification"))
}

fn inventory(number: usize) -> Inventory {
    let levels = [(Isolation::Fenced, "broker".to_owned())];
    let facts = |gpu| GpuFacts {
        uuid: format!("gpu-{number}-{gpu}"),
        vendor: "nvidia".into(),
        model: "H100".into(),
        class: "H100".into(),
        vram_mib: 80_000,
        isolation: levels.clone().into(),
        hardware: None,
    };
    Inventory {
        cpu_milli: 256_000,
        memory_mib: 1 << 20,
        gpus: (0..GPUS).map(facts).collect(),
        images: Vec::new(),
        volume_mib: 0,
    }
}

/// How many postings an event is.
pub fn postings(event: &Event) -> usize {
    let Event::UsageMetered { charges, .. } = event else {
        return 0;
    };
    let of = |charge: &tenure_domain::event::Charge| {
        let resold = charge.resale.as_deref();
        1 + resold.map_or(0, |resold| 1 + usize::from(resold.fee.is_some()))
    };
    charges.iter().map(of).sum()
}
