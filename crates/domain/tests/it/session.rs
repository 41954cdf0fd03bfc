//! Who may be at a running job, and what is written of it.

use tenure_domain::command::Observation;
use tenure_domain::id::{JobId, UserId};
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::session::{MAX_PER_JOB, MAX_PER_USER, Session, SessionEnd, SessionKind};
use tenure_domain::{Actor, Code, Event, Refusal, Wish};

use crate::world::{World, cpu, inventory, spec};

fn running(world: &mut World, owner: UserId, name: &str) -> JobId {
    let job = world.submit(owner, spec(name, cpu(100), 60)).expect("taken");
    world.observe(job, Observation::Running).expect("it runs");
    job
}

fn kinds() -> [SessionKind; 3] {
    [
        SessionKind::Attach,
        SessionKind::exec(&["sh".to_owned()], false),
        SessionKind::Port { port: 8888 },
    ]
}

fn open(world: &mut World, by: Actor, job: JobId, kind: SessionKind) -> Result<Session, Refusal> {
    let from = "192.0.2.9".to_owned();
    let wish = Wish::OpenSession {
        job,
        member: 0,
        kind,
        from,
    };
    let events = world.act(by, wish)?;
    let [Event::SessionOpened { session }] = &events[..] else {
        panic!("{events:?}")
    };
    Ok(session.clone())
}

fn end(why: &str) -> SessionEnd {
    SessionEnd {
        bytes_in: 1,
        bytes_out: 2,
        exit_code: Some(0),
        signal: None,
        why: why.into(),
    }
}

#[test]
fn its_owner_and_those_who_run_the_place_enter_a_job_and_nobody_else() {
    let mut world = World::new();
    world.node("n", inventory(8000, 8000, vec![]));
    let acme = world.tenant("acme");
    let other = world.tenant("other");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let job = running(&mut world, ada, "job");
    for kind in kinds() {
        let session = open(&mut world, Actor::user(ada), job, kind.clone()).expect("her own");
        assert_eq!((session.user, session.owner, session.job), (ada, ada, job));
        for (role, may) in [
            (Role::Owner, true),
            (Role::Operator, true),
            (Role::Member, false),
            (Role::Billing, false),
            (Role::Auditor, false),
        ] {
            let name = format!("{}-{}", role.as_str(), world.state.last_id);
            let bob = world.user(acme, &name, Some(role));
            let code = open(&mut world, Actor::user(bob), job, kind.clone()).map_err(|refusal| refusal.code);
            assert_eq!(code.is_ok(), may, "{role:?} {kind:?} {code:?}");
        }
        let name = format!("eve-{}", world.state.last_id);
        let stranger = world.user(other, &name, Some(Role::Owner));
        let refused =
            open(&mut world, Actor::user(stranger), job, kind.clone()).map_err(|refusal| refusal.code);
        assert_eq!(refused, Err(Code::NotFound));
        for by in [
            Actor::System,
            Actor::Node(world.allocation(job).expect("placed").1),
        ] {
            assert!(open(&mut world, by, job, kind.clone()).is_err());
        }
    }
}

#[test]
fn a_job_with_secrets_is_entered_by_its_owner_alone() {
    let mut world = World::new();
    world.node("n", inventory(8000, 8000, vec![]));
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let secret = tenure_domain::id::SecretId(9);
    let scope = ScopeId::User(ada);
    let name = "token".to_owned();
    world
        .by(ada, Wish::StoreSecret { scope, name, secret })
        .expect("stored");
    let mut reads = spec("reads", cpu(100), 60);
    reads.secrets = [("TOKEN".to_owned(), "token".to_owned())].into();
    let job = world.submit(ada, reads).expect("taken");
    world.observe(job, Observation::Running).expect("it runs");
    let root = Actor::user(world.root);
    for kind in kinds() {
        open(&mut world, Actor::user(ada), job, kind.clone()).expect("her own");
        let refused = open(&mut world, root.clone(), job, kind).expect_err("not even the platform's owner");
        assert_eq!(refused.code, Code::NotPermitted);
    }
}

#[test]
fn only_running_jobs_have_a_way_in() {
    let mut world = World::new();
    world.node("n", inventory(8000, 8000, vec![]));
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let job = world.submit(ada, spec("job", cpu(100), 60)).expect("taken");
    let code = |world: &mut World| {
        open(world, Actor::user(ada), job, SessionKind::Attach).map_err(|refusal| refusal.code)
    };
    assert_eq!(code(&mut world).map(drop), Err(Code::WrongPhase));
    world.observe(job, Observation::Running).expect("it runs");
    assert!(code(&mut world).is_ok());
    world.stop(job).expect("stopping");
    assert_eq!(code(&mut world).map(drop), Err(Code::WrongPhase));
}

#[test]
fn sessions_are_counted_and_their_end_is_noted_once() {
    let mut world = World::new();
    world.node("n", inventory(8000, 8000, vec![]));
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let jobs: Vec<JobId> = (0..3)
        .map(|n| running(&mut world, ada, &format!("job{n}")))
        .collect();
    let mut sessions = Vec::new();
    for job in &jobs {
        while let Ok(session) = open(&mut world, Actor::user(ada), *job, SessionKind::Attach) {
            sessions.push(session);
        }
    }
    assert_eq!(sessions.len(), MAX_PER_USER);
    assert_eq!(
        sessions.iter().filter(|session| session.job == jobs[0]).count(),
        MAX_PER_JOB
    );
    let refused = open(&mut world, Actor::user(ada), jobs[2], SessionKind::Attach).expect_err("too many");
    assert_eq!(refused.code, Code::TooManySessions);

    let session = sessions[0].id;
    let wish = |why: &str| Wish::EndSession {
        session,
        end: end(why),
    };
    assert!(world.by(ada, wish("mine")).is_err(), "only Tenure itself says so");
    let ended = world.system(wish(&"\u{1b}x".repeat(1000))).expect("noted");
    let [Event::SessionEnded { end, .. }] = &ended[..] else {
        panic!("{ended:?}")
    };
    assert_eq!(end.why, "x".repeat(300));
    assert_eq!(world.system(wish("again")), Ok(vec![]));
    open(&mut world, Actor::user(ada), jobs[0], SessionKind::Attach).expect("there is room again");
    // A session outlives its job by a moment: its end is still noted.
    world.exit(jobs[1], 1);
    let session = sessions.last().expect("some").id;
    let end = self::end("the job ended");
    assert_eq!(
        world
            .system(Wish::EndSession { session, end })
            .expect("noted")
            .len(),
        1
    );
}

#[test]
fn of_a_command_only_the_program_and_the_number_of_arguments_are_kept() {
    let command = ["mysql", "-phunter2", "db"].map(String::from);
    let kind = SessionKind::exec(&command, false);
    let written = serde_json::to_string(&kind).expect("encodes");
    assert!(!written.contains("hunter2"));
    assert_eq!(
        kind,
        SessionKind::Exec {
            program: "mysql".into(),
            arguments: 2,
            tty: false
        }
    );
    let mut world = World::new();
    world.node("n", inventory(8000, 8000, vec![]));
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let job = running(&mut world, ada, "job");
    for bad in [
        SessionKind::exec(&[], true),
        SessionKind::Port { port: 0 },
        SessionKind::Exec {
            program: "a\nb".into(),
            arguments: 0,
            tty: false,
        },
    ] {
        let refused = open(&mut world, Actor::user(ada), job, bad).expect_err("bad input");
        assert_eq!(refused.code, Code::InvalidField);
    }
    assert!(world.state.sessions.is_empty());
}
