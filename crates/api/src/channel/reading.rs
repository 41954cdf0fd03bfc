//! Readings: what a node measured of its devices just now. Sent often, kept in memory only, never journalled, and
//! dropped rather than queued; what is charged or promised never rests on one.
//!
//! What was not measured is absent, never zero. Fields may be added: unknown ones are passed over.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tenure_domain::id::AllocationId;
use tenure_domain::schedule::hardware::Placement;
use utoipa::ToSchema;

/// The most devices one message carries; more are sent in several.
pub const MAX_DEVICES: usize = 64;
/// The most slices a device has, and the most parts.
pub const MAX_SLICES: usize = 64;

/// One device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReading {
    pub uuid: String,
    #[serde(default)]
    pub gauges: Gauges,
    /// Slices with counters of their own.
    #[serde(default)]
    pub slices: Vec<SliceReading>,
    /// Parts that hardware cut from it, which are measured by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartReading>,
}

/// One part of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartReading {
    /// The driver's number of it.
    pub instance: u32,
    /// Such as `3g.40gb`.
    pub profile: String,
    /// Where on the device it lies.
    pub placement: Placement,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_vram_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graphics_active_permille: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_active_permille: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_active_permille: Option<u16>,
}

/// A device as a whole, as its driver and its slices tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gauges {
    /// How much of the time it worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub busy_permille: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_vram_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<i16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_mw: Option<u64>,
    /// Since the driver was loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_mj: Option<u64>,
    /// Memory errors that were corrected, since the driver began to count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc_corrected: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc_uncorrected: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_temperature_c: Option<i16>,
    /// How much of the time its memory was read or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub memory_busy_permille: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub encoder_permille: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub decoder_permille: Option<u16>,
    /// Memory that the driver keeps for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_vram_mib: Option<u64>,
    /// Transfers over the PCI bus that had to be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_replays: Option<u64>,
    /// Rows of memory that were replaced, after errors of either kind; and whether one could not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remapped_correctable: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remapped_uncorrectable: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remap_failed: Option<bool>,
    /// How much of the time its engine for graphics and compute worked, by its own counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub graphics_active_permille: Option<u16>,
    /// How much of the time its units for matrices did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub tensor_active_permille: Option<u16>,
    /// How much of what its memory can move was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub memory_active_permille: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_sent_bytes_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_received_bytes_s: Option<u64>,
    /// What holds its clocks down; empty when nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_by: Option<BTreeSet<Throttle>>,
}

/// Why a device is slower than it could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    Power,
    Thermal,
    Other,
}

impl Throttle {
    pub fn as_str(self) -> &'static str {
        match self {
            Throttle::Power => "power",
            Throttle::Thermal => "thermal",
            Throttle::Other => "other",
        }
    }
}

/// One slice. Shares are of the time since the reading before; absent where there was none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceReading {
    pub allocation: AllocationId,
    #[serde(flatten)]
    pub use_now: SliceUse,
}

/// How a slice is used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SliceUse {
    pub used_vram_mib: u64,
    pub peak_vram_mib: u64,
    pub limit_vram_mib: u64,
    pub processes: u32,
    /// How much of the time the device worked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub busy_permille: Option<u16>,
    /// How much of the time its own cap or a pause held it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub throttled_permille: Option<u16>,
    /// How much of the time it waited for others' turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub waited_permille: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launches_per_s: Option<u64>,
    /// Allocations of memory refused so far.
    pub refusals: u64,
    /// Calls denied so far because they would pass the guard by.
    pub denials: u64,
}

/// Why readings were not taken.
pub fn check(devices: &[DeviceReading]) -> Result<(), &'static str> {
    if devices.len() > MAX_DEVICES {
        return Err("more devices than a message carries");
    }
    for device in devices {
        if device.uuid.len() > 200 || device.slices.len() > MAX_SLICES || device.parts.len() > MAX_SLICES {
            return Err("a device with a longer name, or more slices or parts, than any has");
        }
        let shares = device.slices.iter().flat_map(|slice| {
            let SliceUse {
                busy_permille,
                throttled_permille,
                waited_permille,
                ..
            } = slice.use_now;
            [busy_permille, throttled_permille, waited_permille]
        });
        let of_parts = device.parts.iter().flat_map(|part| {
            [
                part.graphics_active_permille,
                part.tensor_active_permille,
                part.memory_active_permille,
            ]
        });
        let gauges = &device.gauges;
        let whole = [
            gauges.busy_permille,
            gauges.memory_busy_permille,
            gauges.encoder_permille,
            gauges.decoder_permille,
            gauges.graphics_active_permille,
            gauges.tensor_active_permille,
            gauges.memory_active_permille,
        ];
        if device.parts.iter().any(|part| part.profile.len() > 200) {
            return Err("a part with a longer name than any has");
        }
        if shares
            .chain(of_parts)
            .chain(whole)
            .flatten()
            .any(|share| share > 1000)
        {
            return Err("a share of more than the whole");
        }
    }
    Ok(())
}
