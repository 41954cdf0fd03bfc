//! The library that stands in front of a driver inside a process: OpenCL layer, CUDA front, Vulkan layer; thin
//! fronts over `limits`. One file serves all of them, each under the name its programs look for (decision 13).
//!
//! It gives good behaviour and precise sharing; the guarantee is given outside the process, by kernel, driver or
//! broker. Deliberately absent: accounting (limits), the agent (linked in, our symbols would capture its calls).
//! Loaded by the driver's own loader.
//!
//! # The environment a job gets
//!
//! | variable | meaning |
//! |---|---|
//! | `OPENCL_LAYERS` | absolute path of `libtenure_guard.so`; the OpenCL loader loads it |
//! | `TENURE_GUARD_PAGE` | the device's limits page: a path, or `fd:N` for an inherited descriptor |
//! | `TENURE_GUARD_SLICE` | the id of the job's slice on that page |
//! | `TENURE_GUARD_DEVICE` | the driver's device the page stands for: `PLATFORM:INDEX` (platform by number or name, device by number on it), or `uuid:HEX`; `0:0` when absent. CUDA, NVML and Vulkan have no platforms: there the number counts all devices |
//! | `TENURE_GUARD_CUDA_DRIVER` | the driver's own `libcuda.so.1`, where the job's is this library |
//! | `TENURE_GUARD_NVML_DRIVER` | the driver's own `libnvidia-ml.so.1`, likewise |
//! | `TENURE_GUARD_CUDA_CONTEXT_MIB` | what each CUDA context is charged, for what the driver takes unasked; 256 when absent |
//! | `TENURE_GUARD_VULKAN` | `1` switches the layer of `vulkan_layer.json` on where a Vulkan loader finds that file among its implicit layers; as an explicit one it is `VK_LAYER_TENURE_guard` |
//!
//! A job with slices of several devices gets lists separated by `;`, all of one length. Devices without a page are
//! not shown. Fail closed: when a variable is missing or wrong, a page cannot be opened, is of a newer version, or
//! lacks the slice, no platform and no device is given and one sentence on stderr says why.
//!
//! A process over its time limit is ended by the guard with exit status [`EXIT_OVER_TIME`] and a sentence on stderr.

#![deny(unsafe_op_in_unsafe_fn)]

mod config;
mod cuda;
mod driver;
mod gate;
mod jump;
mod nvml;
mod opencl;
mod registry;
mod vulkan;

/// Runs the body of an export; a panic in it answers `$doubt` instead of crossing into the caller.
macro_rules! guarded {
    ($doubt:expr, $body:expr) => {
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| $body)) {
            Ok(answer) => answer,
            Err(_) => $doubt,
        }
    };
}
pub(crate) use guarded;

/// Exit status of a process that the guard ended for running over its time limit.
pub const EXIT_OVER_TIME: i32 = 86;

/// Says one sentence on stderr; what cannot be said is not said.
pub(crate) fn say(sentence: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "tenure-guard: {sentence}");
}

/// Which limits pages this library knows. The agent asks before it relies on a library file.
#[unsafe(no_mangle)]
pub extern "C" fn tenure_guard_page_version() -> u32 {
    tenure_limits::VERSION
}
