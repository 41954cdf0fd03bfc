//! Asking drivers about their devices without waiting for them. A device of the kernel's graphics drivers has a thread
//! of its own that reads it each second and leaves the answer; NVIDIA's share a child process. One that hangs leaves
//! none, and its device's gauges grow old and are dropped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tenure_api::channel::reading::{Gauges, PartReading};

use super::nvidia::Stream;
use super::{ByProcess, sysfs};
use crate::discover::setting::Setting;
use crate::discover::{Device, Found};

const PERIOD: Duration = Duration::from_secs(1);
/// A driver that has not answered for so long says nothing of now.
const DEADLINE: Duration = Duration::from_secs(3);

/// The readers of this machine's devices.
pub struct Outside {
    setting: Setting,
    nvidia: Stream,
    watches: Mutex<BTreeMap<String, Watch>>,
}

/// What was told of a device, and of parts that hardware cut from it.
pub type Told = (Gauges, Vec<PartReading>);

/// One device's reader.
struct Watch {
    dir: PathBuf,
    told: Arc<Mutex<Option<(Instant, Gauges)>>>,
    over: Arc<AtomicBool>,
}

impl Default for Outside {
    fn default() -> Self {
        Outside::with(Setting::from_environment())
    }
}

impl Outside {
    pub fn with(setting: Setting) -> Outside {
        Outside {
            setting,
            nvidia: Stream::default(),
            watches: Mutex::default(),
        }
    }

    /// What drivers last told, of devices whose driver still answers. Begins to watch new devices, and lets those go
    /// that are no longer here.
    pub fn read(&self, found: &Found) -> BTreeMap<String, Told> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted: BTreeMap<&str, PathBuf> = found
            .devices
            .iter()
            .filter_map(|device| Some((device.facts.uuid.as_str(), directory(&self.setting.root, device)?)))
            .collect();
        watches.retain(|uuid, watch| {
            let stays = wanted.get(uuid.as_str()) == Some(&watch.dir);
            watch.over.store(!stays, Ordering::Relaxed);
            stays
        });
        wanted.retain(|uuid, _| !watches.contains_key(*uuid));
        for (uuid, dir) in wanted {
            watches.extend(Watch::begin(dir).map(|watch| (uuid.to_owned(), watch)));
        }
        let told = watches.iter().filter_map(|(uuid, watch)| {
            let told = watch.told.lock().unwrap_or_else(PoisonError::into_inner);
            let (at, gauges) = told.as_ref()?;
            (at.elapsed() < DEADLINE).then(|| (uuid.clone(), (gauges.clone(), Vec::new())))
        });
        let mut told: BTreeMap<String, Told> = told.collect();
        if found.devices.iter().any(|device| device.facts.vendor == "NVIDIA")
            && let Some((at, all)) = self.nvidia.read(&self.setting)
            && at.elapsed() < DEADLINE
        {
            let here = all.into_iter().filter(|(uuid, _)| found.device(uuid).is_some());
            told.extend(here.map(|(uuid, told)| (uuid, (told.gauges, told.parts))));
        }
        told
    }
}

impl Outside {
    /// What NVIDIA's driver last told of the processes on its devices, and when.
    pub fn nvidia_processes(&self, found: &Found) -> Option<(Instant, ByProcess)> {
        if !found.devices.iter().any(|device| device.facts.vendor == "NVIDIA") {
            return None;
        }
        let (at, all) = self.nvidia.read(&self.setting)?;
        let of_each = all.into_iter().map(|(uuid, told)| (uuid, told.processes));
        (at.elapsed() < DEADLINE).then(|| (at, of_each.collect()))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let watches = self.watches.get_mut().unwrap_or_else(PoisonError::into_inner);
        for watch in watches.values() {
            watch.over.store(true, Ordering::Relaxed);
        }
    }
}

impl Watch {
    /// None when no thread is to be had; it is tried again at the next reading.
    fn begin(dir: PathBuf) -> Option<Watch> {
        let watch = Watch {
            dir: dir.clone(),
            told: Arc::default(),
            over: Arc::default(),
        };
        let (told, over) = (watch.told.clone(), watch.over.clone());
        let reading = move || {
            while !over.load(Ordering::Relaxed) {
                let gauges = sysfs::read(&dir);
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), gauges));
                std::thread::sleep(PERIOD);
            }
        };
        let spawned = std::thread::Builder::new()
            .name("telemetry".into())
            .spawn(reading);
        spawned.ok().map(|_| watch)
    }
}

/// Where the kernel shows a device: by the file of its graphics driver.
fn directory(root: &Path, device: &Device) -> Option<PathBuf> {
    let node = device.files.iter().find_map(|file| {
        let name = file.file_name()?.to_str()?;
        let known = name.starts_with("renderD") || name.starts_with("card");
        (known && file.parent()?.ends_with("dri")).then_some(name)
    })?;
    let class = root.join("sys/class/drm");
    // By the card that has this node; the node's own entry leads to the same place.
    let cards = std::fs::read_dir(&class).ok()?.flatten();
    let mut dirs = cards.map(|card| card.path().join("device"));
    dirs.find(|dir| dir.join("drm").join(node).exists())
        .or_else(|| Some(class.join(node).join("device")).filter(|dir| dir.is_dir()))
}
