//! The OpenCL layer interface: handles, codes, and the dispatch table by name. Numbers are those of the Khronos headers
//! (`cl.h`, `cl_icd.h`, `cl_layer.h`).

use std::ffi::c_void;

/// Any OpenCL object; never looked into.
pub type Handle = *mut c_void;

pub const ENTRIES: usize = 149;

/// The dispatch table's entries in their order.
#[rustfmt::skip]
pub const NAMES: [&str; ENTRIES] = [
    "clGetPlatformIDs", "clGetPlatformInfo", "clGetDeviceIDs", "clGetDeviceInfo", "clCreateContext",
    "clCreateContextFromType", "clRetainContext", "clReleaseContext", "clGetContextInfo",
    "clCreateCommandQueue", "clRetainCommandQueue", "clReleaseCommandQueue", "clGetCommandQueueInfo",
    "clSetCommandQueueProperty", "clCreateBuffer", "clCreateImage2D", "clCreateImage3D",
    "clRetainMemObject", "clReleaseMemObject", "clGetSupportedImageFormats", "clGetMemObjectInfo",
    "clGetImageInfo", "clCreateSampler", "clRetainSampler", "clReleaseSampler", "clGetSamplerInfo",
    "clCreateProgramWithSource", "clCreateProgramWithBinary", "clRetainProgram", "clReleaseProgram",
    "clBuildProgram", "clUnloadCompiler", "clGetProgramInfo", "clGetProgramBuildInfo", "clCreateKernel",
    "clCreateKernelsInProgram", "clRetainKernel", "clReleaseKernel", "clSetKernelArg", "clGetKernelInfo",
    "clGetKernelWorkGroupInfo", "clWaitForEvents", "clGetEventInfo", "clRetainEvent", "clReleaseEvent",
    "clGetEventProfilingInfo", "clFlush", "clFinish", "clEnqueueReadBuffer", "clEnqueueWriteBuffer",
    "clEnqueueCopyBuffer", "clEnqueueReadImage", "clEnqueueWriteImage", "clEnqueueCopyImage",
    "clEnqueueCopyImageToBuffer", "clEnqueueCopyBufferToImage", "clEnqueueMapBuffer", "clEnqueueMapImage",
    "clEnqueueUnmapMemObject", "clEnqueueNDRangeKernel", "clEnqueueTask", "clEnqueueNativeKernel",
    "clEnqueueMarker", "clEnqueueWaitForEvents", "clEnqueueBarrier", "clGetExtensionFunctionAddress",
    "clCreateFromGLBuffer", "clCreateFromGLTexture2D", "clCreateFromGLTexture3D",
    "clCreateFromGLRenderbuffer", "clGetGLObjectInfo", "clGetGLTextureInfo", "clEnqueueAcquireGLObjects",
    "clEnqueueReleaseGLObjects", "clGetGLContextInfoKHR", "clGetDeviceIDsFromD3D10KHR",
    "clCreateFromD3D10BufferKHR", "clCreateFromD3D10Texture2DKHR", "clCreateFromD3D10Texture3DKHR",
    "clEnqueueAcquireD3D10ObjectsKHR", "clEnqueueReleaseD3D10ObjectsKHR", "clSetEventCallback",
    "clCreateSubBuffer", "clSetMemObjectDestructorCallback", "clCreateUserEvent", "clSetUserEventStatus",
    "clEnqueueReadBufferRect", "clEnqueueWriteBufferRect", "clEnqueueCopyBufferRect",
    "clCreateSubDevicesEXT", "clRetainDeviceEXT", "clReleaseDeviceEXT", "clCreateEventFromGLsyncKHR",
    "clCreateSubDevices", "clRetainDevice", "clReleaseDevice", "clCreateImage",
    "clCreateProgramWithBuiltInKernels", "clCompileProgram", "clLinkProgram", "clUnloadPlatformCompiler",
    "clGetKernelArgInfo", "clEnqueueFillBuffer", "clEnqueueFillImage", "clEnqueueMigrateMemObjects",
    "clEnqueueMarkerWithWaitList", "clEnqueueBarrierWithWaitList",
    "clGetExtensionFunctionAddressForPlatform", "clCreateFromGLTexture", "clGetDeviceIDsFromD3D11KHR",
    "clCreateFromD3D11BufferKHR", "clCreateFromD3D11Texture2DKHR", "clCreateFromD3D11Texture3DKHR",
    "clCreateFromDX9MediaSurfaceKHR", "clEnqueueAcquireD3D11ObjectsKHR", "clEnqueueReleaseD3D11ObjectsKHR",
    "clGetDeviceIDsFromDX9MediaAdapterKHR", "clEnqueueAcquireDX9MediaSurfacesKHR",
    "clEnqueueReleaseDX9MediaSurfacesKHR", "clCreateFromEGLImageKHR", "clEnqueueAcquireEGLObjectsKHR",
    "clEnqueueReleaseEGLObjectsKHR", "clCreateEventFromEGLSyncKHR", "clCreateCommandQueueWithProperties",
    "clCreatePipe", "clGetPipeInfo", "clSVMAlloc", "clSVMFree", "clEnqueueSVMFree", "clEnqueueSVMMemcpy",
    "clEnqueueSVMMemFill", "clEnqueueSVMMap", "clEnqueueSVMUnmap", "clCreateSamplerWithProperties",
    "clSetKernelArgSVMPointer", "clSetKernelExecInfo", "clGetKernelSubGroupInfoKHR", "clCloneKernel",
    "clCreateProgramWithIL", "clEnqueueSVMMigrateMem", "clGetDeviceAndHostTimer", "clGetHostTimer",
    "clGetKernelSubGroupInfo", "clSetDefaultDeviceCommandQueue", "clSetProgramReleaseCallback",
    "clSetProgramSpecializationConstant", "clCreateBufferWithProperties", "clCreateImageWithProperties",
    "clSetContextDestructorCallback",
];

/// The place of a name in the table; a name that is not in it does not compile.
pub const fn place(name: &str) -> usize {
    let mut place = 0;
    while place < ENTRIES {
        if same(NAMES[place].as_bytes(), name.as_bytes()) {
            return place;
        }
        place += 1;
    }
    panic!("not in the dispatch table")
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

pub const SUCCESS: i32 = 0;
pub const DEVICE_NOT_FOUND: i32 = -1;
pub const MEM_OBJECT_ALLOCATION_FAILURE: i32 = -4;
pub const OUT_OF_RESOURCES: i32 = -5;
pub const PROFILING_INFO_NOT_AVAILABLE: i32 = -7;
pub const DEVICE_PARTITION_FAILED: i32 = -18;
pub const INVALID_VALUE: i32 = -30;
pub const INVALID_PLATFORM: i32 = -32;
pub const INVALID_DEVICE: i32 = -33;
pub const INVALID_CONTEXT: i32 = -34;
pub const INVALID_QUEUE_PROPERTIES: i32 = -35;
pub const INVALID_COMMAND_QUEUE: i32 = -36;
pub const INVALID_OPERATION: i32 = -59;
pub const INVALID_BUFFER_SIZE: i32 = -61;
pub const INVALID_MIP_LEVEL: i32 = -62;
pub const INVALID_PROPERTY: i32 = -64;
pub const PLATFORM_NOT_FOUND: i32 = -1001;

pub const PLATFORM_NAME: u32 = 0x0902;
pub const PLATFORM_EXTENSIONS: u32 = 0x0904;
pub const PLATFORM_EXTENSIONS_WITH_VERSION: u32 = 0x0907;

pub const DEVICE_TYPE: u32 = 0x1000;
pub const DEVICE_UUID: u32 = 0x106A;

pub const CONTEXT_REFERENCE_COUNT: u32 = 0x1080;
pub const CONTEXT_PLATFORM: isize = 0x1084;
pub const CONTEXT_INTEROP_USER_SYNC: isize = 0x1085;

pub const QUEUE_REFERENCE_COUNT: u32 = 0x1092;
pub const QUEUE_PROPERTIES: u32 = 0x1093;
pub const QUEUE_PROPERTIES_ARRAY: u32 = 0x1098;
pub const QUEUE_OUT_OF_ORDER: u64 = 1;
pub const QUEUE_PROFILING: u64 = 2;
pub const QUEUE_ON_DEVICE: u64 = 4;

pub const MEM_USE_HOST_PTR: u64 = 1 << 3;
pub const MEM_COPY_HOST_PTR: u64 = 1 << 5;
pub const MEM_FLAGS: u32 = 0x1101;
pub const MEM_SIZE: u32 = 0x1102;

pub const IMAGE_ELEMENT_SIZE: u32 = 0x1111;
pub const MAP_READ: u64 = 1;
pub const MAP_WRITE: u64 = 2;

pub const KERNEL_FUNCTION_NAME: u32 = 0x1190;
pub const KERNEL_REFERENCE_COUNT: u32 = 0x1192;
pub const KERNEL_PROGRAM: u32 = 0x1194;

pub const EVENT_COMMAND_QUEUE: u32 = 0x11D0;
pub const EVENT_EXECUTION_STATUS: u32 = 0x11D3;
pub const COMPLETE: i32 = 0;
pub const RUNNING: i32 = 1;
pub const PROFILING_COMMAND_START: u32 = 0x1282;
pub const PROFILING_COMMAND_END: u32 = 0x1283;

pub const LAYER_API_VERSION: u32 = 0x4240;
pub const LAYER_NAME: u32 = 0x4241;
pub const LAYER_API_VERSION_100: u32 = 100;
