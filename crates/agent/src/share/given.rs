//! What each allocation was given of shared devices, written down in its directory: an agent started anew must not ask the
//! pages, on which guarded jobs can write.
//!
//! Deliberately absent: what is on the pages (`integrity.rs`).

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tenure_domain::id::AllocationId;
use tenure_limits::SliceSpec;

use crate::record::write_whole;

/// In the allocation's directory.
const NAME: &str = "slices.json";

/// A slice as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The device's.
    pub uuid: String,
    pub allocation: AllocationId,
    pub limit_bytes: u64,
    pub weight_per_mille: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    /// Of the pages it is on.
    version: u32,
    slices: Vec<Slice>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Slice {
    uuid: String,
    limit_bytes: u64,
    weight_per_mille: u32,
    #[serde(default)]
    cap_per_mille: Option<u32>,
    #[serde(default)]
    kernel_limit_ns: Option<u64>,
}

/// Writes down what an allocation has now. Not synced: no slice outlives the power.
pub(super) fn write(allocation: &Path, slices: &[(String, SliceSpec)]) -> io::Result<()> {
    let slices = slices.iter().map(|(uuid, spec)| Slice {
        uuid: uuid.clone(),
        limit_bytes: spec.limit_bytes,
        weight_per_mille: spec.weight_per_mille,
        cap_per_mille: spec.cap_per_mille,
        kernel_limit_ns: spec.kernel_limit_ns,
    });
    let written = Written {
        version: tenure_limits::VERSION,
        slices: slices.collect(),
    };
    write_whole(allocation, NAME, &serde_json::to_vec(&written)?)
}

pub(super) fn forget(allocation: &Path) {
    let _ = fs::remove_file(allocation.join(NAME));
}

/// A slice that an agent before this one gave.
pub(super) struct Earlier {
    pub uuid: String,
    pub spec: SliceSpec,
    /// On a page as this agent makes them.
    pub of_this_version: bool,
}

/// All that was given and not forgotten.
pub(super) fn read(allocations: &Path) -> Vec<Earlier> {
    let dirs = fs::read_dir(allocations).into_iter().flatten().flatten();
    let of_one = dirs.filter_map(|dir| {
        let id: AllocationId = dir.file_name().to_str()?.parse().ok()?;
        let bytes = fs::read(dir.path().join(NAME)).ok()?;
        match serde_json::from_slice::<Written>(&bytes) {
            Ok(written) => Some((id, written)),
            Err(error) => {
                tracing::warn!(allocation = %id, %error, "what it was given is not known; its pages are believed");
                None
            }
        }
    });
    of_one
        .flat_map(|(id, written)| {
            written.slices.into_iter().map(move |slice| Earlier {
                uuid: slice.uuid,
                of_this_version: written.version == tenure_limits::VERSION,
                spec: SliceSpec {
                    id: id.0,
                    limit_bytes: slice.limit_bytes,
                    weight_per_mille: slice.weight_per_mille,
                    cap_per_mille: slice.cap_per_mille,
                    kernel_limit_ns: slice.kernel_limit_ns,
                    process_limit_ns: None,
                },
            })
        })
        .collect()
}
