//! Folding events into the state. One arm an event; each says what changed and nothing decides.

mod booking;
mod living;
mod market;
mod probe;
mod scope;
mod settle;
mod task;
mod webhook;

use std::sync::Arc;

use super::{JoinToken, Retired, State};
use crate::audit::JobAudit;
use crate::audit::conduct::SignedConduct;
use crate::audit::habit::WorkloadKey;
use crate::event::Event;
use crate::id::{AllocationId, GpuId, JobId, NodeId, UserId, VolumeId};
use crate::ledger::adjust::AdjustmentKind;
use crate::ledger::book::BookEntry;
use crate::ledger::invoice::Invoice;
use crate::schedule::allocation::Allocation;
use crate::schedule::fleet::{Node, NodeStatus};
use crate::storage::volume::{Volume, amounts};
use crate::tenancy::budget::Cost;
use crate::tenancy::scope::{Scope, ScopeId};
use crate::time::{SECOND_MS, Time};
use crate::workload::job::{Admission, DoneJob, Evictions, Job, Outcome, Phase, StopReason};
use crate::workload::learnt::{Run, signature};
use crate::workload::member::{Member, MemberEnd, MemberPhase, advance};
use crate::workload::spec::JobSpec;
use crate::workload::task::Tasks;

impl State {
    /// Takes in one event; gives what thereby left the live state.
    pub fn apply(&mut self, at: Time, event: &Event) -> Option<Retired> {
        let watched = self.watched_by_auto(event);
        let retired = self.fold(at, event);
        if let Some(tenant) = watched {
            self.note_for_auto(tenant, at);
        }
        retired
    }

    fn fold(&mut self, at: Time, event: &Event) -> Option<Retired> {
        match event {
            Event::PlatformFounded { name, prices } => {
                self.name.clone_from(name);
                self.prices = prices.clone();
                self.tree
                    .insert(Scope::new(ScopeId::Platform, None, "platform", at));
            }
            Event::ScopeCreated {
                scope,
                parent,
                name,
                user,
            } => {
                self.saw_id(scope_number(*scope));
                let mut new = Scope::new(*scope, Some(*parent), name, at);
                new.user.clone_from(user);
                self.tree.insert(new);
            }
            Event::ScopeSuspended { scope } => self.change(*scope, |scope| scope.suspended = true),
            Event::ScopeResumed { scope } => self.change(*scope, |scope| scope.suspended = false),
            Event::ScopeMoved { scope, parent } => self.move_scope(*scope, *parent),
            Event::ScopeClosed { scope } => return Some(self.close_scope(at, *scope)),
            Event::IdentitySet { user, identity } => {
                let mut scope = self.tree.remove(ScopeId::User(*user));
                if let Some(facts) = &mut scope.user {
                    facts.identity.clone_from(identity);
                }
                scope.revision += 1;
                self.tree.insert(scope);
            }
            Event::RoleGranted { scope, user, role } => self.change(*scope, |scope| {
                scope.roles.entry(*user).or_default().insert(*role);
            }),
            Event::RoleRevoked { scope, user, role } => self.change(*scope, |scope| {
                if let Some(roles) = scope.roles.get_mut(user) {
                    roles.remove(role);
                    if roles.is_empty() {
                        scope.roles.remove(user);
                    }
                }
            }),
            Event::KeyCreated { key } => {
                self.saw_id(key.id.0);
                self.keys.insert(key.clone());
            }
            Event::KeyRevoked { key } => self.keys.remove(*key),
            Event::QuotaSet { scope, quota } => {
                self.change(*scope, |scope| scope.quota = quota.clone());
                self.bookings.count_for(&self.tree, *scope);
            }
            Event::ShareSet { scope, share } => self.change(*scope, |scope| scope.share = share.clone()),
            Event::LogKeepingSet { scope, keeping } => self.change(*scope, |scope| scope.keeping = *keeping),
            Event::BudgetsSet { scope, budgets } => self.change(*scope, |scope| {
                scope.budgets = budgets.clone();
                scope.told.forget();
            }),
            Event::BudgetAlerted { scope, alert } => self.tree.get_mut(*scope).told.tell(alert),
            Event::PolicySet { scope, policy } => self.change(*scope, |scope| scope.policy = policy.clone()),
            Event::RulesSet { scope, rules } => self.change(*scope, |scope| scope.rules = rules.clone()),
            Event::SecretStored { scope, name, secret } => {
                self.saw_id(secret.0);
                self.secrets.insert((*scope, name.clone()), *secret);
            }
            Event::SecretErased { scope, name, .. } => {
                self.secrets.remove(&(*scope, name.clone()));
            }
            Event::VolumeCreated {
                volume,
                scope,
                name,
                size_mib,
            } => {
                self.saw_id(volume.0);
                self.volumes.insert(Volume {
                    id: *volume,
                    scope: *scope,
                    name: name.clone(),
                    size_mib: *size_mib,
                    created: at,
                    node: None,
                    removed: false,
                    revision: 1,
                });
                self.hold_volume(*scope, *size_mib);
            }
            Event::VolumeBound { volume, node, .. } => {
                let size_mib = self
                    .volumes
                    .change(*volume, |volume| volume.node = Some(*node))
                    .size_mib;
                self.fleet
                    .change_node(*node, |node| node.used_volume_mib += size_mib);
            }
            Event::VolumeGrown {
                volume,
                scope,
                size_mib,
            } => {
                let mut more = 0;
                let grown = self.volumes.change(*volume, |volume| {
                    more = *size_mib - volume.size_mib;
                    volume.size_mib = *size_mib;
                });
                if let Some(node) = grown.node {
                    self.fleet.change_node(node, |node| node.used_volume_mib += more);
                }
                self.hold_volume(*scope, more);
            }
            Event::VolumeRemoved { volume, scope } => {
                let removed = amounts(self.volumes.remove(*volume).size_mib);
                self.tree.for_chain(*scope, |scope| scope.used.remove(&removed));
            }
            Event::VolumeErased { volume, node, .. } => {
                let size_mib = self.volumes.forget(*volume).size_mib;
                self.fleet
                    .change_node(*node, |node| node.used_volume_mib -= size_mib);
            }
            Event::AccessRefused { .. } => {}
            Event::PricesSet { prices } => self.prices = prices.clone(),
            Event::Adjusted { adjustment } => {
                self.saw_id(adjustment.id.0);
                self.accounts.post(&adjustment.posting);
                if let (Some(invoice), AdjustmentKind::Refund) = (adjustment.invoice, adjustment.kind) {
                    let amount = adjustment.amount.0;
                    self.invoices
                        .change(invoice, |invoice| invoice.refunded.0 += amount);
                }
            }
            Event::InvoiceIssued { invoice } => {
                self.saw_id(invoice.id.0);
                self.invoices.issue(Invoice::clone(invoice));
            }
            Event::InvoicePaid { invoice, posting, .. } => {
                posting.iter().for_each(|posting| self.accounts.post(posting));
                self.invoices.change(*invoice, |invoice| invoice.paid = Some(at));
            }
            Event::BookSet { entry } => self.books.set(BookEntry::clone(entry), at),
            Event::SkuDefined { sku } => {
                self.skus.insert(sku.key(), sku.clone());
            }
            Event::SkuRemoved { name } => {
                self.skus.remove(name);
            }

            Event::JoinTokenCreated {
                token,
                digest,
                expires,
                tenant,
            } => {
                self.saw_id(token.0);
                self.join_tokens.retain(|_, token| token.expires > at);
                self.join_tokens.insert(
                    *token,
                    JoinToken {
                        digest: *digest,
                        expires: *expires,
                        tenant: *tenant,
                    },
                );
            }
            Event::NodeJoined {
                node,
                name,
                key,
                token,
                owner,
            } => {
                self.saw_id(node.0);
                self.join_tokens.remove(token);
                let mut joined = Node::new(*node, name, *key, at);
                joined.owner = *owner;
                joined.labels.dedicated = *owner;
                self.fleet.join(joined);
            }
            Event::NodeInventoried {
                node,
                inventory,
                gpus,
            } => {
                gpus.iter().for_each(|gpu| self.saw_id(gpu.0));
                self.doubt_changed(at, *node, inventory, gpus);
                self.fleet.inventory(*node, inventory, gpus);
            }
            Event::NodeLabelled { node, labels } => {
                self.fleet.change_node(*node, |node| node.labels = labels.clone())
            }
            Event::NodeLost { node } => self
                .fleet
                .change_node(*node, |node| node.status = NodeStatus::Lost),
            Event::NodeReturned { node } => self.fleet.change_node(*node, |node| {
                node.status = if node.cordoned {
                    NodeStatus::Cordoned
                } else {
                    NodeStatus::Up
                };
            }),
            Event::NodeCordoned { node } => self.fleet.change_node(*node, |node| {
                node.status = NodeStatus::Cordoned;
                node.cordoned = true;
            }),
            Event::NodeUncordoned { node } => self.fleet.change_node(*node, |node| {
                node.status = NodeStatus::Up;
                node.cordoned = false;
            }),
            Event::NodeKeyAdded { node, key } => self.fleet.change_node(*node, |node| node.keys.push(*key)),
            Event::NodeKeyRevoked { node, key } => self
                .fleet
                .change_node(*node, |node| node.keys.retain(|known| known != key)),
            Event::NodeRemoved { node } => {
                self.calendar.remove_node(*node);
                self.fleet.remove(*node);
                self.prune_checks();
            }
            Event::DeviceScrubbed { node, receipt, .. } => self
                .fleet
                .change_node(*node, |node| node.last_receipt = receipt.number),
            Event::GpuQuarantined { node, gpu, why } => {
                self.quarantine(*node, *gpu, Some(why.as_str().into()))
            }
            Event::GpuReleased { node, gpu } => self.quarantine(*node, *gpu, None),

            Event::JobSubmitted {
                job,
                owner,
                spec,
                volumes,
                derivation,
                trace,
            } => {
                self.submit(at, *job, *owner, spec, volumes);
                let job = self.living_job(*job);
                job.derivation.clone_from(derivation);
                job.trace = *trace;
            }
            Event::TaskSubmitted { job, task } => self.submit_task(at, *job, task),
            Event::PiecesReturned {
                job,
                again,
                failed,
                withdrawn,
                ..
            } => self
                .tasks_of(*job)
                .pieces_mut()
                .returned(again, *failed, *withdrawn),
            Event::ServiceScaled {
                job,
                replicas,
                wanted,
                ..
            } => self.change_serving(*job, |serving| serving.scaled(*replicas, *wanted)),
            Event::ReplicaFailed { job, why, .. } => {
                self.change_serving(*job, |serving| serving.failed(at, 0, why.clone()))
            }
            Event::ServiceUsed { job, uses } => self.change_serving(*job, |serving| serving.used(uses)),
            Event::JobPromised { promise } => {
                for victim in &promise.victims {
                    self.living_job(*victim).evictions.note(at);
                }
                self.calendar.insert(promise.clone());
            }
            Event::PromiseWithdrawn { job, .. } => self.calendar.remove(*job),
            Event::JobAdmitted { job, admission } => self.admit(at, *job, admission),
            Event::JobPlaced {
                job,
                allocation,
                others,
            } => self.place(at, *job, [allocation].into_iter().chain(others)),
            Event::JobStarting { job } => self.change_job(at, *job, Phase::Starting, |job| {
                advance(&mut job.members, MemberPhase::Starting)
            }),
            Event::JobRunning { job } => self.change_job(at, *job, Phase::Running, |job| {
                job.started = job.started.or(Some(at));
                advance(&mut job.members, MemberPhase::Running);
            }),
            Event::MemberStarting { job, allocation } => {
                self.member(*job, *allocation).phase = MemberPhase::Starting
            }
            Event::MemberRunning { job, allocation } => {
                self.member(*job, *allocation).phase = MemberPhase::Running
            }
            Event::MemberEnded { job, allocation, end } => self.end_member(*job, *allocation, end),
            Event::JobResized {
                job,
                demand,
                admission,
                slices,
            } => self.resize(at, *job, demand, admission, slices),
            Event::JobRepriced { job, admission } => self.reprice(at, *job, admission),
            Event::JobSaved { job, saved } => {
                let job = self.living_job(*job);
                job.saved = job.saved.max(Some(*saved));
            }
            Event::JobPausing { job, reason } => self.pause(at, *job, *reason),
            Event::JobPaused { job } => self.set_aside(at, *job, false),
            Event::JobWanted { job } => {
                self.want_tasks(at, *job);
                self.living_job(*job).pause = None;
                self.queue.add(&self.jobs[job]);
            }
            Event::JobResuming {
                job,
                admission,
                slices,
            } => {
                self.admit(at, *job, admission);
                self.change_job(at, *job, Phase::Resuming, |_| {});
                let allocation = self.jobs[job].sole_allocation();
                let allocation = allocation.expect("INVARIANT: what is paused has a place");
                self.fleet.take_up(allocation, slices);
                let node = self
                    .fleet
                    .allocation(allocation)
                    .map(|allocation| allocation.node);
                let gpus = node
                    .into_iter()
                    .flat_map(|node| slices.iter().map(move |slice| (node, slice.gpu)));
                self.note_booked_use(ScopeId::User(self.jobs[job].owner), &gpus.collect::<Vec<_>>());
            }
            Event::JobKept { job, .. } => match self.jobs[job].phase {
                Phase::Resuming => self.set_aside(at, *job, true),
                _ => self.change_job(at, *job, Phase::Running, |job| job.pause = None),
            },
            Event::JobStopping { job, reason } => {
                self.queue.remove(&self.jobs[job]);
                self.change_job(at, *job, Phase::Stopping, |job| job.stop = Some(*reason))
            }
            Event::UsageMetered { charges, .. } => charges.iter().for_each(|charge| self.charge(at, charge)),
            Event::JobRequeued { job, vram_mib, .. } => self.requeue(at, *job, *vram_mib),
            Event::JobEnded { job, outcome } => return Some(self.end_job(at, *job, outcome)),

            Event::ConductNoted {
                job, record, strange, ..
            } => self.note_conduct(at, *job, record, *strange),
            Event::AnomalyFound { job, anomaly, .. } => {
                self.living_job(*job).audit.found(anomaly.clone());
            }

            Event::BookingTermsSet { .. }
            | Event::BookingMade { .. }
            | Event::BookingChanged { .. }
            | Event::BookingRenewed { .. }
            | Event::BookingEnded { .. }
            | Event::WindowClearing { .. }
            | Event::WindowOpened { .. }
            | Event::WindowDown { .. }
            | Event::WindowRestored { .. }
            | Event::WindowMoved { .. }
            | Event::WindowExtended { .. }
            | Event::WindowClosed { .. } => self.apply_booking(at, event),

            Event::MarketTermsSet { .. }
            | Event::OfferMade { .. }
            | Event::OfferRenewed { .. }
            | Event::OfferWithdrawn { .. }
            | Event::AutoOfferSet { .. }
            | Event::AutoOfferRemoved { .. }
            | Event::BidPlaced { .. }
            | Event::BidEnded { .. }
            | Event::LeaseBegan { .. }
            | Event::LeaseRecalled { .. }
            | Event::LeaseVacating { .. }
            | Event::LeaseEnded { .. }
            | Event::GpuCheckAsked { .. }
            | Event::GpuChecked { .. } => self.apply_market(at, event),

            Event::SessionOpened { session } => {
                self.saw_id(session.id.0);
                self.sessions.insert(session.id, session.clone());
            }
            Event::SessionEnded { session, .. } => {
                self.sessions.remove(session);
            }

            Event::WebhookCreated { .. }
            | Event::WebhookRotated { .. }
            | Event::WebhookPaused { .. }
            | Event::WebhookResumed { .. }
            | Event::WebhookFailed { .. }
            | Event::WebhookRemoved { .. } => self.fold_webhook(at, event),
        }
        None
    }

    fn saw_id(&mut self, number: u64) {
        self.last_id = self.last_id.max(number);
    }

    fn change(&mut self, scope: ScopeId, change: impl FnOnce(&mut Scope)) {
        let scope = self.tree.get_mut(scope);
        change(scope);
        scope.revision += 1;
    }

    fn quarantine(&mut self, node: NodeId, gpu: GpuId, why: Option<Box<str>>) {
        self.fleet.change_node(node, |node| {
            if let Some(gpu) = node.gpus.iter_mut().find(|known| known.id == gpu) {
                gpu.quarantine = why;
            }
        });
    }

    fn change_job(&mut self, at: Time, id: JobId, phase: Phase, change: impl FnOnce(&mut Job)) {
        let job = self.jobs.get_mut(&id).expect("INVARIANT: events name live jobs");
        let before = job.phase;
        job.phase = phase;
        job.since = at;
        change(job);
        match (before == Phase::Running, phase == Phase::Running) {
            (true, false) => self.forget_running(id),
            (false, true) => self.note_running(id),
            _ => {}
        }
    }

    fn living_job(&mut self, id: JobId) -> &mut Job {
        self.jobs.get_mut(&id).expect("INVARIANT: events name live jobs")
    }

    fn note_conduct(&mut self, at: Time, id: JobId, record: &SignedConduct, strange: bool) {
        let job = self.living_job(id);
        job.audit.noted(record.clone());
        let workload = WorkloadKey::of(job.owner, &job.spec);
        self.habits.note(at, workload, &record.conduct, strange);
    }

    fn hold_volume(&mut self, scope: ScopeId, size_mib: u64) {
        let held = amounts(size_mib);
        self.tree.for_chain(scope, |scope| scope.used.add(&held));
    }

    fn submit(&mut self, at: Time, id: JobId, owner: UserId, spec: &Arc<JobSpec>, volumes: &[VolumeId]) {
        self.saw_id(id.0);
        self.volumes.add_job(id, volumes);
        let tasks = Tasks::of(spec).map(Box::new);
        // It is its tasks that ask for something.
        let asks = tasks.is_none();
        let tenant = self.tree.tenant_of(ScopeId::User(owner)).filter(|_| asks);
        let alike = tenant.map(|tenant| self.history.submitted(tenant, spec.demand.gpus, at));
        if asks {
            self.fleet.note_ask(&spec.demand);
        }
        let job = Job {
            id,
            owner,
            spec: spec.clone(),
            derivation: None,
            volumes: volumes.to_vec(),
            submitted: at,
            phase: Phase::Queued,
            since: at,
            attempt: 1,
            admission: None,
            members: vec![],
            failed: None,
            stop: None,
            pause: None,
            resume_after: None,
            started: None,
            charged: Cost::default(),
            resold: None,
            ran_ms: 0,
            usage: None,
            audit: JobAudit::default(),
            alike,
            evictions: Evictions::default(),
            saved: None,
            trace: None,
            tasks,
        };
        self.queue.add(&job);
        self.jobs_by_owner.entry(owner).or_default().insert(id);
        self.jobs.insert(id, job);
        self.probe(at, id);
    }

    fn admit(&mut self, at: Time, id: JobId, admission: &Admission) {
        let job = self.jobs.get_mut(&id).expect("INVARIANT: events name live jobs");
        self.queue.remove(job);
        self.calendar.remove(id);
        if !job.is_parent() {
            job.phase = Phase::Admitted;
            job.since = at;
        }
        job.admission = Some(admission.clone());
        let owner = ScopeId::User(job.owner);
        let (hold, ofs) = (&admission.hold, admission.hold.counted_as());
        self.accounts.hold(hold.account, hold.left.money);
        self.tree.for_chain(owner, |scope| {
            scope.used.add(&admission.amounts);
            scope.spending.hold(&ofs, at, hold.left_at(scope.id));
        });
    }

    fn place<'a>(&mut self, at: Time, id: JobId, allocations: impl Iterator<Item = &'a Allocation>) {
        let mut members = Vec::new();
        let mut gpus = Vec::new();
        for allocation in allocations {
            self.saw_id(allocation.id.0);
            self.fleet.take(allocation);
            members.push(Member::new(allocation.id, allocation.node));
            gpus.extend(allocation.slices.iter().map(|slice| (allocation.node, slice.gpu)));
        }
        self.note_booked_use(ScopeId::User(self.jobs[&id].owner), &gpus);
        self.change_job(at, id, Phase::Placed, |job| {
            // INVARIANT: a gang is placed whole or not at all.
            assert_eq!(
                members.len(),
                job.spec.demand.nodes as usize,
                "INVARIANT: {id} was placed in part"
            );
            job.members = members;
        });
        self.probes.started(id, at);
    }

    fn member(&mut self, job: JobId, allocation: AllocationId) -> &mut Member {
        self.living_job(job)
            .members
            .iter_mut()
            .find(|member| member.allocation == allocation)
            .expect("INVARIANT: events name members of their job")
    }

    /// One member is gone; what the others were given goes on being theirs.
    fn end_member(&mut self, id: JobId, allocation: AllocationId, end: &MemberEnd) {
        let given = self.fleet.give_back(allocation);
        let number = given.member;
        self.leave_crumbs(id, &[(given.crumb, given.resale_crumb)]);
        let member = self.member(id, allocation);
        member.phase = MemberPhase::Ended;
        member.end = Some(end.clone());
        let job = self.living_job(id);
        // What ends while the job is being stopped did not fail first.
        if !end.is_success() && job.stop.is_none() {
            job.failed = job.failed.or(Some(number));
        }
    }

    fn requeue(&mut self, at: Time, id: JobId, vram_mib: Option<u64>) {
        // One that was paused waited already, for its own place.
        self.queue.remove(&self.jobs[&id]);
        let gave_way = self.jobs[&id].stop == Some(StopReason::Evicted) && !self.jobs[&id].lost_member();
        self.release(at, id);
        self.change_job(at, id, Phase::Queued, |job| {
            job.attempt += 1;
            if gave_way {
                job.evictions.restarts += 1;
            }
            job.stop = None;
            job.pause = None;
            if let Some(vram_mib) = vram_mib {
                Arc::make_mut(&mut job.spec).demand.vram_mib = vram_mib;
            }
        });
        self.grow_tasks(id, vram_mib);
        self.queue.add(&self.jobs[&id]);
    }

    /// What the run tells of others like it, to its own tenant.
    fn learn(&mut self, id: JobId, outcome: &Outcome) {
        let job = &self.jobs[&id];
        let tenant = self.tree.tenant_of(ScopeId::User(job.owner));
        let (Some(workload), Some(tenant), false) = (&job.spec.workload, tenant, job.is_parent()) else {
            return;
        };
        let given = job.allocations().filter_map(|id| self.fleet.allocation(id));
        let given = given.flat_map(|allocation| allocation.slices.iter().map(|slice| slice.vram_mib));
        let given_mib = given.max().unwrap_or(job.spec.demand.vram_mib);
        if let Some(run) = Run::of(workload, outcome, job.usage.as_ref(), given_mib, job.ran_ms) {
            let signature = signature(workload, &job.spec.name);
            self.learnt.note(tenant, signature, run);
        }
    }

    fn end_job(&mut self, at: Time, id: JobId, outcome: &Outcome) -> Retired {
        let members = self.jobs[&id].members.clone();
        let first = members.first();
        let (allocation, node) = (
            first.map(|member| member.allocation),
            first.map(|member| member.node),
        );
        self.queue.remove(&self.jobs[&id]);
        self.calendar.remove(id);
        self.probes.gone(id);
        if self.jobs[&id].phase == Phase::Running {
            self.forget_running(id);
        }
        self.learn(id, outcome);
        if *outcome == Outcome::Succeeded && !self.jobs[&id].is_parent() {
            self.settle_frames(at, id);
        }
        self.end_task(at, id, outcome);
        self.release(at, id);
        let job = self.jobs.remove(&id).expect("INVARIANT: events name live jobs");
        // Whoever was stopped would have run on.
        let by_itself = matches!(outcome, Outcome::Succeeded | Outcome::Failed { .. });
        if let Some(alike) = job.alike.filter(|_| by_itself) {
            self.history.ended(alike, job.ran_ms / SECOND_MS, at);
        }
        self.volumes.remove_job(id, &job.volumes);
        if let Some(jobs) = self.jobs_by_owner.get_mut(&job.owner) {
            jobs.remove(&id);
            if jobs.is_empty() {
                self.jobs_by_owner.remove(&job.owner);
            }
        }
        let done = DoneJob {
            id,
            owner: job.owner,
            spec: job.spec,
            derivation: job.derivation,
            submitted: job.submitted,
            // A job too short to be seen running ran all the same.
            started: job
                .started
                .or((job.ran_ms > 0).then_some(Time(at.0.saturating_sub_unsigned(job.ran_ms)))),
            ended: at,
            attempts: job.attempt,
            outcome: outcome.clone(),
            charged: job.charged,
            resold: job.resold,
            ran_ms: job.ran_ms,
            usage: job.usage,
            audit: job.audit,
            allocation,
            node,
            members: if members.len() > 1 { members } else { vec![] },
            trace: job.trace,
            tasks: job.tasks,
        };
        Retired::Job {
            scope: self.tree.path(ScopeId::User(job.owner)),
            job: Box::new(done),
        }
    }
}

fn scope_number(scope: ScopeId) -> u64 {
    match scope {
        ScopeId::Platform => 0,
        ScopeId::Tenant(id) => id.0,
        ScopeId::Subscriber(id) => id.0,
        ScopeId::User(id) => id.0,
    }
}
