//! The audit: a planted prober, a tamperer and a changed pattern are found and named; a year of ordinary jobs is quiet.
//!
//! `TENURE_AUDIT_SEED` chooses the year, `TENURE_AUDIT_JOBS` its length in jobs.

mod year;

use std::collections::BTreeMap;

use tenure_domain::audit::anomaly::{AnomalyKind, look};
use tenure_domain::audit::conduct::{Conduct, DeniedCall, KernelHash, KernelUse, SignedConduct, Tampering};
use tenure_domain::audit::habit::{Habits, WorkloadKey};
use tenure_domain::command::Observation;
use tenure_domain::id::{AllocationId, JobId, NodeId, UserId};
use tenure_domain::tenancy::role::Role;
use tenure_domain::workload::spec::Isolation;
use tenure_domain::{Actor, Code, Event, Refusal, State, Time, Wish};

use crate::chance::{Chance, number_from_env};
use crate::world::{World, digest, gpu, inventory, slice, spec};
use year::{Sort, Year};

/// What one case does otherwise.
type Change = fn(&mut Conduct);

const DAY_MS: i64 = 86_400_000;

fn key_of(owner: UserId, name: &str) -> WorkloadKey {
    WorkloadKey::of(owner, &spec(name, slice(300, 2000), 60))
}

/// False events, by what they said.
fn false_events(seed: u64, jobs: u64) -> (u64, BTreeMap<&'static str, u64>) {
    let mut habits = Habits::default();
    let mut found: BTreeMap<&'static str, u64> = BTreeMap::new();
    let lived = Year::new(seed, jobs).live(|day, _, workload, conduct, _| {
        let key = key_of(workload.owner, &workload.name);
        let anomalies = look(&conduct, habits.get(key));
        for anomaly in &anomalies {
            *found.entry(anomaly.kind.as_str()).or_default() += 1;
            eprintln!("  seed {seed} day {day} {:?}: {}", workload.sort, anomaly.why);
        }
        let strange = anomalies
            .iter()
            .any(|anomaly| anomaly.kind == AnomalyKind::PatternChanged);
        habits.note(Time(day as i64 * DAY_MS), key, &conduct, strange);
    });
    (lived, found)
}

#[test]
fn a_year_of_ordinary_jobs_is_quiet() {
    let jobs = number_from_env("TENURE_AUDIT_JOBS", 60_000);
    let seeds = match number_from_env("TENURE_AUDIT_SEED", 0) {
        0 => vec![1, 2, 3],
        chosen => vec![chosen],
    };
    for seed in seeds {
        let (lived, found) = false_events(seed, jobs);
        let events: u64 = found.values().sum();
        let rate = events as f64 * 10_000.0 / lived as f64;
        eprintln!("seed {seed}: {lived} jobs, {events} false events, {rate:.3} for 10,000 jobs: {found:?}");
        assert!(lived * 10 >= jobs * 8, "{lived} jobs are not the year asked for");
        assert!(
            events * 10_000 < lived,
            "seed {seed}: {rate:.3} false events for 10,000 jobs; replay with TENURE_AUDIT_SEED={seed}"
        );
    }
}

/// Somebody else's program runs where the workload's used to.
fn mines(conduct: &Conduct, chance: &mut Chance) -> Conduct {
    let launches = conduct.ran_ms / 100 + 100;
    let mut changed = Conduct {
        launches,
        busy_ms: conduct.ran_ms.max(launches) * 95 / 100,
        bytes_in: launches * 80,
        bytes_out: launches * 40,
        kernels: Vec::new(),
        other_launches: 0,
        ..conduct.clone()
    };
    changed.add_kernels([KernelUse {
        hash: KernelHash(chance.next()),
        launches,
    }]);
    changed
}

/// The same program, but what is on the device is carried away.
fn carries_away(conduct: &Conduct) -> Conduct {
    Conduct {
        bytes_out: conduct.bytes_out + conduct.ran_ms * 2_000_000,
        ..conduct.clone()
    }
}

#[test]
fn changed_patterns_are_found_among_ordinary_jobs() {
    let seed = number_from_env("TENURE_AUDIT_SEED", 7);
    let mut habits = Habits::default();
    // By kind of change and sort of program: planted and found.
    let mut tally: BTreeMap<(&str, String), (u64, u64)> = BTreeMap::new();
    Year::new(seed, 20_000).live(|day, _, workload, conduct, chance| {
        let key = key_of(workload.owner, &workload.name);
        let known = habits.get(key).filter(|habit| habit.runs.len() >= 12);
        // What ended at once has no pattern, and what does anything has none either.
        if known.is_some() && conduct.ran_ms > 20_000 && chance.one_in(20) && workload.sort != Sort::Notebook
        {
            for (name, changed) in [
                ("mines", mines(&conduct, chance)),
                ("carries away", carries_away(&conduct)),
            ] {
                let anomalies = look(&changed, known);
                let seen = anomalies
                    .iter()
                    .any(|anomaly| anomaly.kind == AnomalyKind::PatternChanged);
                let place = tally.entry((name, format!("{:?}", workload.sort))).or_default();
                *place = (place.0 + 1, place.1 + u64::from(seen));
            }
        }
        habits.note(Time(day as i64 * DAY_MS), key, &conduct, false);
    });
    for ((name, sort), (planted, found)) in &tally {
        eprintln!("seed {seed}: {name} in {sort}: {found} of {planted} found");
    }
    // Mining where sizes are swept, or passwords cracked, is what is done there anyway.
    let alike = |name: &str, sort: &str| name == "mines" && matches!(sort, "Sweep" | "Cracking");
    for (name, percent) in [("mines", 90), ("carries away", 75)] {
        let of = tally
            .iter()
            .filter(|((kind, sort), _)| *kind == name && !alike(kind, sort));
        let (planted, found) = of.fold((0, 0), |sum, (_, one)| (sum.0 + one.0, sum.1 + one.1));
        assert!(planted > 200, "{planted} planted");
        assert!(
            found * 100 >= planted * percent,
            "{name}: {found} of {planted} planted changes were found"
        );
    }
}

// What follows goes the whole way through `decide`.

fn house() -> (World, UserId, NodeId) {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let device = gpu("g0", "H100", 8000, &[Isolation::Guarded]);
    let node = world.node("alpha", inventory(16_000, 64_000, vec![device]));
    (world, ada, node)
}

fn runs(world: &mut World, owner: UserId) -> (JobId, AllocationId) {
    let job = world
        .submit(owner, spec("train", slice(300, 2000), 3600))
        .expect("taken");
    world.observe(job, Observation::Running).expect("it runs");
    world.pass_s(60);
    (job, world.allocation(job).expect("placed").0)
}

/// What an ordinary training run does.
fn ordinary(allocation: AllocationId, job: JobId) -> Conduct {
    let mut conduct = Conduct {
        ran_ms: 60_000,
        devices: 1,
        devices_opened: 1,
        opens: 1,
        allocations: 40,
        allocated_bytes: 4 << 30,
        peak_bytes: 1 << 30,
        launches: 40_000,
        bytes_in: 3 << 30,
        bytes_out: 200 << 20,
        busy_ms: 50_000,
        ..Conduct::new(allocation, job)
    };
    conduct.add_kernels((1..6).map(|n| KernelUse {
        hash: KernelHash(n),
        launches: 8000,
    }));
    conduct.set_denied_calls(vec![DeniedCall { call: 425, times: 3 }]);
    conduct
}

fn signed(conduct: Conduct, state: &State, node: NodeId) -> Box<SignedConduct> {
    let key = state.fleet.node(node).expect("the node").keys[0];
    Box::new(SignedConduct {
        conduct,
        key,
        public_key: "3059".into(),
        signature: "3045".into(),
    })
}

fn note(world: &mut World, node: NodeId, conduct: Conduct) -> Result<Vec<Event>, Refusal> {
    let record = signed(conduct, &world.state, node);
    world.act(Actor::Node(node), Wish::NoteConduct { node, record })
}

fn kinds(events: &[Event]) -> Vec<AnomalyKind> {
    let found = events.iter().filter_map(|event| match event {
        Event::AnomalyFound { anomaly, .. } => Some(anomaly.kind),
        _ => None,
    });
    found.collect()
}

#[test]
fn conduct_is_noted_once_and_ends_with_its_job() {
    let (mut world, ada, node) = house();
    let (job, allocation) = runs(&mut world, ada);
    let events = note(&mut world, node, ordinary(allocation, job)).expect("taken");
    assert!(
        matches!(&events[..], [Event::ConductNoted { strange: false, .. }]),
        "{events:?}"
    );
    let again = note(&mut world, node, ordinary(allocation, job)).expect("taken");
    assert_eq!(again, vec![], "said twice, noted once");
    assert_eq!(world.state.jobs[&job].audit.records.len(), 1);
    assert_eq!(world.state.habits.len(), 1);
    world.exit(job, 60);
    let late = note(&mut world, node, ordinary(allocation, job));
    assert_eq!(late.map_err(|refusal| refusal.code), Err(Code::NotFound));
}

#[test]
fn a_record_that_is_not_the_nodes_changes_nothing() {
    let (mut world, ada, node) = house();
    let other = world.node("beta", inventory(16_000, 64_000, vec![]));
    let (job, allocation) = runs(&mut world, ada);
    let refused = |world: &mut World, by: NodeId, of: NodeId, record: Box<SignedConduct>| {
        let before = world.state.clone();
        let answer = world.act(Actor::Node(by), Wish::NoteConduct { node: of, record });
        assert_eq!(world.state, before);
        answer.expect_err("refused").code
    };
    let good = signed(ordinary(allocation, job), &world.state, node);
    let foreign_key = Box::new(SignedConduct {
        key: digest(99),
        ..(*good).clone()
    });
    let foreign_job = signed(ordinary(allocation, JobId(7)), &world.state, node);
    let unknown = signed(ordinary(AllocationId(7), job), &world.state, node);
    let long = Box::new(SignedConduct {
        signature: "0".repeat(10_000),
        ..(*good).clone()
    });
    assert_eq!(
        refused(&mut world, node, node, foreign_key),
        Code::ContradictoryReport
    );
    assert_eq!(
        refused(&mut world, node, node, foreign_job),
        Code::ContradictoryReport
    );
    assert_eq!(refused(&mut world, node, node, unknown), Code::NotFound);
    assert_eq!(refused(&mut world, node, node, long), Code::InvalidField);
    assert_eq!(
        refused(&mut world, other, node, good.clone()),
        Code::NotFound,
        "another node's word"
    );
    assert_eq!(refused(&mut world, other, other, good), Code::NotFound);
}

#[test]
fn a_prober_is_found() {
    let probers: [(&str, Change); 3] = [
        ("system calls", |conduct| {
            conduct.set_denied_calls((160..180).map(|call| DeniedCall { call, times: 1 }).collect());
        }),
        ("extension functions", |conduct| conduct.denials = 300),
        ("sizes", |conduct| {
            conduct.refusals = 5000;
            conduct.allocations = 64;
            conduct.launches = 0;
        }),
    ];
    for (name, probes) in probers {
        let (mut world, ada, node) = house();
        let (job, allocation) = runs(&mut world, ada);
        let mut conduct = ordinary(allocation, job);
        probes(&mut conduct);
        let events = note(&mut world, node, conduct).expect("taken");
        assert_eq!(kinds(&events), [AnomalyKind::ProbingLimits], "{name}");
        assert_eq!(world.state.jobs[&job].audit.anomalies.len(), 1);
    }
}

#[test]
fn what_only_looks_like_probing_is_not() {
    let ordinary_troubles: [(&str, Change); 4] = [
        ("a search for the largest batch", |conduct| conduct.refusals = 150),
        ("a crowded server", |conduct| {
            conduct.refusals = 30_000;
            conduct.launches = 40_000;
        }),
        ("programs that fall back", |conduct| {
            conduct.set_denied_calls(
                [425, 298, 250, 272, 321, 323]
                    .map(|call| DeniedCall { call, times: 9000 })
                    .to_vec(),
            );
        }),
        ("a script that asks a hundred times", |conduct| {
            conduct.opens = 100;
            conduct.denials = 4000;
        }),
    ];
    for (name, troubles) in ordinary_troubles {
        let mut conduct = ordinary(AllocationId(1), JobId(1));
        troubles(&mut conduct);
        assert_eq!(look(&conduct, None), vec![], "{name}");
    }
}

#[test]
fn a_tamperer_is_found() {
    let tamperers: [(&str, Change); 4] = [
        ("limits", |conduct| {
            conduct.tampering.insert(Tampering::LimitsChanged);
        }),
        ("page", |conduct| {
            conduct.tampering.insert(Tampering::PageDamaged);
        }),
        ("messages", |conduct| conduct.malformed = 1),
        ("launches from nowhere", |conduct| conduct.opens = 0),
    ];
    for (name, tampers) in tamperers {
        let (mut world, ada, node) = house();
        let (job, allocation) = runs(&mut world, ada);
        let mut conduct = ordinary(allocation, job);
        tampers(&mut conduct);
        let events = note(&mut world, node, conduct).expect("taken");
        assert_eq!(kinds(&events), [AnomalyKind::Tampering], "{name}");
    }
}

#[test]
fn a_changed_pattern_is_found_three_times_and_then_is_the_pattern() {
    let (mut world, ada, node) = house();
    let mut found = Vec::new();
    for run in 0..30 {
        let (job, allocation) = runs(&mut world, ada);
        let usual = ordinary(allocation, job);
        let conduct = if run < 20 {
            usual
        } else {
            mines(&usual, &mut Chance::new(run))
        };
        let events = note(&mut world, node, conduct).expect("taken");
        if kinds(&events) == [AnomalyKind::PatternChanged] {
            found.push(run);
        } else {
            assert_eq!(kinds(&events), []);
        }
        world.exit(job, 60);
    }
    assert_eq!(found, [20, 21, 22]);
}
