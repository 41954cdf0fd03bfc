//! Programs: known by a hash of what they were made of, so that kernels can be told apart without keeping anything of
//! them. The driver makes them as it would without us.
//!
//! A handle given anew replaces what was known of its predecessor, so nothing has to be heard of releases.

use std::ffi::{c_char, c_void};

use sha2::{Digest, Sha256};

use super::abi::{Handle, KERNEL_FUNCTION_NAME, KERNEL_PROGRAM};
use super::bind::{bytes_of, value_of};
use super::layer::{Entry, Hook};
use super::{guarded, next};
use crate::registry::Registry;

pub const HOOKS: &[Hook] = &[
    Hook("clCreateProgramWithSource", with_source as Entry),
    Hook("clCreateProgramWithBinary", with_binary as Entry),
    Hook("clCreateProgramWithIL", with_il as Entry),
    Hook(
        "clCreateProgramWithBuiltInKernels",
        with_built_in_kernels as Entry,
    ),
    Hook("clLinkProgram", link as Entry),
];

static PROGRAMS: Registry<[u8; 32]> = Registry::new();

/// The hash of a kernel: of its program's text or code, and its name.
pub fn kernel_hash(kernel: Handle) -> u64 {
    let program = value_of::<usize>(next!("clGetKernelInfo"), kernel, KERNEL_PROGRAM);
    let known = program.and_then(|program| PROGRAMS.get(program as Handle));
    let mut hash = Sha256::new();
    hash.update(known.as_deref().unwrap_or(&[0; 32]));
    hash.update(bytes_of(next!("clGetKernelInfo"), kernel, KERNEL_FUNCTION_NAME));
    let hash: [u8; 32] = hash.finalize().into();
    hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

fn remember(program: Handle, hash: Sha256) -> Handle {
    if !program.is_null() {
        PROGRAMS.set(program, hash.finalize().into());
    }
    program
}

/// Takes in texts or codes, one behind the other: how a text is cut does not matter.
///
/// # Safety
/// `parts` has `count` pointers, each to as many bytes as `lengths` says, or to a C string where it says nothing.
unsafe fn take_in(hash: &mut Sha256, count: u32, parts: *const *const c_char, lengths: *const usize) {
    if parts.is_null() {
        return;
    }
    for place in 0..count as usize {
        // SAFETY: as promised.
        unsafe {
            let part = *parts.add(place);
            let length = if lengths.is_null() { 0 } else { *lengths.add(place) };
            if part.is_null() {
                continue;
            }
            let length = if length == 0 { libc::strlen(part) } else { length };
            hash.update(std::slice::from_raw_parts(part.cast::<u8>(), length));
        }
    }
}

unsafe extern "C" fn with_source(
    context: Handle,
    count: u32,
    strings: *const *const c_char,
    lengths: *const usize,
    code: *mut i32,
) -> Handle {
    type Create = unsafe extern "C" fn(Handle, u32, *const *const c_char, *const usize, *mut i32) -> Handle;
    guarded!(std::ptr::null_mut(), {
        let next: Create = next!("clCreateProgramWithSource");
        // SAFETY: the caller's own arguments.
        let program = unsafe { next(context, count, strings, lengths, code) };
        let mut hash = Sha256::new();
        if !program.is_null() {
            // SAFETY: the driver took them for what they are.
            unsafe { take_in(&mut hash, count, strings, lengths) };
        }
        remember(program, hash)
    })
}

unsafe extern "C" fn with_binary(
    context: Handle,
    count: u32,
    devices: *const Handle,
    lengths: *const usize,
    binaries: *const *const c_char,
    status: *mut i32,
    code: *mut i32,
) -> Handle {
    type Create = unsafe extern "C" fn(
        Handle,
        u32,
        *const Handle,
        *const usize,
        *const *const c_char,
        *mut i32,
        *mut i32,
    ) -> Handle;
    guarded!(std::ptr::null_mut(), {
        let next: Create = next!("clCreateProgramWithBinary");
        // SAFETY: the caller's own arguments.
        let program = unsafe { next(context, count, devices, lengths, binaries, status, code) };
        let mut hash = Sha256::new();
        // A binary has a length, always; without it nothing is looked at.
        if !program.is_null() && !lengths.is_null() {
            // SAFETY: as many lengths as binaries; the driver took them for what they are.
            let sound = unsafe { std::slice::from_raw_parts(lengths, count as usize) };
            if sound.iter().all(|length| *length > 0) {
                // SAFETY: as above.
                unsafe { take_in(&mut hash, count, binaries, lengths) };
            }
        }
        remember(program, hash)
    })
}

unsafe extern "C" fn with_il(context: Handle, il: *const c_void, length: usize, code: *mut i32) -> Handle {
    type Create = unsafe extern "C" fn(Handle, *const c_void, usize, *mut i32) -> Handle;
    guarded!(std::ptr::null_mut(), {
        let next: Create = next!("clCreateProgramWithIL");
        // SAFETY: the caller's own arguments.
        let program = unsafe { next(context, il, length, code) };
        let mut hash = Sha256::new();
        if !program.is_null() && !il.is_null() {
            // SAFETY: the driver took so many bytes there.
            hash.update(unsafe { std::slice::from_raw_parts(il.cast::<u8>(), length) });
        }
        remember(program, hash)
    })
}

unsafe extern "C" fn with_built_in_kernels(
    context: Handle,
    count: u32,
    devices: *const Handle,
    names: *const c_char,
    code: *mut i32,
) -> Handle {
    type Create = unsafe extern "C" fn(Handle, u32, *const Handle, *const c_char, *mut i32) -> Handle;
    guarded!(std::ptr::null_mut(), {
        let next: Create = next!("clCreateProgramWithBuiltInKernels");
        // SAFETY: the caller's own arguments.
        let program = unsafe { next(context, count, devices, names, code) };
        let mut hash = Sha256::new();
        hash.update(b"built in");
        remember(program, hash)
    })
}

type BuildNotify = Option<unsafe extern "C" fn(Handle, *mut c_void)>;

unsafe extern "C" fn link(
    context: Handle,
    devices: u32,
    device_list: *const Handle,
    options: *const c_char,
    count: u32,
    inputs: *const Handle,
    notify: BuildNotify,
    data: *mut c_void,
    code: *mut i32,
) -> Handle {
    type Link = unsafe extern "C" fn(
        Handle,
        u32,
        *const Handle,
        *const c_char,
        u32,
        *const Handle,
        BuildNotify,
        *mut c_void,
        *mut i32,
    ) -> Handle;
    guarded!(std::ptr::null_mut(), {
        let next: Link = next!("clLinkProgram");
        let mut hash = Sha256::new();
        if !inputs.is_null() {
            // SAFETY: as many programs as it says, as the caller of an OpenCL function promises.
            for input in unsafe { std::slice::from_raw_parts(inputs, count as usize) } {
                hash.update(PROGRAMS.get(*input).as_deref().unwrap_or(&[0; 32]));
            }
        }
        // SAFETY: the caller's own arguments.
        let program = unsafe {
            next(
                context,
                devices,
                device_list,
                options,
                count,
                inputs,
                notify,
                data,
                code,
            )
        };
        remember(program, hash)
    })
}
