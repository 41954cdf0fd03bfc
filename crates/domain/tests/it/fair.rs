//! Fairness over time: a cell whose tenants always want more than there is, on virtual time. Each property is also run
//! with the fault it is there to find, and must fail then.

use std::collections::{BTreeMap, BTreeSet};

use tenure_domain::command::Ran;
use tenure_domain::id::{JobId, NodeId, UserId};
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::tenancy::share::{Nominal, Share};
use tenure_domain::workload::spec::{Demand, Isolation, Priority};
use tenure_domain::{Actor, Event, Wish};

use crate::chance::Chance;
use crate::world::{World, gpu, inventory, spec, whole};

const HOUR_S: u64 = 3600;

/// Who is asked next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Ours,
    /// The fault: first come, first served.
    Arrival,
}

struct Cell {
    world: World,
    node: NodeId,
    chance: Chance,
    order: Order,
    /// When each running job ends, and since when it runs.
    ends: BTreeSet<(u64, JobId)>,
    started: BTreeMap<JobId, u64>,
    runs_s: BTreeMap<JobId, u64>,
    now_s: u64,
    /// GPU-seconds by tenant since the count began.
    used_s: BTreeMap<ScopeId, u64>,
}

fn on(class: &str, gpus: u32) -> Demand {
    Demand {
        class: Some(class.into()),
        ..whole(gpus)
    }
}

impl Cell {
    fn new(seed: u64, gpus: usize, platform: Share, order: Order) -> Cell {
        let mut world = World::new();
        world.thorough = false;
        let cards = (0..gpus).map(|n| gpu(&format!("card-{n}"), "H100", 80_000, &[Isolation::Exclusive]));
        let node = world.node("alpha", inventory(1_000_000, 1 << 20, cards.collect()));
        let mut cell = Cell {
            world,
            node,
            chance: Chance::new(seed),
            order,
            ends: BTreeSet::new(),
            started: BTreeMap::new(),
            runs_s: BTreeMap::new(),
            now_s: 0,
            used_s: BTreeMap::new(),
        };
        cell.share(ScopeId::Platform, platform);
        cell
    }

    fn share(&mut self, scope: ScopeId, share: Share) {
        let wish = Wish::SetShare {
            scope,
            share,
            revision: None,
        };
        self.world.root(wish).expect("a share");
    }

    fn tenant(&mut self, name: &str, share: Share) -> (ScopeId, UserId) {
        let tenant = self.world.tenant(name);
        self.share(tenant, share);
        (tenant, self.world.user(tenant, "ada", Some(Role::Member)))
    }

    fn submit(&mut self, owner: UserId, name: &str, demand: Demand, runs_s: u64) -> JobId {
        self.submit_at(Priority::Normal, owner, name, demand, runs_s)
    }

    fn submit_at(
        &mut self,
        priority: Priority,
        owner: UserId,
        name: &str,
        demand: Demand,
        runs_s: u64,
    ) -> JobId {
        let mut wanted = spec(name, demand, 10 * 24 * HOUR_S);
        wanted.priority = priority;
        let job = self.world.submit(owner, wanted).expect("taken");
        self.runs_s.insert(job, runs_s);
        if self.world.allocation(job).is_some() {
            self.runs(job);
        }
        job
    }

    fn runs(&mut self, job: JobId) {
        self.started.insert(job, self.now_s);
        self.ends.insert((self.now_s + self.runs_s[&job], job));
    }

    fn pass(&mut self) {
        let events = match self.order {
            Order::Ours => self.world.schedule(),
            Order::Arrival => self.by_arrival(),
        };
        for event in events {
            if let Event::JobPlaced { job, .. } = event {
                self.runs(job);
            }
        }
    }

    fn by_arrival(&mut self) -> Vec<Event> {
        let waiting: Vec<JobId> = self.world.state.queue.iter().map(|key| key.1).collect();
        let tried = waiting.into_iter();
        let events = tried.map_while(|job| self.world.system(Wish::Schedule { job }).ok());
        events.flatten().collect()
    }

    fn go_to(&mut self, at_s: u64) {
        self.world.pass_s(at_s - self.now_s);
        self.now_s = at_s;
    }

    /// What nodes do each minute.
    fn meter(&mut self) {
        let running = self.world.state.jobs.values();
        let ran: Vec<Ran> = running
            .filter_map(|job| {
                Some(Ran {
                    allocation: job.sole_allocation()?,
                    ran_ms: (self.now_s - self.started[&job.id]) * 1000,
                    usage: None,
                })
            })
            .collect();
        let node = self.node;
        self.world
            .act(Actor::Node(node), Wish::Meter { node, ran })
            .expect("metered");
    }

    /// Goes to the next end of a job; gives whose it was.
    fn next_end(&mut self) -> (JobId, UserId) {
        let (at_s, job) = self.ends.pop_first().expect("something runs");
        while self.now_s + 60 < at_s {
            self.go_to(self.now_s + 60);
            self.meter();
        }
        self.go_to(at_s);
        let owner = self.world.state.jobs[&job].owner;
        let gpus = u64::from(self.world.state.jobs[&job].spec.demand.gpus);
        let tenant = ScopeId::Tenant(
            self.world
                .state
                .tree
                .tenant_of(ScopeId::User(owner))
                .expect("a tenant"),
        );
        let ran_s = at_s - self.started[&job];
        *self.used_s.entry(tenant).or_default() += ran_s * gpus;
        self.world.exit(job, ran_s);
        (job, owner)
    }
}

fn weighing(weight: u32) -> Share {
    Share {
        weight,
        ..Share::default()
    }
}

fn half_life(half_life_s: u64) -> Share {
    Share {
        half_life_s: Some(half_life_s),
        ..Share::default()
    }
}

/// How far the worst tenant is from what its weight gives it, in thousandths of that, after some half-lives in which
/// every tenant always waits for more.
fn worst_miss_milli(seed: u64, order: Order) -> u64 {
    let mut cell = Cell::new(seed, 16, half_life(HOUR_S), order);
    let weights = [1, 2, 4];
    let lengths_s = [1_200, 300, 600];
    let tenants: Vec<(ScopeId, UserId)> = weights
        .iter()
        .map(|&weight| cell.tenant(&format!("tenant-{weight}"), weighing(weight)))
        .collect();
    let length_s = |cell: &mut Cell, which: usize| lengths_s[which] / 2 + cell.chance.below(lengths_s[which]);
    for round in 0..20 {
        for (which, (_, user)) in tenants.iter().enumerate() {
            let runs_s = length_s(&mut cell, which);
            cell.submit(*user, &format!("{which}-{round}"), on("H100", 1), runs_s);
        }
    }
    let mut counting = false;
    while cell.now_s < 24 * HOUR_S {
        if !counting && cell.now_s >= 8 * HOUR_S {
            counting = true;
            cell.used_s.clear();
        }
        let (_, owner) = cell.next_end();
        cell.pass();
        let which = tenants
            .iter()
            .position(|(_, user)| *user == owner)
            .expect("one of them");
        let runs_s = length_s(&mut cell, which);
        cell.submit(owner, "more", on("H100", 1), runs_s);
    }
    let all: u64 = cell.used_s.values().sum();
    let misses = tenants.iter().zip(weights).map(|((tenant, _), weight)| {
        let due = all * u64::from(weight) / 7;
        cell.used_s.get(tenant).copied().unwrap_or(0).abs_diff(due) * 1000 / due
    });
    misses.max().expect("tenants")
}

#[test]
fn hungry_tenants_get_what_their_weights_say() {
    for seed in 1..=3 {
        let miss = worst_miss_milli(seed, Order::Ours);
        assert!(miss <= 50, "{miss} ‰ off, seed {seed}");
    }
}

#[test]
#[should_panic(expected = "off")]
fn by_arrival_they_would_not() {
    let miss = worst_miss_milli(1, Order::Arrival);
    assert!(miss <= 50, "{miss} ‰ off");
}

/// One who was away finds its nominal quota with the next GPUs that fall free, whatever others wait for.
fn first_starts_are_the_owners(order: Order) {
    let mut cell = Cell::new(5, 8, half_life(HOUR_S), order);
    let sure = |gpu_milli| Share {
        nominal: [(
            "H100".into(),
            Nominal {
                gpu_milli,
                ..Nominal::default()
            },
        )]
        .into(),
        ..Share::default()
    };
    let (_, lender) = cell.tenant("lender", sure(4_000));
    let (_, borrower) = cell.tenant("borrower", sure(4_000));
    // The borrower has used nothing for ever; the lender was greedy before it went away.
    for n in 0..8 {
        cell.submit(lender, &format!("past-{n}"), on("H100", 1), 5 * HOUR_S);
    }
    for n in 0..30 {
        let runs_s = 600 + cell.chance.below(600);
        cell.submit(borrower, &format!("borrows-{n}"), on("H100", 1), runs_s);
    }
    while cell.next_end().1 == lender && cell.started.len() < 16 {
        cell.pass();
    }
    let wanted: Vec<JobId> = (0..4)
        .map(|n| cell.submit(lender, &format!("wants-{n}"), on("H100", 1), HOUR_S))
        .collect();
    for freed in 1..=4 {
        cell.pass();
        let running = wanted
            .iter()
            .filter(|job| cell.world.allocation(**job).is_some())
            .count();
        assert!(
            running >= freed,
            "{running} of the owner's jobs run after {freed} ends"
        );
        cell.next_end();
    }
}

#[test]
fn nominal_quota_is_there_when_it_is_wanted() {
    first_starts_are_the_owners(Order::Ours);
}

#[test]
#[should_panic(expected = "of the owner's jobs run")]
fn by_arrival_it_would_not_be() {
    first_starts_are_the_owners(Order::Arrival);
}

/// How long a job of this class waits that everything speaks against: a tenant far over its share, and jobs that are known
/// to be long.
fn waits_s(priority: Priority, aged_s: u64) -> u64 {
    let platform = Share {
        aged_s: Some(aged_s),
        ..half_life(24 * HOUR_S)
    };
    let mut cell = Cell::new(7, 4, platform, Order::Ours);
    let (_, greedy) = cell.tenant("greedy", weighing(1));
    let (_, frugal) = cell.tenant("frugal", weighing(1_000));
    for n in 0..4 {
        cell.submit(greedy, &format!("long-{n}"), on("H100", 1), 40 * HOUR_S);
    }
    for n in 0..8 {
        cell.submit(frugal, &format!("short-{n}"), on("H100", 1), 600);
    }
    let last = cell.submit_at(priority, greedy, "last", on("H100", 1), HOUR_S);
    let since_s = cell.now_s;
    while cell.world.allocation(last).is_none() && cell.now_s < 200 * HOUR_S {
        let (_, owner) = cell.next_end();
        cell.pass();
        if owner == frugal {
            let runs_s = 300 + cell.chance.below(600);
            cell.submit(frugal, "short", on("H100", 1), runs_s);
        }
    }
    cell.now_s - since_s
}

#[test]
fn no_job_waits_past_the_bound_and_what_then_ends() {
    // Once it is aged it goes first, and takes what next falls free, also where a higher class never stops coming.
    for priority in [Priority::Normal, Priority::Low] {
        let waited_s = waits_s(priority, 60 * HOUR_S);
        assert!(waited_s <= 60 * HOUR_S + 900, "{waited_s} s");
        assert!(
            waited_s >= 59 * HOUR_S,
            "fairness alone let it wait: {waited_s} s"
        );
    }
}

#[test]
#[should_panic(expected = "waited for ever")]
fn without_the_bound_it_would_starve() {
    let waited_s = waits_s(Priority::Normal, 366 * 24 * HOUR_S);
    assert!(waited_s <= 61 * HOUR_S, "it waited for ever: {waited_s} s");
}
