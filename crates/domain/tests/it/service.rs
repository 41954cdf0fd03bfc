//! Services: replicas made, replaced and given back as wanted, and nobody but Tenure steers them.

use tenure_domain::command::Observation;
use tenure_domain::id::{JobId, UserId};
use tenure_domain::state::Retired;
use tenure_domain::tenancy::role::Role;
use tenure_domain::workload::job::{Job, Outcome, PauseReason, Phase, StopReason};
use tenure_domain::workload::service::{Replicas, Service, ServiceUse, Serving};
use tenure_domain::workload::spec::{Isolation, JobSpec};
use tenure_domain::workload::task::words;
use tenure_domain::{Actor, Code, Event, Refusal, Wish};

use crate::world::{World, cpu, gang, gpu, inventory, slice, spec};

/// A GPU with room for four replicas, and a user of a tenant.
fn setting() -> (World, UserId) {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let device = gpu("l40s-0", "L40S", 48_000, &[Isolation::Guarded]);
    world.node("alpha", inventory(64_000, 256_000, vec![device]));
    (world, ada)
}

fn between(min: u32, max: u32) -> JobSpec {
    let mut job = spec("model", slice(250, 8000), 3600);
    job.command = ["serve", "--port={port}"].map(String::from).to_vec();
    job.service = Some(Box::new(Service {
        replicas: Replicas { min, max },
        ..Service::default()
    }));
    job
}

fn serving(world: &World, service: JobId) -> &Serving {
    let tasks = world.state.jobs[&service].tasks.as_ref().expect("tasks");
    tasks.serving().expect("a service")
}

fn replicas(world: &World, service: JobId) -> Vec<&Job> {
    let tasks = world.state.jobs[&service].tasks.as_ref().expect("tasks");
    tasks.jobs(&world.state.jobs).collect()
}

fn ids(world: &World, service: JobId, phase: Phase) -> Vec<JobId> {
    let all = replicas(world, service).into_iter();
    all.filter(|replica| replica.phase == phase)
        .map(|replica| replica.id)
        .collect()
}

fn steer(world: &mut World, job: JobId, wanted: u32, leave: &[JobId]) -> Result<Vec<Event>, Refusal> {
    let leave = leave.to_vec();
    let why = "requests".into();
    world.system(Wish::Steer {
        job,
        wanted,
        leave,
        why,
    })
}

/// Starts what waits, and has it run.
fn start(world: &mut World, service: JobId) {
    world.schedule();
    for replica in ids(world, service, Phase::Placed) {
        world.observe(replica, Observation::Running).expect("it runs");
    }
}

fn exits(world: &mut World, replica: JobId, code: i32, ran_ms: u64) -> Vec<Event> {
    let exited = Observation::Exited {
        exit_code: Some(code),
        signal: None,
        ran_ms,
        by: None,
        usage: None,
    };
    world.observe(replica, exited).expect("an end is taken")
}

#[test]
fn replicas_are_made_as_wanted_and_given_back_as_named() {
    let (mut world, ada) = setting();
    let service = world.submit(ada, between(0, 4)).expect("taken");
    assert!(replicas(&world, service).is_empty());
    steer(&mut world, service, 4, &[]).expect("steered");
    start(&mut world, service);
    let running = ids(&world, service, Phase::Running);
    assert_eq!(running.len(), 4);
    assert_eq!(world.state.jobs[&service].phase, Phase::Running);
    let ports: std::collections::BTreeSet<String> = running
        .iter()
        .map(|id| words::command(&world.state.jobs[id].spec)[1].clone())
        .collect();
    assert_eq!(ports.len(), 4, "each has a port of its own: {ports:?}");
    let told = words::variables(&world.state.jobs[&running[0]].spec);
    assert!(
        told.iter()
            .any(|(name, port)| *name == "PORT" && port.parse::<u16>().is_ok())
    );
    // No more than there may be.
    assert!(
        steer(&mut world, service, 9, &[])
            .expect("nothing to do")
            .is_empty()
    );

    // Of those that are named, as many as are too many.
    let events = steer(&mut world, service, 2, &running[..3]).expect("steered");
    let stopped: Vec<&Event> = events
        .iter()
        .filter(|event| matches!(event, Event::JobStopping { .. }))
        .collect();
    assert_eq!(stopped.len(), 2, "{events:?}");
    assert_eq!(serving(&world, service).wanted, 2);
    // One that leaves does not count, and is replaced where it is wanted after all.
    steer(&mut world, service, 3, &[]).expect("steered");
    assert_eq!(replicas(&world, service).len(), 5);
    for replica in ids(&world, service, Phase::Stopping) {
        exits(&mut world, replica, 0, 1000);
    }
    start(&mut world, service);
    assert_eq!(ids(&world, service, Phase::Running).len(), 3);
    assert_eq!(
        serving(&world, service).failures,
        0,
        "who was stopped did not fail"
    );

    let charged = world.state.jobs[&service].ran_ms;
    assert!(charged > 0, "what replicas ran is the service's");
    world.stop(service).expect("stopped");
    for replica in ids(&world, service, Phase::Stopping) {
        exits(&mut world, replica, 0, 1000);
    }
    assert!(
        world.state.jobs.is_empty(),
        "a service ends with the last of its replicas"
    );
    let outcome = world.retired.iter().find_map(|retired| match retired {
        Retired::Job { job, .. } if job.id == service => Some(job.outcome.clone()),
        _ => None,
    });
    assert_eq!(outcome, Some(Outcome::Cancelled));
}

#[test]
fn what_fails_is_replaced_later_and_later() {
    let (mut world, ada) = setting();
    let service = world.submit(ada, between(1, 2)).expect("taken");
    for (round, wait_s) in [1, 2, 4, 8].into_iter().enumerate() {
        start(&mut world, service);
        let [replica] = ids(&world, service, Phase::Running)[..] else {
            panic!("one runs")
        };
        exits(&mut world, replica, i32::from(round % 2 == 0), 10);
        assert!(replicas(&world, service).is_empty(), "not at once");
        assert_eq!(serving(&world, service).failures as usize, round + 1);
        assert!(serving(&world, service).trouble.is_some());
        world.pass_s(wait_s - 1);
        assert!(steer(&mut world, service, 1, &[]).expect("not yet").is_empty());
        world.pass_s(1);
        assert_eq!(steer(&mut world, service, 1, &[]).expect("again").len(), 1);
    }
    // One that served well for long fails as if for the first time.
    start(&mut world, service);
    world.pass_s(120);
    let replica = ids(&world, service, Phase::Running)[0];
    exits(&mut world, replica, 1, 120_000);
    assert_eq!(serving(&world, service).failures, 1);
    // A replica that ran as long as it may did nothing wrong, and its successor is there at once.
    world.pass_s(1);
    steer(&mut world, service, 1, &[]).expect("again");
    start(&mut world, service);
    let replica = ids(&world, service, Phase::Running)[0];
    let over = Observation::Exited {
        exit_code: None,
        signal: Some(15),
        ran_ms: 1000,
        by: Some(StopReason::RunTime),
        usage: None,
    };
    let events = world.observe(replica, over).expect("over");
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::TaskSubmitted { .. })),
        "{events:?}"
    );
    assert_eq!(serving(&world, service).failures, 1);
}

#[test]
fn a_replica_that_is_never_ready_has_failed() {
    let (mut world, ada) = setting();
    let service = world.submit(ada, between(1, 1)).expect("taken");
    start(&mut world, service);
    let replica = ids(&world, service, Phase::Running)[0];
    let wish = Wish::FailReplica {
        replica,
        why: "it answered /health with 503".into(),
    };
    assert_eq!(world.by(ada, wish.clone()).unwrap_err().code, Code::NotFound);
    let events = world.system(wish.clone()).expect("failed");
    assert!(
        matches!(events[0], Event::ReplicaFailed { .. }) && events.len() == 2,
        "{events:?}"
    );
    assert_eq!(serving(&world, service).failures, 1);
    assert!(world.system(wish).expect("said before").is_empty());
    exits(&mut world, replica, 0, 500);
    assert_eq!(serving(&world, service).failures, 1, "counted once");
    assert!(replicas(&world, service).is_empty());
    world.pass_s(1);
    steer(&mut world, service, 1, &[]).expect("again");
    assert_eq!(replicas(&world, service).len(), 1);
}

#[test]
fn one_that_gives_way_comes_back_and_is_not_replaced() {
    let (mut world, ada) = setting();
    let service = world.submit(ada, between(2, 2)).expect("taken");
    start(&mut world, service);
    let replica = ids(&world, service, Phase::Running)[0];
    world
        .system(Wish::Stop {
            job: replica,
            reason: StopReason::Evicted,
        })
        .expect("evicted");
    assert!(steer(&mut world, service, 2, &[]).expect("as wanted").is_empty());
    let left = Observation::Exited {
        exit_code: None,
        signal: Some(15),
        ran_ms: 1000,
        by: Some(StopReason::Evicted),
        usage: None,
    };
    world.observe(replica, left).expect("it left");
    assert_eq!(replicas(&world, service).len(), 2);
    assert_eq!(world.state.jobs[&replica].phase, Phase::Queued);
    assert_eq!(serving(&world, service).failures, 0);
}

#[test]
fn bounds_are_said_by_those_who_may_submit() {
    let (mut world, ada) = setting();
    let acme = world.tenant("other");
    let eve = world.user(acme, "eve", Some(Role::Owner));
    let service = world.submit(ada, between(1, 1)).expect("taken");
    let plain = world.submit(ada, spec("batch", cpu(100), 60)).expect("taken");
    let scale = |job, min, max| Wish::Scale {
        job,
        replicas: Replicas { min, max },
    };
    assert_eq!(
        world.by(eve, scale(service, 1, 2)).unwrap_err().code,
        Code::NotFound
    );
    assert_eq!(
        world.by(ada, scale(plain, 1, 2)).unwrap_err().code,
        Code::WrongPhase
    );
    let refused = world.by(ada, scale(service, 3, 2)).unwrap_err();
    assert_eq!(refused.field.as_deref(), Some("/min"));
    assert!(world.by(ada, scale(service, 1, 1)).expect("as it is").is_empty());
    let events = world.by(ada, scale(service, 3, 4)).expect("scaled");
    assert!(
        matches!(events[0], Event::ServiceScaled { wanted: 3, .. }),
        "{events:?}"
    );
    start(&mut world, service);
    assert_eq!(ids(&world, service, Phase::Running).len(), 3);
    for wish in [
        Wish::Steer {
            job: service,
            wanted: 4,
            leave: vec![],
            why: String::new(),
        },
        Wish::NoteServiceUse {
            job: service,
            uses: vec![],
        },
    ] {
        let refused = world.act(Actor::user(ada), wish).unwrap_err();
        assert_eq!(refused.code, Code::NotFound, "only Tenure itself");
    }
    let uses = vec![ServiceUse {
        user: ada,
        requests: 7,
        lost: 0,
        bytes_in: 1,
        bytes_out: 2,
    }];
    world
        .system(Wish::NoteServiceUse { job: service, uses })
        .expect("noted");
    assert_eq!(serving(&world, service).requests, 7);
}

#[test]
fn a_paused_service_has_no_new_replicas() {
    let (mut world, ada) = setting();
    let service = world.submit(ada, between(1, 2)).expect("taken");
    world
        .by(
            ada,
            Wish::Pause {
                job: service,
                reason: PauseReason::Asked,
            },
        )
        .expect("paused");
    assert!(replicas(&world, service).is_empty());
    assert!(steer(&mut world, service, 1, &[]).expect("nothing").is_empty());
    world.by(ada, Wish::ResumeJob { job: service }).expect("resumed");
    assert_eq!(replicas(&world, service).len(), 1);
}

#[test]
fn what_cannot_be_served_is_refused_by_its_field() {
    let (mut world, ada) = setting();
    let with = |change: &dyn Fn(&mut JobSpec)| {
        let mut job = between(0, 1);
        change(&mut job);
        job
    };
    let cases: [(JobSpec, &str); 4] = [
        (with(&|job| job.tty = true), "/tty"),
        (with(&|job| job.demand = gang(2, cpu(100))), "/demand/nodes"),
        (
            with(&|job| drop(job.env.insert("PORT".into(), "1".into()))),
            "/env",
        ),
        (
            with(&|job| job.service.as_mut().expect("a service").ready_s = 0),
            "/service/ready_s",
        ),
    ];
    for (job, field) in cases {
        let refused = world.submit(ada, job).unwrap_err();
        assert_eq!(
            (refused.code, refused.field.as_deref()),
            (Code::InvalidField, Some(field))
        );
    }
}
