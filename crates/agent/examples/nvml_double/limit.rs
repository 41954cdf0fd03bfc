//! Memory limits of cgroups on the double, kept in `limits.json` by device and cgroup. As in the driver, a limit goes
//! with its cgroup.

use std::fs;
use std::path::Path;

use super::*;

/// `nvmlSetMemoryLimits_v1_t`
#[repr(C)]
pub struct MemoryLimits {
    name_space: *const c_char,
    soft: c_ulonglong,
    hard: c_ulonglong,
}

/// Soft and hard limits of each cgroup, by the uuid of the device.
type Limits = BTreeMap<String, BTreeMap<String, [u64; 2]>>;

const FUNCTION_NOT_FOUND: Status = 13;
/// The first branch that has it.
const BRANCH: u32 = 615;

exports! {
    nvmlDeviceSetMemoryLimits_v1(of: Handle, limits: *mut MemoryLimits) {
        let (machine, gpu) = device(of)?;
        let branch = machine.driver.split('.').next().and_then(|branch| branch.parse().ok());
        if branch.is_none_or(|branch: u32| branch < BRANCH) {
            return Err(FUNCTION_NOT_FOUND);
        }
        if gpu.mig {
            return Err(NOT_SUPPORTED);
        }
        let limits = &*limits;
        let path = std::ffi::CStr::from_ptr(limits.name_space).to_str().map_err(|_| INVALID_ARGUMENT)?;
        if !Path::new(path).is_dir() {
            return Err(NOT_FOUND);
        }
        let kept = fs::read(beside("limits.json")).ok();
        let mut all: Limits = kept.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        for cgroups in all.values_mut() {
            cgroups.retain(|path, _| Path::new(path).is_dir());
        }
        all.entry(gpu.uuid.clone()).or_default().insert(path.to_owned(), [limits.soft, limits.hard]);
        let text = serde_json::to_vec(&all).map_err(|_| 999)?;
        fs::write(beside("limits.json"), text).map_err(|_| 999)
    }
}
