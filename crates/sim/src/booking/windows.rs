//! Thousands of windows on a fleet that is full and breaks: do they begin in time, and what is lost to holding them?
//!
//! Borrowers fill every GPU and more wait; nodes go away and come back. Time goes from one moment at which something is
//! due to the next, and around each of them second by second, as the server has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tenure_domain::booking::record::{Size, WindowPhase};
use tenure_domain::command::Observation;
use tenure_domain::event::CloseReason;
use tenure_domain::id::{BookingId, JobId, NodeId};
use tenure_domain::schedule::fleet::NodeStatus;
use tenure_domain::schedule::order::walk::{Turn, Walk};
use tenure_domain::tenancy::scope::ScopeId;
use tenure_domain::workload::job::{Phase, StopReason};
use tenure_domain::workload::spec::{Demand, JobSpec};
use tenure_domain::{Actor, Event, Time, Wish};

use super::cell::{CLASS, Cell, Chance, gpus, zone};

const SECOND_MS: u64 = 1000;
/// A start up to this late needs no refund.
const LATE_MS: u64 = 5 * SECOND_MS;

#[derive(Debug, Default, Serialize)]
pub struct Outcome {
    pub windows: usize,
    pub opened: usize,
    pub not_had: usize,
    pub moved: usize,
    pub faults: usize,
    pub evictions: usize,
    pub late: usize,
    pub late_max_ms: u64,
    /// Later than five seconds, or not at all, and nothing came back for it.
    pub late_without_refund: usize,
    pub refunds: usize,
    /// Of all GPU time: idle on GPUs of windows that were being cleared.
    pub held_idle_percent: f64,
    /// Of all GPU time: idle though jobs waited, outside open windows.
    pub idle_percent: f64,
}

struct Run {
    cell: Cell,
    chance: Chance,
    outcome: Outcome,
    late: BTreeMap<(BookingId, String), u64>,
    /// When a job that runs ends by itself.
    ends: BTreeMap<JobId, Time>,
    lost: BTreeMap<NodeId, Time>,
    started: u64,
    total_ms: u128,
    held_ms: u128,
    idle_ms: u128,
}

/// So many windows on so many nodes of eight GPUs.
pub fn run(windows: usize, nodes: usize, seed: u64) -> Outcome {
    let mut run = Run {
        cell: Cell::new(nodes, 40),
        chance: Chance(seed | 1),
        outcome: Outcome::default(),
        late: BTreeMap::new(),
        ends: BTreeMap::new(),
        lost: BTreeMap::new(),
        started: 0,
        total_ms: 0,
        held_ms: 0,
        idle_ms: 0,
    };
    run.book(windows);
    run.fill();
    while !run.cell.state.bookings.is_empty() {
        run.step();
    }
    let percent = |part: u128| part as f64 * 100.0 / run.total_ms.max(1) as f64;
    (run.outcome.held_idle_percent, run.outcome.idle_percent) = (percent(run.held_ms), percent(run.idle_ms));
    run.outcome
}

impl Run {
    /// Windows as close to one another as there is room for: half the fleet on average.
    fn book(&mut self, windows: usize) {
        let utc = zone("UTC").expect("UTC is a zone");
        let gpu_minutes = windows as u64 * 4 * 180;
        let minutes = (gpu_minutes / (self.cell.nodes.len() as u64 * 4)).max(600);
        while self.outcome.windows < windows {
            let size = match self.chance.below(16) {
                0 => Size::Nodes { count: 1 },
                some => Size::Gpus {
                    count: 1 + (some % 8) as u32,
                    spread: some == 9,
                },
            };
            let (minute, length) = (10 + self.chance.below(minutes), 60 + self.chance.below(16) * 15);
            let user = self.cell.users[self.chance.below(20) as usize];
            let name = format!("w-{}", self.outcome.windows);
            let Some(spec) = gpus(name, size, minute, length, None) else {
                continue;
            };
            let wish = Wish::Book {
                scope: ScopeId::User(user),
                spec: Box::new(spec),
                zone: Box::new(utc.clone()),
                shown: None,
            };
            if self.cell.act(Actor::user(user), wish).is_ok() {
                self.outcome.windows += 1;
            }
        }
    }

    /// Keeps more borrowers waiting than there is room for.
    fn fill(&mut self) {
        let waiting = self
            .cell
            .state
            .jobs
            .values()
            .filter(|job| job.phase == Phase::Queued)
            .count();
        for _ in waiting..32 {
            self.started += 1;
            let user = self.cell.users[20 + self.chance.below(20) as usize];
            let hours = [1, 1, 2, 4, 12][self.chance.below(5) as usize];
            let text = format!(r#"{{"name":"b-{}","command":["x"]}}"#, self.started);
            let Ok(mut spec) = serde_json::from_str::<JobSpec>(&text) else {
                continue;
            };
            spec.run_time_s = hours * 3600;
            spec.grace_s = 10;
            spec.demand = Demand {
                gpus: [1, 1, 2, 4][self.chance.below(4) as usize],
                class: Some(CLASS.into()),
                ..Demand::default()
            };
            let wish = Wish::Enqueue {
                owner: user,
                spec: Arc::new(spec),
                trace: None,
            };
            drop(self.cell.act(Actor::user(user), wish));
        }
    }

    /// The owner comes to each window that opened.
    fn come(&mut self, booking: BookingId) {
        let Some(found) = self.cell.state.bookings.get(booking) else {
            return;
        };
        let ScopeId::User(owner) = found.scope else { return };
        let left_s = found
            .windows
            .first()
            .map_or(60, |window| window.end.since_ms(self.cell.at) / 1000);
        let Ok(mut spec) = serde_json::from_str::<JobSpec>(r#"{"name":"own","command":["x"]}"#) else {
            return;
        };
        spec.run_time_s = left_s.max(1);
        spec.grace_s = 10;
        spec.booking = Some(booking);
        spec.demand = Demand {
            gpus: 1,
            class: Some(CLASS.into()),
            ..Demand::default()
        };
        let wish = Wish::Submit {
            owner,
            spec: Arc::new(spec),
            trace: None,
        };
        drop(self.cell.act(Actor::user(owner), wish));
    }

    fn step(&mut self) {
        let next = self.next_moment();
        self.account(next.since_ms(self.cell.at));
        self.cell.at = next;
        self.break_and_mend();
        let events = self.cell.system(Wish::AdvanceBookings { zones: zone });
        self.note(&events);
        self.obey();
        let opened: Vec<BookingId> = events
            .iter()
            .filter_map(|event| match event {
                Event::WindowOpened { booking, .. } => Some(*booking),
                _ => None,
            })
            .collect();
        opened.into_iter().for_each(|booking| self.come(booking));
        self.fill();
        self.pass();
    }

    /// The next second where something is under way, else the next moment at which something is due.
    fn next_moment(&self) -> Time {
        let (state, at) = (&self.cell.state, self.cell.at);
        let lead_ms = state.terms.lead_s * SECOND_MS;
        let second = at.plus_ms(SECOND_MS);
        let busy = state.bookings.live().any(|(_, window)| {
            let clearing = window.phase == WindowPhase::Clearing && second.plus_ms(SECOND_MS) >= window.start;
            clearing || window.down.is_some() || at.plus_ms(20 * SECOND_MS) >= window.end
        });
        let overdue = state.bookings.coming_before(at.plus_ms(lead_ms)).next().is_some();
        if busy || overdue {
            return second;
        }
        let starts = state.bookings.coming_before(Time(i64::MAX)).next();
        let starts = starts.map(|(_, window)| Time(window.start.0.saturating_sub_unsigned(lead_ms)));
        let live = state.bookings.live().map(|(_, window)| match window.phase {
            WindowPhase::Clearing => Time(window.start.0 - 2000),
            _ => Time(window.end.0 - 20_000),
        });
        let ends = self.ends.values().min().copied();
        let mends = self.lost.values().min().copied();
        let minute = at.plus_ms(60 * SECOND_MS);
        let all = live.chain(starts).chain(ends).chain(mends).chain([minute]);
        all.min().unwrap_or(minute).max(second)
    }

    fn account(&mut self, ms: u64) {
        let state = &self.cell.state;
        let waiting = state
            .jobs
            .values()
            .any(|job| job.phase == Phase::Queued && job.spec.booking.is_none());
        let (mut held, mut idle, mut all) = (0, 0, 0);
        for node in state.fleet.nodes().filter(|node| node.status == NodeStatus::Up) {
            for gpu in &node.gpus {
                all += 1;
                if !gpu.holders.is_empty() {
                    continue;
                }
                let mut windows = state
                    .bookings
                    .live()
                    .filter(|(_, w)| w.gpus.contains(&(node.id, gpu.id)));
                match windows.next() {
                    Some((_, window)) if window.is_open() => {}
                    Some(_) => held += 1,
                    None if waiting => idle += 1,
                    None => {}
                }
            }
        }
        self.total_ms += u128::from(ms) * all;
        self.held_ms += u128::from(ms) * held;
        self.idle_ms += u128::from(ms) * (idle + held);
    }

    fn break_and_mend(&mut self) {
        let at = self.cell.at;
        let back: Vec<NodeId> = self
            .lost
            .iter()
            .filter(|(_, until)| **until <= at)
            .map(|(node, _)| *node)
            .collect();
        for node in back {
            self.lost.remove(&node);
            self.cell.system(Wish::ReturnNode { node });
        }
        if self.chance.below(400) == 0 {
            let node = self.cell.nodes[self.chance.below(self.cell.nodes.len() as u64) as usize];
            if !self.lost.contains_key(&node) {
                self.outcome.faults += 1;
                self.cell.system(Wish::LoseNode { node });
                self.lost
                    .insert(node, at.plus_ms((60 + self.chance.below(3600)) * SECOND_MS));
            }
        }
    }

    fn note(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::WindowOpened {
                    booking, of, late_ms, ..
                } => {
                    self.outcome.opened += 1;
                    self.outcome.late_max_ms = self.outcome.late_max_ms.max(*late_ms);
                    if *late_ms > LATE_MS {
                        self.outcome.late += 1;
                    }
                    self.late.insert((*booking, of.to_string()), *late_ms);
                }
                Event::WindowMoved { .. } => self.outcome.moved += 1,
                Event::JobStopping { .. } | Event::JobPausing { .. } => self.outcome.evictions += 1,
                Event::WindowClosed {
                    booking,
                    of,
                    why,
                    refund,
                    ..
                } => {
                    let late = self.late.remove(&(*booking, of.to_string()));
                    self.outcome.not_had += usize::from(*why == CloseReason::NotHad);
                    self.outcome.refunds += usize::from(refund.is_some());
                    if late.is_none_or(|late| late > LATE_MS) && refund.is_none() {
                        self.outcome.late_without_refund += 1;
                    }
                }
                _ => {}
            }
        }
    }

    /// Nodes do as they are told: what is placed runs, what is to leave leaves.
    fn obey(&mut self) {
        let at = self.cell.at;
        let jobs: Vec<(JobId, Phase)> = self
            .cell
            .state
            .jobs
            .values()
            .map(|job| (job.id, job.phase))
            .collect();
        for (job, phase) in jobs {
            let over = self.ends.get(&job).is_some_and(|end| *end <= at);
            let observation = match phase {
                Phase::Placed => Observation::Running,
                Phase::Stopping => Observation::Exited {
                    exit_code: None,
                    signal: Some(15),
                    ran_ms: 1000,
                    by: Some(StopReason::Evicted),
                    usage: None,
                },
                Phase::Running if over => Observation::Exited {
                    exit_code: Some(0),
                    signal: None,
                    ran_ms: 1000,
                    by: None,
                    usage: None,
                },
                _ => continue,
            };
            let Some(known) = self.cell.state.jobs.get(&job) else {
                continue;
            };
            if observation == Observation::Running {
                let share = 30 + self.chance.below(71);
                self.ends
                    .insert(job, at.plus_ms(known.spec.run_time_s * SECOND_MS * share / 100));
            } else {
                self.ends.remove(&job);
            }
            let allocation = known.sole_allocation();
            let Some(allocation) = allocation.and_then(|id| self.cell.state.fleet.allocation(id)) else {
                continue;
            };
            let (node, allocation) = (allocation.node, allocation.id);
            let wish = Wish::Observe {
                node,
                allocation,
                observation,
            };
            drop(self.cell.act(Actor::Node(node), wish));
        }
        let known = &self.cell.state.jobs;
        self.ends
            .retain(|job, _| known.get(job).is_some_and(|job| job.phase == Phase::Running));
    }

    fn pass(&mut self) {
        let mut walk = Walk::begin(&self.cell.state, self.cell.at);
        loop {
            let turn = walk.next(&self.cell.state);
            if turn == Turn::Over {
                break;
            }
            let Some(wish) = turn.wish() else { continue };
            if let Err(refusal) = self.cell.act(Actor::System, wish) {
                walk.refused(&self.cell.state, &refusal);
            }
        }
        self.obey();
    }
}
