//! What the machine has: devices of every vendor, each once, with what they can give and why.
//!
//! Drivers are loaded at run time and asked by child processes with a deadline (`ask`): one that hangs holds up
//! nobody. NVIDIA is asked by NVML, AMD and Intel by what their kernel drivers show below `/sys`, and any device by
//! OpenCL; `merge` makes one of what several ways found. Deliberately absent: readings that move (telemetry), and
//! making partitions.

pub(crate) mod amd;
pub(crate) mod ask;
mod class;
pub(crate) mod drm;
mod floor;
pub mod host;
mod intel;
mod level;
mod merge;
pub(crate) mod nvidia;
mod opencl;
pub(crate) mod pci;
pub mod setting;
mod uevent;
pub mod watch;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tenure_domain::schedule::fleet::{GpuFacts, Inventory};
use tenure_domain::workload::spec::Isolation;

use ask::{Answer, Way};
use setting::Setting;

/// Bytes of a driver's text that are kept, as the server takes no more.
const TEXT_BYTES_MAX: usize = 200;

/// Why an agent that is not root offers no parts.
pub const PARTS_BY_ROOT: &str = "only root makes parts of devices";

/// Why an agent whose jobs share the host's files offers no guarded slices of what has files of its own.
pub const NO_TREES: &str = "jobs have no file trees of their own here, so they reach drivers past the guard";

/// A device, and how programs on this node find it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub facts: GpuFacts,
    /// As the OpenCL loader knows it; none where no OpenCL driver serves it.
    pub opencl: Option<OpenClName>,
    /// Device files a program needs to use it; none for a processor.
    pub files: Vec<PathBuf>,
    /// Who holds programs to their part of its memory from outside, where somebody does.
    #[serde(default)]
    pub memory_wall: Option<MemoryWall>,
    /// Why tenants may not share it, whatever stands between them.
    #[serde(default)]
    pub flaw: Option<String>,
}

/// What limits the device memory of a cgroup's programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryWall {
    /// Its driver, told by NVML.
    Driver,
    /// The kernel's `dmem` controller, under this name.
    Dmem { region: String },
}

impl Device {
    pub fn hardware(&self) -> Option<&tenure_domain::schedule::hardware::Hardware> {
        self.facts.hardware.as_deref()
    }

    fn pci(&self) -> Option<pci::PciAddress> {
        self.hardware()?.pci.as_ref()?.parse().ok()
    }

    /// Where it is on the PCI bus.
    pub fn slot(&self) -> Option<String> {
        self.pci().map(|pci| pci.to_string())
    }

    /// Whether nothing but the guard, in the job's own process, keeps its guarded slices apart. A processor that serves as a
    /// device has no file that a job would have to be given: what passes the guard there computes with what is the job's.
    pub fn rests_on_the_guard(&self) -> bool {
        let one_tenant = self.hardware().is_some_and(|hardware| hardware.one_tenant);
        self.opencl.is_some() && !self.files.is_empty() && !one_tenant
    }

    /// As notes call it.
    fn title(&self) -> String {
        match self.pci() {
            Some(pci) => format!("{} at {pci}", self.facts.model),
            None => format!("{} ({})", self.facts.model, self.facts.uuid),
        }
    }
}

/// Which device of which OpenCL platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenClName {
    pub platform: String,
    pub index: usize,
}

/// What a machine has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    pub cpu_milli: u32,
    pub memory_mib: u64,
    pub devices: Vec<Device>,
    /// One line for each driver that gave nothing, device that was left out, and level that is missing, and why.
    pub notes: Vec<String>,
    /// A driver did not answer in time: what it serves is missing here and may be back soon.
    pub incomplete: bool,
}

impl Found {
    pub fn device(&self, uuid: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.facts.uuid == uuid)
    }

    /// Fail closed: without the guard library no device gives the level that rests on it.
    pub fn without_guard(&mut self, why: &str) {
        for device in &mut self.devices {
            device.facts.isolation.remove(&Isolation::Guarded);
            device.facts.isolation.remove(&Isolation::Fenced);
        }
        self.notes.push(format!("guarded and fenced: none; {why}"));
    }

    /// Likewise where a job has no tree of its own, in which the guard stands in drivers' places.
    pub fn without_trees(&mut self) {
        let mut lost = false;
        for device in self
            .devices
            .iter_mut()
            .filter(|device| device.rests_on_the_guard())
        {
            lost |= device.facts.isolation.remove(&Isolation::Guarded).is_some();
        }
        if lost {
            self.notes.push(format!(
                "guarded: none of devices with files of their own; {NO_TREES}"
            ));
        }
    }

    /// Likewise without what workers are made with.
    pub fn without_broker(&mut self, why: &str) {
        for device in &mut self.devices {
            device.facts.isolation.remove(&Isolation::Fenced);
        }
        self.notes.push(format!("fenced: none; {why}"));
    }

    /// Likewise where nobody may make parts.
    pub fn without_parts(&mut self, why: &str) {
        for device in &mut self.devices {
            device.facts.isolation.remove(&Isolation::Partition);
        }
        self.notes.push(format!("partition: none; {why}"));
    }

    /// Devices on which one tenant's jobs share NVIDIA's MPS. Parts have no use for it.
    pub fn with_mps(&mut self) {
        for device in &mut self.devices {
            let facts = &mut device.facts;
            let whole = facts.isolation.contains_key(&Isolation::Exclusive);
            if facts.vendor != "NVIDIA" || device.flaw.is_some() || !whole {
                continue;
            }
            let memory = match device.memory_wall {
                Some(_) => ", and its driver limits device memory outside them",
                None => "",
            };
            let why = format!(
                "MPS gives each program its part of compute and memory inside one tenant{memory}; a fault of one ends all of that tenant's on the device, and nothing outside limits time"
            );
            facts.isolation.insert(Isolation::Guarded, why);
            if let Some(hardware) = facts.hardware.as_mut() {
                hardware.one_tenant = true;
            }
        }
    }

    /// What the server is told.
    pub fn inventory(&self) -> Inventory {
        Inventory {
            cpu_milli: self.cpu_milli,
            memory_mib: self.memory_mib,
            gpus: self.devices.iter().map(|device| device.facts.clone()).collect(),
            images: Vec::new(),
            volume_mib: 0,
        }
    }
}

/// Everything that is here. `host_id` tells this machine's devices from those of others.
pub fn all(setting: &Setting, host_id: &str) -> Found {
    let mut found = Found {
        cpu_milli: host::cpu_milli(),
        memory_mib: host::memory_mib(),
        ..Found::default()
    };
    let answers = std::thread::scope(|scope| {
        let asked = Way::ALL.map(|way| (way, scope.spawn(move || ask::ask(way, setting, host_id))));
        asked.map(|(way, thread)| (way, thread.join()))
    });
    let mut by_way = answers.map(|(way, answer)| match answer {
        Ok(Ok(Answer { devices, notes })) => {
            found.notes.extend(notes);
            devices
        }
        Ok(Err(error)) => {
            found.incomplete |= error.kind() == std::io::ErrorKind::TimedOut;
            found.notes.push(format!("{}: none ({error})", way.title()));
            Vec::new()
        }
        Err(_) => {
            found
                .notes
                .push(format!("{}: none (the question failed)", way.title()));
            Vec::new()
        }
    });
    let served = std::mem::take(&mut by_way[Way::OpenCl as usize]);
    let vendors = by_way.into_iter().flatten().collect();
    found.devices = merge::merge(vendors, served, &mut found.notes);
    let regions = crate::isolate::dmem::regions(&setting.root);
    for device in &mut found.devices {
        let slot = device.slot();
        let own = slot.and_then(|slot| crate::isolate::dmem::region(&regions, &slot));
        if let (None, Some(region)) = (&device.memory_wall, own) {
            device.memory_wall = Some(MemoryWall::Dmem { region });
        }
    }
    for device in &mut found.devices {
        level::set(device, &mut found.notes);
    }
    found
}

/// What outsiders wrote, fit to be shown in one line.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let plain = |letter: &char| tenure_domain::name::check_text(&letter.to_string(), 4, "").is_ok();
    let mut kept = String::new();
    for letter in text.chars().filter(plain) {
        if kept.len() + letter.len_utf8() > TEXT_BYTES_MAX {
            break;
        }
        kept.push(letter);
    }
    kept.trim().to_owned()
}

/// What `discover WAY HOST` does, in a process of its own: prints what was found as JSON, or why there is nothing.
pub fn main(mut arguments: impl Iterator<Item = String>) -> i32 {
    let way = arguments.next().unwrap_or_default();
    let host_id = arguments.next().unwrap_or_default();
    let setting = Setting::from_environment();
    let said = match way.as_str() {
        "all" => serde_json::to_string(&all(&setting, &host_id)).map_err(|error| error.to_string()),
        way => ask::answer(way, &setting, &host_id),
    };
    match said {
        Ok(json) => {
            println!("{json}");
            0
        }
        Err(why) => {
            println!("{why}");
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::tests::Bench;

    #[test]
    fn without_trees_of_their_own_jobs_share_only_processors() {
        let mut found = Bench::new().found.clone();
        found.devices[0].facts.isolation = [Isolation::Guarded, Isolation::Exclusive]
            .map(|level| (level, String::new()))
            .into();
        let (before, mut card) = (found.clone(), found.devices[0].clone());
        found.without_trees();
        assert_eq!(found, before, "nothing to say where nothing is lost");
        card.facts.uuid = "GPU-1".into();
        card.files = vec!["/dev/nvidia0".into()];
        found.devices.push(card);
        found.without_trees();
        let levels = |at: usize| {
            found.devices[at]
                .facts
                .isolation
                .keys()
                .copied()
                .collect::<Vec<_>>()
        };
        assert_eq!(levels(0), [Isolation::Guarded, Isolation::Exclusive]);
        assert_eq!(levels(1), [Isolation::Exclusive]);
        assert!(
            found.notes[0].contains("guarded: none of devices with files"),
            "{:?}",
            found.notes
        );
    }
}
