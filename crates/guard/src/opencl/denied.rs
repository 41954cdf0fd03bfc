//! What no slice allows: calls that would bring in memory or work the guard does not see.

use std::ffi::c_void;

use tenure_limits::Counter;

use super::abi::{Handle, INVALID_OPERATION};
use super::bind::bindings;
use super::layer::{Entry, Hook};

fn count() {
    for binding in bindings() {
        binding.gate.count(Counter::Denials);
    }
}

/// For entries that answer with a code.
pub unsafe extern "C" fn refuse() -> i32 {
    let _ = std::panic::catch_unwind(count);
    INVALID_OPERATION
}

/// For entries that answer with an object and take an error code's address last.
fn no_object(code: *mut i32) -> Handle {
    let _ = std::panic::catch_unwind(count);
    if !code.is_null() {
        // SAFETY: valid as the caller of an OpenCL function promises.
        unsafe { *code = INVALID_OPERATION };
    }
    std::ptr::null_mut()
}

unsafe extern "C" fn object_of_three(_: *mut c_void, _: usize, _: usize, code: *mut i32) -> Handle {
    no_object(code)
}

unsafe extern "C" fn object_of_four(_: *mut c_void, _: usize, _: usize, _: usize, code: *mut i32) -> Handle {
    no_object(code)
}

unsafe extern "C" fn object_of_five(
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    code: *mut i32,
) -> Handle {
    no_object(code)
}

unsafe extern "C" fn object_of_two(_: *mut c_void, _: usize, code: *mut i32) -> Handle {
    no_object(code)
}

pub const DENIED: &[Hook] = &[
    Hook("clSetCommandQueueProperty", refuse as Entry),
    Hook("clEnqueueNativeKernel", refuse as Entry),
    Hook("clSetDefaultDeviceCommandQueue", refuse as Entry),
    Hook("clCreateFromGLBuffer", object_of_three as Entry),
    Hook("clCreateFromGLTexture2D", object_of_five as Entry),
    Hook("clCreateFromGLTexture3D", object_of_five as Entry),
    Hook("clCreateFromGLTexture", object_of_five as Entry),
    Hook("clCreateFromGLRenderbuffer", object_of_three as Entry),
    Hook("clGetGLObjectInfo", refuse as Entry),
    Hook("clGetGLTextureInfo", refuse as Entry),
    Hook("clEnqueueAcquireGLObjects", refuse as Entry),
    Hook("clEnqueueReleaseGLObjects", refuse as Entry),
    Hook("clGetGLContextInfoKHR", refuse as Entry),
    Hook("clGetDeviceIDsFromD3D10KHR", refuse as Entry),
    Hook("clCreateFromD3D10BufferKHR", object_of_three as Entry),
    Hook("clCreateFromD3D10Texture2DKHR", object_of_four as Entry),
    Hook("clCreateFromD3D10Texture3DKHR", object_of_four as Entry),
    Hook("clEnqueueAcquireD3D10ObjectsKHR", refuse as Entry),
    Hook("clEnqueueReleaseD3D10ObjectsKHR", refuse as Entry),
    Hook("clCreateEventFromGLsyncKHR", object_of_two as Entry),
    Hook("clGetDeviceIDsFromD3D11KHR", refuse as Entry),
    Hook("clCreateFromD3D11BufferKHR", object_of_three as Entry),
    Hook("clCreateFromD3D11Texture2DKHR", object_of_four as Entry),
    Hook("clCreateFromD3D11Texture3DKHR", object_of_four as Entry),
    Hook("clCreateFromDX9MediaSurfaceKHR", object_of_five as Entry),
    Hook("clEnqueueAcquireD3D11ObjectsKHR", refuse as Entry),
    Hook("clEnqueueReleaseD3D11ObjectsKHR", refuse as Entry),
    Hook("clGetDeviceIDsFromDX9MediaAdapterKHR", refuse as Entry),
    Hook("clEnqueueAcquireDX9MediaSurfacesKHR", refuse as Entry),
    Hook("clEnqueueReleaseDX9MediaSurfacesKHR", refuse as Entry),
    Hook("clCreateFromEGLImageKHR", object_of_five as Entry),
    Hook("clEnqueueAcquireEGLObjectsKHR", refuse as Entry),
    Hook("clEnqueueReleaseEGLObjectsKHR", refuse as Entry),
    Hook("clCreateEventFromEGLSyncKHR", object_of_three as Entry),
];
