//! GPUs: what each is, who holds which part of it, and how it is used right now.

use serde::{Deserialize, Serialize};
use tenure_domain::id::{AllocationId, JobId, NodeId};
use tenure_domain::workload::spec::Isolation;
use utoipa::{IntoParams, ToSchema};

use super::node::GpuView;
use super::time::Moment;
pub use crate::channel::reading::{Gauges, SliceUse, Throttle};

#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GpuQuery {
    /// Only those of this node, by its id.
    pub node: Option<String>,
    /// How many at most, 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Goes on where the page that gave this cursor ended.
    pub cursor: Option<String>,
}

/// A GPU with its slices. Readings are absent where none came.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeviceView {
    #[schema(value_type = String)]
    pub node: NodeId,
    pub node_name: String,
    /// What it is, and how much of it is given away.
    pub gpu: GpuView,
    /// The parts given away.
    pub slices: Vec<SliceView>,
    /// When it was last read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Moment>,
    /// The reading is too old to say how it is now.
    #[serde(default)]
    pub stale: bool,
    /// The device as a whole; only for those who may see the fleet, since it tells what neighbours do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gauges: Option<Gauges>,
    /// The last minutes; only where one GPU is asked for, and as `gauges`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recent: Option<Recent>,
}

/// A part of a GPU.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SliceView {
    pub vram_mib: u64,
    #[schema(maximum = 1000)]
    pub compute_permille: u16,
    /// Whose it is; absent on a slice in use by somebody the caller may not see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderView>,
    /// How it is used; absent where it was not read, or is not the caller's to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<SliceUse>,
}

/// Who holds a slice.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HolderView {
    #[schema(value_type = String)]
    pub allocation: AllocationId,
    #[schema(value_type = String)]
    pub job: JobId,
    pub job_name: String,
    pub owner_path: String,
    pub isolation: Isolation,
    pub isolation_why: String,
    /// Never more than its share, even while the rest of the device is idle.
    #[serde(default)]
    pub capped: bool,
}

/// Readings at even steps, oldest first and the last of them now; null where none came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Recent {
    pub step_s: u32,
    pub busy_permille: Vec<Option<u16>>,
    pub used_vram_mib: Vec<Option<u32>>,
}
