//! How NVIDIA's devices reach one another: NVLink where it is, the PCI bus otherwise.

use tenure_domain::schedule::hardware::{Link, LinkPath};

use super::Gpu;
use super::library::Nvml;

/// `NVML_NVLINK_MAX_LINKS`
const LINKS_MAX: u32 = 36;

/// Where the active links of one device lead.
struct Ends {
    /// For each device, how many links lead to it.
    direct: Vec<u32>,
    to_switch: u32,
}

fn ends(nvml: &Nvml, gpu: &Gpu, all: &[Gpu]) -> Ends {
    let mut ends = Ends {
        direct: vec![0; all.len()],
        to_switch: 0,
    };
    for link in (0..LINKS_MAX).filter(|link| nvml.link_is_up(gpu.handle, *link) == Ok(true)) {
        let far = nvml.link_to(gpu.handle, link).ok();
        let peer = far.and_then(|far| {
            all.iter()
                .position(|other| other.pci.is_some_and(|pci| pci.same_slot(far)))
        });
        match peer {
            Some(peer) => ends.direct[peer] += 1,
            None if nvml.link_is_to_switch(gpu.handle, link) == Ok(true) => ends.to_switch += 1,
            None => {}
        }
    }
    ends
}

/// For each device, its links to the others.
pub fn all(nvml: &Nvml, gpus: &[Gpu]) -> Vec<Vec<Link>> {
    let ends: Vec<Ends> = gpus.iter().map(|gpu| ends(nvml, gpu, gpus)).collect();
    let link = |from: usize, to: usize| {
        let (path, width) = if ends[from].direct[to] > 0 {
            (LinkPath::Nvlink, ends[from].direct[to])
        } else if ends[from].to_switch > 0 && ends[to].to_switch > 0 {
            (LinkPath::Nvswitch, ends[from].to_switch.min(ends[to].to_switch))
        } else {
            (by_bus(nvml, &gpus[from], &gpus[to])?, 1)
        };
        Some(Link {
            peer: gpus[to].uuid.clone(),
            path,
            width,
        })
    };
    let others = |from| (0..gpus.len()).filter(move |to| *to != from);
    (0..gpus.len())
        .map(|from| others(from).filter_map(|to| link(from, to)).collect())
        .collect()
}

fn by_bus(nvml: &Nvml, from: &Gpu, to: &Gpu) -> Option<LinkPath> {
    // `nvmlGpuTopologyLevel_t`
    match nvml.common_ancestor(from.handle, to.handle).ok()? {
        0 => Some(LinkPath::Board),
        10 => Some(LinkPath::PciSwitch),
        20 => Some(LinkPath::PciSwitches),
        30 => Some(LinkPath::HostBridge),
        40 => Some(LinkPath::NumaNode),
        50 => Some(LinkPath::System),
        _ => None,
    }
}
