//! The node's work: starting, stopping, releasing and adopting allocations, each by its directory.
//!
//! One thread does all of it, in the order asked, so a stop never overtakes its start. Deliberately absent:
//! who asks (`channel.rs`) and the run itself (`exec.rs`).

mod adopt;
mod check;
mod energy;
mod part;
mod pause;
mod release;
mod seat;
mod start;
mod wait;
mod wall;
mod watch;
mod worker;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_api::channel::{AllocationReport, DeviceSlice, Order, RunState};
use tenure_domain::id::{AllocationId, VolumeId};
use tenure_domain::workload::job::StopReason;
use tokio::sync::watch as watch_channel;

use crate::check::Checks;
use crate::checkpoint::Checkpoint;
use crate::conduct;
use crate::discover::Found;
use crate::discover::setting::Setting;
use crate::driver::Drivers;
use crate::identity::Identity;
use crate::image::ImageConfig;
use crate::image::store::Store;
use crate::isolate::Isolation;
use crate::isolate::broker::Broker;
use crate::isolate::front::Front;
use crate::isolate::guard::Mapping;
use crate::isolate::mps::Mps;
use crate::isolate::network::Networks;
use crate::isolate::root::HostDir;
use crate::isolate::user::Users;
use crate::launch::Seat;
use crate::lease::Lease;
use crate::part::Parts;
use crate::record::{Phase, Record};
use crate::saved;
use crate::scrub::{Scrubs, Taker};
use crate::share::Shares;
use crate::state_dir::StateDir;
use crate::stop::StopRequest;
use crate::table::Table;
use crate::telemetry::{self, Telemetry};
use crate::volume::{Erased, Volumes};
use crate::watchdog::{self, Jobs, Watchdog};
use release::Tombstones;
use seat::Seats;
use wait::Waiting;

pub(crate) use seat::cgroup_prefix;

/// What an operator may set.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    pub first_user_id: u32,
    pub log_bytes_max: u64,
    pub processes_max: u32,
    /// How long, and how much of, the logs of released allocations are kept.
    pub logs_kept: Duration,
    pub logs_kept_bytes: u64,
    pub images: ImageConfig,
    /// What is run as the thin parent.
    pub program: PathBuf,
    /// How many sandboxes are kept ready.
    pub warm_seats: usize,
    /// Directories of the host that every job is shown.
    pub host_dirs: Vec<HostDir>,
    /// The guard library; without it no device is shared.
    pub guard: Option<PathBuf>,
    /// NVIDIA's libraries that the guard stands for in jobs.
    pub fronts: Vec<Front>,
    /// What workers are made with; without it no device is fenced.
    pub broker: Option<Broker>,
    /// How long one kernel of a shared slice may run.
    pub kernel_limit: Duration,
    /// What a driver takes of a device for each process, beside what the process asks for.
    pub context_bytes: u64,
    /// Bytes set apart for volumes; half of what is free if not said.
    pub volume_space: Option<u64>,
    /// The control program of NVIDIA's MPS; with it, jobs of one tenant share a device under it.
    pub mps: Option<PathBuf>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        NodeConfig {
            first_user_id: crate::isolate::user::FIRST_USER_ID,
            log_bytes_max: 64 << 20,
            processes_max: 4096,
            logs_kept: Duration::from_secs(24 * 3600),
            logs_kept_bytes: 2 << 30,
            images: ImageConfig::default(),
            program: PathBuf::from(crate::PROGRAM),
            warm_seats: 4,
            host_dirs: Vec::new(),
            guard: None,
            fronts: Vec::new(),
            broker: None,
            kernel_limit: Duration::from_secs(30),
            context_bytes: 640 << 20,
            volume_space: None,
            mps: None,
        }
    }
}

/// One wish of the server.
#[derive(Debug)]
pub enum Wish {
    Start(Box<Order>),
    Stop {
        allocation: AllocationId,
        reason: StopReason,
        grace_s: u32,
    },
    Release(AllocationId),
    /// As decided, whatever is in use.
    Resize {
        allocation: AllocationId,
        devices: Vec<DeviceSlice>,
    },
    Pause(AllocationId),
    Resume(Taker),
    GrowVolume {
        volume: VolumeId,
        size_mib: u64,
    },
    EraseVolume(VolumeId),
}

impl Wish {
    /// What it is about, for people.
    pub fn subject(&self) -> String {
        match self {
            Wish::Start(order) => order.allocation.to_string(),
            Wish::Stop { allocation, .. }
            | Wish::Release(allocation)
            | Wish::Resize { allocation, .. }
            | Wish::Pause(allocation)
            | Wish::Resume(Taker { allocation, .. }) => allocation.to_string(),
            Wish::GrowVolume { volume, .. } | Wish::EraseVolume(volume) => volume.to_string(),
        }
    }
}

pub struct Node {
    pub dir: Arc<StateDir>,
    pub table: Arc<Table>,
    pub isolation: Isolation,
    pub images: Arc<Store>,
    config: NodeConfig,
    waiting: Mutex<Waiting>,
    users: Mutex<Users>,
    tombstones: Mutex<Tombstones>,
    found: Mutex<Arc<Found>>,
    pub shares: Shares,
    pub scrubs: Scrubs,
    checks: Checks,
    parts: Parts,
    drivers: Drivers,
    mps: Option<Mps>,
    pub telemetry: Telemetry,
    watchdog: Watchdog,
    ending: Mutex<()>,
    /// Sets aside what programs have on devices whose driver can.
    checkpoint: Option<Checkpoint>,
    /// What is being paused or resumed just now.
    moving: Mutex<BTreeSet<AllocationId>>,
    seats: Arc<Seats>,
    networks: Option<Networks>,
    pub volumes: Volumes,
    /// Volumes erased and not yet told of.
    erased: watch_channel::Sender<BTreeSet<VolumeId>>,
    runtime: tokio::runtime::Handle,
}

impl Node {
    /// Takes the directory over: adopts what runs, settles what ended meanwhile. Call within a runtime.
    pub fn open(dir: Arc<StateDir>, config: NodeConfig, isolation: Isolation) -> io::Result<Arc<Node>> {
        let seat = Seat {
            namespaces: isolation.namespaces,
            cgroups: isolation.cgroups.clone(),
            cgroup_prefix: seat::cgroup_prefix(dir.root())?,
            stage: dir.root().join("stage"),
            host_dirs: config.host_dirs.clone(),
        };
        let mut notes = Vec::new();
        let networks = Networks::open(dir.root(), isolation.root && isolation.namespaces.own, &mut notes)?;
        let volumes = Volumes::open(dir.root(), config.volume_space, &isolation, &mut notes)?;
        for note in notes {
            tracing::info!("{note}");
        }
        // Fail closed: a driver beside a guard that is not known is past it.
        let guard = config.guard.as_ref().and_then(|library| {
            Mapping::of(&config.program, library)
                .inspect_err(|why| tracing::error!("the guard cannot be known in jobs: {why}"))
                .ok()
        });
        let node = Arc::new(Node {
            networks,
            volumes,
            erased: watch_channel::Sender::default(),
            shares: Shares::open(dir.root(), config.kernel_limit, isolation.namespaces.own)?,
            scrubs: Scrubs::open(dir.root())?,
            checks: Checks::default(),
            mps: match &config.mps {
                Some(program) => Some(Mps::open(dir.root(), program.clone())?),
                None => None,
            },
            drivers: Drivers(Setting::from_environment()),
            parts: Parts::open(
                dir.root(),
                Box::new(Drivers(Setting::from_environment())),
                crate::part::AGAIN,
            )?,
            telemetry: Telemetry::open(dir.root()),
            watchdog: Watchdog::new(Setting::from_environment().root, config.context_bytes, guard),
            ending: Mutex::default(),
            checkpoint: Checkpoint::of(&Setting::from_environment()),
            moving: Mutex::default(),
            seats: Seats::open(config.program.clone(), &seat, config.warm_seats)?,
            users: Mutex::new(Users::open(dir.root(), config.first_user_id)?),
            tombstones: Mutex::new(Tombstones::open(dir.root())?),
            table: Arc::default(),
            found: Mutex::default(),
            images: Store::open(dir.root(), config.images.clone()).map_err(io::Error::other)?,
            waiting: Mutex::default(),
            runtime: tokio::runtime::Handle::current(),
            dir,
            isolation,
            config,
        });
        // Heard from now on: a run that changes while the directories are read says so here.
        watch::listen(&node)?;
        adopt::all(&node)?;
        node.clear_slices();
        node.clear_workers();
        node.clear_parts();
        node.clear_mps();
        Ok(node)
    }

    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    pub fn set_found(&self, found: Arc<Found>) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// Why there are no workers here.
    pub fn no_workers(&self) -> Option<String> {
        if self.config.broker.is_none() {
            Some("there is nothing to make workers with".to_owned())
        } else {
            self.isolation.no_workers()
        }
    }

    /// What the machine was last seen to have.
    pub fn found(&self) -> Arc<Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Does what is wished. Errors are the node's: nothing is reported, so the server will say it again.
    pub fn grant(self: &Arc<Self>, wish: Wish) -> io::Result<()> {
        match wish {
            Wish::Start(order) => self.start(*order),
            Wish::Stop {
                allocation,
                reason,
                grace_s,
            } => {
                let note = None;
                self.stop(
                    allocation,
                    &StopRequest {
                        reason,
                        grace_s,
                        note,
                    },
                )
            }
            Wish::Release(allocation) => self.release(allocation),
            Wish::Resize { allocation, devices } => {
                self.shares.resize(allocation, &devices)?;
                self.limit_anew(allocation, &devices)
            }
            Wish::Pause(allocation) => self.pause(allocation),
            Wish::Resume(taker) => self.resume(taker),
            Wish::GrowVolume { volume, size_mib } => self.volumes.grow(volume, size_mib),
            Wish::EraseVolume(volume) => {
                // In use it is said again, until it is not.
                if self.volumes.erase(volume)? == Erased::Gone {
                    self.erased.send_modify(|erased| {
                        erased.insert(volume);
                    });
                }
                Ok(())
            }
        }
    }

    /// Waits for volumes that were erased and gives them, once.
    pub async fn erased_volumes(&self) -> BTreeSet<VolumeId> {
        let mut news = self.erased.subscribe();
        // Cannot end: the sender is here.
        let _ = news.wait_for(|erased| !erased.is_empty()).await;
        self.erased.send_replace(BTreeSet::new())
    }

    /// Takes slices of what has ended off their devices, and what dead processes left on the others.
    pub fn clear_slices(&self) {
        self.shares.clear(|id| self.lives(id));
    }

    /// Ends what holds more of a device than its slice has, whatever the guard inside it says.
    pub fn watch_use(&self) {
        let (found, given) = (self.found(), self.shares.given());
        let nvidia = self.telemetry.nvidia_processes(&found);
        // What is seen at once is ended at once: looking at all that is mapped may take a while.
        for (id, note) in self.watchdog.look(&found, &given, nvidia.as_ref(), self) {
            self.end_over_limit(id, note);
        }
        self.inspect();
        for (id, note) in self.watchdog.past_the_guard(&given, self) {
            self.end_over_limit(id, note);
        }
    }

    fn end_over_limit(&self, id: AllocationId, note: String) {
        tracing::warn!(allocation = %id, "{note}");
        if let Err(error) = self.stop(id, &watchdog::request(note)) {
            tracing::error!(allocation = %id, %error, "could not end what is over its limit");
        }
    }

    /// Who alone could have written on the page that an allocation's slice is on: those behind a worker cannot, and of
    /// several nobody can tell which it was.
    fn only_writer_beside(&self, id: AllocationId) -> Option<AllocationId> {
        let given = self.shares.given();
        let its = given.iter().find(|slice| slice.allocation == id)?;
        let on_it = given.iter().filter(|slice| slice.uuid == its.uuid);
        let mut writers = on_it
            .map(|slice| slice.allocation)
            .filter(|&id| self.lives(id) && self.worker_cgroup(id).is_none());
        writers.next().filter(|_| writers.next().is_none())
    }

    /// Writes down what was done to limits since it was last looked.
    fn inspect(&self) {
        for (id, seen) in self.shares.inspect() {
            let kinds: Vec<&str> = seen.iter().map(|kind| kind.as_str()).collect();
            tracing::warn!(allocation = %id, ?kinds, "a job's limits were tampered with");
            if let Err(error) = conduct::keep_tampering(&self.dir.allocation(id), &seen) {
                tracing::error!(allocation = %id, %error, "could not write down what was done to a job's limits");
            }
            if let Some(writer) = self.only_writer_beside(id) {
                self.end_over_limit(writer, "ended: it wrote on the page of its limits".to_owned());
            }
        }
    }

    /// Adds to reports of what has ended what it did at its devices' boundary, signed with the node's key of now.
    pub fn add_conduct(&self, reports: &mut [AllocationReport], identity: &Identity) {
        let ended = reports
            .iter_mut()
            .filter(|report| matches!(report.state, RunState::Exited { .. }));
        for report in ended {
            let Some(conduct) = self
                .table
                .get(report.allocation)
                .and_then(|record| record.conduct)
            else {
                continue;
            };
            match identity.sign(*conduct) {
                Ok(record) => report.conduct = Some(Box::new(record)),
                Err(error) => tracing::error!(%error, "could not sign what a run did"),
            }
        }
    }

    /// Reads what devices and slices do.
    pub fn measure(&self) {
        self.inspect();
        let pages = self.shares.read();
        self.telemetry.meter_energy(&self.found(), &self.on_devices());
        self.telemetry
            .measure(&self.found(), &pages, tenure_limits::now_ns());
    }

    /// Adds to reports of what runs how it uses its devices, and when it last saved its work.
    pub fn add_usage(&self, reports: &mut [AllocationReport]) {
        for report in reports
            .iter_mut()
            .filter(|report| matches!(report.state, RunState::Running | RunState::Paused))
        {
            report.usage = self.telemetry.usage(report.allocation);
            let record = self.table.get(report.allocation);
            let dir = self.dir.allocation(report.allocation);
            // Looked at a moment after the time it ran was, and by another clock.
            let ago_ms = record.and_then(|record| saved::ago_ms(&record, &dir));
            report.saved_ago_ms = ago_ms.map(|ago_ms| ago_ms.min(report.ran_ms));
        }
    }

    /// Takes what has ended off its devices, and writes down first what it used of them: a crash between the two
    /// finds it on the devices still.
    fn take_off(&self, record: Record) -> Record {
        let _one_at_a_time = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        let id = record.allocation;
        let dir = self.dir.allocation(id);
        // An end is heard of twice, from the thin parent and by its own end: the other may have written it.
        let written = Record::read(&dir).ok().flatten();
        let mut record = written
            .filter(|written| written.phase.has_ended())
            .unwrap_or(record);
        if record.usage.is_none() && record.conduct.is_none() {
            // What was done to its limits since the last look.
            self.inspect();
            // What its devices used up to now is still its own.
            self.telemetry.meter_energy(&self.found(), &self.on_devices());
            let ended = self.shares.end(id);
            let counted = ended.as_ref().map(|ended| ended.usage);
            record.usage = telemetry::with_energy(counted, self.telemetry.energy_mj(id));
            record.conduct =
                conduct::of(&record, &dir, ended.as_ref(), self.shares.take_tampering(id)).map(Box::new);
            if (record.usage.is_some() || record.conduct.is_some())
                && let Err(error) = record.follow(&dir)
            {
                tracing::warn!(allocation = %id, %error, "could not write down what a run used");
            }
        }
        self.telemetry.forget_energy(id);
        self.shares.withdraw(id);
        self.parts.remove(id);
        record
    }

    fn lives(&self, id: AllocationId) -> bool {
        self.table.knows(id) && self.table.get(id).is_none_or(|record| !record.phase.has_ended())
    }

    fn holds_lease(&self) -> bool {
        Lease::read(self.dir.root()).is_some_and(Lease::holds)
    }

    pub(crate) fn is_buried(&self, id: AllocationId) -> bool {
        self.tombstones
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .holds(id)
    }

    /// Says of a released allocation what is still known of it.
    fn answer_buried(&self, id: AllocationId) {
        let kept = Record::read(&self.dir.released_allocation(id))
            .ok()
            .flatten()
            .and_then(|record| record.report());
        let gone = || AllocationReport {
            allocation: id,
            ran_ms: 0,
            state: RunState::NotStarted {
                why: "it was released before".to_owned(),
            },
            usage: None,
            saved_ago_ms: None,
            kept: None,
            conduct: None,
        };
        self.table.answer(kept.unwrap_or_else(gone));
    }

    pub(super) fn stop(&self, id: AllocationId, request: &StopRequest) -> io::Result<()> {
        if self.is_buried(id) {
            self.answer_buried(id);
            return Ok(());
        }
        let dir = self.dir.allocation(id);
        if self.wait_no_more(id) {
            return self.end_unstarted(&dir, id, request);
        }
        if self.table.knows(id) {
            request.leave(&dir)?;
            if self.table.get(id).is_some_and(|record| record.phase.has_ended()) {
                self.table.tell_again(id);
            }
            return Ok(());
        }
        self.end_unstarted(&dir, id, request)
    }

    /// Stopped before its start, which must then not happen: whoever claims first decides.
    fn end_unstarted(&self, dir: &Path, id: AllocationId, request: &StopRequest) -> io::Result<()> {
        start::make_dir(dir)?;
        let phase = Phase::Exited {
            exit_code: None,
            signal: None,
            by: Some(request.reason),
            ran_ms: 0,
        };
        let record = Record::without_process(id, phase);
        if record.claim(dir)? {
            record.replace(dir)?;
            self.table.put(record);
        }
        Ok(())
    }
}

impl Jobs for Node {
    fn processes_with_drivers(&self, id: AllocationId) -> Vec<i32> {
        match self.worker_cgroup(id) {
            Some(_) => Vec::new(),
            None => self.processes(id),
        }
    }

    fn processes(&self, id: AllocationId) -> Vec<i32> {
        let record = self.table.get(id).filter(|record| !record.phase.has_ended());
        let Some(record) = record else {
            return Vec::new();
        };
        // A fenced job's memory is held by its worker.
        let cgroups = record
            .cgroups
            .first()
            .cloned()
            .into_iter()
            .chain(self.worker_cgroup(id));
        let texts = cgroups.filter_map(|dir| std::fs::read_to_string(dir.join("cgroup.procs")).ok());
        let pids: Vec<i32> = texts
            .flat_map(|text| {
                text.lines()
                    .filter_map(|pid| pid.parse().ok())
                    .collect::<Vec<_>>()
            })
            .collect();
        pids
    }
}
