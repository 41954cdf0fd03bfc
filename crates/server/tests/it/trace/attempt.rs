//! Waits and attempts beside one another; members of gangs, and tasks beside their job.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tenure_api::channel::RunState;
use tenure_domain::command::Observation;
use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_domain::workload::job::StopReason;
use tenure_domain::{Actor, Wish};

use super::collector::{Collector, Span, Value};
use super::stage::{Stage, is_whole, one, options, under, whole};
use super::{CALLER, TRACE};

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_says_for_what_and_each_attempt_stands_beside_the_other() {
    let collector = Collector::new().await;
    let stage = Stage::new(options(&collector)).await;
    let first = stage.submit(&whole("first")).await;
    let order = stage.run(&first).await;
    let second = stage.submit(&whole("second")).await;
    // It is asked what for.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    // The first gives way, and goes back behind the second.
    let stop = Wish::Stop {
        job: first.parse().unwrap(),
        reason: StopReason::Evicted,
    };
    stage
        .world
        .controller
        .submit(Actor::System, stop, None, None)
        .await
        .unwrap();
    let gone = RunState::Exited {
        exit_code: None,
        signal: None,
        by: Some(StopReason::Evicted),
    };
    stage.says(order.allocation, gone).await;
    // Whoever is placed first runs first.
    let mut left = BTreeSet::from([first.clone(), second.clone()]);
    while !left.is_empty() {
        for job in left.clone() {
            let attempt = if job == first { 2 } else { 1 };
            let Some((_, order)) = stage.farm.order(&job, attempt) else {
                continue;
            };
            stage.says(order.allocation, RunState::Running).await;
            stage.phase(&job, "running").await;
            stage.end(order.allocation, 0).await;
            stage.phase(&job, "done").await;
            left.remove(&job);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let spans = collector.job(&second).await;
    is_whole(&spans, None);
    let queued = one(&spans, "queued");
    assert_eq!(queued.text("tenure.waiting.code"), "no_capacity");
    assert!(queued.has("waiting") && !queued.text("tenure.waiting.reason").is_empty());

    let spans = collector.job(&first).await;
    is_whole(&spans, None);
    let attempts: Vec<&Span> = spans.iter().filter(|span| span.name == "attempt").collect();
    assert_eq!(attempts.len(), 2);
    let numbers: Vec<i64> = attempts
        .iter()
        .map(|span| span.number("tenure.attempt"))
        .collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(attempts[0].text("tenure.attempt.result"), "gave_way");
    assert!(attempts[0].has("evicted") && attempts[0].error.is_none());
    assert_eq!(one(&spans, "stopping").text("tenure.stop.reason"), "evicted");
    assert_eq!(spans.iter().filter(|span| span.name == "queued").count(), 2);
    assert_eq!(one(&spans, "job").number("tenure.attempts"), 2);

    // One that is lost is an error of its attempt, and of no other.
    let third = stage.submit(&whole("third")).await;
    let order = stage.run(&third).await;
    let vanished = Wish::Observe {
        node: stage.node,
        allocation: order.allocation,
        observation: Observation::Vanished,
    };
    let by = Actor::Node(stage.node);
    stage
        .world
        .controller
        .submit(by, vanished, None, None)
        .await
        .unwrap();
    let (_, order) = stage.order(&third, 2).await;
    stage.says(order.allocation, RunState::Running).await;
    stage.end(order.allocation, 0).await;
    let spans = collector.job(&third).await;
    is_whole(&spans, None);
    let errors: Vec<(&str, i64)> = spans
        .iter()
        .filter(|span| span.error.is_some() && span.name != "running")
        .map(|span| (span.name.as_str(), span.number("tenure.attempt")))
        .collect();
    assert_eq!(errors, [("attempt", 1)]);
    stage.world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_told_of_each_and_tasks_are_linked_to_their_job() {
    let collector = Collector::new().await;
    let stage = Stage::new(options(&collector)).await;
    stage.world.gpu("farm-2").await;
    let mut gang = whole("gang");
    gang["demand"]["nodes"] = json!(2);
    let job = stage.submit(&gang).await;
    stage.order(&job, 1).await;
    let id: JobId = job.parse().unwrap();
    let members: Vec<(AllocationId, NodeId)> = {
        let state = stage.world.controller.view().read();
        let members = state.jobs.get(&id).unwrap().members.iter();
        members.map(|member| (member.allocation, member.node)).collect()
    };
    for exit in [false, true] {
        for (allocation, node) in &members {
            let observation = match exit {
                false => Observation::Running,
                true => Observation::Exited {
                    exit_code: Some(0),
                    signal: None,
                    ran_ms: 5,
                    by: None,
                    usage: None,
                },
            };
            let wish = Wish::Observe {
                node: *node,
                allocation: *allocation,
                observation,
            };
            let by = Actor::Node(*node);
            stage.world.controller.submit(by, wish, None, None).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let spans = collector.job(&job).await;
    is_whole(&spans, None);
    let mut of: Vec<(&str, i64)> = spans
        .iter()
        .filter(|span| span.name == "member")
        .map(|span| (span.text("tenure.node"), span.number("tenure.member")))
        .collect();
    of.sort_unstable_by_key(|(_, member)| *member);
    let nodes: BTreeSet<&str> = of.iter().map(|(node, _)| *node).collect();
    assert_eq!((of.len(), nodes.len()), (2, 2), "{of:?}");
    let Some(Value::Texts(all)) = one(&spans, "attempt").attributes.get("tenure.nodes") else {
        panic!("no nodes")
    };
    assert_eq!(all.len(), 2);

    let frames = json!({
        "name": "film", "command": ["true"],
        "workload": { "rendering": { "frames": "1-2", "each_ms": 1000 } },
        "tasks": { "parallel": 2, "per_task": 1 },
        "demand": { "cpu_milli": 10, "memory_mib": 16 },
    });
    let parent = stage
        .submit_within(&frames, &[&format!("00-{TRACE}-{CALLER}-01")])
        .await;
    let id: JobId = parent.parse().unwrap();
    for _ in 0..4000 {
        let placed: Vec<(AllocationId, NodeId)> = {
            let state = stage.world.controller.view().read();
            let Some(job) = state.jobs.get(&id) else { break };
            let tasks = job.tasks.as_ref().unwrap().jobs(&state.jobs);
            let members = tasks.flat_map(|task| task.members.iter());
            members.map(|member| (member.allocation, member.node)).collect()
        };
        for (allocation, node) in placed {
            for observation in [
                Observation::Running,
                Observation::Exited {
                    exit_code: Some(0),
                    signal: None,
                    ran_ms: 5,
                    by: None,
                    usage: None,
                },
            ] {
                let wish = Wish::Observe {
                    node,
                    allocation,
                    observation,
                };
                let by = Actor::Node(node);
                let _ = stage.world.controller.submit(by, wish, None, None).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let spans = collector.job(&parent).await;
    is_whole(&spans, Some(CALLER));
    let whole = one(&spans, "job");
    assert_eq!(
        under(&spans, "job"),
        BTreeSet::from(["POST /v1/jobs", "queued", "running"])
    );
    let of = Value::Text(parent.clone());
    let all = collector
        .until(|spans| {
            let tasks = spans
                .iter()
                .filter(|span| span.attributes.get("tenure.task.of") == Some(&of));
            tasks.count() == 2
        })
        .await;
    let tasks: Vec<&Span> = all
        .iter()
        .filter(|span| span.attributes.get("tenure.task.of") == Some(&of))
        .collect();
    let traces: BTreeSet<&str> = tasks.iter().map(|task| task.trace.as_str()).collect();
    assert!(traces.len() == 2 && !traces.contains(TRACE), "each in its own");
    for task in tasks {
        assert_eq!((task.name.as_str(), &task.parent), ("job", &None));
        assert_eq!(task.links, [(TRACE.to_owned(), whole.id.clone())]);
    }
    stage.world.end().await;
}
