//! Gangs: jobs over several nodes, from submission to bill, and every way in which one member ends them all.

use tenure_domain::command::{Observation, Ran};
use tenure_domain::id::{AllocationId, JobId, NodeId, UserId};
use tenure_domain::ledger::account::AccountId;
use tenure_domain::refusal::Code;
use tenure_domain::schedule::why::why;
use tenure_domain::state::Retired;
use tenure_domain::storage::volume::VolumeUse;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{DoneJob, Outcome, PauseReason, Phase, StopReason};
use tenure_domain::workload::session::SessionKind;
use tenure_domain::workload::spec::{Isolation, Sku};
use tenure_domain::{Actor, Command, Event, Refusal, Wish, decide};

use crate::world::{World, cpu, gang, gpu, inventory, slice, spec, whole};

const LEVELS: [Isolation; 3] = [Isolation::Guarded, Isolation::Fenced, Isolation::Exclusive];

struct Setting {
    world: World,
    acme: ScopeId,
    ada: UserId,
    nodes: [NodeId; 2],
}

/// acme/ada on two nodes with two GPUs each.
fn setting() -> Setting {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let nodes = ["alpha", "beta"].map(|name| {
        let gpus = (0..2).map(|n| gpu(&format!("{name}-{n}"), "H100", 80_000, &LEVELS));
        world.node(name, inventory(8000, 64_000, gpus.collect()))
    });
    Setting {
        world,
        acme,
        ada,
        nodes,
    }
}

/// Four members with a GPU each: all there is.
fn four(setting: &mut Setting) -> JobId {
    let job = setting
        .world
        .submit(setting.ada, spec("train", gang(4, whole(1)), 3600));
    job.expect("taken")
}

fn running(setting: &mut Setting) -> JobId {
    let job = four(setting);
    for member in 0..4 {
        let seen = setting.world.observe_member(job, member, Observation::Running);
        seen.expect("taken");
    }
    assert_eq!(phase(setting, job), Phase::Running);
    job
}

fn phase(setting: &Setting, job: JobId) -> Phase {
    setting.world.state.jobs[&job].phase
}

fn exited(exit_code: i32, ran_s: u64) -> Observation {
    Observation::Exited {
        exit_code: Some(exit_code),
        signal: None,
        ran_ms: ran_s * 1000,
        by: None,
        usage: None,
    }
}

/// What a node says of a member it was told to stop.
fn stopped(reason: StopReason) -> Observation {
    Observation::Exited {
        exit_code: None,
        signal: Some(15),
        ran_ms: 0,
        by: Some(reason),
        usage: None,
    }
}

fn kinds(events: &[Event]) -> Vec<&'static str> {
    events.iter().map(Event::kind).collect()
}

fn done(setting: &Setting) -> &DoneJob {
    match setting.world.retired.last() {
        Some(Retired::Job { job, .. }) => job,
        other => panic!("no job ended: {other:?}"),
    }
}

fn nothing_is_held(setting: &Setting) {
    let state = &setting.world.state;
    assert_eq!(state.fleet.allocations().count(), 0);
    let used = &state.tree.get(setting.acme).expect("acme").used;
    assert!(used.iter().all(|(_, n)| n == 0), "{used:?}");
}

#[test]
fn four_members_on_two_nodes_from_submission_to_bill() {
    let mut setting = setting();
    let job = four(&mut setting);
    let state = &setting.world.state;
    assert_eq!(state.jobs[&job].phase, Phase::Placed);
    let on = |node| {
        let members = state.jobs[&job].members.iter();
        members.filter(|member| member.node == node).count()
    };
    assert_eq!(setting.nodes.map(on), [2, 2]);
    let admission = state.jobs[&job].admission.as_ref().expect("admitted");
    assert_eq!(
        admission.amounts.get(&"gpu_milli".parse().expect("a meter")),
        Some(4000)
    );
    assert_eq!(
        admission.amounts.get(&"jobs".parse().expect("a meter")),
        Some(1),
        "a gang is one job"
    );
    assert_eq!(admission.hold.hourly.0, 4_000_000);
    assert_eq!(admission.hold.left.money.0, 4_000_000, "an hour of four GPUs");

    // It starts when all start, and runs when all run.
    let world = &mut setting.world;
    for member in 0..4 {
        let events = world
            .observe_member(job, member, Observation::Starting)
            .expect("taken");
        let last: &[&str] = &["MemberStarting", "JobStarting"];
        assert_eq!(kinds(&events), if member == 3 { last } else { &last[..1] });
        let again = world
            .observe_member(job, member, Observation::Starting)
            .expect("taken");
        assert_eq!(again, [], "said twice, it is no news");
    }
    for member in [3, 1, 0, 2] {
        assert_eq!(world.state.jobs[&job].phase, Phase::Starting);
        world
            .observe_member(job, member, Observation::Running)
            .expect("taken");
    }
    assert_eq!(world.state.jobs[&job].phase, Phase::Running);
    let late = world
        .observe_member(job, 2, Observation::Starting)
        .expect("taken");
    assert_eq!(late, [], "out of order, it is no news");

    // Metered each for itself; together they cost what the whole costs.
    world.pass_s(1800);
    let (allocation, node) = world.member(job, 1).expect("it runs");
    let ran = vec![Ran {
        allocation,
        ran_ms: 900_000,
        usage: None,
    }];
    world
        .act(Actor::Node(node), Wish::Meter { node, ran })
        .expect("taken");
    assert_eq!(world.state.jobs[&job].charged.money.0, 250_000);
    for (member, ran_s) in [(2, 1200), (0, 1800), (3, 1800)] {
        let events = world
            .observe_member(job, member, exited(0, ran_s))
            .expect("taken");
        assert_eq!(kinds(&events), ["UsageMetered", "MemberEnded"]);
        assert_eq!(world.state.jobs[&job].phase, Phase::Running, "others go on");
        assert_eq!(world.member(job, member), None, "its place is given back");
    }
    let events = world.observe_member(job, 1, exited(0, 1800)).expect("taken");
    assert_eq!(kinds(&events), ["UsageMetered", "MemberEnded", "JobEnded"]);
    let over = done(&setting);
    assert_eq!(over.outcome, Outcome::Succeeded);
    assert_eq!(
        over.charged.money.0, 1_833_333,
        "3 × 1800 s and 1200 s, rounded for each"
    );
    assert_eq!(over.charged.gpu_ms, 6_600_000);
    assert_eq!(over.ran_ms, 1_800_000, "members run beside one another");
    assert_eq!(over.members.len(), 4);
    let revenue = setting.world.state.accounts.get(AccountId::Revenue);
    assert_eq!(revenue.posted.0, 1_833_333);
    nothing_is_held(&setting);
}

#[test]
fn a_gang_is_placed_whole_or_not_at_all() {
    let mut setting = setting();
    let ada = setting.ada;
    let one = setting
        .world
        .submit(ada, spec("one", whole(1), 600))
        .expect("taken");
    let job = four(&mut setting);
    let world = &mut setting.world;
    assert_eq!(
        world.state.jobs[&job].members,
        [],
        "three GPUs are free, and it waits for four"
    );
    let reason = why(&world.state, job, world.now).expect("it waits");
    assert_eq!(reason.code, Code::NoCapacity);
    assert!(
        reason.sentence.contains("room now for 3 of its 4 members"),
        "{}",
        reason.sentence
    );
    world.exit(one, 60);
    world.schedule();
    assert_eq!(world.state.jobs[&job].members.len(), 4);
}

#[test]
#[should_panic(expected = "was placed in part")]
fn a_gang_placed_in_part_is_never_taken_for_whole() {
    let mut setting = setting();
    let (ada, now) = (setting.ada, setting.world.now);
    let command = Command {
        at: now,
        by: Actor::user(ada),
        ids: setting.world.next,
        wish: Wish::Submit {
            owner: ada,
            spec: spec("train", gang(4, whole(1)), 3600).into(),
            trace: None,
        },
    };
    let mut events = decide(&setting.world.state, &command).expect("taken");
    if let Some(Event::JobPlaced { others, .. }) = events.last_mut() {
        others.pop();
    }
    for event in &events {
        setting.world.state.apply(now, event);
    }
}

#[test]
fn members_are_put_on_as_few_nodes_as_hold_them() {
    let mut setting = setting();
    let (ada, [alpha, beta]) = (setting.ada, setting.nodes);
    let world = &mut setting.world;
    let nodes_of = |world: &World, job: JobId| -> Vec<NodeId> {
        let members = &world.state.jobs[&job].members;
        members.iter().map(|member| member.node).collect()
    };
    let pair = world
        .submit(ada, spec("pair", gang(2, whole(1)), 600))
        .expect("taken");
    let pair_on = nodes_of(world, pair)[0];
    assert_eq!(nodes_of(world, pair), [pair_on; 2]);
    let other = if pair_on == alpha { beta } else { alpha };
    world
        .submit(ada, spec("half", slice(500, 8000), 600))
        .expect("taken");
    // Three of a quarter: the half GPU left beside the other, and the whole one, are on one node.
    let three = world
        .submit(ada, spec("three", gang(3, slice(250, 8000)), 600))
        .expect("taken");
    assert_eq!(nodes_of(world, three), [other; 3]);
    let gpus: std::collections::BTreeSet<_> = world.state.jobs[&three]
        .allocations()
        .flat_map(|id| &world.state.fleet.allocation(id).expect("living").slices)
        .map(|slice| slice.gpu)
        .collect();
    assert_eq!(
        gpus.len(),
        2,
        "two share what the half left, each with a slice of its own"
    );
}

#[test]
fn what_the_fleet_never_holds_is_refused_at_once() {
    let mut setting = setting();
    let (ada, world) = (setting.ada, &mut setting.world);
    let mut refused = |demand| {
        let refusal = world.submit(ada, spec("big", demand, 600)).expect_err("refused");
        assert_eq!(refusal.code, Code::ExceedsFleet, "{refusal}");
        refusal
    };
    let refusal = refused(gang(5, whole(1)));
    assert_eq!(refusal.field.as_deref(), Some("/demand/nodes"));
    assert!(refusal.sentence.contains("room for 4 of 5 members"), "{refusal}");
    // Each member has its two slices on two GPUs: eight members of halves want sixteen halves of eight.
    refused(gang(5, gpu_pair(500)));
    refused(gang(17, cpu(1000)));
    for fits in [
        gang(4, whole(1)),
        gang(2, whole(2)),
        gang(4, gpu_pair(500)),
        gang(16, cpu(1000)),
    ] {
        world
            .submit(ada, spec("fits", fits, 600))
            .expect("it can be, some day");
    }
    for nodes in [0, 1025] {
        let refusal = world
            .submit(ada, spec("odd", gang(nodes, cpu(100)), 600))
            .expect_err("refused");
        assert_eq!(refusal.field.as_deref(), Some("/demand/nodes"));
    }
}

fn gpu_pair(permille: u16) -> tenure_domain::workload::spec::Demand {
    tenure_domain::workload::spec::Demand {
        gpus: 2,
        ..slice(permille, 8000)
    }
}

#[test]
fn quotas_and_policies_count_all_members() {
    let mut setting = setting();
    let (ada, acme) = (setting.ada, setting.acme);
    let world = &mut setting.world;
    world.quota(acme, &[("gpu_milli", 3000)]);
    let refusal = world
        .submit(ada, spec("train", gang(4, whole(1)), 600))
        .expect_err("beyond the quota");
    assert_eq!(refusal.code, Code::ExceedsQuota);
    world
        .submit(ada, spec("two", gang(2, whole(1)), 600))
        .expect("taken");
    let waits = world
        .submit(ada, spec("more", gang(2, whole(1)), 600))
        .expect("taken");
    let reason = why(&world.state, waits, world.now).expect("it waits");
    assert_eq!(reason.code, Code::QuotaInUse, "2000 of 3000 are used");
    world.policy(
        acme,
        Policy {
            max_gpus_per_job: Some(1),
            ..Policy::default()
        },
    );
    let refusal = world
        .submit(ada, spec("three", gang(2, whole(1)), 600))
        .expect_err("two GPUs");
    assert_eq!(refusal.code, Code::PolicyExcludes);
}

#[test]
fn a_size_by_name_is_had_several_times() {
    let mut setting = setting();
    let (ada, world) = (setting.ada, &mut setting.world);
    let sku = Sku {
        name: "large".into(),
        demand: whole(1),
    };
    world.root(Wish::DefineSku { sku }).expect("defined");
    let mut job = spec("train", gang(3, Default::default()), 600);
    job.sku = Some("large".into());
    let job = world.submit(ada, job).expect("taken");
    assert_eq!(world.state.jobs[&job].spec.demand, gang(3, whole(1)));
    assert_eq!(world.state.jobs[&job].members.len(), 3);
}

#[test]
fn one_that_fails_ends_them_all_once() {
    let mut setting = setting();
    let job = running(&mut setting);
    setting.world.pass_s(60);
    let events = setting
        .world
        .observe_member(job, 2, exited(3, 60))
        .expect("taken");
    assert_eq!(kinds(&events), ["UsageMetered", "MemberEnded", "JobStopping"]);
    assert_eq!(phase(&setting, job), Phase::Stopping);
    let twice = setting.world.stop(job).expect("taken");
    assert_eq!(twice, [], "it failed already, and is not cancelled besides");
    // Another fails while it is being stopped; the first is the one that counts.
    setting
        .world
        .observe_member(job, 0, exited(9, 61))
        .expect("taken");
    setting
        .world
        .observe_member(job, 1, stopped(StopReason::Evicted))
        .expect("taken");
    let events = setting
        .world
        .observe_member(job, 3, exited(0, 61))
        .expect("taken");
    assert_eq!(kinds(&events), ["UsageMetered", "MemberEnded", "JobEnded"]);
    assert_eq!(
        done(&setting).outcome,
        Outcome::Failed {
            exit_code: Some(3),
            signal: None,
            member: Some(2)
        }
    );
    nothing_is_held(&setting);
}

#[test]
fn one_that_cannot_start_ends_them_all() {
    let mut setting = setting();
    let job = four(&mut setting);
    setting
        .world
        .observe_member(job, 0, Observation::Running)
        .expect("taken");
    let why = "no such program".to_owned();
    setting
        .world
        .observe_member(job, 3, Observation::NotStarted { why: why.clone() })
        .expect("taken");
    for member in 0..3 {
        assert_eq!(phase(&setting, job), Phase::Stopping);
        let told = stopped(StopReason::Evicted);
        setting.world.observe_member(job, member, told).expect("taken");
    }
    let member = Some(3);
    assert_eq!(done(&setting).outcome, Outcome::NotStarted { why, member });
}

#[test]
fn a_lost_node_returns_the_whole_gang_to_the_queue_once() {
    let mut setting = setting();
    let job = running(&mut setting);
    let [alpha, beta] = setting.nodes;
    setting.world.pass_s(60);
    let events = setting
        .world
        .system(Wish::LoseNode { node: beta })
        .expect("taken");
    assert_eq!(
        kinds(&events),
        ["NodeLost", "MemberEnded", "MemberEnded", "JobStopping"]
    );
    assert_eq!(phase(&setting, job), Phase::Stopping);
    assert_eq!(setting.world.state.jobs[&job].attempt, 1);
    let first: Vec<(u32, AllocationId)> = setting.world.state.jobs[&job]
        .living()
        .map(|(number, member)| (number, member.allocation))
        .collect();
    assert_eq!(first.len(), 2, "those on alpha have yet to stop");
    for (number, _) in &first {
        let told = stopped(StopReason::Evicted);
        setting.world.observe_member(job, *number, told).expect("taken");
    }
    let state = &setting.world.state;
    assert_eq!(
        (phase(&setting, job), state.jobs[&job].attempt),
        (Phase::Queued, 2)
    );
    assert_eq!(state.jobs[&job].members, []);
    nothing_is_held(&setting);
    // What was told of the attempt before is of nobody now.
    let late = setting.world.act(
        Actor::Node(alpha),
        Wish::Observe {
            node: alpha,
            allocation: first[0].1,
            observation: exited(0, 60),
        },
    );
    assert_eq!(late, Err(Refusal::not_found()));
    assert_eq!(setting.world.schedule(), [], "half the GPUs are gone");
    setting
        .world
        .act(Actor::Node(beta), Wish::ReturnNode { node: beta })
        .expect("taken");
    setting.world.schedule();
    assert_eq!(phase(&setting, job), Phase::Placed);
}

#[test]
fn both_nodes_lost_requeue_it_once_too() {
    let mut setting = setting();
    let job = running(&mut setting);
    let [alpha, beta] = setting.nodes;
    setting
        .world
        .system(Wish::LoseNode { node: alpha })
        .expect("taken");
    let events = setting
        .world
        .system(Wish::LoseNode { node: beta })
        .expect("taken");
    assert_eq!(
        kinds(&events),
        ["NodeLost", "MemberEnded", "MemberEnded", "JobRequeued"]
    );
    assert_eq!(setting.world.state.jobs[&job].attempt, 2);
}

#[test]
fn one_that_vanishes_spends_one_attempt_of_the_job() {
    let mut setting = setting();
    for attempt in 1..=3 {
        let job = match attempt {
            1 => running(&mut setting),
            _ => *setting.world.state.jobs.keys().next().expect("it lives"),
        };
        if attempt > 1 {
            setting.world.schedule();
        }
        setting
            .world
            .observe_member(job, 1, Observation::Vanished)
            .expect("taken");
        for member in [0, 2, 3] {
            setting
                .world
                .observe_member(job, member, Observation::Vanished)
                .expect("taken");
        }
    }
    assert_eq!(done(&setting).outcome, Outcome::GaveUp { attempts: 3 });
}

#[test]
fn a_cancel_while_starting_reaches_all_members() {
    let mut setting = setting();
    let job = four(&mut setting);
    let started = setting.world.observe_member(job, 0, Observation::Running);
    started.expect("taken");
    setting.world.stop(job).expect("taken");
    assert_eq!(phase(&setting, job), Phase::Stopping);
    let late = setting.world.observe_member(job, 1, Observation::Running);
    assert_eq!(late, Ok(vec![]), "what starts all the same is stopped");
    for member in 0..4 {
        assert_eq!(phase(&setting, job), Phase::Stopping);
        let seen = match member {
            0 | 1 => stopped(StopReason::Cancelled),
            2 => Observation::NotStarted {
                why: "stopped before it was".into(),
            },
            _ => Observation::Vanished,
        };
        setting.world.observe_member(job, member, seen).expect("taken");
    }
    assert_eq!(done(&setting).outcome, Outcome::Cancelled);
    nothing_is_held(&setting);
}

#[test]
fn a_cancel_outranks_the_return_to_the_queue() {
    let mut setting = setting();
    let job = running(&mut setting);
    setting
        .world
        .observe_member(job, 1, Observation::Vanished)
        .expect("taken");
    setting.world.stop(job).expect("taken");
    for member in [0, 2, 3] {
        let told = stopped(StopReason::Cancelled);
        setting.world.observe_member(job, member, told).expect("taken");
    }
    assert_eq!(done(&setting).outcome, Outcome::Cancelled);
}

#[test]
fn the_run_time_limit_of_one_is_the_end_of_all() {
    let mut setting = setting();
    let job = running(&mut setting);
    setting.world.pass_s(3600);
    let told = stopped(StopReason::RunTime);
    setting.world.observe_member(job, 0, told.clone()).expect("taken");
    assert_eq!(setting.world.state.jobs[&job].stop, Some(StopReason::RunTime));
    for member in 1..4 {
        setting
            .world
            .observe_member(job, member, told.clone())
            .expect("taken");
    }
    assert_eq!(done(&setting).outcome, Outcome::TimedOut);
}

#[test]
fn volumes_hold_all_members_on_their_node() {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let mut machine = inventory(1000, 4000, vec![]);
    machine.volume_mib = 4000;
    world.node("alpha", machine.clone());
    machine.cpu_milli = 4000;
    let beta = world.node("beta", machine);
    world
        .by(
            ada,
            Wish::CreateVolume {
                scope: ScopeId::User(ada),
                name: "data".into(),
                size_mib: 1000,
            },
        )
        .expect("a volume");
    let with_volume = |members| {
        let mut job = spec("train", gang(members, cpu(1000)), 600);
        job.volumes = vec![VolumeUse {
            name: "data".into(),
            read_only: false,
        }];
        job
    };
    let job = world.submit(ada, with_volume(3)).expect("taken");
    let nodes: Vec<NodeId> = world.state.jobs[&job].members.iter().map(|m| m.node).collect();
    assert_eq!(nodes, [beta; 3]);
    let refusal = world.submit(ada, with_volume(5)).expect_err("no node has five");
    assert_eq!(refusal.code, Code::ExceedsFleet);
    assert_eq!(refusal.field.as_deref(), Some("/demand/nodes"));
}

#[test]
fn what_is_not_done_to_gangs_is_refused_with_a_reason() {
    let mut setting = setting();
    let ada = setting.ada;
    let world = &mut setting.world;
    let job = world
        .submit(ada, spec("serve", gang(2, slice(250, 8000)), 600))
        .expect("taken");
    for member in 0..2 {
        world
            .observe_member(job, member, Observation::Running)
            .expect("taken");
    }
    let pause = Wish::Pause {
        job,
        reason: PauseReason::Asked,
    };
    let resize = Wish::Resize {
        job,
        compute_permille: Some(100),
        vram_mib: None,
    };
    for wish in [pause, resize] {
        let refusal = world.by(ada, wish).expect_err("refused");
        assert_eq!(refusal.code, Code::WrongPhase);
        assert!(refusal.sentence.contains("2 members"), "{refusal}");
    }
    let failed = Wish::Stop {
        job,
        reason: StopReason::MemberFailed,
    };
    assert_eq!(world.root(failed).expect_err("refused").code, Code::InvalidField);
    let mut enter = |member| {
        let wish = Wish::OpenSession {
            job,
            member,
            kind: SessionKind::Attach,
            from: "192.0.2.1".into(),
        };
        world.by(ada, wish)
    };
    let opened = enter(1).expect("opened");
    let refusal = enter(2).expect_err("there is none");
    assert_eq!(refusal.field.as_deref(), Some("/member"));
    let (second, _) = world.member(job, 1).expect("it runs");
    let Event::SessionOpened { session } = &opened[0] else {
        panic!("{opened:?}")
    };
    assert_eq!(session.allocation, second);
}
