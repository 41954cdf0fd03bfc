//! NVIDIA's devices on a double of NVML: models, MIG, links, and a driver with faults.

use serde_json::json;
use tenure_domain::schedule::hardware::{LinkPath, Placement};

use crate::machine::{Machine, hardware, levels, noted};

#[test]
fn models_and_what_they_give() {
    let machine = Machine::new();
    machine.nvml(&json!({"driver": "570.86.15", "devices": [
        {"model": "A100-40GB", "uuid": "GPU-a", "bus": 0x07, "ecc": true},
        {"model": "A100-80GB", "uuid": "GPU-b", "bus": 0x0b, "ecc": true},
        {"model": "L40S", "uuid": "GPU-c", "bus": 0x41, "ecc": true},
        {"model": "T4", "uuid": "GPU-d", "bus": 0x81},
    ]}));
    machine.file("sys/bus/pci/devices/0000:07:00.0/numa_node", "0\n");
    machine.file("sys/bus/pci/devices/0000:0b:00.0/numa_node", "-1\n");
    for file in ["nvidia0", "nvidiactl", "nvidia-uvm"] {
        machine.file(&format!("dev/{file}"), "");
    }
    let found = machine.found();
    let told: Vec<_> = found
        .devices
        .iter()
        .map(|device| {
            let facts = &device.facts;
            let architecture = hardware(device).architecture.as_deref().unwrap();
            (
                facts.uuid.as_str(),
                &*facts.class,
                facts.vram_mib,
                architecture,
                hardware(device).ecc,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("GPU-a", "A100-40GB", 40_960, "sm_80", Some(true)),
            ("GPU-b", "A100-80GB", 81_920, "sm_80", Some(true)),
            ("GPU-c", "L40S", 46_068, "sm_89", Some(true)),
            ("GPU-d", "T4", 15_360, "sm_75", Some(false)),
        ]
    );
    let first = &found.devices[0];
    assert_eq!(first.facts.model, "NVIDIA A100-SXM4-40GB");
    assert_eq!(hardware(first).pci.as_deref(), Some("0000:07:00.0"));
    assert_eq!(hardware(first).driver.as_deref(), Some("nvidia 570.86.15"));
    assert_eq!(hardware(first).numa_node, Some(0));
    assert_eq!(
        hardware(&found.devices[1]).numa_node,
        None,
        "the kernel does not know"
    );
    let dev = machine.root.path().join("dev");
    let files = ["nvidia0", "nvidiactl", "nvidia-uvm"].map(|file| dev.join(file));
    assert_eq!(first.files, files);
    assert_eq!(found.devices[1].files, files[1..], "only files that are there");
    assert!(noted(&found, &["GPU-b", "dev/nvidia1 is missing"]));
    // One switch, one processor, and two.
    let paths: Vec<LinkPath> = hardware(first).links.iter().map(|link| link.path).collect();
    assert_eq!(paths, [LinkPath::PciSwitch, LinkPath::NumaNode, LinkPath::System]);
    for device in &found.devices {
        assert_eq!(levels(device), ["exclusive"], "{}", device.facts.uuid);
    }
    assert!(noted(
        &found,
        &["0000:07:00.0", "not guarded", "no OpenCL driver"]
    ));
    assert!(noted(&found, &["0000:07:00.0", "not partition", "mig off"]));
    assert!(
        !noted(&found, &["L40S", "not partition"]),
        "it cannot be cut at all"
    );
}

#[test]
fn mig_parts_and_where_more_may_lie() {
    let machine = Machine::new();
    machine.nvml(&json!({"driver": "595.71.05", "devices": [
        {"model": "A100-80GB", "uuid": "GPU-cut", "bus": 1, "mig": true, "instances": [
            {"profile": "3g.40gb", "start": 4, "uuid": "MIG-right"},
            {"profile": "1g.10gb", "start": 0, "uuid": "MIG-left"},
            {"profile": "2g.20gb", "start": 2, "uuid": "MIG-half", "slices": 1},
            {"profile": "1g.10gb", "start": 1},
        ]},
        {"model": "A100-80GB", "uuid": "GPU-empty", "bus": 2, "mig": true, "mig_pending": false},
        {"model": "A100-40GB", "uuid": "GPU-whole", "bus": 3, "mig_pending": true},
    ]}));
    let found = machine.found();
    let partitioning = |uuid: &str| {
        let device = found.device(uuid).unwrap();
        (device, hardware(device).partitioning.clone().unwrap())
    };
    let (cut, how) = partitioning("GPU-cut");
    assert_eq!((how.mode.as_str(), how.pending), ("mig", None));
    let parts: Vec<_> = how
        .parts
        .iter()
        .map(|part| {
            let place = part.placement.unwrap();
            (
                part.uuid.as_str(),
                part.profile.as_str(),
                part.memory_mib,
                (place.start, place.size),
            )
        })
        .collect();
    assert_eq!(
        parts,
        [
            ("MIG-left", "1g.10gb", 9856, (0, 1)),
            ("MIG-half", "1c.2g.20gb", 19_968, (2, 2)),
            ("MIG-right", "3g.40gb", 40_192, (4, 4)),
        ]
    );
    assert!(
        noted(&found, &["GPU-cut", "1g.10gb at 1", "takes room"]),
        "an instance with nothing in it: {:?}",
        found.notes
    );
    let profiles: Vec<_> = how
        .profiles
        .iter()
        .map(|profile| (profile.name.as_str(), profile.slices, profile.count))
        .collect();
    assert_eq!(
        profiles,
        [
            ("1g.10gb", 1, 7),
            ("2g.20gb", 2, 3),
            ("3g.40gb", 3, 2),
            ("4g.40gb", 4, 1),
            ("7g.80gb", 7, 1),
            ("1g.10gb+me", 1, 1),
            ("1g.20gb", 1, 4),
        ]
    );
    let at = |start| Placement { start, size: 2 };
    assert_eq!(how.profiles[6].placements, [at(0), at(2), at(4), at(6)]);
    assert_eq!(levels(cut), ["partition"]);
    let taken: Vec<_> = how
        .taken
        .iter()
        .map(|part| (part.profile.as_str(), part.placement.start))
        .collect();
    assert_eq!(taken, [("1g.10gb", 1)]);
    assert!(noted(&found, &["0000:01:00.0", "not exclusive", "MIG"]));

    let (empty, how) = partitioning("GPU-empty");
    assert_eq!(
        levels(empty),
        ["partition"],
        "parts are made when they are asked for"
    );
    assert!(how.parts.is_empty() && how.profiles.len() == 7);
    assert_eq!(how.pending.as_deref(), Some("mig off"));

    let (whole, how) = partitioning("GPU-whole");
    assert_eq!(
        (how.mode.as_str(), how.pending.as_deref()),
        ("mig off", Some("mig"))
    );
    assert_eq!(levels(whole), ["exclusive"]);
    assert!(noted(&found, &["GPU-whole", "after its next reset"]));

    let said = machine.doctor();
    for line in [
        "  part: 3g.40gb at 4-7 (MIG-right, 40192 MiB)",
        "  may hold: 4 × 1g.20gb (19968 MiB) at 0-1 2-3 4-5 6-7",
        "  partitioning: mig off, mig after a reset (of mig off, mig)",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
}

#[test]
fn links_between_devices() {
    let machine = Machine::new();
    // A pair with three links, and two that meet in a switch.
    machine.nvml(&json!({"driver": "570.86.15", "devices": [
        {"model": "H100-80GB", "uuid": "GPU-a", "bus": 0x11, "links": [0x12, 0x12, 0x12]},
        {"model": "H100-80GB", "uuid": "GPU-b", "bus": 0x12, "links": [0x11, 0x11, 0x11]},
        {"model": "H100-80GB", "uuid": "GPU-c", "bus": 0x13, "links": [0, 0, 0, 0]},
        {"model": "H100-80GB", "uuid": "GPU-d", "bus": 0x94, "links": [0, 0]},
    ]}));
    let found = machine.found();
    let link = |from: &str, to: &str| {
        let links = &hardware(found.device(from).unwrap()).links;
        let link = links.iter().find(|link| link.peer == to).unwrap();
        (link.path, link.width)
    };
    assert_eq!(link("GPU-a", "GPU-b"), (LinkPath::Nvlink, 3));
    assert_eq!(link("GPU-b", "GPU-a"), (LinkPath::Nvlink, 3));
    assert_eq!(link("GPU-c", "GPU-d"), (LinkPath::Nvswitch, 2));
    assert_eq!(link("GPU-a", "GPU-c"), (LinkPath::PciSwitch, 1));
    assert_eq!(link("GPU-a", "GPU-d"), (LinkPath::System, 1));
}

#[test]
fn a_driver_with_faults() {
    let mut machine = Machine::new();
    machine.nvml(&json!({"driver": "570.86.15", "devices": [
        {"model": "L40S", "uuid": "GPU-well", "bus": 1, "ecc": true, "uncorrected": 3},
        {"model": "L40S", "uuid": "GPU-lost", "bus": 2, "lost": true},
        {"model": "L40S", "uuid": "GPU-well", "bus": 3},
    ]}));
    let found = machine.found();
    assert_eq!(found.devices.len(), 1, "{:?}", found.notes);
    assert!(
        noted(&found, &["GPU 1", "lost", "0000:02:00.0"]),
        "{:?}",
        found.notes
    );
    assert!(noted(&found, &["GPU-well", "3 memory errors"]));
    assert!(noted(&found, &["0000:03:00.0", "calls itself GPU-well too"]));
    assert!(!found.incomplete);

    // The driver is not loaded; it is of another version than the library.
    for (status, word) in [(9, "driver is not loaded"), (18, "different versions")] {
        machine.nvml(&json!({"driver": "x", "devices": [], "init": status}));
        let found = machine.found();
        assert!(found.devices.is_empty() && noted(&found, &["NVIDIA: none", word]));
    }

    machine.nvml(&json!({"driver": "x", "wrong_memory": true, "devices": [
        {"model": "A100-80GB", "uuid": "GPU-mad", "bus": 1, "mig": true},
    ]}));
    let found = machine.found();
    assert!(found.devices.is_empty() && noted(&found, &["GPU 0", "bytes of memory"]));

    // It never answers: what others found is there all the same.
    machine.patience_ms = 2000;
    machine.file(
        "sys/class/drm/card0/device/uevent",
        "DRIVER=xe\nPCI_SLOT_NAME=0000:03:00.0\n",
    );
    machine.file("sys/class/drm/card0/device/vendor", "0x8086\n");
    machine.file("sys/class/drm/card0/device/device", "0x56a0\n");
    machine.file(
        "sys/class/drm/card0/device/tile0/physical_vram_size_bytes",
        "17095983104\n",
    );
    for hang in ["nvmlInit_v2", "nvmlDeviceGetUUID"] {
        machine.nvml(&json!({"driver": "x", "hang": hang, "devices": [
            {"model": "L40S", "uuid": "GPU-slow", "bus": 1},
        ]}));
        let found = machine.found();
        assert!(
            found.incomplete && noted(&found, &["NVIDIA: none", "in time"]),
            "{hang}"
        );
        assert_eq!(found.devices.len(), 1, "{hang}");
    }
}

/// Nothing breaks, and what has no bounds is not believed.
#[test]
fn texts_without_an_end_and_counts_beyond_their_room() {
    let machine = Machine::new();
    let profile = |fault: &str| {
        json!({"driver": "x", fault: true, "devices": [
            {"model": "A100-80GB", "uuid": "GPU-mad", "bus": 1, "mig": true, "instances": [
                {"profile": "3g.40gb", "start": 4, "uuid": "MIG-right"},
            ]},
        ]})
    };
    machine.nvml(&profile("wrong_counts"));
    let found = machine.found();
    let how = hardware(&found.devices[0]).partitioning.as_ref().unwrap();
    assert!(how.profiles.iter().all(|profile| profile.placements.is_empty()));
    assert_eq!(how.parts.len(), 1, "asked for one by one");
    assert_eq!(
        (how.parts[0].profile.as_str(), how.parts[0].placement),
        ("3g", None)
    );
    assert!(noted(&found, &["GPU-mad", "not enough room"]));
    assert!(
        levels(&found.devices[0]).is_empty(),
        "no part where others may lie"
    );

    machine.nvml(&profile("endless_texts"));
    let found = machine.found();
    assert_eq!(found.devices[0].facts.uuid, "x".repeat(96), "as long as its room");
}
