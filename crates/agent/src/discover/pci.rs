//! Where a device sits on the PCI bus, what is near it, and whether it still answers there.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tenure_domain::schedule::hardware::LinkPath;

/// Domain, bus, device and function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    pub domain: u32,
    pub bus: u8,
    pub device: u8,
    pub function: u8,
}

impl PciAddress {
    /// One card has one slot, whatever functions it shows.
    pub fn same_slot(self, other: PciAddress) -> bool {
        (self.domain, self.bus, self.device) == (other.domain, other.bus, other.device)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for PciAddress {
    type Err = ();

    /// As the kernel writes it, and as NVML does, with a longer domain and in capitals.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split(':');
        let (Some(domain), Some(bus), Some(rest), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(());
        };
        let (device, function) = rest.split_once('.').ok_or(())?;
        let small = |text: &str| u8::from_str_radix(text, 16).map_err(drop);
        Ok(PciAddress {
            domain: u32::from_str_radix(domain, 16).map_err(drop)?,
            bus: small(bus)?,
            device: small(device)?,
            function: small(function)?,
        })
    }
}

/// The kernel's view of the bus, below the `sys` given.
pub struct PciBus {
    devices: PathBuf,
}

impl PciBus {
    pub fn below(sys: &Path) -> PciBus {
        PciBus {
            devices: sys.join("bus/pci/devices"),
        }
    }

    /// The memory of the host nearest to a device; the kernel says -1 where it does not know.
    pub fn numa_node(&self, of: PciAddress) -> Option<u32> {
        let path = self.devices.join(of.to_string()).join("numa_node");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// Whether a device that the kernel lists still answers. One that fell off the bus reads as ones everywhere.
    pub fn answers(&self, at: PciAddress) -> bool {
        let mut vendor = [0xff; 2];
        File::open(self.devices.join(at.to_string()).join("config"))
            .and_then(|mut config| config.read_exact(&mut vendor))
            .is_ok()
            && vendor != [0xff; 2]
    }

    /// The host bridge, the bridges below it, and the device, as the kernel nests them.
    fn way_to(&self, device: PciAddress) -> Option<Vec<String>> {
        let link = std::fs::read_link(self.devices.join(device.to_string())).ok()?;
        let steps: Vec<String> = link
            .components()
            .map(|step| step.as_os_str().to_string_lossy().into_owned())
            .skip_while(|step| !step.starts_with("pci"))
            .collect();
        (!steps.is_empty()).then_some(steps)
    }

    /// What two devices meet at.
    pub fn path(&self, one: PciAddress, other: PciAddress) -> LinkPath {
        if let (Some(one), Some(other)) = (self.way_to(one), self.way_to(other)) {
            let shared = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
            // Below one switch each has its own downstream port, then itself.
            let beyond = one.len().max(other.len()) - shared;
            match shared {
                0 => {}
                1 => return LinkPath::HostBridge,
                _ if beyond <= 2 => return LinkPath::PciSwitch,
                _ => return LinkPath::PciSwitches,
            }
        }
        match (self.numa_node(one), self.numa_node(other)) {
            (Some(a), Some(b)) if a == b => LinkPath::NumaNode,
            _ => LinkPath::System,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_the_kernel_and_as_nvml_write_them() {
        let at: PciAddress = "0000:c1:00.0".parse().unwrap();
        assert_eq!("00000000:C1:00.0".parse(), Ok(at));
        assert_eq!(at.to_string(), "0000:c1:00.0");
        assert_eq!(
            "10000:01:1f.7".parse::<PciAddress>().unwrap().to_string(),
            "10000:01:1f.7"
        );
        for bad in [
            "",
            "c1:00.0",
            "0000:c1:00",
            "0000:c1:00.0:1",
            "0000:1c1:00.0",
            "x:y:z.w",
        ] {
            assert!(bad.parse::<PciAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn devices_meet_where_the_kernel_nests_them() {
        let root = tempfile::tempdir().unwrap();
        let bus = PciBus::below(root.path());
        std::fs::create_dir_all(&bus.devices).unwrap();
        let place = |at: &str, way: &str| {
            let target = format!("../../../devices/{way}/{at}");
            std::os::unix::fs::symlink(target, bus.devices.join(at)).unwrap();
            at.parse::<PciAddress>().unwrap()
        };
        // Two below one switch, one below a second switch of the same port, one on the bridge, one elsewhere.
        let a = place(
            "0000:04:00.0",
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0",
        );
        let b = place(
            "0000:05:00.0",
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0",
        );
        let c = place(
            "0000:09:00.0",
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:03.0/0000:06:00.0/0000:07:01.0",
        );
        let d = place("0000:0a:00.0", "pci0000:00/0000:00:03.0");
        let e = place("0000:81:00.0", "pci0000:80/0000:80:01.0");
        assert_eq!(bus.path(a, b), LinkPath::PciSwitch);
        assert_eq!(bus.path(a, c), LinkPath::PciSwitches);
        assert_eq!(bus.path(c, a), LinkPath::PciSwitches);
        assert_eq!(bus.path(a, d), LinkPath::HostBridge);
        assert_eq!(bus.path(a, e), LinkPath::System);
    }
}
