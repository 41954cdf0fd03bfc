//! Parts of an allocation's devices: made before it starts, removed when it has ended, and what its programs are told.

use std::io;
use std::path::{Path, PathBuf};

use tenure_api::channel::{DeviceSlice, Order};
use tenure_domain::id::AllocationId;
use tenure_domain::workload::spec::Isolation as Level;

use super::Node;
use crate::discover::Device;
use crate::driver::Made;
use crate::record::{Phase, Record};

/// What makes a slice's part impossible here.
pub(super) fn objection(level: Level, slice: &DeviceSlice, device: &Device) -> Option<String> {
    let cut = device
        .facts
        .hardware
        .as_ref()
        .and_then(|hardware| hardware.partitioning.as_ref());
    match (&slice.part, level) {
        // Fail closed: without a part the job would be given the whole device.
        (None, Level::Partition) => Some(format!("no part of device {} was named", slice.uuid)),
        (None, _) => None,
        (Some(_), other) if other != Level::Partition => Some(format!(
            "a part of device {} cannot be {}",
            slice.uuid,
            other.as_str()
        )),
        (Some(part), _) => {
            let known = cut.is_some_and(|how| {
                let of_kind = how
                    .profiles
                    .iter()
                    .find(|profile| profile.id == part.id && profile.name == part.profile);
                of_kind.is_some_and(|profile| profile.placements.contains(&part.placement))
            });
            (!known).then(|| {
                format!(
                    "device {} has no {} at {}",
                    slice.uuid, part.profile, part.placement.start
                )
            })
        }
    }
}

/// Files of the job's devices: of one that is cut, those of its part alone.
pub(super) fn files(devices: &[Option<&Device>], parts: &[Option<Made>]) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = Vec::new();
    for (number, device) in devices.iter().enumerate() {
        let files = match (parts.get(number), device) {
            (Some(Some(made)), _) => &made.files,
            (_, Some(device)) => &device.files,
            (_, None) => continue,
        };
        for file in files {
            if !all.contains(file) {
                all.push(file.clone());
            }
        }
    }
    all
}

/// What CUDA and ROCm go by to find the job's devices.
pub(super) fn variables(
    order: &Order,
    devices: &[Option<&Device>],
    parts: &[Option<Made>],
) -> Vec<(String, String)> {
    let names = |vendor: &str| {
        let each = order.devices.iter().zip(devices).enumerate();
        let names: Vec<&str> = each
            .filter(|(_, (_, device))| device.is_some_and(|device| device.facts.vendor == vendor))
            .map(|(number, (slice, _))| match parts.get(number) {
                Some(Some(made)) => made.uuid.as_str(),
                _ => slice.uuid.as_str(),
            })
            .collect();
        names.join(",")
    };
    let mut all = Vec::new();
    let nvidia = names("NVIDIA");
    if !nvidia.is_empty() {
        all.push(("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()));
        all.push(("NVIDIA_VISIBLE_DEVICES", nvidia.clone()));
        all.push(("CUDA_VISIBLE_DEVICES", nvidia));
    }
    all.into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

impl Node {
    /// Takes parts whose allocation is over off their devices.
    pub fn clear_parts(&self) {
        self.parts.clear(|id| self.lives(id));
    }

    /// Leaves our own parts out of what the server is told.
    pub fn hide_parts(&self, found: &mut crate::discover::Found) {
        self.parts.hide(found, |id| self.lives(id));
    }

    /// An expected allocation whose parts or walls could not be made: the node's fault, so it may run elsewhere.
    pub(super) fn end_unwalled(&self, dir: &Path, id: AllocationId, why: &str) -> io::Result<()> {
        tracing::warn!(allocation = %id, why, "could not make a part or a wall");
        let record = Record::without_process(id, Phase::evicted(0));
        if record.claim(dir)? {
            std::fs::write(
                dir.join("stderr"),
                format!("tenure: could not start the job here: {why}\n"),
            )?;
            record.replace(dir)?;
            self.table.put(record);
        }
        Ok(())
    }
}
