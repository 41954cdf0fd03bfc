//! What this host gives: its devices and the wall around jobs, in lines for people.

use std::io::Write;

use tenure_domain::schedule::hardware::{Hardware, Partitioning, Placement};

use crate::discover::setting::Setting;
use crate::discover::{self, Device};
use crate::isolate::broker::Broker;
use crate::isolate::{Isolation, guard, network};
use crate::volume;

pub fn main() -> i32 {
    let isolation = Isolation::of_this_host();
    let mut found = discover::all(&Setting::from_environment(), "this-host");
    if let Err(why) = guard::beside_this_program() {
        found.without_guard(&why);
    }
    if !isolation.namespaces.own {
        found.without_trees();
    }
    let no_workers = Broker::beside_this_program()
        .err()
        .or_else(|| isolation.no_workers());
    if let Some(why) = no_workers {
        found.without_broker(&why);
    }
    if !isolation.root {
        found.without_parts(discover::PARTS_BY_ROOT);
    }
    let mut lines = vec![
        format!("cpu: {} thousandths of a core", found.cpu_milli),
        format!("memory: {} MiB", found.memory_mib),
    ];
    lines.extend(found.devices.iter().flat_map(describe));
    lines.extend(found.notes.iter().chain(&isolation.notes).cloned());
    lines.push(network::of_this_host(isolation.root && isolation.namespaces.own));
    lines.push(volume::note(&isolation));
    // Whoever reads may have read enough.
    let _ = writeln!(std::io::stdout().lock(), "{}", lines.join("\n"));
    0
}

fn describe(device: &Device) -> Vec<String> {
    let gpu = &device.facts;
    let mut lines = vec![format!(
        "device: {} ({}, {} MiB), class {}",
        gpu.model, gpu.uuid, gpu.vram_mib, gpu.class
    )];
    if let Some(hardware) = &gpu.hardware {
        lines.extend(made_of(hardware));
    }
    if let Some(name) = &device.opencl {
        lines.push(format!("  OpenCL: device {} of {}", name.index, name.platform));
    }
    if !device.files.is_empty() {
        let files: Vec<String> = device
            .files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        lines.push(format!("  files: {}", files.join(" ")));
    }
    lines.extend(
        gpu.isolation
            .iter()
            .map(|(level, why)| format!("  {}: {why}", level.as_str())),
    );
    lines
}

fn made_of(hardware: &Hardware) -> Vec<String> {
    let facts = [
        hardware.pci.as_ref().map(|pci| format!("at {pci}")),
        hardware.numa_node.map(|node| format!("NUMA node {node}")),
        hardware.driver.clone(),
        hardware.architecture.clone(),
        hardware
            .ecc
            .map(|on| format!("ECC {}", if on { "on" } else { "off" })),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let mut lines = Vec::new();
    if !facts.is_empty() {
        lines.push(format!("  {}", facts.join(", ")));
    }
    lines.extend(hardware.partitioning.iter().flat_map(cut));
    lines.extend(
        hardware
            .links
            .iter()
            .map(|link| format!("  to {}: {} × {}", link.peer, link.path.as_str(), link.width)),
    );
    lines
}

fn cut(how: &Partitioning) -> Vec<String> {
    let pending = how.pending.as_ref();
    let pending = pending.map_or(String::new(), |pending| format!(", {pending} after a reset"));
    let mut lines = vec![format!(
        "  partitioning: {}{pending} (of {})",
        how.mode,
        how.modes.join(", ")
    )];
    lines.extend(how.parts.iter().map(|part| {
        let place = part
            .placement
            .map_or(String::new(), |at| format!(" at {}", span(at)));
        format!(
            "  part: {}{place} ({}, {} MiB)",
            part.profile, part.uuid, part.memory_mib
        )
    }));
    lines.extend(how.profiles.iter().map(|profile| {
        let places: Vec<String> = profile.placements.iter().copied().map(span).collect();
        format!(
            "  may hold: {} × {} ({} MiB) at {}",
            profile.count,
            profile.name,
            profile.memory_mib,
            places.join(" ")
        )
    }));
    lines
}

/// The memory slices it takes, first and last.
fn span(at: Placement) -> String {
    match at.size {
        0 | 1 => at.start.to_string(),
        size => format!("{}-{}", at.start, at.start.saturating_add(size - 1)),
    }
}
