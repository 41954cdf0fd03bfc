//! Samplers.

use std::ffi::c_void;
use std::sync::Arc;

use tenure_wire::Request;

use crate::abi::{Handle, INVALID_SAMPLER, INVALID_VALUE};
use crate::context::Context;
use crate::export::{answer, bytes_of, done, made, pairs};
use crate::kernel::LIVING;
use crate::link::Remote;
use crate::object::{self, Kind, Object, get, hold};

pub struct Sampler {
    pub remote: Remote,
    context: Arc<Object<Context>>,
    kind: [u32; 3],
    asked: Vec<u64>,
}

impl Kind for Sampler {
    const MARK: u32 = 0x5341_4d50;
    const INVALID: i32 = INVALID_SAMPLER;
}

/// # Safety
/// The handle is null or a live OpenCL object.
unsafe fn new(context: Handle, kind: [u32; 3], asked: Vec<u64>) -> Result<Handle, i32> {
    // SAFETY: as promised.
    let context = unsafe { hold::<Context>(context)? };
    let (remote, _) = Remote::make(context.remote.link, |id| Request::Sampler {
        id,
        context: context.remote.id,
        normalized: kind[0],
        addressing: kind[1],
        filter: kind[2],
    })?;
    let handle = Object::give(Object::new(Sampler {
        remote,
        context,
        kind,
        asked,
    }));
    LIVING.add(handle);
    Ok(handle)
}

pub unsafe extern "C" fn create(
    context: Handle,
    normalized: u32,
    addressing: u32,
    filter: u32,
    code: *mut i32,
) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            new(context, [normalized, addressing, filter], Vec::new())
        })
    }
}

pub unsafe extern "C" fn create_with_properties(
    context: Handle,
    properties: *const u64,
    code: *mut i32,
) -> Handle {
    // SAFETY: as the caller of an OpenCL function promises.
    unsafe {
        made(code, || {
            let asked = pairs(properties);
            // Normalized, clamped and nearest, where nothing else is said.
            let mut kind = [1, 0x1132, 0x1140];
            for pair in asked.chunks_exact(2) {
                match pair[0] {
                    0x1152 => kind[0] = pair[1] as u32,
                    0x1153 => kind[1] = pair[1] as u32,
                    0x1154 => kind[2] = pair[1] as u32,
                    _ => return Err(INVALID_VALUE),
                }
            }
            new(context, kind, asked)
        })
    }
}

pub unsafe extern "C" fn retain(sampler: Handle) -> i32 {
    // SAFETY: as the caller of an OpenCL function promises.
    done(|| unsafe { object::retain::<Sampler>(sampler) })
}

pub unsafe extern "C" fn release(sampler: Handle) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        if unsafe { object::release::<Sampler>(sampler)? }.is_some() {
            LIVING.remove(sampler);
        }
        Ok(())
    })
}

pub unsafe extern "C" fn get_info(
    sampler: Handle,
    param: u32,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> i32 {
    done(|| {
        // SAFETY: as the caller of an OpenCL function promises.
        let sampler = unsafe { get::<Sampler>(sampler)? };
        let bytes = match param {
            0x1150 => bytes_of(&[sampler.references()]),
            0x1151 => bytes_of(&[sampler.context.handle()]),
            0x1152..=0x1154 => bytes_of(&[sampler.kind[(param - 0x1152) as usize]]),
            0x1158 => bytes_of(&sampler.asked),
            _ => return Err(INVALID_VALUE),
        };
        // SAFETY: as the caller of an OpenCL function promises.
        unsafe { answer(&bytes, size, value, size_ret) }
    })
}
