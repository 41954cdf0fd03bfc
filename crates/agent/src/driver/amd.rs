//! Parts of AMD's devices: the mode of the whole device is set while it is empty, and a part is one node of the compute
//! driver's topology, reached by its own render node.
//!
//! The kernel refuses another mode while programs use the device. Deliberately absent: how the memory is interleaved
//! (`current_memory_partition`), which changes with a reload of the driver only.

use std::time::{Duration, Instant};

use tenure_domain::schedule::hardware::PartChoice;

use super::Made;
use crate::discover::amd::kfd::{Gpu, Topology};
use crate::discover::drm;
use crate::discover::pci::PciAddress;
use crate::discover::setting::Setting;

/// The kernel shows the parts of a new mode a moment after it was set.
const SETTLE: Duration = Duration::from_secs(5);

pub fn make(setting: &Setting, slot: &str, part: &PartChoice) -> Result<Made, String> {
    let pci: PciAddress = slot
        .parse()
        .map_err(|_| format!("{slot} is no place on the bus"))?;
    let cards = drm::cards(&setting.sys());
    let card = cards.iter().find(|card| card.pci == pci);
    let card = card.ok_or_else(|| format!("there is no card at {slot}"))?;
    let mode = card.device().join("current_compute_partition");
    let now = drm::text(&mode).ok_or_else(|| format!("the card at {slot} does not say its mode"))?;
    if now != part.profile {
        std::fs::write(&mode, &part.profile).map_err(|error| {
            format!(
                "the card at {slot} could not be put from {now} into {}: {error}",
                part.profile
            )
        })?;
    }
    let size = part.placement.size.max(1);
    let number = (part.placement.start / size) as usize;
    let deadline = Instant::now() + SETTLE;
    loop {
        let is_set = drm::text(&mode).as_ref() == Some(&part.profile);
        let topology = Topology::below(&setting.sys());
        let nodes: Vec<&Gpu> = topology.of(pci).collect();
        if is_set && nodes.len() > number && nodes.iter().all(|node| node.dies == size) {
            return given(setting, slot, part, number, nodes[number]);
        }
        if Instant::now() >= deadline {
            return Err(format!(
                "the card at {slot} shows {} parts after it was put into {}",
                nodes.len(),
                part.profile
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn given(
    setting: &Setting,
    slot: &str,
    part: &PartChoice,
    number: usize,
    node: &Gpu,
) -> Result<Made, String> {
    let render = node
        .render_minor
        .ok_or_else(|| format!("part {number} of the card at {slot} has no render node"))?;
    let names = ["kfd".to_owned(), format!("dri/renderD{render}")];
    let mut missing = Vec::new();
    let files = setting.device_files(names, &part.profile, &mut missing);
    match missing.pop() {
        // Without them the job would find no device, or another one.
        Some(note) => Err(note),
        None => Ok(Made {
            instance: None,
            uuid: format!("{slot}/{number}"),
            files,
        }),
    }
}
