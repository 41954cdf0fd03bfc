//! Services: requests routed to replicas that live, counted, and the number of replicas steered by them.
//!
//! A service is a job of replicas (`domain/workload/service`); each has a desk here, in memory of the leader, made
//! anew from the state by whoever leads next. No request touches the journal: it is told when the number of replicas
//! changes, when one of them failed, and once a minute who asked how often. Routes call `desk` and `relay`; `run` is the
//! loop beside them. Deliberately absent: how many replicas a load needs (`domain`), and how one is started or stopped
//! (it is a job like any other).

mod connection;
mod count;
mod desk;
mod header;
mod relay;
mod replica;
mod show;
mod steer;

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_domain::workload::job::{Job, Phase};
use tenure_domain::workload::service::Serving;
use tenure_domain::{Event, State, Wish};
use tenure_engine::Engine;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::controller::Controller;
use crate::reading::Readings;
use replica::Replica;
use steer::Steering;

pub(crate) use desk::Desk;
pub(crate) use relay::relay;
pub(crate) use show::{view, waits_for};

/// How often the number of replicas is thought over.
const THINK: Duration = Duration::from_secs(1);
/// News within so long are looked at together.
const TOGETHER: Duration = Duration::from_millis(5);
const MINUTE: Duration = Duration::from_secs(60);

/// All services of the platform, as far as this server leads.
pub(crate) struct Services {
    controller: Controller,
    engine: Arc<dyn Engine>,
    readings: Arc<Readings>,
    desks: RwLock<HashMap<JobId, Arc<Desk>>>,
    wake: Arc<Notify>,
}

/// A service and what is known of it, while it is to have replicas.
pub(crate) fn serving(job: &Job) -> Option<&Serving> {
    job.tasks.as_deref()?.serving()
}

/// The replicas of a service, wherever each is in its life.
fn replicas<'a>(state: &'a State, job: &'a Job) -> impl Iterator<Item = &'a Job> {
    let living = job.tasks.iter().flat_map(|tasks| tasks.living.values());
    living.filter_map(|id| state.jobs.get(id))
}

impl Services {
    pub fn new(controller: Controller, engine: Arc<dyn Engine>, readings: Arc<Readings>) -> Services {
        Services {
            controller,
            engine,
            readings,
            desks: RwLock::default(),
            wake: Arc::default(),
        }
    }

    /// The desk of a live service; none for what is none.
    pub fn desk(self: &Arc<Self>, job: &Job) -> Option<Arc<Desk>> {
        if let Some(desk) = self.known(job.id) {
            return Some(desk);
        }
        serving(job)?;
        let service = job.spec.service.as_deref()?.clone();
        let mut desks = self.desks.write().expect("short and without panics");
        let desk = desks
            .entry(job.id)
            .or_insert_with(|| Arc::new(Desk::new(job.id, job.owner, service, self.wake.clone())));
        Some(desk.clone())
    }

    fn known(&self, job: JobId) -> Option<Arc<Desk>> {
        self.desks
            .read()
            .expect("short and without panics")
            .get(&job)
            .cloned()
    }

    fn all(&self) -> Vec<Arc<Desk>> {
        let desks = self.desks.read().expect("short and without panics");
        desks.values().cloned().collect()
    }

    /// Keeps desks and replicas in step with the state until told to stop; then journals what was used.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut news = self.controller.view().listen();
        let mut think = tokio::time::interval(THINK);
        let mut minute = tokio::time::interval(MINUTE);
        minute.tick().await;
        let mut steering = Steering::default();
        let mut led = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                heard = news.recv() => {
                    let concerns = match &heard {
                        Ok(batch) => batch.iter().any(|published| concerns(&published.event)),
                        Err(RecvError::Lagged(_)) => true,
                        Err(RecvError::Closed) => break,
                    };
                    if !concerns || !led {
                        continue;
                    }
                    tokio::time::sleep(TOGETHER).await;
                    while news.try_recv().is_ok() {}
                    self.sync();
                }
                () = self.wake.notified() => if led { self.steer(&mut steering).await },
                _ = think.tick() => {
                    let leads = self.controller.is_leading();
                    if leads != led {
                        led = leads;
                        steering = Steering::default();
                        self.begin(led);
                    }
                    if led {
                        self.sync();
                        self.steer(&mut steering).await;
                    }
                }
                _ = minute.tick() => self.journal_use().await,
            }
        }
        self.journal_use().await;
    }

    /// All services there are, or none where another server leads.
    fn begin(self: &Arc<Self>, leads: bool) {
        self.all().iter().for_each(|desk| desk.close());
        self.desks.write().expect("short and without panics").clear();
        if leads {
            let state = self.controller.view().read();
            state.jobs.values().for_each(|job| {
                self.desk(job);
            });
        }
    }

    /// Brings every desk in step with the state.
    fn sync(self: &Arc<Self>) {
        for desk in self.all() {
            let state = self.controller.view().read();
            let Some(job) = state.jobs.get(&desk.job) else {
                drop(state);
                desk.close();
                self.forget(&desk);
                continue;
            };
            let (mut running, mut stopping) = (Vec::new(), Vec::new());
            let mut reached: HashMap<AllocationId, (NodeId, u16)> = HashMap::new();
            for replica in replicas(&state, job) {
                let Some(allocation) = replica.allocation_of(0) else {
                    continue;
                };
                if let (Some(known), Some(task)) = (state.fleet.allocation(allocation), &replica.spec.task) {
                    reached.insert(allocation, (known.node, desk.service.port_of(task)));
                }
                match replica.phase {
                    Phase::Running => running.push((replica.id, allocation)),
                    Phase::Queued | Phase::Admitted | Phase::Placed | Phase::Starting => {}
                    _ => stopping.push(allocation),
                }
            }
            drop(state);
            running.retain(|(_, allocation)| reached.contains_key(allocation));
            let to_try = desk.sync(&running, &stopping, |job, allocation| {
                let (node, port) = reached[&allocation];
                Replica::new(job, allocation, node, port, self.engine.clone())
            });
            for replica in to_try {
                probe(self, desk.clone(), replica);
            }
        }
    }

    fn forget(&self, desk: &Desk) {
        let (controller, job, uses) = (self.controller.clone(), desk.job, desk.counts.take_used());
        if !uses.is_empty() {
            tokio::spawn(async move {
                if let Err(error) = controller.system(Wish::NoteServiceUse { job, uses }).await {
                    tracing::warn!(service = %job, ?error, "its last use was not journalled");
                }
            });
        }
        self.desks
            .write()
            .expect("short and without panics")
            .remove(&desk.job);
    }

    /// Who asked how often since the last time; what is not taken is counted on.
    async fn journal_use(&self) {
        for desk in self.all() {
            let uses = desk.counts.take_used();
            if uses.is_empty() {
                continue;
            }
            let wish = Wish::NoteServiceUse {
                job: desk.job,
                uses: uses.clone(),
            };
            if let Err(error) = self.controller.system(wish).await {
                tracing::warn!(service = %desk.job, ?error, "its use was not journalled yet");
                desk.counts.put_back(uses);
            }
        }
    }
}

/// Whether replicas may have come or gone.
fn concerns(event: &Event) -> bool {
    match event {
        Event::JobSubmitted { spec, .. } => spec.service.is_some(),
        Event::JobRunning { .. }
        | Event::JobStopping { .. }
        | Event::JobRequeued { .. }
        | Event::JobPausing { .. }
        | Event::JobKept { .. }
        | Event::JobEnded { .. } => true,
        _ => false,
    }
}

/// Asks a replica until it is ready. One that is not in time has failed, and its service is told with what.
fn probe(services: &Arc<Services>, desk: Arc<Desk>, replica: Arc<Replica>) {
    let services = services.clone();
    tokio::spawn(async move {
        let ready_s = desk.service.ready_s;
        let until = Instant::now() + Duration::from_secs(ready_s.into());
        let note = |why: String| *desk.said.lock().expect("short and without panics") = Some(why);
        let wanted = || desk.is_starting(&replica) && Instant::now() < until;
        if replica
            .until_ready(desk.service.ready.as_deref(), wanted, note)
            .await
        {
            desk.ready(&replica);
            return;
        }
        if !desk.is_starting(&replica) {
            return;
        }
        let said = desk.said.lock().expect("short and without panics").clone();
        let why = format!(
            "a replica was not ready within {ready_s} s: {}",
            said.as_deref().unwrap_or("it said nothing")
        );
        tracing::warn!(service = %desk.job, replica = %replica.job, why);
        let wish = Wish::FailReplica {
            replica: replica.job,
            why,
        };
        if let Err(error) = services.controller.system(wish).await {
            tracing::info!(?error, "a failed replica was gone already");
        }
    });
}
