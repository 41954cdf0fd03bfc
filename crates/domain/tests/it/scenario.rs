//! Stories with recorded output, one file each in `tests/scenarios/`.

use tenure_domain::command::Observation;
use tenure_domain::id::UserId;
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::time::Period;
use tenure_domain::workload::job::{PauseReason, StopReason};
use tenure_domain::workload::spec::{Isolation, Priority, Sku};
use tenure_domain::{Actor, Wish};

use crate::story::Story;
use crate::world::{World, amounts, cpu, gang, gpu, inventory, slice, spec, whole};

const SHARED: [Isolation; 1] = [Isolation::Guarded];
const FENCED: [Isolation; 3] = [Isolation::Guarded, Isolation::Fenced, Isolation::Exclusive];

/// acme/research/ada on one node with two fenced H100.
fn setting() -> (Story, ScopeId, ScopeId, UserId) {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let research = world.subscriber(acme, "research");
    let ada = world.user(research, "ada", Some(Role::Member));
    let gpus = vec![
        gpu("h100-0", "H100", 80_000, &FENCED),
        gpu("h100-1", "H100", 80_000, &FENCED),
    ];
    world.node("alpha", inventory(16_000, 64_000, gpus));
    (Story::new(world), acme, research, ada)
}

#[test]
fn submit_run_bill() {
    let (mut story, acme, _, ada) = setting();
    story.say("a whole GPU for an hour");
    let job = story.submit(ada, spec("train", whole(1), 3600)).expect("taken");
    story.counts(acme);
    story.observe(job, Observation::Starting);
    story.observe(job, Observation::Running);
    story.world.pass_s(600);
    story.say("ten minutes later");
    story.meter(job, 600);
    story.meter(job, 600);
    story.counts(acme);
    story.world.pass_s(900);
    story.say("it ends by itself");
    story.exit(job, 1500);
    story.counts(acme);
    story.check("submit_run_bill");
}

#[test]
fn quota_wait_then_start() {
    let (mut story, acme, _, ada) = setting();
    story.root(
        "acme may have one GPU",
        Wish::SetQuota {
            scope: acme,
            quota: amounts(&[("gpu_milli", 1000)]),
            revision: None,
        },
    );
    let first = story
        .submit(ada, spec("first", slice(700, 8000), 600))
        .expect("taken");
    let mut urgent = spec("urgent", slice(500, 8000), 600);
    urgent.priority = Priority::Urgent;
    story.submit(ada, urgent).expect("taken");
    story
        .submit(ada, spec("fits", slice(300, 8000), 600))
        .expect("taken");
    story.submit(ada, spec("beyond", whole(2), 600));
    story.say("the first ends");
    story.exit(first, 60);
    story.schedule();
    story.counts(acme);
    story.check("quota_wait_then_start");
}

#[test]
fn quota_cut_below_usage() {
    let (mut story, acme, _, ada) = setting();
    let jobs: Vec<_> = ["a", "b", "c"]
        .map(|name| {
            story
                .submit(ada, spec(name, slice(500, 8000), 600))
                .expect("taken")
        })
        .into();
    story.say("the quota is cut to less than is in use");
    story.root(
        "acme may have half a GPU",
        Wish::SetQuota {
            scope: acme,
            quota: amounts(&[("gpu_milli", 500)]),
            revision: None,
        },
    );
    story
        .submit(ada, spec("small", slice(100, 1000), 600))
        .expect("taken");
    story.counts(acme);
    for job in jobs {
        story.say("another ends");
        story.exit(job, 60);
        story.schedule();
    }
    story.check("quota_cut_below_usage");
}

#[test]
fn budget_exhausted_and_next_period() {
    let (mut story, acme, _, ada) = setting();
    let budgets = vec![Budget {
        period: Period::Day,
        class: None,
        sku: None,
        money_micros: Some(2_000_000),
        kind: None,
        gpu_seconds: Some(7200),
        frames: None,
        alerts_permille: Vec::new(),
    }];
    story.root(
        "acme may spend 2 a day",
        Wish::SetBudgets {
            scope: acme,
            budgets,
            revision: None,
        },
    );
    let first = story.submit(ada, spec("first", whole(1), 3600)).expect("taken");
    let second = story.submit(ada, spec("second", whole(1), 1800)).expect("taken");
    let third = story
        .submit(ada, spec("third", slice(500, 8000), 3600 + 1800))
        .expect("taken");
    story.world.pass_s(3600);
    story.say("the first used its whole hour, the second half of its time");
    story.exit(first, 3600);
    story.exit(second, 900);
    story.schedule();
    story.say("the third starts with what came back; nothing more fits today");
    story.submit(ada, spec("fourth", whole(1), 3600));
    story.submit(ada, spec("fifth", whole(1), 1000));
    story.world.pass_s(86_400);
    story.say("the next day: spent is nothing again, what is held stays held");
    story.counts(acme);
    story.submit(ada, spec("sixth", whole(1), 3600)).expect("taken");
    story.schedule();
    story.exit(third, 4000);
    story.counts(acme);
    story.check("budget_exhausted_and_next_period");
}

#[test]
fn suspended_tenant() {
    let (mut story, acme, _, ada) = setting();
    story.root(
        "acme may run one job",
        Wish::SetQuota {
            scope: acme,
            quota: amounts(&[("jobs", 1)]),
            revision: None,
        },
    );
    let runs = story.submit(ada, spec("runs", cpu(1000), 600)).expect("taken");
    let waits = story.submit(ada, spec("waits", cpu(1000), 600)).expect("taken");
    story.root("acme is suspended", Wish::Suspend { scope: acme });
    story.submit(ada, spec("late", cpu(1000), 600));
    story.tell(
        "ada stops her job",
        Actor::user(ada),
        Wish::Stop {
            job: waits,
            reason: StopReason::Cancelled,
        },
    );
    story.say("what ran runs on to its end; nothing new starts");
    story.exit(runs, 60);
    story.schedule();
    story.root("acme is resumed", Wish::Resume { scope: acme });
    story.schedule();
    story.check("suspended_tenant");
}

#[test]
fn move_with_live_jobs() {
    let (mut story, acme, research, ada) = setting();
    let design = story.world.subscriber(acme, "design");
    let brio = story.world.tenant("brio");
    let job = story.submit(ada, spec("render", whole(1), 3600)).expect("taken");
    let home = ScopeId::User(ada);
    story.root(
        "ada would move to another tenant",
        Wish::Move {
            scope: home,
            parent: brio,
        },
    );
    story.root(
        "design may have half a GPU",
        Wish::SetQuota {
            scope: design,
            quota: amounts(&[("gpu_milli", 500)]),
            revision: None,
        },
    );
    story.root(
        "ada would move to design",
        Wish::Move {
            scope: home,
            parent: design,
        },
    );
    story.root(
        "design may have two GPUs",
        Wish::SetQuota {
            scope: design,
            quota: amounts(&[("gpu_milli", 2000)]),
            revision: None,
        },
    );
    story.world.pass_s(600);
    story.meter(job, 600);
    story.root(
        "ada moves to design",
        Wish::Move {
            scope: home,
            parent: design,
        },
    );
    story.counts(research);
    story.counts(design);
    story.world.pass_s(600);
    story.exit(job, 1200);
    story.counts(research);
    story.counts(design);
    story.counts(acme);
    story.root(
        "with no job alive she may go to brio",
        Wish::Move {
            scope: home,
            parent: brio,
        },
    );
    story.root(
        "a subscriber cannot stand under itself",
        Wish::Move {
            scope: design,
            parent: design,
        },
    );
    story.root(
        "nor a tenant under its own child",
        Wish::Move {
            scope: acme,
            parent: design,
        },
    );
    story.check("move_with_live_jobs");
}

#[test]
fn node_lost_until_given_up() {
    let (mut story, acme, _, ada) = setting();
    let gpus = vec![gpu("h100-2", "H100", 80_000, &FENCED)];
    story.world.node("beta", inventory(16_000, 64_000, gpus));
    let mut stubborn = spec("stubborn", whole(1), 3600);
    stubborn.max_attempts = 2;
    let job = story.submit(ada, stubborn).expect("taken");
    for _ in 0..2 {
        story.observe(job, Observation::Running);
        story.world.pass_s(300);
        story.meter(job, 300);
        let (_, node) = story.world.allocation(job).expect("placed");
        story.tell(
            "its node's lease runs out",
            Actor::System,
            Wish::LoseNode { node },
        );
        story.schedule();
        story.counts(acme);
        if story.world.state.jobs.contains_key(&job) {
            continue;
        }
        story.tell("the node returns", Actor::Node(node), Wish::ReturnNode { node });
    }
    story.check("node_lost_until_given_up");
}

#[test]
fn class_quota() {
    let (mut story, acme, _, ada) = setting();
    story.world.node(
        "gamma",
        inventory(16_000, 64_000, vec![gpu("a10-0", "A10", 24_000, &FENCED)]),
    );
    story.root(
        "acme may have half an H100",
        Wish::SetQuota {
            scope: acme,
            quota: amounts(&[("gpu_milli@class:H100", 500), ("vram_mib@class:A10", 20_000)]),
            revision: None,
        },
    );
    let on = |class: &str, share: u16, vram: u64| {
        let mut demand = slice(share, vram);
        demand.class = Some(class.into());
        demand
    };
    story.submit(ada, spec("h-400", on("H100", 400, 4000), 600));
    story.submit(ada, spec("h-200", on("H100", 200, 4000), 600));
    story.say("one that does not mind the class goes where quota is left");
    story.submit(ada, spec("any-200", slice(200, 4000), 600));
    story.submit(ada, spec("h-600", on("H100", 600, 4000), 600));
    story.submit(ada, spec("a-big", on("A10", 100, 21_000), 600));
    story.say("a whole A10 comes with all of its memory, which is more than the class quota");
    let mut all = whole(1);
    all.class = Some("A10".into());
    story.submit(ada, spec("a-whole", all, 600));
    story.counts(acme);
    story.check("class_quota");
}

#[test]
fn sku() {
    let (mut story, acme, _, ada) = setting();
    let sized = |name: &str| {
        let mut job = spec(name, Default::default(), 600);
        job.sku = Some("small".into());
        job
    };
    story.submit(ada, sized("too-early"));
    story.root(
        "a SKU is defined",
        Wish::DefineSku {
            sku: Sku {
                name: "small".into(),
                demand: slice(250, 10_000),
            },
        },
    );
    story.root(
        "acme may run one of them",
        Wish::SetQuota {
            scope: acme,
            quota: amounts(&[("jobs@sku:small", 1)]),
            revision: None,
        },
    );
    story.submit(ada, sized("one"));
    story.submit(ada, sized("two"));
    let mut both = sized("both");
    both.demand = slice(300, 1000);
    story.submit(ada, both);
    story.counts(acme);
    story.check("sku");
}

#[test]
fn resized_while_it_runs() {
    let (mut story, acme, research, ada) = setting();
    let resize = |job, compute_permille, vram_mib| Wish::Resize {
        job,
        compute_permille,
        vram_mib,
    };
    let job = story
        .submit(ada, spec("serve", slice(250, 20_000), 3600))
        .expect("taken");
    story.tell(
        "too early: it does not run yet",
        Actor::user(ada),
        resize(job, Some(500), None),
    );
    story.observe(job, Observation::Running);
    story.counts(acme);
    story.world.pass_s(600);
    story.tell(
        "ten minutes later it grows",
        Actor::user(ada),
        resize(job, Some(500), Some(40_000)),
    );
    story.counts(acme);
    story.tell(
        "the same again",
        Actor::user(ada),
        resize(job, Some(500), Some(40_000)),
    );
    story.tell("a slice of nothing", Actor::user(ada), resize(job, Some(0), None));
    story.tell(
        "more than the GPU has",
        Actor::user(ada),
        resize(job, None, Some(90_000)),
    );
    story.root(
        "research may have half a GPU",
        Wish::SetQuota {
            scope: research,
            quota: amounts(&[("gpu_milli", 500)]),
            revision: None,
        },
    );
    story.tell("beyond the quota", Actor::user(ada), resize(job, Some(501), None));
    let limited = Policy {
        max_vram_mib_per_job: Some(40_000),
        ..Policy::default()
    };
    story.root(
        "acme's jobs may have 40,000 MiB",
        Wish::SetPolicy {
            scope: acme,
            policy: limited,
            revision: None,
        },
    );
    story.tell(
        "beyond the policy",
        Actor::user(ada),
        resize(job, None, Some(40_001)),
    );
    story.world.pass_s(1200);
    story.tell(
        "half an hour in it shrinks",
        Actor::user(ada),
        resize(job, Some(100), Some(10_000)),
    );
    story.counts(acme);
    story.world.pass_s(600);
    story.exit(job, 2400);
    story.counts(acme);
    story.check("resized_while_it_runs");
}

#[test]
fn ten_tenths_of_a_gpu() {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    world.node(
        "alpha",
        inventory(16_000, 64_000, vec![gpu("t4-0", "T4", 16_000, &SHARED)]),
    );
    let mut story = Story::new(world);
    for i in 0..11 {
        story
            .submit(ada, spec(&format!("tenth-{i}"), slice(100, 1600), 600))
            .expect("taken");
    }
    story.counts(acme);
    story.check("ten_tenths_of_a_gpu");
}

#[test]
fn exclusive_and_slices() {
    let (mut story, _, _, ada) = setting();
    story
        .submit(ada, spec("slice", slice(100, 1000), 600))
        .expect("taken");
    let mut alone = whole(1);
    alone.isolation = Isolation::Exclusive;
    let job = story
        .submit(ada, spec("alone", alone.clone(), 600))
        .expect("taken");
    story
        .submit(ada, spec("second-alone", alone, 600))
        .expect("taken");
    story.say("slices fill up the GPU that is shared already, and never the exclusive one");
    story
        .submit(ada, spec("large-slice", slice(900, 70_000), 600))
        .expect("taken");
    story
        .submit(ada, spec("another", slice(100, 1000), 600))
        .expect("taken");
    story.exit(job, 60);
    story.schedule();
    let mut part = slice(500, 1000);
    part.isolation = Isolation::Exclusive;
    story.submit(ada, spec("contradiction", part, 600));
    story.check("exclusive_and_slices");
}

#[test]
fn sharing_between_tenants() {
    let mut world = World::new();
    let [acme, brio] = ["acme", "brio"].map(|name| world.tenant(name));
    let [ada, bob] = [acme, brio].map(|tenant| world.user(tenant, "someone", Some(Role::Member)));
    world.node(
        "alpha",
        inventory(16_000, 64_000, vec![gpu("t4-0", "T4", 16_000, &SHARED)]),
    );
    let mut story = Story::new(world);
    story
        .submit(ada, spec("acmes", slice(300, 4000), 600))
        .expect("taken");
    story
        .submit(ada, spec("acmes-too", slice(300, 4000), 600))
        .expect("taken");
    story.say("a stranger does not share a device that only guards");
    story
        .submit(bob, spec("brios", slice(300, 4000), 600))
        .expect("taken");
    let consent = Policy {
        share_guarded: Some(true),
        ..Policy::default()
    };
    story.root(
        "brio consents",
        Wish::SetPolicy {
            scope: brio,
            policy: consent.clone(),
            revision: None,
        },
    );
    story.schedule();
    story.root(
        "acme consents too",
        Wish::SetPolicy {
            scope: acme,
            policy: consent,
            revision: None,
        },
    );
    story.schedule();
    story.say("a tenant that wants walls accepts no neighbour without them, consent or not");
    let walls = Policy {
        share_guarded: Some(true),
        min_isolation: Some(Isolation::Fenced),
        ..Policy::default()
    };
    story.root(
        "acme wants fences",
        Wish::SetPolicy {
            scope: acme,
            policy: walls,
            revision: None,
        },
    );
    story
        .submit(bob, spec("brios-too", slice(100, 1000), 600))
        .expect("taken");
    story
        .submit(ada, spec("acmes-fenced", slice(100, 1000), 600))
        .expect("taken");
    story.world.node(
        "beta",
        inventory(16_000, 64_000, vec![gpu("h100-0", "H100", 80_000, &FENCED)]),
    );
    story.say("a node with fences joins: both go there, with no consent needed");
    story.schedule();
    story.check("sharing_between_tenants");
}

#[test]
fn rules() {
    let (mut story, acme, research, ada) = setting();
    let ask = |story: &mut Story, title: &str, scope: ScopeId, rules: &str| {
        story.root(
            title,
            Wish::SetRules {
                scope,
                rules: rules.into(),
                revision: None,
            },
        );
    };
    ask(
        &mut story,
        "no long jobs on GPUs, and nothing at night",
        acme,
        r#"
        @id("short-gpu-jobs") forbid (principal, action == Action::"job_submit", resource)
        when { context has gpus && context.gpus > 0 && context has run_time_s && context.run_time_s > 3600 };
        @id("no-night-shift") forbid (principal, action == Action::"job_submit", resource)
        when { context has hour_utc && context.hour_utc < 6 };
    "#,
    );
    story.submit(ada, spec("short", slice(100, 1000), 3600));
    story.submit(ada, spec("long", slice(100, 1000), 3601));
    story.submit(ada, spec("long-on-cpu", cpu(100), 7200));
    story.world.pass_s(18 * 3600);
    story.say("three in the morning");
    story.submit(ada, spec("at-night", cpu(100), 60));
    story.say("bad rules are refused and change nothing");
    ask(
        &mut story,
        "a permit",
        research,
        "permit (principal, action, resource);",
    );
    ask(&mut story, "not a rule", research, "forbid everything!");
    ask(
        &mut story,
        "an action that does not exist",
        research,
        r#"forbid (principal, action == Action::"job_sumbit", resource);"#,
    );
    ask(
        &mut story,
        "an attribute that does not exist",
        research,
        r#"forbid (principal, action == Action::"job_submit", resource) when { context.colour == "red" };"#,
    );
    ask(
        &mut story,
        "a number compared with a word",
        research,
        r#"forbid (principal, action == Action::"job_submit", resource) when { context has gpus && context.gpus > "four" };"#,
    );
    ask(
        &mut story,
        "an optional attribute unasked for",
        research,
        r#"forbid (principal, action == Action::"job_submit", resource) when { context.gpus > 4 };"#,
    );
    ask(
        &mut story,
        "a template",
        research,
        "forbid (principal == ?principal, action, resource);",
    );
    ask(
        &mut story,
        "a rule that locks its author out",
        ScopeId::Platform,
        "forbid (principal, action, resource);",
    );
    ask(&mut story, "rules are taken away", acme, "");
    story.submit(ada, spec("again-at-night", cpu(100), 60));
    story.check("rules");
}

#[test]
fn paused_and_resumed() {
    let (mut story, acme, _, ada) = setting();
    let by = || Actor::user(ada);
    let asked = |job| Wish::Pause {
        job,
        reason: PauseReason::Asked,
    };
    let paused = |ran_s: u64| Observation::Paused {
        ran_ms: ran_s * 1000,
        usage: None,
    };
    let film = story
        .submit(ada, spec("film", slice(600, 60_000), 3600))
        .expect("taken");
    story.tell("too early: it does not run yet", by(), asked(film));
    story.observe(film, Observation::Running);
    story.world.pass_s(600);
    story.tell("ten minutes later it is to pause", by(), asked(film));
    story.tell("the same again", by(), asked(film));
    story.observe(film, paused(600));
    story.counts(acme);
    story.why(film);
    story.world.pass_s(7200);
    let others = ["left", "right"].map(|name| {
        let job = story.submit(ada, spec(name, slice(600, 60_000), 3600));
        job.expect("taken")
    });
    story.tell("two have its place now", by(), Wish::ResumeJob { job: film });
    story.why(film);
    for job in others {
        story.observe(job, Observation::Running);
    }
    story.world.pass_s(60);
    story.exit(others[0], 60);
    story.schedule();
    story.observe(
        film,
        Observation::Kept {
            why: "the driver refused".into(),
        },
    );
    story.schedule();
    story.why(film);
    story.world.pass_s(11);
    story.schedule();
    story.observe(film, Observation::Running);
    story.counts(acme);
    story.world.pass_s(300);
    story.root(
        "others need it more",
        Wish::Pause {
            job: film,
            reason: PauseReason::Preempted,
        },
    );
    story.observe(film, paused(900));
    story.schedule();
    story.observe(film, Observation::Running);
    story.tell("once more", by(), asked(film));
    story.observe(film, paused(950));
    story.tell(
        "and is not wanted any more",
        by(),
        Wish::Stop {
            job: film,
            reason: StopReason::Cancelled,
        },
    );
    story.observe(
        film,
        Observation::Exited {
            exit_code: None,
            signal: Some(15),
            ran_ms: 950_000,
            by: Some(StopReason::Cancelled),
            usage: None,
        },
    );
    story.counts(acme);
    story.check("paused_and_resumed");
}

/// A job over two nodes, one of which is lost; a second attempt ends with the member that fails.
#[test]
fn gang_of_four() {
    let (mut story, acme, _, ada) = setting();
    let gpus = (0..2).map(|n| gpu(&format!("beta-{n}"), "H100", 80_000, &FENCED));
    let beta = story
        .world
        .node("beta", inventory(16_000, 64_000, gpus.collect()));
    story.say("four members with a GPU each, where one GPU is taken");
    let one = story.submit(ada, spec("one", whole(1), 600)).expect("taken");
    let train = story
        .submit(ada, spec("train", gang(4, whole(1)), 3600))
        .expect("taken");
    story.submit(ada, spec("beyond", gang(5, whole(1)), 3600));
    story.exit(one, 60);
    story.schedule();
    story.counts(acme);
    story.say("it runs when all of its members do");
    for member in [2, 0, 3, 1] {
        story.observe_member(train, member, Observation::Running);
    }
    story.world.pass_s(600);
    story.say("a node is lost: the others are stopped, and the whole returns to the queue once");
    story.tell(
        "beta is not heard of",
        Actor::System,
        Wish::LoseNode { node: beta },
    );
    let stopped = |ran_s: u64| Observation::Exited {
        exit_code: None,
        signal: Some(15),
        ran_ms: ran_s * 1000,
        by: Some(StopReason::Evicted),
        usage: None,
    };
    let left: Vec<u32> = story.world.state.jobs[&train]
        .living()
        .map(|(member, _)| member)
        .collect();
    for member in left {
        story.observe_member(train, member, stopped(600));
    }
    story.why(train);
    story.counts(acme);
    story.say("the node returns; one member fails, and the job ends when the last is gone");
    story.tell("beta is back", Actor::Node(beta), Wish::ReturnNode { node: beta });
    story.schedule();
    for member in 0..4 {
        story.observe_member(train, member, Observation::Running);
    }
    story.world.pass_s(60);
    story.observe_member(
        train,
        2,
        Observation::Exited {
            exit_code: Some(3),
            signal: None,
            ran_ms: 60_000,
            by: None,
            usage: None,
        },
    );
    for member in [0, 1, 3] {
        story.observe_member(train, member, stopped(61));
    }
    story.counts(acme);
    story.check("gang_of_four");
}
