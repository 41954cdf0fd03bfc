//! A platform with money: a tenant with a subscriber, a book at each level, and a node on which time is metered. For the
//! tests of price books, adjustments, invoices and analysis.

use serde_json::{Value, json};
use tenure_domain::command::{Observation, Ran};
use tenure_domain::id::{AllocationId, GpuId, JobId, NodeId};
use tenure_domain::workload::usage::Usage;
use tenure_domain::{Actor, Wish};
use tenure_server::controller::now;

use crate::world::World;

pub struct Money {
    pub world: World,
    pub node: NodeId,
    pub acme: String,
    pub lab: String,
    pub ada: String,
    /// Tokens: the tenant's owner, its subscriber's billing clerk, its subscriber's member; the platform's clerk and
    /// auditor; somebody of another tenant.
    pub boss: String,
    pub clerk: String,
    pub member: String,
    pub staff: String,
    pub auditor: String,
    pub stranger: String,
    pub began: String,
}

impl Money {
    pub async fn new() -> Money {
        let began = now().rfc3339();
        let world = World::new().await;
        let acme = world.tenant("acme").await;
        let other = world.tenant("other").await;
        let lab = world.subscriber(&acme, "lab").await;
        let (_, boss) = world.user(&acme, "boss", Some("owner")).await;
        let (_, clerk) = world.user(&lab, "clerk", Some("billing")).await;
        let (ada, member) = world.user(&lab, "ada", Some("member")).await;
        let (_, staff) = world.user("platform", "staff", Some("billing")).await;
        let (_, auditor) = world.user("platform", "auditor", Some("auditor")).await;
        let (_, stranger) = world.user(&other, "stranger", Some("owner")).await;
        let gpu = world.gpu("farm").await;
        let node = node_of(&world, gpu);
        Money {
            world,
            node,
            acme,
            lab,
            ada,
            boss,
            clerk,
            member,
            staff,
            auditor,
            stranger,
            began,
        }
    }

    /// With a fifth more and a fee of a tenth from the platform, and half as much again from the tenant.
    pub async fn with_books() -> Money {
        let money = Money::new().await;
        let book = json!({ "book": { "markup_permille": 1200, "fee_permille": 100 } });
        let path = "/v1/scopes/platform/price-books";
        let set = money.world.put(&money.world.owner, path, book).await;
        assert_eq!(set.status, 200, "{set:?}");
        let book = json!({ "book": { "markup_permille": 1500 } });
        let path = format!("/v1/scopes/{}/price-books", money.acme);
        let set = money.world.put(&money.boss, &path, book).await;
        assert_eq!(set.status, 200, "{set:?}");
        money
    }

    /// A job of the subscriber's member on a whole GPU that runs.
    pub async fn job(&self, name: &str) -> (JobId, AllocationId) {
        self.job_of(name, json!({ "gpus": 1 })).await
    }

    pub async fn job_of(&self, name: &str, demand: Value) -> (JobId, AllocationId) {
        let spec = json!({ "name": name, "command": ["true"], "demand": demand, "run_time_s": 3600 });
        self.starts(spec).await
    }

    /// The same of any job that has one member.
    pub async fn starts(&self, spec: Value) -> (JobId, AllocationId) {
        let body = json!({ "owner": self.ada, "spec": spec });
        let id = self.world.post(&self.world.owner, "/v1/jobs", body).await.id();
        let job: JobId = id.parse().unwrap();
        let allocation = {
            let state = self.world.controller.view().read();
            let job = state.jobs.get(&job).expect("it lives");
            job.sole_allocation().expect("it was placed")
        };
        self.see(allocation, Observation::Running).await;
        (job, allocation)
    }

    pub async fn see(&self, allocation: AllocationId, observation: Observation) {
        let wish = Wish::Observe {
            node: self.node,
            allocation,
            observation,
        };
        let by = Actor::Node(self.node);
        self.world.controller.submit(by, wish, None, None).await.unwrap();
    }

    /// The node says how long it ran so far, and that its device worked for half of that.
    pub async fn meter(&self, allocation: AllocationId, ran_ms: u64) {
        self.meter_all(&[allocation], ran_ms).await;
    }

    /// The same of several in one report.
    pub async fn meter_all(&self, allocations: &[AllocationId], ran_ms: u64) {
        let usage = Usage {
            busy_ms: ran_ms / 2,
            peak_vram_mib: 100,
            ..Usage::default()
        };
        self.meters(allocations, ran_ms, usage).await;
    }

    /// The node says how long it ran so far, and what its device did.
    pub async fn meter_as(&self, allocation: AllocationId, ran_ms: u64, usage: Usage) {
        self.meters(&[allocation], ran_ms, usage).await;
    }

    async fn meters(&self, allocations: &[AllocationId], ran_ms: u64, usage: Usage) {
        let usage = Some(usage);
        let ran = allocations.iter().map(|&allocation| Ran {
            allocation,
            ran_ms,
            usage,
        });
        let wish = Wish::Meter {
            node: self.node,
            ran: ran.collect(),
        };
        let by = Actor::Node(self.node);
        self.world.controller.submit(by, wish, None, None).await.unwrap();
    }

    pub async fn exit(&self, allocation: AllocationId, ran_ms: u64) {
        let exited = Observation::Exited {
            exit_code: Some(0),
            signal: None,
            ran_ms,
            by: None,
            usage: None,
        };
        self.see(allocation, exited).await;
    }

    /// Nine seconds in three intervals.
    pub async fn use_some(&self) {
        let (_, allocation) = self.job("train").await;
        for ran_ms in [3000, 6000] {
            self.meter(allocation, ran_ms).await;
        }
        self.exit(allocation, 9000).await;
    }

    pub async fn get(&self, token: &str, path: &str) -> Value {
        let reply = self.world.get(token, path).await;
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        reply.json()
    }

    /// An invoice for all that was so far.
    pub async fn issue(&self, token: &str, scope: &str) -> Value {
        let body = json!({ "scope": scope, "since": self.began, "until": now().rfc3339() });
        let issued = self.world.post(token, "/v1/invoices", body).await;
        assert_eq!(issued.status, 201, "{issued:?}");
        issued.json()
    }
}

fn node_of(world: &World, gpu: GpuId) -> NodeId {
    let state = world.controller.view().read();
    let mut nodes = state.fleet.nodes();
    let node = nodes.find(|node| node.gpus.iter().any(|of| of.id == gpu));
    node.expect("it has a node").id
}
