//! The naive model: plain lists, everything recomputed by summing. It follows the events and says, on its own
//! arithmetic, whether each admission was allowed, what every scope must have counted, and which waiting job
//! should have been started. Written without looking at how the domain keeps its counters.

use std::collections::BTreeSet;

use tenure_domain::id::{AllocationId, GpuId, JobId, NodeId, UserId, VolumeId};
use tenure_domain::ledger::price::Prices;
use tenure_domain::schedule::calendar::Promise;
use tenure_domain::schedule::fleet::{GpuFacts, NodeStatus};
use tenure_domain::schedule::label::Labels;
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::tenancy::share::Share;
use tenure_domain::time::Period;
use tenure_domain::workload::spec::{Isolation, JobSpec, Kind};
use tenure_domain::workload::task::Tasks;
use tenure_domain::{Event, State, Time};

struct Place {
    id: ScopeId,
    parent: Option<ScopeId>,
    suspended: bool,
    quota: Vec<(String, u64)>,
    share: Share,
    budgets: Vec<Budget>,
    policy: Policy,
    /// Quota meters that stand above their limit because it was cut, with the use last seen.
    above: Vec<(String, u64)>,
    /// Budgets passed because they were cut, with money and GPU time last seen.
    passed: Vec<(Budget, i128, u128)>,
}

struct Work {
    id: JobId,
    owner: UserId,
    spec: JobSpec,
    volumes: Vec<VolumeId>,
    /// Done in tasks, which are works of their own.
    parent: bool,
    /// What it uses by meter, the groups it counts in, and what is left of its hold.
    running: Option<Running>,
    /// What each living member has.
    given: Vec<Given>,
    resuming: bool,
}

/// Use by meter, groups, money and GPU time left.
type Running = (Vec<(String, u64)>, Vec<String>, i128, u128);

struct Given {
    id: AllocationId,
    node: NodeId,
    parts: Vec<(GpuId, u64, u64)>,
    level: Isolation,
    metered_ms: u64,
}

struct Space {
    id: VolumeId,
    scope: ScopeId,
    mib: u64,
    node: Option<NodeId>,
    removed: bool,
}

struct Charged {
    at: Time,
    scopes: Vec<ScopeId>,
    groups: Vec<String>,
    money: i128,
    gpu_ms: u128,
}

struct Machine {
    id: NodeId,
    status: NodeStatus,
    cordoned: bool,
    cpu: u64,
    memory: u64,
    space: u64,
    gpus: Vec<(GpuId, GpuFacts)>,
    labels: Labels,
}

#[derive(Default)]
pub struct Model {
    places: Vec<Place>,
    works: Vec<Work>,
    charges: Vec<Charged>,
    promises: Vec<Promise>,
    machines: Vec<Machine>,
    spaces: Vec<Space>,
    prices: Prices,
    pub admitted: u64,
    /// Who waited past the bound and goes first, whatever its class.
    pub aged: BTreeSet<JobId>,
}

/// Which period of its kind a moment lies in; only equality matters.
fn period_of(period: Period, at: Time) -> i64 {
    let day = at.0.div_euclid(86_400_000);
    match period {
        Period::Day => day,
        Period::Week => (day + 3).div_euclid(7),
        Period::Month => {
            let (mut year, mut rest) = (1970, day);
            let leap = |y: i64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
            while rest >= if leap(year) { 366 } else { 365 } {
                rest -= if leap(year) { 366 } else { 365 };
                year += 1;
            }
            let lengths = [
                31,
                if leap(year) { 29 } else { 28 },
                31,
                30,
                31,
                30,
                31,
                31,
                30,
                31,
                30,
                31,
            ];
            let mut month = 0;
            while rest >= lengths[month] {
                rest -= lengths[month];
                month += 1;
            }
            year * 12 + month as i64
        }
        Period::Total => 0,
    }
}

fn groups(spec: &JobSpec, class: Option<&str>) -> Vec<String> {
    let mut all = vec![String::new()];
    all.extend(class.map(|class| format!("class:{class}")));
    all.extend(spec.sku.as_ref().map(|sku| format!("sku:{sku}")));
    all.extend((spec.kind != Kind::Batch).then(|| format!("kind:{}", spec.kind.as_str())));
    all
}

fn uses(spec: &JobSpec, class: Option<&str>, vram: u64) -> Vec<(String, u64)> {
    let demand = &spec.demand;
    let members = u64::from(demand.nodes);
    let gpus = members * u64::from(demand.gpus);
    let plain = [
        ("gpu_milli", gpus * u64::from(demand.compute_permille)),
        ("slices", gpus),
        ("vram_mib", vram),
        ("cpu_milli", members * u64::from(demand.cpu_milli)),
        ("memory_mib", members * demand.memory_mib),
        ("jobs", u64::from(spec.task.is_none())),
    ];
    let mut all = Vec::new();
    for group in groups(spec, class) {
        for (name, n) in plain {
            let counted = !group.starts_with("kind:") || ["jobs", "gpu_milli", "vram_mib"].contains(&name);
            if n > 0 && counted {
                all.push((
                    if group.is_empty() {
                        name.to_owned()
                    } else {
                        format!("{name}@{group}")
                    },
                    n,
                ));
            }
        }
    }
    all.sort();
    all
}

/// What a job of tasks uses itself: that it is one.
fn uses_of_parent(spec: &JobSpec) -> Vec<(String, u64)> {
    let mut all = uses(spec, spec.demand.class.as_deref(), 0);
    all.retain(|(name, _)| name == "jobs" || name.starts_with("jobs@"));
    all
}

fn limit_of(budget: &Budget) -> String {
    match (&budget.class, &budget.sku, budget.kind) {
        (Some(class), ..) => format!("class:{class}"),
        (_, Some(sku), _) => format!("sku:{sku}"),
        (.., Some(kind)) => format!("kind:{}", kind.as_str()),
        _ => String::new(),
    }
}

impl Model {
    fn place(&self, id: ScopeId) -> &Place {
        self.places
            .iter()
            .find(|place| place.id == id)
            .expect("the model knows the scope")
    }

    fn place_mut(&mut self, id: ScopeId) -> &mut Place {
        self.places
            .iter_mut()
            .find(|place| place.id == id)
            .expect("the model knows the scope")
    }

    fn up(&self, id: ScopeId) -> Vec<ScopeId> {
        let mut all = vec![id];
        while let Some(parent) = self.place(all[all.len() - 1]).parent {
            all.push(parent);
        }
        all
    }

    fn tenant(&self, owner: UserId) -> Option<ScopeId> {
        self.up(ScopeId::User(owner))
            .into_iter()
            .find(|id| matches!(id, ScopeId::Tenant(_)))
    }

    fn below(&self, scope: ScopeId) -> Vec<&Work> {
        self.works
            .iter()
            .filter(|work| self.up(ScopeId::User(work.owner)).contains(&scope))
            .collect()
    }

    fn used(&self, scope: ScopeId, below: &[&Work], meter: &str) -> u64 {
        if meter == "volume_mib" {
            let here = self.spaces.iter().filter(|space| !space.removed);
            let below = here.filter(|space| self.up(space.scope).contains(&scope));
            return below.map(|space| space.mib).sum();
        }
        let running = below.iter().filter_map(|work| work.running.as_ref());
        running
            .flat_map(|(uses, ..)| uses)
            .filter(|(name, _)| name == meter)
            .map(|(_, n)| n)
            .sum()
    }

    fn held(&self, below: &[&Work], group: &str) -> (i128, u128) {
        let mine = below
            .iter()
            .filter_map(|work| work.running.as_ref())
            .filter(|(_, groups, ..)| groups.iter().any(|g| g == group));
        mine.fold((0, 0), |sum, (_, _, money, gpu_ms)| {
            (sum.0 + money, sum.1 + gpu_ms)
        })
    }

    fn spent(&self, scope: ScopeId, group: &str, period: Period, now: Time) -> (i128, u128) {
        let index = period_of(period, now);
        let mine = self.charges.iter().filter(|c| {
            c.scopes.contains(&scope)
                && c.groups.iter().any(|g| g == group)
                && period_of(period, c.at) == index
        });
        mine.fold((0, 0), |sum, c| (sum.0 + c.money, sum.1 + c.gpu_ms))
    }

    fn hourly(&self, spec: &JobSpec, class: Option<&str>, vram: u64) -> i128 {
        let up = |price: i64, milli: u64| (i128::from(price) * i128::from(milli) + 999) / 1000;
        let demand = &spec.demand;
        let mut sum = up(self.prices.cpu_hour_micros, demand.cpu_milli.into())
            + up(
                self.prices.memory_gib_hour_micros,
                demand.memory_mib * 1000 / 1024,
            );
        if let Some(class) = class {
            let price = self
                .prices
                .classes
                .get(class)
                .copied()
                .unwrap_or(self.prices.other);
            sum += up(
                price.gpu_hour_micros,
                u64::from(demand.gpus) * u64::from(demand.compute_permille),
            );
            sum += up(price.vram_gib_hour_micros, vram * 1000 / 1024);
        }
        sum
    }

    /// What all members cost at most, each for itself.
    fn cost(&self, spec: &JobSpec, class: Option<&str>, vram: u64) -> (i128, u128) {
        let ms = i128::from(spec.run_time_s + u64::from(spec.grace_s)) * 1000;
        let gpu_milli = u128::from(spec.demand.gpus) * u128::from(spec.demand.compute_permille);
        let members = spec.demand.nodes;
        let hourly = self.hourly(spec, class, vram / u64::from(members));
        (
            i128::from(members) * ((hourly * ms + 3_599_999) / 3_600_000),
            u128::from(members) * (ms as u128 * gpu_milli / 1000),
        )
    }

    /// What forbids the job now, by quota, budget or suspension, at any scope above.
    fn forbids(
        &self,
        owner: UserId,
        spec: &JobSpec,
        class: Option<&str>,
        vram: u64,
        now: Time,
    ) -> Option<String> {
        let (asked, cost) = (uses(spec, class, vram), self.cost(spec, class, vram));
        self.forbids_that(owner, spec, class, &asked, cost, now)
    }

    /// Whether the job of a task may not begin, where none of its tasks has.
    fn forbids_parent(&self, work: &Work, now: Time) -> bool {
        let of = work.spec.task.as_ref().map(|task| task.of);
        let parent = self.works.iter().find(|work| Some(work.id) == of);
        parent.is_some_and(|parent| {
            let asked = uses_of_parent(&parent.spec);
            parent.running.is_none()
                && self
                    .forbids_that(parent.owner, &parent.spec, None, &asked, (0, 0), now)
                    .is_some()
        })
    }

    fn forbids_that(
        &self,
        owner: UserId,
        spec: &JobSpec,
        class: Option<&str>,
        asked: &[(String, u64)],
        cost: (i128, u128),
        now: Time,
    ) -> Option<String> {
        for id in self.up(ScopeId::User(owner)) {
            let (place, below) = (self.place(id), self.below(id));
            if place.suspended {
                return Some(format!("{id} is suspended"));
            }
            for (meter, limit) in &place.quota {
                let more = asked
                    .iter()
                    .find(|(name, _)| name == meter)
                    .map_or(0, |(_, n)| *n);
                if more > 0 && self.used(id, &below, meter) + more > *limit {
                    return Some(format!("{id} quota {meter}"));
                }
            }
            if class.is_some_and(|class| self.borrows_in_vain(id, class, spec)) {
                return Some(format!("{id} borrows more than it may"));
            }
            for budget in &place.budgets {
                let group = limit_of(budget);
                if !groups(spec, class).contains(&group) {
                    continue;
                }
                let (held, spent) = (
                    self.held(&below, &group),
                    self.spent(id, &group, budget.period, now),
                );
                let over_money = budget
                    .money_micros
                    .is_some_and(|limit| cost.0 > 0 && held.0 + spent.0 + cost.0 > i128::from(limit));
                let over_time = budget
                    .gpu_seconds
                    .is_some_and(|limit| cost.1 > 0 && held.1 + spent.1 + cost.1 > u128::from(limit) * 1000);
                if over_money || over_time {
                    return Some(format!("{id} budget {group} {}", budget.period.as_str()));
                }
            }
        }
        None
    }

    /// Whether a scope would use more of a class than it is sure of, may borrow, and finds idle beside it.
    fn borrows_in_vain(&self, id: ScopeId, class: &str, spec: &JobSpec) -> bool {
        let asked = i128::from(spec.demand.gpus_total()) * i128::from(spec.demand.compute_permille);
        let place = self.place(id);
        let Some(mine) = place.share.nominal.get(class) else {
            return false;
        };
        let used = |id| i128::from(self.used(id, &self.below(id), &format!("gpu_milli@class:{class}")));
        let beyond = used(id) + asked - i128::from(mine.gpu_milli);
        if asked == 0 || beyond <= 0 {
            return false;
        }
        let beside = self
            .places
            .iter()
            .filter(|other| other.id != id && other.parent == place.parent);
        let idle: i128 = beside
            .filter_map(|other| Some((other.id, other.share.nominal.get(class)?)))
            .map(|(other, nominal)| {
                let left = i128::from(nominal.gpu_milli) - used(other);
                left.min(nominal.lend_milli.map_or(i128::MAX, i128::from))
            })
            .sum();
        mine.borrow_milli.is_some_and(|most| beyond > i128::from(most)) || beyond > idle
    }

    fn level(&self, gpu: &GpuFacts, owner: UserId, spec: &JobSpec, on: GpuId) -> Option<Isolation> {
        let whole = spec.demand.compute_permille == 1000;
        let offered: Vec<Isolation> = gpu
            .isolation
            .keys()
            .copied()
            .filter(|level| *level != Isolation::Partition && (whole || *level != Isolation::Exclusive))
            .collect();
        let level = offered.into_iter().max()?;
        let (consent, least) = self.words(owner, spec);
        let fine = self
            .works
            .iter()
            .flat_map(|work| work.given.iter().map(move |given| (work, given)))
            .all(|(work, given)| {
                if !given.parts.iter().any(|(gpu, ..)| *gpu == on) {
                    return true;
                }
                let (theirs, their_least) = self.words(work.owner, &work.spec);
                let meet = self.tenant(owner) == self.tenant(work.owner)
                    || (level >= Isolation::Fenced && given.level >= Isolation::Fenced)
                    || (consent && theirs);
                meet && given.level >= least && level >= their_least
            });
        (fine && level >= least).then_some(level)
    }

    fn words(&self, owner: UserId, spec: &JobSpec) -> (bool, Isolation) {
        let up: Vec<&Place> = self
            .up(ScopeId::User(owner))
            .into_iter()
            .map(|id| self.place(id))
            .collect();
        let consent = up
            .iter()
            .filter_map(|place| place.policy.share_guarded)
            .next()
            .unwrap_or(false);
        let least = up.iter().filter_map(|place| place.policy.min_isolation).max();
        (
            consent,
            least.unwrap_or(Isolation::Guarded).max(spec.demand.isolation),
        )
    }

    /// Whether some machine has room now, and quota and budget allow it there.
    fn could_start(&self, work: &Work, now: Time) -> bool {
        let (demand, owner) = (&work.spec.demand, work.owner);
        let up: Vec<ScopeId> = self.up(ScopeId::User(owner));
        if up.iter().any(|scope| !allows(&self.place(*scope).policy, work)) {
            return false;
        }
        // Where others leave for a job, quota and money are kept for it as well as the room.
        let evicts = |kept: &Promise| kept.job != work.id && !kept.victims.is_empty();
        if self.promises.iter().any(evicts) {
            return false;
        }
        if self.forbids_parent(work, now) {
            return false;
        }
        if demand.gpus == 0 {
            return self.holds(work, None, now) && self.forbids(owner, &work.spec, None, 0, now).is_none();
        }
        // How slices of several GPUs are dealt to several members decides how many fit, and the model does not search.
        if demand.nodes > 1 && demand.gpus > 1 && demand.compute_permille < 1000 {
            return false;
        }
        let gpus = self.machines.iter().flat_map(|machine| &machine.gpus);
        let mut classes: Vec<(&str, u64)> = gpus.map(|(_, facts)| (&*facts.class, facts.vram_mib)).collect();
        classes.dedup();
        classes.into_iter().any(|(class, whole)| {
            let allowed = up.iter().all(|&id| {
                self.place(id)
                    .policy
                    .classes
                    .as_ref()
                    .is_none_or(|classes| classes.contains(class))
            });
            if !allowed || demand.class.as_deref().is_some_and(|wanted| wanted != class) {
                return false;
            }
            let each = if demand.compute_permille == 1000 {
                whole
            } else {
                demand.vram_mib
            };
            let vram = each * u64::from(demand.gpus) * u64::from(demand.nodes);
            self.holds(work, Some(class), now)
                && self.forbids(owner, &work.spec, Some(class), vram, now).is_none()
        })
    }

    /// Whether the machines have room for all members, and one of them if volumes hold them together.
    fn holds(&self, work: &Work, class: Option<&str>, now: Time) -> bool {
        let up = self
            .machines
            .iter()
            .filter(|machine| machine.status == NodeStatus::Up && !self.is_promised(machine, work, now));
        let each = up.map(|machine| self.members_on(machine, work, class));
        let most: u64 = if work.volumes.is_empty() {
            each.sum()
        } else {
            each.max().unwrap_or(0)
        };
        most >= u64::from(work.spec.demand.nodes)
    }

    /// Whether the machine has room that is kept, for some of the time it would run, for one that goes before.
    fn is_promised(&self, machine: &Machine, work: &Work, now: Time) -> bool {
        let ends = now.plus_ms((work.spec.run_time_s + u64::from(work.spec.grace_s)) * 1000);
        let ahead = |kept: &Promise| {
            let first = self.works.iter().find(|other| other.id == kept.job);
            first.is_some_and(|first| {
                first.spec.priority >= work.spec.priority || self.aged.contains(&first.id)
            })
        };
        let mut others = self.promises.iter().filter(|kept| kept.job != work.id);
        others.any(|kept| kept.is_on(machine.id) && kept.from < ends && ahead(kept))
    }

    /// How many members a machine has room for now.
    fn members_on(&self, machine: &Machine, work: &Work, class: Option<&str>) -> u64 {
        let (demand, owner) = (&work.spec.demand, work.owner);
        let here: Vec<(&Work, &Given)> = self
            .works
            .iter()
            .flat_map(|work| work.given.iter().map(move |given| (work, given)))
            .filter(|(_, given)| given.node == machine.id)
            .collect();
        let sum = |of: &dyn Fn(&Work) -> u64| here.iter().map(|(work, _)| of(work)).sum::<u64>();
        let cpu = sum(&|work| work.spec.demand.cpu_milli.into());
        let memory = sum(&|work| work.spec.demand.memory_mib);
        if !self.has_volumes(machine, &work.volumes) {
            return 0;
        }
        let theirs = machine.labels.dedicated.map(ScopeId::Tenant);
        if theirs.is_some() && theirs != self.tenant(owner) {
            return 0;
        }
        if demand.region.is_some() && demand.region != machine.labels.region {
            return 0;
        }
        let by_cpu = machine.cpu.saturating_sub(cpu) / u64::from(demand.cpu_milli);
        let most = by_cpu.min(machine.memory.saturating_sub(memory) / demand.memory_mib);
        let Some(class) = class else {
            return most;
        };
        let caps: Vec<u64> = self
            .up(ScopeId::User(owner))
            .into_iter()
            .filter_map(|id| self.place(id).policy.max_vram_mib_per_job)
            .collect();
        let gpus = u64::from(demand.gpus) * u64::from(demand.nodes);
        let slices = machine.gpus.iter().filter(|(_, facts)| {
            let of_model = demand.model.as_ref().is_none_or(|model| **model == *facts.model);
            *facts.class == *class && of_model
        });
        let slices: Vec<u64> = slices
            .map(|(id, facts)| {
                let parts: Vec<_> = here
                    .iter()
                    .flat_map(|(_, given)| &given.parts)
                    .filter(|(gpu, ..)| gpu == id)
                    .collect();
                let vram = if demand.compute_permille == 1000 {
                    facts.vram_mib.max(demand.vram_mib)
                } else {
                    demand.vram_mib
                };
                let capped = caps.iter().all(|max| vram * gpus <= *max);
                if !capped || self.level(facts, owner, &work.spec, *id).is_none() {
                    return 0;
                }
                let free_vram = facts.vram_mib - parts.iter().map(|(_, vram, _)| vram).sum::<u64>();
                let free_share = 1000 - parts.iter().map(|(.., share)| share).sum::<u64>();
                (free_vram / vram).min(free_share / u64::from(demand.compute_permille))
            })
            .collect();
        let fitting = slices.iter().filter(|slices| **slices > 0).count() as u64;
        most.min(match demand.gpus {
            1 => slices.iter().sum(),
            gpus => fitting / u64::from(gpus),
        })
    }

    /// Whether a machine has a job's volumes, or room for those that are nowhere yet.
    fn has_volumes(&self, machine: &Machine, wanted: &[VolumeId]) -> bool {
        let mine = || self.spaces.iter().filter(|space| wanted.contains(&space.id));
        let here = self.spaces.iter().filter(|space| space.node == Some(machine.id));
        let taken: u64 = here.map(|space| space.mib).sum();
        let fresh: u64 = mine()
            .filter(|space| space.node.is_none())
            .map(|space| space.mib)
            .sum();
        mine().all(|space| space.node.is_none_or(|node| node == machine.id))
            && (fresh == 0 || taken + fresh <= machine.space)
    }

    fn space(&mut self, id: VolumeId) -> &mut Space {
        self.spaces
            .iter_mut()
            .find(|space| space.id == id)
            .expect("a known volume")
    }

    /// Takes in what happened; refuses to believe what should not have.
    pub fn follow(&mut self, now: Time, event: &Event) {
        match event {
            Event::PlatformFounded { prices, .. } => {
                self.prices = prices.clone();
                self.add(ScopeId::Platform, None);
            }
            Event::PricesSet { prices } => self.prices = prices.clone(),
            Event::ScopeCreated { scope, parent, .. } => self.add(*scope, Some(*parent)),
            Event::ScopeClosed { scope } => {
                assert!(self.below(*scope).is_empty(), "a scope with jobs was closed");
                self.places.retain(|place| place.id != *scope);
            }
            Event::ScopeMoved { scope, parent } => self.place_mut(*scope).parent = Some(*parent),
            Event::ScopeSuspended { scope } => self.place_mut(*scope).suspended = true,
            Event::ScopeResumed { scope } => self.place_mut(*scope).suspended = false,
            Event::QuotaSet { scope, quota } => {
                let limits: Vec<(String, u64)> =
                    quota.iter().map(|(meter, n)| (meter.to_string(), n)).collect();
                let below = self.below(*scope);
                let above = limits
                    .iter()
                    .map(|(meter, limit)| (meter.clone(), self.used(*scope, &below, meter), *limit))
                    .filter(|(_, used, limit)| used > limit);
                let above = above.map(|(meter, used, _)| (meter, used)).collect();
                let place = self.place_mut(*scope);
                (place.quota, place.above) = (limits, above);
            }
            Event::ShareSet { scope, share } => self.place_mut(*scope).share = share.clone(),
            Event::BudgetsSet { scope, budgets } => {
                let passed = budgets
                    .iter()
                    .filter_map(|budget| self.over(*scope, budget, now))
                    .collect();
                let place = self.place_mut(*scope);
                (place.budgets, place.passed) = (budgets.clone(), passed);
            }
            Event::PolicySet { scope, policy } => self.place_mut(*scope).policy = policy.clone(),

            Event::NodeJoined { node, .. } => {
                self.machines.push(Machine {
                    id: *node,
                    status: NodeStatus::Up,
                    cordoned: false,
                    cpu: 0,
                    memory: 0,
                    space: 0,
                    gpus: vec![],
                    labels: Labels::default(),
                });
            }
            Event::NodeInventoried {
                node,
                inventory,
                gpus,
            } => {
                for machine in self
                    .machines
                    .iter_mut()
                    .filter(|machine| machine.status == NodeStatus::Lost && machine.id != *node)
                {
                    machine
                        .gpus
                        .retain(|(_, facts)| inventory.gpus.iter().all(|seen| seen.uuid != facts.uuid));
                }
                let machine = self.machine(*node);
                machine.cpu = inventory.cpu_milli.into();
                machine.memory = inventory.memory_mib;
                machine.space = inventory.volume_mib;
                machine.gpus = gpus.iter().copied().zip(inventory.gpus.iter().cloned()).collect();
            }
            Event::NodeLost { node } => self.machine(*node).status = NodeStatus::Lost,
            Event::NodeReturned { node } => {
                let machine = self.machine(*node);
                machine.status = if machine.cordoned {
                    NodeStatus::Cordoned
                } else {
                    NodeStatus::Up
                };
            }
            Event::NodeCordoned { node } => {
                let machine = self.machine(*node);
                (machine.status, machine.cordoned) = (NodeStatus::Cordoned, true);
            }
            Event::NodeUncordoned { node } => {
                let machine = self.machine(*node);
                (machine.status, machine.cordoned) = (NodeStatus::Up, false);
            }
            Event::NodeLabelled { node, labels } => self.machine(*node).labels = labels.clone(),
            Event::NodeRemoved { node } => {
                self.machines.retain(|machine| machine.id != *node);
                self.promises.retain(|kept| !kept.is_on(*node));
            }

            Event::VolumeCreated {
                volume,
                scope,
                size_mib,
                ..
            } => self.spaces.push(Space {
                id: *volume,
                scope: *scope,
                mib: *size_mib,
                node: None,
                removed: false,
            }),
            Event::VolumeGrown { volume, size_mib, .. } => {
                assert!(self.space(*volume).mib < *size_mib, "a volume only grows");
                self.space(*volume).mib = *size_mib;
            }
            Event::VolumeBound { volume, node, .. } => {
                assert!(self.space(*volume).node.replace(*node).is_none());
                let taken: u64 = self
                    .spaces
                    .iter()
                    .filter(|space| space.node == Some(*node))
                    .map(|space| space.mib)
                    .sum();
                let machine = self.machine(*node);
                assert!(taken <= machine.space, "volumes have more than a node has");
            }
            Event::VolumeRemoved { volume, .. } => {
                let used = self.works.iter().any(|work| work.volumes.contains(volume));
                assert!(!used, "a volume was taken from a job");
                self.space(*volume).removed = true;
                self.spaces.retain(|space| !space.removed || space.node.is_some());
            }
            Event::VolumeErased { volume, node, .. } => {
                assert!(self.space(*volume).removed && self.space(*volume).node == Some(*node));
                self.spaces.retain(|space| space.id != *volume);
            }

            Event::JobSubmitted {
                job,
                owner,
                spec,
                volumes,
                ..
            } => {
                self.works.push(Work {
                    parent: Tasks::of(spec).is_some(),
                    volumes: volumes.clone(),
                    id: *job,
                    owner: *owner,
                    spec: JobSpec::clone(spec),
                    running: None,
                    given: vec![],
                    resuming: false,
                });
            }
            Event::TaskSubmitted { job, task } => {
                let parent = self.works.iter().find(|work| work.id == task.of);
                let parent = parent.expect("a task is of a known job");
                assert!(parent.parent);
                let work = Work {
                    parent: false,
                    volumes: parent.volumes.clone(),
                    id: *job,
                    owner: parent.owner,
                    spec: parent.spec.of_task(task),
                    running: None,
                    given: vec![],
                    resuming: false,
                };
                self.works.push(work);
            }
            Event::JobAdmitted { job, admission } if self.work(*job).parent => {
                let work = self.works.iter().find(|work| work.id == *job);
                let work = work.expect("a known job");
                let asked = uses_of_parent(&work.spec);
                let forbidden = self.forbids_that(work.owner, &work.spec, None, &asked, (0, 0), now);
                assert_eq!(forbidden, None, "{job} was admitted against a limit");
                let mut told: Vec<(String, u64)> = admission
                    .amounts
                    .iter()
                    .map(|(meter, n)| (meter.to_string(), n))
                    .collect();
                told.sort();
                assert_eq!(told, asked, "{job} is one job");
                let in_groups = groups(&work.spec, work.spec.demand.class.as_deref());
                self.work(*job).running = Some((asked, in_groups, 0, 0));
            }
            Event::JobAdmitted { job, admission } => {
                self.promises.retain(|kept| kept.job != *job);
                self.admitted += 1;
                let work = self
                    .works
                    .iter()
                    .find(|work| work.id == *job)
                    .expect("a known job");
                let class = admission.hold.class.as_deref();
                let vram = admission
                    .amounts
                    .get(&"vram_mib".parse().expect("a meter"))
                    .unwrap_or(0);
                let forbidden = self.forbids(work.owner, &work.spec, class, vram, now);
                assert_eq!(forbidden, None, "{job} was admitted against a limit");
                let (asked, cost, in_groups) = (
                    uses(&work.spec, class, vram),
                    self.cost(&work.spec, class, vram),
                    groups(&work.spec, class),
                );
                let mut told: Vec<(String, u64)> = admission
                    .amounts
                    .iter()
                    .map(|(meter, n)| (meter.to_string(), n))
                    .collect();
                told.sort();
                assert_eq!(told, asked, "{job} holds what it uses");
                let left = admission.hold.left;
                assert_eq!(
                    (i128::from(left.money.0), u128::from(left.gpu_ms)),
                    cost,
                    "{job} holds what it may cost"
                );
                self.work(*job).running = Some((asked, in_groups, cost.0, cost.1));
            }
            Event::JobPlaced {
                job,
                allocation,
                others,
            } => {
                let work = self.work(*job);
                assert_eq!(
                    1 + others.len(),
                    work.spec.demand.nodes as usize,
                    "{job} is placed in part"
                );
                for (number, allocation) in (0..).zip([allocation].into_iter().chain(others)) {
                    assert_eq!(allocation.member, number, "{job}: members have their numbers");
                    let parts = allocation
                        .slices
                        .iter()
                        .map(|slice| (slice.gpu, slice.vram_mib, slice.compute_permille.into()))
                        .collect();
                    work.given.push(Given {
                        id: allocation.id,
                        node: allocation.node,
                        parts,
                        level: allocation.isolation,
                        metered_ms: 0,
                    });
                }
            }
            Event::MemberEnded { job, allocation, .. } => {
                let given = &mut self.work(*job).given;
                let before = given.len();
                given.retain(|given| given.id != *allocation);
                assert_eq!(given.len() + 1, before, "{job}: a member ends once");
            }
            Event::JobResized {
                job,
                demand,
                admission,
                slices,
            } => {
                let class = admission.hold.class.as_deref();
                let vram = slices.iter().map(|slice| slice.vram_mib).sum();
                let mut spec = self.work(*job).spec.clone();
                (spec.demand.compute_permille, spec.demand.vram_mib) =
                    (demand.compute_permille, demand.vram_mib);
                assert_eq!(&spec.demand, demand, "{job} changes its size alone");
                let (rest, asked) = (self.rest(*job, &spec, class, vram), uses(&spec, class, vram));
                let left = admission.hold.left;
                assert_eq!(
                    (i128::from(left.money.0), u128::from(left.gpu_ms)),
                    rest,
                    "{job} holds what the rest may cost"
                );
                let in_groups = groups(&spec, class);
                let work = self.work(*job);
                work.spec = spec;
                work.running = Some((asked, in_groups, rest.0, rest.1));
                let [given] = &mut work.given[..] else {
                    panic!("only what runs alone is resized")
                };
                let gpus: Vec<GpuId> = given.parts.iter().map(|part| part.0).collect();
                given.parts = slices
                    .iter()
                    .map(|slice| (slice.gpu, slice.vram_mib, slice.compute_permille.into()))
                    .collect();
                assert!(
                    given.parts.iter().map(|part| part.0).eq(gpus),
                    "it stays where it is"
                );
            }
            Event::JobPromised { promise } => {
                assert!(
                    self.promises.iter().all(|kept| kept.job != promise.job),
                    "one promise a job"
                );
                // Who evicts may go before one that only waits; no other two have a GPU in common.
                let gpus = |kept: &Promise| -> Vec<GpuId> {
                    let slices = kept.rooms().flat_map(|(_, slices)| slices);
                    slices.map(|slice| slice.gpu).collect()
                };
                let wanted = gpus(promise);
                let apart = |kept: &Promise| {
                    let goes_before = promise.evicts() && !kept.evicts();
                    goes_before || !gpus(kept).iter().any(|gpu| wanted.contains(gpu))
                };
                assert!(self.promises.iter().all(apart), "one GPU promised twice");
                self.promises.push(promise.clone());
            }
            Event::PromiseWithdrawn { job, .. } => {
                assert!(self.promises.iter().any(|kept| kept.job == *job));
                self.promises.retain(|kept| kept.job != *job);
            }
            Event::JobPaused { job } => self.set_aside(*job),
            Event::JobKept { job, .. } if self.work(*job).resuming => self.set_aside(*job),
            Event::JobRunning { job } => self.work(*job).resuming = false,
            Event::JobResuming {
                job,
                admission,
                slices,
            } => {
                let spec = self.work(*job).spec.clone();
                let class = admission.hold.class.as_deref();
                let vram = slices.iter().map(|slice| slice.vram_mib).sum();
                let (rest, asked) = (self.rest(*job, &spec, class, vram), uses(&spec, class, vram));
                let left = admission.hold.left;
                assert_eq!(
                    (i128::from(left.money.0), u128::from(left.gpu_ms)),
                    rest,
                    "{job} holds what the rest may cost"
                );
                let work = self.work(*job);
                assert!(work.running.is_none(), "only what is paused resumes");
                work.resuming = true;
                work.running = Some((asked, groups(&spec, class), rest.0, rest.1));
                let [given] = &mut work.given[..] else {
                    panic!("only what runs alone is paused")
                };
                given.parts = slices
                    .iter()
                    .map(|slice| (slice.gpu, slice.vram_mib, slice.compute_permille.into()))
                    .collect();
            }
            Event::UsageMetered { node, charges } => {
                for charge in charges {
                    let owner = self.work(charge.job).owner;
                    let mut given = self.work(charge.job).given.iter();
                    let given = given.find(|given| given.id == charge.allocation);
                    let on = given.map(|given| given.node);
                    assert_eq!(
                        on,
                        Some(*node),
                        "a charge is of the job's own allocation, and of its node"
                    );
                    let scopes = self.up(ScopeId::User(owner));
                    let running = self
                        .work(charge.job)
                        .running
                        .as_mut()
                        .expect("what is charged runs");
                    let (money, gpu_ms) = (i128::from(charge.cost.money.0), u128::from(charge.cost.gpu_ms));
                    assert!(
                        money >= 0 && money <= running.2 && gpu_ms <= running.3,
                        "a charge passes its hold"
                    );
                    (running.2, running.3) = (running.2 - money, running.3 - gpu_ms);
                    let groups = running.1.clone();
                    let mut given = self.work(charge.job).given.iter_mut();
                    let given = given.find(|given| given.id == charge.allocation);
                    given.expect("found above").metered_ms = charge.to_ms;
                    self.charges.push(Charged {
                        at: now,
                        scopes,
                        groups,
                        money,
                        gpu_ms,
                    });
                }
            }
            Event::JobRequeued { job, .. } => {
                let work = self.work(*job);
                (work.running, work.given) = (None, vec![]);
            }
            Event::JobEnded { job, .. } => {
                self.promises.retain(|kept| kept.job != *job);
                self.works.retain(|work| work.id != *job);
            }
            _ => {}
        }
    }

    /// What the rest of a job's time may cost, in this size.
    fn rest(&mut self, job: JobId, spec: &JobSpec, class: Option<&str>, vram: u64) -> (i128, u128) {
        let metered_ms = self.work(job).given[0].metered_ms;
        let whole = self.cost(spec, class, vram);
        let most_ms = (spec.run_time_s + u64::from(spec.grace_s)) * 1000;
        let left_ms = i128::from(most_ms.saturating_sub(metered_ms));
        let gpu_ms = u128::from(metered_ms) * u128::from(spec.demand.gpu_milli()) / 1000;
        (
            (self.hourly(spec, class, vram) * left_ms + 3_599_999) / 3_600_000,
            whole.1.saturating_sub(gpu_ms),
        )
    }

    /// It stays on its node, and has nothing of its GPUs.
    fn set_aside(&mut self, job: JobId) {
        let work = self.work(job);
        (work.running, work.resuming) = (None, false);
        work.given[0].parts.clear();
    }

    fn add(&mut self, id: ScopeId, parent: Option<ScopeId>) {
        self.places.push(Place {
            id,
            parent,
            suspended: false,
            quota: vec![],
            share: Share::default(),
            budgets: vec![],
            policy: Policy::default(),
            above: vec![],
            passed: vec![],
        });
    }

    fn work(&mut self, job: JobId) -> &mut Work {
        self.works
            .iter_mut()
            .find(|work| work.id == job)
            .expect("a known job")
    }

    fn machine(&mut self, node: NodeId) -> &mut Machine {
        self.machines
            .iter_mut()
            .find(|machine| machine.id == node)
            .expect("a known node")
    }

    fn over(&self, scope: ScopeId, budget: &Budget, now: Time) -> Option<(Budget, i128, u128)> {
        self.over_of(&self.below(scope), scope, budget, now)
    }

    fn over_of(
        &self,
        below: &[&Work],
        scope: ScopeId,
        budget: &Budget,
        now: Time,
    ) -> Option<(Budget, i128, u128)> {
        let group = limit_of(budget);
        let (held, spent) = (
            self.held(below, &group),
            self.spent(scope, &group, budget.period, now),
        );
        let (money, gpu_ms) = (held.0 + spent.0, held.1 + spent.1);
        let over = budget.money_micros.is_some_and(|limit| money > i128::from(limit))
            || budget
                .gpu_seconds
                .is_some_and(|limit| gpu_ms > u128::from(limit) * 1000);
        over.then(|| (budget.clone(), money, gpu_ms))
    }

    /// No scope is above a limit unless the limit was cut below its use, and then its use only falls.
    pub fn check(&mut self, state: &State, now: Time) {
        let above_each: Vec<Vec<ScopeId>> = self
            .works
            .iter()
            .map(|work| self.up(ScopeId::User(work.owner)))
            .collect();
        let mut news = Vec::new();
        for place in &self.places {
            let below: Vec<&Work> = self
                .works
                .iter()
                .zip(&above_each)
                .filter(|(_, up)| up.contains(&place.id))
                .map(|(work, _)| work)
                .collect();
            let scope = state.tree.get(place.id).expect("the state knows the scope");
            let mut above = Vec::new();
            for (meter, limit) in &place.quota {
                let used = self.used(place.id, &below, meter);
                assert_eq!(
                    scope.used.get(&meter.parse().expect("a meter")).unwrap_or(0),
                    used,
                    "{} {meter}",
                    place.id
                );
                if used > *limit {
                    let last = place
                        .above
                        .iter()
                        .find(|(name, _)| name == meter)
                        .map(|(_, used)| *used);
                    assert!(
                        last.is_some_and(|last| used <= last),
                        "{} passes its quota of {meter}: {used} of {limit}",
                        place.id
                    );
                    above.push((meter.clone(), used));
                }
            }
            let mut passed = Vec::new();
            for budget in &place.budgets {
                let group = limit_of(budget);
                let told = scope.spending.at(&budget.of(), budget.period, now);
                let (held, spent) = (
                    self.held(&below, &group),
                    self.spent(place.id, &group, budget.period, now),
                );
                assert_eq!(
                    (i128::from(told.held.money.0), u128::from(told.held.gpu_ms)),
                    held,
                    "{} {group} held",
                    place.id
                );
                assert_eq!(
                    (i128::from(told.spent.money.0), u128::from(told.spent.gpu_ms)),
                    spent,
                    "{} {group} {} spent",
                    place.id,
                    budget.period.as_str()
                );
                if let Some(over) = self.over_of(&below, place.id, budget, now) {
                    let last = place.passed.iter().find(|(known, ..)| known == budget);
                    let falls = last.is_some_and(|(_, money, gpu_ms)| {
                        let money_over = budget
                            .money_micros
                            .is_some_and(|limit| over.1 > i128::from(limit));
                        let time_over = budget
                            .gpu_seconds
                            .is_some_and(|limit| over.2 > u128::from(limit) * 1000);
                        (!money_over || over.1 <= *money) && (!time_over || over.2 <= *gpu_ms)
                    });
                    assert!(
                        falls,
                        "{} passes its budget {budget:?}: {} and {} GPU-ms",
                        place.id, over.1, over.2
                    );
                    passed.push(over);
                }
            }
            news.push((above, passed));
        }
        for (place, (above, passed)) in self.places.iter_mut().zip(news) {
            (place.above, place.passed) = (above, passed);
        }
    }

    /// After a whole pass over the queue nothing waits that could run.
    /// Who is held back for an aged job may wait.
    pub fn nothing_waits_in_vain(
        &self,
        now: Time,
        held_back: impl Fn(&JobSpec) -> bool,
        why: impl Fn(JobId) -> String,
    ) {
        let waiting = |work: &&Work| {
            work.running.is_none() && work.given.is_empty() && !work.parent && !held_back(&work.spec)
        };
        for work in self.works.iter().filter(waiting) {
            assert!(
                !self.could_start(work, now),
                "{} waits although it could start: {:?}; it says: {}",
                work.id,
                work.spec.demand,
                why(work.id)
            );
        }
    }

    /// What was spent at the platform, over every group and period, must be what the charges say.
    pub fn check_spending(&self, state: &State, now: Time) {
        for place in &self.places {
            let spending = &state.tree.get(place.id).expect("a known scope").spending;
            for (of, period, _) in spending.iter() {
                let (told, sum) = (
                    spending.at(of, period, now).spent,
                    self.spent(place.id, &of.to_string(), period, now),
                );
                assert_eq!(
                    (i128::from(told.money.0), u128::from(told.gpu_ms)),
                    sum,
                    "{} {of} {}",
                    place.id,
                    period.as_str()
                );
            }
        }
    }
}

/// Whether a policy lets the job run at all.
fn allows(policy: &Policy, work: &Work) -> bool {
    let (spec, demand) = (&work.spec, &work.spec.demand);
    let gpus = u64::from(demand.gpus) * u64::from(demand.nodes);
    policy.kinds.as_ref().is_none_or(|all| all.contains(&spec.kind))
        && policy
            .priorities
            .as_ref()
            .is_none_or(|all| all.contains(&spec.priority))
        && match (&policy.classes, &demand.class) {
            (Some(all), Some(class)) => all.contains(class),
            _ => true,
        }
        && policy.max_run_time_s.is_none_or(|most| spec.run_time_s <= most)
        && policy.max_gpus_per_job.is_none_or(|most| gpus <= u64::from(most))
        && policy
            .max_vram_mib_per_job
            .is_none_or(|most| gpus * demand.vram_mib <= most)
        && policy
            .max_compute_permille
            .is_none_or(|most| gpus == 0 || demand.compute_permille <= most)
}
