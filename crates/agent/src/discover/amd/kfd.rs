//! The compute driver's topology: one node for each GPU, or for each part of a GPU that is cut, and links between them.
//!
//! `/sys/class/kfd/kfd/topology/nodes/N` has `properties` in lines of a word and a number, `mem_banks/M/properties`
//! and `io_links/M/properties` in the same form; the words are those of the kernel's `kfd_topology` and `kfd_crat.h`.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::drm;
use super::super::pci::PciAddress;

/// `CRAT_IOLINK_TYPE_XGMI`
const LINK_XGMI: u64 = 11;
/// `HSA_MEM_HEAP_TYPE_FB_PUBLIC` and `_PRIVATE`: the device's own memory.
const HEAPS_OF_DEVICE: [u64; 2] = [1, 2];

pub struct Gpu {
    node: u64,
    pci: PciAddress,
    pub render_minor: Option<u32>,
    pub memory_mib: u64,
    /// Compute dies (XCCs); 0 where the driver does not tell.
    pub dies: u32,
    target: u64,
    xgmi_to: Vec<u64>,
}

impl Gpu {
    /// What programs are compiled for: 90402 is gfx942.
    pub fn architecture(&self) -> Option<String> {
        let (major, minor, step) = (self.target / 10_000, self.target / 100 % 100, self.target % 100);
        (major > 0).then(|| format!("gfx{major}{minor:x}{step:x}"))
    }
}

pub struct Topology {
    gpus: Vec<Gpu>,
}

impl Topology {
    pub fn below(sys: &Path) -> Topology {
        let nodes = sys.join("class/kfd/kfd/topology/nodes");
        let mut gpus: Vec<Gpu> = drm::numbered(&nodes, "")
            .into_iter()
            .filter_map(|number| gpu(&nodes.join(number.to_string()), number.into()))
            .collect();
        gpus.sort_by_key(|gpu| (gpu.pci, gpu.render_minor, gpu.node));
        Topology { gpus }
    }

    /// The nodes of one card, in the order of their render nodes.
    pub fn of(&self, card: PciAddress) -> impl Iterator<Item = &Gpu> {
        self.gpus.iter().filter(move |gpu| gpu.pci.same_slot(card))
    }

    pub fn linked_by_xgmi(&self, one: PciAddress, other: PciAddress) -> bool {
        let others: Vec<u64> = self.of(other).map(|gpu| gpu.node).collect();
        self.of(one)
            .any(|gpu| gpu.xgmi_to.iter().any(|to| others.contains(to)))
    }
}

fn properties(path: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (word, number) = line.split_once(' ')?;
            Some((word.to_owned(), number.trim().parse().ok()?))
        })
        .collect()
}

/// None for a node that is a processor.
fn gpu(dir: &Path, node: u64) -> Option<Gpu> {
    drm::number(&dir.join("gpu_id")).filter(|id| *id != 0)?;
    let said = properties(&dir.join("properties"));
    let location = *said.get("location_id")?;
    let below = |kind: &str| {
        let dir = dir.join(kind);
        drm::numbered(&dir, "")
            .into_iter()
            .map(move |number| properties(&dir.join(number.to_string()).join("properties")))
    };
    let own = |bank: &BTreeMap<String, u64>| {
        bank.get("heap_type")
            .is_some_and(|heap| HEAPS_OF_DEVICE.contains(heap))
    };
    let bytes: u64 = below("mem_banks")
        .filter(own)
        .filter_map(|bank| bank.get("size_in_bytes").copied())
        .sum();
    Some(Gpu {
        node,
        // Above the sixteen bits of bus, device and function stands the number of the part.
        pci: PciAddress {
            domain: u32::try_from(said.get("domain").copied().unwrap_or(0)).ok()?,
            bus: (location >> 8 & 0xff) as u8,
            device: (location >> 3 & 0x1f) as u8,
            function: (location & 0x7) as u8,
        },
        render_minor: said
            .get("drm_render_minor")
            .and_then(|minor| u32::try_from(*minor).ok())
            .filter(|minor| *minor > 0),
        memory_mib: bytes >> 20,
        dies: said
            .get("num_xcc")
            .and_then(|dies| u32::try_from(*dies).ok())
            .filter(|dies| (1..=64).contains(dies))
            .unwrap_or(0),
        target: said.get("gfx_target_version").copied().unwrap_or(0),
        xgmi_to: below("io_links")
            .filter(|link| link.get("type") == Some(&LINK_XGMI))
            .filter_map(|link| link.get("node_to").copied())
            .collect(),
    })
}
