//! The desk of one service: which replicas there are, what each works on, and who waits for a place.
//!
//! A request takes a place at the ready replica with the fewest requests, or waits in line for the next that falls
//! free, whether at a replica that is there or at one that starts. Short and without awaits under its one lock.
//! Deliberately absent: bytes (`relay`), and how many replicas there should be (`steer`).

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tenure_domain::id::{AllocationId, JobId, UserId};
use tenure_domain::workload::service::Service;
use tenure_domain::workload::service::scaler::Sample;
use tokio::sync::{Notify, oneshot};

use super::count::Counts;
use super::replica::Replica;

/// Requests that wait at one service at once.
pub(super) const MAX_WAITING: usize = 1000;

/// What a replica may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Its port is not ready yet, or no longer.
    Starting,
    Ready,
    /// It is to be given back, and finishes what it has.
    Draining,
    /// It is being stopped.
    Leaving,
}

struct Slot {
    replica: Arc<Replica>,
    place: Place,
    in_flight: u32,
    /// It is about to have run as long as it may.
    old: bool,
}

pub(crate) struct Desk {
    pub job: JobId,
    pub owner: UserId,
    pub service: Service,
    pub(super) counts: Counts,
    /// Wakes the loop: somebody waits and nobody is ready.
    pub(super) wake: Arc<Notify>,
    /// What a replica that is not ready last said.
    pub(super) said: Mutex<Option<String>>,
    inner: Mutex<Inner>,
}

struct Inner {
    slots: Vec<Slot>,
    line: VecDeque<oneshot::Sender<Arc<Replica>>>,
    /// Requests times milliseconds since the last sample.
    area: f64,
    moved: Instant,
    sampled: Instant,
    arrived: u64,
    /// The service ended; nobody waits for it.
    closed: bool,
}

/// Why a request got no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turned {
    /// As many wait as there may be.
    Full,
    /// None fell free in time.
    Late,
    /// The service ended.
    Closed,
}

/// A request's place at a replica; dropped, the next gets it.
pub(super) struct Ticket {
    desk: Arc<Desk>,
    pub replica: Arc<Replica>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.desk.release(&self.replica);
    }
}

/// A place in the line; whoever leaves it gives back what was meant for them.
struct InLine<'a> {
    desk: &'a Desk,
    given: oneshot::Receiver<Arc<Replica>>,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.given.close();
        if let Ok(replica) = self.given.try_recv() {
            self.desk.release(&replica);
        }
        let mut inner = self.desk.inner();
        inner.advance();
        inner.line.retain(|waiting| !waiting.is_closed());
    }
}

impl Desk {
    pub fn new(job: JobId, owner: UserId, service: Service, wake: Arc<Notify>) -> Desk {
        let now = Instant::now();
        Desk {
            job,
            owner,
            service,
            counts: Counts::default(),
            wake,
            said: Mutex::default(),
            inner: Mutex::new(Inner {
                slots: Vec::new(),
                line: VecDeque::new(),
                area: 0.0,
                moved: now,
                sampled: now,
                arrived: 0,
                closed: false,
            }),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("short and without panics")
    }

    /// A place at a replica, now or when one falls free.
    pub(super) async fn place(self: &Arc<Desk>, until: Instant) -> Result<Ticket, Turned> {
        let given = {
            let mut inner = self.inner();
            if inner.closed {
                return Err(Turned::Closed);
            }
            inner.advance();
            if let Some(replica) = inner.take(self.service.in_flight) {
                return Ok(self.ticket(replica));
            }
            if inner.line.len() >= MAX_WAITING {
                return Err(Turned::Full);
            }
            if !inner.slots.iter().any(|slot| slot.place == Place::Ready) {
                self.wake.notify_one();
            }
            let (give, given) = oneshot::channel();
            inner.line.push_back(give);
            given
        };
        let mut waiting = InLine { desk: self, given };
        match tokio::time::timeout_at(until.into(), &mut waiting.given).await {
            Ok(Ok(replica)) => Ok(self.ticket(replica)),
            Ok(Err(_)) => Err(Turned::Closed),
            Err(_) => Err(Turned::Late),
        }
    }

    fn ticket(self: &Arc<Desk>, replica: Arc<Replica>) -> Ticket {
        Ticket {
            desk: self.clone(),
            replica,
        }
    }

    fn release(&self, replica: &Replica) {
        let mut inner = self.inner();
        inner.advance();
        if let Some(slot) = inner.slot(replica.allocation) {
            slot.in_flight = slot.in_flight.saturating_sub(1);
        }
        inner.hand_out(self.service.in_flight);
    }

    /// A request came.
    pub(super) fn arrived(&self) {
        self.inner().arrived += 1;
        self.counts.arrived.fetch_add(1, Ordering::Relaxed);
    }

    /// The replicas that run now, and those being stopped. Gives those that are to be tried.
    pub(super) fn sync(
        &self,
        running: &[(JobId, AllocationId)],
        stopping: &[AllocationId],
        mut make: impl FnMut(JobId, AllocationId) -> Replica,
    ) -> Vec<Arc<Replica>> {
        let mut inner = self.inner();
        inner.advance();
        inner.slots.retain_mut(|slot| {
            let id = slot.replica.allocation;
            if stopping.contains(&id) {
                slot.place = Place::Leaving;
            }
            stopping.contains(&id) || running.iter().any(|(_, allocation)| *allocation == id)
        });
        let mut to_try = Vec::new();
        for &(job, allocation) in running {
            match inner.slot(allocation) {
                // It was paused, and runs again.
                Some(slot) if slot.place == Place::Leaving => {
                    slot.place = Place::Starting;
                    to_try.push(slot.replica.clone());
                }
                Some(_) => {}
                None => {
                    let replica = Arc::new(make(job, allocation));
                    to_try.push(replica.clone());
                    inner.slots.push(Slot {
                        replica,
                        place: Place::Starting,
                        in_flight: 0,
                        old: false,
                    });
                }
            }
        }
        to_try
    }

    /// A replica answered that it is ready; those who wait go there.
    pub(super) fn ready(&self, replica: &Replica) {
        let mut inner = self.inner();
        if let Some(slot) = inner.slot(replica.allocation)
            && slot.place == Place::Starting
        {
            slot.place = Place::Ready;
            inner.advance();
            inner.hand_out(self.service.in_flight);
        }
    }

    /// A replica could not be reached. Whether this was news.
    pub(super) fn unready(&self, replica: &Replica) -> bool {
        let mut inner = self.inner();
        match inner.slot(replica.allocation) {
            Some(slot) if slot.place == Place::Ready => {
                slot.place = Place::Starting;
                true
            }
            _ => false,
        }
    }

    /// Whether it is there still and not yet ready.
    pub(super) fn is_starting(&self, replica: &Replica) -> bool {
        let mut inner = self.inner();
        inner
            .slot(replica.allocation)
            .is_some_and(|slot| slot.place == Place::Starting)
    }

    /// So many replicas take no more requests, those first that are of least use; the others take them again. Gives
    /// those that drain, with what each still works on.
    pub(super) fn drain(&self, count: usize) -> Vec<(JobId, u32)> {
        let mut inner = self.inner();
        let mut order: Vec<usize> = (0..inner.slots.len())
            .filter(|&at| inner.slots[at].place != Place::Leaving)
            .collect();
        order.sort_by_key(|&at| {
            let slot = &inner.slots[at];
            let use_now = match slot.place {
                Place::Starting => 0,
                // One that began to drain goes on.
                Place::Draining => 1,
                Place::Ready | Place::Leaving => 2,
            };
            (
                use_now,
                slot.in_flight,
                std::cmp::Reverse(slot.replica.allocation),
            )
        });
        let mut draining = Vec::new();
        for (rank, at) in order.into_iter().enumerate() {
            let slot = &mut inner.slots[at];
            slot.place = match slot.place {
                Place::Ready | Place::Draining if rank < count => Place::Draining,
                Place::Draining => Place::Ready,
                other => other,
            };
            if rank < count {
                draining.push((slot.replica.job, slot.in_flight));
            }
        }
        inner.hand_out(self.service.in_flight);
        draining
    }

    /// A replica takes no more requests for good. What it still works on.
    pub(super) fn retire(&self, allocation: AllocationId) -> u32 {
        let mut inner = self.inner();
        inner.slot(allocation).map_or(0, |slot| {
            slot.old = true;
            slot.in_flight
        })
    }

    /// What was measured since the last sample, but for the moment and the devices.
    pub(super) fn sample(&self) -> Sample {
        let mut inner = self.inner();
        inner.advance();
        let elapsed = inner
            .moved
            .duration_since(inner.sampled)
            .max(Duration::from_millis(1));
        let demand_milli = inner.area / (elapsed.as_secs_f64() * 1000.0) * 1000.0;
        let sample = Sample {
            arrivals: u32::try_from(inner.arrived).unwrap_or(u32::MAX),
            demand_milli: demand_milli.ceil() as u64,
            in_flight: inner.in_flight(),
            waiting: inner.line.len() as u32,
            ready: inner.count(Place::Ready),
            ..Sample::default()
        };
        (inner.area, inner.arrived, inner.sampled) = (0.0, 0, inner.moved);
        sample
    }

    /// Ready replicas, requests in all of them, and those that wait.
    pub(super) fn now(&self) -> (u32, u32, u32) {
        let inner = self.inner();
        (
            inner.count(Place::Ready),
            inner.in_flight(),
            inner.line.len() as u32,
        )
    }

    /// Allocations that take requests.
    pub(super) fn ready_allocations(&self) -> Vec<AllocationId> {
        let inner = self.inner();
        let ready = inner.slots.iter().filter(|slot| slot.place == Place::Ready);
        ready.map(|slot| slot.replica.allocation).collect()
    }

    /// The service ended: nobody waits any more.
    pub(super) fn close(&self) {
        let mut inner = self.inner();
        inner.closed = true;
        inner.line.clear();
        inner.slots.clear();
    }
}

impl Inner {
    fn slot(&mut self, allocation: AllocationId) -> Option<&mut Slot> {
        self.slots
            .iter_mut()
            .find(|slot| slot.replica.allocation == allocation)
    }

    fn count(&self, place: Place) -> u32 {
        self.slots.iter().filter(|slot| slot.place == place).count() as u32
    }

    fn in_flight(&self) -> u32 {
        self.slots.iter().map(|slot| slot.in_flight).sum()
    }

    /// Adds up how many there were until now; called before the number changes.
    fn advance(&mut self) {
        let now = Instant::now();
        let level = f64::from(self.in_flight()) + self.line.len() as f64;
        self.area += level * now.duration_since(self.moved).as_secs_f64() * 1000.0;
        self.moved = now;
    }

    /// A place at the ready replica with the fewest requests.
    fn take(&mut self, most: u32) -> Option<Arc<Replica>> {
        let free = self
            .slots
            .iter_mut()
            .filter(|slot| slot.place == Place::Ready && !slot.old && slot.in_flight < most);
        let slot = free.min_by_key(|slot| slot.in_flight)?;
        slot.in_flight += 1;
        Some(slot.replica.clone())
    }

    /// Gives what is free to those who wait, in their order.
    fn hand_out(&mut self, most: u32) {
        while !self.line.is_empty() {
            let Some(replica) = self.take(most) else { return };
            let allocation = replica.allocation;
            let mut left = Some(replica);
            while let Some(given) = left.take() {
                let Some(waiting) = self.line.pop_front() else {
                    left = Some(given);
                    break;
                };
                // Whoever left the line is passed over.
                left = waiting.send(given).err();
            }
            if left.is_some()
                && let Some(slot) = self.slot(allocation)
            {
                slot.in_flight -= 1;
            }
        }
    }
}
