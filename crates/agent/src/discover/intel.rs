//! Intel's devices, as `i915` and `xe` show them.
//!
//! Memory: `xe` shows `tileN/physical_vram_size_bytes`, Intel's own `i915` `lmem_total_bytes`; a driver that shows
//! neither lets a discrete card's memory be seen as its second PCI region, whole where the firmware resizes it. Where
//! none of this tells, OpenCL may (`merge`), or the device is left out. Integrated graphics have no memory of their own.

use std::path::Path;

use tenure_domain::schedule::fleet::GpuFacts;
use tenure_domain::schedule::hardware::{Hardware, Link};

use super::drm::{self, Card};
use super::pci::PciBus;
use super::setting::Setting;
use super::{Device, class};

pub const VENDOR: u16 = 0x8086;

/// Discrete cards by PCI device id; from the public list of PCI ids and the kernel's `xe_pciids.h`.
const DISCRETE: &[(u16, &str)] = &[
    (0x0bd5, "Intel Data Center GPU Max 1550"),
    (0x0bd6, "Intel Data Center GPU Max 1550"),
    (0x0bd7, "Intel Data Center GPU Max 1350"),
    (0x0bd8, "Intel Data Center GPU Max 1350"),
    (0x0bd9, "Intel Data Center GPU Max 1100"),
    (0x0bda, "Intel Data Center GPU Max 1100"),
    (0x0bdb, "Intel Data Center GPU Max 1100"),
    (0x5690, "Intel Arc A770M"),
    (0x5691, "Intel Arc A730M"),
    (0x5692, "Intel Arc A550M"),
    (0x5693, "Intel Arc A370M"),
    (0x5694, "Intel Arc A350M"),
    (0x56a0, "Intel Arc A770"),
    (0x56a1, "Intel Arc A750"),
    (0x56a2, "Intel Arc A580"),
    (0x56a5, "Intel Arc A380"),
    (0x56a6, "Intel Arc A310"),
    (0x56b1, "Intel Arc Pro A40/A50"),
    (0x56c0, "Intel Data Center GPU Flex 170"),
    (0x56c1, "Intel Data Center GPU Flex 140"),
    (0xe20b, "Intel Arc B580"),
    (0xe20c, "Intel Arc B570"),
    (0xe211, "Intel Arc Pro B60"),
    (0xe212, "Intel Arc Pro B50"),
];

/// The window onto memory that is not resized is this large, whatever the memory.
const SMALL_WINDOW: u64 = 256 << 20;

/// Intel tells no identity that no other card has.
fn uuid(card: &Card, host_id: &str) -> String {
    format!("intel-{host_id}-{}", card.pci)
}

pub fn device(
    card: &Card,
    all: &[Card],
    setting: &Setting,
    bus: &PciBus,
    host_id: &str,
    notes: &mut Vec<String>,
) -> Device {
    let known = DISCRETE.iter().find(|(id, _)| *id == card.model);
    let model = match known {
        Some((_, name)) => (*name).to_owned(),
        None => format!("Intel graphics {:#06x}", card.model),
    };
    let bytes = memory(card).or_else(|| known.and_then(|_| window(&card.device())));
    let files = card.render.iter().map(|minor| format!("dri/renderD{minor}"));
    let files = setting.device_files(files, &format!("{model} at {}", card.pci), notes);
    Device {
        facts: GpuFacts {
            uuid: uuid(card, host_id),
            vendor: "Intel".to_owned(),
            class: class::intel(&model).into(),
            model,
            vram_mib: bytes.unwrap_or(0) >> 20,
            isolation: Default::default(),
            hardware: Some(Box::new(Hardware {
                pci: Some(card.pci.to_string()),
                numa_node: bus.numa_node(card.pci),
                driver: Some(drm::driver(setting, &card.driver)),
                links: all
                    .iter()
                    .filter(|other| other.pci != card.pci)
                    .map(|other| Link {
                        peer: uuid(other, host_id),
                        path: bus.path(card.pci, other.pci),
                        width: 1,
                    })
                    .collect(),
                ..Hardware::default()
            })),
        },
        opencl: None,
        files,
        memory_wall: None,
        flaw: None,
    }
}

fn memory(card: &Card) -> Option<u64> {
    let device = card.device();
    let tiles = drm::numbered(&device, "tile");
    let by_tile: u64 = tiles
        .iter()
        .filter_map(|tile| drm::number(&device.join(format!("tile{tile}/physical_vram_size_bytes"))))
        .sum();
    if by_tile > 0 {
        return Some(by_tile);
    }
    drm::number(&card.dir.join("lmem_total_bytes")).filter(|bytes| *bytes > 0)
}

/// The third line of `resource` is the region through which the processor sees the card's memory: start, end, flags.
fn window(device: &Path) -> Option<u64> {
    let regions = std::fs::read_to_string(device.join("resource")).ok()?;
    let mut numbers = regions
        .lines()
        .nth(2)?
        .split_whitespace()
        .map(|number| u64::from_str_radix(number.trim_start_matches("0x"), 16));
    let (start, end) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let bytes = end.checked_sub(start)?.checked_add(1)?;
    (bytes > SMALL_WINDOW).then_some(bytes)
}
