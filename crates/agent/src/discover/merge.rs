//! One device for each that is there, however many ways found it.
//!
//! The vendor's way knows more, so its facts stay; OpenCL adds the name programs find it by, and the memory where
//! the kernel driver does not tell. Matched by the vendor's identity or by the slot on the PCI bus.

use super::Device;

fn is_same(one: &Device, other: &Device) -> bool {
    let slot = match (one.pci(), other.pci()) {
        (Some(one), Some(other)) => one.same_slot(other),
        _ => false,
    };
    slot || one.facts.uuid == other.facts.uuid
}

pub fn merge(vendors: Vec<Device>, served: Vec<Device>, notes: &mut Vec<String>) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::with_capacity(vendors.len() + served.len());
    for device in vendors {
        // Two with one identity would make the server refuse the whole inventory.
        if devices.iter().any(|known| known.facts.uuid == device.facts.uuid) {
            notes.push(format!(
                "{}: left out, as another device calls itself {} too",
                device.title(),
                device.facts.uuid
            ));
        } else {
            devices.push(device);
        }
    }
    for device in served {
        match devices.iter_mut().find(|known| is_same(known, &device)) {
            Some(known) => join(known, device, notes),
            None => devices.push(device),
        }
    }
    devices.retain(|device| {
        let has_memory = device.facts.vram_mib > 0;
        if !has_memory {
            notes.push(format!(
                "{}: left out, as its driver tells of no memory of its own and no OpenCL driver serves it",
                device.title()
            ));
        }
        has_memory
    });
    devices
}

fn join(known: &mut Device, served: Device, notes: &mut Vec<String>) {
    let Some(name) = served.opencl else {
        return;
    };
    if let Some(first) = &known.opencl {
        notes.push(format!(
            "{}: OpenCL has it as device {} of {} and as device {} of {}; counted once",
            known.title(),
            first.index,
            first.platform,
            name.index,
            name.platform
        ));
        return;
    }
    if known.facts.vram_mib == 0 {
        known.facts.vram_mib = served.facts.vram_mib;
    }
    known.opencl = Some(name);
}

#[cfg(test)]
mod tests {
    use tenure_domain::schedule::fleet::GpuFacts;
    use tenure_domain::schedule::hardware::Hardware;

    use super::super::OpenClName;
    use super::*;

    fn device(uuid: &str, pci: Option<&str>, vram_mib: u64, platform: Option<(&str, usize)>) -> Device {
        Device {
            facts: GpuFacts {
                uuid: uuid.to_owned(),
                vendor: "v".to_owned(),
                model: "m".to_owned(),
                class: "c".into(),
                vram_mib,
                isolation: Default::default(),
                hardware: pci.map(|pci| {
                    Box::new(Hardware {
                        pci: Some(pci.to_owned()),
                        ..Hardware::default()
                    })
                }),
            },
            opencl: platform.map(|(platform, index)| OpenClName {
                platform: platform.to_owned(),
                index,
            }),
            files: Vec::new(),
            memory_wall: None,
            flaw: None,
        }
    }

    #[test]
    fn one_device_found_twice_is_one() {
        let vendors = vec![
            device("GPU-a", Some("0000:01:00.0"), 80, None),
            device("GPU-b", Some("0000:02:00.0"), 80, None),
            device("intel-h-3", Some("0000:03:00.0"), 0, None),
            device("intel-h-4", Some("0000:04:00.0"), 0, None),
            device("GPU-a", Some("0000:05:00.0"), 80, None),
        ];
        let served = vec![
            device("GPU-a", None, 79, Some(("CUDA", 0))),
            // The slot tells, not the function: parts of a card may show others.
            device("x", Some("0000:02:00.1"), 79, Some(("CUDA", 1))),
            device("y", Some("0000:02:00.0"), 79, Some(("rusticl", 0))),
            device("z", Some("0000:03:00.0"), 12, Some(("Intel", 0))),
            device("pocl", None, 16, Some(("PoCL", 0))),
            device("pocl-2", None, 16, Some(("PoCL", 1))),
        ];
        let mut notes = Vec::new();
        let merged = merge(vendors, served, &mut notes);
        let told: Vec<_> = merged
            .iter()
            .map(|device| {
                let opencl = device
                    .opencl
                    .as_ref()
                    .map(|name| (name.platform.as_str(), name.index));
                (device.facts.uuid.as_str(), device.facts.vram_mib, opencl)
            })
            .collect();
        assert_eq!(
            told,
            [
                ("GPU-a", 80, Some(("CUDA", 0))),
                ("GPU-b", 80, Some(("CUDA", 1))),
                ("intel-h-3", 12, Some(("Intel", 0))),
                ("pocl", 16, Some(("PoCL", 0))),
                ("pocl-2", 16, Some(("PoCL", 1))),
            ]
        );
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(notes[0].contains("0000:05:00.0") && notes[0].contains("calls itself"));
        assert!(notes[1].contains("counted once"));
        assert!(notes[2].contains("0000:04:00.0") && notes[2].contains("left out"));
    }
}
