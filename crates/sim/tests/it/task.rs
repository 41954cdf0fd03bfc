//! Jobs of tasks with the real server, agent and processes: every frame and segment made once, though some fail at first.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tenure_api::client::Client;
use tenure_api::v1::job::{JobView, SubmitJob};
use tenure_api::v1::task::TaskQuery;
use tenure_domain::workload::job::Outcome;
use tenure_sim::house::House;

/// Far longer than a loaded machine takes for a few hundred processes.
const PATIENCE: Duration = Duration::from_secs(280);

async fn until_done(client: &Client, job: &str) -> JobView {
    let begun = Instant::now();
    loop {
        let view = client.job(job).await.unwrap();
        if view.outcome.is_some() {
            return view;
        }
        assert!(begun.elapsed() < PATIENCE, "{:?}", view.tasks);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn tasks(client: &Client, job: &str) -> Vec<JobView> {
    let query = TaskQuery {
        limit: Some(1000),
        cursor: None,
    };
    let page = client.job_tasks(job, &query).await.unwrap();
    assert!(page.next.is_none());
    page.items
}

/// What a task wrote.
async fn said(client: &Client, job: &str, task: u32) -> String {
    use futures_util::StreamExt;
    let query = tenure_api::v1::job::LogQuery {
        task: Some(task),
        ..Default::default()
    };
    let mut pieces = std::pin::pin!(client.logs(job, &query).await.unwrap());
    let mut all = Vec::new();
    while let Some(piece) = pieces.next().await {
        all.extend(piece.unwrap());
    }
    String::from_utf8(all).unwrap()
}

fn job(spec: serde_json::Value) -> SubmitJob {
    serde_json::from_value(serde_json::json!({ "spec": spec })).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn real_processes_make_240_frames_of_which_three_fail_once() {
    let mut house = House::new(None);
    house.with_agent = true;
    house.start_server().await;
    let ada = house.client(&house.demo_token("acme/research/ada"));
    // A frame fails at its first try; which that is, the environment and the arguments say alike.
    let script = r#"
        test "$1" = "$TENURE_FRAME_FIRST" && test "$1" = "$TENURE_FRAMES" || exit 9
        case "$1 $TENURE_TASK_TRY" in "7 1"|"120 1"|"240 1") echo "frame $1 broke"; exit 3;; esac
        echo "frame $1 of task $TENURE_TASK""#;
    let spec = serde_json::json!({
        "name": "bridge",
        "command": ["sh", "-c", script, "render", "{frame}"],
        "workload": { "rendering": { "frames": "1-240" } },
        "demand": { "cpu_milli": 10, "memory_mib": 16 },
        "grace_s": 1,
        "tasks": { "parallel": 4 },
    });
    let id = ada.submit_job(&job(spec), None).await.unwrap().id.to_string();
    let done = until_done(&ada, &id).await;
    let progress = done.tasks.as_ref().unwrap();
    assert_eq!(done.outcome, Some(Outcome::Succeeded), "{progress:?}");
    assert_eq!((progress.done, progress.retries, progress.made), (240, 3, 243));
    let all = tasks(&ada, &id).await;
    assert_eq!(all.len(), 243);
    let made: BTreeSet<u32> = all
        .iter()
        .filter(|task| task.outcome == Some(Outcome::Succeeded))
        .map(|task| task.task.as_ref().unwrap().pieces.parse().unwrap())
        .collect();
    assert_eq!(made, (1..=240).collect(), "every frame once");
    let sum: i64 = all.iter().map(|task| task.charged_micros).sum();
    assert_eq!(done.charged_micros, sum);
    for task in all
        .iter()
        .filter(|task| task.task.as_ref().unwrap().pieces == "120")
    {
        let part = task.task.as_ref().unwrap();
        let written = match part.tries {
            0 => "frame 120 broke\n".to_owned(),
            _ => format!("frame 120 of task {}\n", part.number),
        };
        assert_eq!(said(&ada, &id, part.number).await, written);
    }
    assert_eq!(house.interrupt_server(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn real_processes_make_ninety_minutes_in_segments_through_a_crash_of_the_server() {
    let mut house = House::new(None);
    house.start_server().await;
    house.start_agent().await;
    let token = house.demo_token("acme/research/ada");
    let ada = house.client(&token);
    let script = r#"
        test "$1" = "$TENURE_SEGMENT_START_S" && test "$2" = "$TENURE_SEGMENT_END_S" || exit 9
        case "$1 $TENURE_TASK_TRY" in "0 1"|"1500 1"|"5100 1") exit 3;; esac
        sleep 0.3; echo "$1-$2""#;
    let spec = serde_json::json!({
        "name": "reel",
        "command": ["sh", "-c", script, "cut", "{start}", "{end}"],
        "workload": { "video": { "segments": { "duration_s": 5400, "segment_s": 300 } } },
        "demand": { "cpu_milli": 10, "memory_mib": 16 },
        "grace_s": 1,
        "tasks": { "parallel": 3 },
    });
    let id = ada.submit_job(&job(spec), None).await.unwrap().id.to_string();
    let begun = Instant::now();
    while ada.job(&id).await.unwrap().tasks.unwrap().done < 4 {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    house.kill_server();
    house.start_server().await;
    let ada = house.client(&token);
    let done = until_done(&ada, &id).await;
    let progress = done.tasks.as_ref().unwrap();
    assert_eq!(done.outcome, Some(Outcome::Succeeded), "{progress:?}");
    assert_eq!((progress.done, progress.retries), (18, 3));
    let mut starts = BTreeSet::new();
    for task in tasks(&ada, &id).await {
        if task.outcome == Some(Outcome::Succeeded) {
            let number = task.task.as_ref().unwrap().number;
            starts.insert(said(&ada, &id, number).await);
        }
    }
    let all = (0..18).map(|n| format!("{}-{}\n", n * 300, (n + 1) * 300));
    assert_eq!(starts, all.collect());
    assert_eq!(house.interrupt_server(), Some(0));
}
