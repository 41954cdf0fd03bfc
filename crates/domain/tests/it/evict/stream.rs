//! Streams of jobs on nodes that do what they are told. What must hold whatever comes: nobody leaves in vain, bounds
//! hold, promised room goes to nobody else, and all is done in the end. And one stream that a scheduler without
//! promises never comes to the end of.

use std::collections::BTreeMap;

use tenure_domain::command::Observation;
use tenure_domain::id::{JobId, UserId};
use tenure_domain::schedule::allocation::Allocation;
use tenure_domain::schedule::order::walk::{Turn, Walk};
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{Job, Outcome, Phase, StopReason};
use tenure_domain::workload::spec::{Isolation, JobSpec, Priority};
use tenure_domain::{Event, State, Time};

use super::ranked;
use crate::chance::{Chance, Replay};
use crate::world::{World, gang, gpu, inventory, slice, spec, whole};

const TICK_S: u64 = 20;

struct Stream {
    world: World,
    chance: Chance,
    users: Vec<UserId>,
    /// How long each job works before it ends by itself.
    work_s: BTreeMap<JobId, u64>,
    evictions: BTreeMap<JobId, Vec<Time>>,
    /// Forgets every promise at once, as a scheduler would that only picks victims.
    naive: bool,
    evicted: u64,
    /// For gangs; and gangs that gave way.
    by_gangs: u64,
    of_gangs: u64,
    reserved: u64,
    done: u64,
}

impl Stream {
    fn new(seed: u64, tenants: usize) -> Stream {
        let mut world = World::new();
        world.thorough = false;
        let users = (0..tenants).map(|n| {
            let tenant = world.tenant(&format!("t{n}"));
            world.user(tenant, "u", Some(Role::Member))
        });
        let users = users.collect();
        Stream {
            world,
            chance: Chance::new(seed),
            users,
            work_s: BTreeMap::new(),
            evictions: BTreeMap::new(),
            naive: false,
            evicted: 0,
            by_gangs: 0,
            of_gangs: 0,
            reserved: 0,
            done: 0,
        }
    }

    fn submit(&mut self, owner: UserId, spec: JobSpec, work_s: u64) -> Option<JobId> {
        let wish = tenure_domain::Wish::Submit {
            owner,
            spec: spec.into(),
            trace: None,
        };
        let events = self.world.by(owner, wish).ok()?;
        self.follow(&events);
        let Some(Event::JobSubmitted { job, .. }) = events.first() else {
            return None;
        };
        self.work_s.insert(*job, work_s);
        Some(*job)
    }

    fn follow(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::JobPromised { promise } if promise.evicts() => {
                    self.evicted += 1;
                    let is_gang = |job: &JobId| self.world.state.jobs[job].is_gang();
                    self.by_gangs += u64::from(is_gang(&promise.job));
                    self.of_gangs += promise.victims.iter().filter(|job| is_gang(job)).count() as u64;
                    promise
                        .victims
                        .iter()
                        .for_each(|victim| self.gives_way(promise.job, *victim));
                }
                Event::JobPromised { .. } => self.reserved += 1,
                Event::PromiseWithdrawn { why, .. } => {
                    assert!(!why.contains("after all"), "others left in vain: {why}");
                }
                Event::JobPlaced {
                    allocation, others, ..
                } => {
                    let all = || [allocation].into_iter().chain(others);
                    all().for_each(|placed| self.keeps_promises(placed));
                }
                Event::JobEnded { job, outcome } => {
                    assert_eq!(*outcome, Outcome::Succeeded, "{job}: giving way ends no job");
                    self.done += 1;
                }
                _ => {}
            }
        }
        if self.naive {
            forget_promises(&mut self.world.state);
        }
    }

    /// The bounds, reckoned anew: same tenant, lower rank, five minutes run, four times an hour.
    fn gives_way(&mut self, to: JobId, victim: JobId) {
        let now = self.world.now;
        let past = self.evictions.entry(victim).or_default();
        past.push(now);
        if self.naive {
            return;
        }
        let lately = past
            .iter()
            .filter(|then| now.since_ms(**then) < 3_600_000)
            .count();
        assert!(lately <= 4, "{victim} gives way {lately} times within an hour");
        let jobs = &self.world.state.jobs;
        let (to, victim) = (&jobs[&to], &jobs[&victim]);
        let tenant = |owner| self.world.state.tree.tenant_of(ScopeId::User(owner));
        assert_eq!(tenant(to.owner), tenant(victim.owner));
        assert!(to.spec.priority > victim.spec.priority);
    }

    /// Nobody is placed on what is promised to another before its own limit ends.
    fn keeps_promises(&self, placed: &Allocation) {
        let job = &self.world.state.jobs[&placed.job];
        let ends = self
            .world
            .now
            .plus_ms((job.spec.run_time_s + u64::from(job.spec.grace_s)) * 1000);
        for promise in self.world.state.calendar.on(placed.node) {
            let meets = |slice: &tenure_domain::schedule::allocation::Slice| promise.keeps(slice.gpu);
            let first = &self.world.state.jobs[&promise.job];
            // Between users of one class it is their use that decides; of one user's jobs, the first that came.
            let rank = |one: &Job| (one.spec.priority, std::cmp::Reverse(one.id));
            let ahead = first.spec.priority > job.spec.priority
                || first.owner == job.owner && rank(first) > rank(job);
            let binds = promise.evicts() || ahead;
            assert!(
                !binds || promise.from >= ends || !placed.slices.iter().any(meets),
                "{} is on what is promised to {}",
                placed.job,
                promise.job
            );
        }
    }

    /// Every node does what it was told, and says so.
    fn nodes(&mut self) {
        let now = self.world.now;
        let all: Vec<JobId> = self.world.state.jobs.keys().copied().collect();
        for id in all {
            let members = self.world.state.jobs[&id].members.len() as u32;
            (0..members).for_each(|member| self.node_of(id, member, now));
        }
    }

    /// What the node of one member says of it.
    fn node_of(&mut self, id: JobId, member: u32, now: Time) {
        let state = &self.world.state;
        let Some(job) = state.jobs.get(&id) else { return };
        let Some(allocation) = job.allocation_of(member).and_then(|a| state.fleet.allocation(a)) else {
            return;
        };
        let since_ms = now.since_ms(job.since);
        let ran_ms = allocation.ran_before_ms + since_ms;
        let work_ms = self.work_s[&id] * 1000;
        let exited = |ran_ms, by| Observation::Exited {
            exit_code: Some(0),
            signal: None,
            ran_ms,
            by,
            usage: None,
        };
        // Members of a gang do not leave at one moment.
        let dawdles = job.is_gang() && self.chance.one_in(3);
        let said = match job.phase {
            Phase::Placed | Phase::Starting | Phase::Resuming => Observation::Running,
            Phase::Running if ran_ms >= work_ms => exited(work_ms, None),
            Phase::Stopping if !dawdles && since_ms >= u64::from(job.spec.grace_s) * 1000 => {
                exited(allocation.metered_ms, Some(StopReason::Evicted))
            }
            Phase::Pausing if self.chance.one_in(5) => Observation::Kept { why: "busy".into() },
            Phase::Pausing => Observation::Paused {
                ran_ms: allocation.metered_ms.max(ran_ms.min(work_ms)),
                usage: None,
            },
            _ => return,
        };
        let events = self.world.observe_member(id, member, said);
        self.follow(&events.expect("a node's word is taken"));
        if self.chance.one_in(4) {
            self.pass();
        }
    }

    fn pass(&mut self) {
        let mut walk = Walk::begin(&self.world.state, self.world.now);
        loop {
            let turn = walk.next(&self.world.state);
            if turn == Turn::Over {
                return;
            }
            let Some(wish) = turn.wish() else { continue };
            match self.world.system(wish) {
                Ok(events) => self.follow(&events),
                Err(refusal) => walk.refused(&self.world.state, &refusal),
            }
        }
    }

    fn tick(&mut self) {
        self.world.pass_s(TICK_S);
        self.nodes();
        self.pass();
    }

    fn any_job(&mut self) {
        let chance = &mut self.chance;
        let demand = match chance.below(4) {
            0 => whole(1 + chance.below(4) as u32),
            _ => slice(chance.of(&[100, 300, 500, 800]), chance.of(&[2000, 8000, 16_000])),
        };
        let demand = match chance.one_in(4) {
            true => gang(2 + chance.below(4) as u32, demand),
            false => demand,
        };
        let run_time_s = chance.of(&[60, 600, 3600, 14_400]);
        let work_s = 1 + chance.below(run_time_s);
        let job = JobSpec {
            grace_s: chance.of(&[0, 10, 60]),
            max_attempts: 1,
            ..ranked(chance.of(Priority::ALL), spec("job", demand, run_time_s))
        };
        let owner = chance.of(&self.users.clone());
        self.submit(owner, job, work_s);
    }
}

/// The state as one that never heard of promises would have it.
fn forget_promises(state: &mut State) {
    let mut json = serde_json::to_value(&*state).expect("a state encodes");
    json.as_object_mut().expect("an object").remove("calendar");
    let mut forgot: State = serde_json::from_value(json).expect("a state decodes");
    forgot.rebuild_indexes();
    *state = forgot;
}

#[test]
fn nobody_leaves_in_vain_and_all_is_done_in_the_end() {
    let (mut evicted, mut reserved) = (0, 0);
    let (mut by_gangs, mut of_gangs) = (0, 0);
    for seed in 1..=6 {
        let mut replay = Replay { seed, step: 0 };
        let mut stream = Stream::new(seed, 2);
        for (node, levels) in [
            ("a", &[Isolation::Guarded][..]),
            ("b", &[Isolation::Guarded, Isolation::Fenced]),
            (
                "c",
                &[Isolation::Guarded, Isolation::Fenced, Isolation::Exclusive],
            ),
        ] {
            let gpus = (0..4).map(|n| gpu(&format!("{node}{n}"), "A10", 24_000, levels));
            stream.world.node(node, inventory(2_000, 8_000, gpus.collect()));
        }
        for step in 0..300 {
            replay.step = step;
            if stream.chance.one_in(3) {
                stream.any_job();
            }
            stream.tick();
        }
        for step in 300..20_000 {
            replay.step = step;
            if stream.world.state.jobs.is_empty() {
                break;
            }
            stream.tick();
        }
        println!(
            "seed {seed}: {} evictions, {} promises by limits, {} done",
            stream.evicted, stream.reserved, stream.done
        );
        assert!(
            stream.world.state.jobs.is_empty(),
            "everything is done in the end"
        );
        assert!(
            stream.world.state.calendar.is_empty(),
            "and nothing stays promised"
        );
        assert_eq!(stream.done as usize, stream.work_s.len());
        (evicted, reserved) = (evicted + stream.evicted, reserved + stream.reserved);
        (by_gangs, of_gangs) = (by_gangs + stream.by_gangs, of_gangs + stream.of_gangs);
    }
    println!("{evicted} evictions, {by_gangs} for gangs, {of_gangs} of gangs, {reserved} promises by limits");
    assert!(evicted > 50 && reserved > 50, "{evicted} {reserved}");
    assert!(by_gangs > 10 && of_gangs > 10, "{by_gangs} {of_gangs}");
}

/// users.md row 16. Small jobs leave one after another; each that has left fits the room again before the last has.
fn crowd(naive: bool) -> Stream {
    let mut stream = Stream::new(1, 1);
    stream.naive = naive;
    let only = vec![gpu("only", "A10", 24_000, &[Isolation::Guarded])];
    stream.world.node("alpha", inventory(16_000, 64_000, only));
    stream.world.policy(
        ScopeId::Platform,
        Policy {
            guaranteed_run_s: Some(0),
            max_evictions_per_hour: Some(16),
            ..Policy::default()
        },
    );
    let owner = stream.users[0];
    for n in 0..4 {
        let small = JobSpec {
            grace_s: 20 + 40 * n,
            max_attempts: 1,
            ..ranked(Priority::Low, spec("small", slice(250, 6000), 14_400))
        };
        stream.submit(owner, small, 7200).expect("taken");
    }
    (0..10).for_each(|_| stream.tick());
    let large = ranked(Priority::High, spec("large", whole(1), 3600));
    stream.submit(owner, large, 1800).expect("taken");
    (0..500).for_each(|_| stream.tick());
    stream
}

#[test]
fn what_oscillates_without_promises_settles_with_them() {
    let settles = crowd(false);
    let times = |stream: &Stream| stream.evictions.values().map(Vec::len).sum::<usize>();
    assert_eq!(times(&settles), 4, "each gave way once");
    assert_eq!(settles.evicted, 1);
    assert_eq!(settles.done, 5, "and all five are done");
    let naive = crowd(true);
    assert!(
        times(&naive) > 12,
        "without promises they are evicted again and again: {}",
        times(&naive)
    );
}
