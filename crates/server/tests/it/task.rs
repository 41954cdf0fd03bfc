//! Jobs of tasks over HTTP: planned, submitted, run to their end, listed, read and billed by frame and by segment.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tenure_domain::command::Observation;
use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_domain::workload::job::Phase;
use tenure_domain::workload::task::progress::pieces_of;
use tenure_domain::{Actor, Wish};
use tenure_server::reconcile::environment;

use crate::world::World;

struct Setting {
    world: World,
    key: String,
    user: String,
}

/// One of the job's tasks that was placed: its pieces, which try it is, and where it is.
struct Placed {
    pieces: String,
    tries: u32,
    allocation: AllocationId,
    node: NodeId,
}

impl Setting {
    async fn new() -> Setting {
        let world = World::new().await;
        let tenant = world.tenant("acme").await;
        let (user, key) = world.user(&tenant, "ada", Some("member")).await;
        world.node("farm", 8000).await;
        Setting { world, key, user }
    }

    async fn submit(&self, spec: &Value) -> JobId {
        let body = json!({ "spec": spec });
        let taken = self.world.post(&self.key, "/v1/jobs", body).await;
        assert_eq!(taken.status, 201, "{taken:?}");
        taken.id().parse().unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        let reply = self.world.get(&self.key, path).await;
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        reply.json()
    }

    async fn see(&self, task: &Placed, observation: Observation) {
        let wish = Wish::Observe {
            node: task.node,
            allocation: task.allocation,
            observation,
        };
        let by = Actor::Node(task.node);
        self.world.controller.submit(by, wish, None, None).await.unwrap();
    }

    fn placed(&self, job: JobId) -> Vec<Placed> {
        let state = self.world.controller.view().read();
        let Some(tasks) = state.jobs.get(&job).and_then(|job| job.tasks.as_ref()) else {
            return Vec::new();
        };
        let placed = tasks.jobs(&state.jobs).filter(|task| task.phase == Phase::Placed);
        let placed = placed.filter_map(|task| {
            let allocation = task.sole_allocation()?;
            Some(Placed {
                pieces: pieces_of(&task.spec),
                tries: task.spec.task.as_ref()?.tries + 1,
                allocation,
                node: state.fleet.allocation(allocation)?.node,
            })
        });
        placed.collect()
    }

    /// Runs the job to its end, each task for a minute of its node's time; gives how many tasks were seen at once.
    async fn run(&self, job: JobId, fails: impl Fn(&str, u32) -> bool) -> usize {
        let mut widest = 0;
        for _ in 0..20_000 {
            if self.get(&format!("/v1/jobs/{job}")).await["phase"] == "done" {
                return widest;
            }
            let placed = self.placed(job);
            widest = widest.max(placed.len());
            for task in &placed {
                let exit_code = Some(i32::from(fails(&task.pieces, task.tries)));
                let exited = Observation::Exited {
                    exit_code,
                    signal: None,
                    ran_ms: 9_000,
                    by: None,
                    usage: None,
                };
                self.see(task, exited).await;
            }
            if placed.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        panic!("{job} does not end");
    }

    /// All tasks of a job, page by page.
    async fn tasks(&self, job: JobId) -> Vec<Value> {
        let mut all = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self.get(&format!("/v1/jobs/{job}/tasks?limit=50{cursor}")).await;
            all.extend(page["items"].as_array().unwrap().clone());
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return all,
            }
        }
    }
}

fn render(frames: &str) -> Value {
    json!({
        "name": "bridge",
        "command": ["blender", "-b", "bridge.blend", "-f", "{frame}"],
        "workload": { "rendering": { "frames": frames, "each_ms": 9000 } },
        "demand": { "cpu_milli": 1000 },
        "tasks": { "parallel": 6 },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_render_of_240_frames_with_three_failing_ends_with_three_retries_and_a_bill_by_frame() {
    let setting = Setting::new().await;
    let body = json!({ "spec": render("1-240") });
    let plan = setting
        .world
        .post(&setting.key, "/v1/jobs/plan", body)
        .await
        .json();
    assert_eq!(plan["starts_now"], true, "{plan}");
    assert_eq!(
        (&plan["tasks"]["total"], &plan["tasks"]["per_task"]),
        (&json!(240), &json!(1))
    );
    assert!(plan["tasks"]["expected_micros"].as_i64().unwrap() > plan["hold_micros"].as_i64().unwrap());

    let job = setting.submit(&render("1-240")).await;
    let shown = setting.get(&format!("/v1/jobs/{job}")).await;
    assert_eq!(shown["tasks"]["total"], 240);
    assert_eq!(shown["tasks"]["eta"]["basis"], "said", "{shown}");
    let fails = |pieces: &str, tries: u32| tries == 1 && ["5", "77", "240"].contains(&pieces);
    assert_eq!(setting.run(job, fails).await, 6, "as wide as was asked");

    let shown = setting.get(&format!("/v1/jobs/{job}")).await;
    assert_eq!(shown["outcome"]["result"], "succeeded");
    let tasks = &shown["tasks"];
    for (name, count) in [
        ("done", 240),
        ("failed", 0),
        ("retries", 3),
        ("made", 243),
        ("running", 0),
    ] {
        assert_eq!(tasks[name], count, "{name}: {tasks}");
    }
    let all = setting.tasks(job).await;
    assert_eq!(all.len(), 243);
    let cost = |task: &Value| task["charged_micros"].as_i64().unwrap();
    let sum: i64 = all.iter().map(cost).sum();
    assert!(sum > 0);
    assert_eq!(shown["charged_micros"], sum, "the job's bill is its tasks'");
    let of_77: Vec<&Value> = all.iter().filter(|task| task["task"]["pieces"] == "77").collect();
    assert_eq!(of_77.len(), 2, "one frame done again alone");
    assert_eq!(
        (&of_77[0]["task"]["tries"], &of_77[0]["outcome"]["result"]),
        (&json!(1), &json!("succeeded"))
    );
    assert_eq!(
        (&of_77[1]["task"]["tries"], &of_77[1]["outcome"]["result"]),
        (&json!(0), &json!("failed"))
    );

    // One job in the list and on the bill.
    let list = setting.get("/v1/jobs?show=all").await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let bill = setting.get(&format!("/v1/costs?scope={}", setting.user)).await;
    let lines = bill["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 1, "{bill}");
    assert_eq!(bill["charged_micros"], sum);
    assert_eq!(lines[0]["pieces"]["done"], 240);
    assert_eq!(lines[0]["pieces"]["each_micros"], sum / 240);

    // Each task has a log, by its number and by its own id.
    let logs = format!("/v1/jobs/{job}/logs");
    let refused = setting.world.get(&setting.key, &logs).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code()),
        (422, "invalid_field".into())
    );
    for (number, status) in [("0", 200), ("242", 200), ("243", 422), ("-1", 422)] {
        let read = setting
            .world
            .get(&setting.key, &format!("{logs}?task={number}"))
            .await;
        assert_eq!(read.status.as_u16(), status, "{number}: {read:?}");
    }
    let first = all.last().unwrap()["id"].as_str().unwrap();
    let read = setting
        .world
        .get(&setting.key, &format!("/v1/jobs/{first}/logs"))
        .await;
    assert_eq!(read.bytes, b"a line\n");
    // Who may not see the job sees no task of it.
    let other = setting.world.tenant("brio").await;
    let (_, stranger) = setting.world.user(&other, "bob", Some("owner")).await;
    for path in [format!("/v1/jobs/{first}"), format!("/v1/jobs/{job}/tasks")] {
        let hidden = setting.world.get(&stranger, &path).await;
        assert_eq!(hidden.status, 404, "{hidden:?}");
    }
    setting.world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_video_of_ninety_minutes_is_done_in_segments_of_five() {
    let setting = Setting::new().await;
    let spec = json!({
        "name": "reel",
        "command": ["ffmpeg", "-ss", "{start}", "-to", "{end}", "out_{segment:03}.mp4"],
        "workload": { "video": { "segments": { "duration_s": 5400, "segment_s": 300 } } },
        "demand": { "cpu_milli": 500 },
    });
    let job = setting.submit(&spec).await;
    // What the second is told.
    let second = loop {
        match setting.placed(job).into_iter().find(|task| task.pieces == "1") {
            Some(task) => break task,
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    {
        let state = setting.world.controller.view().read();
        let allocation = state.fleet.allocation(second.allocation).unwrap();
        let told = environment(&state, &state.jobs[&allocation.job], allocation);
        for (name, value) in [
            ("TENURE_TASK", "1"),
            ("TENURE_SEGMENT_START_S", "300"),
            ("TENURE_SEGMENT_END_S", "600"),
        ] {
            assert!(told.contains(&(name.into(), value.into())), "{name}: {told:?}");
        }
    }
    let fails = |pieces: &str, tries: u32| tries == 1 && ["0", "8", "17"].contains(&pieces);
    setting.run(job, fails).await;
    let shown = setting.get(&format!("/v1/jobs/{job}")).await;
    assert_eq!(shown["outcome"]["result"], "succeeded");
    let tasks = &shown["tasks"];
    assert_eq!(
        (&tasks["piece"], &tasks["done"], &tasks["retries"]),
        (&json!("segment"), &json!(18), &json!(3))
    );
    assert_eq!(setting.tasks(job).await.len(), 21);
    setting.world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_by_kind_refuse_and_say_why() {
    let setting = Setting::new().await;
    let path = |what: &str| format!("/v1/scopes/{}/{what}", setting.user);
    let owner = setting.world.owner.clone();
    let budget = json!({ "budgets": [{ "period": "day", "kind": "rendering", "frames": 200 }] });
    let set = setting.world.put(&owner, &path("budgets"), budget).await;
    assert_eq!(set.status, 200, "{set:?}");
    let refused = setting
        .world
        .post(&setting.key, "/v1/jobs", json!({ "spec": render("1-240") }))
        .await;
    assert_eq!(refused.code(), "exceeds_budget", "{refused:?}");
    assert!(
        refused.json()["detail"].as_str().unwrap().contains("240 frames"),
        "{refused:?}"
    );
    let quota = json!({ "limits": { "jobs@kind:rendering": 1 } });
    let set = setting.world.put(&owner, &path("quota"), quota).await;
    assert_eq!(set.status, 200, "{set:?}");
    let first = setting.submit(&render("1-20")).await;
    let second = setting.submit(&render("1-20")).await;
    for _ in 0..1000 {
        if setting.placed(first).len() == 6 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(setting.placed(first).len(), 6);
    let why = setting.get(&format!("/v1/jobs/{second}/why")).await;
    assert_eq!(why["waiting"]["code"], "quota_in_use", "{why}");
    assert!(
        why["sentence"].as_str().unwrap().contains("jobs@kind:rendering"),
        "{why}"
    );

    // Live tasks are folded into their jobs unless they are asked for.
    let count = async |query: &str| {
        let list = setting.get(&format!("/v1/jobs{query}")).await;
        list["items"].as_array().unwrap().len()
    };
    assert_eq!(count("").await, 2);
    assert_eq!(count("?tasks=true").await, 2 + 6 + 2);
    // What is done with one program is not done with many; and stopped it is whole.
    let resized = json!({ "compute_permille": 500 });
    let refused = setting
        .world
        .post(&setting.key, &format!("/v1/jobs/{first}/resize"), resized)
        .await;
    assert_eq!(refused.code(), "wrong_phase", "{refused:?}");
    let stop = |job: JobId| {
        setting
            .world
            .request(Method::POST, &format!("/v1/jobs/{job}/stop"), Some(&setting.key))
    };
    let stopped = setting.world.send(stop(second)).await;
    assert_eq!(stopped.json()["outcome"]["result"], "cancelled", "{stopped:?}");
    let stopped = setting.world.send(stop(first)).await;
    assert_eq!(stopped.json()["phase"], "stopping", "{stopped:?}");
    setting.world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_cut_so_names_its_field() {
    let setting = Setting::new().await;
    let head = setting.world.head();
    let with = |field: &str, value: Value| {
        let mut spec = render("1-240");
        spec[field] = value;
        spec
    };
    for (spec, field) in [
        (with("tasks", json!({ "parallel": 0 })), "/spec/tasks/parallel"),
        (with("tasks", json!({ "parallel": 1025 })), "/spec/tasks/parallel"),
        (with("tasks", json!({ "parallel": -1 })), "/spec/tasks/parallel"),
        (with("tasks", json!({ "per_task": 0 })), "/spec/tasks/per_task"),
        (with("tasks", json!({ "per_task": 2 })), "/spec/tasks/per_task"),
        (with("tasks", json!({ "tries": 0 })), "/spec/tasks/tries"),
        (with("tasks", json!({ "tries": 101 })), "/spec/tasks/tries"),
        (
            with("tasks", json!({ "whole": true, "tries": 2 })),
            "/spec/tasks/whole",
        ),
        (with("tasks", json!({ "colour": 1 })), "/spec/tasks/colour"),
        (with("tasks", json!("wide")), "/spec/tasks"),
        (with("command", json!(["ffmpeg", "{start}"])), "/spec/command"),
        (with("tty", json!(true)), "/spec/tty"),
        (
            with("workload", json!({ "inference": { "model": "7B" } })),
            "/spec/tasks",
        ),
        (
            with(
                "task",
                json!({ "of": "job_0000000042m00", "number": 0, "work": { "pieces": { "first": 0, "count": 1 } } }),
            ),
            "/spec/task",
        ),
    ] {
        let refused = setting
            .world
            .post(&setting.key, "/v1/jobs", json!({ "spec": spec }))
            .await;
        assert_eq!(
            (refused.status.as_u16(), refused.field()),
            (422, field.to_owned()),
            "{spec} {refused:?}"
        );
    }
    assert_eq!(setting.world.head(), head, "nothing was decided");
    setting.world.end().await;
}
