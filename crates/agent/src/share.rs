//! Slices of shared devices: the limits page of each device, made, filled, watched and cleared by the agent.
//!
//! A slice's id is its allocation's number, so an agent started anew knows whose each is. Pages live in memory
//! only: their locks mean nothing after a reboot, and a page that is written to disk would stall its writers.
//! A guarded job can write on its device's page, so what was given is known apart from it (`given`), and written there
//! again where it says something else. Deliberately absent: how a process takes part (limits), and what it is told of it
//! (`isolate/guard.rs`).

mod given;
mod integrity;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::channel::{DeviceSlice, Order};
use tenure_domain::audit::conduct::Tampering;
use tenure_domain::id::AllocationId;
use tenure_domain::workload::spec::Isolation as Level;
use tenure_domain::workload::usage::Usage;
use tenure_limits::{Device, Fit, SliceReading, SliceSpec, Snapshot};

use crate::clock;
use crate::discover::{Found, OpenClName};
use crate::telemetry;
pub use given::Given;
use integrity::{Integrity, differs};

/// A slice as its job's processes find it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardedSlice {
    pub page: PathBuf,
    pub slice: u64,
    /// The device's.
    pub uuid: String,
    pub device: OpenClName,
}

/// What an allocation's slices say at their end.
#[derive(Debug, Clone, Default)]
pub struct Ended {
    pub usage: Usage,
    pub slices: Vec<SliceReading>,
}

/// What one device's page says.
#[derive(Debug, Clone)]
pub struct SharedReading {
    pub uuid: String,
    pub snapshot: Snapshot,
}

/// The pages of this node's devices.
pub struct Shares {
    dir: PathBuf,
    /// Where each allocation has its directory.
    allocations: PathBuf,
    /// One kernel of a shared slice may run this long: no driver interrupts one.
    kernel_limit: Duration,
    pages: Mutex<BTreeMap<String, Arc<Page>>>,
    /// Devices whose pages cannot be taken up while allocations live on them: nothing more is given there until those
    /// have ended, for two pages of one device would each give all of it.
    closed: Mutex<BTreeSet<String>>,
    /// Held while limits are written and while they are compared, so that nobody sees half of a change.
    integrity: Mutex<Integrity>,
}

struct Page {
    path: PathBuf,
    device: Device,
}

impl Shares {
    /// Takes up the pages an older agent made in this boot. Where jobs have trees of their own, into which pages are
    /// bound, nobody else comes near the directory.
    pub fn open(state_dir: &Path, kernel_limit: Duration, own_trees: bool) -> io::Result<Shares> {
        let dir = place(state_dir)?;
        // Else it is to be passed through by jobs that share the host's files, not listed by them.
        let mode = if own_trees { 0o700 } else { 0o711 };
        match DirBuilder::new().mode(mode).create(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => fs::set_permissions(&dir, Permissions::from_mode(mode))?,
        }
        let shares = Shares {
            dir,
            allocations: state_dir.join("allocations"),
            kernel_limit,
            pages: Mutex::default(),
            closed: Mutex::default(),
            integrity: Mutex::default(),
        };
        shares.take_up()?;
        Ok(shares)
    }

    fn take_up(&self) -> io::Result<()> {
        let mut of_older = BTreeSet::new();
        for earlier in given::read(&self.allocations) {
            if !earlier.of_this_version {
                of_older.insert(earlier.uuid.clone());
            }
            self.integrity().give(&earlier.uuid, earlier.spec);
        }
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let Some(uuid) = path.file_stem().and_then(|name| name.to_str()).and_then(unname) else {
                continue;
            };
            let is_given = self.integrity().all().any(|(on, _)| on == uuid);
            let opened = Device::open(&path).or_else(|error| match is_given && !of_older.contains(&uuid) {
                // It was one of ours: whoever is on it wrote over what it says of itself.
                true => Device::open_mended(&path),
                false => Err(error),
            });
            match opened {
                Ok(device) => {
                    self.believe(&uuid, &device);
                    self.pages().insert(uuid, Arc::new(Page { path, device }));
                }
                Err(error) if is_given => {
                    tracing::warn!(page = %path.display(), %error, "a limits page is not taken up; its device is closed while jobs are on it");
                    self.closed().insert(uuid);
                }
                Err(error) => {
                    tracing::warn!(page = %path.display(), %error, "left a limits page behind");
                    fs::remove_file(&path)?;
                }
            }
        }
        Ok(())
    }

    /// Of slices that an agent gave which wrote nothing down, what the page says is all there is to know.
    fn believe(&self, uuid: &str, device: &Device) {
        let Ok(snapshot) = device.snapshot() else { return };
        let mut integrity = self.integrity();
        for slice in &snapshot.slices {
            if integrity.given(uuid, AllocationId(slice.id)).is_none() {
                integrity.give(
                    uuid,
                    SliceSpec {
                        id: slice.id,
                        limit_bytes: slice.limit_bytes,
                        weight_per_mille: slice.weight_per_mille,
                        cap_per_mille: slice.cap_per_mille,
                        kernel_limit_ns: Some(slice.kernel_limit_ns).filter(|limit| *limit > 0),
                        process_limit_ns: None,
                    },
                );
            }
        }
    }

    /// Puts an order's slices on their devices. A device that only OpenCL's guard can watch over is not given
    /// without one; one that is given whole may be.
    pub fn admit(&self, order: &Order, found: &Found) -> io::Result<Vec<GuardedSlice>> {
        let mut slices = Vec::new();
        // Hardware limits a part; there is nothing to share out inside it.
        for wanted in order.devices.iter().filter(|wanted| wanted.part.is_none()) {
            let Some(name) = found
                .device(&wanted.uuid)
                .and_then(|device| device.opencl.clone())
            else {
                continue;
            };
            match self.add(order, wanted) {
                Ok(page) => slices.push(GuardedSlice {
                    page,
                    slice: order.allocation.0,
                    uuid: wanted.uuid.clone(),
                    device: name,
                }),
                Err(error) => {
                    self.withdraw(order.allocation);
                    return Err(error);
                }
            }
        }
        Ok(slices)
    }

    fn integrity(&self) -> MutexGuard<'_, Integrity> {
        self.integrity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Page>>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn closed(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All slices as they were given, whatever pages say.
    pub fn given(&self) -> Vec<Given> {
        let integrity = self.integrity();
        let given = integrity.all().map(|(uuid, spec)| Given {
            uuid: uuid.to_owned(),
            allocation: AllocationId(spec.id),
            limit_bytes: spec.limit_bytes,
            weight_per_mille: spec.weight_per_mille,
        });
        given.collect()
    }

    /// Compares all pages with what was given, and writes that on them where they say something else; tells what was not
    /// seen before.
    pub fn inspect(&self) -> BTreeMap<AllocationId, BTreeSet<Tampering>> {
        let mut integrity = self.integrity();
        let mut news: BTreeMap<AllocationId, BTreeSet<Tampering>> = BTreeMap::new();
        for (uuid, page) in self.all() {
            // A longer one holds memory that is in nobody's limit.
            let snapshot = page
                .device
                .snapshot()
                .ok()
                .filter(|_| page.device.has_its_length());
            if snapshot.is_none() {
                // Seen below; others go on with it.
                page.device.mend();
            }
            for (id, kinds) in integrity.look(&uuid, snapshot.as_ref()) {
                news.entry(id).or_default().extend(kinds);
            }
            if page.device.is_lost() {
                self.open_again(&uuid, &page);
            } else if let Some(snapshot) = snapshot {
                write_again(&mut integrity, &uuid, &page.device, &snapshot);
            }
        }
        news
    }

    /// A page that was cut short while the agent was at it is another file to it now.
    fn open_again(&self, uuid: &str, page: &Page) {
        match Device::open(&page.path) {
            Ok(device) => {
                let path = page.path.clone();
                self.pages()
                    .insert(uuid.to_owned(), Arc::new(Page { path, device }));
            }
            Err(error) => tracing::error!(device = uuid, %error, "a limits page cannot be opened again"),
        }
    }

    /// What was done to an allocation's limits, told once.
    pub fn take_tampering(&self, id: AllocationId) -> BTreeSet<Tampering> {
        self.integrity().take(id)
    }

    fn add(&self, order: &Order, wanted: &DeviceSlice) -> io::Result<PathBuf> {
        let page = self.page(&wanted.uuid)?;
        let mut integrity = self.integrity();
        let kernel_limit_ns = self
            .longest_kernel(wanted)
            .filter(|_| order.isolation != Level::Exclusive);
        let spec = spec_of(order.allocation, wanted, kernel_limit_ns);
        match page.device.add(spec) {
            // Of a start that came to nothing: it is set anew.
            Err(tenure_limits::Error::Exists(_)) => write(&page.device, &spec).map(drop),
            added => added,
        }
        .map_err(io::Error::other)?;
        integrity.give(&wanted.uuid, spec);
        // Before anybody is there who could turn them back.
        if let Ok(snapshot) = page.device.snapshot() {
            integrity.begin(&wanted.uuid, &snapshot, order.allocation);
        }
        self.keep(&integrity, order.allocation)?;
        Ok(page.path.clone())
    }

    /// Writes down what an allocation has.
    fn keep(&self, integrity: &Integrity, id: AllocationId) -> io::Result<()> {
        let own = integrity.all().filter(|(_, spec)| spec.id == id.0);
        let own: Vec<_> = own.map(|(uuid, spec)| (uuid.to_owned(), spec)).collect();
        given::write(&self.allocations.join(id.to_string()), &own)
    }

    fn page(&self, uuid: &str) -> io::Result<Arc<Page>> {
        if self.closed().contains(uuid) {
            return Err(io::Error::other(format!(
                "device {uuid} is closed until the jobs on it have ended: the page of its limits cannot be taken up"
            )));
        }
        let mut pages = self.pages();
        if let Some(page) = pages.get(uuid) {
            return Ok(page.clone());
        }
        let path = self.dir.join(format!("{}.page", name(uuid)));
        let device = Device::create(&path).map_err(io::Error::other)?;
        // Whoever has a slice takes part in the page; only they are shown it.
        fs::set_permissions(&path, Permissions::from_mode(0o666))?;
        let page = Arc::new(Page { path, device });
        pages.insert(uuid.to_owned(), page.clone());
        Ok(page)
    }

    /// Changes the size and share of a running allocation's slices, whatever they use.
    pub fn resize(&self, id: AllocationId, wanted: &[DeviceSlice]) -> io::Result<()> {
        for wanted in wanted {
            if let Some(page) = self.all().get(&wanted.uuid) {
                self.set(page, &wanted.uuid, self.resized(id, wanted))
                    .map_err(io::Error::other)?;
            }
        }
        Ok(())
    }

    /// Keeps an allocation that has given its devices back from having anything of them.
    pub fn set_aside(&self, id: AllocationId) {
        for (uuid, page) in self.all() {
            let given = self.integrity().given(&uuid, id);
            if let Some(given) = given {
                let nothing = SliceSpec {
                    limit_bytes: 0,
                    ..given
                };
                let _ = self.set(&page, &uuid, nothing);
            }
        }
    }

    /// The same; but where a slice uses more than it would have, all stay as they were.
    pub fn try_resize(&self, id: AllocationId, wanted: &[DeviceSlice]) -> Result<(), String> {
        let pages = self.all();
        let mut before: Vec<(&str, SliceSpec)> = Vec::new();
        for wanted in wanted {
            let was = self.integrity().given(&wanted.uuid, id);
            let (Some(page), Some(was)) = (pages.get(&wanted.uuid), was) else {
                self.put_back(&pages, &before);
                return Err(format!(
                    "device {} is not shared by the job in a way that can change",
                    wanted.uuid
                ));
            };
            before.push((&wanted.uuid, was));
            let why = match self.set(page, &wanted.uuid, self.resized(id, wanted)) {
                Ok(fit) if fit.fits() => continue,
                Ok(fit) => format!(
                    "the job uses {} MiB of device memory now, more than {} MiB",
                    fit.used_bytes.div_ceil(1 << 20),
                    wanted.vram_mib
                ),
                Err(error) => error.to_string(),
            };
            self.put_back(&pages, &before);
            return Err(why);
        }
        Ok(())
    }

    fn put_back(&self, pages: &BTreeMap<String, Arc<Page>>, before: &[(&str, SliceSpec)]) {
        for (uuid, was) in before {
            if let Some(page) = pages.get(*uuid) {
                let _ = self.set(page, uuid, *was);
            }
        }
    }

    fn resized(&self, id: AllocationId, wanted: &DeviceSlice) -> SliceSpec {
        spec_of(id, wanted, self.longest_kernel(wanted))
    }

    fn set(&self, page: &Page, uuid: &str, spec: SliceSpec) -> Result<Fit, tenure_limits::Error> {
        let id = AllocationId(spec.id);
        let mut integrity = self.integrity();
        let fit = write(&page.device, &spec)?;
        integrity.give(uuid, spec);
        if let Ok(snapshot) = page.device.snapshot() {
            integrity.begin(uuid, &snapshot, id);
        }
        if let Err(error) = self.keep(&integrity, id) {
            tracing::error!(allocation = %id, %error, "could not write down what an allocation was given");
        }
        Ok(fit)
    }

    /// How long one kernel may run: a device that is nobody else's has all the time.
    fn longest_kernel(&self, wanted: &DeviceSlice) -> Option<u64> {
        (wanted.compute_permille < 1000).then_some(self.kernel_limit.as_nanos() as u64)
    }

    /// Ends an allocation's slices, and says what they used; none where it has no slice. They stay on their pages, so
    /// that it can be said again until it is written down.
    pub fn end(&self, id: AllocationId) -> Option<Ended> {
        let mut total: Option<Ended> = None;
        for page in self.all().values() {
            if page.device.end(id.0).is_err() {
                continue;
            }
            let Ok(snapshot) = page.device.snapshot() else {
                continue;
            };
            let Some(slice) = snapshot.slice(id.0) else {
                continue;
            };
            let total = total.get_or_insert_default();
            total.usage.add(&telemetry::used_by(slice));
            total.slices.push(slice.clone());
        }
        total
    }

    /// Ends an allocation's slices: nothing more is allocated or launched on them. They leave their pages when
    /// their last process has.
    pub fn withdraw(&self, id: AllocationId) {
        self.let_go(id);
        for page in self.all().values() {
            if page.device.end(id.0).is_ok() {
                let _ = page.device.remove(id.0);
            }
        }
    }

    /// First of all that is done of a slice's end: what is not given is not written on its page again.
    fn let_go(&self, id: AllocationId) {
        self.integrity().let_go(id);
        given::forget(&self.allocations.join(id.to_string()));
    }

    /// Drops what dead processes left, and slices of allocations that are no longer `alive`.
    pub fn clear(&self, alive: impl Fn(AllocationId) -> bool) {
        let given: BTreeSet<u64> = self.integrity().all().map(|(_, spec)| spec.id).collect();
        for id in given.into_iter().map(AllocationId).filter(|id| !alive(*id)) {
            self.let_go(id);
        }
        for (uuid, page) in self.all() {
            page.device.reap();
            let Ok(snapshot) = page.device.snapshot() else {
                tracing::error!(device = uuid, "a limits page was damaged");
                continue;
            };
            for slice in snapshot
                .slices
                .iter()
                .filter(|slice| !alive(AllocationId(slice.id)))
            {
                let _ = page.device.end(slice.id);
                let _ = page.device.remove(slice.id);
            }
        }
        let integrity = self.integrity();
        self.closed().retain(|uuid| {
            integrity.all().any(|(on, _)| on == uuid)
                || fs::remove_file(self.dir.join(format!("{}.page", name(uuid)))).is_err()
        });
    }

    /// What all pages say.
    pub fn read(&self) -> Vec<SharedReading> {
        self.all()
            .into_iter()
            .filter_map(|(uuid, page)| {
                page.device
                    .snapshot()
                    .ok()
                    .map(|snapshot| SharedReading { uuid, snapshot })
            })
            .collect()
    }

    fn all(&self) -> BTreeMap<String, Arc<Page>> {
        self.pages().clone()
    }
}

/// As a page takes it.
fn spec_of(id: AllocationId, wanted: &DeviceSlice, kernel_limit_ns: Option<u64>) -> SliceSpec {
    let weight_per_mille = u32::from(wanted.compute_permille).clamp(1, 1000);
    SliceSpec {
        id: id.0,
        limit_bytes: wanted.vram_mib.saturating_mul(1 << 20),
        weight_per_mille,
        cap_per_mille: wanted.capped.then_some(weight_per_mille),
        kernel_limit_ns,
        process_limit_ns: None,
    }
}

/// Writes a slice's limits on its place.
fn write(device: &Device, spec: &SliceSpec) -> Result<Fit, tenure_limits::Error> {
    device.reshare(spec.id, spec.weight_per_mille, spec.cap_per_mille)?;
    device.set_time_limits(spec.id, spec.kernel_limit_ns, spec.process_limit_ns)?;
    device.resize(spec.id, spec.limit_bytes)
}

/// Writes what was given where a page says something else, or nothing.
fn write_again(integrity: &mut Integrity, uuid: &str, device: &Device, snapshot: &Snapshot) {
    let given: Vec<SliceSpec> = integrity
        .all()
        .filter(|(on, _)| *on == uuid)
        .map(|(_, spec)| spec)
        .collect();
    for spec in given {
        let written = match snapshot.slice(spec.id) {
            Some(reading) if !differs(&spec, reading) => continue,
            Some(_) => write(device, &spec).map(drop),
            None => device.add(spec),
        };
        integrity.begin_anew(uuid, AllocationId(spec.id));
        if let Err(error) = written {
            tracing::warn!(device = uuid, %error, "could not write limits on their page again");
        }
    }
}

/// In memory, told from those of other agents and other boots.
pub(crate) fn place(state_dir: &Path) -> io::Result<PathBuf> {
    let facts = fs::metadata(state_dir)?;
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        Ok(shm.join(format!("tenure-{:x}-{:x}", facts.dev(), facts.ino())))
    } else {
        Ok(state_dir.join(format!("pages-{}", clock::boot_id())))
    }
}

/// A uuid as a file's name: it may hold anything.
fn name(uuid: &str) -> String {
    uuid.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn unname(name: &str) -> Option<String> {
    let bytes: Option<Vec<u8>> = name
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    String::from_utf8(bytes?).ok()
}

#[cfg(test)]
pub(crate) mod tests;
