//! A world that writes down what was wished, what happened, and why things wait, in words a person reads.

use std::collections::BTreeMap;
use std::fmt::Write;

use tenure_domain::command::{Observation, Ran};
use tenure_domain::id::{AllocationId, GpuId, JobId, NodeId, UserId};
use tenure_domain::schedule::why::why;
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::Outcome;
use tenure_domain::workload::spec::JobSpec;
use tenure_domain::{Actor, Event, Refusal, Wish};

use crate::world::World;

pub struct Story {
    pub world: World,
    text: String,
    jobs: BTreeMap<JobId, String>,
    /// The numbers of all members there ever were.
    members: BTreeMap<AllocationId, u32>,
}

impl Story {
    pub fn new(world: World) -> Story {
        Story {
            world,
            text: String::new(),
            jobs: BTreeMap::new(),
            members: BTreeMap::new(),
        }
    }

    pub fn say(&mut self, line: &str) {
        let now = self.world.now.rfc3339();
        writeln!(self.text, "\n# {line}   ({now})").expect("text");
    }

    pub fn tell(&mut self, wished: &str, by: Actor, wish: Wish) -> Option<Vec<Event>> {
        writeln!(self.text, "> {wished}").expect("text");
        let answer = self.world.act(by, wish);
        match &answer {
            Err(refusal) => self.refused(refusal),
            Ok(events) if events.is_empty() => self.line("nothing changes"),
            Ok(events) => {
                for event in events {
                    self.happened(event);
                }
            }
        }
        answer.ok()
    }

    /// One event, and the names it brings.
    fn happened(&mut self, event: &Event) {
        match event {
            Event::JobSubmitted { job, spec, .. } => {
                self.jobs.insert(*job, spec.name.clone());
            }
            Event::JobPlaced {
                allocation, others, ..
            } => {
                let all = [allocation].into_iter().chain(others);
                self.members.extend(all.map(|one| (one.id, one.member)));
            }
            _ => {}
        }
        let line = self.event(event);
        self.line(&line);
    }

    pub fn root(&mut self, wished: &str, wish: Wish) -> Option<Vec<Event>> {
        let root = Actor::user(self.world.root);
        self.tell(wished, root, wish)
    }

    pub fn submit(&mut self, owner: UserId, spec: JobSpec) -> Option<JobId> {
        let (who, name) = (
            self.world.state.tree.title(ScopeId::User(owner)),
            spec.name.clone(),
        );
        let events = self.tell(
            &format!("{who} submits {name}"),
            Actor::user(owner),
            Wish::Submit {
                owner,
                spec: spec.into(),
                trace: None,
            },
        )?;
        let job = events.iter().find_map(|event| {
            if let Event::JobSubmitted { job, .. } = event {
                Some(*job)
            } else {
                None
            }
        });
        job.inspect(|&job| self.why(job))
    }

    pub fn observe(&mut self, job: JobId, observation: Observation) {
        let (allocation, node) = self.world.allocation(job).expect("the job is placed");
        let wished = format!(
            "{} reports of {}: {observation:?}",
            self.node(node),
            self.jobs[&job]
        );
        self.tell(
            &wished,
            Actor::Node(node),
            Wish::Observe {
                node,
                allocation,
                observation,
            },
        );
    }

    pub fn observe_member(&mut self, job: JobId, member: u32, observation: Observation) {
        let (allocation, node) = self.world.member(job, member).expect("the member is placed");
        let wished = format!(
            "{} reports of {} {member}: {observation:?}",
            self.node(node),
            self.jobs[&job]
        );
        let wish = Wish::Observe {
            node,
            allocation,
            observation,
        };
        self.tell(&wished, Actor::Node(node), wish);
    }

    pub fn exit(&mut self, job: JobId, ran_s: u64) {
        self.observe(
            job,
            Observation::Exited {
                exit_code: Some(0),
                signal: None,
                ran_ms: ran_s * 1000,
                by: None,
                usage: None,
            },
        );
    }

    pub fn meter(&mut self, job: JobId, ran_s: u64) {
        let (allocation, node) = self.world.allocation(job).expect("the job is placed");
        let wished = format!("{} meters {}: {ran_s} s so far", self.node(node), self.jobs[&job]);
        self.tell(
            &wished,
            Actor::Node(node),
            Wish::Meter {
                node,
                ran: vec![Ran {
                    allocation,
                    ran_ms: ran_s * 1000,
                    usage: None,
                }],
            },
        );
    }

    pub fn schedule(&mut self) {
        loop {
            writeln!(self.text, "> a pass over the queue").expect("text");
            let events = self.world.schedule_one();
            if events.is_empty() {
                self.line("nothing changes");
                break;
            }
            for event in &events {
                self.happened(event);
            }
        }
        let waiting: Vec<JobId> = self.world.state.queue.iter().map(|key| key.1).collect();
        waiting.into_iter().for_each(|job| self.why(job));
    }

    pub fn why(&mut self, job: JobId) {
        if let Some(reason) = why(&self.world.state, job, self.world.now) {
            let hint = reason.hint.as_deref().unwrap_or("-");
            self.line(&format!(
                "{} waits: {} — {}; {hint}",
                self.jobs[&job],
                reason.code.as_str(),
                reason.sentence
            ));
        }
    }

    /// What a scope uses, has spent and has held.
    pub fn counts(&mut self, scope: ScopeId) {
        let place = self.world.state.tree.get(scope).expect("a scope").clone();
        let used: Vec<String> = place
            .used
            .iter()
            .map(|(meter, n)| format!("{meter} {n}"))
            .collect();
        let total = place.spending.at(
            &tenure_domain::meter::Of::All,
            tenure_domain::time::Period::Month,
            self.world.now,
        );
        let line = format!(
            "{} uses [{}]; this month {} spent, {} held, {} GPU-s spent, {} held",
            self.title(scope),
            used.join(", "),
            total.spent.money,
            total.held.money,
            total.spent.gpu_ms / 1000,
            total.held.gpu_ms / 1000
        );
        self.line(&line);
    }

    pub fn line(&mut self, line: &str) {
        writeln!(self.text, "    {line}").expect("text");
    }

    fn refused(&mut self, refusal: &Refusal) {
        let field = refusal
            .field
            .as_deref()
            .map_or(String::new(), |field| format!(" at {field}"));
        let hint = refusal
            .hint
            .as_deref()
            .map_or(String::new(), |hint| format!("; {hint}"));
        self.line(&format!(
            "REFUSED {}{field}: {}{hint}",
            refusal.code.as_str(),
            refusal.sentence
        ));
    }

    fn title(&self, scope: ScopeId) -> String {
        self.world.state.tree.title(scope)
    }

    fn node(&self, node: NodeId) -> String {
        self.world
            .state
            .fleet
            .node(node)
            .map_or_else(|| "a node that is gone".into(), |node| node.name.to_string())
    }

    fn gpu(&self, gpu: GpuId) -> String {
        let all = self.world.state.fleet.nodes().flat_map(|node| &node.gpus);
        all.into_iter()
            .find(|known| known.id == gpu)
            .map_or_else(|| "a GPU that is gone".into(), |gpu| gpu.facts.uuid.clone())
    }

    fn event(&self, event: &Event) -> String {
        let job = |job: &JobId| self.jobs.get(job).cloned().unwrap_or_default();
        let kind = event.kind();
        match event {
            Event::JobSubmitted { job: id, .. } => format!("{kind} {}", job(id)),
            Event::JobAdmitted { job: id, admission } => {
                let hold = &admission.hold;
                format!(
                    "{kind} {}: {} an hour, {} and {} GPU-s held",
                    job(id),
                    hold.hourly,
                    hold.left.money,
                    hold.left.gpu_ms / 1000
                )
            }
            Event::JobPlaced {
                job: id,
                allocation,
                others,
            } if !others.is_empty() => {
                let members = [allocation].into_iter().chain(others).map(|allocation| {
                    let gpus: Vec<String> = allocation.slices.iter().map(|s| self.gpu(s.gpu)).collect();
                    format!(
                        "{} on {} [{}]",
                        allocation.member,
                        self.node(allocation.node),
                        gpus.join(", ")
                    )
                });
                let members: Vec<String> = members.collect();
                let attempt = allocation.attempt;
                format!("{kind} {} attempt {attempt}: {}", job(id), members.join("; "))
            }
            Event::MemberStarting { job: id, allocation } | Event::MemberRunning { job: id, allocation } => {
                format!("{kind} {} {}", job(id), self.members[allocation])
            }
            Event::MemberEnded {
                job: id,
                allocation,
                end,
            } => format!("{kind} {} {}: {end:?}", job(id), self.members[allocation]),
            Event::JobPlaced {
                job: id, allocation, ..
            } => {
                let slices: Vec<String> = allocation
                    .slices
                    .iter()
                    .map(|s| format!("{} {} ‰ {} MiB", self.gpu(s.gpu), s.compute_permille, s.vram_mib))
                    .collect();
                format!(
                    "{kind} {} on {} attempt {} [{}] {}",
                    job(id),
                    self.node(allocation.node),
                    allocation.attempt,
                    slices.join(", "),
                    allocation.isolation.as_str()
                )
            }
            Event::UsageMetered { charges, .. } => {
                let charges: Vec<String> = charges
                    .iter()
                    .map(|c| {
                        format!(
                            "{} [{}, {}) ms costs {} from {} to {}",
                            job(&c.job),
                            c.from_ms,
                            c.to_ms,
                            c.cost.money,
                            account(self, c.posting.from),
                            account(self, c.posting.to)
                        )
                    })
                    .collect();
                format!("{kind} {}", charges.join("; "))
            }
            Event::JobEnded { job: id, outcome } => match outcome {
                Outcome::GaveUp { attempts } => {
                    format!("{kind} {}: gave_up after {attempts} attempts", job(id))
                }
                other => format!("{kind} {}: {}", job(id), other.as_str()),
            },
            Event::JobResized {
                job: id,
                demand,
                admission,
                ..
            } => format!(
                "{kind} {}: {} thousandths, {} MiB, hold {} for the rest",
                job(id),
                demand.compute_permille,
                demand.vram_mib,
                admission.hold.left.money
            ),
            Event::JobResuming {
                job: id, admission, ..
            } => format!(
                "{kind} {}: hold {} for the rest",
                job(id),
                admission.hold.left.money
            ),
            Event::JobPausing { job: id, reason } => format!("{kind} {}: {reason:?}", job(id)),
            Event::JobPaused { job: id } | Event::JobWanted { job: id } => format!("{kind} {}", job(id)),
            Event::JobKept { job: id, why } => format!("{kind} {}: {why}", job(id)),
            Event::JobRequeued { job: id, why, .. } => format!("{kind} {}: {why}", job(id)),
            Event::JobStopping { job: id, reason } => format!("{kind} {}: {reason:?}", job(id)),
            Event::JobPromised { promise } => {
                let rooms = promise.rooms().map(|(node, slices)| {
                    let gpus: Vec<String> = slices.iter().map(|slice| self.gpu(slice.gpu)).collect();
                    format!("{} [{}]", self.node(node), gpus.join(", "))
                });
                let rooms: Vec<String> = rooms.collect();
                let victims: Vec<String> = promise.victims.iter().map(&job).collect();
                let how = match victims.is_empty() {
                    true => format!("from {} on", promise.from.rfc3339()),
                    false => format!("when {} left", victims.join(" and ")),
                };
                format!(
                    "{kind} {}: room on {} {how}",
                    job(&promise.job),
                    rooms.join(" and ")
                )
            }
            Event::PromiseWithdrawn { job: id, why } => format!("{kind} {}: {why}", job(id)),
            Event::JobStarting { job: id } | Event::JobRunning { job: id } => format!("{kind} {}", job(id)),
            Event::NodeLost { node } | Event::NodeReturned { node } => format!("{kind} {}", self.node(*node)),
            Event::ScopeMoved { scope, parent } => {
                format!("{kind} {} under {}", self.title(*scope), self.title(*parent))
            }
            Event::ScopeSuspended { scope } | Event::ScopeResumed { scope } => {
                format!("{kind} {}", self.title(*scope))
            }
            Event::QuotaSet { scope, quota } => format!(
                "{kind} {}: {}",
                self.title(*scope),
                serde_json::to_string(quota).expect("a quota")
            ),
            Event::ShareSet { scope, share } => format!(
                "{kind} {}: {}",
                self.title(*scope),
                serde_json::to_string(share).expect("a share")
            ),
            Event::BudgetsSet { scope, budgets } => format!(
                "{kind} {}: {}",
                self.title(*scope),
                serde_json::to_string(budgets).expect("budgets")
            ),
            Event::PolicySet { scope, policy } => format!(
                "{kind} {}: {}",
                self.title(*scope),
                serde_json::to_string(policy).expect("a policy")
            ),
            Event::RulesSet { scope, .. } => format!("{kind} {}", self.title(*scope)),
            Event::SkuDefined { sku } => format!("{kind} {}", sku.name),
            _ => kind.into(),
        }
    }

    pub fn check(self, name: &str) {
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../scenarios");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!(name, self.text.trim_start()));
    }
}

fn account(story: &Story, id: tenure_domain::ledger::account::AccountId) -> String {
    match id {
        tenure_domain::ledger::account::AccountId::Tenant(tenant) => {
            story.world.state.tree.title(ScopeId::Tenant(tenant))
        }
        other => other.to_string(),
    }
}
