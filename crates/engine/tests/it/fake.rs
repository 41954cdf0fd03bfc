//! A scripted agent: keeps its promises in memory, and runs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use tenure_api::channel::{AllocationReport, FromAgent, FromServer, Order, RunState};
use tenure_domain::id::AllocationId;

use crate::wire::{Card, House, Wire};

#[derive(Default)]
pub struct Memory {
    pub states: BTreeMap<AllocationId, RunState>,
    pub runs: BTreeMap<AllocationId, u32>,
    released: BTreeSet<AllocationId>,
}

impl Memory {
    fn start(&mut self, order: &Order) {
        let id = order.allocation;
        if self.released.contains(&id) || self.states.contains_key(&id) {
            return;
        }
        *self.runs.entry(id).or_default() += 1;
        let state = match order.command[0].as_str() {
            "long" => RunState::Running,
            _ => RunState::Exited {
                exit_code: Some(0),
                signal: None,
                by: None,
            },
        };
        self.states.insert(id, state);
    }

    fn take(&mut self, message: &FromServer) -> Option<AllocationId> {
        match message {
            FromServer::Start { order } => {
                self.start(order);
                Some(order.allocation)
            }
            FromServer::Stop {
                allocation, reason, ..
            } => {
                let held = self.states.entry(*allocation).or_insert(RunState::Running);
                if *held == RunState::Running && !self.released.contains(allocation) {
                    *held = RunState::Exited {
                        exit_code: None,
                        signal: Some(15),
                        by: Some(*reason),
                    };
                }
                Some(*allocation)
            }
            FromServer::Release { allocation } => {
                if self.states.get(allocation) != Some(&RunState::Running) {
                    self.states.remove(allocation);
                    self.released.insert(*allocation);
                }
                None
            }
            _ => None,
        }
    }

    fn report(&self, id: AllocationId) -> Option<AllocationReport> {
        self.states.get(&id).map(|state| AllocationReport {
            allocation: id,
            ran_ms: 1,
            state: state.clone(),
            usage: None,
            saved_ago_ms: None,
            kept: None,
            conduct: None,
        })
    }
}

/// Connects again and again, for ever.
pub async fn live(house: Arc<House>, card: Card, memory: Arc<Mutex<Memory>>) {
    loop {
        let mut wire = house.wire(&card).await;
        converse(&mut wire, &memory).await;
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

async fn converse(wire: &mut Wire, memory: &Mutex<Memory>) {
    wire.say(&crate::wire::hello("boot-1", 1000)).await;
    if !matches!(wire.hear().await, Some(FromServer::Welcome { .. })) {
        return;
    }
    wire.say(&FromAgent::Heartbeat { sent_ms: 1 }).await;
    let whole = {
        let memory = memory.lock().unwrap();
        memory.states.keys().filter_map(|id| memory.report(*id)).collect()
    };
    wire.say(&FromAgent::Report {
        whole: true,
        more: false,
        allocations: whole,
    })
    .await;
    while let Some(message) = wire.hear().await {
        let changed = memory.lock().unwrap().take(&message);
        let report = changed.and_then(|id| memory.lock().unwrap().report(id));
        if let Some(report) = report {
            wire.say(&FromAgent::Report {
                whole: false,
                more: false,
                allocations: vec![report],
            })
            .await;
        }
        wire.say(&FromAgent::Heartbeat { sent_ms: 2 }).await;
        if matches!(message, FromServer::Bye { .. }) {
            return;
        }
    }
}
