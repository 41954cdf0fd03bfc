//! AMD's and Intel's devices from trees written here in the formats the kernel documents: `gpu/amdgpu/driver-misc`,
//! the topology of `amdkfd`, and what `xe` and `i915` show. No tree is of a real machine.

use tenure_domain::schedule::hardware::LinkPath;

use crate::machine::{Machine, hardware, levels, noted};

const GIB: u64 = 1 << 30;

pub struct Card<'a> {
    machine: &'a Machine,
    dir: String,
}

impl Card<'_> {
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        self.machine.file(&format!("{}/{name}", self.dir), text);
        self
    }
}

/// What every card on the PCI bus shows.
fn card<'a>(machine: &'a Machine, number: u32, driver: &str, id: (&str, &str), bus: u32) -> Card<'a> {
    let card = Card {
        machine,
        dir: format!("sys/class/drm/card{number}"),
    };
    let slot = format!("0000:{bus:02x}:00.0");
    card.file(
        "device/uevent",
        format!(
            "DRIVER={driver}\nPCI_CLASS=38000\nPCI_ID={}:{}\nPCI_SLOT_NAME={slot}\n",
            id.0, id.1
        ),
    );
    card.file("device/vendor", format!("0x{}\n", id.0));
    card.file("device/device", format!("0x{}\n", id.1));
    card.file(&format!("device/drm/renderD{}/dev", 128 + number), "");
    machine.file(&format!("dev/dri/renderD{}", 128 + number), "");
    // A connector of the card is no card.
    machine.file(&format!("sys/class/drm/card{number}-DP-1/status"), "connected\n");
    machine.file(
        &format!("sys/bus/pci/devices/{slot}/numa_node"),
        format!("{}\n", bus >> 7),
    );
    card
}

/// A node of the compute driver's topology.
pub fn kfd_node(machine: &Machine, node: u32, bus: u32, part: u32, render: u32, gib: u64, xgmi_to: &[u32]) {
    let dir = format!("sys/class/kfd/kfd/topology/nodes/{node}");
    machine.file(&format!("{dir}/gpu_id"), format!("{}\n", 40_000 + node));
    let location = part << 28 | bus << 8;
    machine.file(
        &format!("{dir}/properties"),
        format!("cpu_cores_count 0\nsimd_count 304\nvendor_id 4098\ndevice_id 29857\nlocation_id {location}\ndomain 0\ndrm_render_minor {render}\ngfx_target_version 90402\n"),
    );
    machine.file(
        &format!("{dir}/mem_banks/0/properties"),
        format!("heap_type 1\nsize_in_bytes {}\nflags 0\nwidth 8192\n", gib * GIB),
    );
    // Every GPU has a way to the processor.
    let links = std::iter::once((2, 0)).chain(xgmi_to.iter().map(|to| (11, *to)));
    for (number, (kind, to)) in links.enumerate() {
        machine.file(
            &format!("{dir}/io_links/{number}/properties"),
            format!("type {kind}\nversion_major 0\nnode_from {node}\nnode_to {to}\nweight 15\n"),
        );
    }
}

pub fn mi300x<'a>(machine: &'a Machine, number: u32, bus: u32, mode: (&str, &str)) -> Card<'a> {
    let card = card(machine, number, "amdgpu", ("1002", "74a1"), bus);
    card.file("device/mem_info_vram_total", format!("{}\n", 192 * GIB))
        .file("device/mem_info_vram_used", "298573824\n")
        .file(
            "device/unique_id",
            format!("{:016x}\n", 0x9a1b_0000_0000_0000_u64 + u64::from(bus)),
        )
        .file("device/product_name", "AMD Instinct MI300X OAM\n")
        .file("device/current_compute_partition", format!("{}\n", mode.0))
        .file("device/available_compute_partition", "SPX, DPX, QPX, CPX\n")
        .file("device/current_memory_partition", format!("{}\n", mode.1));
    card
}

#[test]
fn amd_in_one_piece_and_cut() {
    let machine = Machine::new();
    machine.file("dev/kfd", "");
    machine.file("sys/module/amdgpu/version", "6.10.5\n");
    // Node 0 is the processor.
    machine.file("sys/class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
    machine.file(
        "sys/class/kfd/kfd/topology/nodes/0/properties",
        "cpu_cores_count 96\nsimd_count 0\n",
    );
    mi300x(&machine, 0, 0x05, ("SPX", "NPS1"));
    kfd_node(&machine, 1, 0x05, 0, 128, 192, &[2, 9]);
    mi300x(&machine, 1, 0x85, ("CPX", "NPS4"));
    for part in 0..8 {
        // The first part is the card's own node, the others are devices of no bus.
        let render = if part == 0 { 129 } else { 200 + part };
        kfd_node(&machine, 2 + part, 0x85, part, render, 24, &[1]);
        machine.file(&format!("dev/dri/renderD{render}"), "");
        if part > 0 {
            machine.file(
                &format!("sys/class/drm/card{}/device/uevent", 10 + part),
                "DRIVER=amdgpu_xcp_drv\nMODALIAS=platform:amdgpu_xcp\n",
            );
        }
    }
    let found = machine.found();
    assert_eq!(found.devices.len(), 2, "{:?}", found.notes);
    let (whole, cut) = (&found.devices[0], &found.devices[1]);
    for device in [whole, cut] {
        assert_eq!(&*device.facts.class, "MI300X");
        assert_eq!(device.facts.vram_mib, 192 << 10);
        assert_eq!(hardware(device).architecture.as_deref(), Some("gfx942"));
        assert_eq!(hardware(device).driver.as_deref(), Some("amdgpu 6.10.5"));
        assert_eq!(hardware(device).links[0].path, LinkPath::Xgmi);
    }
    assert_eq!(whole.facts.uuid, "GPU-9a1b000000000005");
    assert_eq!(hardware(whole).links[0].peer, cut.facts.uuid);
    assert_eq!(
        (hardware(whole).numa_node, hardware(cut).numa_node),
        (Some(0), Some(1))
    );
    let dev = machine.root.path().join("dev");
    assert_eq!(whole.files, [dev.join("kfd"), dev.join("dri/renderD128")]);
    assert_eq!(
        cut.files.len(),
        9,
        "the compute driver, and every part: {:?}",
        cut.files
    );

    let how = hardware(whole).partitioning.as_ref().unwrap();
    assert_eq!((how.mode.as_str(), how.parts.len()), ("SPX/NPS1", 0));
    assert_eq!(how.modes, ["SPX", "DPX", "QPX", "CPX"]);
    assert_eq!(levels(whole), ["exclusive"]);
    assert!(noted(&found, &["0000:05:00.0", "not partition", "SPX/NPS1"]));

    let how = hardware(cut).partitioning.as_ref().unwrap();
    assert_eq!((how.mode.as_str(), how.parts.len()), ("CPX/NPS4", 8));
    assert!(
        how.parts
            .iter()
            .all(|part| part.memory_mib == 24 << 10 && part.profile == "CPX")
    );
    assert_eq!(levels(cut), ["partition", "exclusive"]);
    assert!(noted(&found, &["0000:85:00.0", "not guarded", "side by side"]));
}

#[test]
fn amd_that_says_little() {
    let machine = Machine::new();
    // A desktop card: no product name, no number of its own, no partitions, no compute driver.
    card(&machine, 0, "amdgpu", ("1002", "744c"), 3)
        .file("device/mem_info_vram_total", format!("{}\n", 24 * GIB));
    card(&machine, 1, "amdgpu", ("1002", "9999"), 4).file("device/mem_info_vram_total", "nonsense\n");
    card(&machine, 2, "radeon", ("1002", "6798"), 5);
    machine.file("proc/sys/kernel/osrelease", "6.12.3\n");
    let found = machine.found();
    assert_eq!(found.devices.len(), 1, "{:?}", found.notes);
    let device = &found.devices[0];
    assert_eq!(device.facts.uuid, "amd-host-0000:03:00.0");
    assert_eq!(&*device.facts.class, "RX-7900-XTX");
    assert_eq!(hardware(device).driver.as_deref(), Some("amdgpu of Linux 6.12.3"));
    assert_eq!(hardware(device).partitioning, None);
    assert!(noted(
        &found,
        &["0x9999 at 0000:04:00.0", "left out", "no memory"]
    ));
    assert!(noted(&found, &["1002:6798", "driven by radeon"]));
}

#[test]
fn intel_discrete_and_integrated() {
    let machine = Machine::new();
    let resource = |bytes: u64| {
        let line = |start: u64, bytes: u64| {
            let end = start + bytes.saturating_sub(1);
            format!("0x{start:016x} 0x{end:016x} 0x000000000014220c\n")
        };
        [
            line(0x8000_0000, 16 << 20),
            line(0, 0),
            line(0x40_0000_0000, bytes),
        ]
        .concat()
    };
    card(&machine, 0, "xe", ("8086", "56a0"), 3)
        .file("device/tile0/physical_vram_size_bytes", "17095983104\n");
    card(&machine, 1, "i915", ("8086", "56c0"), 4).file("lmem_total_bytes", "15032385536\n");
    card(&machine, 2, "xe", ("8086", "0bd5"), 5)
        .file("device/tile0/physical_vram_size_bytes", format!("{}\n", 64 * GIB))
        .file("device/tile1/physical_vram_size_bytes", format!("{}\n", 64 * GIB));
    // The driver shows no size, and the firmware opened the window over all memory.
    card(&machine, 3, "xe", ("8086", "e20b"), 6).file("device/resource", resource(16 * GIB));
    // The same with a window of the old size: what lies behind it is not known.
    card(&machine, 4, "i915", ("8086", "56a5"), 7).file("device/resource", resource(256 << 20));
    // Integrated graphics have a window too, onto memory of the host.
    card(&machine, 5, "i915", ("8086", "9a49"), 0).file("device/resource", resource(GIB));
    let found = machine.found();
    let told: Vec<(&str, u64)> = found
        .devices
        .iter()
        .map(|device| (&*device.facts.class, device.facts.vram_mib))
        .collect();
    assert_eq!(
        told,
        [
            ("Arc-A770", 16_304),
            ("Flex-170", 14_336),
            ("Max-1550", 131_072),
            ("Arc-B580", 16_384),
        ]
    );
    let first = &found.devices[0];
    assert_eq!(first.facts.uuid, "intel-host-0000:03:00.0");
    assert_eq!(first.files, [machine.root.path().join("dev/dri/renderD128")]);
    assert_eq!(hardware(first).links.len(), 5);
    assert_eq!(hardware(first).links[0].path, LinkPath::NumaNode);
    assert_eq!(levels(first), ["exclusive"]);
    assert!(noted(&found, &["Intel Arc A380 at 0000:07:00.0", "left out"]));
    assert!(noted(
        &found,
        &["Intel graphics 0x9a49 at 0000:00:00.0", "left out"]
    ));
}
