//! An allocation: slices given to a member of a job for one attempt, on one node, until it ends.

use serde::{Deserialize, Serialize};

use super::fleet::is_zero;
use super::hardware::PartChoice;
use crate::id::{AllocationId, GpuId, JobId, NodeId};
use crate::time::Time;
use crate::workload::spec::Isolation;
use crate::workload::usage::Usage;

/// A part of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Slice {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub gpu: GpuId,
    pub vram_mib: u64,
    pub compute_permille: u16,
    /// Where the slice is a part of the device in hardware: which, and where it lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartChoice>,
}

fn is_first(member: &u32) -> bool {
    *member == 0
}

/// What one member of a job was given, as decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    pub id: AllocationId,
    pub job: JobId,
    pub node: NodeId,
    pub attempt: u32,
    /// Which member of its job it is, from 0.
    #[serde(default, skip_serializing_if = "is_first")]
    pub member: u32,
    pub slices: Vec<Slice>,
    pub cpu_milli: u32,
    pub memory_mib: u64,
    pub isolation: Isolation,
    /// Why it has this isolation and no stronger one.
    pub isolation_why: String,
    pub placed: Time,
    /// Its slices changed their size since it was placed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resized: bool,
    /// The job is paused: it is on its node, without its GPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Run time before the job last resumed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ran_before_ms: u64,
    /// Run time metered and charged so far; the next interval begins here.
    pub metered_ms: u64,
    /// Less than a micro of its cost so far that is not charged yet, in units of `rate::UNIT`; and of what its
    /// subscriber pays.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crumb: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resale_crumb: u64,
    /// Use of its devices up to there; none while none was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Usage>,
    /// Run time on end, up to there, in which it waited for others' turns longer than it worked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crowded_ms: u64,
}
