//! Graphics cards as the kernel's drivers show them below `/sys/class/drm`, and reading such files.
//!
//! Formats: the kernel's documentation, `gpu/amdgpu/driver-misc`, `gpu/drm-uapi` and `PCI/sysfs-pci`. What a vendor
//! adds is in `amd` and `intel`; NVIDIA's own driver is asked by NVML.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::ask::Answer;
use super::pci::{PciAddress, PciBus};
use super::setting::Setting;
use super::{amd, intel};

const NVIDIA: u16 = 0x10de;
const TEXT_BYTES_MAX: u64 = 4096;

/// A card on the PCI bus with a driver.
#[derive(Debug, Clone)]
pub struct Card {
    /// `/sys/class/drm/cardN`
    pub dir: PathBuf,
    pub pci: PciAddress,
    pub vendor: u16,
    pub model: u16,
    pub driver: String,
    /// Minor numbers of its render nodes.
    pub render: Vec<u32>,
}

impl Card {
    /// The directory of the PCI device.
    pub fn device(&self) -> PathBuf {
        self.dir.join("device")
    }
}

/// What stands in a small file, in one line; none if there is nothing to show.
pub fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(TEXT_BYTES_MAX)
        .read_to_end(&mut bytes)
        .ok()?;
    let text = super::printable(&bytes);
    (!text.is_empty()).then_some(text)
}

/// A number in a small file, decimal or with `0x`.
pub fn number(path: &Path) -> Option<u64> {
    let text = text(path)?;
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Names in a directory, sorted; none if it cannot be read.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// The numbers of entries called `PREFIX` and a number, in order.
pub fn numbered(dir: &Path, prefix: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = names(dir)
        .iter()
        .filter_map(|name| name.strip_prefix(prefix)?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

pub fn cards(sys: &Path) -> Vec<Card> {
    let class = sys.join("class/drm");
    let mut cards: Vec<Card> = numbered(&class, "card")
        .into_iter()
        .filter_map(|number| card(class.join(format!("card{number}"))))
        .collect();
    cards.sort_by_key(|card| card.pci);
    cards.dedup_by_key(|card| card.pci);
    cards
}

/// Cards that are not on the PCI bus are parts of one that is, or no GPUs.
fn card(dir: PathBuf) -> Option<Card> {
    let device = dir.join("device");
    let uevent = std::fs::read_to_string(device.join("uevent")).ok()?;
    let said = |key: &str| {
        uevent
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    Some(Card {
        pci: said("PCI_SLOT_NAME")?.parse().ok()?,
        driver: said("DRIVER").unwrap_or("none").to_owned(),
        vendor: u16::try_from(number(&device.join("vendor"))?).ok()?,
        model: u16::try_from(number(&device.join("device"))?).ok()?,
        render: numbered(&device.join("drm"), "renderD"),
        dir,
    })
}

/// AMD's and Intel's devices.
pub fn devices(setting: &Setting, host_id: &str) -> Answer {
    let sys = setting.sys();
    let bus = PciBus::below(&sys);
    let mut answer = Answer::default();
    let (mut by_amd, mut by_intel) = (Vec::new(), Vec::new());
    for card in cards(&sys) {
        match card.vendor {
            amd::VENDOR if card.driver == "amdgpu" => by_amd.push(card),
            intel::VENDOR if ["i915", "xe"].contains(&card.driver.as_str()) => {
                by_intel.push(card);
            }
            NVIDIA if card.driver == "nvidia" => {}
            vendor @ (amd::VENDOR | intel::VENDOR | NVIDIA) => answer.notes.push(format!(
                "card {vendor:04x}:{:04x} at {}: left out, as it is driven by {}, which tells too little of it",
                card.model, card.pci, card.driver
            )),
            _ => {}
        }
    }
    answer.devices = amd::devices(&by_amd, setting, &bus, host_id, &mut answer.notes);
    for card in &by_intel {
        let device = intel::device(card, &by_intel, setting, &bus, host_id, &mut answer.notes);
        answer.devices.push(device);
    }
    answer
}

/// The kernel driver, with its own version where it has one and the kernel's otherwise.
pub fn driver(setting: &Setting, name: &str) -> String {
    if let Some(version) = text(&setting.sys().join("module").join(name).join("version")) {
        return format!("{name} {version}");
    }
    match text(&setting.root.join("proc/sys/kernel/osrelease")) {
        Some(kernel) => format!("{name} of Linux {kernel}"),
        None => name.to_owned(),
    }
}
