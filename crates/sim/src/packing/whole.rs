//! Decisions per second of processor time through the whole of `decide`: 10,000 users four levels deep, every level with a
//! quota, a budget and a policy; each job is admitted, held, placed and told in events, which are applied. Then with
//! others giving way for each; then durable, through the controller onto a journal that is synced.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tenure_domain::command::Observation;
use tenure_domain::id::{AllocationId, Ids, JobId, NodeId, SubscriberId, TenantId, UserId};
use tenure_domain::meter::Amounts;
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::schedule::label::Labels;
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{ScopeId, UserKind};
use tenure_domain::time::Period;
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::spec::{Isolation, JobSpec, Priority};
use tenure_domain::{Actor, Command, Event, Refusal, State, Time, Wish, decide};
use tenure_journal::Location;
use tenure_server::controller::WriterOptions;

use super::busy::{self, Busy};
use super::throughput::Line;
use crate::platform::Platform;

/// Larger fleets are asked of the board alone: to join them one by one takes longer than to measure them.
const NODES_MAX: usize = 10_000;
/// Jobs submitted between two looks at the clock.
const AT_ONCE: usize = 64;
/// Nodes of one fabric block.
const BLOCK: usize = 32;
/// Nodes that join at once.
const JOINING: usize = 256;
/// Callers of the controller at once, each number for the given time; the best counts.
const CLIENTS: [usize; 3] = [512, 1024, 4096];

/// A cell in memory.
pub(crate) struct Cell {
    pub(crate) state: State,
    at: Time,
    ids: u64,
    users: Vec<UserId>,
}

impl Cell {
    /// Nobody and nothing is in it.
    pub(crate) fn empty() -> Cell {
        Cell {
            state: State::default(),
            at: Time(1_800_000_000_000),
            ids: 1 << 22,
            users: Vec::new(),
        }
    }

    fn new(nodes: usize, gpus: usize) -> Cell {
        let mut cell = Cell::empty();
        let people = people(100, async |wish| {
            let ids = cell.ids;
            cell.system(wish);
            Ok(ids)
        });
        let people = people.now_or_never().expect("nothing waits in memory");
        cell.users = people.expect("each is done");
        for number in 0..nodes.min(NODES_MAX) {
            cell.join(number, inventory(number, gpus));
        }
        cell
    }

    pub(crate) fn join(&mut self, number: usize, inventory: Inventory) {
        let [token, join] = join(number);
        self.system(token);
        let events = self.system(join);
        let Some(&Event::NodeJoined { node, .. }) = events.first() else {
            panic!("no node")
        };
        self.system(Wish::ReportInventory { node, inventory });
    }

    /// It is then.
    pub(crate) fn set_time(&mut self, at: Time) {
        self.at = at;
    }

    /// Decides and applies; what was refused changed nothing.
    pub(crate) fn ask(&mut self, by: Actor, wish: Wish) -> Result<Vec<Event>, Refusal> {
        let command = Command {
            at: self.at,
            by,
            ids: self.ids,
            wish,
        };
        self.ids += Ids::BLOCK;
        let events = decide(&self.state, &command)?;
        for event in &events {
            self.state.apply(self.at, event);
        }
        Ok(events)
    }

    fn act(&mut self, by: Actor, wish: Wish) -> Vec<Event> {
        self.ask(by, wish)
            .unwrap_or_else(|refusal| panic!("refused: {refusal}"))
    }

    pub(crate) fn system(&mut self, wish: Wish) -> Vec<Event> {
        self.act(Actor::System, wish)
    }

    fn submit(&mut self, turn: usize, spec: &Arc<JobSpec>) -> Vec<Event> {
        let owner = self.users[(turn * 7919) % self.users.len()];
        let spec = spec.clone();
        self.act(
            Actor::user(owner),
            Wish::Submit {
                owner,
                spec,
                trace: None,
            },
        )
    }

    fn observe(&mut self, node: NodeId, allocation: AllocationId, observation: Observation) {
        self.act(
            Actor::Node(node),
            Wish::Observe {
                node,
                allocation,
                observation,
            },
        );
    }

    fn place_of(&self, job: JobId) -> Option<(NodeId, AllocationId)> {
        let id = self.state.jobs.get(&job)?.sole_allocation()?;
        Some((self.state.fleet.allocation(id)?.node, id))
    }
}

/// Ten tenants of ten subscribers of so many users, by whoever does a wish and says the first of its ids: each of them with a
/// quota, a budget and a policy.
pub(super) async fn people(
    users: usize,
    mut act: impl AsyncFnMut(Wish) -> anyhow::Result<u64>,
) -> anyhow::Result<Vec<UserId>> {
    let found = Wish::Found {
        platform: "cell".into(),
        owner: "root".into(),
        key: Digest([1; 32]),
        prices: Default::default(),
    };
    act(found).await?;
    limit(&mut act, ScopeId::Platform).await?;
    let mut made = Vec::new();
    for t in 0..10 {
        let name = format!("tenant-{t}");
        let tenant = ScopeId::Tenant(TenantId(act(Wish::CreateTenant { name }).await?));
        limit(&mut act, tenant).await?;
        for s in 0..10 {
            let name = format!("sub-{s}");
            let parent = act(Wish::CreateSubscriber { tenant, name }).await?;
            let parent = ScopeId::Subscriber(SubscriberId(parent));
            limit(&mut act, parent).await?;
            for u in 0..users {
                let wish = Wish::CreateUser {
                    parent,
                    name: format!("user-{u}"),
                    kind: UserKind::Person,
                    identity: None,
                    role: Some(Role::Member),
                };
                let user = UserId(act(wish).await?);
                limit(&mut act, ScopeId::User(user)).await?;
                made.push(user);
            }
        }
    }
    Ok(made)
}

async fn limit(act: &mut impl AsyncFnMut(Wish) -> anyhow::Result<u64>, scope: ScopeId) -> anyhow::Result<()> {
    let limits = [
        ("gpu_milli", 1 << 40),
        ("jobs", 1 << 40),
        ("vram_mib@class:H100", 1 << 50),
    ];
    let limits = limits.map(|(meter, most)| (meter.parse().expect("a meter"), most));
    act(Wish::SetQuota {
        scope,
        quota: Amounts::from(limits),
        revision: None,
    })
    .await?;
    act(Wish::SetBudgets {
        scope,
        budgets: vec![Budget {
            period: Period::Month,
            class: None,
            sku: None,
            money_micros: Some(1 << 60),
            kind: None,
            gpu_seconds: None,
            frames: None,
            alerts_permille: Vec::new(),
        }],
        revision: None,
    })
    .await?;
    act(Wish::SetPolicy {
        scope,
        policy: Policy {
            max_run_time_s: Some(86_400),
            ..Policy::default()
        },
        revision: None,
    })
    .await?;
    Ok(())
}

pub(super) fn exited(by: Option<StopReason>) -> Observation {
    Observation::Exited {
        exit_code: Some(0),
        signal: None,
        ran_ms: 10,
        by,
        usage: None,
    }
}

/// A token for a node, and its use.
fn join(number: usize) -> [Wish; 2] {
    let mut digest = Digest([2; 32]);
    digest.0[..8].copy_from_slice(&(number as u64).to_le_bytes());
    [
        Wish::CreateJoinToken {
            digest,
            expires: Time(i64::MAX),
            tenant: None,
        },
        Wish::JoinNode {
            token: digest,
            name: format!("node-{number}"),
            key: digest,
        },
    ]
}

pub(crate) fn inventory(number: usize, gpus: usize) -> Inventory {
    let levels = [
        (Isolation::Guarded, "guard".to_owned()),
        (Isolation::Fenced, "broker".to_owned()),
    ];
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
        gpus: (0..gpus).map(facts).collect(),
        images: Vec::new(),
        volume_mib: 0,
    }
}

/// A tenth of a GPU, or as many thousandths.
fn job(permille: u16, priority: Priority) -> Arc<JobSpec> {
    let text = serde_json::json!({
        "name": "rate", "command": ["/bin/true"], "run_time_s": 600, "priority": priority,
        "demand": {
            "gpus": 1, "compute_permille": permille, "vram_mib": u64::from(permille) * 40, "class": "H100",
            "cpu_milli": 100, "memory_mib": 64
        }
    });
    Arc::new(serde_json::from_value(text).expect("a specification"))
}

fn line(case: &str, nodes: usize, gpus: usize, decisions: usize, took: Duration) -> Line {
    Line {
        case: case.to_owned(),
        nodes: nodes.min(NODES_MAX),
        gpus_per_node: gpus,
        decisions,
        decisions_per_s: decisions as f64 / took.as_secs_f64().max(1e-9),
        bytes_per_node: None,
        processor_us: None,
    }
}

/// Slices submitted and started; what started ends again, untimed, so that there is room.
pub fn decided(nodes: usize, gpus: usize, decisions: usize) -> Line {
    let mut cell = Cell::new(nodes, gpus);
    let spec = job(100, Priority::Normal);
    let mut took = Duration::ZERO;
    for first in (0..decisions).step_by(AT_ONCE) {
        let mut running = Vec::with_capacity(AT_ONCE);
        let begun = Busy::now();
        for turn in first..first + AT_ONCE {
            if let Some(Event::JobPlaced { allocation, .. }) = cell.submit(turn, &spec).last() {
                running.push((allocation.node, allocation.id));
            }
        }
        took += begun.elapsed();
        assert_eq!(running.len(), AT_ONCE, "each started");
        for (node, allocation) in running {
            cell.observe(node, allocation, exited(None));
        }
        cell.at = cell.at.plus_ms(1);
    }
    let decisions = decisions.next_multiple_of(AT_ONCE);
    line("the whole decision", nodes, gpus, decisions, took)
}

/// Gangs of this many GPUs, as many on a node as it has or, where one node has them all, members with one each; on an
/// empty fleet in blocks. Each ends again, untimed.
pub fn gangs(nodes: usize, gpus: usize, size: usize, decisions: usize) -> Option<Line> {
    let (members, each) = if size > gpus {
        (size / gpus, gpus)
    } else {
        (size, 1)
    };
    if members < 2 || members > nodes.min(NODES_MAX) {
        return None;
    }
    let mut cell = Cell::new(nodes, gpus);
    let all: Vec<NodeId> = cell.state.fleet.nodes().map(|node| node.id).collect();
    for (number, node) in all.into_iter().enumerate() {
        let labels = Labels {
            block: Some(format!("block-{}", number / BLOCK).into()),
            ..Labels::default()
        };
        cell.system(Wish::LabelNode {
            node,
            labels,
            revision: None,
        });
    }
    let mut spec = JobSpec::clone(&job(1000, Priority::Normal));
    (spec.demand.nodes, spec.demand.gpus) = (u32::try_from(members).ok()?, u32::try_from(each).ok()?);
    (spec.demand.vram_mib, spec.demand.memory_mib) = (0, 64);
    let (spec, mut took) = (Arc::new(spec), Duration::ZERO);
    for turn in 0..decisions {
        let begun = Busy::now();
        let events = cell.submit(turn, &spec);
        took += begun.elapsed();
        let Some(Event::JobPlaced {
            allocation, others, ..
        }) = events.last()
        else {
            panic!("a gang found no room")
        };
        let members = [allocation].into_iter().chain(others);
        let members: Vec<(NodeId, AllocationId)> = members.map(|member| (member.node, member.id)).collect();
        for (node, id) in members {
            cell.observe(node, id, exited(None));
        }
        cell.at = cell.at.plus_ms(1);
    }
    Some(line(&format!("gang of {size}"), nodes, gpus, decisions, took))
}

/// Whole GPUs for jobs of high priority on a fleet full of low ones, each by one that gives way.
pub fn preempting(nodes: usize, gpus: usize, decisions: usize) -> Line {
    let mut cell = Cell::new(nodes, gpus);
    let low = job(1000, Priority::Low);
    for turn in 0..nodes.min(NODES_MAX) * gpus {
        if let Some(Event::JobPlaced { allocation, .. }) = cell.submit(turn, &low).last() {
            let (node, id) = (allocation.node, allocation.id);
            cell.observe(node, id, Observation::Running);
        }
    }
    cell.at = cell.at.plus_ms(500_000);
    let (high, mut took) = (job(1000, Priority::High), Duration::ZERO);
    let mut running = VecDeque::new();
    for turn in 0..decisions {
        let begun = Busy::now();
        let events = cell.submit(turn, &high);
        took += begun.elapsed();
        let promised = events.iter().find_map(|event| match event {
            Event::JobPromised { promise } => Some(promise.clone()),
            _ => None,
        });
        let promise = promised.expect("somebody gives way");
        for victim in promise.victims {
            let (node, id) = cell.place_of(victim).expect("it is there still");
            cell.observe(node, id, exited(Some(StopReason::Evicted)));
        }
        cell.system(Wish::Schedule { job: promise.job });
        let (node, id) = cell.place_of(promise.job).expect("it starts");
        cell.observe(node, id, Observation::Running);
        running.push_back((node, id));
        // So that there is always somebody to give way, the first of them ends and one that waits takes its place.
        if running.len() > gpus {
            let (node, id) = running.pop_front().expect("one runs");
            cell.observe(node, id, exited(None));
            let waits = cell
                .state
                .queue
                .iter()
                .next()
                .map(|key| key.1)
                .expect("one waits");
            cell.system(Wish::Schedule { job: waits });
        }
        cell.at = cell.at.plus_ms(1);
    }
    line("with preemption", nodes, gpus, decisions, took)
}

/// So many nodes, many of them at once.
pub(super) async fn join_all(platform: &Platform, nodes: usize, gpus: usize) -> anyhow::Result<()> {
    let joined = stream::iter(0..nodes).map(|number| async move {
        let [token, join] = join(number);
        platform.wish(token).await?;
        let node = NodeId(platform.wish(join).await?.ids);
        let inventory = inventory(number, gpus);
        platform.wish(Wish::ReportInventory { node, inventory }).await
    });
    let joined = joined.buffer_unordered(JOINING);
    joined.try_for_each(|_| std::future::ready(Ok(()))).await
}

/// Slices through the controller, each awaited until it is on the disk.
pub async fn durable(nodes: usize, gpus: usize, seconds: f64) -> anyhow::Result<Line> {
    let dir = tempfile::tempdir()?;
    let location = Location::Sqlite(dir.path().join("journal"));
    let platform = Arc::new(Platform::open(&location, WriterOptions::default()).await?);
    let users = people(10, async |wish| Ok(platform.wish(wish).await?.ids)).await?;
    join_all(&platform, nodes.min(NODES_MAX), gpus).await?;
    let spec = job(10, Priority::Normal);
    let mut best: Option<Line> = None;
    for clients in CLIENTS {
        let (begun, busy) = (Instant::now(), busy::of_all());
        let until = begun + Duration::from_secs_f64(seconds);
        let callers = (0..clients).map(|client| {
            let (platform, spec, owner) = (platform.clone(), spec.clone(), users[client % users.len()]);
            tokio::spawn(async move {
                let mut submitted = 0;
                while Instant::now() < until {
                    platform.submit(owner, spec.clone()).await?;
                    submitted += 1;
                }
                anyhow::Ok(submitted)
            })
        });
        let mut submitted: usize = 0;
        for caller in callers.collect::<Vec<_>>() {
            submitted += caller.await??;
        }
        let case = format!("durable, {clients} callers");
        let mut line = line(&case, nodes, gpus, submitted, begun.elapsed());
        let busy = busy::of_all().saturating_sub(busy);
        line.processor_us = Some(busy.as_secs_f64() * 1e6 / submitted.max(1) as f64);
        if best
            .as_ref()
            .is_none_or(|best| best.decisions_per_s < line.decisions_per_s)
        {
            best = Some(line);
        }
    }
    let waiting = platform.controller.view().read().queue.iter().count();
    anyhow::ensure!(waiting == 0, "{waiting} found no room");
    if let Some(platform) = Arc::into_inner(platform) {
        platform.close().await?;
    }
    best.ok_or_else(|| anyhow::anyhow!("nobody called"))
}
