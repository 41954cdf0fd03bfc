//! Slices of shared devices: the limits page of each device, made, filled, watched and cleared by the agent.
//!
//! A slice's id is its allocation's number, so an agent started anew knows whose each is. Pages live in memory
//! only: their locks mean nothing after a reboot, and a page that is written to disk would stall its writers.
//! Deliberately absent: how a process takes part (limits), and what it is told of it (`isolate/guard.rs`).

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
use tenure_limits::{Device, SliceReading, SliceSpec, Snapshot};

use crate::clock;
use crate::discover::{Found, OpenClName};
use crate::telemetry;
use integrity::Integrity;

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
    /// One kernel of a shared slice may run this long: no driver interrupts one.
    kernel_limit: Duration,
    pages: Mutex<BTreeMap<String, Arc<Page>>>,
    /// Held while limits are written and while they are compared, so that nobody sees half of a change.
    integrity: Mutex<Integrity>,
}

struct Page {
    path: PathBuf,
    device: Device,
}

impl Shares {
    /// Takes up the pages an older agent made in this boot.
    pub fn open(state_dir: &Path, kernel_limit: Duration) -> io::Result<Shares> {
        let dir = place(state_dir)?;
        // To be passed through by jobs that share the host's files, not listed by them.
        match DirBuilder::new().mode(0o711).create(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let mut pages = BTreeMap::new();
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            let Some(uuid) = path.file_stem().and_then(|name| name.to_str()).and_then(unname) else {
                continue;
            };
            match Device::open(&path) {
                Ok(device) => {
                    pages.insert(uuid, Arc::new(Page { path, device }));
                }
                Err(error) => {
                    // Of another version, or broken: what runs on it goes on with it, what comes gets a new one.
                    tracing::warn!(page = %path.display(), %error, "left a limits page behind");
                    fs::remove_file(&path)?;
                }
            }
        }
        let shares = Shares {
            dir,
            kernel_limit,
            pages: Mutex::new(pages),
            integrity: Mutex::default(),
        };
        shares.trust_all();
        Ok(shares)
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

    /// What an older agent put on its pages is taken for what it meant.
    fn trust_all(&self) {
        let mut integrity = self.integrity();
        for (uuid, page) in self.all() {
            let Ok(snapshot) = page.device.snapshot() else {
                continue;
            };
            for slice in &snapshot.slices {
                integrity.trust(&uuid, &snapshot, AllocationId(slice.id));
            }
        }
    }

    /// Compares all pages with what was written on them; gives what was not seen before.
    pub fn inspect(&self) -> BTreeMap<AllocationId, BTreeSet<Tampering>> {
        let mut integrity = self.integrity();
        let mut news: BTreeMap<AllocationId, BTreeSet<Tampering>> = BTreeMap::new();
        for (uuid, page) in self.all() {
            let snapshot = page.device.snapshot().ok();
            if snapshot.is_none() {
                // Seen below; others go on with it.
                page.device.mend();
            }
            for (id, kinds) in integrity.look(&uuid, snapshot.as_ref()) {
                news.entry(id).or_default().extend(kinds);
            }
        }
        news
    }

    /// What was done to an allocation's limits, told once.
    pub fn take_tampering(&self, id: AllocationId) -> BTreeSet<Tampering> {
        self.integrity().take(id)
    }

    fn add(&self, order: &Order, wanted: &DeviceSlice) -> io::Result<PathBuf> {
        let page = self.page(&wanted.uuid)?;
        let mut integrity = self.integrity();
        let spec = SliceSpec {
            id: order.allocation.0,
            limit_bytes: wanted.vram_mib << 20,
            weight_per_mille: wanted.compute_permille.into(),
            cap_per_mille: wanted.capped.then(|| wanted.compute_permille.into()),
            kernel_limit_ns: self
                .longest_kernel(wanted)
                .filter(|_| order.isolation != Level::Exclusive),
            process_limit_ns: None,
        };
        match page.device.add(spec) {
            // Of a start that came to nothing: it is set anew.
            Err(tenure_limits::Error::Exists(id)) => page
                .device
                .resize(id, spec.limit_bytes)
                .and_then(|_| page.device.reshare(id, spec.weight_per_mille, spec.cap_per_mille)),
            added => added,
        }
        .map_err(io::Error::other)?;
        if let Ok(snapshot) = page.device.snapshot() {
            integrity.trust(&wanted.uuid, &snapshot, order.allocation);
        }
        Ok(page.path.clone())
    }

    fn page(&self, uuid: &str) -> io::Result<Arc<Page>> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
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
                self.set(page, id, wanted).map_err(io::Error::other)?;
            }
        }
        Ok(())
    }

    /// Keeps an allocation that has given its devices back from having anything of them.
    pub fn set_aside(&self, id: AllocationId) {
        for (uuid, page) in self.all() {
            let mut integrity = self.integrity();
            if page.device.resize(id.0, 0).is_ok()
                && let Ok(snapshot) = page.device.snapshot()
            {
                integrity.trust(&uuid, &snapshot, id);
            }
        }
    }

    /// The same; but where a slice uses more than it would have, all stay as they were.
    pub fn try_resize(&self, id: AllocationId, wanted: &[DeviceSlice]) -> Result<(), String> {
        let pages = self.all();
        let mut before = Vec::new();
        for wanted in wanted {
            let is_here = pages
                .get(&wanted.uuid)
                .and_then(|page| Some((page, present(page, id, wanted)?)));
            let Some((page, was)) = is_here else {
                self.put_back(&pages, id, &before);
                return Err(format!(
                    "device {} is not shared by the job in a way that can change",
                    wanted.uuid
                ));
            };
            before.push(was);
            let why = match self.set(page, id, wanted) {
                Ok(fit) if fit.fits() => continue,
                Ok(fit) => format!(
                    "the job uses {} MiB of device memory now, more than {} MiB",
                    fit.used_bytes.div_ceil(1 << 20),
                    wanted.vram_mib
                ),
                Err(error) => error.to_string(),
            };
            self.put_back(&pages, id, &before);
            return Err(why);
        }
        Ok(())
    }

    fn put_back(&self, pages: &BTreeMap<String, Arc<Page>>, id: AllocationId, before: &[DeviceSlice]) {
        for was in before {
            if let Some(page) = pages.get(&was.uuid) {
                let _ = self.set(page, id, was);
            }
        }
    }

    fn set(
        &self,
        page: &Page,
        id: AllocationId,
        wanted: &DeviceSlice,
    ) -> Result<tenure_limits::Fit, tenure_limits::Error> {
        let weight = wanted.compute_permille.into();
        let mut integrity = self.integrity();
        page.device
            .reshare(id.0, weight, wanted.capped.then_some(weight))?;
        page.device
            .set_time_limits(id.0, self.longest_kernel(wanted), None)?;
        let fit = page.device.resize(id.0, wanted.vram_mib << 20)?;
        if let Ok(snapshot) = page.device.snapshot() {
            integrity.trust(&wanted.uuid, &snapshot, id);
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
        self.integrity().let_go(id);
        for page in self.all().values() {
            if page.device.end(id.0).is_ok() {
                let _ = page.device.remove(id.0);
            }
        }
    }

    /// Drops what dead processes left, and slices of allocations that are no longer `alive`.
    pub fn clear(&self, alive: impl Fn(AllocationId) -> bool) {
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
                self.integrity().let_go(AllocationId(slice.id));
                let _ = page.device.end(slice.id);
                let _ = page.device.remove(slice.id);
            }
        }
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
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A slice as its page has it.
fn present(page: &Page, id: AllocationId, like: &DeviceSlice) -> Option<DeviceSlice> {
    let snapshot = page.device.snapshot().ok()?;
    let slice = snapshot.slices.iter().find(|slice| slice.id == id.0)?;
    Some(DeviceSlice {
        uuid: like.uuid.clone(),
        vram_mib: slice.limit_bytes >> 20,
        compute_permille: u16::try_from(slice.weight_per_mille).ok()?,
        capped: slice.cap_per_mille.is_some(),
        part: None,
    })
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
mod tests {
    use super::*;

    #[test]
    fn any_uuid_is_a_file_name() {
        for uuid in [
            "GPU-1234",
            "opencl-ab-pocl-cpu-0",
            "../../etc/passwd",
            "",
            "ü/\u{0}",
        ] {
            assert!(name(uuid).bytes().all(|byte| byte.is_ascii_hexdigit()));
            assert_eq!(unname(&name(uuid)).as_deref(), Some(uuid));
        }
    }
}
