//! What a pass over a long queue costs: 50,000 waiting jobs of 10,000 users on 40,000 GPUs, all of them taken; then with
//! a hundredth of the GPUs free; and what it costs to say when a waiting job starts. Run with `cargo run --release -p tenure-domain --example pass`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tenure_domain::command::Observation;
use tenure_domain::id::{Ids, JobId, NodeId, UserId};
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::schedule::order::outlook::outlook;
use tenure_domain::schedule::order::walk::{Turn, Walk};
use tenure_domain::schedule::why::answer;
use tenure_domain::tenancy::key::Digest;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::{ScopeId, UserKind};
use tenure_domain::tenancy::share::{Nominal, Share};
use tenure_domain::workload::spec::{Demand, Isolation, JobSpec, Priority};
use tenure_domain::{Actor, Command, Event, State, Time, Wish, decide};

const NODES: usize = 5_000;
const GPUS_PER_NODE: usize = 8;
const WAITING: usize = 50_000;

/// Counts what lives on the heap.
struct Counting;

static HEAP: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HEAP.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HEAP.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Cell {
    state: State,
    at: Time,
    ids: u64,
}

impl Cell {
    fn decide(&mut self, by: Actor, wish: Wish) -> Result<Vec<Event>, tenure_domain::Refusal> {
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
        self.at = self.at.plus_ms(1);
        self.decide(by, wish)
            .unwrap_or_else(|refusal| panic!("refused: {refusal}"))
    }

    fn scope(&mut self, wish: Wish) -> ScopeId {
        match self.act(Actor::System, wish).first() {
            Some(&Event::ScopeCreated { scope, .. }) => scope,
            other => panic!("no scope: {other:?}"),
        }
    }

    fn node(&mut self, number: usize) {
        let mut key = Digest([7; 32]);
        key.0[..8].copy_from_slice(&(number as u64).to_le_bytes());
        let expires = self.at.plus_ms(60_000);
        self.act(
            Actor::System,
            Wish::CreateJoinToken {
                digest: key,
                expires,
                tenant: None,
            },
        );
        let name = format!("node-{number}");
        let joined = self.act(
            Actor::System,
            Wish::JoinNode {
                token: key,
                name,
                key,
            },
        );
        let Some(&Event::NodeJoined { node, .. }) = joined.first() else {
            panic!("no node")
        };
        let facts = |n| GpuFacts {
            uuid: format!("gpu-{number}-{n}"),
            vendor: "nvidia".into(),
            model: "H100".into(),
            class: "H100".into(),
            vram_mib: 80_000,
            isolation: [
                (Isolation::Guarded, "guard".to_owned()),
                (Isolation::Exclusive, "whole".to_owned()),
            ]
            .into(),
            hardware: None,
        };
        let inventory = Inventory {
            cpu_milli: 256_000,
            memory_mib: 1 << 20,
            gpus: (0..GPUS_PER_NODE).map(facts).collect(),
            images: Vec::new(),
            volume_mib: 0,
        };
        self.act(Actor::Node(node), Wish::ReportInventory { node, inventory });
    }
}

fn job(gpus: u32, priority: Priority, run_time_s: u64) -> Arc<JobSpec> {
    let demand = Demand {
        gpus,
        class: Some("H100".into()),
        cpu_milli: 1000,
        memory_mib: 1024,
        ..Demand::default()
    };
    let text = serde_json::json!({"name": "job", "command": ["/bin/true"], "demand": demand, "priority": priority, "run_time_s": run_time_s});
    Arc::new(serde_json::from_value(text).expect("a spec"))
}

/// Time this thread was on a core, so that neighbours do not spoil the figure; wall time where that is not told.
fn busy() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let on_core = told.and_then(|text| text.split(' ').next()?.parse().ok());
    on_core.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

#[derive(Default)]
struct Cost {
    steps: usize,
    tried: usize,
    started: Vec<JobId>,
    work: Duration,
    longest: Duration,
    /// What the longest was about.
    longest_was: &'static str,
}

/// One whole pass, each step timed as the controller would take it.
fn pass(cell: &mut Cell) -> Cost {
    let mut cost = Cost::default();
    let begin = busy();
    let mut walk = Walk::begin(&cell.state, cell.at);
    let mut begun = busy() - begin;
    loop {
        let begin = busy();
        let turn = walk.next(&cell.state);
        if let Some(wish) = turn.wish() {
            cost.tried += usize::from(matches!(turn, Turn::Try(_)));
            match cell.decide(Actor::System, wish) {
                Ok(events) => cost.started.extend(events.iter().filter_map(|event| match event {
                    Event::JobPlaced { job, .. } => Some(*job),
                    _ => None,
                })),
                Err(refusal) => walk.refused(&cell.state, &refusal),
            }
        }
        let took = busy() - begin + std::mem::take(&mut begun);
        cost.steps += 1;
        cost.work += took;
        if took > cost.longest {
            cost.longest = took;
            cost.longest_was = match turn {
                Turn::Withdraw => "withdrawing",
                Turn::Try(_) => "trying",
                Turn::Promise(_) => "promising",
                Turn::Looks | Turn::Over => "looking",
            };
        }
        if turn == Turn::Over {
            return cost;
        }
    }
}

fn tell(name: &str, cost: &Cost) {
    println!(
        "{name}: {:.1} ms of work in {} steps, the longest {:.2} ms ({}); {} jobs tried, {} started",
        cost.work.as_secs_f64() * 1e3,
        cost.steps,
        cost.longest.as_secs_f64() * 1e3,
        cost.longest_was,
        cost.tried,
        cost.started.len()
    );
}

/// What it costs to say why jobs all over the queue wait and when they start; and the estimate within that.
fn tell_starts(cell: &Cell) {
    let waiting: Vec<JobId> = (cell.state.queue.iter())
        .step_by(WAITING / 50)
        .map(|key| key.1)
        .collect();
    let (mut work, mut longest, mut estimating, mut told) =
        (Duration::ZERO, Duration::ZERO, Duration::ZERO, 0);
    for &id in &waiting {
        let begin = busy();
        let answer = answer(&cell.state, id, cell.at);
        let took = busy() - begin;
        told += usize::from(answer.is_some_and(|answer| answer.starts.is_ok()));
        (work, longest) = (work + took, longest.max(took));
        let begin = busy();
        std::hint::black_box(outlook(&cell.state, &cell.state.jobs[&id], cell.at));
        estimating += busy() - begin;
    }
    let each_ms = |work: Duration| work.as_secs_f64() * 1e3 / waiting.len() as f64;
    println!(
        "why and when, asked of {} jobs over the whole queue: {:.2} ms each, the longest {:.2} ms, {:.2} ms of it for the estimate; {told} were told a start",
        waiting.len(),
        each_ms(work),
        longest.as_secs_f64() * 1e3,
        each_ms(estimating),
    );
}

fn users(cell: &mut Cell) -> Vec<UserId> {
    let mut users = Vec::new();
    for t in 0..100 {
        let tenant = cell.scope(Wish::CreateTenant {
            name: format!("tenant-{t}"),
        });
        let nominal = Nominal {
            gpu_milli: 400_000,
            ..Nominal::default()
        };
        let share = Share {
            weight: 1 + t % 4,
            nominal: [("H100".into(), nominal)].into(),
            ..Share::default()
        };
        let wish = Wish::SetShare {
            scope: tenant,
            share,
            revision: None,
        };
        cell.act(Actor::System, wish);
        for s in 0..10 {
            let parent = cell.scope(Wish::CreateSubscriber {
                tenant,
                name: format!("sub-{s}"),
            });
            for u in 0..10 {
                let wish = Wish::CreateUser {
                    parent,
                    name: format!("user-{u}"),
                    kind: UserKind::Person,
                    identity: None,
                    role: Some(Role::Member),
                };
                if let ScopeId::User(user) = cell.scope(wish) {
                    users.push(user);
                }
            }
        }
    }
    users
}

fn end(cell: &mut Cell, job: JobId) {
    let allocation = cell.state.jobs[&job].sole_allocation().expect("it runs");
    let node: NodeId = cell
        .state
        .fleet
        .allocation(allocation)
        .expect("it has a place")
        .node;
    let observation = Observation::Exited {
        exit_code: Some(0),
        signal: None,
        ran_ms: 5_000,
        by: None,
        usage: None,
    };
    let wish = Wish::Observe {
        node,
        allocation,
        observation,
    };
    cell.act(Actor::Node(node), wish);
}

fn main() {
    let mut cell = Cell {
        state: State::default(),
        at: Time(1_800_000_000_000),
        ids: 1 << 22,
    };
    let wish = Wish::Found {
        platform: "cell".into(),
        owner: "root".into(),
        key: Digest([1; 32]),
        prices: Default::default(),
    };
    cell.act(Actor::System, wish);
    let users = users(&mut cell);
    (0..NODES).for_each(|number| cell.node(number));

    let whole_node = job(GPUS_PER_NODE as u32, Priority::Normal, 86_400);
    let mut running = Vec::new();
    for n in 0..NODES {
        let (owner, spec) = (users[(n * 7919) % users.len()], whole_node.clone());
        let events = cell.act(
            Actor::System,
            Wish::Submit {
                owner,
                spec,
                trace: None,
            },
        );
        if let Some(Event::JobPlaced { job, .. }) = events.last() {
            running.push(*job);
        }
    }
    println!(
        "{} GPUs, {} of them taken",
        NODES * GPUS_PER_NODE,
        running.len() * GPUS_PER_NODE
    );

    // Eight shapes, as people ask for GPUs, in two classes of priority.
    let shapes: Vec<Arc<JobSpec>> = [1, 2, 4, 8]
        .into_iter()
        .flat_map(|gpus| [3_600, 86_400].map(|run_time_s| (gpus, run_time_s)))
        .enumerate()
        .map(|(n, (gpus, run_time_s))| {
            let priority = if n % 4 == 3 {
                Priority::High
            } else {
                Priority::Normal
            };
            job(gpus, priority, run_time_s)
        })
        .collect();
    let (before, begin) = (HEAP.load(Ordering::Relaxed), busy());
    for n in 0..WAITING {
        let owner = users[(n * 6151) % users.len()];
        let spec = shapes[(n / 3) % shapes.len()].clone();
        cell.act(
            Actor::System,
            Wish::Enqueue {
                owner,
                spec,
                trace: None,
            },
        );
    }
    let (submitted, heap) = (busy() - begin, HEAP.load(Ordering::Relaxed) - before);
    println!(
        "{} jobs wait, {} B of heap each, {:.0} submitted a second",
        cell.state.queue.len(),
        heap / WAITING,
        WAITING as f64 / submitted.as_secs_f64()
    );

    tell("a full pass, no room", &pass(&mut cell));
    tell_starts(&cell);
    for job in running.drain(..NODES / 100) {
        end(&mut cell, job);
    }
    let cost = pass(&mut cell);
    tell(
        &format!("a full pass, {} GPUs free", NODES / 100 * GPUS_PER_NODE),
        &cost,
    );
    assert!(!cost.started.is_empty(), "what was freed went to somebody");
    let job = running.pop().expect("something runs");
    end(&mut cell, job);
    tell("a full pass after one job ended", &pass(&mut cell));
}
