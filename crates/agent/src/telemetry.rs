//! Telemetry: what devices and their slices do, read each second and kept until the next.
//!
//! Slices are counted in their device's page, which outlives the agent; drivers are asked for the rest (`outside`), on
//! threads and in processes of their own, since they can hang. Deliberately absent: what becomes of a reading (server), and limits.

pub mod energy;
pub mod nvidia;
mod outside;
mod rate;
mod sysfs;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tenure_api::channel::reading::{DeviceReading, Gauges, MAX_SLICES, SliceReading};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::usage::Usage;
use tenure_limits::{Counter, Snapshot};

use crate::discover::Found;
use crate::share::SharedReading;
use energy::{Energy, OnDevices};
use outside::Outside;
use rate::Counts;

/// Shares are of so many seconds: as long as lies between two messages to the server, so that those tile time.
const WINDOW: usize = 2;

/// What processes hold of devices: by the device, process numbers and bytes.
pub type ByProcess = BTreeMap<String, Vec<(i32, u64)>>;

/// The last of what was read.
#[derive(Default)]
pub struct Telemetry {
    inner: Mutex<Inner>,
    energy: Mutex<Energy>,
    outside: Outside,
}

#[derive(Default)]
struct Inner {
    /// Oldest first.
    before: VecDeque<BTreeMap<(String, u64), Counts>>,
    devices: Vec<DeviceReading>,
    usage: BTreeMap<AllocationId, Usage>,
}

impl Telemetry {
    /// With what an older agent metered of devices' counters.
    pub fn open(state_dir: &Path) -> Telemetry {
        Telemetry {
            energy: Mutex::new(Energy::open(state_dir)),
            ..Telemetry::default()
        }
    }

    fn energy(&self) -> MutexGuard<'_, Energy> {
        self.energy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shares out what devices used since the last look.
    pub fn meter_energy(&self, found: &Found, present: &OnDevices) {
        let outside = self.outside.read(found);
        let counters = outside
            .iter()
            .filter_map(|(uuid, (gauges, _))| Some((uuid, gauges.energy_mj?)));
        let mut energy = self.energy();
        let mut any = false;
        for (uuid, counter) in counters {
            let here = present.get(uuid).map_or(&[][..], Vec::as_slice);
            energy.note(uuid, counter, here);
            any = true;
        }
        if any && let Err(error) = energy.keep() {
            tracing::warn!(%error, "what devices used could not be written down");
        }
    }

    /// Energy that was used for an allocation; none where its devices do not say.
    pub fn energy_mj(&self, id: AllocationId) -> Option<u64> {
        self.energy().used_mj(id)
    }

    /// Its energy is written down elsewhere.
    pub fn forget_energy(&self, id: AllocationId) {
        self.energy().forget(id);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a reading of everything; `now_ns` is when the pages were read, on the clock of their counters.
    pub fn measure(&self, found: &Found, pages: &[SharedReading], now_ns: u64) {
        let outside = self.outside.read(found);
        let mut inner = self.inner();
        let mut devices: BTreeMap<&str, DeviceReading> = BTreeMap::new();
        let mut counts = BTreeMap::new();
        let mut usage: BTreeMap<AllocationId, Usage> = BTreeMap::new();
        for SharedReading { uuid, snapshot } in pages {
            let slices = snapshot.slices.iter().take(MAX_SLICES).map(|slice| {
                let key = (uuid.clone(), slice.id);
                let now = Counts::of(slice, now_ns);
                let before = inner.before.iter().find_map(|then| then.get(&key));
                let use_now = rate::slice_use(slice, before, &now);
                counts.insert(key, now);
                SliceReading {
                    allocation: AllocationId(slice.id),
                    use_now,
                }
            });
            let slices: Vec<SliceReading> = slices.collect();
            for (id, used) in used(snapshot) {
                usage.entry(id).or_default().add(&used);
            }
            let reading = DeviceReading {
                uuid: uuid.clone(),
                gauges: summed(&slices),
                slices,
                parts: Vec::new(),
            };
            devices.insert(uuid, reading);
        }
        for (uuid, (gauges, parts)) in &outside {
            let device = devices.entry(uuid).or_insert_with(|| DeviceReading {
                uuid: uuid.clone(),
                ..DeviceReading::default()
            });
            // The driver sees everything on the device, the page only what came through it.
            device.gauges = Gauges {
                busy_permille: gauges.busy_permille.or(device.gauges.busy_permille),
                used_vram_mib: gauges.used_vram_mib.or(device.gauges.used_vram_mib),
                ..gauges.clone()
            };
            device.parts = parts.clone();
        }
        inner.devices = devices.into_values().collect();
        inner.usage = usage;
        inner.before.push_back(counts);
        if inner.before.len() > WINDOW {
            inner.before.pop_front();
        }
    }

    /// What NVIDIA's driver last told of the processes on its devices, and when.
    pub fn nvidia_processes(&self, found: &Found) -> Option<(Instant, ByProcess)> {
        self.outside.nvidia_processes(found)
    }

    /// What was last read.
    pub fn readings(&self) -> Vec<DeviceReading> {
        self.inner().devices.clone()
    }

    /// Use of an allocation's devices since its start, as last read; none where it has no counters.
    pub fn usage(&self, id: AllocationId) -> Option<Usage> {
        let counted = self.inner().usage.get(&id).copied();
        with_energy(counted, self.energy_mj(id))
    }
}

/// What was counted, and the energy that was used for it.
pub fn with_energy(counted: Option<Usage>, energy_mj: Option<u64>) -> Option<Usage> {
    match energy_mj {
        None => counted,
        Some(energy_mj) => Some(Usage {
            energy_mj,
            ..counted.unwrap_or_default()
        }),
    }
}

/// What the slices of one page used since they were put on it.
pub fn used(snapshot: &Snapshot) -> impl Iterator<Item = (AllocationId, Usage)> {
    let slices = snapshot.slices.iter();
    slices.map(|slice| (AllocationId(slice.id), used_by(slice)))
}

/// The same of one slice.
pub fn used_by(slice: &tenure_limits::SliceReading) -> Usage {
    const MS: u64 = 1_000_000;
    Usage {
        busy_ms: slice.counter(Counter::BusyNs) / MS,
        throttled_ms: slice.counter(Counter::ThrottledNs) / MS,
        waited_ms: slice.counter(Counter::WaitedNs) / MS,
        launches: slice.counter(Counter::Launches),
        refusals: slice.counter(Counter::Refusals),
        denials: slice.counter(Counter::Denials),
        peak_vram_mib: slice.peak_bytes.div_ceil(1 << 20),
        energy_mj: 0,
    }
}

/// What slices tell of their device: all that the guards let through. Busy only when it is known of each.
fn summed(slices: &[SliceReading]) -> Gauges {
    let busy: Option<u32> = slices
        .iter()
        .map(|slice| slice.use_now.busy_permille.map(u32::from))
        .sum();
    Gauges {
        busy_permille: busy.map(|busy| busy.min(1000) as u16),
        used_vram_mib: Some(slices.iter().map(|slice| slice.use_now.used_vram_mib).sum()),
        ..Gauges::default()
    }
}

#[cfg(test)]
mod tests;
