//! The dispatch table, whose address begins every object, and the two exports a loader looks for.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use crate::abi::{ENTRIES, Handle, NAMES};
use crate::{
    absent, command, context, device, event, image, kernel, map, memory, program, queue, sampler, transfer,
};

pub type Entry = *const c_void;

struct Table([Entry; ENTRIES]);

// SAFETY: addresses of functions.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

macro_rules! entries {
    ($($name:literal => $function:path),* $(,)?) => {
        /// What stands for a name; a name in no list is refused.
        fn entry(name: &str) -> Entry {
            match name {
                $($name => $function as Entry,)*
                _ => absent::refuse as Entry,
            }
        }

        /// The names that are offered.
        #[cfg(test)]
        const OFFERED: &[&str] = &[$($name),*];
    };
}

entries! {
    "clGetPlatformIDs" => device::get_platform_ids,
    "clGetPlatformInfo" => device::get_platform_info,
    "clGetDeviceIDs" => device::get_device_ids,
    "clGetDeviceInfo" => device::get_device_info,
    "clRetainDevice" => device::retain_device,
    "clReleaseDevice" => device::release_device,
    "clRetainDeviceEXT" => device::retain_device,
    "clReleaseDeviceEXT" => device::release_device,
    "clCreateSubDevices" => absent::sub_devices,
    "clCreateSubDevicesEXT" => absent::sub_devices,
    "clGetDeviceAndHostTimer" => device::get_device_and_host_timer,
    "clGetHostTimer" => device::get_host_timer,
    "clGetExtensionFunctionAddress" => clGetExtensionFunctionAddress,
    "clGetExtensionFunctionAddressForPlatform" => address_for_platform,
    "clUnloadCompiler" => program::unload_compiler,
    "clUnloadPlatformCompiler" => program::unload_platform_compiler,

    "clCreateContext" => context::create,
    "clCreateContextFromType" => context::create_from_type,
    "clRetainContext" => context::retain,
    "clReleaseContext" => context::release,
    "clGetContextInfo" => context::get_info,
    "clSetContextDestructorCallback" => context::set_destructor,

    "clCreateCommandQueue" => queue::create,
    "clCreateCommandQueueWithProperties" => queue::create_with_properties,
    "clRetainCommandQueue" => queue::retain,
    "clReleaseCommandQueue" => queue::release,
    "clGetCommandQueueInfo" => queue::get_info,
    "clSetCommandQueueProperty" => queue::set_property,
    "clFlush" => queue::flush,
    "clFinish" => queue::finish,

    "clCreateBuffer" => memory::create_buffer,
    "clCreateBufferWithProperties" => memory::create_buffer_with_properties,
    "clCreateSubBuffer" => memory::create_part,
    "clRetainMemObject" => memory::retain,
    "clReleaseMemObject" => memory::release,
    "clGetMemObjectInfo" => memory::get_info,
    "clSetMemObjectDestructorCallback" => memory::set_destructor,

    "clCreateImage" => image::create,
    "clCreateImageWithProperties" => image::create_with_properties,
    "clCreateImage2D" => image::create_2d,
    "clCreateImage3D" => image::create_3d,
    "clGetImageInfo" => image::get_info,
    "clGetSupportedImageFormats" => image::get_formats,

    "clCreateSampler" => sampler::create,
    "clCreateSamplerWithProperties" => sampler::create_with_properties,
    "clRetainSampler" => sampler::retain,
    "clReleaseSampler" => sampler::release,
    "clGetSamplerInfo" => sampler::get_info,

    "clCreateProgramWithSource" => program::create_with_source,
    "clCreateProgramWithBinary" => program::create_with_binary,
    "clCreateProgramWithIL" => program::create_with_il,
    "clCreateProgramWithBuiltInKernels" => program::create_with_built_in,
    "clRetainProgram" => program::retain,
    "clReleaseProgram" => program::release,
    "clBuildProgram" => program::build,
    "clCompileProgram" => program::compile,
    "clLinkProgram" => program::link,
    "clGetProgramInfo" => program::get_info,
    "clGetProgramBuildInfo" => program::get_build_info,
    "clSetProgramReleaseCallback" => program::set_release_callback,
    "clSetProgramSpecializationConstant" => program::set_specialization,

    "clCreateKernel" => kernel::create,
    "clCreateKernelsInProgram" => kernel::create_all,
    "clCloneKernel" => kernel::clone,
    "clRetainKernel" => kernel::retain,
    "clReleaseKernel" => kernel::release,
    "clSetKernelArg" => kernel::set_arg,
    "clGetKernelInfo" => kernel::get_info,
    "clGetKernelArgInfo" => kernel::get_arg_info,
    "clGetKernelWorkGroupInfo" => kernel::get_work_group_info,
    "clGetKernelSubGroupInfo" => kernel::get_sub_group_info,
    "clGetKernelSubGroupInfoKHR" => kernel::get_sub_group_info,

    "clCreateUserEvent" => event::create_user,
    "clSetUserEventStatus" => event::set_user_status,
    "clWaitForEvents" => event::wait,
    "clGetEventInfo" => event::get_info,
    "clGetEventProfilingInfo" => event::get_profiling_info,
    "clRetainEvent" => event::retain,
    "clReleaseEvent" => event::release,
    "clSetEventCallback" => event::set_callback,

    "clEnqueueNDRangeKernel" => kernel::launch,
    "clEnqueueTask" => kernel::task,
    "clEnqueueReadBuffer" => transfer::read,
    "clEnqueueWriteBuffer" => transfer::write,
    "clEnqueueReadBufferRect" => transfer::read_rect,
    "clEnqueueWriteBufferRect" => transfer::write_rect,
    "clEnqueueReadImage" => transfer::read_image,
    "clEnqueueWriteImage" => transfer::write_image,
    "clEnqueueCopyBuffer" => command::copy_buffer,
    "clEnqueueCopyBufferRect" => command::copy_rect,
    "clEnqueueFillBuffer" => command::fill_buffer,
    "clEnqueueCopyImage" => command::copy_image,
    "clEnqueueCopyImageToBuffer" => command::image_to_buffer,
    "clEnqueueCopyBufferToImage" => command::buffer_to_image,
    "clEnqueueFillImage" => command::fill_image,
    "clEnqueueMigrateMemObjects" => command::migrate,
    "clEnqueueMarker" => command::old_marker,
    "clEnqueueBarrier" => command::old_barrier,
    "clEnqueueWaitForEvents" => command::old_wait,
    "clEnqueueMarkerWithWaitList" => command::marker,
    "clEnqueueBarrierWithWaitList" => command::barrier,
    "clEnqueueMapBuffer" => map::map_buffer,
    "clEnqueueMapImage" => map::map_image,
    "clEnqueueUnmapMemObject" => map::unmap,

    "clSVMAlloc" => absent::svm_alloc,
    "clSVMFree" => absent::svm_free,
    "clCreatePipe" => absent::object_of_five,
    "clCreateFromGLBuffer" => absent::object_of_three,
    "clCreateFromGLTexture2D" => absent::object_of_five,
    "clCreateFromGLTexture3D" => absent::object_of_five,
    "clCreateFromGLTexture" => absent::object_of_five,
    "clCreateFromGLRenderbuffer" => absent::object_of_three,
    "clCreateFromD3D10BufferKHR" => absent::object_of_three,
    "clCreateFromD3D10Texture2DKHR" => absent::object_of_four,
    "clCreateFromD3D10Texture3DKHR" => absent::object_of_four,
    "clCreateEventFromGLsyncKHR" => absent::object_of_two,
    "clCreateFromD3D11BufferKHR" => absent::object_of_three,
    "clCreateFromD3D11Texture2DKHR" => absent::object_of_four,
    "clCreateFromD3D11Texture3DKHR" => absent::object_of_four,
    "clCreateFromDX9MediaSurfaceKHR" => absent::object_of_five,
    "clCreateFromEGLImageKHR" => absent::object_of_five,
    "clCreateEventFromEGLSyncKHR" => absent::object_of_three,
}

/// Refused on purpose: they answer with a code alone, and nothing behind them is advertised.
#[cfg(test)]
#[rustfmt::skip]
const REFUSED: &[&str] = &[
    "clEnqueueNativeKernel", "clGetGLObjectInfo", "clGetGLTextureInfo", "clEnqueueAcquireGLObjects",
    "clEnqueueReleaseGLObjects", "clGetGLContextInfoKHR", "clGetDeviceIDsFromD3D10KHR",
    "clEnqueueAcquireD3D10ObjectsKHR", "clEnqueueReleaseD3D10ObjectsKHR", "clGetDeviceIDsFromD3D11KHR",
    "clEnqueueAcquireD3D11ObjectsKHR", "clEnqueueReleaseD3D11ObjectsKHR",
    "clGetDeviceIDsFromDX9MediaAdapterKHR", "clEnqueueAcquireDX9MediaSurfacesKHR",
    "clEnqueueReleaseDX9MediaSurfacesKHR", "clEnqueueAcquireEGLObjectsKHR", "clEnqueueReleaseEGLObjectsKHR",
    "clGetPipeInfo", "clEnqueueSVMFree", "clEnqueueSVMMemcpy", "clEnqueueSVMMemFill", "clEnqueueSVMMap",
    "clEnqueueSVMUnmap", "clSetKernelArgSVMPointer", "clSetKernelExecInfo", "clEnqueueSVMMigrateMem",
    "clSetDefaultDeviceCommandQueue",
];

/// The table.
pub fn table() -> *const Entry {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table(NAMES.map(entry))).0.as_ptr()
}

/// The address behind a name: every entry of the table, and what a loader asks for.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetExtensionFunctionAddress(name: *const c_char) -> *mut c_void {
    // SAFETY: as the caller of an OpenCL function promises.
    let name = unsafe { crate::export::text(name) };
    let Ok(name) = name.to_str() else {
        return std::ptr::null_mut();
    };
    let core = match name {
        "clIcdGetPlatformIDsKHR" => return clIcdGetPlatformIDsKHR as *mut c_void,
        "clCreateCommandQueueWithPropertiesKHR" => "clCreateCommandQueueWithProperties",
        "clCreateProgramWithILKHR" => "clCreateProgramWithIL",
        other => other,
    };
    let function = match NAMES.contains(&core) {
        true => entry(core),
        false => std::ptr::null(),
    };
    if function == absent::refuse as Entry {
        return std::ptr::null_mut();
    }
    function.cast_mut()
}

unsafe extern "C" fn address_for_platform(_platform: Handle, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's own argument.
    unsafe { clGetExtensionFunctionAddress(name) }
}

/// The platforms, for a loader.
///
/// # Safety
/// `platforms` has room for `entries` or is null; `count` is valid or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clIcdGetPlatformIDsKHR(
    entries: u32,
    platforms: *mut Handle,
    count: *mut u32,
) -> i32 {
    // SAFETY: the caller's own arguments.
    unsafe { device::get_platform_ids(entries, platforms, count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_offered_or_refused_on_purpose() {
        for name in NAMES {
            let times = OFFERED
                .iter()
                .chain(REFUSED)
                .filter(|known| **known == name)
                .count();
            assert_eq!(times, 1, "{name}");
        }
        for name in OFFERED.iter().chain(REFUSED) {
            assert!(NAMES.contains(name), "{name} is not in the table");
        }
    }
}
