//! Scrubbing between tenants: a device that one tenant used is overwritten before another gets any of it, and a signed
//! receipt says so. No receipt, no hand-over.
//!
//! Who may have left something on which device is kept in a file for each device, for an agent that is started anew
//! must know. The work is done by a process of its own (`tenure-broker scrub`). Deliberately absent: what becomes of a
//! device that cannot be cleaned (the platform quarantines it), and memory handed over while a tenant lives on the
//! device (the guard zeroes it on allocation).

mod receipts;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tenure_api::channel::{DeviceSlice, Order};
use tenure_domain::id::AllocationId;
use tenure_domain::schedule::receipt::Receipt;
use tenure_domain::tenancy::key::Digest;

use crate::chore::{self, Unfinished, one_line};
use crate::discover::{Device, Found};
use crate::identity::Identity;
use crate::record::write_whole;
use crate::share::{Given, Shares};
pub use receipts::Receipts;

/// A processor's memory comes zeroed from the kernel to every process, so of it only so much is overwritten.
const PROCESSOR_BYTES: u64 = 16 << 20;
/// Of what a slice gets, the part that a driver may keep to itself, and the most that may be.
const KEPT_BY_DRIVER: u64 = 8;
const KEPT_BY_DRIVER_MAX: u64 = 1 << 30;
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_PER_GIB: Duration = Duration::from_secs(2);

/// Tenants that may have left something on a device, and those of their allocations that may be there still.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Leftovers {
    tenants: BTreeMap<String, BTreeSet<AllocationId>>,
}

/// Who is about to have devices.
#[derive(Debug, Clone)]
pub struct Taker {
    pub allocation: AllocationId,
    pub tenant: String,
    pub devices: Vec<DeviceSlice>,
}

impl Taker {
    pub fn of(order: &Order) -> Taker {
        Taker {
            allocation: order.allocation,
            tenant: order.tenant.clone(),
            devices: order.devices.clone(),
        }
    }
}

/// What the scrubbing process says of its work.
#[derive(Debug, Default, Deserialize)]
struct Done {
    bytes: u64,
    /// As much as the device was asked for.
    #[serde(default)]
    asked: u64,
    local_bytes: u64,
    compute_units: u32,
}

impl Done {
    /// What nobody overwrote of all that was free. Of a processor no more is asked for than would show a fault.
    fn missed(&self) -> u64 {
        self.asked.saturating_sub(self.bytes)
    }
}

/// What has to be overwritten: nearly all of the slice, and where nobody else is on the device most of all there is, for
/// nobody says which of it the slice will have.
fn least(slice_bytes: u64, free: u64, device_bytes: u64) -> u64 {
    let of_slice = slice_bytes - (slice_bytes / KEPT_BY_DRIVER).min(KEPT_BY_DRIVER_MAX);
    match free >= device_bytes {
        true => of_slice.max(free - free / KEPT_BY_DRIVER),
        false => of_slice,
    }
}

pub struct Scrubs {
    dir: PathBuf,
    /// One scrub of a device at a time.
    devices: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
    pub receipts: Receipts,
}

impl Scrubs {
    pub fn open(state_dir: &Path) -> io::Result<Scrubs> {
        let dir = state_dir.join("scrub");
        std::fs::create_dir_all(&dir)?;
        Ok(Scrubs {
            receipts: Receipts::open(&dir)?,
            dir,
            devices: Mutex::default(),
        })
    }

    /// Whether another tenant may have left something on one of its devices.
    pub fn is_due(&self, taker: &Taker) -> bool {
        scrubbed(taker).any(|slice| !self.strangers(&slice.uuid, &taker.tenant).is_empty())
    }

    fn strangers(&self, uuid: &str, tenant: &str) -> BTreeSet<String> {
        let mut tenants: BTreeSet<String> = self.leftovers(uuid).tenants.into_keys().collect();
        tenants.remove(tenant);
        tenants
    }

    /// Notes whose its devices are about to be.
    pub fn note(&self, taker: &Taker, lives: impl Fn(AllocationId) -> bool) -> io::Result<()> {
        for slice in scrubbed(taker) {
            let mut left = self.leftovers(&slice.uuid);
            let own = left.tenants.entry(taker.tenant.clone()).or_default();
            own.retain(|&id| lives(id));
            own.insert(taker.allocation);
            self.write(&slice.uuid, &left)?;
        }
        Ok(())
    }

    /// Whether the allocation was given this device.
    pub fn is_on(&self, uuid: &str, id: AllocationId) -> bool {
        self.given(uuid).contains(&id)
    }

    /// Allocations that were given this device and may be there still.
    pub fn given(&self, uuid: &str) -> BTreeSet<AllocationId> {
        self.leftovers(uuid).tenants.into_values().flatten().collect()
    }

    /// Cleans those of its devices that others used. The error is for people; the receipt has it too.
    pub fn clean(
        &self,
        taker: &Taker,
        found: &Found,
        shares: &Shares,
        program: Option<&Path>,
        lives: impl Fn(AllocationId) -> bool,
    ) -> Result<(), String> {
        for slice in scrubbed(taker) {
            let turn = self.turn(&slice.uuid);
            let _alone = turn.lock().unwrap_or_else(PoisonError::into_inner);
            let from = self.strangers(&slice.uuid, &taker.tenant);
            if from.is_empty() {
                continue;
            }
            let device = found
                .device(&slice.uuid)
                .ok_or_else(|| format!("device {} is not here", slice.uuid))?;
            let begun = Instant::now();
            let at_ms = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as i64);
            let done = room(device, &shares.given(), slice, taker.allocation)
                .and_then(|free| self.run(device, program, free, slice.vram_mib << 20));
            let (done, fault) = match done {
                Ok(done) => (done, None),
                Err(why) => (Done::default(), Some(one_line(&why))),
            };
            let receipt = Receipt {
                number: 0,
                device: slice.uuid.clone(),
                from,
                to: taker.tenant.clone(),
                allocation: taker.allocation,
                at_ms,
                took_ms: begun.elapsed().as_millis() as u64,
                bytes: done.bytes,
                local_bytes: done.local_bytes,
                compute_units: done.compute_units,
                missed_bytes: done.missed(),
                fault: fault.clone(),
                key: Digest([0; 32]),
                public_key: String::new(),
                signature: String::new(),
            };
            self.keep(receipt)
                .map_err(|error| format!("no receipt could be written: {error}"))?;
            if let Some(why) = fault {
                tracing::error!(device = slice.uuid, why, "a device could not be scrubbed");
                return Err(format!("device {} could not be scrubbed: {why}", slice.uuid));
            }
            let mut left = self.leftovers(&slice.uuid);
            left.tenants.retain(|_, ids| {
                ids.retain(|&id| lives(id));
                !ids.is_empty()
            });
            self.write(&slice.uuid, &left)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Signs a receipt and keeps it until the server has it.
    fn keep(&self, receipt: Receipt) -> io::Result<()> {
        let identity = self.identity()?;
        self.receipts.add(receipt, |receipt| {
            identity.sign_receipt(receipt).map_err(io::Error::other)
        })
    }

    fn identity(&self) -> io::Result<Identity> {
        let root = self.dir.parent().unwrap_or(&self.dir);
        let identity = Identity::load(root).map_err(io::Error::other)?;
        identity.ok_or_else(|| io::Error::other("the node has not joined"))
    }

    /// Receipts the server has not taken note of, signed with the key the node has now.
    pub fn untold(&self) -> io::Result<Vec<Receipt>> {
        let untold = self.receipts.untold()?;
        if untold.is_empty() {
            return Ok(untold);
        }
        let identity = self.identity()?;
        untold
            .into_iter()
            .map(|receipt| identity.sign_receipt(receipt).map_err(io::Error::other))
            .collect()
    }

    fn run(&self, device: &Device, program: Option<&Path>, bytes: u64, slice: u64) -> Result<Done, String> {
        let program = program.ok_or("there is no program to scrub with")?;
        let name = device
            .opencl
            .as_ref()
            .ok_or("no OpenCL driver serves it, and nothing else here can scrub it")?;
        let index = name.index.to_string();
        let (bytes_of, least) = (
            bytes.to_string(),
            least(slice, bytes, device.facts.vram_mib << 20).to_string(),
        );
        let processor = PROCESSOR_BYTES.to_string();
        let command = chore::command(
            program,
            &self.dir.join("cache"),
            [
                "scrub",
                "--platform",
                &name.platform,
                "--device",
                &index,
                "--bytes",
                &bytes_of,
                "--least",
                &least,
                "--processor-bytes",
                &processor,
            ],
        );
        let patience = PATIENCE + PATIENCE_PER_GIB * (bytes >> 30) as u32;
        match chore::run(command, patience, &AtomicBool::new(false)) {
            Ok(said) => serde_json::from_str(&said).map_err(|_| "what was scrubbed was not said".to_owned()),
            Err(Unfinished::Failed(why)) => Err(why),
            Err(Unfinished::Stopped) => Err("it was stopped".to_owned()),
        }
    }

    fn turn(&self, uuid: &str) -> Arc<Mutex<()>> {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.entry(uuid.to_owned()).or_default().clone()
    }

    fn file(uuid: &str) -> String {
        let name: String = uuid.bytes().map(|byte| format!("{byte:02x}")).collect();
        format!("{name}.json")
    }

    fn leftovers(&self, uuid: &str) -> Leftovers {
        let path = self.dir.join(Self::file(uuid));
        match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Leftovers::default(),
            read => read
                .and_then(|bytes| Ok(serde_json::from_slice(&bytes)?))
                .unwrap_or_else(|error| {
                    tracing::warn!(device = uuid, %error, "what is left on a device is not known; it counts as a stranger's");
                    Leftovers {
                        tenants: [("unknown".to_owned(), BTreeSet::new())].into(),
                    }
                }),
        }
    }

    /// Not synced: what is on a device does not outlive the power either.
    fn write(&self, uuid: &str, left: &Leftovers) -> io::Result<()> {
        write_whole(&self.dir, &Self::file(uuid), &serde_json::to_vec(left)?)
    }
}

/// Slices of whole devices. A part is made anew for each job, and its memory is the driver's to clear.
fn scrubbed(taker: &Taker) -> impl Iterator<Item = &DeviceSlice> {
    taker.devices.iter().filter(|slice| slice.part.is_none())
}

/// Bytes of a device that no living slice was given, so that no neighbour misses them meanwhile. As the agent gave them: a
/// page may say anything. Where they are fewer than the slice has, not all of what it is about to have can be scrubbed.
fn room(device: &Device, given: &[Given], slice: &DeviceSlice, but: AllocationId) -> Result<u64, String> {
    let given = given
        .iter()
        .filter(|one| one.uuid == device.facts.uuid && one.allocation != but)
        .fold(0u64, |sum, one| sum.saturating_add(one.limit_bytes));
    let free = (device.facts.vram_mib << 20).saturating_sub(given);
    match free >= slice.vram_mib << 20 {
        true => Ok(free),
        false => Err(format!(
            "{} MiB of it are free to be scrubbed, and {} MiB were to be handed over",
            free >> 20,
            slice.vram_mib
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::tests::Bench;

    #[test]
    fn a_driver_keeps_little_and_it_is_said() {
        let (mib, gib) = (1u64 << 20, 1u64 << 30);
        let beside_others = |slice| least(slice, slice, 80 * gib);
        assert_eq!(beside_others(64 * mib), 56 * mib);
        assert_eq!(beside_others(8 * gib), 7 * gib);
        assert_eq!(beside_others(72 * gib), 71 * gib, "and not nine more");
        assert_eq!(least(80 * gib, 80 * gib, 80 * gib), 79 * gib);
        // Of a small slice on an empty device: it may lie anywhere.
        assert_eq!(least(gib, 80 * gib, 80 * gib), 70 * gib);
        let missed = |asked, bytes| {
            let said = format!(r#"{{"bytes":{bytes},"asked":{asked},"local_bytes":1,"compute_units":1}}"#);
            serde_json::from_str::<Done>(&said).unwrap().missed()
        };
        assert_eq!(missed(10 * gib, 9 * gib), gib);
        assert_eq!(missed(16 * mib, 16 * mib), 0);
    }

    #[test]
    fn what_is_scrubbed_is_no_residents_word() {
        let bench = Bench::new();
        let shares = bench.open();
        bench.admit(&shares, 7_001);
        // So that nothing would be free, and a scrub of nothing as good as one.
        bench.scribble(7_001, 16, &(1u64 << 40).to_le_bytes());
        let slice = |vram_mib| DeviceSlice {
            uuid: bench.found.devices[0].facts.uuid.clone(),
            vram_mib,
            compute_permille: 500,
            capped: false,
            part: None,
        };
        let room = |vram_mib, but| {
            let device = &bench.found.devices[0];
            room(device, &shares.given(), &slice(vram_mib), AllocationId(but))
        };
        assert_eq!(room(500, 7_002), Ok(900 << 20));
        assert_eq!(
            room(1000, 7_001),
            Ok(1000 << 20),
            "its own is there to be scrubbed"
        );
        assert!(room(901, 7_002).is_err_and(|why| why.contains("900 MiB of it are free")));
    }
}
