//! Jobs of tasks: frames and segments shared out over many slices, what fails done again alone, and one bill.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_domain::command::Observation;
use tenure_domain::id::{JobId, UserId};
use tenure_domain::refusal::Code;
use tenure_domain::schedule::why::why;
use tenure_domain::state::Retired;
use tenure_domain::tenancy::budget::Budget;
use tenure_domain::tenancy::policy::Policy;
use tenure_domain::tenancy::role::Role;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::time::Period;
use tenure_domain::workload::Workload;
use tenure_domain::workload::job::{DoneJob, Job, Outcome, PauseReason, Phase, StopReason};
use tenure_domain::workload::picture::{Rendering, Video};
use tenure_domain::workload::segments::Segments;
use tenure_domain::workload::spec::{Isolation, JobSpec, Kind};
use tenure_domain::workload::task::AHEAD;
use tenure_domain::workload::task::cut::Cut;
use tenure_domain::workload::task::progress::{EtaBasis, Progress, pieces_of};
use tenure_domain::workload::task::words;
use tenure_domain::workload::usage::Usage;
use tenure_domain::{Actor, Event, Wish};

use crate::world::{World, gpu, inventory, slice, spec};

/// A farm of four GPUs that any number of fenced quarters fit on, and a user of a tenant.
fn setting() -> (World, ScopeId, UserId) {
    let mut world = World::new();
    world.thorough = false;
    let acme = world.tenant("acme");
    let ada = world.user(acme, "ada", Some(Role::Member));
    let levels = [Isolation::Guarded, Isolation::Fenced];
    let cards = (0..4).map(|n| gpu(&format!("l40s-{n}"), "L40S", 48_000, &levels));
    world.node("farm", inventory(64_000, 256_000, cards.collect()));
    (world, acme, ada)
}

fn cut_into(per_task: Option<u64>, parallel: Option<u32>) -> Cut {
    Cut {
        per_task,
        parallel,
        ..Cut::default()
    }
}

fn rendering(frames: &str, cut: Cut) -> JobSpec {
    let mut job = spec("bridge", slice(250, 8000), 600);
    job.workload = Some(Box::new(Workload::Rendering(Rendering {
        frames: frames.parse().expect("frames"),
        scene: None,
        each_ms: None,
        vram_mib: Some(8000),
    })));
    job.demand.isolation = Isolation::Fenced;
    job.tasks = Some(cut);
    job
}

fn video(duration_s: u64, segment_s: u64, cut: Cut) -> JobSpec {
    let mut job = rendering("1", cut);
    job.name = "reel".into();
    job.workload = Some(Box::new(Workload::Video(Video {
        frames: None,
        segments: Some(Segments {
            duration_s,
            segment_s,
        }),
        scene: None,
        each_ms: None,
        vram_mib: Some(8000),
    })));
    job
}

fn job(world: &World, id: JobId) -> &Job {
    &world.state.jobs[&id]
}

fn tasks(world: &World, of: JobId) -> Vec<&Job> {
    let tasks = job(world, of).tasks.as_ref().expect("a job of tasks");
    tasks.jobs(&world.state.jobs).collect()
}

fn ids(world: &World, of: JobId, phase: Phase) -> Vec<JobId> {
    let tasks = tasks(world, of).into_iter();
    tasks
        .filter(|task| task.phase == phase)
        .map(|task| task.id)
        .collect()
}

fn exits(world: &mut World, task: JobId, code: i32) -> Vec<Event> {
    let exited = Observation::Exited {
        exit_code: Some(code),
        signal: None,
        ran_ms: 12_000,
        by: None,
        usage: None,
    };
    world.observe(task, exited).expect("an end is taken")
}

fn ended(world: &World, id: JobId) -> &DoneJob {
    let mut ends = world.retired.iter().filter_map(|retired| match retired {
        Retired::Job { job, .. } if job.id == id => Some(&**job),
        _ => None,
    });
    let found = ends.next().unwrap_or_else(|| panic!("{id} has not ended"));
    assert!(ends.next().is_none(), "{id} ended twice");
    found
}

/// The tasks of a job that ended, in the order they were made.
fn past(world: &World, of: JobId) -> Vec<&DoneJob> {
    let done = world.retired.iter().filter_map(|retired| match retired {
        Retired::Job { job, .. } => Some(&**job),
        Retired::Scope { .. } => None,
    });
    let of_it = |job: &&DoneJob| job.spec.task.as_ref().is_some_and(|task| task.of == of);
    let mut all: Vec<&DoneJob> = done.filter(of_it).collect();
    all.sort_by_key(|job| job.spec.task.as_ref().map(|task| task.number));
    all
}

/// Runs a job to its end; `fails` says, of the pieces and the how-manyth try of a task, whether it does.
fn run(world: &mut World, of: JobId, fails: impl Fn(&str, u32) -> bool) -> usize {
    let mut widest = 0;
    for _ in 0..10_000 {
        world.schedule();
        if !world.state.jobs.contains_key(&of) {
            return widest;
        }
        let placed = ids(world, of, Phase::Placed);
        widest = widest.max(placed.len());
        world.pass_s(12);
        for task in placed {
            world.observe(task, Observation::Running).expect("it runs");
            let spec = &job(world, task).spec;
            let tries = spec.task.as_ref().map_or(0, |task| task.tries) + 1;
            let code = i32::from(fails(&pieces_of(spec), tries));
            exits(world, task, code);
        }
    }
    panic!("{of} does not end");
}

#[test]
fn braces_without_end_are_read_in_the_time_of_as_many_other_characters() {
    let took = |argument: String| {
        let (mut world, _, ada) = setting();
        let mut job = rendering("1-2", cut_into(Some(1), None));
        job.command = vec!["r".into(), argument];
        let id = world.submit(ada, job).expect("taken");
        let task = tasks(&world, id)[0].spec.clone();
        let once = || {
            let began = std::time::Instant::now();
            assert_eq!(*words::command(&task), task.command);
            began.elapsed()
        };
        (0..5).map(|_| once()).min().expect("five times")
    };
    let opened = took("{".repeat(131_000) + "}");
    let closed = took("{}".repeat(65_500));
    // Were each brace looked for to the end, it would be some thousand times as long.
    assert!(opened < closed * 50, "{opened:?} against {closed:?}");
}

#[test]
fn of_240_frames_three_fail_once_and_are_done_again_alone() {
    let (mut world, acme, ada) = setting();
    let id = world
        .submit(ada, rendering("1-240", cut_into(Some(1), Some(8))))
        .expect("taken");
    assert_eq!(tasks(&world, id).len(), AHEAD, "the queue is not flooded");
    world.schedule();
    assert_eq!(ids(&world, id, Phase::Placed).len(), 8, "as wide as was asked");
    let fails = |pieces: &str, tries: u32| tries == 1 && ["17", "100", "239"].contains(&pieces);
    assert_eq!(run(&mut world, id, fails), 8);

    let parent = ended(&world, id);
    assert_eq!(parent.outcome, Outcome::Succeeded);
    let pieces = parent.tasks.as_ref().expect("tasks").pieces();
    assert_eq!(
        (pieces.done.count(), pieces.failed.count(), pieces.retries),
        (240, 0, 3)
    );
    // The bill, frame by frame: a quarter of a GPU at one an hour, twelve seconds each.
    let mut bill: BTreeMap<String, (usize, i64)> = BTreeMap::new();
    for task in past(&world, id) {
        let line = bill.entry(pieces_of(&task.spec)).or_default();
        (line.0, line.1) = (line.0 + 1, line.1 + task.charged.money.0);
    }
    assert_eq!(bill.len(), 240);
    // A third of a micro that each leaves over is collected with a later one.
    assert!(bill["17"].0 == 2 && (2 * 833..=2 * 834).contains(&bill["17"].1));
    assert!(bill["18"].0 == 1 && (833..=834).contains(&bill["18"].1));
    let all: i64 = bill.values().map(|line| line.1).sum();
    assert_eq!(parent.charged.money.0, all, "the job costs what its tasks do");
    assert_eq!(all, 243 * 2500 / 3 - 1, "all but what the last left over");
    assert_eq!(pieces.each_micros(), Some(833));
    let spending = &world.state.tree.get(acme).expect("acme").spending;
    let of_kind = spending.at(&budget(1).of(), Period::Day, world.now);
    assert_eq!((of_kind.spent.frames, of_kind.held.frames), (240, 0));
    assert!(world.state.jobs.is_empty() && world.state.queue.is_empty());
}

#[test]
fn a_video_of_ninety_minutes_is_eighteen_segments() {
    let (mut world, _, ada) = setting();
    let id = world
        .submit(ada, video(5400, 300, Cut::default()))
        .expect("taken");
    let fails = |pieces: &str, tries: u32| tries == 1 && ["0", "4", "17"].contains(&pieces);
    run(&mut world, id, fails);
    let parent = ended(&world, id);
    let pieces = parent.tasks.as_ref().expect("tasks").pieces();
    assert_eq!((pieces.done.count(), pieces.retries), (18, 3));
    assert_eq!(past(&world, id).len(), 21);
    assert_eq!(parent.charged.money.0, 21 * 2500 / 3 - 1);
    let retried = past(&world, id);
    let again = retried.iter().filter(|task| pieces_of(&task.spec) == "4");
    let tries: Vec<u32> = again
        .filter_map(|job| Some(job.spec.task.as_ref()?.tries))
        .collect();
    assert_eq!(tries, [0, 1]);
}

#[test]
fn a_frame_that_keeps_failing_is_named_when_all_others_are_done() {
    let (mut world, _, ada) = setting();
    let id = world
        .submit(ada, rendering("1-60x2", cut_into(Some(10), Some(2))))
        .expect("taken");
    let fails = |pieces: &str, _| {
        let frames: tenure_domain::workload::frames::Frames = pieces.parse().expect("frames");
        frames.contains(11) || frames.contains(59)
    };
    run(&mut world, id, fails);
    let parent = ended(&world, id);
    assert_eq!(
        parent.outcome,
        Outcome::TasksFailed {
            pieces: "11,59".into(),
            count: 2
        }
    );
    let pieces = parent.tasks.as_ref().expect("tasks").pieces();
    assert_eq!((pieces.done.count(), pieces.failed.count()), (28, 2));
    let alone = |frame: &str| {
        let tries = past(&world, id);
        tries.iter().filter(|task| pieces_of(&task.spec) == frame).count()
    };
    assert_eq!((alone("11"), alone("59")), (3, 3), "three tries each, alone");
}

#[test]
fn fail_fast_ends_the_rest() {
    let (mut world, _, ada) = setting();
    let cut = Cut {
        tries: Some(1),
        fail_fast: true,
        ..cut_into(Some(1), Some(4))
    };
    let id = world.submit(ada, rendering("1-240", cut)).expect("taken");
    world.schedule();
    let placed = ids(&world, id, Phase::Placed);
    world.pass_s(12);
    let events = exits(&mut world, placed[1], 1);
    let stopping = events
        .iter()
        .filter(|event| event.kind() == "JobStopping")
        .count();
    assert_eq!(stopping, 4, "the job and its three others");
    assert_eq!(job(&world, id).phase, Phase::Stopping);
    for task in [placed[0], placed[2], placed[3]] {
        exits(&mut world, task, 0);
    }
    let parent = ended(&world, id);
    assert_eq!(
        parent.outcome,
        Outcome::TasksFailed {
            pieces: "2".into(),
            count: 1
        }
    );
    assert!(world.state.jobs.is_empty());
}

#[test]
fn a_job_of_tasks_is_stopped_whole() {
    let (mut world, _, ada) = setting();
    let id = world
        .submit(ada, rendering("1-240", cut_into(Some(1), Some(4))))
        .expect("taken");
    // Before anything has begun, at once.
    world.stop(id).expect("stopped");
    assert_eq!(ended(&world, id).outcome, Outcome::Cancelled);
    assert!(world.state.jobs.is_empty());

    let id = world
        .submit(ada, rendering("1-240", cut_into(Some(1), Some(4))))
        .expect("taken");
    world.schedule();
    let placed = ids(&world, id, Phase::Placed);
    world.observe(placed[0], Observation::Running).expect("runs");
    assert_eq!(job(&world, id).phase, Phase::Running);
    world.stop(id).expect("stopped");
    assert_eq!(world.stop(id).expect("again"), vec![], "once");
    assert_eq!(ids(&world, id, Phase::Stopping).len(), 4, "waiting ones are gone");
    world.pass_s(3);
    for task in placed {
        assert_eq!(job(&world, id).phase, Phase::Stopping);
        exits(&mut world, task, 137);
    }
    assert_eq!(ended(&world, id).outcome, Outcome::Cancelled);
    assert!(world.state.jobs.is_empty() && world.state.fleet.allocations().next().is_none());
}

#[test]
fn evicted_and_lost_tasks_lose_their_own_pieces_alone() {
    let (mut world, _, ada) = setting();
    let id = world
        .submit(ada, rendering("1-12", cut_into(Some(3), Some(4))))
        .expect("taken");
    world.schedule();
    let placed = ids(&world, id, Phase::Placed);
    world.pass_s(12);
    exits(&mut world, placed[0], 0);
    world
        .system(Wish::Stop {
            job: placed[1],
            reason: StopReason::Evicted,
        })
        .expect("told to leave");
    let events = exits(&mut world, placed[1], 143);
    assert!(
        events.iter().any(|event| event.kind() == "JobRequeued"),
        "{events:?}"
    );
    assert_eq!(pieces_of(&job(&world, placed[1]).spec), "4-6");
    let (_, node) = world.allocation(placed[2]).expect("placed");
    world.system(Wish::LoseNode { node }).expect("lost");
    assert_eq!(tasks(&world, id).len(), 3, "each keeps what it was to do");
    world
        .act(Actor::Node(node), Wish::ReturnNode { node })
        .expect("back");
    run(&mut world, id, |_, _| false);
    let pieces = ended(&world, id).tasks.as_ref().expect("tasks").pieces();
    assert_eq!(
        (pieces.done.count(), pieces.retries),
        (12, 0),
        "no fault of theirs"
    );
}

#[test]
fn while_paused_no_task_is_made_and_running_ones_are_set_aside() {
    let (mut world, _, ada) = setting();
    let id = world
        .submit(ada, rendering("1-20", cut_into(Some(1), Some(3))))
        .expect("taken");
    world.schedule();
    let placed = ids(&world, id, Phase::Placed);
    for task in &placed {
        world.observe(*task, Observation::Running).expect("runs");
    }
    let pause = Wish::Pause {
        job: id,
        reason: PauseReason::Asked,
    };
    world.by(ada, pause.clone()).expect("paused");
    assert_eq!(world.by(ada, pause).expect("again"), vec![]);
    assert_eq!(job(&world, id).phase, Phase::Paused);
    assert_eq!(ids(&world, id, Phase::Pausing).len(), 3);
    let waits = why(&world.state, id, world.now).expect("it says why");
    assert_eq!(waits.code, Code::Paused);
    world.pass_s(5);
    let paused = Observation::Paused {
        ran_ms: 5000,
        usage: None,
    };
    for task in &placed[1..] {
        world.observe(*task, paused.clone()).expect("set aside");
    }
    // One ended before it could be.
    exits(&mut world, placed[0], 0);
    world.schedule();
    assert_eq!(tasks(&world, id).len(), 2, "nothing new is made");
    world.by(ada, Wish::ResumeJob { job: id }).expect("wanted");
    world.schedule();
    assert_eq!(ids(&world, id, Phase::Resuming).len(), 2);
    for task in &placed[1..] {
        world.observe(*task, Observation::Running).expect("goes on");
        world.pass_s(12);
        exits(&mut world, *task, 0);
    }
    run(&mut world, id, |_, _| false);
    let parent = ended(&world, id);
    let pieces = parent.tasks.as_ref().expect("tasks").pieces();
    assert_eq!((pieces.done.count(), pieces.retries), (20, 0));
}

#[test]
fn a_task_that_is_stopped_is_done_again() {
    let (mut world, _, ada) = setting();
    let id = world
        .submit(ada, rendering("1-3", cut_into(Some(1), None)))
        .expect("taken");
    world.schedule();
    let placed = ids(&world, id, Phase::Placed);
    world
        .by(
            ada,
            Wish::Stop {
                job: placed[0],
                reason: StopReason::Cancelled,
            },
        )
        .expect("stopped");
    exits(&mut world, placed[0], 143);
    run(&mut world, id, |_, _| false);
    let pieces = ended(&world, id).tasks.as_ref().expect("tasks").pieces();
    assert_eq!((pieces.done.count(), pieces.retries), (3, 1));
}

fn budget(frames: u64) -> Budget {
    Budget {
        period: Period::Day,
        class: None,
        sku: None,
        kind: Some(Kind::Rendering),
        money_micros: None,
        gpu_seconds: None,
        frames: Some(frames),
        alerts_permille: Vec::new(),
    }
}

#[test]
fn limits_by_kind_count_a_render_once_and_say_why_not() {
    let (mut world, _, ada) = setting();
    let scope = ScopeId::User(ada);
    world.quota(scope, &[("jobs@kind:rendering", 1), ("gpu_milli", 1000)]);
    let first = world
        .submit(ada, rendering("1-100", cut_into(Some(1), None)))
        .expect("taken");
    let second = world
        .submit(ada, rendering("1-10", cut_into(Some(1), None)))
        .expect("taken");
    world.schedule();
    assert_eq!(
        ids(&world, first, Phase::Placed).len(),
        4,
        "four quarters are its GPU"
    );
    let waiting = tasks(&world, first).len() - 4;
    assert_eq!(waiting, AHEAD, "and few wait for more");
    let waits = why(&world.state, second, world.now).expect("it waits");
    assert_eq!(waits.code, Code::QuotaInUse);
    assert!(waits.sentence.contains("jobs@kind:rendering"), "{waits}");
    let task = ids(&world, first, Phase::Queued)[0];
    let waits = why(&world.state, task, world.now).expect("it waits");
    assert!(waits.sentence.contains("gpu_milli"), "{waits}");
    world.stop(second).expect("stopped");

    world.quota(scope, &[("jobs@kind:rendering", 0)]);
    let refusal = world
        .submit(ada, rendering("1-10", Cut::default()))
        .expect_err("none at all");
    assert_eq!(
        (refusal.code, refusal.field.as_deref()),
        (Code::ExceedsQuota, Some("/kind"))
    );
    world.quota(scope, &[]);
    let set = |budgets| Wish::SetBudgets {
        scope,
        budgets,
        revision: None,
    };
    world.root(set(vec![budget(120)])).expect("a budget");
    let refusal = world
        .submit(ada, rendering("1-121", Cut::default()))
        .expect_err("more than a day's");
    assert_eq!(refusal.code, Code::ExceedsBudget, "{refusal}");
    let later = world
        .submit(ada, rendering("1-30", Cut::default()))
        .expect("taken");
    world.schedule();
    let waits = why(&world.state, later, world.now).expect("the first holds a hundred");
    assert_eq!(waits.code, Code::BudgetHeld);
    assert!(
        waits.sentence.contains("30 frames") && waits.sentence.contains("100 under way"),
        "{waits}"
    );
    world.stop(later).expect("stopped");

    // Dear as a whole, though each of its tasks is not.
    let dear = Budget {
        kind: None,
        frames: None,
        money_micros: Some(1_000_000),
        ..budget(0)
    };
    world.root(set(vec![dear])).expect("a budget");
    let mut long = rendering("1-240", cut_into(Some(1), None));
    if let Some(Workload::Rendering(rendering)) = long.workload.as_deref_mut() {
        rendering.each_ms = Some(120_000);
    }
    let refusal = world.submit(ada, long).expect_err("two units");
    assert_eq!(refusal.code, Code::ExceedsBudget, "{refusal}");
}

#[test]
fn policy_says_how_wide() {
    let (mut world, acme, ada) = setting();
    let narrow = |most| Policy {
        max_parallel_tasks: Some(most),
        ..Policy::default()
    };
    world.policy(acme, narrow(3));
    let refusal = world
        .submit(ada, rendering("1-100", cut_into(Some(1), Some(4))))
        .expect_err("wider");
    assert_eq!(refusal.field.as_deref(), Some("/tasks/parallel"), "{refusal}");
    let id = world
        .submit(ada, rendering("1-100", cut_into(Some(1), None)))
        .expect("taken");
    world.schedule();
    assert_eq!(tasks(&world, id).len(), 3);
    world.policy(acme, narrow(1));
    assert_eq!(
        run(&mut world, id, |_, _| false),
        3,
        "what runs goes on, and one by one from there"
    );
    assert_eq!(
        world
            .root(Wish::SetPolicy {
                scope: acme,
                policy: narrow(0),
                revision: None
            })
            .expect_err("none")
            .code,
        Code::InvalidField
    );
}

#[test]
fn progress_is_told_with_what_it_rests_on() {
    let (mut world, _, ada) = setting();
    let id = world
        .submit(ada, rendering("1-100", cut_into(Some(2), Some(4))))
        .expect("taken");
    let progress = |world: &World| {
        let parent = job(world, id);
        let tasks = parent.tasks.as_ref().expect("tasks");
        let progress = Progress::of(tasks.pieces(), tasks.jobs(&world.state.jobs));
        let eta = progress.eta(tasks.pieces(), parent.derivation.as_deref());
        (progress, eta)
    };
    let (before, eta) = progress(&world);
    assert_eq!((before.total, before.waiting, before.running), (100, 100, 0));
    assert_eq!(eta, None, "nothing tells how long a frame takes");
    world.schedule();
    let placed = ids(&world, id, Phase::Placed);
    world.pass_s(12);
    exits(&mut world, placed[0], 0);
    world.schedule();
    let (now, eta) = progress(&world);
    assert_eq!((now.done, now.running, now.waiting), (2, 8, 90));
    let eta = eta.expect("two frames tell");
    assert_eq!(eta.basis, EtaBasis::Done { pieces: 2 });
    assert_eq!(eta.left_ms, (90 * 6000 + 8 * 3000) / 4);
}

#[test]
fn what_one_task_outgrew_the_next_begin_with() {
    let (mut world, _, ada) = setting();
    let mut spec = rendering("1-10", cut_into(Some(1), Some(1)));
    spec.grow = true;
    let id = world.submit(ada, spec).expect("taken");
    world.schedule();
    let task = ids(&world, id, Phase::Placed)[0];
    let exited = Observation::Exited {
        exit_code: Some(1),
        signal: None,
        ran_ms: 1000,
        by: None,
        usage: Some(Usage {
            refusals: 1,
            peak_vram_mib: 8000,
            ..Usage::default()
        }),
    };
    world.observe(task, exited).expect("an end");
    assert_eq!(job(&world, task).spec.demand.vram_mib, 12_000);
    world.schedule();
    world.pass_s(12);
    exits(&mut world, task, 0);
    assert_eq!(tasks(&world, id)[0].spec.demand.vram_mib, 12_000);
}

#[test]
fn what_is_done_with_one_program_is_not_done_with_many() {
    let (mut world, acme, ada) = setting();
    let id = world
        .submit(ada, rendering("1-10", Cut::default()))
        .expect("taken");
    world.schedule();
    let task = ids(&world, id, Phase::Placed)[0];
    world.observe(task, Observation::Running).expect("runs");
    let resize = Wish::Resize {
        job: id,
        compute_permille: Some(100),
        vram_mib: None,
    };
    let refusal = world.by(ada, resize).expect_err("which one?");
    assert_eq!(refusal.code, Code::WrongPhase);
    assert!(refusal.sentence.contains("job of tasks"), "{refusal}");
    let refusal = world.root(Wish::Close { scope: acme }).expect_err("it lives");
    assert!(refusal.sentence.contains("has 1 live jobs"), "{refusal}");
    // A user says what is to be made, and not which part of another job it is.
    let mut forged = rendering("1-10", Cut::default());
    forged.task = job(&world, task).spec.task.clone();
    let owner = ada;
    let refusal = world
        .by(
            ada,
            Wish::Submit {
                owner,
                spec: Arc::new(forged),
                trace: None,
            },
        )
        .expect_err("forged");
    assert_eq!(refusal.field.as_deref(), Some("/task"));
    let mut plain = spec("plain", slice(100, 100), 60);
    plain.tasks = Some(cut_into(Some(1), None));
    assert_eq!(
        world.submit(ada, plain).expect_err("no pieces").field.as_deref(),
        Some("/tasks")
    );
    // Suspended, what runs goes on and what waits says so.
    world.root(Wish::Suspend { scope: acme }).expect("suspended");
    let waiting = ids(&world, id, Phase::Queued);
    if let Some(waiting) = waiting.first() {
        let waits = why(&world.state, *waiting, world.now).expect("it waits");
        assert_eq!(waits.code, Code::ScopeSuspended);
    }
}
