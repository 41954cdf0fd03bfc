//! Reconciling: state says what should run, engines say what does; the loop closes the difference.
//!
//! Steps are computed by pure functions in `plan` and carried out here. Nothing is remembered that could not
//! be learnt again: after a crash the next whole report of each node starts over. Run by the leader alone.

mod conduct;
mod lease;
mod member;
mod order;
pub mod plan;
mod registry;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tenure_api::channel::{AllocationReport, RunState};
use tenure_domain::booking::zone::Zone;
use tenure_domain::command::Ran;
use tenure_domain::id::NodeId;
use tenure_domain::schedule::fleet::NodeStatus;
use tenure_domain::schedule::receipt::Receipt;
use tenure_domain::{Actor, Event, Wish};
use tenure_engine::{Engine, Seen};
use tokio::sync::broadcast::error::RecvError;

pub use member::environment;
pub use order::devices;
pub use registry::Enrolment;

use crate::controller::{Controller, NotDone};
use crate::keyring::Keyring;
use crate::view::Published;
use lease::Leases;
use plan::Step;

/// How often everything is looked at again, whatever was heard.
const SWEEP: Duration = Duration::from_secs(5);
/// Usage of a running allocation is journalled this often, and at its end.
const METER_EVERY: Duration = Duration::from_secs(60);

/// The exchange goes on at once while something was due, so far.
const STEPS_AT_ONCE: usize = 16;

/// The loop and what it heard.
pub struct Reconciler {
    controller: Controller,
    engine: Arc<dyn Engine>,
    keyring: Arc<Keyring>,
    leases: Leases,
    metered: BTreeMap<NodeId, Instant>,
    /// Nodes in conversation, and whether their whole report has come.
    connected: BTreeMap<NodeId, bool>,
}

impl Reconciler {
    /// `term` is the node lease's: a node silent for longer has stopped its work by itself.
    pub fn new(
        controller: Controller,
        engine: Arc<dyn Engine>,
        keyring: Arc<Keyring>,
        term: Duration,
    ) -> Reconciler {
        Reconciler {
            controller,
            engine,
            keyring,
            leases: Leases::new(term),
            metered: BTreeMap::new(),
            connected: BTreeMap::new(),
        }
    }

    /// Runs until the server stops leading.
    pub async fn run(mut self, mut seen: tokio::sync::mpsc::Receiver<Seen>) {
        let mut news = self.controller.view().listen();
        let mut sweep = tokio::time::interval(SWEEP);
        let mut pulse = tokio::time::interval(Duration::from_millis(500));
        // A new leader gives every node a whole term to be heard of before it gives up on any.
        let nodes: Vec<NodeId> = self
            .controller
            .view()
            .read()
            .fleet
            .nodes()
            .map(|node| node.id)
            .collect();
        nodes.into_iter().for_each(|node| self.leases.heard(node));
        while self.controller.is_leading() {
            tokio::select! {
                seen = seen.recv() => match seen {
                    Some(seen) => self.saw(seen).await,
                    None => return,
                },
                batch = news.recv() => match batch {
                    Ok(batch) => self.learnt(&batch).await,
                    Err(RecvError::Lagged(_)) => self.sweep().await,
                    Err(RecvError::Closed) => return,
                },
                _ = sweep.tick() => self.sweep().await,
                _ = pulse.tick() => {
                    self.give_up_on_silent_nodes().await;
                    self.advance_bookings().await;
                    self.advance_market().await;
                }
            }
        }
    }

    /// Does what time has made due of bookings; where there are none, nothing.
    async fn advance_bookings(&self) {
        let zones = |name: &str| Zone::bundled(name).ok();
        let other_edition = {
            let state = self.controller.view().read();
            if state.bookings.is_empty() {
                return;
            }
            let mut zones = state.bookings.iter().map(|booking| &booking.zone.tzdata);
            zones.any(|edition| **edition != *Zone::edition())
        };
        if other_edition {
            let edition = Zone::edition();
            let wish = Wish::ResolveBookings { zones, edition };
            self.wish(Actor::System, wish, "a booking was not read anew")
                .await;
        }
        let wish = Wish::AdvanceBookings { zones };
        self.wish(Actor::System, wish, "bookings were not advanced").await;
    }

    /// Does what time has made due on the exchange, and what that made room for; where nobody trades, nothing.
    async fn advance_market(&self) {
        for _ in 0..STEPS_AT_ONCE {
            let market_is_still = {
                let market = &self.controller.view().read().market;
                market.offers().next().is_none()
                    && market.bids().next().is_none()
                    && market.leases().next().is_none()
                    && market.autos().next().is_none()
            };
            if market_is_still {
                return;
            }
            let zones = |name: &str| Zone::bundled(name).ok();
            let wish = Wish::AdvanceMarket { zones };
            match self.controller.submit(Actor::System, wish, None, None).await {
                Ok(accepted) if accepted.events.is_empty() => return,
                Ok(_) => {}
                Err(NotDone::Refused(refusal)) => {
                    tracing::warn!(%refusal, "the exchange was not advanced");
                    return;
                }
                Err(NotDone::NotLeading) => return,
            }
        }
    }

    async fn saw(&mut self, seen: Seen) {
        let node = seen.node();
        match seen {
            Seen::Joined { agent_version, .. } => {
                self.leases.heard(node);
                self.connected.insert(node, false);
                tracing::info!(%node, agent_version, "node connected");
            }
            Seen::Heartbeat { .. } => self.leases.heard(node),
            Seen::Gone { .. } => {
                self.connected.remove(&node);
                tracing::info!(%node, "node disconnected; it runs on until its lease ends");
            }
            Seen::Inventory { inventory, .. } => {
                let wish = Wish::ReportInventory { node, inventory };
                self.wish(Actor::Node(node), wish, "an inventory was not taken")
                    .await;
            }
            Seen::VolumeErased { volume, .. } => {
                let wish = Wish::NoteVolumeErased { node, volume };
                self.wish(Actor::Node(node), wish, "an erasure was not taken")
                    .await;
            }
            Seen::Started {
                allocation, steps, ..
            } => {
                if let Some(traces) = self.controller.traces() {
                    traces.started(&self.controller, node, allocation, &steps);
                }
            }
            Seen::Scrubbed { receipt, .. } => self.scrubbed(node, receipt).await,
            Seen::Checked {
                gpu, number, report, ..
            } => {
                let wish = Wish::AnswerGpuCheck {
                    node,
                    gpu,
                    number,
                    report: *report,
                };
                self.wish(Actor::Node(node), wish, "what a GPU is was not taken")
                    .await;
            }
            Seen::Report {
                whole, allocations, ..
            } => self.reported(node, whole, &allocations).await,
        }
    }

    /// Takes note of a receipt that is what it says. One that is not is never taken, and the node keeps it.
    async fn scrubbed(&self, node: NodeId, receipt: Box<Receipt>) {
        let is_own = {
            let state = self.controller.view().read();
            state
                .fleet
                .node(node)
                .is_some_and(|node| node.keys.contains(&receipt.key))
        };
        if let Err(error) = tenure_api::seal::check_receipt(&receipt) {
            tracing::warn!(%node, number = receipt.number, %error, "a receipt was not taken");
            return;
        }
        if !is_own {
            tracing::warn!(%node, number = receipt.number, "a receipt was not taken: it is signed with a key that is not the node's");
            return;
        }
        let number = receipt.number;
        let wish = Wish::NoteScrub { node, receipt };
        // Refused, it would be refused again: of a device that is gone, say.
        match self.controller.submit(Actor::Node(node), wish, None, None).await {
            Err(NotDone::NotLeading) => return,
            Err(NotDone::Refused(refusal)) => {
                tracing::warn!(%node, number, %refusal, "a receipt was not taken")
            }
            Ok(_) => {}
        }
        if let Err(error) = self.engine.receipts_taken(node, number).await {
            tracing::debug!(%node, %error, "an order did not reach its node");
        }
    }

    async fn reported(&mut self, node: NodeId, whole: bool, allocations: &[AllocationReport]) {
        self.leases.heard(node);
        if whole {
            self.connected.insert(node, true);
        }
        self.note_conduct(node, allocations).await;
        let (steps, lost) = {
            let state = self.controller.view().read();
            let lost = state
                .fleet
                .node(node)
                .is_some_and(|node| node.status == NodeStatus::Lost);
            let mut steps = plan::steps(&state, node, whole, allocations);
            steps.extend(plan::saved(&state, node, allocations, crate::controller::now()));
            (steps, lost)
        };
        join_all(steps.into_iter().map(|step| self.carry_out(node, step))).await;
        self.meter(node, allocations).await;
        if whole && lost {
            self.wish(
                Actor::System,
                Wish::ReturnNode { node },
                "a node's return was not taken",
            )
            .await;
        }
    }

    /// Journals run time at most once a minute for each node; ends are metered with the exit.
    async fn meter(&mut self, node: NodeId, allocations: &[AllocationReport]) {
        let due = self
            .metered
            .get(&node)
            .is_none_or(|last| last.elapsed() >= METER_EVERY);
        let running = allocations
            .iter()
            .filter(|report| report.state == RunState::Running);
        let ran: Vec<Ran> = running
            .map(|report| Ran {
                allocation: report.allocation,
                ran_ms: report.ran_ms,
                usage: report.usage,
            })
            .collect();
        if due && !ran.is_empty() {
            self.metered.insert(node, Instant::now());
            self.wish(
                Actor::Node(node),
                Wish::Meter { node, ran },
                "usage was not taken",
            )
            .await;
        }
    }

    /// What was decided just now and has to reach a node.
    async fn learnt(&self, batch: &[Published]) {
        let steps: Vec<(NodeId, Step)> = {
            let state = self.controller.view().read();
            batch
                .iter()
                .flat_map(|published| plan::steps_for(&state, &published.event))
                .collect()
        };
        join_all(steps.into_iter().map(|(node, step)| self.carry_out(node, step))).await;
        if batch
            .iter()
            .any(|published| matches!(*published.event, Event::SecretErased { .. }))
        {
            self.erase_orphaned_secrets(batch).await;
        }
    }

    async fn erase_orphaned_secrets(&self, batch: &[Published]) {
        let Some(journal) = self.controller.journal() else {
            return;
        };
        for published in batch {
            let Event::SecretErased { secret, .. } = &*published.event else {
                continue;
            };
            if let Err(error) = journal.erase_secret(&secret.to_string()).await {
                tracing::warn!(%error, %secret, "a secret's value was not erased yet");
            }
        }
    }

    /// Says again what nodes in conversation should have heard before.
    async fn sweep(&self) {
        let now = crate::controller::now();
        let steps: Vec<(NodeId, Step)> = {
            let state = self.controller.view().read();
            let heard = self
                .connected
                .iter()
                .filter(|(_, whole)| **whole)
                .map(|(node, _)| *node);
            heard
                .flat_map(|node| {
                    plan::sweep(&state, node, now)
                        .into_iter()
                        .map(move |step| (node, step))
                })
                .collect()
        };
        join_all(steps.into_iter().map(|(node, step)| self.carry_out(node, step))).await;
    }

    async fn give_up_on_silent_nodes(&mut self) {
        let silent: Vec<NodeId> = {
            let state = self.controller.view().read();
            let living = state
                .fleet
                .nodes()
                .filter(|node| node.status != NodeStatus::Lost)
                .map(|node| node.id);
            living.filter(|&node| self.leases.is_over(node)).collect()
        };
        for node in silent {
            tracing::warn!(%node, "node not heard of for longer than its lease; its work goes back to the queue");
            self.wish(
                Actor::System,
                Wish::LoseNode { node },
                "a lost node was not noted",
            )
            .await;
        }
    }

    async fn carry_out(&self, node: NodeId, step: Step) {
        let done = match step {
            Step::Start(allocation) => {
                match order::order(&self.controller, &self.keyring, allocation).await {
                    Ok(Some(order)) => {
                        let sent = self.engine.start(node, order).await;
                        if let (Ok(()), Some(traces)) = (&sent, self.controller.traces()) {
                            traces.ordered(&self.controller, allocation);
                        }
                        sent
                    }
                    Ok(None) => return,
                    Err(why) => {
                        let observation = tenure_domain::command::Observation::NotStarted { why };
                        self.wish(
                            Actor::Node(node),
                            Wish::Observe {
                                node,
                                allocation,
                                observation,
                            },
                            "a failed start was not noted",
                        )
                        .await;
                        return;
                    }
                }
            }
            Step::Stop {
                allocation,
                reason,
                grace_s,
            } => self.engine.stop(node, allocation, reason, grace_s).await,
            Step::Release(allocation) => self.engine.release(node, allocation).await,
            Step::Resize(allocation) => {
                let devices = order::devices(&self.controller.view().read(), allocation);
                self.engine.resize(node, allocation, devices).await
            }
            Step::Pause(allocation) => self.engine.pause(node, allocation).await,
            Step::Resume(allocation) => {
                let (tenant, devices) = {
                    let state = self.controller.view().read();
                    (
                        order::tenant(&state, allocation),
                        order::devices(&state, allocation),
                    )
                };
                self.engine.resume(node, allocation, tenant, devices).await
            }
            Step::GrowVolume { volume, size_mib } => self.engine.grow_volume(node, volume, size_mib).await,
            Step::EraseVolume(volume) => self.engine.erase_volume(node, volume).await,
            Step::CheckGpu(question) => self.engine.check_gpu(node, question).await,
            Step::Observe {
                allocation,
                observation,
            } => {
                let ended = plan::is_end(&observation);
                let noted = self
                    .wish(
                        Actor::Node(node),
                        Wish::Observe {
                            node,
                            allocation,
                            observation,
                        },
                        "an observation was not taken",
                    )
                    .await;
                if !(noted && ended) {
                    return;
                }
                self.engine.release(node, allocation).await
            }
        };
        if let Err(error) = done {
            // The sweep, or the node's next whole report, says it again.
            tracing::debug!(%node, %error, "an order did not reach its node");
        }
    }

    /// Submits a command of the loop; refusals here mean news that came too late.
    async fn wish(&self, by: Actor, wish: Wish, what: &str) -> bool {
        match self.controller.submit(by, wish, None, None).await {
            Ok(_) => true,
            Err(NotDone::Refused(refusal)) => {
                tracing::info!(%refusal, "{what}");
                false
            }
            Err(NotDone::NotLeading) => false,
        }
    }
}
