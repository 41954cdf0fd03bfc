//! AMD's devices, as `amdgpu` and `amdkfd` show them.
//!
//! Formats: the kernel's documentation, `gpu/amdgpu/driver-misc`, `gpu/amdgpu/process-isolation` and `amdgpu/xgmi`; a
//! device's parts and links stand in the topology below `/sys/class/kfd` (`kfd`). Drivers are not loaded.

pub(crate) mod kfd;

use tenure_domain::schedule::fleet::GpuFacts;
use tenure_domain::schedule::hardware::{
    Hardware, Link, LinkPath, Part, PartProfile, Partitioning, Placement,
};

use super::drm::{self, Card};
use super::pci::PciBus;
use super::setting::Setting;
use super::{Device, class};
use kfd::Topology;

pub const VENDOR: u16 = 0x1002;

/// For cards that do not say their product name, by PCI device id; from the public list of PCI ids.
const MODELS: &[(u16, &str)] = &[
    (0x66a1, "AMD Instinct MI50"),
    (0x738c, "AMD Instinct MI100"),
    (0x738e, "AMD Instinct MI100"),
    (0x73a3, "AMD Radeon PRO W6800"),
    (0x73af, "AMD Radeon RX 6900 XT"),
    (0x7408, "AMD Instinct MI250X"),
    (0x740c, "AMD Instinct MI250X"),
    (0x740f, "AMD Instinct MI210"),
    (0x7448, "AMD Radeon PRO W7900"),
    (0x744c, "AMD Radeon RX 7900 XTX"),
    (0x74a0, "AMD Instinct MI300A"),
    (0x74a1, "AMD Instinct MI300X"),
    (0x74a5, "AMD Instinct MI325X"),
    (0x75a0, "AMD Instinct MI350X"),
    (0x75a3, "AMD Instinct MI355X"),
];

pub fn devices(
    cards: &[Card],
    setting: &Setting,
    bus: &PciBus,
    host_id: &str,
    notes: &mut Vec<String>,
) -> Vec<Device> {
    let topology = Topology::below(&setting.sys());
    let uuids: Vec<String> = cards.iter().map(|card| uuid(card, host_id)).collect();
    let each = cards.iter().zip(&uuids).map(|(card, uuid)| {
        let links = cards
            .iter()
            .zip(&uuids)
            .filter(|(other, _)| other.pci != card.pci);
        let links = links.map(|(other, peer)| Link {
            peer: peer.clone(),
            path: path(card, other, &topology, bus),
            width: 1,
        });
        device(card, uuid, links.collect(), &topology, setting, bus, notes)
    });
    each.collect()
}

/// The chip's own number, in the form ROCm takes it, or a name that holds on this host.
fn uuid(card: &Card, host_id: &str) -> String {
    match drm::text(&card.device().join("unique_id")) {
        Some(id) if id.bytes().all(|digit| digit.is_ascii_hexdigit()) => format!("GPU-{id}"),
        _ => format!("amd-{host_id}-{}", card.pci),
    }
}

fn device(
    card: &Card,
    uuid: &str,
    links: Vec<Link>,
    topology: &Topology,
    setting: &Setting,
    bus: &PciBus,
    notes: &mut Vec<String>,
) -> Device {
    let dir = card.device();
    let known = MODELS.iter().find(|(id, _)| *id == card.model);
    let model = drm::text(&dir.join("product_name"))
        .or_else(|| known.map(|(_, name)| (*name).to_owned()))
        .unwrap_or_else(|| format!("AMD GPU {:#06x}", card.model));
    let vram_mib = drm::number(&dir.join("mem_info_vram_total")).unwrap_or(0) >> 20;
    let nodes: Vec<&kfd::Gpu> = topology.of(card.pci).collect();
    let mut render: Vec<u32> = nodes.iter().filter_map(|node| node.render_minor).collect();
    render.extend(&card.render);
    render.sort_unstable();
    render.dedup();
    let files = ["kfd".to_owned()]
        .into_iter()
        .chain(render.iter().map(|minor| format!("dri/renderD{minor}")));
    let files = setting.device_files(files, &format!("{model} at {}", card.pci), notes);
    Device {
        facts: GpuFacts {
            uuid: uuid.to_owned(),
            vendor: "AMD".to_owned(),
            class: class::amd(&model).into(),
            model,
            vram_mib,
            isolation: Default::default(),
            hardware: Some(Box::new(Hardware {
                pci: Some(card.pci.to_string()),
                numa_node: bus.numa_node(card.pci),
                driver: Some(drm::driver(setting, &card.driver)),
                architecture: nodes.iter().find_map(|node| node.architecture()),
                ecc: None,
                partitioning: partitioning(card, uuid, vram_mib, &nodes),
                links,
                one_tenant: false,
                checkpoint: false,
            })),
        },
        opencl: None,
        files,
        memory_wall: None,
        flaw: None,
    }
}

/// How the compute units, and how the memory, are divided; none for a chip that is always in one piece.
fn partitioning(card: &Card, uuid: &str, vram_mib: u64, nodes: &[&kfd::Gpu]) -> Option<Partitioning> {
    let said = |name: &str| drm::text(&card.device().join(name));
    let compute = said("current_compute_partition")?;
    let available = said("available_compute_partition").unwrap_or_default();
    let memory = said("current_memory_partition");
    let parts = nodes.iter().enumerate().map(|(index, node)| Part {
        uuid: format!("{uuid}/{index}"),
        profile: compute.clone(),
        memory_mib: node.memory_mib,
        placement: None,
    });
    let modes: Vec<String> = available
        .split(',')
        .map(|mode| mode.trim().to_owned())
        .filter(|mode| !mode.is_empty())
        .collect();
    Some(Partitioning {
        profiles: profiles(&modes, vram_mib, nodes),
        uniform: true,
        mode: memory.map_or_else(|| compute.clone(), |memory| format!("{compute}/{memory}")),
        pending: None,
        modes,
        parts: if nodes.len() > 1 {
            parts.collect()
        } else {
            Vec::new()
        },
        ..Partitioning::default()
    })
}

/// What each mode would cut the device into, counted in its compute dies; none where the driver does not tell how many
/// it has. The driver holds every part to its share of the memory, in whichever way the memory is interleaved.
fn profiles(modes: &[String], vram_mib: u64, nodes: &[&kfd::Gpu]) -> Vec<PartProfile> {
    let dies: u32 = nodes.iter().map(|node| node.dies).sum();
    let each = modes.iter().zip(0..).filter_map(|(mode, id)| {
        let count = match mode.as_str() {
            "SPX" => 1,
            "DPX" => 2,
            "TPX" => 3,
            "QPX" => 4,
            "CPX" => dies,
            _ => return None,
        };
        if dies == 0 || count == 0 || !dies.is_multiple_of(count) {
            return None;
        }
        let size = dies / count;
        let starts = (0..count).map(|part| part * size);
        Some(PartProfile {
            name: mode.clone(),
            id,
            memory_mib: vram_mib / u64::from(count),
            slices: size,
            count,
            placements: starts.map(|start| Placement { start, size }).collect(),
        })
    });
    each.collect()
}

fn path(card: &Card, other: &Card, topology: &Topology, bus: &PciBus) -> LinkPath {
    let hive = |card: &Card| {
        drm::text(&card.device().join("xgmi_hive_info/xgmi_hive_id"))
            .filter(|id| !id.trim_matches('0').is_empty())
    };
    let one_hive = hive(card).is_some_and(|id| hive(other) == Some(id));
    if one_hive || topology.linked_by_xgmi(card.pci, other.pci) {
        LinkPath::Xgmi
    } else {
        bus.path(card.pci, other.pci)
    }
}
