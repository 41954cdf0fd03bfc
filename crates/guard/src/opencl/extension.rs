//! Extensions: those that only add to the language or to what can be asked are shown; functions behind any other
//! name do not exist for the program, since a call through such an address passes the table by.

use std::ffi::{c_char, c_void};

use tenure_limits::Counter;

use super::abi::Handle;
use super::bind::bindings;
use super::layer::{self, Entry, Hook};
use super::{guarded, next};

pub const HOOKS: &[Hook] = &[
    Hook("clGetExtensionFunctionAddress", function_address as Entry),
    Hook(
        "clGetExtensionFunctionAddressForPlatform",
        function_address_for_platform as Entry,
    ),
];

/// Language features and questions; none brings memory or work of its own.
const HARMLESS: &[&str] = &[
    "cl_khr_3d_image_writes",
    "cl_khr_async_work_group_copy_fence",
    "cl_khr_byte_addressable_store",
    "cl_khr_create_command_queue",
    "cl_khr_depth_images",
    "cl_khr_device_uuid",
    "cl_khr_expect_assume",
    "cl_khr_extended_async_copies",
    "cl_khr_extended_bit_ops",
    "cl_khr_extended_versioning",
    "cl_khr_fp16",
    "cl_khr_fp64",
    "cl_khr_global_int32_base_atomics",
    "cl_khr_global_int32_extended_atomics",
    "cl_khr_icd",
    "cl_khr_il_program",
    "cl_khr_image2d_from_buffer",
    "cl_khr_int64_base_atomics",
    "cl_khr_int64_extended_atomics",
    "cl_khr_integer_dot_product",
    "cl_khr_local_int32_base_atomics",
    "cl_khr_local_int32_extended_atomics",
    "cl_khr_pci_bus_info",
    "cl_khr_spir",
    "cl_khr_spirv_extended_debug_info",
    "cl_khr_spirv_linkonce_odr",
    "cl_khr_spirv_no_integer_wrap_decoration",
    "cl_khr_srgb_image_writes",
    "cl_khr_subgroup_ballot",
    "cl_khr_subgroup_clustered_reduce",
    "cl_khr_subgroup_extended_types",
    "cl_khr_subgroup_named_barrier",
    "cl_khr_subgroup_non_uniform_arithmetic",
    "cl_khr_subgroup_non_uniform_vote",
    "cl_khr_subgroup_rotate",
    "cl_khr_subgroup_shuffle",
    "cl_khr_subgroup_shuffle_relative",
    "cl_khr_subgroups",
    "cl_khr_work_group_uniform_arithmetic",
    "cl_ext_float_atomics",
    "cl_intel_required_subgroup_size",
    "cl_intel_spirv_subgroups",
    "cl_intel_subgroups",
    "cl_intel_subgroups_char",
    "cl_intel_subgroups_long",
    "cl_intel_subgroups_short",
    "cl_nv_device_attribute_query",
    "cl_nv_pragma_unroll",
    "cl_amd_device_attribute_query",
    "cl_amd_media_ops",
    "cl_amd_media_ops2",
];

/// The extension string without what the program may not use.
pub fn filter_names(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let kept: Vec<&str> = text
        .trim_end_matches('\0')
        .split_ascii_whitespace()
        .filter(|name| HARMLESS.contains(name))
        .collect();
    let mut answer = kept.join(" ").into_bytes();
    answer.push(0);
    answer
}

/// The same for `cl_name_version` records: a number and a name of 64 bytes.
pub fn filter_versions(bytes: &[u8]) -> Vec<u8> {
    const RECORD: usize = 68;
    bytes
        .chunks_exact(RECORD)
        .filter(|record| {
            let name = record[4..].split(|byte| *byte == 0).next().unwrap_or_default();
            std::str::from_utf8(name).is_ok_and(|name| HARMLESS.contains(&name))
        })
        .flatten()
        .copied()
        .collect()
}

/// What the program gets for a name: our own entry for core functions and their older names, the driver's for mere
/// questions, nothing else.
fn address(name: &str, driver: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let core = match name {
        "clCreateCommandQueueWithPropertiesKHR" => "clCreateCommandQueueWithProperties",
        "clCreateProgramWithILKHR" => "clCreateProgramWithIL",
        other => other,
    };
    if name == "clGetKernelSubGroupInfoKHR" {
        return driver();
    }
    match layer::ours(core) {
        Some(entry) => entry.cast_mut(),
        None => {
            bindings()
                .iter()
                .for_each(|binding| binding.gate.count(Counter::Denials));
            std::ptr::null_mut()
        }
    }
}

unsafe extern "C" fn function_address(name: *const c_char) -> *mut c_void {
    guarded!(std::ptr::null_mut(), {
        let next: unsafe extern "C" fn(*const c_char) -> *mut c_void = next!("clGetExtensionFunctionAddress");
        // SAFETY: a C string as the caller of an OpenCL function promises.
        match unsafe { layer::text(name) } {
            // SAFETY: the caller's own argument.
            Some(text) => address(text, || unsafe { next(name) }),
            None => std::ptr::null_mut(),
        }
    })
}

unsafe extern "C" fn function_address_for_platform(platform: Handle, name: *const c_char) -> *mut c_void {
    guarded!(std::ptr::null_mut(), {
        let next: unsafe extern "C" fn(Handle, *const c_char) -> *mut c_void =
            next!("clGetExtensionFunctionAddressForPlatform");
        // SAFETY: a C string as the caller of an OpenCL function promises.
        match unsafe { layer::text(name) } {
            // SAFETY: the caller's own arguments.
            Some(text) => address(text, || unsafe { next(platform, name) }),
            None => std::ptr::null_mut(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_extensions_are_not_shown() {
        let shown = filter_names(b"cl_khr_fp64  cl_khr_command_buffer cl_khr_icd\0");
        assert_eq!(shown, b"cl_khr_fp64 cl_khr_icd\0");
        let record = |name: &str| {
            let mut record = vec![0u8; 68];
            record[4..4 + name.len()].copy_from_slice(name.as_bytes());
            record
        };
        let both = [record("cl_khr_fp64"), record("cl_intel_unified_shared_memory")].concat();
        assert_eq!(filter_versions(&both), record("cl_khr_fp64"));
        assert_eq!(filter_versions(b"short"), b"");
    }
}
