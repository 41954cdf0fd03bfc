//! Gangs over HTTP: submitted, shown, read and ended as one, and what each node is told of its members.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde_json::{Value, json};
use tenure_api::channel::{AllocationReport, RunState};
use tenure_domain::command::Observation;
use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_domain::workload::job::StopReason;
use tenure_domain::{Actor, Event, Wish};
use tenure_server::reconcile::environment;
use tenure_server::reconcile::plan::{self, Step};

use crate::world::{World, spec};

fn gang(name: &str, nodes: u32) -> Value {
    let mut spec = spec(name);
    spec["demand"] = json!({ "nodes": nodes, "cpu_milli": 1000 });
    spec
}

struct Setting {
    world: World,
    key: String,
    job: JobId,
    /// Each member's allocation and node, by its number.
    members: Vec<(AllocationId, NodeId)>,
}

impl Setting {
    /// Two nodes with room for two members each, and a job over them.
    async fn new(members: u32) -> Setting {
        let world = World::new().await;
        let tenant = world.tenant("acme").await;
        let (_, key) = world.user(&tenant, "ada", Some("member")).await;
        world.node("alpha", 2000).await;
        world.node("beta", 2000).await;
        let taken = world
            .post(&key, "/v1/jobs", json!({ "spec": gang("train", members) }))
            .await;
        assert_eq!(taken.status, 201, "{taken:?}");
        let job: JobId = taken.id().parse().unwrap();
        let state = world.controller.view().read();
        let members = state.jobs[&job].members.iter();
        let members = members.map(|member| (member.allocation, member.node)).collect();
        drop(state);
        Setting {
            world,
            key,
            job,
            members,
        }
    }

    async fn see(&self, member: usize, observation: Observation) -> Vec<Event> {
        let (allocation, node) = self.members[member];
        let wish = Wish::Observe {
            node,
            allocation,
            observation,
        };
        let by = Actor::Node(node);
        let taken = self.world.controller.submit(by, wish, None, None).await.unwrap();
        taken.events.iter().map(|event| (**event).clone()).collect()
    }

    async fn shown(&self) -> Value {
        let path = format!("/v1/jobs/{}", self.job);
        self.world.get(&self.key, &path).await.json()
    }
}

fn exited(exit_code: Option<i32>, by: Option<StopReason>) -> Observation {
    Observation::Exited {
        exit_code,
        signal: None,
        ran_ms: 1,
        by,
        usage: None,
    }
}

/// Which of two like nodes goes first is nobody's matter.
fn are_two_and_two(names: &[&str]) -> bool {
    names == ["alpha", "alpha", "beta", "beta"] || names == ["beta", "beta", "alpha", "alpha"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_is_shown_read_and_ended_as_one() {
    let setting = Setting::new(4).await;
    let shown = setting.shown().await;
    assert_eq!(shown["phase"], "placed");
    let names: Vec<&str> = shown["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|member| member["node_name"].as_str().unwrap())
        .collect();
    assert!(are_two_and_two(&names), "{names:?}");
    for member in 0..4 {
        setting.see(member, Observation::Running).await;
    }
    assert_eq!(setting.shown().await["phase"], "running");

    let logs = |member: &str| format!("/v1/jobs/{}/logs{member}", setting.job);
    for member in ["", "?member=0", "?member=3"] {
        let read = setting.world.get(&setting.key, &logs(member)).await;
        assert_eq!((read.status.as_u16(), &read.bytes[..]), (200, &b"a line\n"[..]));
    }
    let beyond = setting.world.get(&setting.key, &logs("?member=4")).await;
    assert_eq!(beyond.code(), "invalid_field", "{beyond:?}");

    let path = |what: &str| format!("/v1/jobs/{}/{what}", setting.job);
    let pause = setting
        .world
        .request(Method::POST, &path("pause"), Some(&setting.key));
    let size = json!({ "compute_permille": 500 });
    for refused in [
        setting.world.send(pause).await,
        setting.world.post(&setting.key, &path("resize"), size).await,
    ] {
        assert_eq!(refused.code(), "wrong_phase", "{refused:?}");
    }

    // One fails: its node is done with it, the others are told to end, and the job ends with the last of them.
    let events = setting.see(2, exited(Some(3), None)).await;
    let stops: Vec<(NodeId, Step)> = {
        let state = setting.world.controller.view().read();
        let steps = events.iter().flat_map(|event| plan::steps_for(&state, event));
        steps.collect()
    };
    let stopped: BTreeSet<AllocationId> = stops
        .iter()
        .map(|(_, step)| match step {
            Step::Stop {
                allocation, reason, ..
            } => {
                assert_eq!(*reason, StopReason::Evicted, "a node need not know of members");
                *allocation
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let others = [0, 1, 3].map(|member: usize| setting.members[member].0);
    assert_eq!(stopped, others.into());
    let shown = setting.shown().await;
    assert_eq!(shown["phase"], "stopping");
    assert_eq!(shown["stopping"], "member_failed");
    assert_eq!(shown["members"][2]["phase"], "ended");
    assert_eq!(shown["members"][2]["end"]["exit_code"], 3);
    for member in [0, 1, 3] {
        assert_ne!(setting.shown().await["phase"], "done");
        setting.see(member, exited(None, Some(StopReason::Evicted))).await;
    }
    let shown = setting.shown().await;
    assert_eq!(shown["phase"], "done");
    assert_eq!(
        shown["outcome"],
        json!({ "result": "failed", "exit_code": 3, "member": 2 })
    );
    assert_eq!(shown["members"].as_array().unwrap().len(), 4);
    let read = setting.world.get(&setting.key, &logs("?member=3")).await;
    assert_eq!(read.bytes, b"a line\n", "a member's log outlives the job");
    setting.world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_is_told_of_its_own_members_until_it_has_them() {
    let setting = Setting::new(3).await;
    let (first, alpha) = setting.members[0];
    let (second, _) = setting.members[1];
    let report = |allocation, state| AllocationReport {
        allocation,
        ran_ms: 1,
        state,
        usage: None,
        saved_ago_ms: None,
        kept: None,
        conduct: None,
    };
    let steps = |reports: &[AllocationReport]| {
        let state = setting.world.controller.view().read();
        plan::steps(&state, alpha, true, reports)
    };
    assert_eq!(steps(&[]), [Step::Start(first), Step::Start(second)]);
    setting.see(0, Observation::Running).await;
    // The job has yet to start, and this member of it runs: it is neither started again nor said again.
    let seen = [
        report(first, RunState::Running),
        report(second, RunState::Starting),
    ];
    assert_eq!(
        steps(&seen),
        [Step::Observe {
            allocation: second,
            observation: Observation::Starting
        }]
    );
    let late = tenure_domain::Time(i64::MAX / 2);
    let again = plan::sweep(&setting.world.controller.view().read(), alpha, late);
    assert_eq!(again, [Step::Start(second)]);
    // What ran and is not there any more is lost, though the job is only placed.
    assert_eq!(
        steps(&seen[1..]),
        [
            Step::Observe {
                allocation: second,
                observation: Observation::Starting
            },
            Step::Observe {
                allocation: first,
                observation: Observation::Vanished
            }
        ]
    );
    setting.world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_says_it_saved_is_noted_now_and_then_and_shown() {
    let setting = Setting::new(2).await;
    let (first, node) = setting.members[0];
    let news = |ago_ms| {
        let report = AllocationReport {
            allocation: first,
            ran_ms: 1,
            state: RunState::Running,
            usage: None,
            saved_ago_ms: ago_ms,
            kept: None,
            conduct: None,
        };
        let state = setting.world.controller.view().read();
        plan::saved(
            &state,
            node,
            &[report],
            tenure_server::controller::now().plus_ms(60_000),
        )
    };
    let saved = |ago_ms| {
        [Step::Observe {
            allocation: first,
            observation: Observation::Saved { ago_ms },
        }]
    };
    assert_eq!(news(Some(0)), [], "it does not run yet");
    for member in [0, 1] {
        setting.see(member, Observation::Running).await;
    }
    assert_eq!((news(None), news(Some(5))), (vec![], saved(5).into()));
    assert!(setting.shown().await["saved"].is_null());
    setting.see(0, Observation::Saved { ago_ms: 0 }).await;
    assert!(
        setting.shown().await["saved"].is_string(),
        "{:?}",
        setting.shown().await
    );
    // It was just said; half a minute on it is said again.
    assert_eq!(news(Some(40_000)), []);
    assert_eq!(news(Some(10_000)), saved(10_000));
    setting.world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn members_know_their_number_and_where_the_others_are() {
    let told = |setting: &Setting, member: usize| -> BTreeMap<String, String> {
        let state = setting.world.controller.view().read();
        let allocation = state.fleet.allocation(setting.members[member].0).unwrap();
        environment(&state, &state.jobs[&setting.job], allocation)
            .into_iter()
            .collect()
    };
    let apart = Setting::new(4).await;
    let third = told(&apart, 2);
    assert_eq!(third["TENURE_MEMBER"], "2");
    assert_eq!(third["TENURE_MEMBERS"], "4");
    let peers: Vec<&str> = third["TENURE_PEERS"].split(',').collect();
    assert!(are_two_and_two(&peers), "{peers:?}");
    assert!(
        !third.contains_key("MASTER_ADDR"),
        "between nodes there is no address that could be true"
    );
    apart.world.end().await;
    let together = Setting::new(2).await;
    let (first, second) = (told(&together, 0), told(&together, 1));
    assert!(["alpha,alpha", "beta,beta"].contains(&&*second["TENURE_PEERS"]));
    assert_eq!(first["MASTER_ADDR"], "127.0.0.1");
    assert_eq!(first["MASTER_PORT"], second["MASTER_PORT"]);
    together.world.end().await;
}
