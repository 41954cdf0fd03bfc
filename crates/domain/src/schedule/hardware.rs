//! What a device is made of, as its driver tells it: where it sits, what it is cut into, what it is linked to.
//!
//! Only what stays the same while nothing is changed on the machine; readings that move are telemetry. Nothing here
//! decides: placement reads the levels in `GpuFacts`, and the facts beside them say what those rest on.

use serde::{Deserialize, Serialize};

use crate::name;
use crate::refusal::Refusal;

const TEXT_MAX: usize = 200;
const PARTS_MAX: usize = 128;
const PROFILES_MAX: usize = 64;
const PLACEMENTS_MAX: usize = 64;
const LINKS_MAX: usize = 1024;

/// Everything is optional: a driver that does not say is not made up for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Where it is on the PCI bus, such as `0000:c1:00.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<String>,
    /// The memory of the host that is nearest to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// The kernel driver and its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// What programs are compiled for, such as `sm_90` or `gfx942`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Whether its memory corrects errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc: Option<bool>,
    /// For devices that hardware can cut into parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitioning: Option<Partitioning>,
    /// Shares of it are of one tenant at a time, whoever agreed to what: a fault of one ends all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_tenant: bool,
    /// Its driver moves what programs have on it to the host's memory and back, so that their jobs can be paused
    /// without a worker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checkpoint: bool,
    /// The other devices of the node, and how each is reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
}

/// How a device is cut, and how it could be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Partitioning {
    /// The vendor's word for the mode it is in: `mig`, `off`, `CPX/NPS1`.
    pub mode: String,
    /// The mode after its next reset, where that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
    /// Modes it could be put into, where the mode decides the parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modes: Vec<String>,
    /// The parts that exist now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// The kinds of part that may be made, where each part is chosen by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<PartProfile>,
    /// What lies on it beside those, that no program could be given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<PartChoice>,
    /// The mode decides for the whole device: all of its parts are of one kind.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uniform: bool,
}

/// One part of a device, with memory and compute of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The vendor's identity of the part.
    pub uuid: String,
    /// Such as `3g.40gb` or `CPX`.
    pub profile: String,
    pub memory_mib: u64,
    /// Where on the device it lies, where the driver tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
}

/// The part a slice is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PartChoice {
    /// Its kind, as the vendor calls it: `3g.40gb`, `CPX`.
    pub profile: String,
    /// The driver's number of that kind.
    pub id: u32,
    /// Where it lies.
    pub placement: Placement,
}

/// A kind of part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PartProfile {
    /// Such as `3g.40gb`.
    pub name: String,
    /// The driver's number for it.
    pub id: u32,
    pub memory_mib: u64,
    /// Compute slices it takes.
    pub slices: u32,
    /// How many an empty device holds.
    pub count: u32,
    /// Where on an empty device it may lie.
    pub placements: Vec<Placement>,
}

/// A place on a device, in its memory slices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Placement {
    pub start: u32,
    pub size: u32,
}

impl Placement {
    fn end(self) -> u64 {
        u64::from(self.start) + u64::from(self.size)
    }

    /// Whether the two have a slice in common.
    pub fn overlaps(self, other: Placement) -> bool {
        u64::from(self.start) < other.end() && u64::from(other.start) < self.end()
    }
}

/// The way from one device to another of the same node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The other device's uuid.
    pub peer: String,
    pub path: LinkPath,
    /// How many links lie side by side; 1 where they are not counted.
    pub width: u32,
}

/// The best way between two devices, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LinkPath {
    /// NVIDIA's links, from one to the other.
    Nvlink,
    /// NVIDIA's links, through a switch for them.
    Nvswitch,
    /// AMD's links.
    Xgmi,
    /// Two chips on one board.
    Board,
    /// One PCI switch.
    PciSwitch,
    /// Several PCI switches, below one host bridge.
    PciSwitches,
    /// The host bridge.
    HostBridge,
    /// The processor whose memory is near both.
    NumaNode,
    /// From one processor to another.
    System,
}

impl LinkPath {
    pub fn as_str(self) -> &'static str {
        match self {
            LinkPath::Nvlink => "nvlink",
            LinkPath::Nvswitch => "nvswitch",
            LinkPath::Xgmi => "xgmi",
            LinkPath::Board => "board",
            LinkPath::PciSwitch => "pci_switch",
            LinkPath::PciSwitches => "pci_switches",
            LinkPath::HostBridge => "host_bridge",
            LinkPath::NumaNode => "numa_node",
            LinkPath::System => "system",
        }
    }
}

impl Hardware {
    /// A node's word is kept in the journal, so it is bounded.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let texts = [&self.pci, &self.driver, &self.architecture];
        for text in texts.into_iter().flatten() {
            name::check_text(text, TEXT_MAX, "/gpus/hardware")?;
        }
        if self.links.len() > LINKS_MAX {
            return Err(Refusal::invalid(
                "/gpus/hardware/links",
                format!("a GPU has at most {LINKS_MAX} links"),
            ));
        }
        for link in &self.links {
            name::check_text(&link.peer, TEXT_MAX, "/gpus/hardware/links/peer")?;
        }
        self.partitioning.as_ref().map_or(Ok(()), Partitioning::check)
    }
}

impl Partitioning {
    fn check(&self) -> Result<(), Refusal> {
        const FIELD: &str = "/gpus/hardware/partitioning";
        let placements = self.profiles.iter().map(|profile| profile.placements.len());
        if self.parts.len() > PARTS_MAX
            || self.profiles.len() > PROFILES_MAX
            || self.modes.len() > PROFILES_MAX
            || self.taken.len() > PLACEMENTS_MAX
            || placements.max() > Some(PLACEMENTS_MAX)
        {
            return Err(Refusal::invalid(
                FIELD,
                format!(
                    "a GPU has at most {PARTS_MAX} parts, {PROFILES_MAX} profiles and modes, and {PLACEMENTS_MAX} placements each"
                ),
            ));
        }
        let parts = self.parts.iter().flat_map(|part| [&part.uuid, &part.profile]);
        let profiles = self.profiles.iter().map(|profile| &profile.name);
        let profiles = profiles.chain(self.taken.iter().map(|taken| &taken.profile));
        let modes = self.modes.iter().chain(&self.pending).chain([&self.mode]);
        for text in parts.chain(profiles).chain(modes) {
            name::check_text(text, TEXT_MAX, FIELD)?;
        }
        Ok(())
    }
}
