//! Shader modules, for the audit: each that is made counts once, by the hash of its code, and nothing of it is kept.
//!
//! Deliberately absent: which of them a submission runs, which stands in command buffers that may be submitted again and
//! again; code that a pipeline is given without a module; and bytes of copies, likewise recorded.

use std::ffi::c_void;

use sha2::{Digest, Sha256};

use super::abi::{Code, ERROR_INITIALIZATION_FAILED, Handle, Link, Object, SUCCESS};
use super::device;
use crate::gate::KernelMark;
use crate::guarded;
use crate::jump::{Entry, Hook};

pub const HOOKS: &[Hook] = &[Hook("vkCreateShaderModule", create as Entry)];

/// `VkShaderModuleCreateInfo`.
#[repr(C)]
pub struct ShaderModuleCreateInfo {
    pub head: Link,
    pub flags: u32,
    pub bytes: usize,
    pub code: *const u32,
}

pub type Create =
    unsafe extern "system" fn(Handle, *const ShaderModuleCreateInfo, *const c_void, *mut Object) -> Code;

unsafe extern "system" fn create(
    handle: Handle,
    info: *const ShaderModuleCreateInfo,
    allocator: *const c_void,
    module: *mut Object,
) -> Code {
    guarded!(ERROR_INITIALIZATION_FAILED, {
        let Some(device) = device::of(handle) else {
            return ERROR_INITIALIZATION_FAILED;
        };
        // SAFETY: the caller's own arguments.
        let code = unsafe { (device.create_shader)(handle, info, allocator, module) };
        // SAFETY: null, or what the driver took for what it is.
        if let (SUCCESS, Some(info)) = (code, unsafe { info.as_ref() })
            && !info.code.is_null()
        {
            // SAFETY: the driver took so many bytes there.
            let code = unsafe { std::slice::from_raw_parts(info.code.cast::<u8>(), info.bytes) };
            let hash: [u8; 32] = Sha256::digest(code).into();
            let first = hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
            device.binding.gate.count_kernel(&KernelMark::new(first));
        }
        code
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_the_headers() {
        assert_eq!(size_of::<ShaderModuleCreateInfo>(), 40);
        assert_eq!(std::mem::offset_of!(ShaderModuleCreateInfo, bytes), 24);
    }
}
