//! Jobs that say what they are: what is derived, what is learnt, how they grow, and limits by kind.

use tenure_domain::command::Observation;
use tenure_domain::id::{JobId, UserId};
use tenure_domain::kind::Kind;
use tenure_domain::schedule::fit::fit;
use tenure_domain::schedule::why::why;
use tenure_domain::state::Retired;
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::time::Period;
use tenure_domain::workload::Workload;
use tenure_domain::workload::derive::DemandBasis;
use tenure_domain::workload::dtype::Dtype;
use tenure_domain::workload::inference::Inference;
use tenure_domain::workload::job::StopReason;
use tenure_domain::workload::picture::Rendering;
use tenure_domain::workload::spec::{Demand, Isolation, JobSpec, Sku};
use tenure_domain::workload::task::cut::Cut;
use tenure_domain::workload::train::{Method, Train};
use tenure_domain::workload::usage::Usage;
use tenure_domain::{Code, Event, State, Wish};

use crate::world::{World, gpu, inventory, spec};

const FENCED: [Isolation; 3] = [Isolation::Guarded, Isolation::Fenced, Isolation::Exclusive];

/// acme's ada on a node with four H100 and one with an A10.
fn setting() -> (World, ScopeId, UserId) {
    let mut world = World::new();
    let acme = world.tenant("acme");
    let research = world.subscriber(acme, "research");
    let ada = world.user(research, "ada", Some(Role::Member));
    let h100 = |number: u32| gpu(&format!("h100-{number}"), "H100", 80_000, &FENCED);
    world.node("alpha", inventory(64_000, 256_000, (0..4).map(h100).collect()));
    world.node(
        "beta",
        inventory(16_000, 64_000, vec![gpu("a10-0", "A10", 24_000, &FENCED)]),
    );
    (world, acme, ada)
}

fn said(workload: Workload) -> JobSpec {
    let mut job = spec("said", Demand::default(), 3600);
    job.workload = Some(Box::new(workload));
    job
}

fn inference(model: &str) -> JobSpec {
    said(Workload::Inference(Inference::of(model)))
}

fn rendering(frames: &str) -> JobSpec {
    let mut job = said(Workload::Rendering(Rendering {
        frames: frames.parse().expect("frames"),
        scene: Some("bridge".into()),
        each_ms: Some(1000),
        vram_mib: Some(6000),
    }));
    // A share, as a whole GPU comes with all of its memory.
    job.demand.compute_permille = 300;
    // One program makes them all; `task` tells of those that are cut.
    job.tasks = Some(Cut {
        whole: true,
        ..Cut::default()
    });
    job
}

fn usage(peak_vram_mib: u64, refusals: u64) -> Option<Usage> {
    Some(Usage {
        peak_vram_mib,
        refusals,
        ..Usage::default()
    })
}

fn ends(
    world: &mut World,
    job: JobId,
    exit_code: i32,
    by: Option<StopReason>,
    usage: Option<Usage>,
) -> Vec<Event> {
    let exited = Observation::Exited {
        exit_code: Some(exit_code),
        signal: None,
        ran_ms: 1000,
        by,
        usage,
    };
    world.observe(job, exited).expect("an end is taken")
}

fn of(state: &State, job: JobId) -> &tenure_domain::workload::job::Job {
    &state.jobs[&job]
}

#[test]
fn a_job_that_says_what_it_is_gets_what_that_needs() {
    let (mut world, _, ada) = setting();
    let mut job = inference("llama-2-13b");
    job.demand.compute_permille = 500;
    let job = world.submit(ada, job).expect("taken");
    let live = of(&world.state, job);
    assert_eq!((live.spec.kind, live.spec.demand.gpus), (Kind::Inference, 1));
    let derivation = live.derivation.as_ref().expect("stored with the job");
    assert_eq!(Some(live.spec.demand.vram_mib), derivation.vram_mib);
    assert_eq!(derivation.basis, DemandBasis::Rule);
    let (allocation, _) = world.allocation(job).expect("placed");
    let allocation = world.state.fleet.allocation(allocation).expect("placed");
    assert_eq!(allocation.slices[0].vram_mib, live.spec.demand.vram_mib);
}

#[test]
fn what_was_derived_is_in_the_event_and_replay_derives_nothing() {
    let (mut world, _, ada) = setting();
    let mut job = inference("7B");
    job.demand.compute_permille = 300;
    let wish = Wish::Submit {
        owner: ada,
        spec: std::sync::Arc::new(job),
        trace: None,
    };
    let events = world.by(ada, wish).expect("taken");
    let Event::JobSubmitted {
        job,
        spec,
        derivation,
        ..
    } = &events[0]
    else {
        panic!("{events:?}");
    };
    assert!(spec.demand.vram_mib > 15_000 && derivation.is_some());
    // An event whose figures are of another formula is taken as it is.
    let mut other = events[0].clone();
    if let Event::JobSubmitted { job, spec, .. } = &mut other {
        job.0 += 1;
        std::sync::Arc::make_mut(spec).demand.vram_mib = 4321;
    }
    let mut state = world.state.clone();
    state.apply(world.now, &other);
    assert_eq!(of(&state, JobId(job.0 + 1)).spec.demand.vram_mib, 4321);
    let json = serde_json::to_string(&other).expect("written");
    assert_eq!(serde_json::from_str::<Event>(&json).expect("read"), other);
}

#[test]
fn what_means_nothing_is_refused_by_its_field() {
    let (mut world, _, ada) = setting();
    let with = |change: &dyn Fn(&mut Inference)| {
        let mut inference = Inference::of("llama-2-13b");
        change(&mut inference);
        said(Workload::Inference(inference))
    };
    let tune = |change: &dyn Fn(&mut Train)| {
        let mut train = Train::of("7B", Method::Full);
        change(&mut train);
        said(Workload::Training(train))
    };
    let at = "/workload/inference";
    let mut contradiction = inference("7B");
    contradiction.kind = Kind::Rendering;
    let mut sized = inference("7B");
    (sized.grow, sized.sku) = (true, Some("small".into()));
    let mut gang = inference("7B");
    (gang.grow, gang.demand.nodes) = (true, 2);
    for (job, field) in [
        (contradiction, "/kind".to_owned()),
        (inference("gpt-9"), format!("{at}/model")),
        (inference("0B"), format!("{at}/model")),
        (with(&|i| i.context = 0), format!("{at}/context")),
        (with(&|i| i.context = u32::MAX), format!("{at}/context")),
        (with(&|i| i.sequences = 0), format!("{at}/sequences")),
        (with(&|i| i.split.tensor = 3), format!("{at}/split/tensor")),
        (with(&|i| i.split.pipeline = 41), format!("{at}/split/pipeline")),
        (with(&|i| i.split.data = 0), format!("{at}/split/data")),
        (with(&|i| i.split.data = u32::MAX), format!("{at}/split")),
        (
            tune(&|t| t.method = Method::Lora),
            "/workload/training/method".into(),
        ),
        (tune(&|t| t.zero = 4), "/workload/training/zero".into()),
        (tune(&|t| t.batch = 0), "/workload/training/batch".into()),
        (tune(&|t| t.rank = 0), "/workload/training/rank".into()),
        (sized, "/grow".into()),
        (gang, "/grow".into()),
    ] {
        let refusal = world.submit(ada, job).expect_err(&field);
        assert_eq!(
            (refusal.code, refusal.field.as_deref()),
            (Code::InvalidField, Some(field.as_str()))
        );
    }
    let beyond = with(&|i| (i.context, i.sequences, i.kv_dtype) = (1 << 24, 1 << 16, Some(Dtype::Fp32)));
    let refusal = world.submit(ada, beyond).expect_err("an absurd cache");
    assert_eq!(refusal.code, Code::InvalidField, "{refusal}");
    let refusal = world
        .submit(ada, inference("405B"))
        .expect_err("beyond the fleet");
    assert_eq!(refusal.code, Code::ExceedsFleet, "{refusal}");
}

#[test]
fn a_tenant_has_so_many_inferences_of_13b_and_no_more() {
    let (mut world, acme, ada) = setting();
    world.quota(acme, &[("jobs@kind:inference:13b", 2), ("jobs@kind:training", 0)]);
    let first = world.submit(ada, inference("llama-2-13b")).expect("taken");
    let second = world.submit(ada, inference("13B")).expect("taken");
    let third = world
        .submit(ada, inference("meta-llama/Llama-2-13b-chat-hf"))
        .expect("taken");
    let other = world.submit(ada, inference("7B")).expect("taken");
    for (job, runs) in [(first, true), (second, true), (third, false), (other, true)] {
        assert_eq!(world.allocation(job).is_some(), runs, "{job}");
    }
    let waits = why(&world.state, third, world.now).expect("it waits");
    assert_eq!(waits.code, Code::QuotaInUse);
    assert!(waits.sentence.contains("inference of 13B models"), "{waits}");
    let training = said(Workload::Training(Train::of("1B", Method::Full)));
    let refusal = world.submit(ada, training).expect_err("none at all");
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (Code::ExceedsQuota, Some("/kind"))
    );
    world.exit(first, 1);
    world.schedule();
    assert!(world.allocation(third).is_some(), "as many as before");
}

#[test]
fn a_user_makes_so_many_frames_a_day_and_no_more() {
    let (mut world, _, ada) = setting();
    let scope = ScopeId::User(ada);
    let budget = Budget {
        period: Period::Day,
        class: None,
        sku: None,
        kind: Some(Kind::Rendering),
        money_micros: None,
        gpu_seconds: None,
        frames: Some(2000),
        alerts_permille: Vec::new(),
    };
    let set = |budgets| Wish::SetBudgets {
        scope,
        budgets,
        revision: None,
    };
    world.root(set(vec![budget.clone()])).expect("a budget");
    let refusal = world
        .submit(ada, rendering("1-2001"))
        .expect_err("more than any day's");
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (Code::ExceedsBudget, Some("/workload"))
    );
    let first = world.submit(ada, rendering("1-1500")).expect("taken");
    let second = world.submit(ada, rendering("1-501")).expect("taken");
    assert!(world.allocation(first).is_some() && world.allocation(second).is_none());
    let waits = why(&world.state, second, world.now).expect("it waits");
    assert_eq!(waits.code, Code::BudgetHeld);
    assert!(
        waits.sentence.contains("501 frames") && waits.sentence.contains("1500 under way"),
        "{waits}"
    );
    // What fails made no frames.
    ends(&mut world, first, 1, None, None);
    world.schedule();
    assert!(world.allocation(second).is_some());
    world.exit(second, 10);
    let of_kind = budget.of();
    let spend = |world: &World| {
        let spending = &world.state.tree.get(scope).expect("ada").spending;
        spending.at(&of_kind, Period::Day, world.now)
    };
    assert_eq!((spend(&world).spent.frames, spend(&world).held.frames), (501, 0));
    let refusal = world.submit(ada, rendering("1-1500")).expect_err("not today");
    assert_eq!(refusal.code, Code::ExceedsBudget, "{refusal}");
    assert!(
        refusal
            .hint
            .as_ref()
            .is_some_and(|hint| hint.contains("next period")),
        "{refusal:?}"
    );
    world.pass_s(86_400);
    let tomorrow = world.submit(ada, rendering("1-1500")).expect("a new day");
    assert!(world.allocation(tomorrow).is_some());
    for bad in [
        Budget {
            kind: Some(Kind::Batch),
            ..budget.clone()
        },
        Budget {
            class: Some("H100".into()),
            ..budget.clone()
        },
        Budget {
            frames: None,
            ..budget
        },
    ] {
        assert_eq!(
            world.root(set(vec![bad])).expect_err("no budget").code,
            Code::InvalidField
        );
    }
}

#[test]
fn what_was_measured_goes_before_the_rule_within_its_tenant_alone() {
    let (mut world, _, ada) = setting();
    let beta = world.tenant("beta");
    let desk = world.subscriber(beta, "desk");
    let bob = world.user(desk, "bob", Some(Role::Member));
    for peak in [10_000, 12_000, 11_000] {
        let job = world.submit(ada, rendering("1-10")).expect("taken");
        world.observe(job, Observation::Running).expect("runs");
        world.pass_s(5);
        // Memory in the rule was too little; the node says what it was.
        let mut larger = rendering("1-10");
        larger.demand.vram_mib = 20_000;
        ends(&mut world, job, 0, None, None);
        let job = world.submit(ada, larger).expect("taken");
        ends(&mut world, job, 0, None, usage(peak, 0));
    }
    let job = world.submit(ada, rendering("1-10")).expect("taken");
    let live = of(&world.state, job);
    let derivation = live.derivation.as_ref().expect("derived");
    assert_eq!(derivation.basis.words(), "measured over 3 runs");
    assert_eq!(
        live.spec.demand.vram_mib, 13_200,
        "a tenth more than the highest peak"
    );
    assert_eq!(derivation.run_ms, Some(1000), "ten frames of a tenth of a second");
    let others = world.submit(bob, rendering("1-10")).expect("taken");
    let others = of(&world.state, others);
    assert_eq!(
        others.derivation.as_ref().map(|d| d.basis),
        Some(DemandBasis::Rule)
    );
    assert_eq!(others.spec.demand.vram_mib, 6000);
}

#[test]
fn a_job_that_outgrows_its_slice_comes_back_larger_if_it_says_so() {
    let (mut world, acme, ada) = setting();
    let grows = |grow: bool| JobSpec {
        grow,
        ..rendering("1-10")
    };
    // Without the word it ends.
    let job = world.submit(ada, grows(false)).expect("taken");
    ends(&mut world, job, 1, None, usage(6000, 3));
    assert!(!world.state.jobs.contains_key(&job));
    // With it, half as much again each time, as often as it has attempts.
    let job = world.submit(ada, grows(true)).expect("taken");
    for vram_mib in [9000, 13_500] {
        let events = ends(&mut world, job, 1, None, usage(5900, 3));
        let Some(Event::JobRequeued { why, .. }) = events.last() else {
            panic!("{events:?}");
        };
        assert!(why.contains("outgrew"), "{why}");
        world.schedule();
        assert_eq!(of(&world.state, job).spec.demand.vram_mib, vram_mib);
        let (allocation, _) = world.allocation(job).expect("placed anew");
        let allocation = world.state.fleet.allocation(allocation).expect("placed anew");
        assert_eq!(allocation.slices[0].vram_mib, vram_mib);
    }
    ends(&mut world, job, 1, None, usage(13_500, 3));
    assert!(
        !world.state.jobs.contains_key(&job),
        "three attempts, and no more"
    );
    // Ended from outside for holding more than it had: the same.
    let job = world.submit(ada, grows(true)).expect("taken");
    ends(&mut world, job, 137, Some(StopReason::OverLimit), usage(6000, 0));
    assert_eq!(of(&world.state, job).spec.demand.vram_mib, 9000);
    world.stop(job).expect("stopped");
    // Whoever failed for another reason, or succeeded after all, does not grow.
    for (exit_code, by, seen) in [
        (1, None, usage(6000, 0)),
        (0, None, usage(6000, 9)),
        (137, Some(StopReason::OverLimit), usage(100, 0)),
    ] {
        let job = world.submit(ada, grows(true)).expect("taken");
        ends(&mut world, job, exit_code, by, seen);
        assert!(!world.state.jobs.contains_key(&job), "{exit_code} {by:?}");
    }
    // Limits hold for what grows.
    world.policy(
        acme,
        Policy {
            max_vram_mib_per_job: Some(8000),
            ..Policy::default()
        },
    );
    let job = world.submit(ada, grows(true)).expect("taken");
    ends(&mut world, job, 1, None, usage(6000, 1));
    assert!(!world.state.jobs.contains_key(&job));
}

#[test]
fn fit_tells_what_would_do_and_what_it_costs() {
    let (mut world, acme, ada) = setting();
    world
        .root(Wish::DefineSku {
            sku: Sku {
                name: "medium".into(),
                demand: Demand {
                    gpus: 1,
                    compute_permille: 500,
                    vram_mib: 40_000,
                    ..Demand::default()
                },
            },
        })
        .expect("a size");
    let owner = ScopeId::User(ada);
    let told = fit(&world.state, owner, &inference("llama-2-13b"), world.now).expect("known");
    let [h100, a10] = &told.classes[..] else {
        panic!("{:?}", told.classes);
    };
    assert_eq!((&*h100.class, h100.gpus, h100.free), ("H100", 4, 4));
    let (slice, whole) = (h100.slice.expect("a slice"), h100.whole.expect("whole"));
    assert_eq!(slice.vram_mib, told.demand.vram_mib);
    assert!(
        slice.compute_permille >= 360 && slice.compute_permille < 400,
        "{slice:?}"
    );
    assert!(slice.hourly_micros < whole.hourly_micros);
    assert!(
        h100.tokens.is_some_and(|tokens| tokens > 50_000),
        "{:?}",
        h100.tokens
    );
    assert!(
        a10.why_not.as_ref().is_some_and(|why| why.contains("short")),
        "{a10:?}"
    );
    assert_eq!(
        told.skus.iter().map(|sku| &*sku.name).collect::<Vec<_>>(),
        ["medium"]
    );
    // Nothing fits a model too large, and it says what would.
    let told = fit(&world.state, owner, &inference("llama-2-70b"), world.now).expect("known");
    assert!(told.classes.iter().all(|class| class.why_not.is_some()));
    assert_eq!(told.instead.len(), 2, "{:?}", told.instead);
    assert!(told.instead[0].starts_with("fp8 would take") && told.instead[1].starts_with("over 2 GPUs"));
    // Policies are asked as admission asks them, and what is given away is not free.
    world.policy(
        acme,
        Policy {
            classes: Some(["A10".into()].into()),
            ..Policy::default()
        },
    );
    let told = fit(&world.state, owner, &inference("7B"), world.now).expect("known");
    assert_eq!(&*told.classes[0].class, "A10");
    assert!(
        told.classes[1]
            .why_not
            .as_ref()
            .is_some_and(|why| why.contains("policy")),
        "{told:?}"
    );
    world.submit(ada, inference("7B")).expect("taken");
    let told = fit(&world.state, owner, &inference("7B"), world.now).expect("known");
    assert_eq!(told.classes[0].free, 0);
}

#[test]
fn what_fit_promises_submission_takes() {
    let (mut world, _, ada) = setting();
    for model in [
        "llama-2-7b",
        "llama-3.1-8b",
        "16B",
        "mixtral-8x7b",
        "qwen2.5-32b",
        "deepseek-v3",
    ] {
        let owner = ScopeId::User(ada);
        let told = fit(&world.state, owner, &inference(model), world.now).expect("known");
        let fits = told.classes.iter().find(|class| class.why_not.is_none());
        let job = world.submit(ada, inference(model));
        assert_eq!(fits.is_some(), job.is_ok(), "{model}: {fits:?}, {job:?}");
        let Ok(job) = job else { continue };
        assert_eq!(of(&world.state, job).spec.demand, told.demand, "{model}");
        if world.allocation(job).is_some() {
            world.exit(job, 1);
        } else {
            world.stop(job).expect("stopped");
        }
    }
}

#[test]
fn one_name_has_a_size_for_each_class() {
    let (mut world, _, ada) = setting();
    let size = |class: Option<&str>, permille, vram_mib| Wish::DefineSku {
        sku: Sku {
            name: "small".into(),
            demand: Demand {
                gpus: 1,
                compute_permille: permille,
                vram_mib,
                class: class.map(Into::into),
                ..Demand::default()
            },
        },
    };
    let small = |class: Option<&str>| {
        let mut job = spec("sized", Demand::default(), 60);
        job.sku = Some("small".into());
        job.demand.class = class.map(Into::into);
        job
    };
    world.root(size(Some("H100"), 100, 8000)).expect("a size");
    let only = world.submit(ada, small(None)).expect("the only one there is");
    assert_eq!(of(&world.state, only).spec.demand.class.as_deref(), Some("H100"));
    world.root(size(Some("A10"), 500, 12_000)).expect("a size");
    let refusal = world.submit(ada, small(None)).expect_err("which?");
    assert_eq!(refusal.field.as_deref(), Some("/demand/class"), "{refusal}");
    let refusal = world.submit(ada, small(Some("B200"))).expect_err("not for that");
    assert!(refusal.sentence.contains("A10, H100"), "{refusal}");
    for (class, vram_mib) in [("H100", 8000), ("A10", 12_000)] {
        let job = world.submit(ada, small(Some(class))).expect("taken");
        let demand = &of(&world.state, job).spec.demand;
        assert_eq!(
            (demand.class.as_deref(), demand.vram_mib),
            (Some(class), vram_mib)
        );
    }
    world.root(size(None, 200, 10_000)).expect("a size for any other");
    let job = world.submit(ada, small(None)).expect("taken");
    assert_eq!(of(&world.state, job).spec.demand.vram_mib, 10_000);
    world
        .root(Wish::RemoveSku {
            name: "small@A10".into(),
        })
        .expect("removed");
    let job = world
        .submit(ada, small(Some("A10")))
        .expect("the one for any class");
    let demand = &of(&world.state, job).spec.demand;
    assert_eq!((demand.class.as_deref(), demand.vram_mib), (Some("A10"), 10_000));
}

#[test]
fn history_keeps_how_a_demand_came_about() {
    let (mut world, _, ada) = setting();
    let job = world.submit(ada, inference("7B")).expect("taken");
    let mut state = world.state.clone();
    let outcome = tenure_domain::workload::job::Outcome::Succeeded;
    let retired = state.apply(world.now, &Event::JobEnded { job, outcome });
    let Some(Retired::Job { job: done, .. }) = retired else {
        panic!("{retired:?}");
    };
    assert!(done.derivation.is_some() && done.spec.workload.is_some());
}
