//! The page of our own metrics: what the process counted, and what the state and the last readings say now.
//!
//! Whoever sees the fleet gets all of it; others get those families that are told apart by tenant, for theirs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tenure_api::channel::reading::DeviceReading;
use tenure_domain::id::{TenantId, UserId};
use tenure_domain::schedule::fleet::{Gpu, Node, NodeStatus};
use tenure_domain::tenancy::budget::{Budget, Cost};
use tenure_domain::tenancy::scope::{Level, ScopeId};
use tenure_domain::workload::job::{Job, Phase};
use tenure_domain::{State, Time};

use super::sight::Sight;
use super::text::{Form, Page};
use super::{MAX_TENANTS, Metrics, OTHERS, STAFF};
use crate::reading::Readings;

/// The most budgets shown; a platform of many subscribers may have more.
const MAX_BUDGETS: usize = 5000;
const MIB: f64 = 1_048_576.0;

/// What the page says of the server itself.
pub(crate) struct Server {
    pub leads: bool,
    pub seq: u64,
    pub agents: usize,
}

/// Writes the page.
pub(crate) fn page(
    form: Form,
    metrics: &Metrics,
    (state, at): (&State, Time),
    readings: &Readings,
    server: &Server,
    mut sight: Sight,
) -> String {
    let mut page = Page::new(form);
    if sight.fleet {
        write_server(&mut page, server);
        metrics.write_process(&mut page);
        write_fleet(&mut page, state, readings);
    }
    let tenants = Tenants::of(state);
    let jobs = Jobs::count(state, at, &tenants, &mut sight);
    jobs.write(&mut page);
    let names: BTreeMap<&str, TenantId> = tenants.by_name();
    metrics.write_fates(&mut page, |tenant| match names.get(tenant) {
        Some(&tenant) => sight.tenant(state, tenant),
        // Closed since, or counted together.
        None => sight.fleet,
    });
    write_budgets(&mut page, state, at, &sight);
    write_market(&mut page, state, &tenants, &sight);
    page.end()
}

/// What tenants are called here.
struct Tenants(HashMap<TenantId, Arc<str>>);

impl Tenants {
    fn of(state: &State) -> Tenants {
        let tenants = state
            .tree
            .children(ScopeId::Platform)
            .filter_map(|scope| match scope.id {
                ScopeId::Tenant(tenant) => Some((tenant, Arc::from(&*scope.name))),
                _ => None,
            });
        Tenants(tenants.take(MAX_TENANTS).collect())
    }

    fn name(&self, tenant: Option<TenantId>) -> Arc<str> {
        match tenant {
            None => STAFF.into(),
            Some(tenant) => self.0.get(&tenant).cloned().unwrap_or_else(|| OTHERS.into()),
        }
    }

    fn by_name(&self) -> BTreeMap<&str, TenantId> {
        self.0.iter().map(|(&id, name)| (&**name, id)).collect()
    }
}

fn write_server(page: &mut Page, server: &Server) {
    page.gauge("tenure_build_info", "The version of this server; always 1.");
    page.put(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.gauge(
        "tenure_leading",
        "1 where this server decides, 0 where it follows.",
    );
    page.put(&[], u8::from(server.leads));
    page.counter("tenure_journal_events", "Events in the journal.");
    page.put(&[], server.seq);
    page.gauge(
        "tenure_agents_connected",
        "Nodes whose agent speaks with this server now.",
    );
    page.put(&[], server.agents);
}

/// Sums of the devices of one class.
#[derive(Default)]
struct Class {
    /// By what keeps them from work, or nothing.
    health: BTreeMap<&'static str, u64>,
    in_service: u64,
    allocated_permille: u64,
    total_mib: u64,
    allocated_mib: u64,
    busy_permille: u64,
    busy_of: u64,
    used_mib: u64,
    used_of: u64,
}

fn health(node: &Node, gpu: &Gpu) -> &'static str {
    match (gpu.quarantine.is_some(), gpu.present, node.status) {
        (true, ..) => "quarantined",
        (_, false, _) => "absent",
        (.., NodeStatus::Lost) => "lost",
        (.., NodeStatus::Cordoned) => "cordoned",
        (.., NodeStatus::Up) => "healthy",
    }
}

impl Class {
    fn add(&mut self, health: &'static str, gpu: &Gpu, reading: Option<&DeviceReading>) {
        *self.health.entry(health).or_default() += 1;
        if health == "healthy" {
            self.in_service += 1;
        }
        self.allocated_permille += u64::from(gpu.used_permille);
        self.allocated_mib += gpu.used_vram_mib;
        self.total_mib += gpu.facts.vram_mib;
        let gauges = reading.map(|reading| &reading.gauges);
        if let Some(busy) = gauges.and_then(|gauges| gauges.busy_permille) {
            self.busy_permille += u64::from(busy);
            self.busy_of += 1;
        }
        if let Some(used) = gauges.and_then(|gauges| gauges.used_vram_mib) {
            self.used_mib += used;
            self.used_of += 1;
        }
    }
}

fn write_fleet(page: &mut Page, state: &State, readings: &Readings) {
    let mut nodes = BTreeMap::from([("up", 0_u64), ("lost", 0), ("cordoned", 0)]);
    let mut classes: BTreeMap<&str, Class> = BTreeMap::new();
    let held = readings.held();
    for node in state.fleet.nodes() {
        let status = match node.status {
            NodeStatus::Up => "up",
            NodeStatus::Lost => "lost",
            NodeStatus::Cordoned => "cordoned",
        };
        *nodes.entry(status).or_default() += 1;
        for gpu in &node.gpus {
            let class = classes.entry(&gpu.facts.class).or_default();
            class.add(health(node, gpu), gpu, held.fresh(node.id, &gpu.facts.uuid));
        }
    }
    drop(held);
    page.gauge("tenure_nodes", "Nodes by whether they take work.");
    for (status, count) in nodes {
        page.put(&[("status", status)], count);
    }
    page.gauge("tenure_gpus", "GPUs by class and by what keeps them from work.");
    for (class, sums) in &classes {
        for (health, count) in &sums.health {
            page.put(&[("class", class), ("health", health)], count);
        }
    }
    let gpus = |permille: u64| permille as f64 / 1000.0;
    page.gauge(
        "tenure_gpus_allocated",
        "GPUs given away, in shares of whole ones, by class.",
    );
    for (class, sums) in &classes {
        page.put(&[("class", class)], gpus(sums.allocated_permille));
    }
    page.gauge(
        "tenure_gpus_idle",
        "Healthy GPUs that nobody holds, in shares of whole ones, by class.",
    );
    for (class, sums) in &classes {
        let idle = (sums.in_service * 1000).saturating_sub(sums.allocated_permille);
        page.put(&[("class", class)], gpus(idle));
    }
    page.gauge(
        "tenure_gpus_busy",
        "GPUs at work as measured, in shares of whole ones, by class.",
    );
    for (class, sums) in classes.iter().filter(|(_, sums)| sums.busy_of > 0) {
        page.put(&[("class", class)], gpus(sums.busy_permille));
    }
    page.gauge(
        "tenure_gpus_measured",
        "GPUs whose work is measured now, by class.",
    );
    for (class, sums) in &classes {
        page.put(&[("class", class)], sums.busy_of);
    }
    page.gauge(
        "tenure_gpu_memory_bytes",
        "Memory of GPUs by class: all there is, what is given away, and what is in use as measured.",
    );
    for (class, sums) in &classes {
        let bytes = |mib: u64| mib as f64 * MIB;
        page.put(&[("class", class), ("state", "total")], bytes(sums.total_mib));
        page.put(
            &[("class", class), ("state", "allocated")],
            bytes(sums.allocated_mib),
        );
        if sums.used_of > 0 {
            page.put(&[("class", class), ("state", "used")], bytes(sums.used_mib));
        }
    }
}

type OfTenant<K, V> = BTreeMap<(Arc<str>, K), V>;

/// Jobs and what they hold, by tenant.
#[derive(Default)]
struct Jobs {
    phases: OfTenant<&'static str, u64>,
    /// By priority: how many wait, and for how long the first of them.
    queue: OfTenant<&'static str, (u64, u64)>,
    slices: OfTenant<(Arc<str>, &'static str), u64>,
    /// By class: thousandths of GPUs, and MiB.
    held: OfTenant<Arc<str>, (u64, u64)>,
}

impl Jobs {
    fn count(state: &State, at: Time, tenants: &Tenants, sight: &mut Sight) -> Jobs {
        let mut counted = Jobs::default();
        let roots = sight.roots(state);
        let mut of_owner: HashMap<UserId, Arc<str>> = HashMap::new();
        let mut classes: BTreeMap<Box<str>, Arc<str>> = BTreeMap::new();
        let mut add = |job: &Job| {
            if !sight.owner(state, job.owner) {
                return;
            }
            let tenant = of_owner
                .entry(job.owner)
                .or_insert_with(|| tenants.name(state.tree.tenant_of(ScopeId::User(job.owner))))
                .clone();
            *counted
                .phases
                .entry((tenant.clone(), job.phase.as_str()))
                .or_default() += 1;
            if job.phase == Phase::Queued {
                let key = (tenant.clone(), job.spec.priority.as_str());
                let (count, oldest_ms) = counted.queue.entry(key).or_default();
                *count += 1;
                *oldest_ms = (*oldest_ms).max(at.since_ms(job.since));
            }
            let allocations = job.allocations().filter_map(|id| state.fleet.allocation(id));
            for allocation in allocations.filter(|allocation| !allocation.paused) {
                let Some(node) = state.fleet.node(allocation.node) else {
                    continue;
                };
                for slice in &allocation.slices {
                    let Some(gpu) = node.gpu(slice.gpu) else { continue };
                    let class = match classes.get(&gpu.facts.class) {
                        Some(class) => class.clone(),
                        None => {
                            let class: Arc<str> = (*gpu.facts.class).into();
                            classes.insert(gpu.facts.class.clone(), class.clone());
                            class
                        }
                    };
                    let isolation = allocation.isolation.as_str();
                    let key = (tenant.clone(), (class.clone(), isolation));
                    *counted.slices.entry(key).or_default() += 1;
                    let (milli, mib) = counted.held.entry((tenant.clone(), class)).or_default();
                    *milli += u64::from(slice.compute_permille);
                    *mib += slice.vram_mib;
                }
            }
        };
        match roots[..] {
            [ScopeId::Platform] => state.jobs.values().for_each(&mut add),
            _ => roots
                .iter()
                .flat_map(|&root| state.jobs_within(root))
                .for_each(&mut add),
        }
        counted
    }

    fn write(&self, page: &mut Page) {
        page.gauge("tenure_jobs", "Live jobs by tenant and phase.");
        for ((tenant, phase), count) in &self.phases {
            page.put(&[("tenant", tenant), ("phase", phase)], count);
        }
        page.gauge("tenure_queue_jobs", "Waiting jobs by tenant and priority class.");
        for ((tenant, priority), (count, _)) in &self.queue {
            page.put(&[("tenant", tenant), ("priority", priority)], count);
        }
        page.gauge(
            "tenure_queue_oldest_seconds",
            "How long the job has waited that waits longest, by tenant and priority class.",
        );
        for ((tenant, priority), (_, oldest_ms)) in &self.queue {
            let oldest_s = *oldest_ms as f64 / 1000.0;
            page.put(&[("tenant", tenant), ("priority", priority)], oldest_s);
        }
        page.gauge("tenure_slices", "Slices held, by tenant, class and isolation.");
        for ((tenant, (class, isolation)), count) in &self.slices {
            page.put(
                &[("tenant", tenant), ("class", class), ("isolation", isolation)],
                count,
            );
        }
        page.gauge(
            "tenure_gpus_held",
            "GPUs held, in shares of whole ones, by tenant and class.",
        );
        for ((tenant, class), (milli, _)) in &self.held {
            page.put(&[("tenant", tenant), ("class", class)], *milli as f64 / 1000.0);
        }
        page.gauge(
            "tenure_gpu_memory_held_bytes",
            "Memory of GPUs held, by tenant and class.",
        );
        for ((tenant, class), (_, mib)) in &self.held {
            page.put(&[("tenant", tenant), ("class", class)], *mib as f64 * MIB);
        }
    }
}

type Limit = fn(&Budget) -> Option<f64>;
type Amount = fn(&Cost) -> f64;

const MICROS: f64 = 1_000_000.0;

const BUDGETS: [(&str, &str, Limit, Amount); 3] = [
    (
        "tenure_budget_money",
        "Budgets of money, in the platform's currency: the limit of the period, what is spent, and what is held.",
        |budget| Some(budget.money_micros? as f64 / MICROS),
        |cost| cost.money.0 as f64 / MICROS,
    ),
    (
        "tenure_budget_gpu_seconds",
        "Budgets of GPU time: the limit of the period, what is spent, and what is held.",
        |budget| Some(budget.gpu_seconds? as f64),
        |cost| cost.gpu_ms as f64 / 1000.0,
    ),
    (
        "tenure_budget_frames",
        "Budgets of frames: the limit of the period, what is spent, and what is held.",
        |budget| Some(budget.frames? as f64),
        |cost| cost.frames as f64,
    ),
];

/// Budgets of everything above users, where the caller sees all that is spent there.
fn write_budgets(page: &mut Page, state: &State, at: Time, sight: &Sight) {
    let scopes = state.tree.iter().filter(|scope| {
        !scope.budgets.is_empty() && scope.id.level() != Level::User && sight.scope(state, scope.id)
    });
    let budgets = scopes.flat_map(|scope| {
        let title = state.tree.title(scope.id);
        let budgets = scope.budgets.iter();
        budgets.map(move |budget| (title.clone(), scope, budget))
    });
    let mut rows = BTreeMap::new();
    for (title, scope, budget) in budgets.take(MAX_BUDGETS) {
        // Two of one period and group say the same of what is spent; the tighter is the one that counts.
        for (kind, (_, _, limit, amount)) in BUDGETS.iter().enumerate() {
            let Some(limit) = limit(budget) else { continue };
            let spend = scope.spending.at(&budget.of(), budget.period, at);
            let figures = [limit, amount(&spend.spent), amount(&spend.held)];
            let of = Some(budget.of().to_string()).filter(|of| !of.is_empty());
            let key = (
                kind,
                title.clone(),
                budget.period.as_str(),
                of.unwrap_or("all".into()),
            );
            let known = rows.entry(key).or_insert(figures);
            known[0] = known[0].min(limit);
        }
    }
    for (kind, (name, help, ..)) in BUDGETS.iter().enumerate() {
        page.gauge(name, help);
        for ((_, title, period, of), figures) in rows.iter().filter(|((of, ..), _)| *of == kind) {
            for (state, figure) in ["limit", "spent", "held"].into_iter().zip(figures) {
                let labels = [
                    ("scope", title.as_str()),
                    ("period", period),
                    ("of", of),
                    ("state", state),
                ];
                page.put(&labels, figure);
            }
        }
    }
}

/// What a tenant has on the exchange, in whole GPUs.
fn write_market(page: &mut Page, state: &State, tenants: &Tenants, sight: &Sight) {
    let mut sums: [OfTenant<Arc<str>, u64>; 4] = Default::default();
    let mut add = |kind: usize, tenant: TenantId, class: &str, milli: u64| {
        if sight.tenant(state, tenant) {
            let key = (tenants.name(Some(tenant)), Arc::from(class));
            *sums[kind].entry(key).or_default() += milli;
        }
    };
    for offer in state.market.offers() {
        add(0, offer.seller, &offer.spec.class, offer.left_milli());
    }
    for bid in state.market.bids() {
        add(1, bid.tenant, &bid.spec.class, bid.left_milli);
    }
    for lease in state.market.leases() {
        add(2, lease.buyer, &lease.class, lease.gpu_milli);
        add(3, lease.seller, &lease.class, lease.gpu_milli);
    }
    let families = [
        (
            "tenure_gpus_offered",
            "GPUs on the exchange that are not leased yet, by seller and class.",
        ),
        ("tenure_gpus_bid", "GPUs that bids wait for, by bidder and class."),
        ("tenure_gpus_leased", "GPUs leased of others, by buyer and class."),
        ("tenure_gpus_let", "GPUs let to others, by seller and class."),
    ];
    for ((name, help), sums) in families.into_iter().zip(&sums) {
        page.gauge(name, help);
        for ((tenant, class), milli) in sums {
            page.put(&[("tenant", tenant), ("class", class)], *milli as f64 / 1000.0);
        }
    }
}
