//! The same jobs through the whole of `decide`: each is submitted to a cell of nodes with eight GPUs, passes go over its
//! queue, nodes do at once as they are told.
//!
//! Where `tenure` measures our order on an engine of the replay's own, this is what a cell does: fair share between teams
//! before rank, places on nodes, gangs whole, room promised by run-time limits. Each team is a tenant with one user. A
//! job says as its limit what `backfill` is told. Absent: stated starts; time within a second.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use tenure_domain::command::{Observation, Ran};
use tenure_domain::id::{AllocationId, JobId, NodeId, UserId};
use tenure_domain::schedule::fleet::Inventory;
use tenure_domain::schedule::order::walk::{Turn, Walk};
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{ScopeId, UserKind};
use tenure_domain::workload::job::{Phase, StopReason};
use tenure_domain::workload::spec::{Demand, Isolation, JobSpec};
use tenure_domain::{Actor, Event, Time, Wish};

use super::queue::limit_s;
use super::trace::Job;
use crate::packing::whole::{Cell, inventory};

const GPUS_PER_NODE: u32 = 8;
/// Nodes meter so often, and a pass goes over the queue whatever happened; more often where who runs may have to leave,
/// since who may not yet may later.
const EVERY_S: u64 = 3_600;
const EVERY_S_LONGER: u64 = 600;

/// What a replay knows of a job that a cell does not.
#[derive(Default)]
struct Live {
    job: Option<JobId>,
    /// Work done before it was last placed.
    done_s: u64,
    placed: u64,
    /// Restarts hold GPUs without progress.
    overhead_s: u64,
    epoch: u32,
}

struct Replay<'a> {
    cell: Cell,
    users: Vec<UserId>,
    plain: JobSpec,
    jobs: &'a mut [Job],
    lives: Vec<Live>,
    ids: BTreeMap<JobId, usize>,
    ends: BinaryHeap<Reverse<(u64, usize, u32)>>,
    restart_s: u64,
    every_s: u64,
    /// Told to leave, and not gone yet.
    leaving: BTreeSet<JobId>,
}

/// `longer` sets `preempt_longer` and `preempt_tenants` and lets every job be restarted; without, it is a cell as it is founded.
pub fn run(jobs: &mut [Job], gpus: u32, restart_s: u64, longer: bool) {
    let mut cell = Cell::empty();
    cell.set_time(moment(jobs.first().map_or(0, |job| job.at)));
    cell.system(Wish::Found {
        platform: "cell".into(),
        owner: "root".into(),
        key: Digest([1; 32]),
        prices: Default::default(),
    });
    if longer {
        cell.system(Wish::SetPolicy {
            scope: ScopeId::Platform,
            policy: Policy {
                preempt_longer: Some(true),
                preempt_tenants: Some(true),
                ..Policy::default()
            },
            revision: None,
        });
    }
    let teams = jobs.iter().map(|job| job.team + 1).max().unwrap_or(0);
    let users = (0..teams).map(|team| user(&mut cell, team)).collect();
    let nodes = (gpus / GPUS_PER_NODE) as usize;
    for number in 0..nodes {
        cell.join(number, machine(number, GPUS_PER_NODE as usize));
    }
    let left = gpus % GPUS_PER_NODE;
    if left > 0 {
        cell.join(nodes, machine(nodes, left as usize));
    }
    let text = serde_json::json!({ "name": "job", "command": ["/bin/true"], "run_time_s": 60, "grace_s": 0 });
    let mut plain: JobSpec = serde_json::from_value(text).expect("a specification");
    plain.restartable = longer;
    let mut replay = Replay {
        cell,
        users,
        plain,
        lives: jobs.iter().map(|_| Live::default()).collect(),
        jobs,
        ids: BTreeMap::new(),
        ends: BinaryHeap::new(),
        restart_s,
        every_s: if longer { EVERY_S_LONGER } else { EVERY_S },
        leaving: BTreeSet::new(),
    };
    replay.run();
}

/// One on which nothing can be paused: who leaves starts anew, as in the other orders.
fn machine(number: usize, gpus: usize) -> Inventory {
    let mut inventory = inventory(number, gpus);
    for gpu in &mut inventory.gpus {
        gpu.isolation.remove(&Isolation::Fenced);
    }
    inventory
}

fn moment(at_s: u64) -> Time {
    Time(at_s as i64 * 1000)
}

fn user(cell: &mut Cell, team: u32) -> UserId {
    let made = |events: &[Event]| match events.first() {
        Some(&Event::ScopeCreated { scope, .. }) => scope,
        other => panic!("no scope: {other:?}"),
    };
    let name = format!("team-{team}");
    let parent = made(&cell.system(Wish::CreateTenant { name }));
    let user = made(&cell.system(Wish::CreateUser {
        parent,
        name: "everybody".into(),
        kind: UserKind::Person,
        identity: None,
        role: Some(Role::Member),
    }));
    match user {
        ScopeId::User(user) => user,
        other => panic!("{other} is not a user"),
    }
}

/// As few members as have no more GPUs each than a node.
fn members(gpus: u32) -> u32 {
    let fits = |members: &u32| gpus.is_multiple_of(*members) && gpus / members <= GPUS_PER_NODE;
    (1..=gpus.max(1)).find(fits).unwrap_or(1)
}

impl Replay<'_> {
    fn run(&mut self) {
        let (mut next, mut turn) = (0, self.jobs.first().map_or(0, |job| job.at) + self.every_s);
        loop {
            let arrival = self.jobs.get(next).map(|job| job.at);
            let end = self.ends.peek().map(|Reverse((at, ..))| *at);
            let Some(now) = arrival.into_iter().chain(end).min() else {
                let waits = self.cell.state.queue.len();
                assert_eq!(waits, 0, "everything that fits the cell ends");
                return;
            };
            let now = now.min(turn);
            self.cell.set_time(moment(now));
            let mut freed = now == turn;
            while let Some(&Reverse((_, id, epoch))) = self.ends.peek().filter(|Reverse((at, ..))| *at <= now)
            {
                self.ends.pop();
                if self.lives[id].epoch == epoch {
                    self.end(id, now);
                    freed = true;
                }
            }
            if now == turn {
                turn += self.every_s;
                self.meter(now);
            }
            while self.jobs.get(next).is_some_and(|job| job.at <= now) {
                self.submit(next, now);
                next += 1;
            }
            freed |= self.obey(now);
            while freed {
                self.pass(now);
                freed = self.obey(now);
            }
        }
    }

    fn submit(&mut self, id: usize, now: u64) {
        let Job {
            gpus, run_s, team, ..
        } = self.jobs[id];
        let owner = self.users[team as usize];
        let members = members(gpus);
        let spec = Arc::new(JobSpec {
            run_time_s: limit_s(run_s),
            demand: Demand {
                nodes: members,
                gpus: gpus / members,
                cpu_milli: 1000,
                memory_mib: 1024,
                isolation: Isolation::Guarded,
                ..Demand::default()
            },
            ..self.plain.clone()
        });
        let wish = Wish::Submit {
            owner,
            spec,
            trace: None,
        };
        let events = self.cell.ask(Actor::user(owner), wish).expect("the job is taken");
        let job = events.iter().find_map(|event| match event {
            Event::JobSubmitted { job, .. } => Some(*job),
            _ => None,
        });
        let job = job.expect("it was submitted");
        self.lives[id].job = Some(job);
        self.ids.insert(job, id);
        self.note(&events, now);
    }

    /// One pass over the queue, as the controller takes it.
    fn pass(&mut self, now: u64) {
        let mut walk = Walk::begin(&self.cell.state, moment(now));
        loop {
            let turn = walk.next(&self.cell.state);
            if turn == Turn::Over {
                return;
            }
            let Some(wish) = turn.wish() else { continue };
            match self.cell.ask(Actor::System, wish) {
                Ok(events) => self.note(&events, now),
                Err(refusal) => walk.refused(&self.cell.state, &refusal),
            }
        }
    }

    /// What was decided, as far as nodes are told of it.
    fn note(&mut self, events: &[Event], now: u64) {
        for event in events {
            match event {
                Event::JobPlaced { job, .. } => self.start(*job, now),
                Event::JobStopping { job, .. } => {
                    self.leaving.insert(*job);
                }
                Event::JobPausing { .. } => panic!("nothing here can be paused"),
                _ => {}
            }
        }
    }

    /// Node and allocation of each member.
    fn places(&self, job: JobId) -> Vec<(NodeId, AllocationId)> {
        let state = &self.cell.state;
        let job = state.jobs.get(&job).expect("it lives");
        let held = job
            .allocations()
            .filter_map(|id| Some((state.fleet.allocation(id)?.node, id)));
        held.collect()
    }

    fn observe(&mut self, job: JobId, observation: &Observation) {
        for (node, allocation) in self.places(job) {
            let wish = Wish::Observe {
                node,
                allocation,
                observation: observation.clone(),
            };
            self.cell.ask(Actor::Node(node), wish).expect("a report is taken");
        }
    }

    fn start(&mut self, job: JobId, now: u64) {
        let id = self.ids[&job];
        self.observe(job, &Observation::Running);
        let live = &mut self.lives[id];
        let again = self.jobs[id].started.is_some();
        live.overhead_s = if again { self.restart_s } else { 0 };
        live.placed = now;
        live.epoch += 1;
        let ends = now + live.overhead_s + self.jobs[id].run_s - live.done_s;
        self.ends.push(Reverse((ends, id, live.epoch)));
        self.jobs[id].started.get_or_insert(now);
    }

    fn end(&mut self, id: usize, now: u64) {
        let job = self.lives[id].job.expect("it was submitted");
        self.leaving.remove(&job);
        self.left(id, now, None);
        self.jobs[id].done = now;
        assert!(!self.cell.state.jobs.contains_key(&job), "it ended");
    }

    fn left(&mut self, id: usize, now: u64, by: Option<StopReason>) {
        let live = &mut self.lives[id];
        live.epoch += 1;
        let ran_s = now - live.placed;
        live.done_s += ran_s.saturating_sub(live.overhead_s);
        let job = live.job.expect("it was submitted");
        let exited = Observation::Exited {
            exit_code: Some(0),
            signal: None,
            ran_ms: ran_s * 1000,
            by,
            usage: None,
        };
        self.observe(job, &exited);
    }

    /// Whoever was told to leave has saved its work and is gone. True if anybody was.
    fn obey(&mut self, now: u64) -> bool {
        let leaving = std::mem::take(&mut self.leaving);
        let any = !leaving.is_empty();
        for job in leaving {
            let id = self.ids[&job];
            self.left(id, now, Some(StopReason::Evicted));
            self.jobs[id].evictions += 1;
        }
        any
    }

    fn meter(&mut self, now: u64) {
        let mut ran: BTreeMap<NodeId, Vec<Ran>> = BTreeMap::new();
        let running = self
            .cell
            .state
            .jobs
            .values()
            .filter(|job| job.phase == Phase::Running);
        for job in running {
            let ran_ms = (now - self.lives[self.ids[&job.id]].placed) * 1000;
            for allocation in job.allocations() {
                let Some(node) = self.cell.state.fleet.allocation(allocation).map(|one| one.node) else {
                    continue;
                };
                ran.entry(node).or_default().push(Ran {
                    allocation,
                    ran_ms,
                    usage: None,
                });
            }
        }
        for (node, ran) in ran {
            let wish = Wish::Meter { node, ran };
            self.cell
                .ask(Actor::Node(node), wish)
                .expect("what ran is metered");
        }
    }
}
